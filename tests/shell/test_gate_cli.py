"""`marin gate`, `quarantine` and `waive` on a bucket: each command sees what the other recorded."""

import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.writing.write import writing
from marin_assets.cli.app import app


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store with one artifact and another made from it."""
    store = Store(str(tmp_path / "store"))
    refs = ()
    for key in ("documents", "cache"):
        with writing(store, ArtifactSpec((key,), "kjv", f"tests.{key}", "1", {}, refs)) as out:
            (out.folder / "text.txt").write_text(key)
        refs = (out.artifact.ref("documents"),)
    return store.root


def marin(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_a_quarantine_reaches_what_was_made_from_it_until_it_is_lifted(root: str) -> None:
    assert marin("gate", "cache[kjv]", "--root", root).exit_code == 0
    assert marin("quarantine", "documents[kjv]", "--why", "the wrong site", "--root", root).exit_code == 0
    refused = marin("gate", "cache[kjv]", "--root", root)
    assert refused.exit_code == 1
    assert "quarantined documents[kjv]: quarantine: the wrong site" in refused.output
    assert marin("quarantine", "documents[kjv]", "--lift", "--why", "the right site", "--root", root).exit_code == 0
    assert marin("gate", "cache[kjv]", "--root", root).exit_code == 0


def test_a_waiver_is_listed_and_a_bad_one_refused(root: str) -> None:
    day = (datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=3)).isoformat()
    options = ("--artifact", "documents[kjv]", "--who", "ada", "--why", "two rows", "--root", root)
    assert marin("waive", "failed", *options, "--expires", day).exit_code == 0
    assert marin("waive", "failed", *options, "--expires", "2026-01-01").exit_code == 0
    shown = marin("gate", "cache[kjv]", "--root", root).output
    assert day in shown and "2026-01-01 (expired)" in shown
    refused = marin("waive", "missing", *options, "--expires", day)
    assert refused.exit_code == 1 and "waiver.problem" in refused.stderr and "quarantined" in refused.stderr
