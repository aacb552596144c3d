"""Plans: existing artifacts are reused, stale ones reported missing, equal bytes stop a change."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy  # noqa: F401 - brings its matrix products
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import MissingArtifactError, Node, ancestors_first, find_all, resolve, spec_of
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.trust.fingerprint import code_fingerprint
from lineage.writing.write import writing
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Text:
    """Config of every stage here. `log` is the place where a stage notes that it ran; it is not part of the identity."""

    text: str = ""
    log: str = field(default="", metadata={"identity": False})


def note(config: Text, name: str) -> None:
    if config.log:
        with Path(config.log).open("a") as stream:
            stream.write(f"{name}\n")


def write_text(out: Writer, config: Text) -> None:
    note(config, "text")
    (out.folder / "text.txt").write_text(config.text)


def write_length(out: Writer, config: Text, text: Artifact) -> None:
    note(config, "length")
    (out.folder / "length.txt").write_text(str(len(text.files()[0].read_text())))


def write_joined(out: Writer, config: Text, parts: tuple[Artifact, ...], head: Artifact) -> None:
    note(config, "joined")
    read = [part.files()[0].read_text() for part in (head, *parts)]
    (out.folder / "joined.txt").write_text("".join(read))


def fail(out: Writer, config: Text) -> None:
    (out.folder / "half.txt").write_text("half")
    raise RuntimeError("the stage is broken")


def write_threads(out: Writer, config: Text) -> None:
    (out.folder / "threads.txt").write_text(str(blas_threads()))


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


TEXT = Stage("tests.text", "1", write_text)
LENGTH = Stage("tests.length", "1", write_length)
JOINED = Stage("tests.joined", "1", write_joined)


def text_node(text: str, partition: str = "p", log: str = "", stage: Stage = TEXT) -> Node:
    return Node(("text",), partition, stage, Text(text, log))


def chain(text: str, log: str = "") -> Node:
    """text -> length -> joined, the second blind to which letters there are."""
    length = Node(("length",), None, LENGTH, Text(log=log), {"text": text_node(text, log=log)})
    return Node(("top",), None, JOINED, Text(log=log), {"parts": (length,), "head": length})


def build_all(store: Store, *nodes: Node) -> dict[str, bool]:
    """Which of the nodes and their ancestors were reused."""
    return {node.name: build(store, node).reused for node in ancestors_first(nodes)}


def test_what_was_built_is_reused_and_not_run_again(tmp_path: Path) -> None:
    store, log = Store(str(tmp_path / "store")), tmp_path / "log"
    assert build_all(store, chain("abc", str(log))) == {"text[p]": False, "length": False, "top": False}
    assert build_all(store, chain("abc", str(log))) == {"text[p]": True, "length": True, "top": True}
    assert log.read_text().split() == ["text", "length", "joined"]
    assert resolve(store, chain("abc")).files()[0].read_text() == "33"


def test_equal_bytes_stop_the_spread_of_a_change(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    build_all(store, chain("abc"))
    assert build_all(store, chain("xyz")) == {"text[p]": False, "length": False, "top": True}
    assert resolve(store, chain("xyz")).spec == resolve(store, chain("abc")).spec


def test_other_bytes_remake_everything_below(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    build_all(store, chain("abc"))
    assert build_all(store, chain("abcd")) == {"text[p]": False, "length": False, "top": False}
    assert resolve(store, chain("abc")).files()[0].read_text() == "33", "the older one is still there"


def test_matrix_products_of_a_stage_have_one_thread(tmp_path: Path) -> None:
    """So that its bits do not depend on the number of cores."""
    stage = Stage("tests.threads", "1", write_threads)
    with threadpool_limits(2, user_api="blas"):
        made = build(Store(str(tmp_path)), text_node("a", stage=stage)).artifact
        assert made.files()[0].read_text() == "{1}"
        assert blas_threads() == {2}, "others in this process have theirs back"


def test_runtime_fields_change_no_identity(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    build(store, text_node("a"))
    assert build(store, text_node("a", log=str(tmp_path / "log"))).reused


@pytest.mark.parametrize("ask", [resolve, spec_of, build])
def test_an_input_never_made_is_missing_by_name(tmp_path: Path, ask) -> None:
    with pytest.raises(MissingArtifactError, match=r"text\[p\] was never materialized in .*: materialize it first") as caught:
        ask(Store(str(tmp_path)), chain("abc"))
    assert caught.value.node.name == "text[p]"


def test_a_changed_config_makes_the_node_missing_by_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = build(store, text_node("abc")).artifact
    with pytest.raises(MissingArtifactError, match=r"text\[p\] is stale \(there is one of") as caught:
        resolve(store, text_node("other"))
    assert made.manifest.created in str(caught.value)
    assert caught.value.node == text_node("other")
    with pytest.raises(MissingArtifactError, match=r"text\[q\] was never materialized"):
        resolve(store, text_node("abc", "q"))


def test_a_bumped_stage_version_makes_the_node_stale(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    build(store, text_node("abc"))
    bumped = text_node("abc", stage=Stage("tests.text", "2", write_text))
    with pytest.raises(MissingArtifactError, match="is stale"):
        resolve(store, bumped)
    assert not build(store, bumped).reused


def test_code_that_changed_under_a_reused_artifact_is_flagged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, node = Store(str(tmp_path)), text_node("abc")
    with writing(store, spec_of(store, node), code_fingerprint="the fingerprint of older code") as out:
        write_text(out, Text("abc"))
    with caplog.at_level(logging.INFO, logger="lineage.build.plan"):
        built = build(store, node)
    assert built.reused and built.drifted
    assert "text[p]: reused" in caplog.text and "code drifted since" in caplog.text


def test_the_same_code_has_not_drifted(tmp_path: Path) -> None:
    store, node = Store(str(tmp_path)), text_node("abc")
    made = build(store, node)
    again = build(store, node)
    assert not made.drifted and not again.drifted
    assert again.artifact.manifest.code_fingerprint == code_fingerprint(node.stage.module)


def test_many_nodes_are_found_as_one_by_one_and_an_ancestor_that_they_share_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, shared = Store(str(tmp_path / "store")), chain("abc")
    tops = [Node(("above", str(i)), None, JOINED, Text(), {"parts": (shared,), "head": shared}) for i in range(5)]
    build_all(store, *tops[:3])
    looked_up: list[str] = []
    find = Store.find
    monkeypatch.setattr(Store, "find", lambda self, spec: looked_up.append(spec.name) or find(self, spec))
    artifacts = find_all(
        store, [*tops, text_node("never made"), chain("abc")]
    )  # built again: other objects with the same meaning
    monkeypatch.undo()
    made = [resolve(store, top).manifest.spec for top in (*tops[:3], shared)]
    assert [one and one.manifest.spec for one in artifacts] == [*made[:3], None, None, None, made[3]]
    assert sorted(looked_up) == sorted(
        ["above/0", "above/1", "above/2", "above/3", "above/4", "length", "text[p]", "text[p]", "top"]
    )


def test_ancestors_come_first_and_each_once() -> None:
    one, two = text_node("1", "one"), text_node("2", "two")
    length = Node(("length",), None, LENGTH, Text(), {"text": two})
    left = Node(("left",), None, JOINED, Text(), {"parts": (one, two), "head": length})
    right = Node(("right",), None, JOINED, Text(), {"parts": (length,), "head": left})
    order = ancestors_first([right, left, one])
    places = {node.name: i for i, node in enumerate(order)}
    assert len(order) == len(places) == 5
    assert all(places[parent.name] < places[node.name] for node in order for parent in node.parents())


def test_inputs_of_a_tuple_are_numbered_in_order(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parts = (text_node("a", "one"), text_node("b", "two"))
    node = Node(("top",), None, JOINED, Text(), {"parts": parts, "head": text_node("c", "three")})
    build_all(store, node)
    top = resolve(store, node)
    assert [ref.name for ref in top.spec.inputs] == ["parts.0", "parts.1", "head"]
    assert top.input("parts.1").spec.partition == "two"
    assert top.files()[0].read_text() == "cab"
    turned = Node(("top",), None, JOINED, Text(), {"parts": parts[::-1], "head": text_node("c", "three")})
    assert build(store, turned).artifact.files()[0].read_text() == "cba"


def test_a_stage_that_fails_leaves_no_artifact(tmp_path: Path) -> None:
    store, node = Store(str(tmp_path)), text_node("abc", stage=Stage("tests.fail", "1", fail))
    with pytest.raises(RuntimeError, match="the stage is broken"):
        build(store, node)
    with pytest.raises(MissingArtifactError, match="was never materialized"):
        resolve(store, node)


def test_a_stage_has_exactly_one_kind_of_code() -> None:
    for wrong in ({}, {"run": write_text, "job": "trainer"}):
        with pytest.raises(ValueError, match=r"stage tests\.both: give exactly one of run"):
            Stage("tests.both", "1", **wrong)
