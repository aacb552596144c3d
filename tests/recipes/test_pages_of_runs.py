"""The pages on sources and runs in docs/recipes, followed as they are written: one file, no other edit."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import datakit.sources.source
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from marin_assets.declared_table import tabled
from recipes import data, lab, sources
from recipes.own_recipes import FOLDER_VARIABLE
from recipes.studies.default import tiny

PAGES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


def block(page: str, number: int = 0) -> str:
    """A piece of the Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), flags=re.MULTILINE | re.DOTALL)[number]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of own recipe files; what is declared is read again before and after."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    yield folder
    monkeypatch.undo()
    read_again()


def read_again() -> None:
    for cached in (sources.own_recipes, sources.catalogue, lab.declarations, data.raw, data.normalized):
        cached.cache_clear()


def test_the_run_of_the_page_is_declared_and_shares_all_data(own: Path) -> None:
    (own / "half.py").write_text(block("add_a_run.md"))
    read_again()
    declared = lab.declarations()
    table, kept = tabled(declared)
    assert not declared.broken and not kept.broken
    run = kept.run("tiny_half")
    assert run.spec.batch_size == 4 and run.data == tiny().data
    assert ("runs", "tiny_half", "checkpoint") in {template.example.key for template in table}


def test_the_source_of_the_page_is_pinned_by_its_error_and_read(own: Path, tmp_path: Path) -> None:
    stories = tmp_path / "stories"
    stories.mkdir()
    records = [{"number": at, "story": f"Once upon a time there was number {at}."} for at in range(30)]
    (stories / "a.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    page = block("add_a_source.md").replace("/data/stories", str(stories))
    (own / "stories.py").write_text(page)
    read_again()
    assert not tabled(lab.declarations())[1].broken
    assert lab.declarations().run("stories").sources == ("stories",)

    store = Store(str(tmp_path / "artifacts"))
    with pytest.raises(ValueError, match="stories") as refused:
        made(store, data.raw("stories"))
    (digest,) = re.findall(r"\b[0-9a-f]{32}\b", str(refused.value))
    (own / "stories.py").write_text(page.replace('Unverified("", "nobody has listed the folder")', f'"{digest}"'))
    read_again()
    assert made(store, data.raw("stories")).manifest.files
    normalized = made(store, data.normalized("stories"))
    assert normalized.manifest.statistics["rows_out"] == len(records)


def test_the_source_of_commit_histories_is_declared_as_on_the_page() -> None:
    source = eval(block("add_a_source.md", 1), vars(datakit.sources.source))
    assert source.format == "commits" and source.loader.globs == ("*.bundle",)


def made(store: Store, node: Node):
    return build(store, node).artifact
