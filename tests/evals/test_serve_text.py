"""Detokenization, stop strings, sampling and request forms against slow references."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats
from spaced import SPACE, spaced_tokenizer
from unigram import byte_tokenizer

from serving.forms import parse
from serving.refusals import RequestError
from serving.server.protocol import ChatRequest, CompletionRequest
from serving.server.sampling import Sampling, likeliest, sampling_distribution, uniform
from serving.server.text import StopScanner, TextStream, token_text

TOKENIZER = byte_tokenizer()
SPACED = spaced_tokenizer("the", "cat", "sat")


@given(st.one_of(st.text().map(str.encode), st.binary()))
@example("é“".encode() + b"\xff\xe2\x80a\xf0\x9f")
def test_the_pieces_of_a_text_join_to_the_text_of_all_its_tokens(raw: bytes) -> None:
    stream = TextStream(TOKENIZER)
    pieces = [*map(stream.push, raw), stream.flush()]
    assert "".join(pieces) == TOKENIZER.decode(list(raw)) == raw.decode(errors="replace")


def test_a_character_comes_out_whole() -> None:
    stream = TextStream(TOKENIZER)
    assert [stream.push(byte) for byte in "né“".encode()] == ["n", "", "é", "", "", "“"]


@given(st.text(alphabet="the cat sat\né“😀", max_size=40))
@example("the cat")
@example("  the cat é“ sat")
def test_words_keep_their_spaces_where_a_decoder_drops_that_of_a_texts_first_token(text: str) -> None:
    stream, ids = TextStream(SPACED), SPACED.encode(text).ids
    assert "".join([*map(stream.push, ids), stream.flush()]) == text


@given(st.text(alphabet="the cat é“", min_size=1, max_size=20), st.text(alphabet="the cat é“", max_size=20))
@example("the cat", " sat")
@example("é", "")
def test_what_is_said_behind_a_prompt_goes_on_from_it(prompt: str, continuation: str) -> None:
    ids, whole = SPACED.encode(prompt).ids, SPACED.encode(prompt + continuation).ids
    assume(whole[: len(ids)] == ids)
    stream = TextStream(SPACED, ids)
    assert "".join([*map(stream.push, whole[len(ids) :]), stream.flush()]) == continuation


def before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """Grow the text by a character until a stop string ends it; the longest of those goes."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


@given(
    st.lists(st.text("abc", max_size=4), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_a_text_ends_before_its_first_stop_string_however_it_comes(pieces: list[str], stops: list[str]) -> None:
    scanner = StopScanner(stops)
    out = [scanner.push(piece) for piece in pieces]
    for i, _ in enumerate(out):  # what is let out is never taken back
        assert before_first_stop("".join(pieces), stops)[0].startswith("".join(out[: i + 1]))
    out.append(scanner.flush())
    assert ("".join(out), scanner.stopped) == before_first_stop("".join(pieces), stops)


def test_half_a_character_is_named_by_its_id() -> None:
    assert [token_text(TOKENIZER, byte) for byte in b"a\xc3"] == ["a", "token_id:195"]
    spaced = [f"{SPACE}cat", "a", "<0xC3>", "<0x0A>", "</s>"]
    names = [token_text(SPACED, SPACED.token_to_id(token)) for token in spaced]
    assert names == [" cat", "a", f"token_id:{SPACED.token_to_id('<0xC3>')}", "\n", "</s>"]


log_prob_lists = st.lists(st.integers(-8, 0), min_size=1, max_size=12).map(
    lambda logits: np.array(logits, np.float32) - np.float32(math.log(sum(map(math.exp, logits))))
)


@given(log_prob_lists, st.floats(0.05, 1), st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 2**62))
def test_a_sampled_token_is_in_the_nucleus(log_probs, top_p, temperature, seed) -> None:
    weights = np.exp(log_probs.astype(float) / temperature)
    weights /= weights.sum()
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    mass = np.cumsum(weights[order])
    assume(not np.isclose(mass, top_p).any())
    nucleus = order[: int((mass < top_p).sum()) + 1]
    distribution = sampling_distribution(log_probs, Sampling(temperature, top_p))
    assert distribution.tokens.tolist() == sorted(nucleus)
    assert {distribution.draw(uniform(seed, 0, i)).token for i in range(30)} <= set(nucleus)
    assert sampling_distribution(log_probs, Sampling(0, top_p)).tokens.tolist() == order[:1]


@given(
    log_prob_lists,
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    st.integers(0, 6),
    st.floats(0.05, 1),
)
def test_a_sampling_distribution_is_the_tempered_one_over_its_kept_mass(log_probs, temperature, min_p, top_k, top_p) -> None:
    """The reference applies the definition of each cut to a dictionary."""
    tempered = {token: math.exp(float(value) / temperature) for token, value in enumerate(log_probs)}
    whole = sum(tempered.values())
    tempered = {token: weight / whole for token, weight in tempered.items()}
    kept = {token: weight for token, weight in tempered.items() if weight >= min_p * max(tempered.values())}
    if top_k:
        kept = dict(sorted(kept.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k])
    order, nucleus, mass = sorted(kept, key=lambda token: (-kept[token], token)), [], 0.0
    for token in order:
        assume(abs(mass - top_p * sum(kept.values())) > 1e-9)
        if mass < top_p * sum(kept.values()) or top_p == 1:
            nucleus.append(token)
            mass += kept[token]
    found = sampling_distribution(log_probs, Sampling(temperature, top_p, top_k, min_p))
    assert found.tokens.tolist() == sorted(nucleus)
    assert found.mass == pytest.approx(mass)
    expected = [math.log(tempered[token] / mass) for token in sorted(nucleus)]
    np.testing.assert_allclose(found.log_probs(len(log_probs))[found.tokens], expected, atol=1e-9)
    assert np.isneginf(np.delete(found.log_probs(len(log_probs)), found.tokens)).all()


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6])
def test_a_temperature_of_next_to_nothing_is_greedy(temperature: float) -> None:
    log_probs = np.log(np.array([0.2, 0.5, 0.3], np.float32))
    found = [sampling_distribution(log_probs, Sampling(temperature, top_p)) for top_p in (0.9, 1.0)]
    assert [(each.tokens.tolist(), each.mass, each.draw(0.99).log_prob) for each in found] == [([1], 1.0, 0.0)] * 2


