"""The default corpus, and the run `tiny` that shows checkpoints as step partitions; other studies build on both."""

from dataclasses import replace
from functools import cache

from datakit.corpus.filters import CorpusConfig
from datakit.quality.score_cutoff import ScoreCutoffConfig
from recipes.domains import text_domains
from recipes.gaps import Gap, at_step
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.scorers import reference_prose
from recipes.smoke import ONLINE_SOURCES, smoke_spec
from recipes.study import Study
from recipes.suites import SUITES_DATE, main_suite, shot_suites, wider_suites
from trainer.spec.config import RunSpec


def study() -> Study:
    return Study(
        "What does a small model learn from the default corpus?",
        runs=(tiny,),
        corpora=(best_half,),
        gaps=(tiny_learns,),
        policies=(default_corpus,),
    )


@cache
def default_corpus() -> Corpus:
    """Eight small sources, cleaned of every suite that checkpoints are evaluated on."""
    scope = Scope("default", ONLINE_SOURCES)
    cleaned = decontamination(f"suites-{SUITES_DATE}", (main_suite(), *wider_suites()), scope.sources)
    return Corpus("default", scope, cleaned, scorer=reference_prose(), domain_model=text_domains())


@cache
def default_mix() -> Mix:
    tokens = Tokens("default-bpe8k", default_corpus(), TrainedTokenizer("bpe8k", vocab_size=8192))
    return Mix("default", tokens)


@cache
def default_evaluation() -> Evaluation:
    return Evaluation((main_suite(), *wider_suites()), shot_suites())


def tiny_spec(vocab_size: int) -> RunSpec:
    """About a minute on two cores."""
    return replace(smoke_spec(vocab_size), name="tiny", num_steps=150, save_every_steps=50)


@cache
def tiny() -> Run:
    """The declared run that the others are compared with."""
    mix = default_mix()
    return Run(tiny_spec(mix.tokens.vocab_size), mix, default_evaluation())


def best_half() -> Corpus:
    """The default corpus, but only the better-scored half of each source."""
    return replace(
        default_corpus(),
        name="best_half",
        filters=CorpusConfig(best_scores=True),
        best_scores=ScoreCutoffConfig(keep_frac=0.5, over="source"),
    )


def tiny_learns() -> Gap:
    """What training buys `tiny` between its first and its last checkpoint."""
    run = tiny()
    first, *_, last = run.spec.saved_steps()
    return Gap("tiny_learns", at_step(run, first), at_step(run, last), run)
