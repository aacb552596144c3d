"""Typical mistakes on the command line: each costs one line that names the thing and a remedy, and status 1."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from small import FinishedFerry, repository
from typer.testing import CliRunner, Result

from marin_assets.cli.app import app
from marin_assets.cli.errors import cause, chain, one_line
from recipes import ferry as recipe

CHECKPOINT = "ferry/runs/small/checkpoint"
ITEM = "marin_assets.cli"

MISTAKES: dict[str, tuple[str, str]] = {
    # start here
    "ferry --day tomorrow": ("'tomorrow'", "YYYY-MM-DD"),
    "ferry --day 2020-01-01": ("2020-01-01", "give one from 2026-11-01"),
    "ferry --dya 2026-11-20": ("--dya", "--day"),
    "gaet x": ("'gaet'", "did you mean gate"),
    "statsu": ("'statsu'", "did you mean status"),
    "xyzzy": ("'xyzzy'", "marin -h"),
    "list nothing_like_it": ("'nothing_like_it'", "./marin ferry"),
    "list --root": ("--root", "-h"),
    "list --cluster": ("--cluster", "lab.yaml"),
    "show": ("artifact", "marin show -h"),
    "show nope": ("'nope'", "./marin list"),
    # make
    "materialize": ("asset", "marin materialize -h"),
    "materialize runs/nope/training": ("'runs/nope/training'", "did you mean"),
    "materialize datakit/normalised --partition kjv": ("'datakit/normalised'", "did you mean datakit/normalized"),
    "materialize datakit/normalized": ("datakit/normalized has partitions", "--partition or all"),
    "materialize datakit/normalized --partition kvj": ("'kvj'", "did you mean kjv"),
    "materialize datakit/normalized[kvj]": ("'kvj'", "did you mean kjv"),
    "materialize datakit/normalized[kjv] --partition wiki": ("datakit/normalized[kjv]", "two partitions"),
    "materialize runs/tiny/training --partition x": ("runs/tiny/training", "leave --partition out"),
    "materialize runs/tiny/checkpoint --partition step-00000050": ("runs/tiny/checkpoint", "runs/tiny/training"),
    "materialize runs/tiny/training --all": ("no fixed partitions", "--partition"),
    "materialize datakit/raw --all --partition kjv": ("--all", "--partition kjv"),
    "materialize sweeps/rates_by_width/result": ("has partitions", "--all: d16"),
    "materialize runs/tiny/hf_model": ("runs/tiny/hf_model has partitions", "step-"),
    "materialize sweeps/tiny_rate_search/table --partition r9": ("no round 'r9'", "raise `rounds`"),
    "materialize sweeps/tiny_rate_search/trial --partition r1|t7": ("'r1|t7'", "r1|t0, r1|t1"),
    "canary --hardware tpu": ("'tpu'", "there is one on cpu"),
    "canary --day 2026-13-01": ("'2026-13-01'", "YYYY-MM-DD"),
    "serve": ("checkpoint", "marin serve -h"),
    "serve nope": ("'nope'", "./marin list"),
    "serve nope --port 99999": ("--port", "65535"),
    "serve /no/such/folder": ("/no/such/folder", "./marin list"),
    # contamination and trust
    "audit nope": ("'nope'", "./marin list"),
    "audit": ("checkpoint", "marin audit -h"),
    "holders mmlu:x/1": ("'contamination'", "keys look like contamination/benchmarks"),
    "holders mmlu/1 --key nope": ("'nope'", "keys look like contamination/benchmarks"),
    "gate ferry/nope[2026-11-21]": ("'ferry/nope[2026-11-21]'", "./marin list"),
    "gate nope[": ("'nope['", "names look like"),
    "waive missing --artifact a --who b --why c --expires 2026-12-01": ("'missing'", "quarantined"),
    "waive failed --artifact a --who b --why c --expires soon": ("'soon'", "YYYY-MM-DD"),
    "waive failed --artifact a --who b --why c": ("--expires", "marin waive -h"),
    "quarantine nope --why x": ("'nope'", "./marin list"),
    "quarantine nope": ("--why", "marin quarantine -h"),
    "revoke nope --why x": ("'nope'", "./marin list"),
    # signatures and exports
    "export": ("artifact", "marin export -h"),
    "export nope": ("--into", "marin export -h"),
    "export nope --into somewhere": ("'nope'", "./marin list"),
    "sign nope": ("'nope'", "./marin list"),
    "key --pme": ("--pme", "--pem"),
    "openlineage nope": ("'nope'", "./marin list"),
    "verify --attested /no/such/folder": ("/no/such/folder", ""),
    # lineage
    "lineage": ("name an artifact", "--check"),
    "lineage nope": ("'nope'", "./marin list"),
    "exposure nope": ("--document", "--item"),
    "exposure nope --item arc_easy/1": ("'nope'", "./marin list"),
    "affected": ("--stage", "--source"),
    "affected --field author": ("'author'", "NAME=VALUE"),
    "affected --source a --licence b": ("give one of", "--licence"),
    "reproduce nope": ("'nope'", "./marin list"),
    "verify": ("name an artifact", "--all-drifted"),
    "verify nope": ("'nope'", "./marin list"),
    "verify --all-drifted --shards 0": ("--shards", "or equal to 1"),
    # evaluation
    "compare a": ("second", "marin compare -h"),
    "compare a b": ("'a'", "./marin list"),
    "gap a b": ("'a'", "./marin list"),
    "gap a b --worst -1": ("--worst", "or equal to 0"),
    "leaderboard --plicy x": ("--plicy", "--policy"),
    # what is declared
    "spec nope": ("'nope'", "the declared runs are"),
    "spec": ("run", "marin spec -h"),
    "heldout tiny": ("corpus/default", "./marin"),
    "heldout tiny --kib-per-domain 0": ("--kib-per-domain", "or equal to 1"),
    "histories nope": ("'nope'", "marin_8b"),
    "plan-run nope": ("'nope'", "1e23"),
    "plan-run 1e23 --remat some": ("'some'", "none, named or full"),
    "plan-run 1e23 --hardware abacus": ("abacus", "v4"),
    "plan-data --rates nope": ("nope", "python -m benchmarks.plan_data"),
    "plan-data --tokens-trillion 0": ("--tokens-trillion", "above 0"),
    "storage mirror nope": ("--into", "marin storage mirror -h"),
    "storage mirror nope --into /tmp/x": ("'nope'", "./marin list"),
    "storage lifecycle --root /tmp/x": ("/tmp/x", "gs://"),
    "query SELECT_1": ("SELECT_1", "`show tables`"),
    "query drop_table": ("drop_table", "`show tables`"),
    "query --question nope": ("'nope'", "cost-of-runs"),
    "leaderboard --sql selct": ("selct", "`show tables`"),
    "list --root s3://bucket/x": ("s3://bucket/x", "gs://"),
    "list --root nope://x": ("nope://x", "a folder or a gs:// URL"),
    "purge approve abc": ("abc", "./marin purge plan"),
    "purge pin nope --why x --until 2030-01-01": ("'nope'", "./marin list"),
    "purge unpin abc": ("'abc'", "there are: none"),
    "help ferry": ("ferry", "marin help -h"),
}


@pytest.fixture(scope="module")
def empty_lab(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Nothing was made yet: what a fresh clone has."""
    folder = tmp_path_factory.mktemp("empty_lab")
    return {"MARIN_ROOT": str(folder / "root"), "DAGSTER_HOME": str(folder), "COLUMNS": "80"}


