"""Evaluate a model behind a URL on the tasks of an evaluation policy: our own server, a broker, or another server with
OpenAI's API.

    python -m evals.remote --url http://127.0.0.1:8000 --model m --policy FOLDER --tokenizer FOLDER --out FOLDER

The FOLDERs of a policy, a tokenizer and corpora are those of their artifacts (with `manifest.json`); the policy knows
its suites. The results are in `--out`: `records.parquet`, `scores.json`, `result.json`, and `answers.jsonl`, from which
a killed run resumes. They are no artifact, because nobody vouches for what a URL serves, so they are on no leaderboard.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.items.item import read_items
from evals.items.stage import TaskSpec
from evals.remote.model import Endpoint, RemoteGenerator, RemoteModel, RemoteScorer, check_tokenizer, model_card
from evals.scoring.records import write_records
from evals.tasks.policy import POLICY_FILE, PolicyRule, check_policy
from evals.tasks.run_task import TaskInputs, chosen_items, incomplete_tasks, run_tasks
from lineage.artifact.store import Artifact, open_folder
from lineage.config import from_jsonable
from serving.broker.client import Record
from serving.refusals import read_key
from serving.tokenization import open_tokenizer

log = logging.getLogger("evals.remote")
FORMAT = "remote_result/1"
RESTARTED = ("created", "permission")
"""Fields of a foreign server's model card that change at every start of the server."""


@dataclass(frozen=True)
class RemoteRun:
    """What to ask, and whom. `names`: tasks of the policy, or all that can be asked if it is empty; `context`: the
    largest number of tokens in a sequence, by default what the server says.
    """

    url: str
    model: str
    policy: Artifact
    tokenizer: Artifact
    out: Path
    corpora: tuple[Artifact, ...] = ()
    trajectories: tuple[Artifact, ...] = ()
    names: tuple[str, ...] = ()
    context: int | None = None
    key: str | None = None
    concurrency: int = 32
    patience: float = 600.0


def evaluate_remote(run: RemoteRun) -> dict[str, Any]:
    """Ask every task and write the results; return the content of `result.json`.

    Raises: ValueError for a task, a model or a tokenizer that does not fit, or an `out` that holds another model's
    answers.
    """
    declared = json.loads(run.policy.files(POLICY_FILE)[0].read_text())
    tasks, left_out = _tasks(run, declared)
    suites, shots = (_inputs(run.policy, name) for name in ("suites", "shots"))
    check_policy(run.policy, tasks, declared["seed"], suites, shots)
    card = model_card(run.url, run.model, run.key)
    context = run.context or card.get("max_model_len")
    if context is None:
        raise ValueError(f"{run.url} does not say how long a sequence of {run.model!r} may be; give --context")
    tokenizer, start = open_tokenizer(run.tokenizer, None)
    if not check_tokenizer(run.url, run.model, run.key, tokenizer):
        log.warning("%s has no /tokenize: that its tokenizer is %s is taken on trust", run.url, run.tokenizer.name)
    endpoint = Endpoint(run.url, run.model, _record(run.out, card), run.key, run.concurrency, run.patience)
    model = RemoteModel(RemoteScorer(endpoint, context), RemoteGenerator(endpoint, context, tokenizer, start))
    chosen, examples = chosen_items(tasks, suites, declared["seed"]), [item for suite in shots for item in read_items(suite)]
    held = (chosen, examples, run.corpora, run.trajectories)
    inputs = TaskInputs(run.tokenizer, tokenizer, start, *held, _version(run, card), declared["seed"])
    result = run_tasks(model, inputs, tasks, run.model)
    facts = {
        "format": FORMAT,
        "url": run.url,
        "server": card,
        "policy": {"name": declared["name"], "data_version": run.policy.data_version},
        "tokenizer": run.tokenizer.data_version,
        "context": context,
        "left_out": left_out,
        "incomplete": incomplete_tasks(result.records),
        "pass_at_k": [curve.to_json() for curve in result.curves],
    }
    write_records(result.records, run.out / "records.parquet")
    _write_json(run.out / "scores.json", [score.rounded() for score in result.scores])
    _write_json(run.out / "result.json", facts)
    return facts


