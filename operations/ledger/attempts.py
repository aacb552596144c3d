"""Attempts of jobs and stages, from their summaries on the store. They are kept as Parquet, and only new ones are read.

Summaries are in folders by the day of their start. Folders of settled days are not listed again. An attempt without an end is
read again until it has one.
"""

import datetime
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from lineage.artifact.store import Store
from lineage.jobs.summary import SUMMARIES, THIS_MACHINE, StepSummary, read_summary, summaries_of_day
from operations.ledger.schema import LAUNCHES, VERSION
from operations.ledger.tables import FOLDER, READERS

FILE = f"{FOLDER}/launches.parquet"
SETTLED_DAYS = 2
"""Days after which no new summary appears in a day's folder: a summary is written when its attempt starts."""
POD = "pod "
"""Start of `place` for an attempt that is one pod of several (`resources/pod_watch.py`)."""


def update_launches(store: Store, today: datetime.date) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return a row for each attempt, and address -> reason of each summary that cannot be read."""
    saved = _load(store)
    running = set(saved.filter(state="running")["launch"])
    known = set(saved["launch"]) - running
    settled = (today - datetime.timedelta(days=SETTLED_DAYS)).isoformat()
    newest = saved["started"].max()
    days = store.storage.folders(SUMMARIES)
    open_days = [day for day in days if newest is None or day >= min(str(newest)[:10], settled)]
    wanted = [name for day in open_days for name in summaries_of_day(store, day)]
    wanted += [f"{SUMMARIES}/{_day(launch)}/{launch}.json" for launch in running]
    todo = sorted({name for name in wanted if _id(name) not in known})
    summaries, bad = _read(store, todo)
    fresh = pl.DataFrame([row for summary in summaries for row in rows(summary)], schema=LAUNCHES, orient="row")
    replaced = pl.Series(sorted({summary.id for summary in summaries}), dtype=pl.String).implode()
    table = pl.concat([saved.filter(~pl.col("launch").is_in(replaced)), fresh]).sort("started", "launch", "number", "place")
    if summaries and not table.equals(saved):
        sink = io.BytesIO()
        table.write_parquet(sink, metadata={"marin.version": VERSION})
        store.storage.replace(FILE, sink.getvalue())
    return table, bad


def rows(summary: StepSummary) -> list[tuple[Any, ...]]:
    """Return the rows of a summary: one for each try of a job on a cluster; one in all for work on this machine."""
    about = (summary.id, summary.address, summary.process, summary.name, summary.stage, summary.run_id)
    by = (summary.made_by.user, summary.made_by.host, "summary")
    times = (summary.started, summary.ended)
    if summary.hardware == THIS_MACHINE or not summary.attempts:
        ended = summary.state != "running"
        use = (summary.seconds, summary.cpu_seconds, summary.peak_rss_bytes) if ended else (None, None, None)
        return [(*about, 1, summary.state, summary.why, *times, summary.place, summary.hardware, False, *use, *by)]
    return [
        (
            *about,
            attempt.number,
            "done" if attempt.ended == "done" else "failed",
            "" if attempt.ended == "done" else attempt.ended,
            *times,
            attempt.place or summary.place,
            summary.hardware,
            attempt.place.startswith(POD),
            attempt.seconds,
            None,
            None,
            *by,
        )
        for attempt in summary.attempts
    ]


def from_manifests(artifacts: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each artifact whose attempts were not recorded, from what its manifest says about its making.

    Of the artifacts of one process (checkpoints of a run), the last has the seconds of all. What an attempt made before it
    failed is paid by that attempt.
    """
    recorded = launches.filter(state="done")["process"].unique().implode()
    lacking = artifacts.filter(~pl.col("process").is_in(recorded))
    times = launches.select("process", begin=pl.col("started").str.slice(0, 19), end=pl.col("ended").str.slice(0, 19))
    candidates = lacking.select("address", "process", at=pl.col("created").str.slice(0, 19)).join(times, on="process")
    during = (pl.col("begin") <= pl.col("at")) & ((pl.col("end") == "") | (pl.col("at") <= pl.col("end")))
    lacking = lacking.filter(~pl.col("address").is_in(candidates.filter(during)["address"].unique().implode()))
    last = lacking.sort("step", "created").unique("process", keep="last")
    renamed = last.select(
        launch="address", address="address", process="process", name="name", stage="stage", run_id="run_id",
        number=pl.lit(1, pl.Int64), state=pl.lit("done"), why=pl.lit(""), started="created", ended="created",
        place=pl.lit(""), hardware=pl.lit(THIS_MACHINE), one_host=pl.lit(False), seconds="seconds", cpu_seconds="cpu_seconds",
        peak_rss_bytes="peak_rss_bytes", owner="owner", host="host", recorded=pl.lit("manifest"),
    )  # fmt: skip
    return pl.concat([pl.DataFrame(schema=LAUNCHES), renamed])


def _load(store: Store) -> pl.DataFrame:
    data = store.storage.read_bytes(FILE)
    if data is None or pl.read_parquet_metadata(io.BytesIO(data)).get("marin.version") != VERSION:
        return pl.DataFrame(schema=LAUNCHES)
    return pl.read_parquet(io.BytesIO(data))


def _read(store: Store, names: Iterable[str]) -> tuple[list[StepSummary], dict[str, str]]:
    def read(name: str) -> StepSummary | str | None:
        try:
            text = store.storage.read_text(name)
            summary = None if text is None else read_summary(text, store.storage.uri(name))
        except ValueError as error:
            return str(error)[:500]
        if summary is not None and summary.id != _id(name):
            return f"it says that it is {summary.id}"
        return summary

    listed = list(names)
    with ThreadPoolExecutor(READERS, thread_name_prefix="summaries") as pool:
        summaries = list(zip(listed, pool.map(read, listed), strict=True))
    return [s for _, s in summaries if isinstance(s, StepSummary)], {name: s for name, s in summaries if isinstance(s, str)}


def _id(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _day(launch: str) -> str:
    return f"{launch[:4]}-{launch[4:6]}-{launch[6:8]}"
