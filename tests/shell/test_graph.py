"""The asset graph: it loads, it is documented, its edges equal those of its nodes."""

import tomllib
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml

from marin_assets.data import canonical_families
from marin_assets.definitions import families
from marin_assets.factory import dependencies
from partitions.axes import days
from recipes.lab import default_line, smoke_ferry

GOLDEN = Path(__file__).with_name("asset_graph.golden.txt")


def test_definitions_load(real_definitions: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(real_definitions)


def test_every_asset_says_what_it_is_and_whose(real_definitions: dg.Definitions) -> None:
    for spec in real_definitions.resolve_all_asset_specs():
        name = spec.key.to_user_string()
        assert spec.description, name
        assert spec.owners, name
        assert spec.group_name != "default", name
        assert spec.code_version, name
        assert spec.kinds, name


def test_every_ferry_asset_has_the_day_as_its_one_partition(real_definitions: dg.Definitions) -> None:
    ferry = [spec for spec in real_definitions.resolve_all_asset_specs() if spec.key.path[0] == "ferry"]
    assert len(ferry) > 50
    assert {spec.partitions_def for spec in ferry} == {days()}


def test_canonical_keys_and_edges_are_the_reviewed_ones(real_definitions: dg.Definitions) -> None:
    """Lineage is our public contract: a changed key or edge is a reviewed diff of the golden file."""
    lines = []
    for spec in sorted(real_definitions.resolve_all_asset_specs(), key=lambda s: s.key):
        if spec.key.path[0] != "ferry":
            deps = ", ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps))
            lines.append(f"{spec.key.to_user_string()} <- {deps}" if deps else spec.key.to_user_string())
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()


def test_the_edges_of_an_asset_are_the_inputs_of_its_node() -> None:
    for family in canonical_families(default_line()):
        wanted = {parent.key for parent in family.example.parents()}
        assert {tuple(dep.asset_key.path) for dep in dependencies(family)} == wanted


def test_a_corpus_partition_depends_on_its_own_source_only(real_definitions: dg.Definitions) -> None:
    graph = real_definitions.resolve_asset_graph()
    upstream = graph.get_parent_partition_keys_for_child(
        "kjv", dg.AssetKey(["datakit", "normalized"]), dg.AssetKey(["corpus", "default"])
    )
    assert list(upstream.partitions_subset.get_partition_keys()) == ["kjv"]


def test_lines_that_mean_different_artifacts_by_one_key_are_refused() -> None:
    """The index of a policy keeps a proof over the line's clean sources: over fewer sources it is another index, and whatever
    needs it could never be made, for the graph has one of them."""
    line = default_line()
    fewer = replace(line, sources=("sotu", "python_topics"), scope="f", corpus="f", tokenizer="f", cache="f", mixture="f")
    with pytest.raises(
        ValueError, match=r"contamination_index/\S+ and mean different artifacts .* made from datakit/normalized"
    ):
        list(families(smoke_ferry(), line, [fewer]))
    assert list(families(smoke_ferry(), line, [replace(fewer, policy="f")]))


def test_pyproject_and_workspace_name_the_same_definitions() -> None:
    root = Path(__file__).resolve().parents[2]
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    workspace = yaml.safe_load((root / "workspace.yaml").read_text())
    module = pyproject["tool"]["dg"]["project"]["code_location_target_module"]
    assert module == workspace["load_from"][0]["python_module"]["module_name"] == "marin_assets.definitions"
    assert "dagster" not in pyproject["tool"]
