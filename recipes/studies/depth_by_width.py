"""How deep should a width be? Layers x widths at one budget; `science.heuristics.layers` is the published rule."""

from recipes.records.sweep import Sweep
from recipes.studies.small_models import small_model, small_rate, small_run, steps_for
from recipes.study import Study

WIDTHS, DEPTHS = (32, 48, 64), (1, 2, 3, 4, 6)
BUDGET = 1e12


def study() -> Study:
    return Study("How deep should a small model be at its width?", sweeps=(depth_by_width,))


def depth_by_width() -> Sweep:
    """Five depths of three widths, each with the steps that take the budget."""
    models = [(width, depth, small_model(width, depth)) for width in WIDTHS for depth in DEPTHS]
    return Sweep(
        "depth_by_width",
        tuple(
            small_run(f"d{width}-l{depth}", model, steps_for(model, BUDGET), small_rate(width))
            for width, depth, model in models
        ),
    )