EIGHTHS = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))


STATED = [
    (Sampling(), [0.5, 0.25, 0.125, 0.125]),
    (Sampling(temperature=0.5), [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
    (Sampling(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
    (Sampling(top_k=3), [4 / 7, 2 / 7, 1 / 7, 0]),
    (Sampling(min_p=0.4), [2 / 3, 1 / 3, 0, 0]),
    (Sampling(2.0, 0.9, 3, 0.3), [0.5 / (1 + 0.5**0.5), 0.5**0.5 / (2 + 2 * 0.5**0.5), 0.25 / (1 + 0.5**0.5), 0]),
]


@pytest.mark.parametrize(
    ("sampling", "expected", "over"),
    [
        *((*each, "positions") for each in STATED),
        *((*STATED[0], over) for over in ("samples", "seeds")),
        *(pytest.param(*each, over, marks=pytest.mark.slow) for each in STATED[1:] for over in ("samples", "seeds")),
    ],
)
def test_tokens_come_as_often_as_the_stated_distribution_says(sampling: Sampling, expected: list[float], over: str) -> None:
    """Chi-square at 1e-4, for draws that differ in the position, in the sample or in the seed alone."""
    number, distribution = 20_000, sampling_distribution(EIGHTHS, sampling)
    place = {"positions": (7, 0), "samples": (7, 3), "seeds": (0, 5)}[over]
    numbers = {
        "positions": lambda i: uniform(*place, i),
        "samples": lambda i: uniform(place[0], i, place[1]),
        "seeds": lambda i: uniform(i, *place),
    }[over]
    counts = np.bincount([distribution.draw(numbers(i)).token for i in range(number)], minlength=4)
    stated = np.exp(distribution.log_probs(4))
    np.testing.assert_allclose(stated, np.array(expected) / sum(expected), atol=1e-6)
    kept = stated > 0
    assert (counts[~kept] == 0).all()
    assert kept.sum() == 1 or stats.chisquare(counts[kept], number * stated[kept]).pvalue > 1e-4


def test_a_draw_is_a_stated_function_of_seed_sample_and_position() -> None:
    """Philox4x64-10 as Salmon et al. 2011 define it, written down again."""

    def philox(seed: int, sample: int, position: int) -> int:
        counter, key, mask = [position + 1, 0, 0, 0], [seed, sample], 2**64 - 1
        for _ in range(10):
            first, second = counter[0] * 0xD2E7470EE14C6C93, counter[2] * 0xCA5A826395121157
            counter = [(second >> 64) ^ counter[1] ^ key[0], second & mask, (first >> 64) ^ counter[3] ^ key[1], first & mask]
            key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
        return counter[0]

    for seed, sample, position in [(0, 0, 0), (2**63 - 1, 127, 4095), (12345, 6, 7)]:
        assert uniform(seed, sample, position) == (philox(seed, sample, position) >> 11) / 2**53


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 0}, {"top_k": -1}, {"min_p": 1.5}, {"temperature": math.inf}])
def test_settings_that_mean_nothing_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; allowed"):
        Sampling(**wrong)


@given(log_prob_lists, st.integers(0, 15))
def test_the_likeliest_are_the_first_of_all_sorted(log_probs, count) -> None:
    ordered = sorted(range(len(log_probs)), key=lambda token: (-log_probs[token], token))
    assert likeliest(log_probs, count) == [(token, float(log_probs[token])) for token in ordered[:count]]


GOOD = {"model": "m", "prompt": "a"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"promt": 3}, "field 'promt' (value 3) is not known; allowed: model, temperature"),
        ({"stream_options": {"usage": 1}}, "field 'stream_options.usage' (value 1) is not known; allowed: include_usage"),
        ({"temperature": -1}, "temperature is -1; Input should be greater than or equal to 0"),
        ({"temperature": math.nan}, "temperature is nan; Input should be a finite number"),
        ({"temperature": "hot"}, "temperature is 'hot'; Input should be a valid number"),
        ({"top_p": 0}, "top_p is 0; Input should be greater than 0"),
        ({"top_p": True}, "top_p is True; Input should be a valid number"),
        ({"max_tokens": -1}, "max_tokens is -1; Input should be greater than or equal to 0"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5; Input should be a valid integer"),
        ({"logprobs": 21}, "logprobs is 21; Input should be less than or equal to 20"),
        ({"seed": 2**63}, "seed is 9223372036854775808; Input should be less than"),
        ({"echo": "yes"}, "echo is 'yes'; Input should be a valid boolean"),
        ({"n": 129}, "n is 129; Input should be less than or equal to 128"),
        ({"n": True}, "n is True; Input should be a valid integer"),
        ({"presence_penalty": 0.5}, "presence_penalty is 0.5; the server does not support this; allowed: 0, None"),
        ({"logit_bias": {"5": 1}}, "logit_bias is {'5': 1}; the server does not support this; allowed: {}, None"),
        ({"stop": ["a", ""]}, "stop is ['a', '']; null, a string, or a list of at most 16 strings is allowed, none empty"),
        ({"stop": "\ud800"}, "not half of a surrogate pair"),
        ({"prompt": "\udfff"}, "not half of a surrogate pair"),
        ({"prompt": []}, "prompt is []; a string, a list of token ids"),
        ({"prompt": [1, True]}, "prompt is [1, True]; a string, a list of token ids"),
        ({"prompt": [1, "a"]}, "prompt is [1, 'a']; a string, a list of token ids"),
        ({"prompt": [[1.0]]}, "prompt is [[1.0]]; a string, a list of token ids"),
        ({"prompt": {"a": 1}}, "prompt is {'a': 1}; a string, a list of token ids"),
        ({"prompt": ["a"] * 257}, "257 prompts; at most 256 are allowed"),
        ({"model": None}, "model is None; Input should be a valid string"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(CompletionRequest, json.dumps(GOOD | change).encode())
    assert refused.value.status == 400
    assert message in refused.value.message
    assert refused.value.field == ".".join([next(iter(change)), *(["usage"] if "stream_options" in change else [])])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff\xfe\xfa", "the body is not JSON"),
        (b"[" * 200_000, "the body is not JSON"),
        ('{"model": "m", "prompt": "a"}'.encode("utf-16"), "the body is not JSON"),
        (b"[1, 2]", r"the body is [1, 2]; a JSON object is allowed"),
        (b"{}", "field 'model' is missing"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(CompletionRequest, body)
    assert refused.value.status == 400
    assert message in refused.value.message


def test_prompts_of_every_form_become_a_tuple_and_neutral_fields_pass() -> None:
    neutral = {"n": 1, "best_of": None, "presence_penalty": 0.0, "logit_bias": {}, "suffix": "", "user": "u", "seed": None}
    for prompt, expected in [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2]], ((1,), (2,)))]:
        assert parse(CompletionRequest, json.dumps(GOOD | neutral | {"prompt": prompt}).encode()).prompt == expected


