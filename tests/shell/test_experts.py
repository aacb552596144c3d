"""`make moe` at small scale: real sweeps through the launcher, their page, and what the study says of known numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from small_runs import small_run

from lineage.artifact.store import Store
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies import experts
from scenarios.evidence import Evidence, Teller, failures
from scenarios.experts import Outcome, look, made, study
from scenarios.experts_page import write_experts_page
from trainer.router_table import SCHEMA
from trainer.spec.config import RunSpec
from trainer.spec.models import ModelConfig


def test_models_of_the_study_are_equal_in_flops_and_in_parameters() -> None:
    dense, moe, wide = (experts.model(arm, 1024) for arm in ("dense", "moe", "wide"))
    assert moe.training_flops_per_token(256) / dense.training_flops_per_token(256) == pytest.approx(1, abs=0.01)
    assert wide.num_parameters / moe.num_parameters == pytest.approx(1, abs=0.01)
    names = [run.name for sweep in (experts.moe_rates(), experts.moe_pairs(), experts.moe_longer()) for run in sweep.trials]
    assert len(set(names)) == len(names) == 6 + 18 + 4
    assert not set(experts.PAIR_SEEDS) & {experts.RATE_SEED, *experts.LOOK_SEEDS}, "the claim has seeds of its own"


def known(score: Callable[[RunSpec], float], busiest: int = 26) -> Callable[[Sweep], list[Outcome]]:
    """Outcomes of a sweep whose bits per byte are a function of the spec."""
    loads = [busiest, *[(200 - busiest) // 7] * 7]
    table = pl.DataFrame([(1, 0, loads, 1.0, 1.0, 0, 0.0, 0.0)], schema=SCHEMA, orient="row")

    def of(run: Run) -> Outcome:
        spec = run.spec
        flops = spec.num_steps * 2048.0 * spec.model.training_flops_per_token(spec.seq_len)
        routed = run.name.startswith("moe")
        return Outcome(run, score(spec), flops, pl.DataFrame(), table if routed else None, "one")

    return lambda sweep: [of(run) for run in sweep.trials]


def judged(score: Callable[[RunSpec], float], busiest: int = 26) -> list[Evidence]:
    teller = Teller(Console(quiet=True), [])
    study(known(score, busiest), teller)
    return teller.kept


def bpb(spec: RunSpec, gain: float, shift: float = 1.0) -> float:
    """Luck of the seed, a penalty for another rate, what experts gain, what more steps gain."""
    mixed = spec.model.num_parameters != spec.model.active_parameters
    own = ((spec.seed * 7919) % 13) / 1000 * (1 if mixed else 0.9)
    best = shift * experts.RATES["moe" if mixed else "dense"][1]
    return (
        2.0
        + own
        + abs(spec.schedule.peak_learning_rate - best) * 10
        - gain * mixed
        - 0.1 * (spec.num_steps / experts.STEPS - 1)
    )


def test_the_study_says_what_its_numbers_hold() -> None:
    evidence = judged(lambda spec: bpb(spec, 0.05))
    assert failures(evidence) == []
    (speed,) = (each.details for each in evidence if each.claim == "effective speed-up")
    assert speed.startswith("1.4") or speed.startswith("1.5"), speed
    [claim] = failures(judged(lambda spec: bpb(spec, -0.05)))
    assert "lies below 0" in claim.claim
    [claim] = failures(judged(lambda spec: bpb(spec, 0.0)))
    assert "lies below 0" in claim.claim
    at_the_edge = judged(lambda spec: bpb(spec, 0.05, shift=2.0))
    assert len(failures(at_the_edge)) == len(at_the_edge) == 2, "no pair is trained at rates that are not tuned"
    assert "edge of the grid" in at_the_edge[0].details
    uneven = failures(judged(lambda spec: bpb(spec, 0.05), busiest=120))
    assert [each.act for each in uneven] == ["balance", "balance"]


@pytest.mark.slow
def test_a_look_trains_both_draws_its_page_and_trains_nothing_twice(tmp_path: Path) -> None:
    def small(name: str, model: ModelConfig) -> Run:
        run = small_run(name)
        return replace(run, spec=replace(run.spec, model=model, num_steps=6, save_every_steps=None))

    dense = small_run("x").spec.model
    shared = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len")
    mixed = replace(
        experts.model("moe", dense.vocab_size),
        **{name: getattr(dense, name) for name in shared},
        experts=replace(experts.model("moe", 64).experts, dim=32),  # type: ignore[union-attr]
    )
    sweep = Sweep("small", (small("dense-s1", dense), small("moe-s1", mixed)))
    store, teller = Store(str(tmp_path / "store")), Teller(Console(quiet=True), [])
    outcomes = made(store, sweep, 1)
    assert [each.arm for each in outcomes] == ["dense", "moe"] and all(each.bpb for each in outcomes)
    assert outcomes[0].data == outcomes[1].data and outcomes[0].router is None
    assert [layer.layer for layer in outcomes[1].balance] == [0, 1]
    look(outcomes, teller)
    text = write_experts_page(tmp_path / "moe" / "moe.html", "small", outcomes, teller.kept).read_text()
    assert text.count("data:image/png") == 3 and "moe-s1, layer 1" in text
    trained = [each.stat().st_mtime_ns for each in sorted((tmp_path / "store").rglob("result.json"))]
    assert made(store, sweep, 1)[1].bpb == outcomes[1].bpb
    assert trained == [each.stat().st_mtime_ns for each in sorted((tmp_path / "store").rglob("result.json"))]
