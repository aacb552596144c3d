"""The ferry that the lab makes every day: its own, where a recipe file declares one, else the smoke ferry."""

from functools import cache

from recipes.ferry import Ferry
from recipes.smoke import smoke_ferry
from recipes.sources import own_recipes


@cache
def daily_ferry() -> Ferry:
    """Return the lab's ferry. Raises: ValueError if two recipe files declare one; what the declaration raises."""
    declared = own_recipes().ferries
    if len(declared) > 1:
        raise ValueError(f"{' and '.join(declared)} each declare a ferry; a lab has one: delete the function in the others")
    return next((ferry() for ferry in declared.values()), None) or smoke_ferry()
