"""Verdicts in pairs, trained for real: an annealing, a corpus judged by small models, and a ladder that forecasts a branch."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import small_corpus, small_ferry, small_run

from evals.items.stage import TRIAL_RESULT
from evals.tasks.trial_result import score_trial
from lineage.artifact.spec import InputRef
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Job
from lineage.order.mixture import StepPhase
from marin_assets.declared_table import tabled
from marin_assets.definitions import build_defs
from recipes.annealings import Annealing, annealing_verdict
from recipes.data import corpora
from recipes.forecasts import LadderForecast, verdict
from recipes.lab import Declarations
from recipes.proxies import Proxy, proxy_verdict
from recipes.records.run import AtStep, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.runs import checkpoint
from resources.lab import LabResource
from science.forecasts.freeze import RefusedForecastError
from trainer.spec.config import WarmStart
from trainer.spec.llama import LlamaConfig
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
    judged = resolve(store, annealing_verdict(of))
    (row,) = judged.manifest.extra["annealing"]["rows"]
    assert row["mix"] == "prose" and row["pairs"] == 3 and row["smallest_visible"] > 0
    assert row["verdict"] in ("better", "worse", "undecided") and row["low"] < row["difference"] < row["high"]
    starts = [a for a in store.walk_up(judged) if a.spec.key == ("runs", "base", "checkpoint")]
    assert len({a.spec.address for a in starts}) == 1, "all branches have one checkpoint among their ancestors"


@pytest.mark.slow
def test_a_corpus_is_judged_by_small_models(tmp_path: Path) -> None:
    store, run = Store(str(tmp_path)), base()
    run = replace(run, spec=replace(run.spec, save_every_steps=None))
    fewer = replace(run.corpus, name="fewer", filters=replace(run.corpus.filters, rule_sets=("fineweb",)))
    of = Proxy("rules", run, (("before", run.corpus), ("after", fewer)))
    make(store, [proxy_verdict(of)])
    judged = resolve(store, proxy_verdict(of))
    (row,) = judged.manifest.extra["proxy"]["rows"]
    assert row["corpus"] == "after" and row["pairs"] == 3 and row["low"] < row["difference"] < row["high"]
    before, after = judged.manifest.extra["proxy"]["read"]
    assert before["tokens"] == after["tokens"] and before["epochs"] < after["epochs"], "the same tokens of less text"
    scored = {ref.data_version for a in store.walk_up(judged) if "result" in a.spec.key for ref in refs_of(a, "corpora")}
    assert scored == {resolve(store, node).data_version for node in corpora(run.corpus)}
    assert len({a.data_version for a in store.walk_up(judged) if a.spec.key[0] == "tokenizer"}) == 1


def refs_of(artifact: Artifact, name: str) -> list[InputRef]:
    return [ref for ref in artifact.spec.inputs if ref.name.startswith(f"{name}.")]


RUNGS, LARGEST = (16, 24, 36, 52), 80
"""Steps of each rung. All have one shape, so that one program trains them."""


def rungs() -> Sweep:
    """A model of one layer after more and more steps."""
    run = base()
    assert isinstance(run.spec.model, LlamaConfig)
    model = replace(run.spec.model, num_layers=1)
    schedule = WarmupStableDecay(5e-3, warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0)
    spec = replace(run.spec, model=model, save_every_steps=None, schedule=schedule)
    every = (*RUNGS, LARGEST)
    return Sweep("rungs", tuple(replace(run, spec=replace(spec, name=f"n{steps}", num_steps=steps)) for steps in every))


def rung_branch(name: str, steps: int, order: int) -> Run:
    """A quarter of a rung's steps on one source, in a data order."""
    rung = rungs().trial(f"n{steps}")
    schedule = WarmupStableDecay(1e-3, warmup_steps=1, decay_frac=0.5, min_lr_ratio=0.0)
    spec = replace(rung.spec, name=name, num_steps=steps // 4, schedule=schedule, seed=order, start=WarmStart())
    mix = Mix(f"end-o{order}", TOKENS, (StepPhase(0, (("vendored_prose", 1.0),)),), 16, order_seed=order)
    return Run(spec, mix, rung.evaluation, start=AtStep(rung, steps))


def ladder() -> tuple[LadderForecast, Run]:
    """A forecast from four rungs in two orders, and the run that it forecasts."""
    branches = Sweep("branches", tuple(rung_branch(f"n{steps}-o{n}", steps, n) for steps in RUNGS for n in (0, 1)))
    of = LadderForecast("top", branches, asymptote=2.0)
    return of, replace(rung_branch("largest", LARGEST, 2), forecast=of)


@pytest.mark.slow
def test_a_ladder_forecasts_its_largest_branch_before_it_is_trained(tmp_path: Path) -> None:
    store, (of, target) = Store(str(tmp_path)), ladder()
    make(store, [verdict(of, target)])
    frozen = resolve(store, of.node(target)).manifest.extra["forecast"]
    assert len(frozen["rungs"]) == 8 and frozen["target"]["flops"] > frozen["largest_budget"]
    trained = resolve(store, checkpoint(target, LARGEST // 4))
    assert trained.input("forecast").data_version == resolve(store, of.node(target)).data_version
    judged = resolve(store, verdict(of, target)).manifest.extra["verdict"]
    low, high = frozen["intervals"]["0.9"]
    wanted = "low" if judged["measured"] < low else "high" if judged["measured"] > high else "hit"
    assert judged["outcome"] == wanted
    with pytest.raises(RefusedForecastError, match="the target's recipe was trained already"):
        late = LadderForecast("late", of.sweep, asymptote=2.1)
        make(store, [late.node(target)])


def test_a_ladder_is_declared_as_sweeps_and_a_run() -> None:
    of, target = ladder()
    table_of, kept = tabled(Declarations(runs=(target,), sweeps=(rungs(), of.sweep)))
    assert kept.broken == () and ("forecasts", "top", "verdict") in table_of
    node = of.node(target)
    assert set(node.inputs) == {"results", "mixture", "start"} and len(node.inputs["results"]) == 8
    build_defs(LabResource(root="unused"), ferry=small_ferry(), declared=kept)
    with pytest.raises(ValueError, match="trials n16, n24, n36, n52, n80 start from nothing; a rung is a branch"):
        LadderForecast("top", rungs())
    with pytest.raises(ValueError, match="run base starts from nothing; a ladder forecasts a branch"):
        of.node(base())


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
