"""Seed variance as an artifact: its numbers are those of the losses' table, and incomplete tables are refused by name."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scored import SCORE, Score, made

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.seed_stage import SEED_VARIANCE, RefusedSeedsError, SeedVarianceConfig
from science.seeds import seed_variance
from tests.trainer.tiny_run import RUN
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

SEEDS, ORDERS, STEPS = (0, 1, 2), (5, 9), (10, 20)
LOSSES = {steps: 3 - steps / 100 + np.random.default_rng(steps).normal(0, 0.02, (3, 2)) for steps in STEPS}


@dataclass(frozen=True)
class Order:
    """A mixture in one data order."""

    seed: int


def write_order(out: Writer, config: Order) -> None:
    (out.folder / "order").write_text(str(config.seed))


def write_model(out: Writer, config: CheckpointConfig, mixture: Artifact) -> None:
    (out.folder / "weights").write_text(config.run.name)


ORDER, MODEL = Stage("tests.order", "1", write_order), Stage("tests.model", "1", write_model)


def scored(name: str, seed: int, order: int, steps: int, score: Score) -> Node:
    run = replace(RUN, name=name, seed=seed, num_steps=steps)
    mixture = Node(("mixture",), str(order), ORDER, Order(order))
    model = Node(("models",), name, MODEL, CheckpointConfig(run, steps), {"mixture": mixture})
    return Node(("results",), name, SCORE, score, {"trial": model})


def table(**changed: Score | None) -> Node:
    """Every run of the table; `changed` replaces or leaves out runs by name, `r<steps>i<seed>o<order>`."""
    nodes = []
    for steps in STEPS:
        for row, seed in enumerate(SEEDS):
            for column, order in enumerate(ORDERS):
                name = f"r{steps}i{seed}o{order}"
                score = changed.get(name, Score(float(LOSSES[steps][row, column])))
                nodes += [] if score is None else [scored(name, seed, order, steps, score)]
    return of(tuple(nodes))


def of(results: tuple[Node, ...]) -> Node:
    config = SeedVarianceConfig("held-out", "loss", "nats")
    return Node(("seeds",), None, SEED_VARIANCE, config, {"results": results})


def test_the_terms_of_each_budget_are_those_of_its_losses(tmp_path: Path) -> None:
    artifact = made(tmp_path, table())
    facts = artifact.manifest.extra["seeds"]
    assert [row["flops"] for row in facts["budgets"]] == [size_of(replace(RUN, num_steps=steps)).flops for steps in STEPS]
    for row, steps in zip(facts["budgets"], STEPS, strict=True):
        wanted = seed_variance(LOSSES[steps])
        assert (row["initialization"], row["data_order"], row["rest"]) == (
            wanted.initialization,
            wanted.data_order,
            wanted.rest,
        )
        assert row["smallest_visible"]["6"] == wanted.smallest_visible(6)
    assert json.loads(artifact.file("seeds.json").read_text()) == facts
    assert f"{facts['budgets'][1]['sigma']:.5f}" in artifact.file("seeds.md").read_text()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (table(r10i2o9=None), r"at .* FLOPs no run has the seeds \(2, 9\)"),
        (table(r20i0o5=Score(0.0, diverged="loss is NaN")), r"r20i0o5\] diverged: loss is NaN"),
        (table(r20i0o5=Score(3.0, policy="q")), "2 policies"),
        (of(tuple(scored(f"a{seed}", seed, 5, 10, Score(3.0)) for seed in SEEDS)), "3 x 1 seeds; at least 2 x 2"),
        (of((scored("a", 0, 5, 10, Score(3.0)), scored("b", 0, 5, 10, Score(3.1)))), "have the same two seeds"),
    ],
    ids=["a hole", "diverged", "policies", "one order", "twice"],
)
def test_a_table_that_is_not_crossed_is_refused(node: Node, message: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedSeedsError, match=message):
        made(tmp_path, node)
