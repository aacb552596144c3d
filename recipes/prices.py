"""What the lab pays: declared prices of hardware, CPU hours and storage, with their dates and sources.

Accelerators have the prices of `recipes.hardware`. A new price is a new record with a later day; old records stay, because old
attempts cost what they cost then.
"""

from decimal import Decimal

from lineage.jobs.summary import THIS_MACHINE
from operations.ledger.prices import Price, PriceTable
from recipes.hardware import base_shapes

SINCE = "2026-01-01"
_MEMORY = "from memory of Google Cloud's list price in us-central1, not read again (2026-11-25)"
CPU_HOUR = Decimal("0.0485")
"""Dollars of a vCPU hour of an n2-standard machine with its 4 GiB: .388 an hour for eight of them."""
CPU_POD_PROCESSORS = 2
"""Processors that a pod on `cpu` hardware requests (`recipes.hardware`)."""
STORAGE = {"STANDARD": "0.020", "NEARLINE": "0.010", "COLDLINE": "0.004", "ARCHIVE": "0.0012", "local": "0.040"}
"""Dollars a GiB and month. `local` is declared as a standard persistent disk."""


def price_table() -> PriceTable:
    """Return every price that the lab declares."""
    machines = [
        Price(
            shape.name,
            "machine_hour",
            shape.chips * Decimal(str(shape.chip.price.dollars_per_chip_hour)),
            SINCE,
            shape.chip.price.source,
            shape.pods,
        )
        for shape in base_shapes().values()
        if shape.chip is not None
    ]
    processors = [
        Price(THIS_MACHINE, "cpu_hour", CPU_HOUR, SINCE, _MEMORY),
        Price("cpu", "machine_hour", CPU_HOUR * CPU_POD_PROCESSORS, SINCE, _MEMORY),
    ]
    storage = [Price(name, "gib_month", Decimal(dollars), SINCE, _MEMORY) for name, dollars in STORAGE.items()]
    return PriceTable((*machines, *processors, *storage))