def test_parts_of_a_message_that_are_texts_are_lines_of_one() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(ChatRequest, json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode())
    assert request.messages[0].content == "a\nb"


@pytest.mark.parametrize("form", [CompletionRequest, ChatRequest])
def test_a_null_where_openai_allows_one_is_the_default(form) -> None:
    required = GOOD if form is CompletionRequest else {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    names = ["max_tokens", "temperature", "top_p", "stream", "n", "stop", "seed", "logprobs", "presence_penalty", "logit_bias"]
    names += ["echo", "best_of", "suffix"] if form is CompletionRequest else ["top_logprobs", "max_completion_tokens"]
    nulls = required | dict.fromkeys(names)
    assert parse(form, json.dumps(nulls).encode()) == parse(form, json.dumps(required).encode())


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is []; List should have at least 1 item"),
        ([{"role": "user"}], "field 'messages.0.content' is missing"),
        (
            [{"role": "user", "content": "a", "name": "b"}],
            "field 'messages.0.name' (value 'b') is not known; allowed: role, con",
        ),
        ([{"role": "user", "content": [1]}], "messages.0.content is [1]; a string is allowed"),
        ([{"role": "user", "content": []}], "messages.0.content is []; a string is allowed"),
        (
            [{"role": "user", "content": [{"type": "image_url", "text": "a"}]}],
            'a string is allowed, or a list of {"type": "text", "text": ...}',
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "a string is allowed"),
    ],
)
def test_a_bad_conversation_is_named_by_its_place(messages: list, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(ChatRequest, json.dumps({"model": "m", "messages": messages}).encode())
    assert message in refused.value.message
