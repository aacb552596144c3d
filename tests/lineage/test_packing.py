"""Packing equals a slow best fit: a document that fits lies in one sequence, and positions invert exactly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.packing import OVERLONG, Overlong, Packed, Packing, PackingStatistics, best_fit, write_plan

lengths_of = st.lists(st.integers(0, 40), max_size=60).map(np.array)


def slow_best_fit(sizes: list[int], capacity: int, limit: int) -> list[int]:
    """One piece at a time, from the words."""
    rooms: list[int] = []
    counts: list[int] = []
    bins = [0] * len(sizes)
    for piece in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        fits = [b for b in range(len(rooms)) if rooms[b] >= sizes[piece] and counts[b] < limit]
        if not fits:
            rooms.append(capacity)
            counts.append(0)
            fits = [len(rooms) - 1]
        bins[piece] = min(fits, key=lambda b: (rooms[b], b))
        rooms[bins[piece]] -= sizes[piece]
        counts[bins[piece]] += 1
    return bins


@given(st.integers(1, 24), st.data())
def test_best_fit_is_that_of_one_piece_at_a_time(capacity: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, capacity), max_size=50))
    limit = data.draw(st.none() | st.integers(1, 6))
    bins = best_fit(np.array(sizes, np.int64), capacity, limit)
    assert bins.tolist() == slow_best_fit(sizes, capacity, capacity if limit is None else limit)


def plan_of(root: Path, lengths: np.ndarray, packing: Packing) -> tuple[Packed, PackingStatistics]:
    statistics = write_plan(root / "plan", np.cumsum(lengths, dtype=np.int64), packing)
    return Packed.open(root / "plan"), statistics


@given(
    lengths_of,
    st.integers(2, 20),
    st.sampled_from(["cut", "truncate", "drop"]),
    st.integers(1, 70),
    st.none() | st.integers(1, 4),
)
def test_every_token_is_packed_once_or_counted(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: np.ndarray,
    seq_len: int,
    overlong: Overlong,
    window: int,
    limit: int | None,
) -> None:
    packing = Packing(seq_len, overlong, limit, window)
    plan, statistics = plan_of(tmp_path_factory.mktemp("plan"), lengths, packing)
    which, starts, sizes = plan.pieces(np.arange(plan.count))
    assert np.array_equal(np.unique(which), np.arange(plan.count)), "no sequence is empty"
    assert np.bincount(which, sizes, plan.count).max(initial=0) <= seq_len
    assert limit is None or np.bincount(which).max(initial=0) <= limit
    times = np.zeros(int(lengths.sum()), int)
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        times[start : start + size] += 1
    ends = np.cumsum(lengths)
    for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
        kept = {"cut": length, "truncate": min(length, seq_len), "drop": length if length <= seq_len else 0}[overlong]
        assert times[end - length : end].tolist() == [1] * kept + [0] * (length - kept)
    assert statistics.num_tokens + statistics.tokens_dropped == lengths.sum()
    assert statistics.num_tokens + statistics.padding == plan.count * seq_len
    long = int((lengths > seq_len).sum())
    assert (statistics.documents_cut, statistics.documents_dropped) == ((0, long) if overlong == "drop" else (long, 0))
    assert (statistics.sequences, statistics.pieces) == (plan.count, which.size)


@given(lengths_of, st.integers(2, 20), st.sampled_from(["cut", "truncate", "drop"]), st.integers(1, 70), st.data())
def test_the_way_back_is_that_of_a_forward_scan(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: np.ndarray,
    seq_len: int,
    overlong: Overlong,
    window: int,
    data: st.DataObject,
) -> None:
    plan, _ = plan_of(tmp_path_factory.mktemp("plan"), lengths, Packing(seq_len, overlong, None, window))
    ends = np.cumsum(lengths, dtype=np.int64)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=12)) if len(lengths) else []
    spans = np.array([(ends[i] - lengths[i], ends[i]) for i in chosen], np.int64).reshape(-1, 2)
    wanted = []
    which, starts, sizes = plan.pieces(np.arange(plan.count))
    for number, (low, high) in enumerate(spans.tolist()):
        for sequence, start, size in zip(which.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            if max(low, start) < min(high, start + size):
                wanted.append((number, sequence, min(high, start + size) - max(low, start)))
    assert list(zip(*(column.tolist() for column in plan.holding(spans)), strict=True)) == sorted(wanted)


def test_a_window_is_packed_by_itself(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 1000)
    whole, _ = plan_of(tmp_path / "whole", lengths, Packing(256, window=250))
    base = 0
    for number, part in enumerate(np.split(lengths, 4)):
        alone, _ = plan_of(tmp_path / str(number), part, Packing(256, window=250))
        first, end = whole.windows[number : number + 2, 2]
        which, starts, sizes = whole.pieces(np.arange(first, end))
        token = whole.windows[number, 0]
        assert [which.tolist(), (starts - token).tolist(), sizes.tolist()] == [
            column.tolist() for column in alone.pieces(np.arange(alone.count))
        ]
        base += alone.count
    assert base == whole.count


def test_packing_wastes_little(tmp_path: Path) -> None:
    """Lengths as of web pages (log-normal, median 400), beside packing in order, a new sequence where one overflows."""
    lengths = np.random.default_rng(0).lognormal(6, 1.1, 20_000).astype(np.int64) + 1
    _, statistics = plan_of(tmp_path, lengths, Packing(2048, "truncate"))
    padding = room = 0
    for length in np.minimum(lengths, 2048).tolist():
        if length > room:
            padding, room = padding + room, 2048
        room -= length
    assert padding > 0.1 * statistics.num_tokens
    assert statistics.padding < 0.005 * statistics.num_tokens


def test_a_document_that_is_too_long_is_refused_where_that_is_asked(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"document at token 7 has 9 tokens, more than packing.seq_len 8; set packing.overlong"
    ):
        plan_of(tmp_path, np.array([7, 9]), Packing(8, "refuse"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seq_len": 1}, "packing.seq_len is 1; it must be at least 2"),
        ({"seq_len": 8, "overlong": "wrap"}, f"packing.overlong is 'wrap'; allowed: {', '.join(OVERLONG)}"),
        ({"seq_len": 8, "max_documents": 0}, "packing.max_documents is 0; it must be at least 1, or None"),
        ({"seq_len": 8, "window": 0}, "packing.window is 0; it must be at least 1"),
    ],
)
def test_bad_fields_are_named(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Packing(**fields)
