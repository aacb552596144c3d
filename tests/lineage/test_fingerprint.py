"""Code fingerprints: what changes them, what does not, and which packages they include."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edit_forms import FORMS, SIBLINGS

import lineage.trust.code_files as code_files
import lineage.trust.fingerprint as fingerprint
from lineage.artifact.packages import installed_versions
from lineage.trust.fingerprint import code_closure, code_fingerprint, imported_distributions
from lineage.trust.syntax import dumped

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "datakit/__init__.py": '"""The package."""\n',
    "datakit/stage.py": (
        "import importlib\nfrom pathlib import Path\n\nfrom datakit.helper import grow\nfrom datakit.names import WIDTH\n\n\n"
        "def run(out: int) -> int:\n    from datakit import lazy\n\n"
        '    other = importlib.import_module("datakit.dynamic")\n    script = Path(__file__).with_name("script.py")\n'
        '    table = Path(__file__).with_name("table.csv")\n    return grow(out) + WIDTH + lazy.f() + other.f()\n'
    ),
    "datakit/helper.py": (
        "import numpy as np\n\n\ndef grow(n: int) -> int:\n    bigger = n + 1\n    return bigger\n\n\n"
        "def other() -> int:\n    return 2\n"
    ),
    "datakit/names.py": "WIDTH = 3\nDEPTH = (1, 2)\nNAMES = [1]\n\n\ndef unused():\n    return 1\n",
    "datakit/lazy.py": "def f():\n    import tokenizers\n\n    return 1\n",
    "datakit/dynamic.py": "def f():\n    return 1\n",
    "datakit/script.py": "print(1)\n",
    "datakit/table.csv": "a,b\n",
    "datakit/unrelated.py": "import polars\n",
    "recipes/__init__.py": "",
    "recipes/lab.py": "from datakit import stage\n",
}  # fmt: skip


def forget() -> None:
    """Discard caches, so that the project's files are read again."""
    for cached in (*vars(fingerprint).values(), *vars(code_files).values()):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.fixture
