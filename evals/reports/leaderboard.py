"""All results in one table: DuckDB views over the manifests and records of every `evals.result` of some stores.

A board is one policy by its data version, which fixes the questions and items. Results under different policies are on
different boards, even if the policies have one name (the board is then called `NAME@VERSION`). A cell is one (model,
day, checkpoint, task, metric). Two artifacts that give the same cell under one policy are refused with both addresses.
Models are ranked by the unfavourable bound of the interval (the lower one of an accuracy, the upper one of bits). A
score that graded less than .9 of its items has no rank, nor has a metric without a better direction
(`evals/scoring/metrics.py`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from evals.items.stage import EVAL_RESULT
from evals.scoring.metrics import better
from evals.scoring.records import RECORD_SCHEMA
from evals.scoring.statistics import graded_of, is_incomplete
from lineage.artifact.store import Artifact, Store
from trainer.api import step_partition

RESULT_SCHEMA = {
    "policy": pl.String,
    "model": pl.String,
    "day": pl.String,
    "step": pl.Int64,
    "tokens_seen": pl.Int64,
    "task": pl.String,
    "metric": pl.String,
    "better": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "attempted": pl.Int64,
    "coverage": pl.Float64,
    "incomplete": pl.Boolean,
    "code_drifted": pl.Boolean,
    "checkpoint": pl.String,
    "policy_version": pl.String,
    "created": pl.String,
    "address": pl.String,
}
CELL = ("policy_version", "model", "day", "checkpoint", "task", "metric")
VERSION_CHARACTERS = 8
"""Digits of a data version that distinguish two boards of one name."""
PRIMARY = (
    "exact_match",
    "pass_at_1",
    "accuracy_per_byte",
    "gold_bits_per_byte",
    "micro_bits_per_byte",
    "weighted_bits_per_byte",
    "bits_per_byte",
)
"""One metric for each task on the board: the first of these that the task has."""
LEADERBOARD_SQL = """
SELECT board, policy, policy_version, task, metric,
       CASE WHEN incomplete OR better = 'neither' THEN NULL
            ELSE rank() OVER (PARTITION BY policy_version, task, metric, incomplete
                              ORDER BY CASE better WHEN 'lower' THEN high ELSE -low END) END AS rank,
       model, day, step, checkpoint, value, low, high, n, attempted, coverage, incomplete, better, code_drifted,
       created, address
FROM results
ORDER BY board, task, metric, rank NULLS LAST, model, day, step
"""


class DuplicateResultError(ValueError):
    """Two artifacts give one cell of a board."""


@dataclass(frozen=True)
class Board:
    """A DuckDB connection with the views `results`, `leaderboard` and `items` (records with their model, step and
    policy)."""

    connection: duckdb.DuckDBPyConnection

    def query(self, sql: str) -> pl.DataFrame:
        return self.connection.sql(sql).pl()


def open_board(stores: Sequence[Store]) -> Board:
    """Read every result of the stores. Raises: DuplicateResultError naming both artifacts."""
    artifacts = {artifact.spec.address: artifact for store in stores for artifact in eval_results(store)}
    return board_of(list(artifacts.values()))


def board_of(artifacts: Sequence[Artifact]) -> Board:
    """Build the board of some results, each given once. Raises: DuplicateResultError naming two that give one cell."""
    rows = [row for artifact in artifacts for row in result_rows(artifact)]
    results = pl.DataFrame(rows, schema=RESULT_SCHEMA, orient="row").with_columns(board=_board_name())
    refuse_duplicates(results)
    connection = duckdb.connect(":memory:")
    connection.register("results", results.to_arrow())
    connection.execute(f"CREATE VIEW leaderboard AS {LEADERBOARD_SQL}")
    connection.register("items", _records(artifacts).to_arrow())
    return Board(connection)


def _board_name() -> pl.Expr:
    """Return the policy's name, with the beginning of the version if several versions have it."""
    several = pl.col("policy_version").n_unique().over("policy") > 1
    version = pl.col("policy_version").str.slice(0, VERSION_CHARACTERS)
    return pl.when(several).then(pl.format("{}@{}", "policy", version)).otherwise("policy")


def eval_results(store: Store) -> list[Artifact]:
    """Return results under a policy; those of evaluators before there were policies are on no board."""
    evaluated = [a for a in store.artifacts() if a.spec.stage == EVAL_RESULT.name and "policy" in a.manifest.extra]
    return sorted(evaluated, key=lambda artifact: artifact.spec.address)


