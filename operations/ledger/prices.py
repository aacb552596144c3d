"""Prices of hardware and storage, and the dollars of an attempt, in decimal arithmetic.

An unknown price is None, and every sum that needs it is None: an unknown cost is never 0.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Literal, get_args

from lineage.jobs.summary import THIS_MACHINE

type Unit = Literal["cpu_hour", "machine_hour", "gib_month"]

EXACT = Context(prec=38)
PLACES = Decimal("1E-12")
SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True)
class Price:
    """A price in force from a day until a later price of the same thing.

    `what` is the name of hardware (`machine_hour`: the whole slice or node group), `this machine` (`cpu_hour`), or a storage
    class (`gib_month`). If an attempt is one pod of a machine of several hosts, it pays for one host.
    """

    what: str
    unit: Unit
    dollars: Decimal
    since: str
    source: str
    hosts: int = 1

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit.__value__):
            raise ValueError(f"price of {self.what}: unit is {self.unit!r}; allowed: {', '.join(get_args(Unit.__value__))}")
        if self.dollars < 0 or self.hosts < 1 or not self.source.strip():
            raise ValueError(
                f"price of {self.what}: dollars {self.dollars}, hosts {self.hosts}, source {self.source!r}; "
                "dollars >= 0, hosts >= 1 and a source are needed"
            )
        datetime.date.fromisoformat(self.since)


@dataclass(frozen=True)
class Cost:
    """The dollars of an attempt; None with the reason if they are not known."""

    dollars: Decimal | None
    unknown: str


@dataclass(frozen=True)
class PriceTable:
    """All declared prices."""

    prices: tuple[Price, ...]

    def __post_init__(self) -> None:
        places = [(price.what, price.unit, price.since) for price in self.prices]
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise ValueError(f"the price of {twice[0]} per {twice[1]} since {twice[2]} is declared twice; keep one")

    def at(self, what: str, unit: Unit, day: str) -> Price | None:
        """Return the price in force on a day (YYYY-MM-DD), or None."""
        in_force = [price for price in self.prices if price.what == what and price.unit == unit and price.since <= day]
        return max(in_force, key=lambda price: price.since, default=None)

    def of_hardware(self, hardware: str, day: str) -> Price | None:
        """Return the price of work: by CPU hours on this machine, else by hours of the hardware."""
        return self.at(hardware, "cpu_hour" if hardware == THIS_MACHINE else "machine_hour", day)


def cost(
    price: Price | None, day: str, hardware: str, seconds: float | None, cpu_seconds: float | None, *, one_host: bool
) -> Cost:
    """Return the cost of an attempt at the price of its hardware on its day.

    `one_host`: the attempt is one pod, so it costs its host's share of a machine of several hosts.
    """
    used = cpu_seconds if hardware == THIS_MACHINE else seconds
    if used is None:
        return Cost(None, f"an attempt on {hardware} has no recorded end")
    if price is None:
        return Cost(None, f"no price of {hardware or 'hardware without a name'} on {day}")
    return Cost(charge(price, used, price.hosts if one_host else 1), "")


def charge(price: Price, seconds: float, hosts: int) -> Decimal:
    """Return the dollars of some seconds, to 1e-12 dollars."""
    hours = EXACT.divide(Decimal(str(seconds)), SECONDS_PER_HOUR)
    share = EXACT.divide(EXACT.multiply(hours, price.dollars), Decimal(hosts))
    return share.quantize(PLACES, context=EXACT)


def total(costs: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum, or None if one of them is not known."""
    amounts: Sequence[Decimal | None] = list(costs)
    return None if None in amounts else EXACT.create_decimal(sum((cost for cost in amounts if cost is not None), Decimal(0)))
