"""`marin init` and `marin train`: own text to a declared run, to an audited checkpoint, and what is refused on the way."""

import gzip
import json
import lzma
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small import repository
from small_runs import small_spec
from test_cli_mistakes import marin, the_line
from test_quickstart import shown_in_order

from datakit.readers.read import read_file
from datakit.sources.record import Record
from datakit.sources.source import Records
from datakit.survey import survey
from lineage.config import to_jsonable
from marin_assets.declared_table import tabled
from marin_assets.runs import training_key
from recipes import lab, sources
from recipes.own_recipes import FOLDER_VARIABLE
from recipes.own_sizes import SHAPES, VOCABULARIES, sizes
from recipes.records.run import Run

TRAINED = re.compile(r"<!-- trained -->\n```console\n(.*?)```", re.S)
WORDS = (repository() / "docs/glossary.md").read_text().split()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of 60 small texts."""
    return write_texts(tmp_path / "texts", 60)


def write_texts(folder: Path, count: int) -> Path:
    """Write pieces of the vendored speeches, a file each."""
    (packed,) = sorted((repository() / "data/prose").glob("*.xz"))[:1]
    speeches = "\n".join(json.loads(line)["text"] for line in lzma.decompress(packed.read_bytes()).splitlines()[:20])
    folder.mkdir(exist_ok=True)
    for at in range(count):
        (folder / f"{at:02d}.txt").write_text(speeches[at * 3_000 : (at + 1) * 3_000])
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A lab whose root and recipe files are this test's; what is declared is read again before and after."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    caches = (sources.own_recipes, sources.catalogue, lab.declarations)
    for cached in caches:
        cached.cache_clear()
    yield {"MARIN_ROOT": str(tmp_path / "root"), "DAGSTER_HOME": str(tmp_path), "COLUMNS": "100"}
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


def declared(name: str) -> Run:
    for cached in (sources.own_recipes, sources.catalogue, lab.declarations):
        cached.cache_clear()
    return lab.declarations().run(name)


def test_init_writes_a_recipe_that_the_lab_declares(texts: Path, own: dict[str, str], tmp_path: Path) -> None:
    result = marin(["init", "--name", "mine", "--offline", str(texts)], own)
    assert result.exit_code == 0, result.output
    assert "60 files of text" in result.output and "./marin train --name mine" in result.output
    recipe = tmp_path / "own/mine.py"
    run = declared("mine")
    assert run.name == "mine" and run.sources == ("mine",)
    table, kept = tabled(lab.declarations())
    assert kept.run("mine") == run
    assert table.__contains__(("corpus", "mine")) and table.__contains__(("contamination_index", "vendored"))
    assert training_key(run).to_user_string() == "runs/mine/training"
    ruff = [str(Path(sys.executable).with_name("ruff")), "--config", str(repository() / "pyproject.toml")]
    for check in (["format", "--check"], ["check", "--ignore", "D,INP"]):
        subprocess.run([ruff[0], check[0], *ruff[1:], *check[1:], str(recipe)], check=True, capture_output=True)


def test_init_again_keeps_the_recipe_and_an_edited_one_is_not_overwritten(
    texts: Path, own: dict[str, str], tmp_path: Path
) -> None:
    command = ["init", "--name", "mine", "--offline", str(texts)]
    recipe = tmp_path / "own/mine.py"
    assert marin(command, own).exit_code == 0
    before = recipe.read_text()
    declared("mine")
    assert marin(command, own).exit_code == 0 and recipe.read_text() == before
    changed = recipe.stat()
    recipe.write_text(before.replace("seed=1", "seed=2"))
    os.utime(recipe, ns=(changed.st_atime_ns, changed.st_mtime_ns))  # an edit of equal size within a second
    line = the_line(marin(command, own))
    assert "mine.py" in line and "./marin train --name mine" in line
    assert declared("mine").spec.seed == 2


def test_kinds_of_files_are_sources_of_their_own(own: dict[str, str], tmp_path: Path) -> None:
    folder = write_texts(tmp_path / "texts", 30)
    (folder / "tests").mkdir()
    (folder / "tests/test_a.txt").write_text("held out")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "wrong.txt").write_bytes(b"\0\1\2")
    records = [json.dumps({"body": " ".join(random.Random(at).choices(WORDS, k=300))}) for at in range(30)]
    (folder / "more.jsonl.gz").write_bytes(gzip.compress("\n".join(records).encode()))
    result = marin(["init", "--name", "mixed", "--offline", str(folder)], own)
    assert result.exit_code == 0, result.output
    for reason in ("1 named like a test or validation split", "1 of another suffix", "1 binary"):
        assert reason in result.output
    run = declared("mixed")
    assert run.sources == ("mixed_text", "mixed_records")
    of_text, of_records = (sources.source_config(name) for name in run.sources)
    assert of_records.format == Records("jsonl", text="body", id=None)
    assert of_text.loader.exclude == ("tests/test_a.txt", "wrong.txt")


def test_one_long_file_is_cut_into_passages(tmp_path: Path) -> None:
    paragraphs = [" ".join(random.Random(at).choices(WORDS, k=120)) for at in range(200)]
    file = tmp_path / "book.txt"
    file.write_text("\n\n".join(paragraphs))
    seen = survey(tmp_path, ["book.txt"])
    assert seen.text_files[0].format == "passages"
    records = [record for record in read_file("passages", "book.txt", file) if isinstance(record, Record)]
    assert seen.num_documents == len(records) > 20
    assert "\n\n".join(str(record.text) for record in records) == file.read_text()
    assert all(len(str(record.text)) + len("\n\n") >= 2_000 for record in records[:-1])
    assert len({record.source_id for record in records}) == len(records)


def test_sizes_stay_within_the_text_and_the_budget() -> None:
    budgets, texts = (1e12, 1e14, 1e16), [10**power for power in (5, 6, 7, 8, 9)]
    chosen = {(text, flops): sizes(text, 10**9, flops) for text in texts for flops in budgets}
    for (text, flops), each in chosen.items():
        assert each.vocab_size in VOCABULARIES and (each.hidden_dim, each.num_layers) in SHAPES
        assert each.num_steps == 20 or (each.epochs <= 4.2 and each.flops <= 1.2 * flops)
        for more in (chosen.get((text * 10, flops)), chosen.get((text, flops * 100))):
            assert more is None or each.vocab_size <= more.vocab_size
        assert (text * 100, flops) not in chosen or each.tokens <= 2 * chosen[text * 100, flops].tokens
    assert chosen[10**9, 1e16].hidden_dim > chosen[10**9, 1e12].hidden_dim


MISTAKES = {
    "train {empty} --name mine": ("holds no text: it has no file", ".txt"),
    "train {binary} --name mine": ("3 binary", ".txt"),
    "train {few} --name mine": ("3 documents", "at least 20"),
    "train {texts} --name tiny": ("tiny is taken", "choose another name"),
    "train {texts} --name kjv": ("kjv is taken", "choose another name"),
    "train {texts} --name My-run": ("'My-run'", "small letter"),
    "train {texts} --name mine --vocab 100000": ("--vocab is 100000", "give at most"),
    "train {texts} --name mine --flops 0": ("--flops is 0", "positive"),
    "train {texts}/nowhere --name mine": ("nowhere", "check the path"),
    "train {texts}": ("--name", "marin train -h"),
    "train spec.json": ("spec.json", "./marin spec tiny"),
    "train --name nope": ("'nope'", "the declared runs are"),
    "init {texts}": ("--name", "marin init -h"),
    "init {records} --name mine": ("no field text or content", "--text-field"),
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line(command: str, texts: Path, own: dict[str, str], tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("empty", "binary", "few", "records")}
    for folder in folders.values():
        folder.mkdir()
    for at in range(3):
        (folders["binary"] / f"{at}.txt").write_bytes(b"\0" * 100)
        (folders["few"] / f"{at}.txt").write_text("a few words")
    (folders["records"] / "a.jsonl").write_text('{"question": "?", "label": 1}\n')
    places = {name: str(folder) for name, folder in folders.items()} | {"texts": str(texts)}
    line = the_line(marin([part.format(**places) for part in command.split()] + ["--offline"] * ("{" in command), own))
    for part in MISTAKES[command]:
        assert part in line
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("text", "thing", "remedy"),
    [
        ("run:", "spec.json is not JSON", ""),
        ('{"root": "ROOT", "mixture": "mixture/nope", "run": RUN}', "'mixture/nope'", "./marin list"),
        ('{"root": "ROOT", "mixtures": "mixture/nope", "run": RUN}', "mixtures", "mixture"),
        ('{"root": "ROOT", "mixture": "mixture/nope", "run": {}}', "run", "spec.json"),
    ],
)
def test_a_mistake_in_a_spec_file_is_one_line(text: str, thing: str, remedy: str, own: dict[str, str], tmp_path: Path) -> None:
    run = json.dumps(to_jsonable(small_spec("by_hand")))
    (tmp_path / "spec.json").write_text(text.replace("ROOT", str(tmp_path / "root")).replace("RUN", run))
    line = the_line(marin(["train", str(tmp_path / "spec.json")], own))
    assert thing in line and remedy in line, line


def in_a_process(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "marin_assets.cli", *arguments]
    return subprocess.run(command, env=os.environ | environment, cwd=repository(), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_folder_becomes_an_audited_checkpoint_as_the_quickstart_says(texts: Path, own: dict[str, str]) -> None:
    shutil.copy(repository() / "dagster.yaml", own["DAGSTER_HOME"])
    (page,) = TRAINED.findall((repository() / "docs/quickstart.md").read_text())
    command, *expected = page.strip().splitlines()
    folder = texts.rename(texts.with_name("my_texts"))
    arguments = [str(folder) if part == "my_texts" else part for part in shlex.split(command.removeprefix("$ ./marin "))]
    arguments += ["--offline", "--flops", "1e10"]
    first = in_a_process(arguments, own)
    assert first.returncode == 0, first.stdout + first.stderr
    assert shown_in_order(expected, first.stdout) is None, first.stdout
    assert "audit   clean\n" in first.stdout and first.stderr == ""
    again = in_a_process([*arguments, "--json"], own)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stderr.count("reused") == 18
    summary = json.loads(again.stdout)
    assert summary["audit"] == "clean" and Path(summary["checkpoint"]).is_dir()
    assert in_a_process(["gate", "mine"], own).returncode == 0


@pytest.mark.slow
def test_text_that_the_filters_drop_is_named_with_the_reason(own: dict[str, str], tmp_path: Path) -> None:
    shutil.copy(repository() / "dagster.yaml", own["DAGSTER_HOME"])
    folder = tmp_path / "numbers"
    folder.mkdir()
    for at in range(40):
        rows = (" ".join(str(random.Random(at * 100 + row).randint(0, 999)) for _ in range(12)) for row in range(60))
        (folder / f"{at}.txt").write_text("\n".join(rows))
    result = in_a_process(["train", str(folder), "--name", "numbers", "--offline", "--flops", "1e10"], own)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "no document of 40 is left to train on" in line and "low_quality" in line
