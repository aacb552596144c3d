"""The benchmark of mixture search goes on where it was, one kind and a range of seeds at a time."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.science.mixtures import main
from science.mixtures.surfaces import INTERACTIONS, Kind, known_surface


def test_surfaces_that_have_a_row_are_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"

    def run(*options: str) -> tuple[str, str]:
        asked = ["3", "8", "--without-peer", "--kinds", "quadratic", "--rows", str(rows), *options]
        monkeypatch.setattr(sys, "argv", ["mixtures", *asked])
        main()
        printed = capsys.readouterr()
        return printed.out, printed.err

    _, progress = run("--surfaces", "1")
    assert progress.startswith("quadratic 0: regret")
    first = rows.read_text()
    table, progress = run("--surfaces", "2")
    assert rows.read_text().startswith(first) and [json.loads(line)["seed"] for line in rows.read_text().splitlines()] == [0, 1]
    assert progress.startswith("quadratic 1: regret") and "| quadratic | 2 | " in table
    again, progress = run("--surfaces", "2")
    assert (again, progress) == (table, "")
    _, progress = run("--surfaces", "1", "--first", "2", "--noise", "0.1")
    assert progress.startswith("quadratic 2: regret"), "rows of other noise do not count"


def test_in_the_dense_kind_every_pair_of_sources_interacts() -> None:
    def pairs(kind: Kind) -> int:
        corners = np.eye(8)
        metric = known_surface(kind, 8, 0).metrics["m0"]
        first, second = np.triu_indices(8, 1)
        slopes = np.log(metric(corners) - 1)
        alone = 1 + np.exp((slopes[first] + slopes[second]) / 2)
        return int((np.abs(metric((corners[first] + corners[second]) / 2) - alone) > 1e-9).sum())

    assert pairs("log_linear") == 0
    assert 0 < pairs("interaction") <= INTERACTIONS
    assert pairs("dense") == 28
