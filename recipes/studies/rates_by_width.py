"""Does the best learning rate fall with the width as the rule says? Rates x widths at equal tokens."""

from recipes.small_models import BATCH, SEQ_LEN, small_model, small_rate, small_run
from recipes.study import Study, Sweep

WIDTHS, MULTIPLIERS = (16, 32, 64), (0.25, 0.5, 1.0, 2.0, 4.0)
TOKENS = 400_000


def study() -> Study:
    return Study("Which peak rate suits which width?", sweeps=(rates_by_width,))


def rates_by_width() -> Sweep:
    """Five multiples of the family's rate at three widths."""
    steps = TOKENS // (BATCH * SEQ_LEN)
    return Sweep(
        "rates_by_width",
        tuple(
            small_run(f"d{width}-lr{multiplier:g}", small_model(width), steps, multiplier * small_rate(width))
            for width in WIDTHS
            for multiplier in MULTIPLIERS
        ),
    )
