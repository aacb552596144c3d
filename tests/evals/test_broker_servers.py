"""Real server processes behind a real broker: killed, crashed by a request, retrained; task scores stay equal."""

import json
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import requests
from poisoned_server import POISON
from processes import ROOT, ended, free_port, start, wait_for
from served_models import serving, write_hf_folder

from serving.broker.client import ItemRequest, Record, Recorded, ask_all
from serving.server.engine import EngineSettings
from serving.server.opening import open_model

pytestmark = pytest.mark.slow

ITEMS = [json.loads(line) for line in (ROOT / "data/eval_items/hellaswag.jsonl").read_text().splitlines()[:50]]
SCORED = {"model": "m", "max_tokens": 0, "echo": True, "logprobs": 1}


def endings(item: dict) -> list[tuple[str, str]]:
    return [(item["question"], f" {choice}") for choice in item["choices"]]


def asks() -> list[ItemRequest]:
    """Every ending of every item, as a log-likelihood; a byte is a token."""
    return [
        ItemRequest(f"{item['item_id']}/{number}", "/v1/completions", SCORED | {"prompt": beginning + ending})
        for item in ITEMS
        for number, (beginning, ending) in enumerate(endings(item))
    ]


def scores(answers: Mapping[str, Recorded]) -> dict[str, float]:
    """The task's accuracies and the sum of all log-probabilities."""
    totals = {"acc": 0, "acc_norm": 0, "nats": 0.0}
    for item in ITEMS:
        sums, means = [], []
        for number, (beginning, ending) in enumerate(endings(item)):
            recorded = answers[f"{item['item_id']}/{number}"]
            assert recorded.status == 200, recorded.answer
            log_probs = recorded.answer["choices"][0]["logprobs"]["token_logprobs"][len(beginning.encode()) :]
            assert len(log_probs) == len(ending.encode())
            sums.append(sum(log_probs))
            means.append(sums[-1] / len(ending.encode()))
            totals["nats"] -= sums[-1]
        totals["acc"] += sums.index(max(sums)) == item["answer_index"]
        totals["acc_norm"] += means.index(max(means)) == item["answer_index"]
    return totals


def status(url: str) -> dict:
    return requests.get(f"{url}/broker/status", timeout=600).json()


def stopped_at_work(store: Path, servers: list[subprocess.Popen]) -> subprocess.Popen | None:
    """Return a server that was stopped (SIGSTOP) while it holds a request; None, with no server stopped, if none is found."""
    for server in servers:
        held = f"SELECT count(*) FROM requests WHERE state = 'leased' AND worker LIKE '%-{server.pid}'"
        with closing(sqlite3.connect(store, 600)) as db:
            if server.poll() is None and db.execute(held).fetchone() > (0,):
                server.send_signal(signal.SIGSTOP)
                if db.execute(held).fetchone() > (0,):
                    return server
                server.send_signal(signal.SIGCONT)
    return None


