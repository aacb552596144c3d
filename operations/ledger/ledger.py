"""The whole ledger of some stores: every table, with costs, as data frames.

It needs only the stores. The shell adds what only Dagster's database has. Without that database those tables are empty.
"""

import datetime
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lineage.accepted_rows import ACCEPTED_FILE
from lineage.artifact.store import Store
from lineage.signing.judge import judge_of
from lineage.trust.verdict_log import read_log
from lineage.trust.waivers import recorded_waivers
from operations.ledger.attempts import from_manifests, update_launches
from operations.ledger.costs import priced
from operations.ledger.prices import PriceTable
from operations.ledger.schema import (
    ACCEPTED,
    FROM_MANIFESTS,
    LAUNCHES,
    MONEY,
    ONLY_IN_DAGSTER,
    PRICES,
    PROBES,
    STORAGE,
    VERDICTS,
    WAIVERS,
)
from operations.ledger.storage_days import storage_days
from operations.ledger.tables import update_tables
from operations.probes.outcomes import probe_files

PROBE_DAYS = 35
ACCEPTED_STAGE = "synthetic.accepted"


@dataclass(frozen=True)
class Ledger:
    """Tables by name (`operations.ledger.schema`), each with a column `store`. `unreadable` names what could not be read."""

    tables: Mapping[str, pl.DataFrame]
    unreadable: Mapping[str, str]


def open_ledger(
    stores: Sequence[Store],
    prices: PriceTable,
    today: datetime.date,
    dagster: Mapping[str, pl.DataFrame] | None = None,
    *,
    with_accepted: bool = False,
) -> Ledger:
    """Bring the saved tables up to date and return all of them.

    `dagster`: the tables of ONLY_IN_DAGSTER, if its database is there. `with_accepted`: read the rows of synthetic sets; their
    number has no bound, so the table `accepted` is empty otherwise.
    """
    by_name: dict[str, list[pl.DataFrame]] = {}
    unreadable: dict[str, str] = {}
    for store in stores:
        of_manifests, bad = update_tables(store)
        launches, bad_summaries = update_launches(store, today)
        probes, bad_probes = _probes(store, today)
        storage, bad_reports = storage_days(store, today)
        faults = bad | bad_summaries | bad_probes | bad_reports
        unreadable |= {store.storage.uri(name): why for name, why in faults.items()}
        attempts = priced(store, pl.concat([launches, from_manifests(of_manifests["artifacts"], launches)]), prices)
        verdicts, waivers = _trust(store)
        tables = {**of_manifests, "attempts": attempts, "verdicts": verdicts, "waivers": waivers, "probes": probes}
        tables["accepted"] = _accepted(store, of_manifests["artifacts"] if with_accepted else of_manifests["artifacts"].clear())
        for name, table in tables.items():
            by_name.setdefault(name, []).append(table.with_columns(store=pl.lit(name_of(store))))
        by_name.setdefault("storage", []).append(storage)  # its rows name their stores
    paid = {**LAUNCHES, "dollars": MONEY, "unpriced": pl.String}
    schemas = {**FROM_MANIFESTS, "attempts": paid, "verdicts": VERDICTS, "waivers": WAIVERS, "probes": PROBES}
    schemas |= {"accepted": ACCEPTED, "storage": STORAGE}
    whole = {
        name: pl.concat([pl.DataFrame(schema={**s, "store": pl.String}), *by_name.get(name, [])]) for name, s in schemas.items()
    }
    whole["prices"] = pl.DataFrame([vars(price) for price in prices.prices], schema=PRICES)
    for name, schema in ONLY_IN_DAGSTER.items():
        whole[name] = pl.DataFrame(schema=schema) if dagster is None else dagster[name].select(list(schema))
    rows = [(store_of, why) for store_of, why in sorted(unreadable.items())]
    whole["unreadable"] = pl.DataFrame(rows, schema={"what": pl.String, "why": pl.String}, orient="row")
    return Ledger(whole, unreadable)


def name_of(store: Store) -> str:
    """Return the name by which the ledger calls a store: the last part of its root."""
    return store.root.rstrip("/").rpartition("/")[2]


def _accepted(store: Store, artifacts: pl.DataFrame) -> pl.DataFrame:
    """Return the accepted rows of every synthetic set; of a store without one, no file is read."""
    tables = [pl.DataFrame(schema=ACCEPTED)]
    for address in artifacts.filter(pl.col("stage") == ACCEPTED_STAGE)["address"].to_list():
        artifact = store.open(address)
        if artifact is not None:  # else it was purged just now
            table = pl.read_parquet(artifact.file(ACCEPTED_FILE), columns=[name for name in ACCEPTED if name != "address"])
            tables.append(table.with_columns(address=pl.lit(address)).select(list(ACCEPTED)))
    return pl.concat(tables)


def _trust(store: Store) -> tuple[pl.DataFrame, pl.DataFrame]:
    log = read_log(store)
    verdicts = []
    for record in log.records:
        subject, verdict = record.subject, record.verdict
        name = "/".join(subject.key) + (f"[{subject.partition}]" if subject.partition else "")
        row = (verdict.name, verdict.kind, verdict.why, verdict.who, verdict.when, verdict.standing)
        verdicts.append((record.number, name, subject.data_version, *row))
    waivers = []
    recorded = recorded_waivers(store, log, judge_of(store.storage))
    for artifact, waiver in recorded.sound:
        what = (waiver.problem, waiver.artifact, waiver.target, waiver.who, waiver.why, waiver.expires)
        waivers.append((artifact.spec.address, *what, artifact.manifest.created, ""))
    waivers += [(address, *[None] * 7, why) for address, why in recorded.refused]
    return pl.DataFrame(verdicts, schema=VERDICTS, orient="row"), pl.DataFrame(waivers, schema=WAIVERS, orient="row")


def _probes(store: Store, today: datetime.date) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the outcomes of recent days, and name -> reason of each file that cannot be read."""
    tables, bad = [pl.DataFrame(schema=PROBES)], {}
    oldest = (today - datetime.timedelta(days=PROBE_DAYS)).isoformat()
    for name in probe_files(store, oldest):
        try:
            tables.append(pl.read_ndjson(io.BytesIO(store.storage.read_bytes(name) or b""), schema=PROBES))
        except pl.exceptions.PolarsError as error:
            bad[name] = str(error)[:500]
    return pl.concat(tables), bad
