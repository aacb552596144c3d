"""The storage reports of recent days, as a table: `operations/storage_report` writes one file a day below a store's root."""

import datetime
import json

import polars as pl

from lineage.artifact.store import Store
from operations.ledger.schema import STORAGE

FOLDER = ".operations/storage"
"""`<day>.json`: the rows of `operations.storage.report`, for all roots of the lab."""
DAYS = 60


def storage_days(store: Store, today: datetime.date) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the rows of recent days (STORAGE, with `store`), and name -> reason of each file that cannot be read."""
    columns = {**STORAGE, "store": pl.String}
    tables, bad = [pl.DataFrame(schema=columns)], {}
    oldest = (today - datetime.timedelta(days=DAYS)).isoformat()
    for name in store.storage.records(FOLDER):
        day, where = name.removesuffix(".json"), f"{FOLDER}/{name}"
        if not name.endswith(".json") or day < oldest:
            continue
        try:
            rows = json.loads(store.storage.read_text(where) or "[]")
            texts = pl.DataFrame(rows, schema={**columns, "dollars_a_month": pl.String}, orient="row")
            tables.append(texts.with_columns(day=pl.lit(day)).cast(pl.Schema(columns)))
        except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
            bad[where] = f"{type(error).__name__}: {error}"[:500]
    return pl.concat(tables), bad
