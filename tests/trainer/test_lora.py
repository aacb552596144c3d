"""Low-rank adapters: the base stays, merged and unmerged agree, a resume gives the same bits, and the export is PEFT's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built_here import trained
from safetensors.numpy import load_file
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model
from tiny_run import RUN, checkpoint_node, prepared

from lineage.artifact.store import Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable
from trainer.checkpoint import read_model
from trainer.hf.adapter import HF_ADAPTER, AdapterExportConfig, peft_tensors
from trainer.model.adapted_weight import DroppedWeight
from trainer.model.build import init_model, model_shapes
from trainer.model.layers import dot
from trainer.model.lora import Adapted
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.lora import TARGETS, LoraConfig
from trainer.spec.optimizers import EmaConfig, MuonConfig
from trainer.step import row_keys

BASE = replace(RUN, name="base", num_steps=6)
TUNED = replace(
    RUN, name="tuned", num_steps=8, save_every_steps=4, start=WarmStart(), batch_size=8, microbatch_size=4,
    adapter=LoraConfig(3, 6.0, TARGETS, dropout=0.25),
)  # fmt: skip


def tuned(step: int) -> Node:
    node = checkpoint_node(TUNED, step)
    return replace(node, inputs={**node.inputs, "start": checkpoint_node(BASE, BASE.num_steps)})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A base, and an adapter of two kept checkpoints."""
    store = prepared(tmp_path_factory.mktemp("lora"), checkpoint_node(BASE, BASE.num_steps))
    trained(store, checkpoint_node(BASE, BASE.num_steps))
    trained(store, tuned(8))
    return store


def test_only_targets_move_and_by_scale_times_the_product(store: Store) -> None:
    before = load_file(resolve(store, checkpoint_node(BASE, BASE.num_steps)).file("model.safetensors"))
    last = resolve(store, tuned(8))
    after, factors = load_file(last.file("model.safetensors")), load_file(last.file("adapter.safetensors"))
    assert set(before) == set(after)
    for name, weight in before.items():
        target = next((each for each in TARGETS if f".{each}[" in name), None)
        if target is None:
            assert (after[name] == weight).all()
            continue
        down, up = (factors[f".stacked.{side}['{target}'][<flat index 0>]"] for side in ("down", "up"))
        layers = weight.shape[0]
        product = np.stack([down[i].reshape(-1, 3) @ up[i].reshape(3, -1) for i in range(layers)]).reshape(weight.shape)
        assert np.abs(product).max() > 1e-4
        np.testing.assert_allclose(after[name], weight + 2.0 * product, rtol=0, atol=1e-6)


def test_merged_is_unmerged() -> None:
    """Each product with the sum is the base's product and the adapter's, computed apart."""
    base = init_model(tiny_model(), key=jax.random.PRNGKey(0))
    model = Adapted.init(base, LoraConfig(2, 4.0, ("w_q", "w_down")), key=jax.random.PRNGKey(1))
    for begun, weight in zip(jax.tree.leaves(model.merged()), jax.tree.leaves(base), strict=True):
        assert np.array_equal(begun, weight), "it begins as its base"
    factors = model.adapter.stacked
    up = {name: hax.random.normal(jax.random.PRNGKey(2), each.axes) * 0.1 for name, each in factors.up.items()}
    model = eqx.tree_at(lambda each: each.adapter.stacked.up, model, up)
    merged = model.merged().blocks.stacked
    for name, weight, summed, reads in (
        ("w_q", base.blocks.stacked.attention.w_q, merged.attention.w_q, "embed"),
        ("w_down", base.blocks.stacked.mlp.w_down, merged.mlp.w_down, "mlp"),
    ):
        x = hax.random.normal(jax.random.PRNGKey(3), (hax.Axis("batch", 5), weight.resolve_axis(reads)))
        adapted = hax.dot(hax.dot(x, factors.down[name], axis=reads), up[name], axis="lora")
        apart = hax.dot(x, weight, axis=reads) + 2.0 * adapted
        together = hax.dot(x, summed, axis=reads)
        np.testing.assert_allclose(together.array, apart.rearrange(together.axes).array, rtol=0, atol=1e-5)
        assert np.abs(adapted.array).max() > 1e-3


def adapted(rate: float, seed: int = 0) -> Adapted:
    """A model whose adapter is no zero."""
    base = quick_model(tiny_model(initializer_range=0.2), seed)
    model = Adapted.init(base, LoraConfig(2, 4.0, TARGETS, rate), key=jax.random.PRNGKey(1))
    up = {name: hax.random.normal(jax.random.PRNGKey(2), each.axes) * 0.3 for name, each in model.adapter.stacked.up.items()}
    return eqx.tree_at(lambda each: each.adapter.stacked.up, model, up)


TOKENS = np.random.default_rng(0).integers(0, 64, (6, 8)).astype(np.int32)


@eqx.filter_jit
def hidden(model: Adapted, tokens: np.ndarray, layers: Literal["scan", "unrolled"] = "scan") -> jax.Array:
    return model.hidden(jnp.asarray(tokens), None, model.resolved(ComputeConfig(layers=layers), tokens.shape[1], False))


def test_a_mask_is_a_function_of_seed_step_and_row(quick_compilation: None) -> None:
    model, keys = adapted(0.25), row_keys(3, 7, 6)
    found = np.asarray(hidden(model.dropping(keys), TOKENS))
    assert np.array_equal(found, hidden(model.dropping(row_keys(3, 7, 6)), TOKENS))
    order = np.array([4, 0, 5, 1, 3, 2])
    assert np.array_equal(hidden(model.dropping(keys[order]), TOKENS[order]), found[order]), "the rows beside it change nothing"
    assert np.array_equal(row_keys(3, 7, 4), keys[:4]), "nor does the size of the batch"
    for other in (row_keys(3, 8, 6), row_keys(4, 7, 6)):
        gaps = np.abs(np.asarray(hidden(model.dropping(other), TOKENS)) - found).max(axis=(1, 2))
        assert gaps.min() > 1e-2
    assert np.abs(np.asarray(hidden(model.dropping(keys), TOKENS, "unrolled")) - found).max() < 1e-5


