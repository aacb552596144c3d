"""Commit histories: documents of a git bundle against difflib over its trees and against git, drops, damaged bundles."""

import difflib
import os
import random
import re
import shutil
import subprocess
import tracemalloc
from hashlib import sha1
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bundles import HEADER, Objects, delta, entry, packed
from hypothesis import given
from hypothesis import strategies as st

from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import read_documents
from datakit.readers import git_bundles, git_packs, tree_diffs, unified_diffs
from datakit.readers.read import read_file
from datakit.readers.unified_diffs import unified_hunks
from datakit.sources.record import Record, Unreadable
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer

Tree = dict[str, bytes]
POEM = b"".join(b"line %d\n" % number for number in range(30))
FIRST: Tree = {"README": b"hello\n", "src/café.py": "thé = 1\n".encode(), "logo.png": b"\x89PNG\0\0", "poem": POEM}
SECOND: Tree = {**FIRST, "README": b"hello\nworld", "poem": POEM.replace(b"line 3\n", b"LINE 3\n").replace(b"line 25\n", b"")}
BRANCH: Tree = {**{path: FIRST[path] for path in FIRST if path != "README"}, "docs/READ.me": FIRST["README"]}
MERGED: Tree = {**{path: SECOND[path] for path in SECOND if path != "README"}, "docs/READ.me": SECOND["README"]}
LAST: Tree = {**{path: MERGED[path] for path in MERGED if path != "poem"}, "logo.png": b"\x89PNG\0\1"}


def read(folder: Path, content: bytes) -> list[Record | Unreadable]:
    path = folder / "x.bundle"
    path.write_bytes(content)
    return list(read_file("commits", "x.bundle", path))


def history() -> tuple[Objects, list[bytes]]:
    """Five commits: a first one, one on it and a branch that renames, their merge, and one without a message."""
    made = Objects()
    first = made.commit(made.tree(FIRST), (), b"Begin\n\nWith a body.\n\nSigned-off-by: Zoe <zoe@example.com>\n")
    second = made.commit(made.tree(SECOND), [first], b"Change\n", b"a@b.c <a@b.c> 0 +0000")
    branch = made.commit(made.tree(BRANCH), [first], "Rename, déjà vu\n".encode())
    merge = made.commit(made.tree(MERGED), [second, branch], b"Merge branch 'docs'\n")
    last = made.commit(made.tree(LAST), [merge])
    return made, [first, second, branch, merge, last]


def slow_diff(old: Tree, new: Tree) -> str:
    """What Python's difflib says of two trees; a file that came with the content of one that went is renamed."""
    out = ""
    came, went = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    renames = {path: gone for path in came for gone in went if new[path] == old[gone]}
    for path in sorted({*old, *new} - set(renames.values())):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        out += f"diff --git a/{renames.get(path, path)} b/{path}\n"
        if path in renames:
            out += f"rename from {renames[path]}\nrename to {path}\n"
            continue
        out += "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
        names = "/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}"
        if b"\0" in (before or b"") + (after or b""):
            out += f"Binary files {names[0]} and {names[1]} differ\n"
            continue
        lines = [(content or b"").decode().splitlines(keepends=True) for content in (before, after)]
        for line in difflib.unified_diff(*lines, *names):
            out += line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return out.rstrip("\n")


def test_every_commit_is_a_document_with_its_author_date_message_and_changes(tmp_path: Path) -> None:
    made, (first, second, branch, merge, last) = history()
    date = "2023-11-14T22:13:20Z"
    zoe = f"Author: Zoë\nDate: {date}"
    expected = {
        first: f"{zoe}\n\nBegin\n\nWith a body.\n\nSigned-off-by: Zoe\n\n{slow_diff({}, FIRST)}",
        second: f"Date: 1970-01-01T00:00:00Z\n\nChange\n\n{slow_diff(FIRST, SECOND)}",
        branch: f"{zoe}\n\nRename, déjà vu\n\n{slow_diff(FIRST, BRANCH)}",
        merge: f"{zoe}\n\nMerge branch 'docs'",
        last: f"{zoe}\n\n{slow_diff(MERGED, LAST)}",
    }
    records = read(tmp_path, made.bundle())
    assert {record.source_id: record.text for record in records if isinstance(record, Record)} == {
        f"x.bundle:{commit.hex()}": text for commit, text in expected.items()
    }
    assert "rename to docs/READ.me" in expected[branch] and "-line 25\n" in expected[second], "the reference shows them"
    fields = {record.source_id[9:]: record.fields for record in records if isinstance(record, Record)}
    assert fields[first.hex()] == {"author": "Zoë", "date": date}
    assert fields[second.hex()] == {"date": "1970-01-01T00:00:00Z"}, "an address is no name"


