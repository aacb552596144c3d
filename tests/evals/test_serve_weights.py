"""Weights are replaced while a server runs: every answer names the weights that recompute its numbers."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from served_models import RUN, SETTINGS, Client, serving, write_hf_folder

from serving.server.loaded_model import LoadedModel, open_hf_folder
from serving.server.opening import open_model
from serving.server.weights import Reloading
from trainer.hf.folder import read_hf_folder
from trainer.scoring import Scorer

FOLDERS = 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Folders of one model with different weights, by the digest of each."""
    root = tmp_path_factory.mktemp("models")
    made = [write_hf_folder(root / str(seed), seed) for seed in range(FOLDERS)]
    return {str(open_hf_folder(folder).weights.digest): folder for folder in made}


@pytest.fixture(scope="module")
def scorers(folders) -> dict[str, Scorer]:
    own = RUN.model
    return {
        digest: Scorer(read_hf_folder(folder).model, own.max_seq_len, own.vocab_size, step=0)
        for digest, folder in folders.items()
    }


def opened(folder: Path) -> LoadedModel:
    return open_model(folder, None, "m")


@pytest.fixture
def client(folders) -> Iterator[Client]:
    with serving(opened(next(iter(folders.values()))), SETTINGS, reloading=Reloading(opened)) as client:
        yield client


def put(client: Client, folder: Path, digest: str) -> dict:
    answer = client.post("/v1/weights", {"folder": str(folder), "digest": digest})
    assert answer.status == 200, answer.text
    return answer.json


def sample(client: Client, number: int) -> dict:
    """An answer of two samples to two prompts, with beginnings that many requests share."""
    prompts = [list(b"The cafe in the square opens" + bytes([number])), list(b"The cafe")]
    fields = {"temperature": 1.0, "seed": number, "max_tokens": 8, "n": 2, "return_token_ids": True, "return_sampling": True}
    return client.complete(prompts, ignore_eos=True, **fields)


def gaps(answers: list[dict], scorer: Scorer) -> list[float]:
    """For each answer the largest difference between its log-probabilities and a model's, over its choices."""
    choices = [choice for answer in answers for choice in answer["choices"]]
    nats = scorer.tail_nll([np.array([*c["prompt_token_ids"], *c["token_ids"]]) for c in choices], [8] * len(choices))
    pairs = zip(choices, nats, strict=True)
    found = [float(np.abs(np.array(c["sampling"]["raw_logprobs"]) + each).max()) for c, each in pairs]
    return np.array(found).reshape(len(answers), -1).max(axis=1).tolist()


@pytest.mark.parametrize(("requests", "reloads"), [(24, 2), pytest.param(200, 5, marks=pytest.mark.slow)])
def test_requests_during_reloads_name_the_weights_that_recompute_them(client, folders, scorers, requests, reloads) -> None:
    order, seen, reloaded = list(folders), [0], threading.Condition()

    def asked(number: int) -> dict:
        answer = sample(client, number)
        with reloaded:
            seen[0] += 1
            reloaded.notify_all()
        return answer

    with ThreadPoolExecutor(8) as pool:
        asks = [pool.submit(asked, number) for number in range(requests)]
        for reload in range(1, reloads + 1):
            with reloaded:
                reloaded.wait_for(lambda: seen[0] >= requests * reload // (reloads + 2))  # noqa: B023 - called at once
            digest = order[reload % FOLDERS]
            made = put(client, folders[digest], digest)
            assert made["weights_version"] == {"digest": digest, "step": None}
            assert made["previous"]["digest"] == order[(reload - 1) % FOLDERS]
        answers = [ask.result() for ask in asks]
    for digest, scorer in scorers.items():
        mine = [answer for answer in answers if answer["weights_version"]["digest"] == digest]
        others = [answer for answer in answers if answer["weights_version"]["digest"] != digest]
        assert mine and {answer["system_fingerprint"] for answer in mine} == {digest}
        assert max(gaps(mine, scorer)) < 1e-4
        assert min(gaps(others[:8], scorer)) > 1e-2
    metrics = client.get("/metrics").text
    assert f'serve_weights{{digest="{order[reloads % FOLDERS]}",step="unknown"}} 1.0' in metrics
    assert f"serve_weights_loaded_total {reloads + 1}.0" in metrics


def test_a_started_request_finishes_with_the_old_weights_and_the_next_gets_the_new_ones(client, folders, scorers) -> None:
    """A stream of many samples has begun; the weights are replaced in its middle."""
    old, new = list(folders)[:2]
    fields = {"temperature": 1.0, "seed": 1, "max_tokens": 40, "n": 9, "return_token_ids": True, "return_sampling": True}
    body = {"model": "m", "prompt": list(b"The"), "stream": True, "ignore_eos": True, **fields}
    with urllib.request.urlopen(client.url("/v1/completions"), json.dumps(body).encode(), timeout=120) as stream:
        lines = [stream.readline()]
        put(client, folders[new], new)
        lines += stream.readlines()
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]
    assert {event["choices"][0]["index"] for event in events} == set(range(9))
    assert {event["weights_version"]["digest"] for event in events} == {old}
    after = client.complete(list(b"The"), ignore_eos=True, **fields)
    again = client.complete(list(b"The"), ignore_eos=True, **fields)
    assert after["weights_version"]["digest"] == new
    assert after["choices"] == again["choices"], "cached prompt blocks of the old weights are gone"
    (nats,) = scorers[new].tail_nll([np.array([*b"The", *after["choices"][0]["token_ids"]])], [40])
    np.testing.assert_allclose(after["choices"][0]["sampling"]["raw_logprobs"], -nats, atol=1e-4)


