"""Should Adam's beta2 follow the batch? beta2 x batch at equal tokens.

Marek et al. 2025 (arXiv 2507.07101) keep its half-life in tokens (`science.published.half_life_tokens`); Marin's sweep of the
same two (marin-community/marin#4567) is in `science.published.BETA_SWEEPS`.
"""

from recipes.records.sweep import Sweep
from recipes.studies.small_models import SEQ_LEN, small_model, small_rate, small_run
from recipes.study import Study

WIDTH, TOKENS = 32, 500_000
BATCHES, BETAS = (2, 8, 32), (0.95, 0.98, 0.99, 0.995, 0.999)


def study() -> Study:
    return Study("Which beta2 suits which batch?", sweeps=(beta2_by_batch,))


def beta2_by_batch() -> Sweep:
    """Five values at three batches, all over as many tokens."""
    model = small_model(WIDTH)
    return Sweep(
        "beta2_by_batch",
        tuple(
            small_run(
                f"b{batch}-beta{beta2:g}",
                model,
                TOKENS // (batch * SEQ_LEN),
                small_rate(WIDTH, batch),
                batch=batch,
                beta2=beta2,
            )
            for batch in BATCHES
            for beta2 in BETAS
        ),
    )