def test_parents_come_first_then_the_lowest_id_however_the_pack_is_ordered(tmp_path: Path) -> None:
    made, (first, second, branch, merge, last) = history()
    order, records = list(made.held), read(tmp_path, made.bundle())
    assert [record.source_id[9:] for record in records] == [
        each.hex() for each in (first, *sorted((second, branch)), merge, last)
    ]
    for seed in range(5):
        random.Random(seed).shuffle(order)
        assert read(tmp_path, made.bundle(order=order)) == records


def only(records: list[Record | Unreadable]) -> str:
    """The text of the one record, or the reason of the one drop."""
    (record,) = records
    return record.reason if isinstance(record, Unreadable) else record.text or ""


def small_objects(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (git_bundles, git_packs):
        monkeypatch.setattr(module, "MAX_OBJECT_BYTES", size)


def test_what_has_no_text_to_compare_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_diffs, "MAX_FILE_BYTES", 1_000)
    small_objects(monkeypatch, 5_000)
    made = Objects()
    script, link = (0o100755, made.blob(b"run\n")), (0o120000, made.blob(b"run"))
    tree = {
        "big": b"x" * 1_001,
        "huge": b"x" * 9_000,
        "latin": b"caf\xe9\n",
        "sub": (0o160000, b"1" * 20),
        "run": script,
        "to": link,
    }
    text = only(read(tmp_path, (made.commit(made.tree(tree)), made.bundle())[1]))
    for kind, path in (("Large", "big"), ("Large", "huge"), ("Files that are not UTF-8", "latin"), ("Submodules", "sub")):
        assert re.search(rf"^{kind}.* /dev/null and b/{path} differ$", text, re.MULTILINE), text
    assert "new file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+run\n" in text
    assert text.endswith("new file mode 120000\n--- /dev/null\n+++ b/to\n@@ -0,0 +1 @@\n+run\n\\ No newline at end of file")


def test_a_commit_shows_diffs_up_to_its_limit_and_names_the_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_diffs, "MAX_DIFF_CHARS", 500)
    made = Objects()
    made.commit(made.tree({f"f{number}": b"%d\n" % number * 50 for number in range(5)}))
    text = only(read(tmp_path, made.bundle()))
    assert text.count("+++ b/f") == 2 and text.count("Large files /dev/null and b/f") == 3


def test_modes_and_kinds_change_alone(tmp_path: Path) -> None:
    made = Objects()
    run = made.blob(b"run\n")
    first = made.commit(made.tree({"run": b"run\n", "was_folder/a": b"a\n"}))
    second = made.commit(made.tree({"run": (0o100755, run), "was_folder": b"file\n"}), [first])
    texts = {record.source_id[9:]: record.text for record in read(tmp_path, made.bundle()) if isinstance(record, Record)}
    changes = (texts[second.hex()] or "").split("\n\n", 1)[1]
    assert changes == (
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
        "diff --git a/was_folder b/was_folder\nnew file mode 100644\n--- /dev/null\n+++ b/was_folder\n@@ -0,0 +1 @@\n+file\n"
        "diff --git a/was_folder/a b/was_folder/a\ndeleted file mode 100644\n"
        "--- a/was_folder/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-a"
    )


def test_a_message_is_read_by_the_encoding_that_its_commit_declares(tmp_path: Path) -> None:
    made = Objects()
    made.commit(made.tree({}), message=b"caf\xe9", author=b"Zo\xeb <> 0 +0000", more=b"encoding ISO-8859-1\n")
    assert only(read(tmp_path, made.bundle())) == "Author: Zoë\nDate: 1970-01-01T00:00:00Z\n\ncafé"


