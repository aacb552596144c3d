"""Document ends by shard equal one array of all ends, which is never built."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.document_ends import DocumentEnds
from lineage.order.packing import FILES, Packing, write_plan

lengths = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=6)
"""Of the documents of each shard; shards and documents may be empty."""


def ends_of(shards: list[list[int]]) -> tuple[DocumentEnds, np.ndarray]:
    arrays = [np.cumsum(np.array(shard, np.int64)) for shard in shards]
    bases = [0, *np.cumsum([sum(shard) for shard in shards]).astype(int).tolist()]
    return DocumentEnds.of(arrays, bases), np.cumsum(np.array([each for shard in shards for each in shard], np.int64))


@given(lengths, st.integers(0, 50), st.integers(0, 50))
def test_a_window_and_a_choice_are_those_of_one_array(shards: list[list[int]], first: int, stop: int) -> None:
    ends, one = ends_of(shards)
    assert ends.size == one.size
    assert ends[first:stop].tolist() == one[first:stop].tolist()
    assert ends[:].dtype == np.int64
    chosen = np.random.default_rng(first).integers(0, max(1, one.size), stop if one.size else 0)
    assert ends.take(chosen).tolist() == one[chosen].tolist()


def test_a_window_with_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a window of documents has step 2; 1 is allowed, take\(\) gives single ones"):
        DocumentEnds.of([np.array([1, 2, 3])], [0, 3])[::2]


@given(lengths, st.randoms(use_true_random=False))
def test_every_token_is_in_the_document_that_one_array_says(shards: list[list[int]], random: Random) -> None:
    ends, one = ends_of(shards)
    every = list(range(int(one[-1]) + 2 if one.size else 2))
    tokens = np.array(random.choices(every, k=30) + every)
    random.shuffle(every)
    tokens = np.concatenate([tokens, every])
    assert ends.at_or_before(tokens).tolist() == np.searchsorted(one, tokens, side="right").tolist()


@given(lengths, st.integers(1, 7))
def test_the_plan_of_shards_is_that_of_one_array(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[int]], window: int
) -> None:
    root: Path = tmp_path_factory.mktemp("plans")
    ends, one = ends_of(shards)
    packing = Packing(4, window=window)
    assert write_plan(root / "shards", ends, packing) == write_plan(root / "one", one, packing)
    for name in FILES:
        assert (root / "shards" / name).read_bytes() == (root / "one" / name).read_bytes(), name


class Untouched(np.ndarray):
    """Fails if a reader takes more than a window at once."""

    most = 0

    def __getitem__(self, key):
        ends = super().__getitem__(key)
        Untouched.most = max(Untouched.most, np.size(ends))
        return ends


def test_packing_reads_a_window_at_a_time(tmp_path: Path) -> None:
    shards = [np.arange(1, 1001, dtype=np.int64).view(Untouched) for _ in range(3)]
    ends = DocumentEnds.of(shards, [0, 1000, 2000, 3000])
    statistics = write_plan(tmp_path / "plan", ends, Packing(8, window=64))
    assert statistics.num_tokens == 3000 and 0 < Untouched.most <= 64
