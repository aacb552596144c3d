"""The switch to permissive licences: what remains is built; what cannot remain is refused early."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from datakit.quality.score_cutoff import ScoreCutoffConfig
from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build_all
from lineage.order.mixture import MIXTURE_FILE, StepPhase
from recipes import data
from recipes.licences import permissive
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import AtStep, Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.runs import audit, eval_result, eval_tasks, mixture
from recipes.smoke import smoke_spec
from recipes.studies.default import best_half, tiny
from recipes.studies.permissive import tiny_permissive
from recipes.suites import Suite
from trainer.spec.config import WarmStart

PSF, OTHERS = "python_topics", "package_docs"


def small_run(phases: tuple[StepPhase, ...] = (), sources: tuple[str, ...] = (PSF, OTHERS)) -> Run:
    """Pages of Python's own help, which are permissive, and descriptions of whatever is installed, which are not."""
    suites = (Suite("vendored", "vendored"),)
    corpus = Corpus("small", Scope("small", sources), decontamination("vendored", suites, sources))
    tokens = Tokens("small", corpus, TrainedTokenizer("small", vocab_size=512))
    return Run(smoke_spec(512), Mix("small", tokens, phases, block_size=8), Evaluation(suites))


def test_a_mixture_is_built_of_the_permissive_sources_alone(tmp_path: Path) -> None:
    phases = (StepPhase(0, ((PSF, 1.0), (OTHERS, 9.0))), StepPhase(100, ((PSF, 2.0),)))
    node = mixture(small_run(phases).narrowed(permissive()))
    store = Store(str(tmp_path))
    made = build_all(store, [node])[0]
    frozen = json.loads(made.files(MIXTURE_FILE)[0].read_text())
    assert [component["name"] for component in frozen["components"]] == [PSF]
    assert [phase["weights"] for phase in frozen["phases"]] == [{PSF: 1.0}, {PSF: 2.0}]
    assert not [each.name for each in ancestors_first([node]) if OTHERS in each.name], "nothing of the others is even fetched"


def test_a_phase_that_reads_none_of_them_is_refused_when_it_is_declared() -> None:
    phases = (StepPhase(0, ((PSF, 1.0), (OTHERS, 1.0))), StepPhase(100, ((OTHERS, 1.0),)))
    with pytest.raises(ValueError, match=rf"phase at step 100 reads {OTHERS} alone.* these are: {PSF}"):
        small_run(phases).narrowed(permissive())
    with pytest.raises(ValueError, match=r"phase at step 0 gives a weight to 'kjv', which is not a source of its tokens"):
        small_run((StepPhase(0, (("kjv", 1.0),)),))


def test_every_source_is_kept_or_left_out_for_a_reason() -> None:
    run, chosen = tiny(), tiny_permissive()
    left_out = dict(chosen.scope.left_out)
    assert {"wiki", "package_docs"} <= left_out.keys()
    assert sorted([*chosen.sources, *left_out]) == sorted(run.sources)


def best_half_run() -> Run:
    """A run whose corpus is chosen by a scorer that learns from sources of other licences too."""
    base = tiny()
    tokens = replace(base.tokens, name="best_half", corpus=best_half())
    return replace(base, data=replace(base.data, name="best_half", tokens=tokens))


@pytest.mark.parametrize("declare", [tiny, best_half_run, small_run])
def test_no_record_and_no_ancestor_names_a_source_that_is_left_out(declare) -> None:
    """`narrowed` is total over the composed record: the scorer's seeds and the clean sources of the index too."""
    run = declare().narrowed(permissive())
    left_out = {name for name, _ in run.scope.left_out}
    assert left_out
    named = [(where, value) for where, value in strings(run, "run") if not where.endswith("left_out")]
    assert not [(where, value) for where, value in named if value in left_out]
    step = run.spec.num_steps
    scored = [data.scores(run.corpus.scorer, source) for source in run.sources] if run.corpus.scorer else []
    nodes = ancestors_first([audit(run, step), eval_result(run, step, eval_tasks(run), "x"), *scored])
    assert not [node.name for node in nodes if node.partition in left_out]


def test_every_named_record_of_a_narrowed_run_has_a_name_of_its_own() -> None:
    """Otherwise it would mean two artifacts by one key. Suites and published models are taken as they are."""
    run = best_half_run()
    before, after = (dict(strings(each, "run")) for each in (run, run.narrowed(permissive())))
    same = {where for where, value in before.items() if where.endswith(".name") and after.get(where) == value}
    assert not [where for where in same if ".suites" not in where and ".shots" not in where]


def strings(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Every string in a record, with the fields that lead to it."""
    if isinstance(value, str):
        yield where, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from strings(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, tuple):
        for i, each in enumerate(value):
            yield from strings(each, where if where.endswith("left_out") else f"{where}[{i}]")


def test_a_scorer_without_seeds_of_both_labels_is_refused() -> None:
    base = best_half_run()
    assert isinstance(base.corpus.best_scores, ScoreCutoffConfig) and base.corpus.scorer is not None
    seeds = tuple(seed for seed in base.corpus.scorer.seeds if seed.label == "positive" or seed.source == "package_docs")
    corpus = replace(base.corpus, scorer=replace(base.corpus.scorer, seeds=seeds))
    with pytest.raises(ValueError, match=r"scorer reference_prose-permissive: its seeds have the labels \['positive'\]"):
        corpus.narrowed(permissive())


def test_so_is_the_run_that_a_run_starts_from() -> None:
    first = tiny()
    warm = replace(first, spec=replace(first.spec, name="warm", start=WarmStart()), start=AtStep(first, first.spec.num_steps))
    start = warm.narrowed(permissive()).start
    assert isinstance(start, AtStep)
    assert start.run == tiny_permissive()


def test_a_source_without_a_weight_is_named_before_anything_is_fetched() -> None:
    """Nobody has counted the tokens of some sources of the hub: their weight is 0."""
    sources = (PSF, "dolmino_math_gsm8k", "tulu_3")
    with pytest.raises(ValueError, match="mixture_weight of dolmino_math_gsm8k, tulu_3 is 0"):
        mixture(small_run(sources=sources))
    assert tiny().data.weights()[0].start_step == 0
    phases = (StepPhase(0, ((PSF, 1.0), ("dolmino_math_gsm8k", 1.0), ("tulu_3", 0.1))),)
    assert len(mixture(small_run(phases, sources)).inputs["caches"]) == 3
