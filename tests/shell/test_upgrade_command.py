"""`./marin upgrade` prints a plan, applies it on request, and finds nothing to do afterwards."""

import shutil
from pathlib import Path

from typer.testing import CliRunner

from marin_assets.cli.app import app

OLD_STORE = Path(__file__).parents[1] / "lineage" / "old_store"


def test_the_plan_is_printed_then_applied_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(OLD_STORE, root)

    def run(*arguments: str) -> str:
        ended = CliRunner().invoke(app, ["upgrade", "--root", str(root), *arguments], env={"COLUMNS": "400"})
        assert ended.exit_code == 0, ended.output
        return ended.output

    assert "datakit/minhash-20x5/kjv/" in run() and "nothing was written" in run()
    assert "6 of 6 changes are done" in run("--apply")
    assert "nothing to upgrade" in run()
