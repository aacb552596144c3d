"""Every history that is declared as a graph."""

from recipes.histories.marin_8b import marin_8b
from recipes.histories.marin_32b import marin_32b
from recipes.histories.phase import History


def declared_histories() -> tuple[History, ...]:
    """The 8B and the 32B run."""
    return marin_8b(), marin_32b()