def test_servers_that_are_killed_change_no_score_of_a_task(tmp_path: Path) -> None:
    folder, rng, port = write_hf_folder(tmp_path / "model", max_seq_len=1024), random.Random(0), free_port()
    url, store, record = f"http://127.0.0.1:{port}", tmp_path / "broker.sqlite", Record(tmp_path / "record.jsonl")

    def server() -> subprocess.Popen:
        return start("serving.server", str(folder), "--name", "m", "--port", "0", "--broker", url)

    limits = ["--lease-seconds", "2", "--max-attempts", "99"]
    brokers = [start("serving.broker", "--store", str(store), "--port", str(port), *limits)]
    servers = [server() for _ in range(2)]
    with ended(brokers), ended(servers), ThreadPoolExecutor(1) as one:
        asking = one.submit(ask_all, url, asks(), record)
        for place in sorted(rng.sample(range(5, len(asks()) * 8 // 10), 3)):
            while len(record.answers) < place or (holder := stopped_at_work(store, servers)) is None:
                assert not asking.done() and brokers[0].poll() is None
                time.sleep(0.005)
            holder.send_signal(signal.SIGKILL)
            servers.append(server())
        through = asking.result()
        assert status(url)["requests"] == {"waiting": 0, "leased": 0, "done": len(asks())}
    with sqlite3.connect(store) as db:
        (tries,) = db.execute("SELECT sum(attempts) FROM requests").fetchone()
    assert tries >= len(asks()) + 3, "each kill costs a try at least"
    with serving(open_model(folder, None, "m"), EngineSettings()) as client:
        undisturbed = ask_all(client.url(""), asks(), Record(tmp_path / "direct.jsonl"), concurrency=4)
    assert scores(through) == scores(undisturbed)


def test_a_request_that_ends_servers_ends_itself_and_costs_no_other_request_a_try(tmp_path: Path) -> None:
    """What ends them: a fault in the step that reads its prompt. Whoever runs the servers starts them again."""
    folder, port, store = write_hf_folder(tmp_path / "model"), free_port(), tmp_path / "broker.sqlite"
    url = f"http://127.0.0.1:{port}"
    servers: list[subprocess.Popen] = []
    stopping = threading.Event()

    def keep_one_running() -> None:
        while not stopping.wait(0.05):
            if not servers or servers[-1].poll() is not None:
                servers.append(start("poisoned_server", str(folder), "--name", "m", "--port", "0", "--broker", url))

    brokers = [start("serving.broker", "--store", str(store), "--port", str(port), "--max-attempts", "2")]
    with ended(brokers), ended(servers), ThreadPoolExecutor(10) as many:
        wait_for(f"{url}/health", brokers[0])
        poison = {"model": "m", "prompt": POISON, "max_tokens": 4, "temperature": 0}
        ending = many.submit(requests.post, f"{url}/v1/completions", json=poison, timeout=600)
        beside = [SCORED | {"prompt": f"prompt {i}"} for i in range(8)]
        answering = [many.submit(requests.post, f"{url}/v1/completions", json=body, timeout=600) for body in beside]
        while status(url)["requests"]["waiting"] < 9:
            time.sleep(0.01)
        keeper = threading.Thread(target=keep_one_running)
        keeper.start()
        try:
            ended_with, answers = ending.result(), [each.result() for each in answering]
        finally:
            stopping.set()
            keeper.join()
        assert ended_with.status_code == 502
        assert "2 workers took this request and none answered it" in ended_with.json()["error"]["message"]
        assert [answer.status_code for answer in answers] == [200] * 8
        assert [server.wait() for server in servers[:2]] == [1, 1], "a server that answers nothing any more ends"
        with sqlite3.connect(store) as db:
            tries = db.execute("SELECT max(attempts) FROM requests WHERE status = 200").fetchone()
        assert tries == (1,), "the others were not tried when the server ended"


def test_a_retrained_model_of_the_same_name_gives_its_own_answers(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "second.log"
    url = f"http://127.0.0.1:{port}"
    folders = [write_hf_folder(tmp_path / f"model-{seed}", seed=seed) for seed in range(2)]
    arguments = ["--name", "m", "--port", "0", "--broker", url]
    processes = [start("serving.broker", "--store", str(tmp_path / "b.sqlite"), "--port", str(port), "--lease-seconds", "600")]
    with ended(processes):
        processes.append(start("serving.server", str(folders[0]), *arguments))
        one, other = (ItemRequest(text, "/v1/completions", SCORED | {"prompt": text}) for text in ("one", "other"))
        record = Record(tmp_path / "record.jsonl")
        wait_for(f"{url}/health", processes[0])
        first = ask_all(url, [one], record)["one"].answer
        again = requests.post(url + one.path, json=one.body, timeout=600)
        assert again.headers["x-broker-recorded"] == "true" and again.json() == first
        processes.append(start("serving.server", str(folders[1]), *arguments, log=log))
        while "one name means one version at a time" not in (log.read_text() if log.exists() else ""):
            assert processes[2].poll() is None
            time.sleep(0.05)
        assert len(status(url)["workers_seconds_ago"]) == 1
        processes[1].terminate()  # in order: it says goodbye, and its name is free long before its lease would be over
        while [name for name in status(url)["workers_seconds_ago"] if name.endswith(f"-{processes[2].pid}")] == []:
            assert processes[2].poll() is None
            time.sleep(0.05)
        second = requests.post(url + one.path, json=one.body, timeout=600)
        assert second.headers["x-broker-recorded"] == "false"
        assert second.json()["system_fingerprint"] != first["system_fingerprint"]
        assert second.json()["choices"][0]["logprobs"] != first["choices"][0]["logprobs"]
        with pytest.raises(ValueError, match=r"'other' is from version .*; a record may have one version: use a new file"):
            ask_all(url, [one, other], record)
        assert ask_all(url, [one, other], Record(tmp_path / "new.jsonl"))["one"].answer == second.json()
