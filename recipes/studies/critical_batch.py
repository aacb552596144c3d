"""Up to which batch do equal tokens give equal loss? Batches x rates at equal tokens.

The rate follows the square root of the batch and is tried at half and twice that, because a batch is judged at its own best
rate (McCandlish et al. 2018, arXiv 1812.06162).
"""

from dataclasses import replace

from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies.small_models import SEQ_LEN, small_model, small_rate, small_run
from recipes.study import Study
from science.batch_stage import CriticalBatchConfig

WIDTH, TOKENS = 48, 500_000
BATCHES, MULTIPLIERS = (2, 4, 8, 16, 32, 64), (0.5, 1.0, 2.0)
WARMUP_SHARE = 0.4
"""As many tokens for each batch. After a tenth of the steps some orders of the data leave a model that learns slowly
(docs/log.md, 2026-11-27)."""
MICROBATCHES = 8
"""In a step, or as many as it has sequences: they show the noise of its gradient."""


def study() -> Study:
    return Study("What is the critical batch of a small model?", sweeps=(critical_batch,))


def critical_batch() -> Sweep:
    """Six batches at three rates, all over as many tokens."""
    trials = tuple(trial(batch, multiplier) for batch in BATCHES for multiplier in MULTIPLIERS)
    return Sweep("critical_batch", trials, critical_batch=CriticalBatchConfig())


def trial(batch: int, multiplier: float) -> Run:
    """A run at a batch and a multiple of its rate, which records the noise of its gradients."""
    steps, rate = TOKENS // (batch * SEQ_LEN), multiplier * small_rate(WIDTH, batch)
    warmup = max(1, round(WARMUP_SHARE * steps))
    run = small_run(f"b{batch}-lr{multiplier:g}", small_model(WIDTH), steps, rate, batch=batch, warmup_steps=warmup)
    return replace(run, spec=replace(run.spec, microbatch_size=max(1, batch // MICROBATCHES), gradient_noise=True))