def marin(arguments: list[str], environment: dict[str, str]) -> Result:
    return CliRunner().invoke(app, arguments, env=environment)


def the_line(result: Result) -> str:
    """The one line of a refusal."""
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("marin: ")]
    assert result.stderr.splitlines()[-1] == line  # the cause is last
    return line


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_costs_one_line_that_names_the_thing_and_the_remedy(command: str, empty_lab: dict[str, str]) -> None:
    thing, remedy = MISTAKES[command]
    line = the_line(marin(command.split(), empty_lab))
    assert thing in line and remedy in line, line
    assert "defect of marin" not in line


@pytest.mark.parametrize(
    ("variable", "text", "remedy"),
    [
        ("MARIN_WORKERS", "many", "a whole number"),
        ("MARIN_WORKERS", "0", "at least 1"),
        ("MARIN_DATA_RUNNERS", "-1", "at least 0"),
        ("MARIN_ROOT", "s3://bucket/x", "gs://"),
        ("MARIN_AUTOMATION", "yes", "on or off"),
    ],
)
def test_a_wrong_setting_of_the_environment_is_one_line(
    variable: str, text: str, remedy: str, empty_lab: dict[str, str]
) -> None:
    line = the_line(marin(["materialize", "tokenizer/bytes"], empty_lab | {variable: text}))
    assert repr(text) in line and remedy in line and "defect of marin" not in line


