"""The family of small models that other sweeps are made of, and whether its rule for the learning rate holds at every width.

The family has a vocabulary of 1,024 and batches of 512 tokens: with a larger head most FLOPs of a small width are the head's,
and with batches of 2,048 tokens a run of width 32 and 1e12 FLOPs ended at 4.669 nats instead of 4.599 (one seed, 2026-11-23).
"""

import math
from functools import cache

from recipes.records.run import Execution, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.studies.default import default_corpus, default_evaluation
from recipes.study import Study
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.settings import RuntimeOptions

SEQ_LEN, BATCH = 256, 2
LAYERS = {16: 2, 24: 2, 32: 2, 48: 2, 64: 3, 80: 3, 96: 4, 128: 5}
HEADS = {16: 2, 24: 2, 32: 4, 48: 4, 64: 4, 80: 5, 96: 6, 128: 8}
MOST_RATE = 0.01
BETA2 = 0.99
TUNED_WIDTHS, MULTIPLIERS = (16, 32, 64), (0.25, 0.5, 1.0, 2.0, 4.0)
TUNED_TOKENS = 400_000


def study() -> Study:
    return Study("Which peak rate suits which width?", sweeps=(rates_by_width,))


def rates_by_width() -> Sweep:
    """Five multiples of the family's rate at three widths, over as many tokens."""
    steps = TUNED_TOKENS // (BATCH * SEQ_LEN)
    return Sweep(
        "rates_by_width",
        tuple(
            small_run(f"d{width}-lr{multiplier:g}", small_model(width), steps, multiplier * small_rate(width))
            for width in TUNED_WIDTHS
            for multiplier in MULTIPLIERS
        ),
    )


@cache
def small_mix() -> Mix:
    """The default corpus under a tokenizer of 1,024 words."""
    return Mix("default-bpe1k", Tokens("default-bpe1k", default_corpus(), TrainedTokenizer("bpe1k", vocab_size=1024)))


def small_model(width: int, layers: int | None = None) -> LlamaConfig:
    """The model of a width; None: as deep as the family has it. Raises: ValueError for another width."""
    if width not in LAYERS:
        raise ValueError(f"width is {width}; the family has {', '.join(map(str, LAYERS))}")
    vocabulary, heads = small_mix().tokens.vocab_size, HEADS[width]
    return LlamaConfig(vocabulary, width, width * 8 // 3 // 8 * 8, layers or LAYERS[width], heads, heads, SEQ_LEN)


def small_rate(width: int, batch: int = BATCH) -> float:
    """Adam's rate of the family: .2 sqrt(B) / d, at most .01; the form of the dense rule in `science.heuristics`."""
    return min(0.2 * math.sqrt(batch) / width, MOST_RATE)


def steps_for(model: LlamaConfig, budget: float, batch: int = BATCH) -> int:
    """Steps that take a budget of training FLOPs."""
    return max(1, round(budget / (model.training_flops_per_token(SEQ_LEN) * batch * SEQ_LEN)))


def small_run(
    name: str,
    model: LlamaConfig,
    steps: int,
    rate: float,
    *,
    batch: int = BATCH,
    beta2: float = BETA2,
    seed: int = 0,
    warmup_steps: int | None = None,
) -> Run:
    """A run that keeps its last checkpoint; the rate is constant after its warm-up and falls to 0 over the last 40 %.

    Without `warmup_steps` they are a tenth of the steps, at most 200. With as few, seeds differ by up to .2 nats (docs/log.md,
    2026-11-27).
    """
    warmup = min(200, max(1, steps // 10)) if warmup_steps is None else warmup_steps
    schedule = WarmupStableDecay(rate, warmup_steps=warmup, decay_frac=0.4, min_lr_ratio=0.0)
    spec = RunSpec(name, model, AdamWConfig(beta2=beta2), schedule, batch, SEQ_LEN, steps, seed)
    return Run(spec, small_mix(), default_evaluation(), execution=Execution(settings=RuntimeOptions(rolling_seconds=120.0)))


def at_budget(name: str, width: int, budget: float, *, seed: int = 0, multiplier: float = 1.0) -> Run:
    """The run of a width that takes a budget, at a multiple of the family's rate."""
    model = small_model(width)
    return small_run(name, model, steps_for(model, budget), multiplier * small_rate(width), seed=seed)
