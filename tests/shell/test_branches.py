"""Branches from one checkpoint, trained for real: an annealing over two mixes and three orders, judged in pairs."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import small_corpus, small_ferry, small_run

from evals.items.stage import TRIAL_RESULT
from evals.tasks.trial_result import score_trial
from lineage.artifact.store import Store
from lineage.build.plan import Node, ancestors_first, build, exists, resolve, spec_of
from lineage.jobs.job import Job
from marin_assets.definitions import build_defs, tabled
from recipes.annealings import Annealing, annealing_verdict
from recipes.lab import Declarations
from recipes.records.run import AtStep, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from resources.lab import LabResource
from trainer.spec.config import WarmStart
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, TRIAL
from trainer.train import train

TOKENS = Tokens("small-bpe1k", small_corpus("vendored_prose", "python_topics"), TrainedTokenizer("bpe1k", vocab_size=1024))


def base() -> Run:
    """Eight steps over two sources."""
    run = small_run("base", "vendored_prose", "python_topics")
    return replace(run, data=Mix("two", TOKENS), spec=replace(run.spec, num_steps=8, save_every_steps=8, batch_size=4))


def branch() -> Run:
    """Four steps from its end."""
    before = base()
    schedule = WarmupStableDecay(1e-3, warmup_steps=1, decay_frac=0.5, min_lr_ratio=0.0)
    spec = replace(before.spec, name="branch", num_steps=4, save_every_steps=None, schedule=schedule, start=WarmStart())
    return replace(before, spec=spec, data=replace(before.data, name="branch", block_size=16), start=AtStep(before, 8))


def annealing(**changed: object) -> Annealing:
    mixes = (
        ("even", (("vendored_prose", 0.5), ("python_topics", 0.5))),
        ("prose", (("vendored_prose", 0.9), ("python_topics", 0.1))),
    )
    return replace(Annealing("end", branch(), mixes), **changed)


def make(store: Store, nodes: list[Node]) -> None:
    """Make nodes and all above them. Jobs run in this process, which compiles once for all branches."""
    jobs = {CHECKPOINT.name: train, TRIAL.name: train, TRIAL_RESULT.name: score_trial}
    for node in ancestors_first(nodes):
        if exists(store, node):
            continue
        if node.stage.job is None:
            build(store, node)
            continue
        inputs = {
            name: tuple(resolve(store, each) for each in parent) if isinstance(parent, tuple) else resolve(store, parent)
            for name, parent in node.inputs.items()
        }
        jobs[node.stage.name](Job(store, spec_of(store, node), inputs, "f", ""))


@pytest.mark.slow
def test_an_annealing_is_trained_and_judged(tmp_path: Path) -> None:
    store, of = Store(str(tmp_path)), annealing()
    make(store, [annealing_verdict(of)])
    verdict = resolve(store, annealing_verdict(of))
    (row,) = verdict.manifest.extra["annealing"]["rows"]
    assert row["mix"] == "prose" and row["pairs"] == 3 and row["smallest_visible"] > 0
    assert row["verdict"] in ("better", "worse", "undecided") and row["low"] < row["difference"] < row["high"]
    starts = [a for a in store.walk_up(verdict) if a.spec.key == ("runs", "base", "checkpoint")]
    assert len({a.spec.address for a in starts}) == 1, "all branches have one checkpoint among their ancestors"


def test_an_annealing_adds_four_assets_whatever_its_branches() -> None:
    declared = Declarations(runs=(base(),))
    without, _ = tabled(declared)
    with_it, kept = tabled(replace(declared, annealings=(annealing(seeds=tuple(range(9))),)))
    more = {each.example.key for each in with_it} - {each.example.key for each in without}
    assert more == {("annealings", "end", name) for name in ("mixture", "trial", "result", "verdict")}
    assert kept.broken == () and len(kept.annealings) == 1
    build_defs(LabResource(root="unused"), ferry=small_ferry(), declared=kept)
    _, broken = tabled(Declarations(annealings=(annealing(),)))
    assert broken.annealings == () and "no asset makes" in broken.broken[0].error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (0, 1)}, "give at least 3"),
        ({"branch": base()}, "its branch starts from None; give a step of a declared run"),
        ({"mixes": (("even", (("kjv", 1.0),)), ("prose", (("kjv", 1.0),)))}, "which is not a source of its tokens"),
    ],
)
def test_an_annealing_that_contradicts_itself_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        annealing(**change)