def test_the_sides_of_a_pair_have_masks_of_their_own(quick_compilation: None) -> None:
    model, keys = adapted(0.5), row_keys(0, 0, 3)
    same = np.repeat(TOKENS[:3], 2, axis=0)  # pairs of equal sides
    found = np.asarray(hidden(model.dropping(keys), same))
    assert (np.abs(found[::2] - found[1::2]).max(axis=(1, 2)) > 1e-2).all()


def test_a_rate_of_nothing_is_the_merged_model(quick_compilation: None) -> None:
    model = adapted(0.0)
    gap = np.abs(np.asarray(hidden(model.dropping(row_keys(0, 0, 6)), TOKENS) - hidden(model, TOKENS)))
    assert gap.max() <= 1e-5


def test_the_adapter_alone_reads_what_is_kept() -> None:
    """Against numpy, with the mask of the weight; a share of 1 - rate is kept and divided by it."""
    random, rate = np.random.default_rng(0), 0.25
    sizes = {"batch": 4, "position": 50, "embed": 16, "lora": 3, "mlp": 5, "key": 2}

    def named(array: np.ndarray, names: tuple[str, ...]) -> hax.NamedArray:
        return hax.named(jnp.asarray(array), tuple(hax.Axis(name, sizes[name]) for name in names))

    places = ("batch", "position", "embed"), ("embed", "mlp"), ("embed", "lora"), ("lora", "mlp")
    drawn = [random.normal(size=[sizes[name] for name in names]).astype(np.float32) for names in places]
    x, base, down, up = (named(array, names) for array, names in zip(drawn, places, strict=True))
    weight = DroppedWeight(base, down, up, named(row_keys(1, 2, 4), ("batch", "key")), 1.5, rate)
    mask = np.asarray(weight.kept(x).array)
    assert mask.mean() == pytest.approx(1 - rate, abs=0.03)
    wanted = drawn[0] @ drawn[1] + 1.5 * ((drawn[0] * mask / (1 - rate)) @ drawn[2] @ drawn[3])
    np.testing.assert_allclose(dot(x, weight, "embed").array, wanted, rtol=0, atol=1e-4)


def test_a_checkpoint_is_read_like_any_other(store: Store) -> None:
    last = resolve(store, tuned(8))
    model = read_model(last, model_shapes(TUNED.model))
    assert np.isfinite(np.asarray(model(np.ones((1, 8), np.int32)))).all()


def test_a_resume_gives_the_same_bits(store: Store, tmp_path: Path) -> None:
    other = prepared(tmp_path, checkpoint_node(BASE, BASE.num_steps))
    trained(other, checkpoint_node(BASE, BASE.num_steps))
    trained(other, tuned(4))
    trained(other, tuned(8))
    assert resolve(other, tuned(8)).data_version == resolve(store, tuned(8)).data_version
    assert resolve(store, tuned(4)).data_version != resolve(store, tuned(8)).data_version


def test_the_export_has_the_names_and_shapes_of_peft(store: Store) -> None:
    made = build(store, Node(("adapter",), None, HF_ADAPTER, AdapterExportConfig("there"), {"checkpoint": tuned(8)})).artifact
    stated = json.loads(made.file("adapter_config.json").read_text())
    assert (stated["r"], stated["lora_alpha"], stated["base_model_name_or_path"]) == (3, 6.0, "there")
    assert stated["lora_dropout"] == 0.25
    assert stated["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    tensors = load_file(made.file("adapter_model.safetensors"))
    assert len(tensors) == 2 * len(TARGETS) * TUNED.model.num_layers
    down = tensors["base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"]
    up = tensors["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"]
    assert down.shape == (3, TUNED.model.intermediate_dim) and up.shape == (TUNED.model.hidden_dim, 3)
    ours = load_file(resolve(store, tuned(8)).file("adapter.safetensors"))
    assert peft_tensors(ours, LoraConfig(3, 6.0, ("w_down",))).keys() == {
        name for name in tensors if ".down_proj." in name
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: LoraConfig(0, 1.0), "run.adapter.rank is 0; it must be positive"),
        (lambda: LoraConfig(2, 0.0), "run.adapter.alpha is 0.0"),
        (lambda: LoraConfig(2, 1.0, ("w_x",)), "run.adapter.targets is"),
        (lambda: LoraConfig(2, 1.0, ()), "run.adapter.targets is"),
        (lambda: LoraConfig(2, 1.0, dropout=1.0), r"run.adapter.dropout is 1.0; it must be in \[0, 1\)"),
        (lambda: replace(TUNED, start=None), "an adapter needs a base"),
        (lambda: replace(TUNED, start=WarmStart(optimizer="carried")), "fresh optimizer"),
        (lambda: replace(TUNED, ema=EmaConfig(0.9)), "run.ema is"),
        (lambda: replace(TUNED, optimizer=MuonConfig()), "run.optimizer is 'MuonConfig'"),
    ],
)
def test_what_cannot_work_is_refused(make, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make()


def test_a_spec_without_an_adapter_keeps_its_identity() -> None:
    assert "adapter" not in to_jsonable(tiny_spec())
    assert from_jsonable(RunSpec, to_jsonable(TUNED)) == TUNED
