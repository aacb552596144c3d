"""Rungs and branches of a ladder whose checkpoints are written, not trained, and the forecast of the next branch."""

from dataclasses import replace

from scored import SCORE, Score

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve, spec_of
from lineage.build.plan import build
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.writing.write import writing
from science.forecasts.ladder import LADDER_FORECAST, LadderConfig
from tests.trainer.tiny_run import COUNTING, RUN, TEXT
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

STEPS = (8, 16, 24)
"""Of the rungs; a branch has an eighth of them."""
TARGET = replace(
    RUN, name="target", num_steps=4, keep_steps=(2,), schedule=replace(RUN.schedule, warmup_steps=1), start=WarmStart()
)
CACHE = Node(("cache",), None, TEXT, COUNTING)


def mixture(seed: int = 1) -> Node:
    return Node(
        ("mixture", str(seed)), None, MIXTURE, MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed), {"caches": (CACHE,)}
    )


def checkpoint(run: RunSpec, **inputs: Node) -> Node:
    config = CheckpointConfig(run, run.num_steps)
    key = ("runs", run.name, "checkpoint")
    return Node(key, step_partition(run.num_steps), CHECKPOINT, config, {"mixture": mixture(), **inputs})


def rung(steps: int, seed: int = 0) -> Node:
    """A model of its own for each seed."""
    return checkpoint(replace(RUN, name=f"n{steps}-{seed}", num_steps=steps, keep_steps=(), seed=seed))


def branches(policy: str = "p") -> tuple[Node, ...]:
    """Results of two branches of each rung, on a law with the asymptote 2."""
    results = []
    for number in range(2 * len(STEPS)):
        steps, order = STEPS[number // 2], number % 2
        run = replace(TARGET, name=f"b{number}", num_steps=steps // 8, keep_steps=(), seed=order)
        loss = 2 + steps**-0.2 + 0.001 * order
        trial = checkpoint(run, start=rung(steps))
        results.append(Node(("results", run.name), None, SCORE, Score(loss, policy), {"trial": trial}))
    return tuple(results)


def ladder_forecast(start: Node | None = None, name: str = "ladder", policy: str = "p", **changed: object) -> Node:
    """What the branches say of `TARGET` from the last rung."""
    config = replace(LadderConfig(TARGET, "held-out", "loss", "nats", asymptote=2.0), **changed)
    inputs = {"results": branches(policy), "mixture": mixture(), "start": start or rung(32)}
    return Node(("forecasts", name), None, LADDER_FORECAST, config, inputs)


def written(store: Store, node: Node) -> Artifact:
    """Build a node and all above it. A checkpoint is written without being trained."""
    for each in ancestors_first([node]):
        if exists(store, each):
            continue
        if each.stage.job is None:
            build(store, each)
        else:
            with writing(store, spec_of(store, each)) as out:
                (out.folder / "weights").write_text(out.spec.version)
    return resolve(store, node)
