"""The batching engine: other requests, before or at once, do not change a bit of an answer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tiny import tiny_model
from tiny_models import quick_model
from unigram import START, byte_tokenizer

from serving.server.engine import Engine, EngineSettings
from serving.server.metrics import Metrics
from serving.server.prefix import Block, PrefixCache, block_keys
from serving.server.sampling import Sampling
from serving.server.scheduler import FaultError, QueueFullError, Scheduler, StoppedError
from serving.server.sequence import Delta, GenerationRequest

CONFIG = tiny_model(vocab_size=257, hidden_dim=16, intermediate_dim=32, max_seq_len=44, initializer_range=0.3)
MODEL = quick_model(CONFIG)
LAYERS = MODEL.decoder()
SETTINGS = EngineSettings(rows=3, block_tokens=16, prefix_bytes=1 << 20)
GREEDY = Sampling(temperature=0)
full_forward = jax.jit(lambda tokens: jax.nn.log_softmax(MODEL(tokens)))
SHARED = tuple(range(60, 90))


@contextmanager
def scheduling(settings: EngineSettings = SETTINGS, max_waiting: int = 1024) -> Iterator[Scheduler]:
    scheduler = Scheduler(Engine(LAYERS, CONFIG, settings), byte_tokenizer(), Metrics(), max_waiting)
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.stop()


def answers(scheduler: Scheduler, asks: list[GenerationRequest]) -> list[list[Delta]]:
    """Submit together and wait for the ends."""
    deltas: list[list[Delta]] = [[] for _ in asks]
    left, ended = [len(asks)], threading.Event()

    def taker(index: int):
        def take(delta: Delta | BaseException) -> None:
            assert isinstance(delta, Delta), delta
            deltas[index].append(replace(delta, reused_tokens=0))
            left[0] -= delta.finish is not None
            if not left[0]:
                ended.set()

        return take

    scheduler.submit(asks, taker)
    assert ended.wait(120)
    return deltas


@st.composite
def asks(draw: st.DrawFn) -> GenerationRequest:
    """Prompts that share beginnings of every length, in every lane; all kinds of wishes."""
    shared = draw(st.integers(0, len(SHARED)))
    own = draw(st.lists(st.integers(0, 255), min_size=not shared, max_size=CONFIG.max_seq_len - shared))
    prompt = (*SHARED[:shared], *own)
    samples = draw(st.sampled_from([1, 1, 4]))
    return GenerationRequest(
        prompt=prompt,
        max_tokens=draw(st.integers(0, CONFIG.max_seq_len + 1 - len(prompt))),
        sampling=draw(st.sampled_from([GREEDY, Sampling(), Sampling(0.7, 0.9), Sampling(1.2, 0.95, 9, 0.01)])),
        seed=draw(st.integers(0, 3)),
        sample=draw(st.integers(0, samples - 1)),
        samples=samples,
        end_tokens=frozenset({START}),
        top=draw(st.sampled_from([None, 0, 1, 3])),
        echo=draw(st.booleans()),
    )


@pytest.fixture(scope="module")
def busy() -> Iterator[Scheduler]:
    with scheduling() as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def lonely() -> Iterator[Scheduler]:
    """One sequence at a time, and nothing kept."""
    with scheduling(replace(SETTINGS, prefix_bytes=0)) as scheduler:
        yield scheduler


@settings(max_examples=examples(15))
@given(mix=st.lists(asks(), min_size=1, max_size=8))
def test_an_answer_is_the_same_to_the_last_bit_alone_and_in_any_company(busy, lonely, mix) -> None:
    assert answers(busy, mix) == [answers(lonely, [ask])[0] for ask in mix]


@settings(max_examples=examples(15))
@given(mix=st.lists(asks(), min_size=1, max_size=4))
def test_every_log_probability_is_that_of_the_whole_forward_pass(busy, mix) -> None:
    mix = [replace(ask, top=3, echo=True) for ask in mix]
    for ask, deltas in zip(mix, answers(busy, mix), strict=True):
        scores = [score for delta in deltas for score in delta.scores]
        tokens = [score.token for score in scores]
        assert tuple(tokens[: len(ask.prompt)]) == ask.prompt
        assert len(tokens) <= len(ask.prompt) + ask.max_tokens
        padded = np.zeros((1, CONFIG.max_seq_len), np.int32)
        padded[0, : len(tokens[: CONFIG.max_seq_len])] = tokens[: CONFIG.max_seq_len]
        expected = np.asarray(full_forward(jnp.asarray(padded)))[0]
        assert scores[0].log_prob is None and scores[0].top == ()
        for place, score in enumerate(scores[1:]):
            assert score.log_prob == pytest.approx(expected[place, score.token], abs=1e-4)
            best = np.sort(expected[place])[::-1][:3]
            np.testing.assert_allclose([log_prob for _, log_prob in score.top], best, atol=1e-4)
            np.testing.assert_allclose([expected[place, token] for token, _ in score.top], best, atol=1e-4)
            if ask.sampling == GREEDY and place >= len(ask.prompt) - 1:
                assert score.token == score.top[0][0]


def test_an_end_token_ends_with_its_score_and_without_its_text(busy) -> None:
    ask = GenerationRequest(SHARED, 10, GREEDY, seed=0, top=1)
    (free,) = answers(busy, [ask])
    second = free[1].scores[0].token
    (ended,) = answers(busy, [replace(ask, end_tokens=frozenset({second}))])
    assert [score.token for delta in ended for score in delta.scores] == [free[0].scores[0].token, second]
    assert ended[-1].finish == "stop"
    assert "".join(delta.text for delta in ended) == byte_tokenizer().decode([free[0].scores[0].token])


def test_a_cancelled_sequence_gives_its_row_to_the_next(busy) -> None:
    """There is one row: the second sequence can only end when the first, which no client reads, has left."""
    with scheduling(replace(SETTINGS, rows=1)) as scheduler:
        seen: list[Delta] = []
        holder: list = []
        submitted = threading.Event()

        def leave(delta: Delta | BaseException) -> None:
            assert isinstance(delta, Delta)
            seen.append(delta)
            submitted.wait()
            scheduler.cancel(holder)

        long = GenerationRequest(SHARED, 14, GREEDY, seed=0)
        holder += scheduler.submit([long], lambda _: leave)
        submitted.set()
        (after,) = answers(scheduler, [long])
        (expected,) = answers(busy, [long])
        assert [d.scores[0].token for d in after] == [d.scores[0].token for d in expected]  # other rows, other last bits
        assert len(seen) == 1 and len(after) == 14
        assert b"serve_cancelled_sequences_total 1.0" in scheduler.metrics.text()


def test_a_prefix_is_computed_once_and_counted(lonely) -> None:
    with scheduling() as scheduler:
        requests = [GenerationRequest((*SHARED, last), 4, GREEDY, seed=0) for last in (1, 2)]
        alone = [answers(scheduler, [ask])[0] for ask in requests]
        assert alone == [answers(lonely, [ask])[0] for ask in requests]
        full_blocks = len(SHARED) // SETTINGS.block_tokens * SETTINGS.block_tokens
        assert f"serve_prompt_tokens_reused_total {float(full_blocks)}".encode() in scheduler.metrics.text()


def test_the_samples_of_a_prompt_compute_it_once(lonely) -> None:
    """More samples than rows, and a last block that is not full."""
    asked = [GenerationRequest(SHARED, 4, Sampling(), seed=3, sample=i, samples=8) for i in range(8)]
    with scheduling() as scheduler:
        found = answers(scheduler, asked)
        reused = f"serve_prompt_tokens_reused_total {float(7 * len(SHARED))}".encode()
        assert reused in scheduler.metrics.text()
    assert found == [answers(lonely, [ask])[0] for ask in asked]
    assert len({tuple(delta.scores[0].token for delta in deltas) for deltas in found}) == 8


def test_more_than_may_wait_are_refused_together_and_a_stopped_scheduler_says_so() -> None:
    with scheduling(max_waiting=2) as scheduler:
        ask = GenerationRequest(SHARED, 1, GREEDY, seed=0)
        with pytest.raises(QueueFullError, match="0 sequences wait and 3 were added; at most 2 may wait"):
            scheduler.submit([ask] * 3, lambda _: print)
        assert len(answers(scheduler, [ask] * 2)) == 2
    with pytest.raises(StoppedError, match="the scheduler does not run: it was stopped"):
        scheduler.submit([ask], lambda _: print)
    with pytest.raises(ValueError, match="max_waiting is 0; it must be at least 1"), scheduling(max_waiting=0):
        pass


def test_a_fault_of_a_step_reaches_everyone_and_is_reported_as_that_of_the_sequence_it_was_at(caplog) -> None:
    with scheduling() as scheduler:
        received: dict[int, Delta | BaseException] = {}
        faults: list[BaseException] = []
        ended = threading.Event()

        def taker(index: int):
            return lambda delta: received.__setitem__(index, delta)

        def end(fault: BaseException) -> None:
            faults.append(fault)
            ended.set()

        scheduler.on_fault = end
        fine = GenerationRequest(SHARED, 14, GREEDY, seed=0)
        broken = GenerationRequest((START + 1,), 1, GREEDY, seed=0, stops=None)  # type: ignore[arg-type]
        scheduler.submit([fine, broken, *[fine] * 4], taker)
        assert ended.wait(120)
        assert [type(received[i]) for i in range(6)] == [StoppedError, FaultError] + [StoppedError] * 4
        assert "the scheduler failed: TypeError" in str(received[0]) and isinstance(faults[0], TypeError)
        scheduler.thread.join()
        assert not scheduler.alive
        assert "the scheduler stopped" in caplog.text


def test_lanes_are_blocks_times_powers_of_two_up_to_the_context() -> None:
    engine = Engine(LAYERS, CONFIG, SETTINGS)
    assert [engine.lane_for(n) for n in (1, 16, 17, 32, 33, 44)] == [16, 16, 32, 32, 48, 48]


def test_a_prefix_cache_drops_what_was_not_used_for_longest() -> None:
    def block() -> Block:
        return Block(jnp.zeros(8), jnp.zeros(8), jnp.zeros(9))

    cache = PrefixCache(max_bytes=200)
    for key in (b"a", b"b"):
        cache.put(key, block())
    assert cache.get(b"a") is not None
    cache.put(b"c", block())
    assert list(cache.blocks) == [b"a", b"c"] and cache.num_bytes == 200
    cache.put(b"a", block())
    assert cache.num_bytes == 200


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12), st.sampled_from([(8, 8), (8, 16)]))
def test_block_keys_are_equal_where_all_up_to_their_end_is(one, other, lanes) -> None:
    first, second = block_keys(np.array(one), 3, lanes[0]), block_keys(np.array(other), 3, lanes[1])
    assert len(first) == len(one) // 3
    for i, (a, b) in enumerate(zip(first, second, strict=False)):
        same = one[: 3 * i + 3] == other[: 3 * i + 3] and lanes[0] == lanes[1]
        assert (a == b) == same