def result_rows(artifact: Artifact) -> list[tuple[object, ...]]:
    """Return one row for each score, in RESULT_SCHEMA."""
    extra, checkpoint = artifact.manifest.extra, artifact.input("checkpoint")
    facts = checkpoint.manifest.extra["checkpoint"]
    policy = extra["policy"]
    return [
        (
            policy["name"],
            *_model(checkpoint),
            int(facts.get("tokens_seen", 0)),
            score["task"],
            score["metric"],
            better(score["metric"]),
            float(score["value"]),
            float(score["low"]),
            float(score["high"]),
            int(score["n"]),
            int(score["attempted"]),
            score["n"] / max(1, score["attempted"]),
            is_incomplete(score["n"], score["attempted"]),
            bool(policy["code_drifted"]),
            checkpoint.data_version,
            policy["data_version"],
            artifact.manifest.created,
            artifact.spec.address,
        )
        for score in extra["scores"]
    ]


def _model(checkpoint: Artifact) -> tuple[str, str, int]:
    """Return name, day and step. A daily asset has its day as partition (else ""); an imported model has step 0."""
    step = int(checkpoint.manifest.extra["checkpoint"].get("step", 0))
    partition = checkpoint.spec.partition or ""
    day = "" if partition == step_partition(step) else partition
    return "/".join(checkpoint.spec.key).removesuffix("/checkpoint"), day, step


def refuse_duplicates(results: pl.DataFrame) -> None:
    """Refuse two artifacts for one cell. Raises: DuplicateResultError naming the cell and both."""
    twice = results.group_by(CELL).agg(pl.col("address").unique().sort(), pl.len()).filter(pl.col("len") > 1).sort(CELL)
    if twice.height:
        row = twice.row(0, named=True)
        raise DuplicateResultError(
            f"{twice.height} cells are there twice; the first is {row['task']} {row['metric']} of checkpoint "
            f"{row['checkpoint'][:12]}, given by {' and '.join(row['address'])}. Delete the one that is out of date"
        )


def _records(artifacts: Sequence[Artifact]) -> pl.DataFrame:
    """Return every record with its model; columns that came later are null in the records of older evaluators."""
    about = {"policy_name": pl.String, "policy_version": pl.String, "model": pl.String, "day": pl.String}
    about |= {"step": pl.Int64, "address": pl.String}
    columns = pl.Schema(pl.from_arrow(RECORD_SCHEMA.empty_table()).schema)  # pyrefly: ignore
    frames = [pl.DataFrame(schema=columns | about)]
    for artifact in artifacts:
        policy, model = artifact.manifest.extra["policy"], _model(artifact.input("checkpoint"))
        values = (policy["name"], policy["data_version"], *model, artifact.spec.address)
        literals = {name: pl.lit(value, about[name]) for name, value in zip(about, values, strict=True)}
        records = pl.read_parquet(artifact.files("records.parquet")[0])
        later = {name: pl.lit(None, kind) for name, kind in columns.items() if name not in records.columns}
        frames.append(records.with_columns(**literals, **later).select(*columns, *about))
    return pl.concat(frames)


def primary_scores(board: Board, policy: str | None = None) -> pl.DataFrame:
    """Return the rows of one metric for each task; of one board, or of every board of a policy's name if one is named.

    Raises: ValueError naming the existing boards.
    """
    rows = board.query("SELECT * FROM leaderboard")
    known = sorted(rows["board"].unique())
    named = (pl.lit(policy) == pl.col("policy")) | (pl.lit(policy) == pl.col("board")) | pl.lit(policy is None)
    if policy is not None and not rows.filter(named).height:
        raise ValueError(f"no result is under the policy {policy!r}; there are: {', '.join(known) or 'none'}")
    order = {metric: place for place, metric in enumerate(PRIMARY)}
    chosen = rows.filter(pl.col("metric").is_in(PRIMARY) & named)
    ranked = chosen.with_columns(place=pl.col("metric").replace_strict(order, return_dtype=pl.Int64))
    first = ranked.filter(pl.col("place") == pl.col("place").min().over("board", "task"))
    return first.drop("place").sort("board", "task", pl.col("rank").fill_null(1 << 30), "model", "day", "step")


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of the board as text for people, by column."""
    named = row["model"] + (f" of {row['day']}" if row["day"] else "")
    return {
        "task": row["task"],
        "metric": row["metric"],
        "rank": "incomplete" if row["incomplete"] else str(row["rank"] or ""),
        "model": named + (" (code drifted)" if row["code_drifted"] else ""),
        "step": f"{row['step']:,}",
        "checkpoint": row["checkpoint"][:VERSION_CHARACTERS],
        "value": f"{row['value']:.4f}",
        "95 % interval": f"{row['low']:.4f} to {row['high']:.4f}",
        "items": graded_of(row["n"], row["attempted"]),
    }


def as_json(rows: pl.DataFrame) -> str:
    """Return rows as a JSON list of objects."""
    return json.dumps(rows.to_dicts(), indent=1)
