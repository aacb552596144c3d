"""Artifacts rebuilt from manifests alone: equal bytes, or the first difference by name."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from properties import examples
from random_lineage import Parents, dags

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.build.reproduce import inputs_first, reproduce
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Letters:
    """Config of the test stages. `drift` is not part of the identity, so two builds of one spec may differ, as in an impure
    stage.
    """

    letter: str
    drift: str = field(default="", metadata={"identity": False})


def join(out: Writer, config: Letters, parts: tuple[Artifact, ...] = (), first: Artifact | None = None) -> None:
    texts = [part.files()[0].read_text() for part in (*parts, *([first] if first else []))]
    (out.folder / "text.txt").write_text("".join(texts) + config.letter + config.drift)
    (out.folder / "same.txt").write_text("same")


JOIN = Stage("tests.join", "1", join)
UNTYPED = Stage("tests.untyped", "1", job="tests")
REGISTRY = {"tests.join": JOIN}


def node(number: int, drift: str = "", **inputs: Node | tuple[Node, ...]) -> Node:
    return Node(("tests", f"n{number}"), None, JOIN, Letters(chr(97 + number), drift), inputs)


def chain(root: Path, drift_at: int | None = None) -> Artifact:
    """n0 -> n1 -> n2, and n3 beside n1; the last needs n1 and n3."""
    drifts = ["!" if drift_at == i else "" for i in range(5)]
    n0 = node(0, drifts[0])
    n1 = node(1, drifts[1], parts=(n0,))
    n3 = node(3, drifts[3], parts=(n0, n0))
    n2 = node(2, drifts[2], parts=(n3, n1), first=n1)
    store = Store(str(root))
    return [build(store, n).artifact for n in (n0, n1, n3, n2)][-1]


@given(dags())
@settings(max_examples=examples(20))
def test_any_graph_comes_out_bit_equal(tmp_path_factory: pytest.TempPathFactory, parents: Parents) -> None:
    root = tmp_path_factory.mktemp("lab")
    nodes: list[Node] = []
    for number, above in enumerate(parents):
        nodes.append(node(number, parts=tuple(nodes[i] for i in above)) if above else node(number))
    made = [build(Store(str(root / "a")), n).artifact for n in nodes]
    result = reproduce(made[-1], Store(str(root / "b")), REGISTRY)
    assert result.is_equal
    addresses = [c.address for c in result.comparisons]
    assert sorted(addresses) == sorted(a.spec.address for a in made[0].store.walk_up(made[-1]))
    again = Store(str(root / "b")).open(made[-1].spec.address)
    assert again is not None
    assert again.data_version == made[-1].data_version


@pytest.mark.parametrize("drift_at", [0, 1, 2, 3])
def test_the_first_difference_is_named_with_its_files(tmp_path: Path, drift_at: int) -> None:
    """The drifting node is named, not its descendants, and nothing below it is made."""
    made = chain(tmp_path / "a", drift_at)
    result = reproduce(made, Store(str(tmp_path / "b")), REGISTRY)
    first = result.first_difference
    assert first is not None
    assert (first.name, first.outcome) == (f"tests/n{drift_at}", "differs")
    assert "1 of 2 files: text.txt" in first.detail
    assert "not deterministic" in first.detail
    assert not result.is_equal
    assert result.comparisons[-1] is first
    assert all(c.is_equal for c in result.comparisons[:-1])


def test_a_stage_of_another_version_or_unknown_is_reported_before_anything_is_made(tmp_path: Path) -> None:
    made = chain(tmp_path / "a")
    newer = {"tests.join": replace(JOIN, version="2")}
    first = reproduce(made, Store(str(tmp_path / "b")), newer).first_difference
    assert first is not None and first.outcome == "other_version"
    assert "made by version 1 of tests.join, this checkout has 2" in first.detail
    unknown = reproduce(made, Store(str(tmp_path / "c")), {}).first_difference
    assert unknown is not None and unknown.outcome == "unknown_stage"
    assert list(Store(str(tmp_path / "b")).artifacts()) == []


def test_a_root_that_holds_something_is_refused(tmp_path: Path) -> None:
    made = chain(tmp_path / "a")
    with pytest.raises(ValueError, match="is not empty"):
        reproduce(made, made.store, REGISTRY)


def test_a_config_that_does_not_survive_its_type_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class More:
        letter: str
        added_since: int = 3

    made = chain(tmp_path / "a")
    with pytest.raises(ValueError, match="does not survive More"):
        reproduce(made, Store(str(tmp_path / "b")), {"tests.join": replace(JOIN, config=More)})


def test_a_lost_ancestor_is_named(tmp_path: Path) -> None:
    made = chain(tmp_path / "a")
    made.store.delete(inputs_first(made)[0])
    with pytest.raises(ValueError, match=r"tests/n0/_/.* is gone"):
        reproduce(made, Store(str(tmp_path / "b")), REGISTRY)


def test_a_stage_has_the_type_of_its_function_or_states_one() -> None:
    assert JOIN.config_type is Letters
    assert replace(UNTYPED, config=Letters).config_type is Letters
    with pytest.raises(ValueError, match=r"stage tests.untyped states no type of its config; give Stage\(config=\.\.\.\)"):
        _ = UNTYPED.config_type
