"""Dollars of attempts, kept below the store's root: decimal arithmetic takes most of the time of a ledger that is up to date.

The file is a cache of `operations.ledger.prices.cost` for one price table and may be deleted at any time.
"""

import io

import polars as pl

from lineage.artifact.store import Store
from lineage.storage.digests import identity_digest
from operations.ledger.prices import Price, PriceTable, cost
from operations.ledger.schema import MONEY, VERSION

CACHE = ".operations/ledger/costs.parquet"
FEW = 2_048
"""Fewer attempts are calculated each time."""
USE = {"day": pl.String, "hardware": pl.String, "seconds": pl.Float64, "cpu_seconds": pl.Float64, "one_host": pl.Boolean}
COSTS = {**USE, "dollars": MONEY, "unpriced": pl.String}


def priced(store: Store, attempts: pl.DataFrame, prices: PriceTable) -> pl.DataFrame:
    """Return the attempts with `dollars` and `unpriced` (why the dollars are NULL)."""
    uses = attempts.select(pl.col("started").str.slice(0, 10).alias("day"), *list(USE)[1:])
    costs = calculated(uses.unique(), prices) if uses.height < FEW else _kept(store, uses, prices)
    joined = uses.join(costs, on=list(USE), how="left", nulls_equal=True, maintain_order="left")
    return attempts.with_columns(joined["dollars"], joined["unpriced"])


def calculated(uses: pl.DataFrame, prices: PriceTable) -> pl.DataFrame:
    """Return the cost of each use (COSTS)."""
    in_force: dict[tuple[str, str], Price | None] = {}
    costs = []
    for day, hardware, seconds, cpu_seconds, one_host in uses.iter_rows():
        if (day, hardware) not in in_force:
            in_force[day, hardware] = prices.of_hardware(hardware, day)
        costs.append(cost(in_force[day, hardware], day, hardware, seconds, cpu_seconds, one_host=one_host))
    return uses.with_columns(
        dollars=pl.Series([cost.dollars for cost in costs], dtype=MONEY),
        unpriced=pl.Series([cost.unknown for cost in costs], dtype=pl.String),
    )


def _kept(store: Store, uses: pl.DataFrame, prices: PriceTable) -> pl.DataFrame:
    of = identity_digest([VERSION, *(str(price) for price in prices.prices)])
    costs = _load(store, of)
    fresh = uses.join(costs, on=list(USE), how="anti", nulls_equal=True).unique()
    if not fresh.height:
        return costs
    if costs.height > 2 * uses.height:  # most of it is of attempts that are gone
        costs = costs.join(uses, on=list(USE), how="semi", nulls_equal=True)
    costs = pl.concat([costs, calculated(fresh, prices)])
    sink = io.BytesIO()
    costs.write_parquet(sink, compression="lz4", metadata={"marin.prices": of}, statistics=False)
    store.storage.replace(CACHE, sink.getvalue())
    return costs


def _load(store: Store, of: str) -> pl.DataFrame:
    """Return what was kept for a price table; nothing if there is no file, or it is of other prices."""
    data = store.storage.read_bytes(CACHE)
    if data is None or pl.read_parquet_metadata(io.BytesIO(data)).get("marin.prices") != of:
        return pl.DataFrame(schema=COSTS)
    return pl.read_parquet(io.BytesIO(data))
