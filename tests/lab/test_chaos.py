"""Seven kills at random moments, one of each victim; `make chaos` has twenty or more."""

from pathlib import Path

import pytest
from chaos import run_chaos, strikes_table
from chaos_promises import broken
from chaos_victims import VICTIMS
from rich.console import Console

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def test_whatever_dies_the_checkpoints_are_those_of_the_undisturbed_run(tmp_path: Path) -> None:
    hit, ended = run_chaos(tmp_path, count=len(VICTIMS), seed=7, steps=1500)
    Console(width=120).print(strikes_table(hit), ended.table())
    assert {strike.victim for strike in hit} == set(VICTIMS)
    assert broken(ended) == []