def digest_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The fingerprint of datakit.stage in a small project after a text in one file was replaced."""

    def digest(path: str = "", old: str = "", new: str = "") -> str:
        for name, text in FILES.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        if path:
            assert old in FILES[path]
            (tmp_path / path).write_text(FILES[path].replace(old, new))
        forget()
        return code_fingerprint("datakit.stage")

    monkeypatch.setattr(fingerprint, "REPOSITORY", tmp_path)
    yield digest
    forget()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("datakit/names.py", "WIDTH = 3", "WIDTH = 4"),
        ("datakit/names.py", "WIDTH = 3", "WIDTH = 3\nWIDTH = WIDTH + 0"),
        ("datakit/lazy.py", "return 1", "return 2"),
        ("datakit/dynamic.py", "return 1", "return 2"),
        ("datakit/script.py", "print(1)", "print(2)"),
        ("datakit/table.csv", "a,b", "a,c"),
        ("datakit/__init__.py", '"""The package."""\n', "import os\n"),
        ("datakit/helper.py", "bigger", "larger"),
        ("datakit/helper.py", "return 2", "return 3"),
        ("datakit/helper.py", "    bigger = n + 1\n", "    bigger: int\n    bigger = n + 1\n"),
        ("datakit/helper.py", "    bigger = n + 1\n", "    class Bigger:\n        n: int = 1\n\n    bigger = n + 1\n"),
    ],
)
def test_whatever_may_change_bytes_changes_the_fingerprint(digest_after, path: str, old: str, new: str) -> None:
    assert digest_after(path, old, new) != digest_after()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("datakit/unrelated.py", "polars", "pandas"),
        ("datakit/helper.py", "n: int", "n: float"),
        ("datakit/helper.py", "    bigger = n + 1\n", '    log.info("growing %d", n)\n    bigger = n + 1\n'),
        ("datakit/helper.py", "    bigger = n + 1\n", "    bigger: int = n + 1\n"),
        ("datakit/names.py", "def unused():\n    return 1", "def unused():\n    return 2"),
        ("recipes/lab.py", "stage", "helper"),
        ("datakit/helper.py", "def other() -> int:\n", 'def other() -> int:\n    """Doc."""\n'),
        ("datakit/names.py", "WIDTH = 3", '"""Doc."""\n\nWIDTH = 3  # wide\n'),
        (
            "datakit/stage.py",
            "from datakit.helper import grow\nfrom datakit.names import WIDTH\n",
            "from datakit.names import WIDTH\nfrom datakit.helper import grow\n",
        ),
    ],
)
def test_whatever_cannot_change_bytes_does_not(digest_after, path: str, old: str, new: str) -> None:
    assert digest_after(path, old, new) == digest_after()


@pytest.mark.parametrize("form", [*FORMS, *SIBLINGS])
def test_a_form_of_edit_that_was_missed_changes_the_fingerprint(digest_after, form: str) -> None:
    files, path, old, new = (FORMS | SIBLINGS)[form]
    digest_after()
    for name, text in files.items():
        (fingerprint.REPOSITORY / name).parent.mkdir(parents=True, exist_ok=True)
        (fingerprint.REPOSITORY / name).write_text(text)
    forget()
    before = code_fingerprint("datakit.stage")
    edited = fingerprint.REPOSITORY / path
    assert old in edited.read_text()
    edited.write_text(edited.read_text().replace(old, new))
    forget()
    assert code_fingerprint("datakit.stage") != before


@pytest.mark.parametrize(
    "text", ["x = ...", "x = None", "x: int", "{**a, None: b'c'}", "match x:\n case {**y}: pass", "f'{x!r:>3}'"]
)
def test_syntax_is_written_as_python_writes_it(text: str) -> None:
    """Recorded fingerprints were made of the text of `ast.dump`."""
    tree = ast.parse(text)
    assert dumped(tree) == ast.dump(tree)
    own = ast.parse(Path(fingerprint.__file__).read_text())
    assert dumped(own) == ast.dump(own)


def test_the_type_of_a_field_counts_and_that_of_a_local_name_does_not(digest_after) -> None:
    field = "    class Bigger:\n        n: int = 1\n\n    bigger = n + 1\n"
    digests = {
        digest_after("datakit/helper.py", "    bigger = n + 1\n", each) for each in (field, field.replace("int", "float"))
    }
    assert len(digests) == 2


def test_what_watches_or_refuses_work_is_no_stages_code() -> None:
    for module in stage_modules():
        assert not code_closure(module).files.keys() & fingerprint.QUIET.keys() - {module}


MOVED = {
    "datakit/helper.py": "datakit/room/grower.py",
    "datakit/names.py": "datakit/room/names.py",
    "datakit/lazy.py": "datakit/room/lazy.py",
    "datakit/dynamic.py": "datakit/room/dynamic.py",
}
MOVED_IMPORTS = (
    ("from datakit.helper import", "from datakit.room.grower import"),
    ("from datakit.names import", "from datakit.room.names import"),
    ("from datakit import lazy", "from datakit.room import lazy"),
    ('"datakit.dynamic"', '"datakit.room.dynamic"'),
)


@pytest.fixture
def digest_of_moved(tmp_path: Path, digest_after) -> Callable[..., str]:
    """The fingerprint after four modules moved into a subpackage, with a text in one of them replaced."""

    def digest(path: str = "", old: str = "", new: str = "") -> str:
        digest_after()
        (tmp_path / "datakit/room").mkdir(exist_ok=True)
        (tmp_path / "datakit/room/__init__.py").write_text('"""What belongs here."""\n')
        for before, after in MOVED.items():
            text = (tmp_path / before).read_text()
            assert before != path or old in text
            (tmp_path / after).write_text(text.replace(old, new) if before == path else text)
            (tmp_path / before).unlink()
        stage = tmp_path / "datakit/stage.py"
        text = stage.read_text()
        for before, after in MOVED_IMPORTS:
            assert before in text
            text = text.replace(before, after)
        stage.write_text(text)
        forget()
        return code_fingerprint("datakit.stage")

    return digest


def test_a_move_of_modules_is_no_change_of_code(digest_after, digest_of_moved) -> None:
    assert digest_of_moved() == digest_after()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("datakit/helper.py", "n + 1", "n + 2"),
        ("datakit/names.py", "WIDTH = 3", "WIDTH = 4"),
        ("datakit/lazy.py", "return 1", "return 2"),
        ("datakit/dynamic.py", "return 1", "return 2"),
    ],
)
def test_a_change_in_a_moved_module_is_one(digest_after, digest_of_moved, path: str, old: str, new: str) -> None:
    assert digest_of_moved(path, old, new) != digest_after()


def test_an_import_from_another_module_changes_the_fingerprint(digest_after) -> None:
    """Both modules count before and after; only which of them is called where is another."""
    before = digest_after()
    (fingerprint.REPOSITORY / "datakit/dynamic.py").write_text("def f():\n    return 7\n")
    forget()
    apart = code_fingerprint("datakit.stage")
    stage = fingerprint.REPOSITORY / "datakit/stage.py"
    swapped = stage.read_text().replace('"datakit.dynamic"', '"datakit.lazy"')
    stage.write_text(swapped.replace("from datakit import lazy", "from datakit import dynamic as lazy"))
    forget()
    assert len({before, apart, code_fingerprint("datakit.stage")}) == 3


def test_packages_are_those_that_the_closure_imports_lazy_ones_too(digest_after) -> None:
    digest_after()
    assert imported_distributions("datakit.stage") == {"numpy", "tokenizers"}


def test_relative_imports_are_followed(digest_after) -> None:
    relative = ("datakit/stage.py", "from datakit.names import WIDTH", "from .names import WIDTH")
    before = digest_after(*relative)
    (fingerprint.REPOSITORY / "datakit/names.py").write_text("WIDTH = 4\n")
    forget()
    assert code_fingerprint("datakit.stage") != before


def stage_modules() -> list[str]:
    """Modules that declare a stage, and those that are started as jobs."""
    paths = [path for package in ("lineage", "datakit", "evals") for path in sorted((ROOT / package).rglob("*.py"))]
    declared = [path for path in paths if re.search(r' = Stage\(\s*"', path.read_text())]
    declaring = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in declared]
    return [*declaring, "trainer.__main__", "trainer.export.__main__", "evals.__main__"]


def test_no_stage_takes_in_recipes_or_the_shell_and_every_package_is_found() -> None:
    closures = {module: code_closure(module) for module in stage_modules()}
    assert len(closures) >= 17
    packages = {name.split(".")[0] for closure in closures.values() for name in (*closure.files, *closure.constants)}
    assert packages == {"lineage", "datakit", "trainer", "serving", "evals"}
    wanted = set().union(*(imported_distributions(module) for module in closures))
    optional = {"datatrove", "tldextract", "fasttext"}  # an extra of pyproject.toml, and what its blocks ask for: none is here
    assert wanted - optional <= installed_versions(wanted).keys()
    assert {"jaxlib", "dagster"}.isdisjoint(imported_distributions("datakit.documents.normalize"))


def test_the_machinery_of_plans_and_gates_is_no_code_of_a_data_stage() -> None:
    machinery = {"lineage.build.plan", "lineage.jobs.job", "lineage.trust.gate"}
    assert machinery.isdisjoint(code_closure("datakit.dedup.minhash").files)
    assert "datakit.sources.pydoc_pages" in code_closure("datakit.sources.raw").files


def test_the_commit_log_is_code_of_a_stage_that_asks_it_and_of_no_stage_that_only_tells_it() -> None:
    """Every commit tells it; the audit of a run on rewards finds its legs by it."""
    log = {"lineage.commit_log.reader", "lineage.commit_log.entries", "lineage.commit_log.keys"}
    assert log <= code_closure("post_training.audit").files.keys()
    assert log.isdisjoint(code_closure("datakit.dedup.minhash").files)


def test_what_writes_every_artifact_is_code_of_every_stage() -> None:
    """No stage imports it; a commit that left out a file would make another artifact."""
    assert {"lineage.writing.write", "lineage.writing.commit", "lineage.writing.working_folder"} <= code_closure(
        "lineage.order.mixture"
    ).files.keys()


def test_modules_named_by_computation_are_imported_nowhere_but_in_pydocs_pages() -> None:
    """The fingerprint follows import_module("a.b"), but not a computed name. The shard runner is not a stage's code.
    datatrove's blocks belong to a package, whose version is part of the step's identity. The sandbox names its files in full.
    Keyless signatures are checked when a folder is verified, and no stage does that.
    """
    computed = set()
    for path in sorted(
        path for package in ("lineage", "datakit", "trainer", "serving", "evals") for path in (ROOT / package).rglob("*.py")
    ):
        if not re.search(r"import_module|__import__|run_module|spec_from_file", text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and re.search(
                r"import_module$|__import__$|run_module$|spec_from_", ast.unparse(node.func)
            ):
                computed |= set() if isinstance(node.args[0], ast.Constant) else {path.name}
    assert computed == {"pydoc_pages.py", "shard_runner.py", "datatrove_steps.py", "child.py", "keyless.py"}
    shell = {f"evals.sandbox.{path.stem}" for path in (ROOT / "evals" / "sandbox").glob("shell*.py")}
    assert shell <= code_closure("post_training.synthetic.rollouts").files.keys()
    sandbox = {
        f"evals.sandbox.{name}" for name in ("run", "child", "calls", "walls", "syscalls", "memory", "landlock", "supervise")
    }
    assert sandbox <= code_closure("evals.__main__").files.keys()
    closures = [code_closure(module).files for module in stage_modules()]
    assert not [files for files in closures if "lineage.build.shard_runner" in files and "lineage.build.plan" not in files]


@pytest.mark.parametrize("text", ["a/" + "b" * 300, "/".join(["part"] * 2000), "\ud800/x"])
def test_a_text_that_no_file_system_takes_as_a_path_names_no_file(text: str, tmp_path: Path) -> None:
    """A long pattern in a module once ended every fingerprint in an OSError."""
    module = tmp_path / "module.py"
    module.write_text("")
    assert code_files.matching_files(module, frozenset({text}), tmp_path) == ()
