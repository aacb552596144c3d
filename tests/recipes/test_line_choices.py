"""Deduplication choices of a line reach its nodes; unknown choices are refused at declaration."""

from dataclasses import replace

import pytest

from datakit.dedup.duplicates import DuplicatesConfig
from datakit.dedup.minhash import preset
from recipes import data
from recipes.lab import canary_line


def test_a_line_chooses_the_preset_and_what_counts_as_a_duplicate() -> None:
    line = replace(canary_line("cpu", None), minhash="20x5", duplicates=DuplicatesConfig(min_jaccard=0.9))
    assert data.minhash(line, line.sources[0]).config == preset("20x5")
    assert data.duplicates(line).config == DuplicatesConfig(min_jaccard=0.9)
    assert data.minhash(canary_line("cpu", None), line.sources[0]).config == preset("14x8")


def test_a_preset_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="minhash preset is '9x9'; allowed: 14x8, 20x5, 26x11"):
        replace(canary_line("cpu", None), minhash="9x9")
