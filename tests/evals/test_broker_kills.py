"""Many items through a broker while workers, the broker and the client are killed: none lost, none twice, the same scores."""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from serving import Client, serving, untrained

from evals.broker.client import Asked, Record, Recorded, ask_all

ROOT = Path(__file__).resolve().parents[2]
ITEMS = int(os.environ.get("BROKER_TEST_ITEMS", "200"))
"""1,000 for the bar of issue 5; a suite's run has fewer."""


def start(module: str, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)


@contextmanager
def ended(processes: list[subprocess.Popen]) -> Iterator[None]:
    """Whatever is left of them at the end is killed, and all are waited for."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_for(url: str) -> None:
    while True:
        try:
            return requests.get(url, timeout=5).raise_for_status()
        except requests.RequestException:
            time.sleep(0.05)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(untrained("m")) as found:
        yield found


def asks() -> list[Asked]:
    """Log-likelihoods of texts that all differ, as lm-eval asks for them."""
    fields = {"model": "m", "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
    return [Asked(f"item {i}", "/v1/completions", fields | {"prompt": f"item {i} of {ITEMS}"}) for i in range(ITEMS)]


def nats(recorded: Recorded) -> float:
    assert recorded.status == 200, recorded.answer
    (choice,) = recorded.answer["choices"]
    return -sum(choice["logprobs"]["token_logprobs"][1:-1])


def test_kills_of_workers_broker_and_client_lose_nothing_and_count_nothing_twice(client: Client, tmp_path: Path) -> None:
    rng, port, server = random.Random(0), free_port(), f"http://127.0.0.1:{client.port}"
    url, store, record = f"http://127.0.0.1:{port}", tmp_path / "broker.sqlite", tmp_path / "record.jsonl"
    (tmp_path / "asks.jsonl").write_text("".join(json.dumps(vars(one)) + "\n" for one in asks()))

    def broker() -> subprocess.Popen:
        return start("evals.broker", "--store", str(store), "--port", str(port), "--lease-seconds", "1", "--max-attempts", "99")

    def worker() -> subprocess.Popen:
        return start("evals.broker.worker", "--broker", url, "--server", server, "--concurrency", "8")

    def asking() -> subprocess.Popen:
        return start("evals.broker.client", "--url", url, str(tmp_path / "asks.jsonl"), str(record))

    def answered() -> int:
        return record.read_bytes().count(b"\n") if record.exists() else 0

    workers, brokers, clients = [worker() for _ in range(3)], [broker()], [asking()]
    with ended(workers), ended(brokers), ended(clients):
        kills = sorted(rng.sample(range(5, ITEMS * 9 // 10), 8))
        for number, place in enumerate(kills):
            while answered() < place:
                assert clients[-1].poll() in (None, 0) and brokers[-1].poll() is None
                time.sleep(0.005)
            running = [one for one in workers if one.poll() is None]
            rng.choice(running).send_signal(signal.SIGKILL)
            workers.append(worker())
            for kind, again, at in ((brokers, broker, 3), (clients, asking, 5)):
                if number == at:
                    kind[-1].send_signal(signal.SIGKILL)
                    kind[-1].wait()
                    kind.append(again())
        assert clients[-1].wait() == 0
        state = requests.get(f"{url}/broker/status", timeout=10).json()["requests"]
    assert state == {"waiting": 0, "leased": 0, "done": ITEMS}, "a request on record for each item, and each of them once"
    lines = [json.loads(line)["item"] for line in record.read_text().splitlines()]
    assert sorted(lines) == sorted(one.item for one in asks())
    with sqlite3.connect(store) as db:
        (tries,) = db.execute("SELECT sum(attempts) FROM requests").fetchone()
    assert tries > ITEMS, "the kills hit nobody who held a request"
    undisturbed = ask_all(server, asks(), Record(tmp_path / "direct.jsonl"), concurrency=4)
    through = ask_all(url, asks(), Record(record))  # all on record: nobody listens there any more
    assert {item: nats(one) for item, one in through.items()} == {item: nats(one) for item, one in undisturbed.items()}


def test_a_client_without_patience_says_what_it_met_and_what_was_answered_stays(client: Client, tmp_path: Path) -> None:
    record, server = tmp_path / "r.jsonl", f"http://127.0.0.1:{client.port}"
    few = asks()[:3]
    ask_all(server, few[:2], Record(record))
    with pytest.raises(RuntimeError, match=r"gave no answer for item 'item 2' in 0\.1 s; the last was ConnectionError"):
        ask_all(f"http://127.0.0.1:{free_port()}", few, Record(record), patience=0.1)
    with record.open("a") as file:
        file.write('{"item": "item 2", "dig')  # a kill in the middle of a line
    found = ask_all(server, few, Record(record))
    assert [nats(one) > 0 for one in found.values()] == [True] * 3
    other = [Asked("item 0", "/v1/completions", {"model": "m", "prompt": "another"})]
    with pytest.raises(ValueError, match="answers another request for 1 items, such as 'item 0'; take a new file"):
        ask_all(server, other, Record(record))
    with pytest.raises(ValueError, match="1 items occur more than once"):
        ask_all(server, few[:1] * 2, Record(record))


def test_what_the_broker_cannot_pass_on_is_refused_and_a_refusal_of_the_server_is_an_answer(
    client: Client, tmp_path: Path
) -> None:
    port, key = free_port(), tmp_path / "key"
    key.write_text("secret\n")
    url, server = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{client.port}"
    guarded = ["--api-key-file", str(key), "--port", str(port)]
    broker = start("evals.broker", "--store", str(tmp_path / "b.sqlite"), *guarded)
    worker = start("evals.broker.worker", "--broker", url, "--server", server, "--broker-key-file", str(key))
    with ended([broker, worker]):
        wait_for(f"{url}/health")
        session = requests.Session()
        assert session.post(f"{url}/v1/completions", json={}).status_code == 401
        assert session.post(f"{url}/broker/lease", json={"worker": "w"}).status_code == 401
        session.headers["authorization"] = "Bearer secret"
        streamed = session.post(f"{url}/v1/completions", json={"model": "m", "prompt": "a", "stream": True})
        assert streamed.status_code == 400 and "only false is allowed" in streamed.json()["error"]["message"]
        assert session.post(f"{url}/v1/completions", data=b"{").status_code == 400
        assert session.post(f"{url}/v1/completions", data=b" " * (5 << 20)).status_code == 413
        unknown = session.post(f"{url}/v1/completions", json={"model": "m", "prompt": "a", "promt": 1, "temperature": 0})
        assert unknown.status_code == 400 and "field 'promt' (value 1) is not known" in unknown.json()["error"]["message"]
        assert session.get(f"{url}/v1/models").json()["data"][0]["id"] == "m"
        body = {"model": "m", "prompt": "a", "temperature": 0, "max_tokens": 3}
        first, second = (session.post(f"{url}/v1/completions", json=body) for _ in range(2))
        assert (first.headers["x-broker-recorded"], second.headers["x-broker-recorded"]) == ("false", "true")
        assert first.content == second.content
        sampled = [session.post(f"{url}/v1/completions", json=body | {"temperature": 1}).json()["id"] for _ in range(2)]
        assert sampled[0] != sampled[1], "nobody asked for the same sample again"
        assert 'broker_requests{state="done"} ' in session.get(f"{url}/metrics").text