def bomb(made: Objects) -> bytes:
    """Ten trees that name a thousand million files."""
    tree = made.tree({"f": b"x\n"})
    for _ in range(9):
        tree = made.raw_tree({b"%d" % number: (0o040000, tree) for number in range(10)})
    return tree


def test_a_commit_that_cannot_be_read_is_a_drop_with_its_reason(tmp_path: Path) -> None:
    def dropped(**commit: bytes) -> str:
        made = Objects()
        made.commit(**{"tree": made.tree({"a": b"a\n"}), **commit})  # type: ignore[arg-type]
        return only(read(tmp_path, made.bundle()))

    made = Objects()
    made.commit(bomb(made))
    assert only(read(tmp_path, made.bundle())) == "too_many_files"
    assert dropped(message=b"caf\xe9") == "invalid_utf8"
    assert dropped(message=b"x" * ((1 << 20) + 1)) == "object_too_large"
    assert dropped(author=b"nobody") == dropped(author=b"Z <> 999999999999999 +0000") == "unparsable"
    assert dropped(tree=b"short") == "unparsable"
    for name in (b"caf\xe9", b"a\n+++ b/forged"):
        made = Objects()
        made.commit(made.raw_tree({name: (0o100644, made.blob(b"a\n"))}))
        assert only(read(tmp_path, made.bundle())) == "invalid_path"
    made = Objects()
    made.commit(made.add("tree", b"100644 a\0cut"))
    assert only(read(tmp_path, made.bundle())) == "unparsable"


def test_commits_on_objects_outside_the_bundle_are_drops_and_the_others_are_read(tmp_path: Path) -> None:
    """As of `git bundle create x.bundle main~3..main`, and of a shallow clone."""
    made, (first, second, branch, merge, last) = history()
    records = read(tmp_path, made.bundle(without=[first]))
    drops = {record.source_id[9:]: record.reason for record in records if isinstance(record, Unreadable)}
    assert drops == {second.hex(): "missing_object", branch.hex(): "missing_object"}
    assert [record.source_id[9:] for record in records if isinstance(record, Record)] == [merge.hex(), last.hex()]
    (gone,) = (name for name, (_, content) in made.held.items() if content == b"hello\n")
    reasons = [getattr(record, "reason", "") for record in read(tmp_path, made.bundle(without=[gone]))]
    assert sorted(reasons) == ["", "", "", "missing_object", "missing_object"], "the rename needs its id alone"


def test_objects_are_read_through_chains_of_deltas(tmp_path: Path) -> None:
    """By offset, by id, by id before its base, and on a base outside the bundle."""
    made = Objects()
    poem, other, third = made.blob(POEM), made.blob(POEM + b"end\n"), made.blob(b"start\n" + POEM + b"end\n")
    size = len(POEM)
    made.commit(made.raw_tree({b"a": (0o100644, poem), b"b": (0o100644, other), b"c": (0o100644, third)}))
    whole = read(tmp_path, made.bundle())
    rest = [entry({"tree": 2, "commit": 1}[kind], content) for kind, content in made.held.values() if kind != "blob"]
    by_id = entry(7, delta(size + 4, size + 10, b"start\n", (0, size + 4)), base=other)
    full = entry(3, POEM)
    by_offset = entry(6, delta(size, size + 4, (0, size), b"end\n"), base=bytes([len(full)]))
    assert len(full) < 128
    assert read(tmp_path, packed([by_id, full, by_offset, *rest])) == whole
    assert only(read(tmp_path, packed([by_id, full, *rest]))) == "missing_object"
    grown = entry(6, delta(size, 1 << 40, (0, size)), base=bytes([len(full)]))
    assert "Large files /dev/null and b/b differ" in only(read(tmp_path, packed([full, grown, *rest])))


