"""Promotions as artifacts: the verdict of both gates from real kinds of inputs, and what is refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from scored import SCORE, Score, made

from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.gates import Gates
from science.laws.power import fit_pinned
from science.promotion_stage import PROMOTION, PromotionConfig, RefusedPromotionError
from science.published import V16
from tests.trainer.tiny_run import RUN
from trainer.spec.config import RunSpec
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

SIZES = {"small": 20, "middle": 40, "large": 80, "largest": 160}
"""Name of a pair -> training steps of both runs."""
ASYMPTOTE = 1.6
LAW = fit_pinned(V16.budgets, V16.losses, ASYMPTOTE)
GATES = Gates(ASYMPTOTE, ("small", "middle"), ("large", "largest"), (1e21,))
CONFIG = PromotionConfig(tuple(SIZES), "held-out", "loss", "nats", GATES)


@dataclass(frozen=True)
class Law:
    """What the fit of a sweep records."""

    unit: str = "nats"
    policy: str = "p"
    sigma: float = 0.001


def write_law(out: Writer, config: Law) -> None:
    minima = [{"budget": float(c), "loss": float(loss)} for c, loss in zip(V16.budgets, V16.losses, strict=True)]
    noise = {"sigma": config.sigma, "freedom": 8}
    out.extra["fit"] = {"unit": config.unit, "policy": config.policy, "minima": minima, "noise": noise}
    (out.folder / "fit.json").write_text("{}")


def write_model(out: Writer, config: CheckpointConfig) -> None:
    speed = 1.0 if config.run.name == "baseline" else 0.5
    out.extra["throughput"] = {"gflops_per_second": 100 * speed}
    (out.folder / "weights").write_text(config.run.name)


FIT, MODEL = Stage("tests.law", "1", write_law), Stage("tests.model", "1", write_model)


def spec(name: str, size: str) -> RunSpec:
    return replace(RUN, name=name, num_steps=SIZES[size])


def loss_at(factor: float, size: str) -> float:
    """The law's loss with so many times the compute of the pair."""
    return LAW.at(factor * size_of(spec("baseline", size)).flops)


def scored(name: str, size: str, score: Score) -> Node:
    run = spec(name, size)
    model = Node(("models", name), size, MODEL, CheckpointConfig(run, run.num_steps))
    return Node(("results", name), size, SCORE, score, {"trial": model})


def promotion(factor: float, law: Law | None = None, **changed: Score) -> Node:
    """A variant that has the loss of a baseline with `factor` times the compute; `changed` replaces outcomes by size."""
    inputs = {
        "fit": Node(("sweep", "fit"), None, FIT, law or Law()),
        "baselines": tuple(scored("baseline", size, Score(loss_at(1.0, size))) for size in SIZES),
        "variants": tuple(scored("variant", size, changed.get(size, Score(loss_at(factor, size)))) for size in SIZES),
    }
    return Node(("promotions", "p"), None, PROMOTION, CONFIG, inputs)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(4.0, "promote"), (1.0, "bench"), (2.001, "undecided")], ids=["better", "as good", "equal"]
)
def test_a_variant_at_half_the_speed_needs_twice_the_worth(factor: float, verdict: str, tmp_path: Path) -> None:
    artifact = made(tmp_path, promotion(factor))
    facts = artifact.manifest.extra["promotion"]
    assert facts["verdict"] == verdict
    for each in facts["speed_ups"]:
        assert each["factor"] == pytest.approx(factor / 2) and each["low"] < factor / 2 < each["high"]
    assert json.loads(artifact.file("promotion.json").read_text()) == facts
    page = artifact.file("promotion.md").read_text()
    assert f": {verdict}" in page.splitlines()[0] and all(size in page for size in SIZES)
    assert all(f"| {each['smallest_visible']:.4f} nats |" in page for each in (*facts["speed_ups"], *facts["projections"]))


def test_the_interval_is_that_of_the_gates_with_the_law_and_the_noise_of_the_fit(tmp_path: Path) -> None:
    quiet, noisy = (
        made(tmp_path / str(sigma), promotion(3.0, Law(sigma=sigma))).manifest.extra["promotion"]["speed_ups"][0]
        for sigma in (0.0001, 0.01)
    )
    assert noisy["factor"] == quiet["factor"] and noisy["low"] < quiet["low"] < quiet["high"] < noisy["high"]
    assert quiet["smallest_visible"] < noisy["smallest_visible"]


def test_a_variant_that_diverged_in_a_gate_is_benched(tmp_path: Path) -> None:
    artifact = made(tmp_path, promotion(4.0, middle=Score(0.0, diverged="loss is NaN at step 7")))
    facts = artifact.manifest.extra["promotion"]
    assert (facts["verdict"], facts["why"]) == ("bench", "the variant diverged at middle")
    assert [each["size"] for each in facts["speed_ups"]] == ["small", "large", "largest"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (promotion(4.0, Law(policy="q")), "have 2 policies"),
        (promotion(4.0, large=Score(3.0, policy="q")), "have 2 policies"),
        (promotion(4.0, Law(unit="bits a byte")), "the law is in bits a byte, the promotion in nats"),
    ],
)
def test_what_cannot_be_compared_is_refused(node: Node, message: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedPromotionError, match=message):
        made(tmp_path, node)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": ()}, "give each at least one"),
        ({"second": ("huge",)}, "a gate names huge; the pairs are small, middle, large, largest"),
        ({"level": 1.0}, "level of the gates is 1.0"),
    ],
)
def test_bad_gates_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, gates=replace(GATES, **changes))


def test_a_size_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="each once"):
        replace(CONFIG, sizes=("small", "small"))
