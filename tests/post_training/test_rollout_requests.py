"""Requests for rollouts: answered beside the trainer, on disk until their iteration is committed, and never sent twice."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import vllm_stub
from processes import free_port

from post_training.rollout_requests import RolloutRequests
from serving.broker.client import ItemRequest
from serving.samples import sample_request, samples_of
from serving.server.sampling import Sampling


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with OpenAI's API, and the file with a line for each of its requests."""
    log = tmp_path / "served.jsonl"
    log.touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), vllm_stub.handler(log)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", log
        finally:
            server.shutdown()
            thread.join()


def wanted(iteration: int, groups: int = 6, seed: int = 0) -> list[ItemRequest]:
    return [
        sample_request(
            f"run/{iteration}/{group}", vllm_stub.MODEL, [1, 2], Sampling(), count=2, max_tokens=3, seed=seed + group
        )
        for group in range(groups)
    ]


def test_answers_survive_the_trainer_and_are_not_asked_for_again(served: tuple[str, Path], tmp_path: Path) -> None:
    url, log = served
    first = RolloutRequests(url, tmp_path / "answers", concurrency=3)
    for iteration in (0, 1):
        first.send(iteration, wanted(iteration))
        first.send(iteration, wanted(iteration))  # as often as you like
    items = [one.item for one in wanted(1)]
    found = first.answers(1, items)
    assert [len(samples_of(found[item])) for item in items] == [2] * 6
    first.answers(0, [one.item for one in wanted(0)])
    first.close()
    assert len(log.read_text().splitlines()) == 12
    again = RolloutRequests(url, tmp_path / "answers", concurrency=3)
    again.send(1, wanted(1))
    assert again.answers(1, items) == found
    assert len(log.read_text().splitlines()) == 12
    again.forget_before(1)
    assert [path.name for path in (tmp_path / "answers").iterdir()] == ["iteration-00000001.jsonl"]
    with pytest.raises(ValueError, match="answers another request as 'run/1/0'"):
        again.send(1, wanted(1, seed=9))
    again.close()


def test_a_request_without_an_answer_ends_the_wait(tmp_path: Path) -> None:
    lost = RolloutRequests(f"http://127.0.0.1:{free_port()}", tmp_path / "answers", concurrency=1, patience=0.1)
    lost.send(0, wanted(0, groups=1))
    with pytest.raises(RuntimeError, match=r"a rollout of iteration 0 has no answer: .* gave no answer for item 'run/0/0'"):
        lost.answers(0, ["run/0/0"])
    lost.close()
