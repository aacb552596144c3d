"""Samples over HTTP: their tokens, the distribution they were drawn from, and the trainer's numbers for the same tokens."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from served_models import RUN, SETTINGS, Client, serving, untrained, write_hf_folder
from unigram import START

from serving.server.chat import ChatTemplate
from serving.server.loaded_model import LoadedModel, open_hf_folder
from trainer.hf.folder import read_hf_folder
from trainer.scoring import Scorer

PROMPT = list(b"The caf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_hf_folder(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def served(folder) -> LoadedModel:
    return open_hf_folder(folder)


@pytest.fixture(scope="module")
def client(served) -> Iterator[Client]:
    with serving(served) as client:
        yield client


@pytest.fixture(scope="module")
def scorer(folder) -> Scorer:
    """The trainer's scorer on the same weights; it shares no code with the decoder behind the server."""
    model = read_hf_folder(folder).model
    return Scorer(model, RUN.model.max_seq_len, RUN.model.vocab_size, step=0)


def sampled(client: Client, **fields) -> list[dict]:
    asked = {"temperature": 1.0, "seed": 5, "max_tokens": 24, "return_token_ids": True, "return_sampling": True, **fields}
    return client.complete(PROMPT, **asked)["choices"]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_the_samplers_log_probabilities_are_the_trainers_on_the_same_tokens(client, scorer, temperature) -> None:
    """Whole: `trainer.scoring`. Under the sampling distribution: the model's logits over the temperature. Bar: 1e-4."""
    for choice in sampled(client, n=8, temperature=temperature, ignore_eos=True):
        tokens = np.array([*PROMPT, *choice["token_ids"]])
        (nats,) = scorer.tail_nll([tokens], [24])
        np.testing.assert_allclose(choice["sampling"]["raw_logprobs"], -nats, atol=1e-4)
        logits = np.asarray(scorer.model(jnp.asarray(tokens[None])), np.float64)[0, len(PROMPT) - 1 : -1]
        tempered = np.asarray(jax.nn.log_softmax(logits / temperature))
        expected = tempered[np.arange(24), choice["token_ids"]]
        np.testing.assert_allclose(choice["sampling"]["processed_logprobs"], expected, atol=1e-4)
        assert choice["sampling"]["kept_mass"] == [1.0] * 24


def test_a_trainer_gets_a_cut_distribution_from_the_kept_tokens_and_from_their_mass(client, scorer) -> None:
    """TRL issue 7269: without the cut, ratios between trainer and sampler are the kept mass instead of 1."""
    cuts = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "return_kept_token_ids": True, "ignore_eos": True}
    for choice in sampled(client, n=4, **cuts):
        tokens = np.array([*PROMPT, *choice["token_ids"]])
        logits = np.asarray(scorer.model(jnp.asarray(tokens[None])), np.float64)[0, len(PROMPT) - 1 : -1]
        tempered, facts = np.asarray(jax.nn.log_softmax(logits / 0.8)), choice["sampling"]
        for place, token in enumerate(choice["token_ids"]):
            kept = facts["kept_token_ids"][place]
            assert token in kept and kept == sorted(kept) and len(kept) <= 40
            assert np.exp(tempered[place, kept]).sum() == pytest.approx(facts["kept_mass"][place], abs=1e-5)
            over_kept = tempered[place, token] - np.log(np.exp(tempered[place, kept]).sum())
            over_mass = tempered[place, token] - np.log(facts["kept_mass"][place])
            assert facts["processed_logprobs"][place] == pytest.approx(over_kept, abs=1e-4)
            assert facts["processed_logprobs"][place] == pytest.approx(over_mass, abs=1e-4)
        assert min(facts["kept_mass"]) < 0.99


def test_openais_log_probabilities_are_those_that_the_mode_names(client) -> None:
    raw = sampled(client, top_p=0.5, logprobs=3)[0]
    processed = sampled(client, top_p=0.5, logprobs=3, logprobs_mode="processed_logprobs")[0]
    assert raw["token_ids"] == processed["token_ids"]
    assert raw["logprobs"]["token_logprobs"] == raw["sampling"]["raw_logprobs"]
    assert processed["logprobs"]["token_logprobs"] == raw["sampling"]["processed_logprobs"]
    for shown in processed["logprobs"]["top_logprobs"]:
        assert sum(map(np.exp, shown.values())) < 1 + 1e-6


