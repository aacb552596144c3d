"""Groups of the graph by purpose, and the team that owns the assets of each."""

from types import MappingProxyType

DATA, TRAINING, EVALUATION, OPERATIONS = "team:data", "team:training", "team:evaluation", "team:operations"

OWNER_OF_GROUP = MappingProxyType(
    {
        "sources": DATA,
        "documents": DATA,
        "contamination": EVALUATION,
        "corpora": DATA,
        "tokens": DATA,
        "evaluation": EVALUATION,
        "runs": TRAINING,
        "sweeps": TRAINING,
        "models": TRAINING,
        "comparisons": EVALUATION,
        "histories": EVALUATION,
        "canary": OPERATIONS,
        "ferry_data": OPERATIONS,
        "ferry_run": OPERATIONS,
        "operations": OPERATIONS,
        "broken": OPERATIONS,
    }
)
"""Every group that an asset may have. `broken` exists only while a declaration is disabled."""


def owners(group: str) -> list[str]:
    """Return the owners of the assets of a group. Raises: KeyError for a group that is not declared here."""
    return [OWNER_OF_GROUP[group]]
