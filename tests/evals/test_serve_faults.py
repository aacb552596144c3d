"""A server whose model, device, client or request fails: everybody gets the reason, and the others their answers."""

import json
import socket
import urllib.request
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from served_models import SETTINGS, serving, untrained

from serving.server.__main__ import Listening
from serving.server.engine import Engine
from serving.server.loaded_model import LoadedModel


@pytest.fixture(scope="module")
def served() -> LoadedModel:
    return untrained("m")


def test_more_prompts_than_may_wait_are_an_answer_of_their_own(served) -> None:
    with serving(served, max_waiting=2) as small:
        answer = small.post("/v1/completions", {"model": small.model, "prompt": ["a"] * 3})
        assert answer.status == 429
        assert answer.json["error"]["message"] == "0 sequences wait and 3 were added; at most 2 may wait; try again later"


def test_a_request_whose_cache_does_not_fit_is_refused_alone(served) -> None:
    """A context of 2e8 tokens made the allocation fail inside a step, which ended the server (red team, E-D3)."""
    config = replace(served.config, max_seq_len=1 << 28)
    one_block = 8 * config.num_layers * SETTINGS.rows * SETTINGS.block_tokens * config.num_kv_heads * config.head_size
    settings = replace(SETTINGS, cache_bytes=3 * one_block)
    with serving(replace(served, config=config), settings) as client:
        before = client.complete("a b", max_tokens=2)
        answer = client.post("/v1/completions", {"model": served.name, "prompt": "a b", "max_tokens": 200_000_000})
        assert answer.status == 400
        assert "bytes of cache for 4 rows" in answer.json["error"]["message"]
        assert client.complete("a b", max_tokens=2)["choices"] == before["choices"], "the server answers others"
        second = client.post(
            "/v1/completions", {"model": served.name, "prompt": "a b", "max_tokens": 2 * SETTINGS.block_tokens}
        )
        assert second.status == 400, "the lane of 64 tokens needs 4 blocks, and one of 3 is held"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_rows_and_its_place(served, stream) -> None:
    """If the server continued for absent clients, all requests would end at last and none would be cancelled."""
    body = {"model": served.name, "prompt": ["a"] * 200, "max_tokens": 100, "temperature": 1, "stream": stream}
    data = json.dumps(body).encode()
    with serving(served) as client:
        before = client.complete("The c", max_tokens=4)["choices"]

        def gauges() -> dict[str, float]:
            lines = [line.split(" ") for line in client.get("/metrics").text.splitlines() if line.startswith("serve_")]
            return {name: float(value) for name, value in lines}

        with socket.create_connection(("127.0.0.1", client.port)) as leaving:
            leaving.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
            while (now := gauges())["serve_active_sequences"] + now["serve_waiting_sequences"] < 2:
                pass  # one may still be that of `before`
        while (now := gauges())["serve_active_sequences"] or now["serve_waiting_sequences"]:
            pass
        assert gauges()["serve_cancelled_sequences_total"] > 0
        assert client.complete("The c", max_tokens=4)["choices"] == before


def test_a_server_that_failed_says_so_to_everyone_and_offers_nothing(served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device runs out of memory inside a step, after the server has answered a first request."""
    faults: list[BaseException] = []
    with serving(served, on_fault=faults.append) as client:
        client.complete("The c", max_tokens=4)

        def decode(*_: object) -> None:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory (injected)")

        monkeypatch.setattr(Engine, "decode", decode)
        body = {"model": client.model, "prompt": "a", "max_tokens": 4}
        failed = client.post("/v1/completions", body)
        assert (failed.status, failed.json["error"]["code"]) == (500, "scheduler_fault")
        assert client.post("/v1/completions", body).status == 503, "it was not tried"
        offered = client.get("/v1/models")
        assert offered.status == 503 and "RESOURCE_EXHAUSTED" in offered.json["error"]["message"]
        assert client.get("/health").status == 503
    assert len(faults) == 1 and "RESOURCE_EXHAUSTED" in str(faults[0])


@pytest.mark.parametrize("fields", [{"max_tokens": 3}, {"max_tokens": 0, "echo": True, "logprobs": 1}])
def test_a_model_that_gives_no_numbers_says_nothing_in_its_own_name(served, fields) -> None:
    """The likeliest of no numbers is the first token, for ever; and JSON has no word for them."""
    broken = replace(served, model=jax.tree.map(lambda weight: weight * jnp.nan, served.model))
    with serving(broken) as client:
        for _ in range(2):
            answer = client.post("/v1/completions", {"model": client.model, "prompt": "The café", "temperature": 0, **fields})
            assert (answer.status, answer.json["error"]["code"]) == (500, "scheduler_fault")
            assert answer.json["error"]["message"] == "the model's log-probabilities are not numbers"
        assert client.get("/health").status == 200
        body = {"model": client.model, "prompt": "The café", "stream": True, **fields}
        assert client.post("/v1/completions", body).events[-1]["error"]["code"] == "scheduler_fault"


def test_a_key_is_asked_for_where_there_is_one_and_an_open_address_needs_one(served) -> None:
    with serving(served, api_key="secret") as client:
        assert client.get("/health").status == 200
        assert client.get("/v1/models").status == 401
        body = json.dumps({"model": client.model, "prompt": "a", "max_tokens": 1}).encode()
        for given, status in [("Bearer secret", 200), ("Bearer secre", 401), ("secret", 401), ("Bearer secret2", 401)]:
            answer = client.send(urllib.request.Request(client.url("/v1/completions"), body, {"authorization": given}))
            assert answer.status == status, answer.text
        assert answer.json["error"]["code"] == "invalid_api_key"
    with pytest.raises(ValueError, match=r"host is '0\.0\.0\.0' and there is no API key"):
        Listening(host="0.0.0.0")
    assert Listening(host="0.0.0.0", api_key="secret").host == "0.0.0.0"
