"""Up to which batch do equal tokens give equal loss? Batches x rates at equal tokens.

Every batch is tried at the same rates, because a batch is judged at its own best one (McCandlish et al. 2018, arXiv
1812.06162), and the best must not lie at an edge. The model is that of the swarm of `mixing.py`, whose seeds agree.
"""

from dataclasses import replace

from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies.mixing import steady_model
from recipes.studies.small_models import SEQ_LEN, small_run
from recipes.study import Study
from science.batch_stage import CriticalBatchConfig

TOKENS = 1 << 19
"""A multiple of every batch: the fit refuses tokens that differ by more than 1 %."""
BATCHES, RATES = (2, 4, 8, 16, 32, 64), (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
WARMUP_SHARE = 0.4
"""As many tokens for each batch. After a tenth of the steps some orders of the data leave a model that learns slowly
(docs/log.md, 2026-11-27)."""
MICROBATCHES = 8
"""In a step, or as many as it has sequences: they show the noise of its gradient."""


def study() -> Study:
    return Study("What is the critical batch of a small model?", sweeps=(critical_batch,))


def critical_batch() -> Sweep:
    """Six batches at seven rates, all over as many tokens."""
    trials = tuple(trial(batch, rate) for batch in BATCHES for rate in RATES)
    return Sweep("critical_batch", trials, critical_batch=CriticalBatchConfig())


def trial(batch: int, rate: float) -> Run:
    """A run at a batch and a rate, which records the noise of its gradients."""
    steps = TOKENS // (batch * SEQ_LEN)
    run = small_run(f"b{batch}-lr{rate:g}", steady_model(), steps, rate, batch=batch, warmup_steps=round(WARMUP_SHARE * steps))
    return replace(run, spec=replace(run.spec, microbatch_size=max(1, batch // MICROBATCHES), gradient_noise=True))
