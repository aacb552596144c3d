"""The smoke model and the daily ferry that trains it, with and without a package registry."""

from dataclasses import replace

from recipes.ferry import Ferry
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.suites import Suite, main_suite
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay

ONLINE_SOURCES = ("stdlib_code", "stdlib_html", "sotu", "kjv", "wiki", "math_docstrings", "python_topics", "package_docs")
OFFLINE_SOURCES = ("stdlib_code", "stdlib_html", "vendored_prose", "python_topics", "package_docs")


def smoke_spec(vocab_size: int) -> RunSpec:
    """The daily ferry's model, 1.9 M parameters over 1 M tokens: about four minutes on two cores (`docs/log.md`)."""
    return RunSpec(
        name="smoke",
        model=LlamaConfig(
            vocab_size=vocab_size,
            hidden_dim=128,
            intermediate_dim=352,
            num_layers=4,
            num_heads=4,
            num_kv_heads=2,
            max_seq_len=256,
        ),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=40, decay_frac=0.4, min_lr_ratio=0.1),
        batch_size=8,
        seq_len=256,
        num_steps=480,
        seed=1,
        save_every_steps=160,
    )


def smoke_run(sources: tuple[str, ...], suite: Suite) -> Run:
    """The daily run over some sources, decontaminated against and evaluated on one suite."""
    corpus = Corpus("smoke", Scope("smoke", sources), decontamination("benchmarks", (suite,), sources))
    tokens = Tokens("smoke-bpe8k", corpus, TrainedTokenizer("bpe8k", vocab_size=8192))
    return Run(smoke_spec(tokens.vocab_size), Mix("smoke", tokens), Evaluation((suite,)))


def smoke_ferry() -> Ferry:
    """The daily ferry, isolated under `ferry/`. Offline it runs on the sources and items that need no registry."""
    online = smoke_run(ONLINE_SOURCES, main_suite())
    return Ferry(online, offline=smoke_run(OFFLINE_SOURCES, replace(main_suite(), kind="vendored")))
