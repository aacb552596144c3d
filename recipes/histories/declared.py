"""Every history that is declared as a graph."""

from recipes.histories.marin_8b import marin_8b
from recipes.histories.marin_32b import marin_32b
from recipes.histories.marin_moe import june_model, marin_1e22, marin_1e23
from recipes.histories.phase import History


def declared_histories() -> tuple[History, ...]:
    """The 8B and the 32B run, the mixtures of experts of 1e22 and 1e23 FLOPs, and the June model."""
    return marin_8b(), marin_32b(), marin_1e22(), marin_1e23(), june_model()