def test_samples_of_a_prompt_come_in_order_and_each_again_by_its_index(client) -> None:
    asked = {"temperature": 1.0, "seed": 9, "max_tokens": 12, "return_token_ids": True, "return_sampling": True}
    answer = client.complete([PROMPT, list(b"no, t")], n=3, **asked)
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["sampling"]["sample"] for choice in answer["choices"]] == [0, 1, 2] * 2
    assert [choice["prompt_token_ids"] for choice in answer["choices"]] == [PROMPT] * 3 + [list(b"no, t")] * 3
    assert answer["usage"]["prompt_tokens"] == len(PROMPT) + 5
    assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in answer["choices"])
    alone = client.complete(PROMPT, n=2, **asked)["choices"]
    assert alone == answer["choices"][:2]
    assert alone[0]["token_ids"] != alone[1]["token_ids"]


def test_a_stream_holds_what_the_whole_answer_holds(client) -> None:
    fields = {"temperature": 1.0, "seed": 2, "n": 2, "top_p": 0.8, "return_kept_token_ids": True, "max_tokens": 9}
    fields |= {"return_token_ids": True, "return_sampling": True}
    whole, *events = client.complete(PROMPT, **fields)["choices"], *client.complete(PROMPT, stream=True, **fields)
    for choice in whole:
        mine = [event["choices"][0] for event in events[:-1] if event["choices"][0]["index"] == choice["index"]]
        assert mine[0]["prompt_token_ids"] == PROMPT and all("prompt_token_ids" not in event for event in mine[1:])
        assert [token for event in mine for token in event["token_ids"]] == choice["token_ids"]
        for name in ("raw_logprobs", "processed_logprobs", "kept_mass", "kept_token_ids"):
            assert [value for event in mine for value in event["sampling"][name]] == choice["sampling"][name]


def test_stop_tokens_end_an_answer_and_the_models_own_may_be_ignored(client) -> None:
    (free,) = sampled(client, ignore_eos=True)
    stop = free["token_ids"][5]
    (stopped,) = sampled(client, ignore_eos=True, stop_token_ids=[stop])
    assert stopped["token_ids"] == free["token_ids"][: free["token_ids"].index(stop) + 1]
    assert (stopped["finish_reason"], free["finish_reason"]) == ("stop", "length")
    (greedy,) = sampled(client, temperature=0)
    assert greedy["sampling"]["processed_logprobs"] == [0.0] * len(greedy["token_ids"])


def test_what_cannot_be_sampled_is_refused(client) -> None:
    for fields, message in (
        ({"stop_token_ids": [257]}, "stop_token_ids has token id 257; 0 to 256 are allowed"),
        ({"return_kept_token_ids": True}, "return_kept_token_ids is true; it is allowed with return_sampling: true only"),
        ({"n": 128, "prompt": [[1]] * 9}, "n is 128 for 9 prompts; at most 1024 answers are allowed"),
        ({"top_k": -2}, "top_k is -2; Input should be greater than or equal to -1"),
        ({"logprobs_mode": "raw"}, "logprobs_mode is 'raw'; Input should be 'raw_logprobs' or 'processed_logprobs'"),
    ):
        answer = client.post("/v1/completions", {"model": client.model, "prompt": "a", **fields})
        assert answer.status == 400 and message in answer.json["error"]["message"]


def test_a_chat_has_its_prompts_tokens_beside_the_choices() -> None:
    template = ChatTemplate("{% for message in messages %}{{ message.content }}{% endfor %}")
    with serving(replace(untrained("chat"), chat_template=template), SETTINGS) as client:
        asked = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "n": 2, "seed": 1}
        answer = client.post("/v1/chat/completions", asked | {"return_token_ids": True}).json
        assert answer["prompt_token_ids"] == list(b"hi")
        assert [len(choice["token_ids"]) for choice in answer["choices"]] == [3, 3]
        assert START not in answer["choices"][0]["token_ids"]