def _tasks(run: RemoteRun, declared: dict[str, Any]) -> tuple[tuple[TaskSpec, ...], dict[str, str]]:
    """Return the policy's tasks to ask, and why the others cannot be asked. Raises: ValueError for a named one that
    cannot be.
    """
    rules = [from_jsonable(PolicyRule, rule, "rule") for rule in declared["rules"]]
    known = {rule.task.name: rule.task for rule in rules}
    unknown = [name for name in run.names if name not in known]
    if unknown:
        raise ValueError(f"{run.policy.name} has no task {unknown[0]!r}; it has: {', '.join(known)}")
    tasks_to_ask = [known[name] for name in run.names or known]
    problems = {task.name: problem for task in tasks_to_ask if (problem := _problem(run, task))}
    if run.names and problems:
        raise ValueError(f"{run.url} cannot be asked for {'; '.join(f'{name}: {why}' for name, why in problems.items())}")
    for name, why in problems.items():
        log.warning("%s is left out: %s", name, why)
    tasks = tuple(task for task in tasks_to_ask if task.name not in problems)
    if not tasks:
        raise ValueError(f"no task of {run.policy.name} can be asked of {run.url}: {problems}")
    return tasks, problems


def _problem(run: RemoteRun, task: TaskSpec) -> str:
    """Return why a task cannot be asked of a server; empty if it can."""
    if task.weights != "raw":
        return f"its weights are {task.weights!r}, a server has one set"
    if task.kind == "perplexity" and not run.corpora:
        return "it needs held-out text, give --corpus"
    return "it needs trajectories, give --trajectories" if task.kind == "trajectories" and not run.trajectories else ""


def _inputs(policy: Artifact, name: str) -> tuple[Artifact, ...]:
    """Return the inputs of the policy under a name: the very suites whose items it counted."""
    pairs = zip(policy.store.parents(policy), policy.spec.inputs, strict=True)
    return tuple(parent for parent, ref in pairs if ref.name.split(".")[0] == name)


def _version(run: RemoteRun, card: dict[str, Any]) -> str:
    """Return what records call the model: the data version of the checkpoint if the server reports it, else the URL."""
    return str(card.get("data_version") or f"{run.url} {run.model}")


def _record(out: Path, card: dict[str, Any]) -> Record:
    """Return the answers so far. Raises: ValueError if they are of another model, though it has the same name."""
    out.mkdir(parents=True, exist_ok=True)
    ours = card.get("owned_by") == "marin-lab"
    kept = {name: value for name, value in card.items() if ours or name not in RESTARTED}
    file = out / "server.json"
    held = json.loads(file.read_text()) if file.exists() else kept
    if held != kept:
        raise ValueError(f"{out} holds answers of {held}, the server has {kept} now; take a new folder")
    if not file.exists():
        _write_json(file, kept)
    return Record(out / "answers.jsonl")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Score a policy's tasks by a model behind a URL."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.remote", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="the server's, or a broker's, without /v1")
    parser.add_argument("--model", required=True, help="what the server calls it (/v1/models)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of an eval_policy artifact")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the model's tokenizer artifact")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="folder of a corpus with a held-out split")
    parser.add_argument("--trajectories", type=Path, action="append", default=[], help="folder of a held-out token cache")
    parser.add_argument("--task", action="append", default=[], help="a task of the policy; by default all that can be asked")
    parser.add_argument("--context", type=int, help="tokens of a sequence; by default what the server says")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds without an answer to one request")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    run = RemoteRun(
        url=given.url.rstrip("/"),
        model=given.model,
        policy=open_folder(given.policy),
        tokenizer=open_folder(given.tokenizer),
        out=given.out,
        corpora=tuple(map(open_folder, given.corpus)),
        trajectories=tuple(map(open_folder, given.trajectories)),
        names=tuple(given.task),
        context=given.context,
        key=read_key(given.api_key_file),
        concurrency=given.concurrency,
        patience=given.patience,
    )
    evaluate_remote(run)


if __name__ == "__main__":
    main()
