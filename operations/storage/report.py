"""What storage holds: bytes by prefix, owner, storage class and age, when they were last read, and what a month costs.

The report counts the files of a listing, so it also shows what belongs to no artifact: data in the trash of a purge, leftovers
of killed writers, records of operations.
"""

import datetime
from collections.abc import Sequence
from decimal import Decimal

import polars as pl

from lineage.artifact.store import Store
from operations.ledger.database import opened, query
from operations.ledger.ledger import Ledger, name_of
from operations.ledger.prices import EXACT, PriceTable
from operations.ledger.schema import MONEY, STORAGE

GIB = Decimal(2**30)
AGES = (("under 7 days", 7), ("7 to 30 days", 30), ("30 to 90 days", 90))
OLDER = "over 90 days"
NO_ARTIFACT = "(no artifact)"
"""Prefix of data folders without a manifest."""
ARTIFACTS = """SELECT a.store, a.address, a.prefix, a.owner, a.created, u.used_at
               FROM artifacts a JOIN last_used u USING (store, address)"""
BY = ("store", "prefix", "owner", "storage_class", "age")
REPORT = {"store": pl.String, **{name: kind for name, kind in STORAGE.items() if name != "day"}}
"""A row for each combination of BY, most bytes first."""


def storage_report(stores: Sequence[Store], ledger: Ledger, prices: PriceTable, today: datetime.date) -> pl.DataFrame:
    """Return the report (REPORT) by a listing of each store."""
    files = pl.concat([_files(store) for store in stores])
    with opened(ledger) as connection:
        artifacts = query(connection, ARTIFACTS)
    rows = files.join(artifacts, on=["store", "address"], how="left").with_columns(
        age=_ages(today),
        prefix=pl.coalesce("prefix", pl.when(pl.col("address") == "").then(pl.col("top")).otherwise(pl.lit(NO_ARTIFACT))),
        owner=pl.col("owner").fill_null(""),
    )
    grouped = rows.group_by(BY).agg(
        pl.col("address").filter(pl.col("created").is_not_null()).n_unique().cast(pl.Int64).alias("artifacts"),
        pl.col("bytes").sum(),
        pl.col("used_at").max().alias("last_read"),
    )
    return _priced(grouped.sort("bytes", *BY, descending=[True, *[False] * len(BY)]), prices, today)


def _files(store: Store) -> pl.DataFrame:
    """Return bytes by address and class. Files outside data folders have the address "" and their top folder's name."""
    listed = store.storage.listed("")
    default = "" if "://" in store.root else "local"
    rows = [(path, facts.size, facts.storage_class or default) for path, facts in listed.items()]
    schema = {"path": pl.String, "bytes": pl.Int64, "storage_class": pl.String}
    in_data = r"^([^.].*)/(?:data-[^/]+/.+|manifest\.json)$"
    return (
        pl.DataFrame(rows, schema=schema, orient="row")
        .with_columns(
            address=pl.col("path").str.extract(in_data).fill_null(""),
            top=pl.col("path").str.extract(r"^([^/]+)"),
            store=pl.lit(name_of(store)),
        )
        .group_by("store", "address", "top", "storage_class")
        .agg(pl.col("bytes").sum())
    )


def _ages(today: datetime.date) -> pl.Expr:
    """Return how old the artifact of a row is; files of no artifact have no age."""
    days = (pl.lit(today) - pl.col("created").str.slice(0, 10).str.to_date()).dt.total_days()
    age = pl.when(pl.col("created").is_null()).then(pl.lit(""))
    for name, limit in AGES:
        age = age.when(days < limit).then(pl.lit(name))
    return age.otherwise(pl.lit(OLDER))


def _priced(rows: pl.DataFrame, prices: PriceTable, today: datetime.date) -> pl.DataFrame:
    dollars, unpriced = [], []
    for storage_class, size in rows.select("storage_class", "bytes").iter_rows():
        price = prices.at(storage_class, "gib_month", today.isoformat())
        cost = None if price is None else EXACT.multiply(EXACT.divide(Decimal(size), GIB), price.dollars)
        dollars.append(None if cost is None else cost.quantize(Decimal("1E-12"), context=EXACT))
        unpriced.append(f"no price of storage class {storage_class or 'unknown'}" if cost is None else "")
    priced = rows.with_columns(dollars_a_month=pl.Series(dollars, dtype=MONEY), unpriced=pl.Series(unpriced, dtype=pl.String))
    return priced.select(list(REPORT)).cast(pl.Schema(REPORT))
