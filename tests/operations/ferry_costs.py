"""The cost of a store's work by hand: from the files of the summaries, with fractions, without the ledger."""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from lineage.artifact.store import Store
from lineage.jobs.summary import SUMMARIES

CPU_HOUR = Fraction("0.0485")


def cost_by_hand(store: Store) -> Decimal:
    """Sum of CPU seconds times the price, each attempt rounded to 1e-12 dollars."""
    texts = [path.read_text() for path in (Path(store.root) / SUMMARIES).rglob("*.json")]
    costs = [Fraction(str(json.loads(text)["cpu_seconds"])) * CPU_HOUR / 3600 for text in texts]
    return Decimal(sum(round(cost * 10**12) for cost in costs)) / 10**12
