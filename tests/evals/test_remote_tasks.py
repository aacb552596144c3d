"""Tasks of a policy over HTTP, through a server and a broker, against the same tasks in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from processes import ROOT, ended, free_port, start, wait_for
from served_models import Client, serving
from test_evaluate import SAID, TASKS, job, result

from evals.remote.ask import RemoteRun, evaluate_remote
from evals.remote.model import Endpoint, RemoteScorer
from evals.tasks.evaluate import evaluate
from lineage.artifact.store import Artifact
from serving.broker.client import Record
from serving.server.loaded_model import open_served
from trainer.scoring import load_scorer

RAW = tuple(task for task in TASKS if task.weights == "raw")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Artifact:
    """The tasks in this process."""
    return evaluate(job(tmp_path_factory.mktemp("store"), result(RAW, RAW)))


@pytest.fixture(scope="module")
def client(evaluated) -> Iterator[Client]:
    with serving(open_served(evaluated.input("checkpoint"), evaluated.input("tokenizer"), "m")) as opened:
        yield opened


def run_of(evaluated: Artifact, url: str, out: Path, **fields) -> RemoteRun:
    inputs = (evaluated.input("policy"), evaluated.input("tokenizer"))
    return RemoteRun(url, "m", *inputs, out, corpora=(evaluated.input("corpora.0"),), **fields)


def assert_same_results(evaluated: Artifact, out: Path) -> None:
    """Scores within what float sums in another order change; texts, choices and verdicts to the letter."""
    expected, remote = evaluated.manifest.extra["scores"], json.loads((out / "scores.json").read_text())
    keys = ("task", "metric", "n", "attempted")
    assert [[score[key] for key in keys] for score in remote] == [[score[key] for key in keys] for score in expected]
    for name in ("value", "low", "high"):
        np.testing.assert_allclose([s[name] for s in remote], [s[name] for s in expected], rtol=1e-5)
    theirs, ours = pl.read_parquet(out / "records.parquet"), pl.read_parquet(evaluated.files("records.parquet")[0])
    same = ["task", "item_id", "policy", "prompt_digest", "continuations", "answer", "verdict", "correct"]
    assert theirs.select(same).equals(ours.select(same))
    for mine, other in zip(ours["outputs"], theirs["outputs"], strict=True):
        mine, other = json.loads(mine), json.loads(other)
        np.testing.assert_allclose(other.pop("free_nats", 0.0), mine.pop("free_nats", 0.0), atol=1e-3)
        assert other == mine
    mine, other = (frame["log_probs"].explode().drop_nulls().to_numpy() for frame in (ours, theirs))
    np.testing.assert_allclose(other, mine, atol=1e-3)


@contextmanager
def through_a_broker(client: Client, store: Path) -> Iterator[str]:
    """The URL of a real broker with one real worker before the server; both are killed at the end."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    processes = [start("serving.broker", "--store", str(store), "--port", str(port))]
    processes.append(start("serving.broker.worker", "--broker", url, "--server", f"http://127.0.0.1:{client.port}"))
    with ended(processes):
        wait_for(f"{url}/health", processes[0])
        yield url


def test_tasks_over_http_score_as_they_do_in_this_process(evaluated, client, tmp_path):
    run = run_of(evaluated, f"http://127.0.0.1:{client.port}", tmp_path)
    facts = evaluate_remote(run)
    assert (facts["left_out"], facts["server"]["id"]) == ({}, "m")
    assert_same_results(evaluated, tmp_path)
    answers = (tmp_path / "answers.jsonl").read_bytes()
    scores = (tmp_path / "scores.json").read_bytes()
    evaluate_remote(run)
    assert (tmp_path / "answers.jsonl").read_bytes() == answers, "what is on record is not asked again"
    assert (tmp_path / "scores.json").read_bytes() == scores


def test_tasks_through_a_broker_score_as_they_do_in_this_process(evaluated, client, tmp_path):
    with through_a_broker(client, tmp_path / "broker.sqlite") as url:
        evaluate_remote(run_of(evaluated, url, tmp_path / "out"))
    assert_same_results(evaluated, tmp_path / "out")