def test_at_least_sixty_mistakes_and_five_a_group() -> None:
    from marin_assets.cli.table import GROUPS

    assert len(MISTAKES) >= 60
    for group in GROUPS:
        names = {command.name for command in group.commands}
        assert sum(command.split()[0] in names for command in MISTAKES) >= 5, group.title


def test_help_shows_names_whole_and_no_path_of_this_machine(empty_lab: dict[str, str]) -> None:
    """Names with brackets are not markup, and a default file is shown below the checkout."""
    for command, shown in (
        ("compare", "eval_result[step-00000050|piqa]"),
        ("gap", "checkpoint[step-00000050]"),
        ("materialize", "corpus/default[wiki]"),
        ("plan-data", "data/rates/data_engine.json"),
    ):
        text = marin([command, "-h"], empty_lab | {"COLUMNS": "160", "TERMINAL_WIDTH": "160"}).output
        assert shown in text and str(repository()) not in text, text


def test_a_group_without_a_command_prints_its_help_once(empty_lab: dict[str, str]) -> None:
    for group in ("purge", "storage"):
        answer = marin([group], empty_lab)
        assert answer.exit_code == 0 and answer.output.count("Usage:") == 1


def test_an_empty_lab_says_how_to_begin(empty_lab: dict[str, str]) -> None:
    for command in ("list", "status"):
        answer = marin([command], empty_lab)
        assert answer.exit_code == 0 and "./marin ferry" in answer.stdout
    assert "add `log: gs://" in the_line(marin(["log"], empty_lab))


def test_the_named_questions_are_json_too(empty_lab: dict[str, str]) -> None:
    answer = marin(["query", "--json"], empty_lab)
    assert answer.exit_code == 0 and json.loads(answer.stdout)["cost-of-runs"]["sql"].startswith("SELECT")


def test_debug_shows_the_traceback(empty_lab: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="run 'nope' is not declared"):
        CliRunner().invoke(app, ["spec", "nope", "--debug"], env=empty_lab, catch_exceptions=False)


def test_an_item_or_a_step_that_there_is_not(finished_ferry: FinishedFerry) -> None:
    root = ["--root", finished_ferry.lab.ferry_store.root]
    checkpoint = recipe.final_checkpoint(
        recipe.rostered_run(finished_ferry.ferry, finished_ferry.lab.ferry_store, "2026-11-20")
    )
    for arguments, thing in (
        (["exposure", checkpoint.name, "--item", "typo"], "'typo'"),
        (["exposure", checkpoint.name, "--document", "short"], "short"),
        (["show", f"{checkpoint.name}@999999"], "@999999"),
        (["affected", "--stage", "datakit.nope"], "datakit.nope"),
        (["holders", "mmlu/x"], "--key takes ferry/contamination/small/vendored_prose"),
    ):
        assert thing in the_line(marin([*arguments, *root], {}))


