"""Histories as graphs of run specs: published numbers, warm starts, dead branches, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from lineage.config import from_jsonable, to_jsonable
from recipes.histories.declared import declared_histories
from recipes.histories.marin_8b import interpolated, marin_8b
from recipes.histories.marin_32b import QWEN3, marin_32b
from recipes.histories.phase import From, History
from recipes.histories.picture import draw
from trainer.spec.config import RunSpec


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_every_told_number_is_the_computed_one_at_its_printed_precision(history: History) -> None:
    wrong = [(stated.what, stated.printed, stated.computed) for stated in history.stated if not stated.agrees]
    assert not wrong and len(history.stated) >= 7


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_every_phase_is_a_spec_that_the_trainer_reads_back(history: History) -> None:
    for phase in history.phases:
        assert from_jsonable(RunSpec, to_jsonable(phase.spec)) == phase.spec
        assert phase.flops > 0


def test_the_published_lines_leave_out_what_was_abandoned() -> None:
    assert [phase.name for phase in marin_32b().line_to("mantis")] == ["1a", "1b", "1c", "1d", "3", "mantis"]
    assert [phase.name for phase in marin_8b().line_to("starling")] == [
        "kestrel-1", "kestrel-2", "ocelot", "jellyfish", "phoenix-1", "phoenix-2", "starling",
    ]  # fmt: skip
    dead = {phase.name for history in declared_histories() for phase in history.phases if phase.outcome == "abandoned"}
    assert dead == {"necromancy", "nadamw", "muon", "bison", "raccoon", "spoonbill"}


def test_the_switch_to_qk_norm_adds_two_norms_and_nothing_else() -> None:
    phase = marin_32b().by_name["3"]
    assert phase.spec.start is not None and phase.spec.start.new_parameters == ("k_norm", "q_norm")
    before = marin_32b().by_name["1d"].spec.model
    assert QWEN3.num_parameters - before.num_parameters == 64 * 2 * 128


def test_phoenix_goes_over_linearly() -> None:
    parts = interpolated()
    assert len(parts) == 20 and parts[1][0] == 100
    first, last = dict(parts[0][1]), dict(parts[-1][1])
    assert first["nemotron_cc/medium"] < 1 < 29 < last["nemotron_cc/medium"]
    assert sum(first.values()) == pytest.approx(100) == pytest.approx(sum(last.values()))


def test_a_phase_that_starts_nowhere_is_refused() -> None:
    history = marin_32b()
    last = history.phases[-1]
    with pytest.raises(ValueError, match="starts from step 79,999 of 3, which keeps 80,000"):
        replace(history, phases=(*history.phases[:-1], replace(last, start=From("3", 79_999))))
    with pytest.raises(ValueError, match="starts from phase-9, none before it"):
        replace(history, phases=(*history.phases[:-1], replace(last, start=From("phase-9", 1))))
    with pytest.raises(ValueError, match="sum to 98"):
        replace(last, mix=(("wiki", 98.0),))
    with pytest.raises(ValueError, match="an abandoned phase has one"):
        replace(last, outcome="abandoned")


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_a_history_is_drawn(history: History, tmp_path: Path) -> None:
    draw(history, tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes()[:4] == b"\x89PNG"