def test_the_command_leaves_the_same_files(evaluated, client, tmp_path):
    folders = {name: str(evaluated.input(name).folder().parent) for name in ("policy", "tokenizer")}
    options = [word for name, folder in folders.items() for word in (f"--{name}", folder)]
    command = [sys.executable, "-m", "evals.remote", "--url", f"http://127.0.0.1:{client.port}/", "--model", "m", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--out", str(tmp_path), "--task", SAID.name], cwd=ROOT, env=environment, check=True)
    expected = [score for score in evaluated.manifest.extra["scores"] if score["task"] == SAID.name]
    assert json.loads((tmp_path / "scores.json").read_text()) == expected
    subprocess.run([*command, "--out", str(tmp_path / "all")], cwd=ROOT, env=environment, check=True)
    facts = json.loads((tmp_path / "all" / "result.json").read_text())
    assert facts["left_out"] == {"heldout": "it needs held-out text, give --corpus"}


def test_what_would_be_greedy_over_http_is_greedy_here(evaluated, client, tmp_path):
    """Sequences that end as the model would have them, and others that do not."""
    here = load_scorer(evaluated.input("checkpoint"))
    endpoint = Endpoint(f"http://127.0.0.1:{client.port}", "m", Record(tmp_path / "answers.jsonl"))
    there = RemoteScorer(endpoint, here.max_seq_len)
    starts = [np.arange(3 + n, dtype=np.int32) for n in range(6)]
    made = [client.complete([int(t) for t in start], max_tokens=2, logprobs=1)["choices"][0] for start in starts]
    ids = [[open_id(client, name) for name in choice["logprobs"]["tokens"]] for choice in made]
    sequences = [np.concatenate([start, tail]) for start, tail in zip(starts, ids, strict=True)]
    sequences += [np.concatenate([start, [65, 66]]) for start in starts]
    tails = [2] * len(sequences)
    greedy = there.tail_is_greedy(sequences, tails)
    assert greedy == here.tail_is_greedy(sequences, tails)
    assert any(greedy) and not all(greedy)
    for mine, other in zip(here.tail_nll(sequences, tails), there.tail_nll(sequences, tails), strict=True):
        np.testing.assert_allclose(other, mine, atol=1e-4)


def open_id(client: Client, name: str) -> int:
    """A token's id by the name that answers give it."""
    if name.startswith("token_id:"):
        return int(name.removeprefix("token_id:"))
    (token,) = client.post("/tokenize", {"prompt": name}).json["tokens"]
    return token


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "n"}, "serves no model 'n'; it serves: 'm'"),
        ({"names": ("vibes",)}, "has no task 'vibes'; it has: heldout, quiz, sums, sums_said"),
        ({"names": ("heldout",), "corpora": ()}, "cannot be asked for heldout: it needs held-out text, give --corpus"),
        ({"context": 4, "names": ("sums_said",)}, "max_new_tokens is 6; a context of 4 leaves no room for a prompt"),
        ({"context": 64, "names": ("sums",)}, "refuses a request of the evaluation .400.: .*at most 48 are allowed"),
    ],
)
def test_what_a_server_cannot_be_asked_is_refused(evaluated, client, tmp_path, fields, message):
    run = replace(run_of(evaluated, f"http://127.0.0.1:{client.port}", tmp_path), **fields)
    with pytest.raises(ValueError, match=message):
        evaluate_remote(run)
    assert not (tmp_path / "scores.json").exists()


def test_answers_of_another_model_of_the_same_name_are_not_taken_over(evaluated, client, tmp_path):
    run = replace(run_of(evaluated, f"http://127.0.0.1:{client.port}", tmp_path), names=("sums",))
    evaluate_remote(run)
    served = open_served(evaluated.input("checkpoint"), evaluated.input("tokenizer"), "m")
    with serving(replace(served, created="2031-01-01T00:00:00+00:00")) as retrained:
        other = replace(run, url=f"http://127.0.0.1:{retrained.port}")
        with pytest.raises(ValueError, match=r"holds answers of .* take a new folder"):
            evaluate_remote(other)
