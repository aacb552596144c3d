"""What a command shows while it works: a line for each stage, a bar for long work on a terminal, the rest in a log file."""

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from marin_assets.cli.stage_lines import CampaignLines, StageLines, Terminal, quiet

KEYS = [dg.AssetKey(["raw", name]) for name in ("a", "b", "c")]
STAGES = {**dict.fromkeys(KEYS, "datakit.raw"), dg.AssetKey("report"): "evals.report"}


def made(key: dg.AssetKey, **metadata: object) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(key, metadata={name: dg.MetadataValue.int(int(str(v))) for name, v in metadata.items()})


def test_a_stage_is_one_line_once_the_last_of_its_assets_is_made() -> None:
    out = io.StringIO()
    lines = CampaignLines(Terminal(out), STAGES)
    lines.materialized(made(KEYS[0], rows_in=10, rows_out=7), 1.0)
    lines.materialized(made(dg.AssetKey("other")), 1.0)
    lines.materialized(made(KEYS[1], rows_in=5, rows_out=5), 2.5)
    assert out.getvalue() == ""
    left_out = dg.AssetMaterialization(KEYS[2], metadata={"left_out": "out of reach"})
    lines.materialized(left_out, 0.0)
    lines.materialized(made(dg.AssetKey("report")), 0.5)
    first, second = out.getvalue().splitlines()
    assert first.split() == ["[", "1/2]", "datakit.raw", "x2", "3.5", "s", "15", ">", "12", "rows,", "1", "left", "out"]
    assert second.split() == ["[", "2/2]", "evals.report", "0.5", "s"]


def test_a_stage_is_reused_if_all_its_assets_are() -> None:
    out = io.StringIO()
    lines = CampaignLines(Terminal(out), dict.fromkeys(KEYS[:2], "datakit.raw") | {KEYS[2]: "datakit.cards"})
    reused = {"reused": dg.MetadataValue.bool(True)}
    for key in KEYS:
        lines.materialized(dg.AssetMaterialization(key, metadata=reused if key != KEYS[1] else {"reused": False}), 1.0)
    first, second = out.getvalue().splitlines()
    assert "2.0 s" in first and "reused" not in first
    assert "reused" in second


PROGRAM = """
import dagster as dg, sys
from pathlib import Path
from marin_assets.cli.stage_lines import CampaignLines, StageLines, quiet

@dg.asset
def trained(context):
    print("a line of an engine")
    for done in (0, 50, 100):
        metadata = {"work": "training", "done": done, "total": 100}
        context.log_event(dg.AssetObservation("trained", description=f"training: {done} of 100", metadata=metadata))
    if sys.argv[2] == "fail":
        raise ValueError("it cannot be")

with quiet(Path(sys.argv[1]), errors=sys.argv[2] == "errors") as terminal, dg.DagsterInstance.ephemeral() as instance:
    job = dg.Definitions(assets=[trained]).resolve_implicit_global_asset_job_def()
    run_id = "12345678-1234-4234-8234-123456789abc"
    instance.add_event_listener(run_id, CampaignLines(terminal, {dg.AssetKey("trained"): "trainer.checkpoint"}))
    job.execute_in_process(run_id=run_id, instance=instance, raise_on_error=False)
print("the answer")
"""


def shown_on_a_terminal(command: list[str]) -> str:
    """What a command writes to a terminal of 60 columns."""
    ours, its = pty.openpty()
    os.set_blocking(ours, False)
    environment = os.environ | {"COLUMNS": "60"}
    child = subprocess.Popen(command, stdout=its, stderr=its, env=environment)
    os.close(its)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except BlockingIOError:
            time.sleep(0.02)
            continue
        except OSError:  # Linux: every writer has closed it
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    child.wait()
    return shown.decode()


def rewritten(text: str) -> list[str]:
    """The lines that stay: what a carriage return overwrites is gone."""
    return [line.rpartition("\033[K")[2] for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n")]


def test_a_terminal_shows_a_bar_that_goes_and_the_log_file_has_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "logs/run.log"
    shown = shown_on_a_terminal([sys.executable, "-c", PROGRAM, str(log), "pass"])
    half = re.search(r"(━+)(╌+) training: 50 of 100", shown)
    assert half is not None and len(half[1]) == len(half[2])
    stays = rewritten(shown)
    assert stays[0].startswith("stages  details are in") and stays[-1] == "the answer"
    assert [line.split()[:3] for line in stays[1:-1]] == [["[", "1/1]", "trainer.checkpoint"]]
    assert "a line of an engine" in log.read_text() and "a line of an engine" not in shown


@pytest.mark.parametrize("end", ["errors", "fail"])
def test_a_pipe_gets_lines_without_control_characters(end: str, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(log), end], capture_output=True, text=True, check=True)
    lines = done.stderr if end == "errors" else done.stdout
    assert "\033" not in done.stdout + done.stderr and "a line of an engine" not in done.stdout + done.stderr
    assert ("trainer.checkpoint" in lines) == (end != "fail")
    if end == "errors":
        assert done.stdout == "the answer\n"
    if end == "fail":
        assert "it cannot be" in log.read_text()


def test_artifacts_are_counted_on_from_those_of_the_process_before() -> None:
    out = io.StringIO()
    lines = StageLines(Terminal(out), total=12, done=9)
    lines.materialized(made(KEYS[0], rows_in=1200), 1.5)
    lines.reused("raw/b")
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["[10/12]", "raw/a", "1.5", "s", "1,200", "rows"],
        ["[11/12]", "raw/b", "reused"],
    ]


def test_output_returns_after_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="wrong"), quiet(tmp_path / "run.log"):
        os.write(1, b"to the log\n")
        raise ValueError("wrong")
    os.write(1, b"shown\n")
    assert capfd.readouterr().out.endswith("shown\n")
    assert "to the log" in (tmp_path / "run.log").read_text()