def damage(folder: Path, change) -> Path:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_what_is_no_other_weights_of_the_model_is_refused_by_name(client, folders, tmp_path) -> None:
    first, second = list(folders)[:2]
    longer = write_hf_folder(tmp_path / "longer", 7, max_seq_len=64)
    other = write_hf_folder(tmp_path / "tokenizer", 8)
    tokens = json.loads((other / "tokenizer.json").read_text())
    tokens["added_tokens"][0]["lstrip"] = True
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    broken = damage(write_hf_folder(tmp_path / "broken", 9), lambda config: config.update(num_hidden_layers=40))
    digest_of = {folder: open_hf_folder(folder).weights.digest for folder in (longer, other)}
    cases = [
        ({"folder": str(folders[second]), "digest": first}, 409, "weights_digest", f"has the digest {second}; {first} is"),
        ({"folder": str(longer), "digest": digest_of[longer]}, 400, "weights_shape", "the new model has max_seq_len 64"),
        ({"folder": str(other), "digest": digest_of[other]}, 400, "weights_tokenizer", "has another tokenizer than"),
        ({"folder": str(broken), "digest": "x"}, 400, "weights_refused", "cannot be served"),
        ({"folder": str(tmp_path / "none"), "digest": "x"}, 400, "weights_refused", "cannot be served"),
        ({"folder": str(longer)}, 400, None, "field 'digest' is missing"),
    ]
    for body, status, code, message in cases:
        answer = client.post("/v1/weights", body)
        assert (answer.status, answer.json["error"]["code"]) == (status, code), answer.text
        assert message in answer.json["error"]["message"]
    assert client.complete("a", max_tokens=1)["weights_version"]["digest"] == first, "the old weights stay"


def test_only_who_has_the_admin_key_replaces_weights(folders) -> None:
    digest, folder = next(iter(folders.items()))
    body = json.dumps({"folder": str(folder), "digest": digest}).encode()
    with serving(opened(folder), SETTINGS, reloading=Reloading(opened, "secret")) as client:

        def send(**headers: str) -> int:
            sent = urllib.request.Request(client.url("/v1/weights"), body, headers)
            return client.send(sent).status

        assert send(**{"content-type": "application/json"}) == 403
        assert send(**{"content-type": "application/json", "x-admin-key": "secre"}) == 403
        assert send(**{"content-type": "text/plain", "x-admin-key": "secret"}) == 415
        assert send(**{"content-type": "application/json", "x-admin-key": "secret"}) == 200
    with serving(opened(folder), SETTINGS) as client:
        assert client.post("/v1/weights", body).json["error"]["code"] == "not_admin"
