"""Declared histories equal the published retrospectives: shares, total tokens, phase starts."""

from pathlib import Path

import numpy as np
import pytest

from lineage.order.apportion import OrderPhase
from lineage.order.order import DataOrder
from lineage.order.sequences import Chunked
from recipes import marin_history
from recipes.marin_history import SEQ_LEN, History, histories, marin_8b, marin_32b

TABLES = Path(__file__).with_name("retrospective_tables.md")
TOLD = {"1 (Llama)": 2.679, "3 (QK-norm)": 2.684, "4 (bison)": 1.074, "4 (mantis)": 1.074}
"""Trillions of tokens of the phases of the 32B run."""


def tables() -> dict[str, list[tuple[str, float]]]:
    """Name -> (dataset, share in per cent), as the paper outline prints them."""
    by_title: dict[str, list[tuple[str, float]]] = {}
    for line in TABLES.read_text().splitlines():
        if line.startswith("## "):
            by_title[line[3:]] = []
        elif line.startswith("|") and "%" in line:
            dataset, share = [cell.strip() for cell in line.strip("|").split("|")][:2]
            by_title[list(by_title)[-1]].append((dataset, float(share.rstrip("%"))))
    return by_title


@pytest.mark.parametrize("name", ["KESTREL", "JELLYFISH", "STARLING", "NEMOTRON_PT", "BISON", "MANTIS"])
def test_every_mix_is_the_table_of_the_document(name: str) -> None:
    assert list(getattr(marin_history, name)) == tables()[name]


def test_the_tokens_of_the_32b_run_add_up() -> None:
    for history in (marin_32b("bison"), marin_32b("mantis")):
        for phase in history.phases:
            assert history.tokens(phase) / 1e12 == pytest.approx(TOLD[phase.name], abs=5e-4)
        assert history.num_tokens / 1e12 == pytest.approx(6.437, abs=5e-4)


def test_the_phases_of_the_8b_run_end_where_the_timeline_says() -> None:
    history, ends, total = marin_8b(), {}, 0
    for phase in history.phases:
        total += history.tokens(phase)
        ends[phase.name] = total / 1e12
    assert ends.pop("Phoenix 1") == pytest.approx(4.78 + 0.0252, abs=5e-3)
    trillions = {"Kestrel": 2.77, "Ocelot": 3.78, "Jellyfish": 4.78, "Phoenix 2": 11.1, "Starling": 12.44}
    assert ends == pytest.approx(trillions, abs=5e-3)


@pytest.mark.parametrize("history", histories(), ids=lambda history: history.name)
def test_steps_of_every_phase_read_its_mix(history: History) -> None:
    """Phases begin with their steps, and the data order of each, over caches that are but a length, holds the shares."""
    config = history.mixture(seed=1)
    names = tuple(sorted({name for phase in config.phases for name in phase.weights}))
    wanted = [np.array([phase.weights.get(name, 0.0) for name in names]) for phase in config.phases]
    phases = tuple(
        OrderPhase(phase.start_sequence // config.block_size, weights / weights.sum())
        for phase, weights in zip(config.phases, wanted, strict=True)
    )
    layouts = tuple(Chunked(SEQ_LEN, 10**12) for _ in names)
    declared = [part for phase in history.phases for part in phase.weights]
    for number, (phase, weights) in enumerate(zip(declared, wanted, strict=True)):
        order = DataOrder(
            names, (), layouts, SEQ_LEN, config.block_size, config.shuffle, 1, (OrderPhase(0, weights / weights.sum()),)
        )
        assert phases[number].start_block * config.block_size == history.batches.first(phase.start_step)
        components, _ = order.locate(np.arange(16 * config.block_size))
        shares = np.bincount(components, minlength=len(names)) / components.size
        assert np.abs(shares - weights / weights.sum()).max() < 1e-3
        assert set(np.flatnonzero(shares)) <= set(np.flatnonzero(weights))


def test_another_cooldown_is_refused() -> None:
    with pytest.raises(ValueError, match="cooldown 'heron' of the 32B run; allowed: bison, mantis"):
        marin_32b("heron")
