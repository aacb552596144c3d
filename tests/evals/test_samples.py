"""Samples for a trainer through one client: from our server, from vLLM's answers, and from a broker that answers an id once."""

import json
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import vllm_stub
from processes import ended, free_port, start, wait_for
from served_models import SETTINGS, serving, write_hf_folder

from serving.broker.client import ItemRequest, Record, Recorded, ask_all
from serving.samples import sample_request, samples_of
from serving.server.opening import open_model
from serving.server.sampling import Sampling

PROMPT = [84, 104, 101]


def asked(model: str, number: int, run: str = "run") -> ItemRequest:
    item = f"{run}/0/{number}"
    return sample_request(item, model, PROMPT, Sampling(0.7, 0.9), count=2, max_tokens=5, seed=number, ignore_eos=True)


def test_samples_of_our_server_have_both_distributions_and_the_weights(tmp_path: Path) -> None:
    served = open_model(write_hf_folder(tmp_path / "m"), None, "m")
    with serving(served, SETTINGS) as client:
        answers = ask_all(client.url(""), [asked("m", i) for i in range(3)], Record(tmp_path / "record.jsonl"))
    for recorded in answers.values():
        first, second = samples_of(recorded)
        assert first.prompt == tuple(PROMPT) and len(first.tokens) == 5 and first.tokens != second.tokens
        assert first.weights == served.weights.digest and first.step is None
        sampling = recorded.answer["choices"][0]["sampling"]
        assert first.log_probs == tuple(sampling["raw_logprobs"])
        assert first.sampling_log_probs == tuple(sampling["processed_logprobs"])
        assert first.kept_mass == tuple(sampling["kept_mass"]) and first.kept_tokens is None


def test_samples_of_vllm_have_what_its_mode_says() -> None:
    request = asked(vllm_stub.MODEL, 3)
    recorded = Recorded(request.digest, 200, vllm_stub.completion(request.body))
    for mode, raw, processed in (("raw_logprobs", True, False), ("processed_logprobs", False, True)):
        first, second = samples_of(recorded, mode)
        assert (first.tokens, second.tokens) == ((93, 94, 95, 96, 97), (100, 101, 102, 103, 104))
        expected = (-0.5, -1.5, -2.5, -3.5, -4.5)
        assert (first.log_probs == expected, first.sampling_log_probs == expected) == (raw, processed)
        assert first.prompt == tuple(PROMPT) and first.weights is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": None}, "choice 0 has no token_ids or no prompt_token_ids; the server must support return_token_ids"),
        ({"token_ids": [1]}, "choice 0 has 1 token_ids and 5 raw_logprobs; they must be equal"),
    ],
)
def test_an_answer_that_a_trainer_cannot_use_is_refused(change: dict, message: str) -> None:
    document = vllm_stub.completion(asked(vllm_stub.MODEL, 3).body)
    document["choices"][0] |= change
    with pytest.raises(ValueError, match=message):
        samples_of(Recorded("d", 200, document))
    with pytest.raises(ValueError, match=r"the server refuses the request \(400\)"):
        samples_of(Recorded("d", 400, {"error": {}}))


@pytest.mark.slow
def test_a_broker_answers_each_rollout_of_vllm_once_through_kills_and_restarts(tmp_path: Path) -> None:
    """Workers and the server are killed; then the client forgets its record and asks again under the same ids."""
    port, at, log, store = free_port(), free_port(), tmp_path / "asked.jsonl", tmp_path / "broker.sqlite"
    url, number = f"http://127.0.0.1:{port}", 200
    server = lambda: start("vllm_stub", str(at), str(log))  # noqa: E731
    named = ["--broker", url, "--server", f"http://127.0.0.1:{at}", "--concurrency", "4", "--model-version", "step-1"]
    processes = [start("serving.broker", "--store", str(store), "--port", str(port), "--lease-seconds", "2")]
    with ended(processes), ThreadPoolExecutor(1) as one:
        wait_for(f"{url}/health", processes[0])
        processes += [server(), start("serving.broker.worker", *named), start("serving.broker.worker", *named)]
        record = Record(tmp_path / "record.jsonl")
        asking = one.submit(ask_all, url, [asked(vllm_stub.MODEL, i) for i in range(number)], record, concurrency=8)
        for place, (victim, again) in enumerate([(2, None), (1, server), (3, None), (1, server)]):
            wait_until_answered(record, 20 * (place + 1), asking, processes[0])
            processes[victim].kill()
            processes[victim].wait()
            processes[victim] = again() if again else start("serving.broker.worker", *named)
        first = asking.result()
        sent = len(log.read_text().splitlines())
        again = ask_all(url, [asked(vllm_stub.MODEL, i) for i in range(number)], Record(tmp_path / "new.jsonl"))
        assert {item: one.answer for item, one in again.items()} == {item: one.answer for item, one in first.items()}
        assert len(log.read_text().splitlines()) == sent, "no rollout was computed again"
        other = asked(vllm_stub.MODEL, 0, "another run")
        ask_all(url, [other], Record(tmp_path / "other.jsonl"))
        assert len(log.read_text().splitlines()) == sent + 1, "an equal seed under another id is another rollout"
    assert sorted(json.loads(line)["item"] for line in record.path.read_text().splitlines()) == sorted(first)
    assert all(len(samples_of(recorded)) == 2 for recorded in first.values())
    with sqlite3.connect(store) as db:
        assert db.execute("SELECT count(*) FROM requests WHERE path = '/v1/completions'").fetchone() == (number + 1,)


def wait_until_answered(record: Record, count: int, asking, broker: subprocess.Popen) -> None:
    while len(record.answers) < count and not asking.done():
        assert broker.poll() is None
        time.sleep(0.005)


@pytest.mark.slow
def test_a_named_rollout_keeps_its_answer_when_the_weights_are_replaced(tmp_path: Path) -> None:
    """The next rollout comes from the new weights, through the same worker."""
    folders = [write_hf_folder(tmp_path / str(seed), seed) for seed in range(2)]
    port, at = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    processes = [start("serving.broker", "--store", str(tmp_path / "b.sqlite"), "--port", str(port))]
    with ended(processes):
        wait_for(f"{url}/health", processes[0])
        processes.append(start("serving.server", str(folders[0]), "--name", "m", "--port", str(at), "--broker", url))
        old, new = (open_model(folder, None, "m").weights.digest for folder in folders)
        record = Record(tmp_path / "record.jsonl", one_version=False)
        first = ask_all(url, [asked("m", 0)], record)["run/0/0"]
        body = {"folder": str(folders[1]), "digest": new}
        assert requests.post(f"http://127.0.0.1:{at}/v1/weights", json=body, timeout=600).status_code == 200
        assert samples_of(ask_all(url, [asked("m", 1)], record)["run/0/1"])[0].weights == new
        again = ask_all(url, [asked("m", 0)], Record(tmp_path / "again.jsonl"))["run/0/0"]
        assert again.answer == first.answer and samples_of(again)[0].weights == old