def test_the_audit_of_a_ferry_needs_no_day(finished_ferry: FinishedFerry) -> None:
    """The report shows one audit, so it is asked for by the report, by the checkpoint and by itself."""
    root = ["--root", finished_ferry.lab.ferry_store.root]
    names = ("ferry/report", "ferry/runs/smoke/checkpoint", "ferry/runs/smoke/contamination_audit")
    answers = [marin(["audit", name, "--json", *root], {}) for name in names]
    assert len({(answer.exit_code, answer.stdout) for answer in answers}) == 1 and '"verdict"' in answers[0].stdout
    assert "is no checkpoint" in the_line(marin(["audit", "ferry/roster", *root], {}))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "MARIN_ROOT"),
        (OSError(errno.EROFS, "Read-only file system", "/data/x"), "MARIN_ROOT"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "check the path and the network"),
        (ModuleNotFoundError("No module named 'jax'"), "make setup"),
        (MemoryError(), "MARIN_WORKERS"),
        (KeyError("x"), "--debug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_a_machine_lacks_is_one_line(error: Exception, remedy: str) -> None:
    assert remedy in one_line(error) and "\n" not in one_line(error)


def test_a_cycle_of_exceptions_ends_and_the_cause_is_the_first_of_ours() -> None:
    """Dagster's errors may refer to each other in a cycle; a traceback printer walked one for 25 minutes."""
    import dagster as dg

    outer, inner, ours = dg.DagsterError("outer"), dg.DagsterError("inner"), ValueError("vocabulary of 8192 is too large")
    outer.__cause__, inner.__cause__, ours.__context__ = inner, ours, outer
    assert [str(each) for each in chain(outer)] == ["outer", "inner", "vocabulary of 8192 is too large"]
    assert cause(outer) is ours
    inner.__cause__ = outer
    assert cause(outer) in (outer, inner)


def test_a_root_on_which_nothing_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a_file"
    file.write_text("")
    line = the_line(
        marin(
            ["waive", "failed", "--artifact", "a", "--who", "b", "--why", "c", "--expires", "2027-01-01", "--root", str(file)],
            {},
        )
    )
    assert str(file) in line


def test_a_port_that_is_taken(finished_ferry: FinishedFerry) -> None:
    checkpoint = recipe.final_checkpoint(
        recipe.rostered_run(finished_ferry.ferry, finished_ferry.lab.ferry_store, "2026-11-20")
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = the_line(marin(["serve", checkpoint.name, "--port", port, "--root", finished_ferry.lab.ferry_store.root], {}))
    assert "--port" in line


def test_without_an_environment_the_script_says_what_to_run(tmp_path: Path) -> None:
    script = tmp_path / "marin"
    script.write_bytes((repository() / "marin").read_bytes())
    script.chmod(0o755)
    done = subprocess.run([script, "status"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "make setup" in done.stderr


def test_another_python_is_refused_in_one_line(tmp_path: Path) -> None:
    """`.venv` made by another Python than 3.12."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text("#!/bin/sh\necho 3.11\n")
    python.chmod(0o755)
    script = tmp_path / "marin"
    script.write_bytes((repository() / "marin").read_bytes())
    script.chmod(0o755)
    done = subprocess.run([script, "status"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "3.12" in done.stderr, done.stderr


def test_help_imports_no_engine_and_fits_a_screen() -> None:
    program = (
        "import sys\nfrom marin_assets.cli.app import app\n"
        "try:\n    app(['-h'])\nexcept SystemExit:\n    pass\n"
        "assert not {'dagster', 'jax', 'polars', 'duckdb'} & {name.split('.')[0] for name in sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=repository(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_completion_knows_every_command() -> None:
    from marin_assets.cli.table import COMMANDS

    environment = {**os.environ, "_MARIN_COMPLETE": "complete_bash", "COMP_WORDS": "marin ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", ITEM], cwd=repository(), env=environment, capture_output=True, text=True
    )
    assert "dagster" not in done.stderr, "a key press must not import the commands"
    assert set(re.findall(r"[\w-]+", done.stdout)) >= set(COMMANDS)
