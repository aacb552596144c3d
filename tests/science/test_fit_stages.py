"""Critical batch and repetition as artifacts: numbers, pages, what the UI shows, and refusals, from written tables."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scored import SCORE, Score, made
from simulated import trial_at, trials

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.describe import recorded
from science.batch_stage import CRITICAL_BATCH, CriticalBatchConfig
from science.fit_sweep import FitConfig
from science.forecasts.table import write_table
from science.laws.simulate import design, known_laws, simulate
from science.repetition import effective_tokens
from science.repetition_stage import REPETITION, RepetitionConfig
from science.trials import RefusedSweepError, Trial

CRITICAL, STAR = 6000.0, 8.0
BATCHES = 512 * 2 ** np.arange(7)


@dataclass(frozen=True)
class Planted:
    """Which trials a table has."""

    kind: str


def write_planted(out: Writer, config: Planted) -> None:
    write_table(out, PLANTED[config.kind](), [])


PLANTED_TABLE = Stage("tests.planted", "1", write_planted)


def batches(horizons: tuple[float, ...] = (4e6, 8e6, 16e6)) -> list[Trial]:
    """Seven batches at three rates; the critical one grows as the square root of the tokens."""
    random, found = np.random.default_rng(0), []
    for tokens in horizons:
        critical = CRITICAL * (tokens / 4e6) ** 0.5
        for batch in BATCHES:
            for multiple in (0.5, 1.0, 2.0):
                loss = 3 + 0.9 * ((1 + batch / critical) ** 0.28 - 1) + 0.02 * np.log(multiple) ** 2 + random.normal(0, 1e-3)
                found.append(
                    trial_at(f"t{tokens:.0f}-b{batch}-lr{multiple:g}", tokens=tokens, batch_tokens=int(batch),
                             learning_rate=multiple * 1e-3, loss=float(loss))
                )  # fmt: skip
    return found


def repeated(epochs: tuple[float, ...] = (2, 4, 8, 16, 32)) -> list[Trial]:
    """A sweep that repeats nothing, and runs over 400,000 unique tokens."""
    random = np.random.default_rng(1)
    law = known_laws()[1].loss
    fresh = trials(simulate(law, design(), 1, 0.004, random).losses[0])
    again = []
    for size in (62_000, 154_000):
        for count in epochs:
            truth = law(np.array([float(size)]), effective_tokens(4e5 * count, 4e5, STAR))[0]
            again.append(
                trial_at(f"n{size}-e{count:g}", parameters=size, tokens=4e5 * count, epochs=float(count),
                         loss=float(truth + random.normal(0, 0.004)))
            )  # fmt: skip
    return [*fresh, *again]


PLANTED = {
    "batches": batches,
    "one horizon": lambda: batches((4e6,)),
    "repeated": repeated,
    "one count": lambda: repeated((8.0,) * 1 + (1.2,)),
}


def of(stage: Stage, config: object, kind: str) -> Node:
    table = Node(("sweeps", "s", "table"), None, PLANTED_TABLE, Planted(kind))
    return Node(("sweeps", "s", stage.name), None, stage, config, {"table": table})


@dataclass(frozen=True)
class Steps:
    """The noise scale that a run's steps show, and whether it has the columns of its gradients' noise."""

    scale: float
    columns: bool = True


def write_steps(out: Writer, config: Steps) -> None:
    random = np.random.default_rng(int(config.scale))
    square, trace = 0.01 * (1 + random.normal(0, 0.3, 100)), 0.01 * config.scale * (1 + random.normal(0, 0.1, 100))
    square[:10] = 50.0  # at the start gradients are large
    table = pl.DataFrame({"loss_nats": np.ones(100)})
    if config.columns:
        table = table.with_columns(gradient_square=square, noise_trace=trace)
    table.write_parquet(out.folder / "metrics.parquet")


STEPS = Stage("tests.steps", "1", write_steps)


def watched(steps: Steps, witnesses: np.ndarray = BATCHES[2:5]) -> Node:
    """The fit over a planted table, with the trials at the middle rate of some batches as second witnesses."""
    node, results = of(CRITICAL_BATCH, CriticalBatchConfig(), "one horizon"), []
    for batch in witnesses:
        name = f"t4000000-b{batch}-lr1"
        trial = Node(("sweeps", "s", "trial"), name, STEPS, steps)
        results.append(Node(("sweeps", "s", "result"), name, SCORE, Score(3.0), {"trial": trial}))
    return replace(node, inputs={**node.inputs, "results": tuple(results)})


def test_the_noise_scale_is_a_second_witness_beside_the_losses(tmp_path: Path) -> None:
    artifact = made(tmp_path, watched(Steps(CRITICAL)))
    (row,) = artifact.manifest.extra["batch"]["horizons"]
    noise = row["noise"]
    assert [each["batch"] for each in noise["rows"]] == BATCHES[2:5].tolist() and noise["overlap"] is True
    assert noise["at"] == min(noise["rows"], key=lambda each: abs(np.log(each["batch"] / row["batch"])))
    assert noise["at"]["low"] < CRITICAL < noise["at"]["high"] and noise["at"]["steps"] == 90
    page = artifact.file("batch.md").read_text()
    assert "## Two witnesses" in page and "| yes |" in page and "disagree" not in page
    assert "noise_scales" in shown(artifact)


def test_witnesses_that_disagree_are_said_to(tmp_path: Path) -> None:
    artifact = made(tmp_path, watched(Steps(20 * CRITICAL), BATCHES[3:4]))
    (row,) = artifact.manifest.extra["batch"]["horizons"]
    assert row["noise"]["overlap"] is False and row["noise"]["at"]["low"] > row["high"]
    assert "**The two witnesses disagree** at 4e+06 tokens" in artifact.file("batch.md").read_text()


def test_a_witness_whose_run_has_no_such_columns_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"its metrics lack gradient_square, noise_trace; set run\.gradient_noise"):
        made(tmp_path, watched(Steps(1.0, columns=False), BATCHES[:1]))


def shown(artifact: Artifact) -> dict[str, object]:
    return {name: value.value for name, value in recorded(artifact).items()}


def test_critical_batches_of_three_horizons_and_their_growth(tmp_path: Path) -> None:
    artifact = made(tmp_path, of(CRITICAL_BATCH, CriticalBatchConfig(level=0.99), "batches"))
    facts = artifact.manifest.extra["batch"]
    assert [row["tokens"] for row in facts["horizons"]] == [4e6, 8e6, 16e6]
    for row in facts["horizons"]:
        planted = CRITICAL * (row["tokens"] / 4e6) ** 0.5
        assert row["low"] < planted < row["high"] and len(row["points"]) == 7
        assert row["by_exponent"]["0.28"] == row["batch"], "the declared exponent is among those shown"
        assert row["by_exponent"]["0.37"] < row["batch"] < row["by_exponent"]["0.2"], "it is not free of the choice"
    assert facts["law"]["low"] < 0.5 < facts["law"]["high"]
    assert json.loads(artifact.file("batch.json").read_text()) == facts
    assert "It grows as tokens^" in artifact.file("batch.md").read_text()
    assert shown(artifact)["grows_as_tokens_to_the"] == facts["law"]["exponent"]


def test_one_horizon_has_no_growth(tmp_path: Path) -> None:
    artifact = made(tmp_path, of(CRITICAL_BATCH, CriticalBatchConfig(), "one horizon"))
    assert artifact.manifest.extra["batch"]["law"] is None and "grows" not in artifact.file("batch.md").read_text()
    assert "grows_as_tokens_to_the" not in shown(artifact)


def test_repetition_is_fitted_on_the_law_of_what_repeats_nothing(tmp_path: Path) -> None:
    artifact = made(tmp_path, of(REPETITION, RepetitionConfig(), "repeated"))
    facts = artifact.manifest.extra["repetition"]
    assert facts["low"] < STAR < facts["high"] and facts["trials"] == {"fresh": 32, "repeated": 10, "between": 0}
    assert facts["worth"]["1"] == 1.0 and 3.5 < facts["worth"]["4"] < 4.0 and facts["worth"]["32"] < 1 + STAR + 0.5
    assert json.loads(artifact.file("repetition.json").read_text()) == facts
    assert artifact.file("repetition.md").read_text().startswith("# sweeps/s/science.repetition: R* = ")
    assert shown(artifact)["constant"] == facts["constant"]


def test_a_sweep_with_too_little_repetition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedSweepError, match="too_few_repeated: 2 of at least 4"):
        made(tmp_path, of(REPETITION, RepetitionConfig(), "one count"))


@pytest.mark.parametrize("bad", [lambda: CriticalBatchConfig(exponent=1.2), lambda: RepetitionConfig(FitConfig(), 1.0)])
def test_a_config_that_cannot_be_is_refused(bad) -> None:
    with pytest.raises(ValueError, match="level is"):
        bad()


@pytest.mark.parametrize("bad", [{"noise_from": 1.0}, {"noise_blocks": 4}])
def test_noise_of_no_steps_or_of_few_blocks_is_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=r"noise_from is .*, noise_blocks is .* at least 5"):
        CriticalBatchConfig(**bad)
