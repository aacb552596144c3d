"""Deciles and cutoffs from counts equal those of all scores sorted in memory."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.documents.parts import ROW_GROUP_ROWS, write_parquet
from datakit.quality.score_counts import UNITS, ScoreCounts, first_of_groups, ids_of

SCORES = st.lists(st.sampled_from([0.0, 1e-06, 0.1, 0.123456, 0.3, 0.7, 0.999999, 1.0]), min_size=1, max_size=60)


def write_tables(folder: Path, scores: list[float], parts: int) -> tuple[list[Path], pl.DataFrame]:
    """Tables of some parts with ascending ids, and all of their rows."""
    rows = pl.DataFrame({"id": [f"{i:06d}" for i in range(len(scores))], "score": scores})
    paths = [folder / f"part-{i}.parquet" for i in range(parts)]
    for path, part in zip(paths, np.array_split(np.arange(len(scores)), parts), strict=True):
        write_parquet(path, rows[part.tolist()].to_arrow().cast(pa.schema([("id", pa.string()), ("score", pa.float64())])))
    return paths, rows


@given(SCORES, st.integers(1, 4), st.integers(1, 5), st.integers(1, 12))
def test_groups_are_those_of_sorted_scores(tmp_path_factory, scores, parts, wanted, groups):
    paths, rows = write_tables(tmp_path_factory.mktemp("scores"), scores, parts)
    counts, ordered = ScoreCounts.of(paths), rows.sort("score", "id")
    bounds = [len(scores) * i // groups for i in range(groups + 1)]
    of_groups = [ordered[start:stop] for start, stop in pairwise(bounds)]
    assert first_of_groups(paths, counts, bounds, wanted) == [sorted(group["id"])[:wanted] for group in of_groups]
    assert [counts.at(rank) / UNITS for rank in range(len(scores))] == ordered["score"].to_list()
    exact = [round(score * UNITS) for score in ordered["score"]]
    assert [counts.sum_below(rank) for rank in range(len(scores) + 1)] == [sum(exact[:rank]) for rank in range(len(scores) + 1)]


def test_no_more_is_read_than_the_first_ids_take(tmp_path, monkeypatch):
    """Scores in random order: a row group has some of every decile, and the rest of the table is not looked at."""
    scores = np.random.default_rng(0).random(4 * ROW_GROUP_ROWS).round(6)
    paths, rows = write_tables(tmp_path, scores.tolist(), 4)
    counts = ScoreCounts.of(paths)
    for path in paths[1:]:
        path.unlink()
    bounds = [rows.height * i // 10 for i in range(11)]
    deciles = [rows.sort("score")[start:stop] for start, stop in pairwise(bounds)]
    assert first_of_groups(paths, counts, bounds, 3) == [sorted(decile["id"])[:3] for decile in deciles]


def test_ids_of_a_score_come_in_their_order(tmp_path):
    paths, _ = write_tables(tmp_path, [0.5, 0.1, 0.5, 0.5, 0.2], 2)
    assert list(ids_of(paths, 0.5)) == ["000000", "000002", "000003"]


@pytest.mark.parametrize("score", [1.5, -0.25, 0.1234567, float("nan")])
def test_a_score_that_is_not_rounded_is_refused(tmp_path, score):
    paths, _ = write_tables(tmp_path, [0.5, score], 1)
    with pytest.raises(ValueError, match="scores are from 0 to 1 with 6 decimals"):
        ScoreCounts.of(paths)
