"""The small ferry: vendored text and items, a model of two layers. No Dagster: `build_small_ferry.py` imports this file."""

from dataclasses import replace

from recipes.ferry import Ferry
from recipes.lab import Declarations
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.smoke import smoke_spec
from recipes.suites import Suite
from trainer.spec.config import RunSpec

DAY = "2026-11-20"
SUITES = (Suite("small", "vendored"),)


def small_spec(name: str) -> RunSpec:
    """Two steps' worth of a model."""
    spec = smoke_spec(1024)
    return replace(
        spec,
        name=name,
        model=replace(
            spec.model, hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=1, max_seq_len=128
        ),
        schedule=replace(spec.schedule, warmup_steps=4),
        seq_len=128,
        batch_size=8,
        num_steps=40,
        save_every_steps=20,
    )  # fmt: skip


def small_corpus(*sources: str) -> Corpus:
    """Text that the repository ships, or some sources."""
    scope = Scope("small", sources or ("vendored_prose",))
    return Corpus("small", scope, decontamination("small", SUITES, scope.sources))


def small_run(name: str, *sources: str) -> Run:
    """A small model over a small corpus."""
    tokens = Tokens("small-bpe1k", small_corpus(*sources), TrainedTokenizer("bpe1k", vocab_size=1024))
    return Run(small_spec(name), Mix("small", tokens), Evaluation(SUITES))


def small_ferry() -> Ferry:
    run = small_run("smoke")
    return Ferry(online=run, offline=run)


def small_declarations() -> Declarations:
    """One declared run, `tiny`, over the small corpus; the published policies mark its source too."""
    return Declarations(runs=(small_run("tiny"),), policies=(small_corpus(),))