OF_A_FILE = b"tree f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f\nauthor a <> 0 +0\n\n"
DAMAGES = {
    "nonsense": b"nonsense",
    "empty": b"",
    "no pack": HEADER,
    "no commit": packed([entry(3, b"abc")]),
    "sha256": packed([], b"# v3 git bundle\n@object-format=sha256\n\n"),
    "no kind": packed([entry(5, b"x")]),
    "larger than it says": packed([entry(3, b"x" * 100, size=99)]),
    "smaller than it says": packed([entry(3, b"x" * 100, size=1 << 40)]),
    "endless size": packed([b"\xbf" + b"\xff" * 100]),
    "base outside": packed([entry(6, delta(1, 1, b"x"), base=b"\x7f")]),
    "base of another size": packed([entry(3, b"abc"), entry(6, delta(4, 1, b"x"), base=bytes([len(entry(3, b"abc"))]))]),
    "delta cut": packed([entry(3, b"abc"), entry(6, b"\x03\x05\x91", base=bytes([len(entry(3, b"abc"))]))]),
    "delta too short": packed([entry(3, b"abc"), entry(6, delta(3, 5, b"x"), base=bytes([len(entry(3, b"abc"))]))]),
    "bytes behind": packed([entry(3, b"abc") + b"more"]),
    "tree that is a file": packed([entry(3, b"abc"), entry(1, OF_A_FILE)]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_no_bundle_stops_with_its_name(what: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x\.bundle: not a whole git bundle"):
        read(tmp_path, DAMAGES[what])


def test_a_bundle_cut_anywhere_is_never_read_as_whole(tmp_path: Path) -> None:
    made = Objects()
    made.commit(made.tree({"a": b"a\n"}))
    whole = made.bundle()
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"x\.bundle: not a whole git bundle"):
            read(tmp_path, whole[:cut])


@given(data=st.data())
def test_no_edit_with_right_checksums_brings_the_reader_down(data: st.DataObject) -> None:
    """A checksum finds damage, and an attacker can compute it again. A tree, a commit or the whole pack is edited."""

    def edited(content: bytes, first: int = 0) -> bytes:
        start = data.draw(st.integers(first, len(content) - 1))
        stop = data.draw(st.integers(start, min(len(content), start + 30)))
        return content[:start] + data.draw(st.binary(max_size=4)) + content[stop:]

    made, what = Objects(), data.draw(st.sampled_from(("tree", "commit", "pack")))
    content = made.held[made.tree(FIRST)][1]
    commit = made.commit(made.add("tree", edited(content) if what == "tree" else content))
    if what == "commit":
        made.add("commit", edited(made.held.pop(commit)[1]))
    pack = made.bundle()[len(HEADER) : -20]
    pack = edited(pack, first=8) if what == "pack" else pack
    with TemporaryDirectory() as folder:
        try:
            assert len(read(Path(folder), HEADER + pack + sha1(pack).digest())) == 1
        except ValueError as error:
            assert "x.bundle: not a whole git bundle" in str(error)


def test_an_object_that_grows_when_it_is_unpacked_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_objects(monkeypatch, 1 << 20)
    made = Objects()
    made.commit(made.tree({"zeros": bytes(24 << 20)}))
    content = made.bundle()
    made.held.clear()
    tracemalloc.start()
    try:
        assert "Large files /dev/null and b/zeros differ" in only(read(tmp_path, content))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def applied(old: str, hunks: str) -> str:
    """What patch(1) makes of a text, strictly: every line of context and every number must fit."""
    before = re.findall(r"[^\n]*\n|[^\n]+", old)
    out, at = list[str](), 0
    lines = re.findall(r"[^\n]*\n", hunks.replace("\n\\ No newline at end of file\n", "\0\n"))
    for line in lines:
        if line.startswith("@@"):
            start, count, new_start, new_count = re.fullmatch(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@\n", line).groups()  # type: ignore[union-attr]
            begin = int(start) - (count != ",0")
            out += before[at:begin]
            at = begin
            assert len(out) == int(new_start) - (new_count != ",0")
            continue
        text = line[1:].replace("\0\n", "")
        if line[0] in " -":
            assert before[at] == text
            at += 1
        if line[0] in " +":
            out.append(text)
    return "".join(out + before[at:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d\r", "e\x0b", "f", "g", "h"]), max_size=40).map("\n".join)


@given(old=LINES, new=LINES)
def test_hunks_make_the_new_text_of_the_old(old: str, new: str) -> None:
    hunks = unified_hunks(old, new)
    assert applied(old, hunks) == new
    assert (hunks == "") == (old == new)


def test_a_long_rewritten_file_is_compared_between_its_unique_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that repeat are all replaced where too many are to be compared; the others are still found."""
    lines = [f"{number}\n" if number % 100 == 0 else "same\n" for number in range(1_000)]
    changed = [line if number // 100 != 4 or number % 100 in (0, 1, 2) else "other\n" for number, line in enumerate(lines)]
    changed[700] = "new\n"
    monkeypatch.setattr(unified_diffs, "MAX_COMPARED_LINES", 10)
    hunks = unified_hunks("".join(lines), "".join(changed))
    assert applied("".join(lines), hunks) == "".join(changed)
    assert [len(re.findall(rf"^{line}$", hunks, re.MULTILINE)) for line in ("-same", r"\+other", "-700", r"\+new")] == [
        97,
        97,
        1,
        1,
    ]


def write_bundle(out: Writer, config: NormalizeConfig) -> None:
    (out.folder / "files").mkdir()
    (out.folder / "files" / "x.bundle").write_bytes(history()[0].bundle(without=[history()[1][1]]))


def test_a_bundle_is_normalized_with_counted_drops(tmp_path: Path) -> None:
    config = NormalizeConfig("history", "commits", "code")
    raw = Node(("raw",), "s", Stage("tests.bundle", "1", write_bundle), config)
    store = Store(str(tmp_path))
    build(store, raw)
    artifact = build(store, Node(("normalized",), "s", NORMALIZE, config, {"raw": raw})).artifact
    assert artifact.manifest.statistics["rows_out"] == 4 and artifact.manifest.statistics["drops"] == {}
    texts = read_documents(artifact)["text"].to_list()
    assert sum("rename to docs/READ.me" in text for text in texts) == 1
    assert all('"author": "Zoë"' in metadata for metadata in read_documents(artifact)["metadata"])


GIT = shutil.which("git")


@pytest.mark.skipif(GIT is None, reason="no git here, which bundles this test's repository and applies its diffs")
def test_git_makes_every_tree_of_its_parent_and_the_diff(tmp_path: Path) -> None:
    """A repository that git has packed, with deltas, is read; and git applies what we write."""
    home = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": str(tmp_path / "r" / ".git")}
    people = {
        f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Zoë"), ("EMAIL", "z@b.c"))
    }
    environment = {**os.environ, **home, **people, "GIT_WORK_TREE": str(tmp_path / "r")}

    def git(*arguments: str, given: str = "") -> str:
        command = [str(GIT), "-c", "core.autocrlf=false", *arguments]
        return subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "r").mkdir()
    git("init", "-q", "-b", "main")
    for number, tree in enumerate((FIRST, SECOND, BRANCH, MERGED, LAST)):
        shutil.rmtree(tmp_path / "r" / "src", ignore_errors=True)
        for path in (tmp_path / "r").iterdir():
            if path.is_file():
                path.unlink()
        for path, content in tree.items():
            if path != "logo.png":  # Its diff is one line, which nothing can apply.
                (tmp_path / "r" / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "r" / path).write_bytes(content * 40)
        git("add", "-A")
        git("commit", "-q", "-m", f"commit {number}")
    git("repack", "-adq", "--depth=10", "--window=50")
    git("bundle", "create", "-q", str(tmp_path / "x.bundle"), "--all")
    records = list(read_file("commits", "x.bundle", tmp_path / "x.bundle"))
    assert len(records) == 5
    git("read-tree", "--empty")
    for record in records:
        assert isinstance(record, Record) and record.text is not None
        git("apply", "--cached", "-", given=record.text[record.text.index("diff --git") :] + "\n")
        assert git("write-tree") == git("rev-parse", f"{record.source_id[9:]}^{{tree}}")
