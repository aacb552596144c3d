"""Small models that judge a corpus: pairs of equal runs over two corpora, one held-out text, and what is refused."""

from dataclasses import replace

import pytest

from lineage.build.nodes import ancestors_first
from marin_assets.declared_table import tabled
from recipes.data import corpora
from recipes.lab import Declarations
from recipes.proxies import Proxy, proxy_verdict
from recipes.records.data import Corpus
from recipes.records.run import AtStep
from recipes.records.tokens import TrainedTokenizer
from recipes.runs import checkpoint, eval_tasks, task_result
from recipes.studies.default import best_half, default_corpus
from recipes.studies.mixing import base as judge
from recipes.studies.proxy import best_half_judged
from recipes.studies.small_models import small_mix
from recipes.sweeps import result
from recipes.tokenized import tokenizer
from trainer.spec.config import WarmStart


def after(**filters: object) -> Corpus:
    return replace(default_corpus(), name="after", filters=replace(default_corpus().filters, **filters))


def against(corpus: Corpus) -> tuple[tuple[str, Corpus], ...]:
    return (("before", default_corpus()), ("after", corpus))


def test_a_pair_is_one_run_over_two_corpora() -> None:
    of = best_half_judged()
    control, tried = of.arms
    assert of.config.corpora == ("before", "after") and [run.spec.seed for run in control.trials] == list(range(6))
    for base, other in zip(control.trials, tried.trials, strict=True):
        assert base.spec == other.spec and base.data.order_seed == other.data.order_seed == base.spec.seed
        assert replace(base.data, tokens=other.tokens) == other.data
        assert replace(base, data=other.data, place=other.place) == other
    assert {run.corpus.name for run in control.trials} == {"default"} and {run.corpus for run in tried.trials} == {best_half()}


def test_all_runs_have_one_tokenizer_and_are_scored_on_one_text() -> None:
    of = best_half_judged()
    every = [run for arm in of.arms for run in arm.trials]
    assert all(result(run).inputs["corpora"] == corpora(default_corpus()) for run in every)
    assert all(tokenizer(run.tokens) == tokenizer(small_mix().tokens) for run in every)
    keys = {node.key for node in ancestors_first([proxy_verdict(of)]) if node.key[0] == "proxies"}
    arms = {("proxies", "best_half", arm, name) for arm in ("before", "after") for name in ("mixture", "trial", "result")}
    assert keys == arms | {("proxies", "best_half", "verdict")}
    nodes = proxy_verdict(of).inputs["results"]
    assert isinstance(nodes, tuple) and [(node.key[2], node.partition) for node in nodes] == [
        (arm, f"s{seed}") for arm in ("before", "after") for seed in range(6)
    ]


def test_another_text_can_score_all_runs() -> None:
    third = after(drop_low_quality=False)
    of = replace(best_half_judged(), scored_on=third)
    assert all(result(run).inputs["corpora"] == corpora(third) for arm in of.arms for run in arm.trials)
    table, kept = tabled(Declarations(proxies=(of,)))
    assert kept.broken == () and ("corpus", "after") in table and ("proxies", "best_half", "verdict") in table


def test_a_tokenizer_of_the_base_run_that_names_its_corpus_is_kept() -> None:
    named = TrainedTokenizer("other", 1024, corpus=after(drop_low_quality=False))
    base = judge()
    base = replace(base, data=replace(base.data, tokens=replace(base.tokens, name="other", tokenizer=named)))
    of = replace(best_half_judged(), base=base)
    assert {run.tokens.tokenizer for arm in of.arms for run in arm.trials} == {named}


def test_a_declared_run_scored_on_another_corpus_reads_its_held_out_text_in_every_evaluation() -> None:
    run = replace(judge(), scored_on=after(drop_low_quality=False))
    task = next(task for task in eval_tasks(run) if task.name == "heldout")
    assert task_result(run, run.spec.num_steps, task).inputs["corpora"] == corpora(run.heldout_corpus) != corpora(run.corpus)
    assert checkpoint(run, run.spec.num_steps) == checkpoint(judge(), run.spec.num_steps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpora": (("before", default_corpus()),)}, "give a control and at least one other"),
        ({"seeds": (0, 1)}, "give at least 3"),
        ({"max_epochs": 0.0}, "max_epochs is 0.0; it must be above 0"),
        (
            {"corpora": (("after", best_half()), ("before", default_corpus()))},
            "its base run reads corpus default, its control after is best_half; give the base run the control",
        ),
        (
            {"corpora": against(after(split_salt="other"))},
            "held-out text of corpus default, and its own corpus after may train on that: filters.split_salt is other here and "
            "heldout-1 there",
        ),
        ({"corpora": against(after(heldout_frac=0.01))}, "filters.heldout_frac is 0.01 here and 0.02 there"),
        (
            {"corpora": against(replace(after(), scope=replace(default_corpus().scope, name="finer", minhash="20x5")))},
            "scope is finer here and default there; make them equal, so that both hold out the same documents",
        ),
        ({"scored_on": after(split_salt="other")}, "corpus default may train on that: filters.split_salt is heldout-1 here"),
    ],
)
def test_a_proxy_that_cannot_answer_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(best_half_judged(), **change)


def test_a_start_is_refused_by_its_name() -> None:
    before = judge()
    spec = replace(before.spec, name="later", start=WarmStart())
    base = replace(before, spec=spec, start=AtStep(before, before.spec.num_steps))
    with pytest.raises(ValueError, match="proxy p: its base run later has a start, whose text would be part of the answer"):
        Proxy("p", base, against(best_half()))
