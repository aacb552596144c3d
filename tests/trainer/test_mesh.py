"""Meshes: device layouts, divisibility of a run, array placement, partial arrays read by slices."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file
from tiny_run import RUN

from trainer.array_files import SHAPES, ArrayFiles, Files
from trainer.initial_state import state_shapes
from trainer.spec.mesh import Layout, MeshShape

AXES = ("slice", "data", "expert", "tensor")


def layout(*sizes: int) -> Layout:
    return Layout(AbstractMesh(sizes, AXES))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "devices", "sizes"),
    [("", 8, (1, 8, 1, 1)), ("tensor=2", 8, (1, 4, 1, 2)), ("slice=2,tensor=2", 8, (2, 2, 1, 2)), ("data=1", 1, (1, 1, 1, 1))],
)
def test_data_takes_the_devices_that_the_other_axes_leave(shape: str, devices: int, sizes: tuple[int, ...]) -> None:
    assert MeshShape.parse(shape).sizes(devices) == sizes


@pytest.mark.parametrize(("shape", "devices"), [("data=3", 4), ("tensor=3", 4), ("slice=8", 4)])
def test_a_shape_that_does_not_cover_the_devices_is_refused(shape: str, devices: int) -> None:
    with pytest.raises(ValueError, match=f"does not cover {devices} devices; choose sizes .MARIN_MESH. whose"):
        MeshShape.parse(shape).sizes(devices)


@pytest.mark.parametrize(
    ("sizes", "change", "message"),
    [
        ((1, 3, 1, 1), {}, "run.batch_size is 4; it must be a multiple of 3, the mesh's slice x data"),
        ((2, 2, 1, 1), {"microbatch_size": 2}, "run.microbatch_size is 2; it must be a multiple of 4"),
        ((1, 1, 1, 4), {}, "model.num_kv_heads is 2; it must be a multiple of 4, the mesh's tensor"),
        ((1, 32, 1, 1), {"batch_size": 32}, "model.hidden_dim is 16; it must be a multiple of 32, the mesh's data"),
    ],
)
def test_what_a_mesh_cannot_divide_is_refused_by_name(sizes: tuple[int, ...], change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        layout(*sizes).check(replace(RUN, **change))
    layout(1, 2, 1, 2).check(RUN)


def test_parameters_lie_by_their_axes_and_what_has_none_lies_everywhere() -> None:
    placed = state_shapes(RUN, layout(1, 2, 1, 2))
    block = placed.model.blocks.stacked
    wanted = [
        (block.attention.w_q, P(None, "data", "tensor", None, None)),  # layers, embed, kv heads, group, head
        (block.mlp.w_down, P(None, "tensor", "data")),
        (placed.model.embedding, P(None, "data")),
        (placed.optimizer[1].mu.blocks.stacked.mlp.w_up, P(None, "data", "tensor")),
    ]
    for named, spec in wanted:
        assert named.array.sharding.spec == spec
    assert placed.optimizer[1].count.sharding.spec == P()


@given(st.data())
def test_parts_are_read_in_any_slices(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """An array cut into a grid by two processes, and any slice of it."""
    folder = tmp_path_factory.mktemp("parts")
    whole = np.arange(35, dtype=np.float32).reshape(5, 7)
    rows = sorted({0, *data.draw(st.lists(st.integers(1, 4), max_size=2)), 5})
    columns = sorted({0, *data.draw(st.lists(st.integers(1, 6), max_size=2)), 7})
    parts: list[dict[str, np.ndarray]] = [{}, {}]
    for number, top in enumerate(rows[:-1]):
        for left, right in pairwise(columns):
            parts[(number + left) % 2][f"x@{top},{left}"] = np.ascontiguousarray(whole[top : rows[number + 1], left:right])
    for index, arrays in enumerate(parts):
        arrays[f"unused{index}@"] = np.full((), index, np.float32)
        metadata = {SHAPES: json.dumps({"x": [5, 7], f"unused{index}": []})}
        save_file(arrays, folder / f"model.{index:05d}-of-00002.safetensors", metadata)
    files = ArrayFiles.open(folder, "model", "here")
    assert files is not None
    bounds = [sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2, unique=True))) for size in (5, 7)]
    index = tuple(slice(low, high) for low, high in bounds)
    np.testing.assert_array_equal(files.read("x", index), whole[index])
    np.testing.assert_array_equal(files.whole()["x"], whole)
    assert files.read("unused1") == 1


@given(st.data())
def test_any_box_is_read_by_runs_whatever_lies_between_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """If no gap may be read, only requested bytes are read."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=4)))
    whole = np.arange(math.prod(shape), dtype=np.int16).reshape(shape)
    folder = tmp_path_factory.mktemp("runs")
    save_file({"before": np.zeros(3, np.int8), "x": whole}, folder / "model.safetensors")
    source = replace(Files.of_folder(folder), gap_bytes=data.draw(st.sampled_from([0, 4, 1 << 20])))
    files = ArrayFiles.of(source, "model", "here")
    assert files is not None
    headers = source.bytes_read
    bounds = [sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2, unique=True))) for size in shape]
    index = tuple(slice(low, high) for low, high in bounds)
    box = files.read("x", index)
    np.testing.assert_array_equal(box, whole[index])
    assert box.dtype == whole.dtype and (source.gap_bytes or source.bytes_read - headers == box.nbytes)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    save_file({"x@0": np.zeros(2, np.float32)}, tmp_path / "model.00001-of-00002.safetensors", {SHAPES: '{"x": [8]}'})
    with pytest.raises(ValueError, match=re.escape("here: model.00000-of-00002.safetensors is missing, one of 2 parts")):
        ArrayFiles.open(tmp_path, "model", "here")
    save_file({"x@0": np.zeros(2, np.float32)}, tmp_path / "model.00000-of-00002.safetensors", {SHAPES: '{"x": [8]}'})
    arrays = ArrayFiles.open(tmp_path, "model", "here")
    assert arrays is not None
    with pytest.raises(ValueError, match="the parts of array x do not cover"):
        arrays.read("x")
