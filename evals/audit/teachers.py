"""What the teachers of synthetic data had read: part of an audit whose sources hold completions of other models.

An item in an accepted rollout is found as in any document; here the rollout gets its name. An item that only the
teacher trained on leaves no text behind, but the teacher may have passed it on, so it is listed as `teacher exposed`. What a
teacher had read is known from audits of its checkpoint. A teacher that is known by its URL alone, has no audit, or began from a
published model is `unknown`, never clean.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evals.audit.evidence import ITEM_KEY
from lineage.artifact.store import Artifact
from lineage.match_tiers import CLEAN, MATCHED, STANDING_TIERS, UNKNOWN

ACCEPTED_STAGE = "synthetic.accepted"
EXPOSED = "teacher exposed"
TEACHERS_FILE, ROLLOUT_READS_FILE = "teachers.parquet", "rollout_exposures.parquet"
TEACHERS_SCHEMA = {
    **dict.fromkeys(ITEM_KEY, pl.String),
    "set": pl.String,
    "teacher": pl.String,
    "status": pl.String,
    "seen_by_student": pl.Boolean,
}
"""A row for every item and teacher. `status` is `teacher exposed`, `unknown` or `clean`, of the teacher's own training."""
READS_SCHEMA = {
    **dict.fromkeys(ITEM_KEY, pl.String),
    "leg": pl.Int64,
    "step": pl.Int64,
    "set": pl.String,
    "rollout": pl.String,
    "prompt_id": pl.String,
    "teacher_version": pl.String,
    "id": pl.String,
    "tier": pl.String,
}
"""A row for every step that read an accepted rollout with an item."""


@dataclass(frozen=True)
class Taught:
    """A corpus whose text a teacher wrote: the accepted set, and the teacher's checkpoints (none: a teacher by URL)."""

    corpus: Artifact
    accepted: Artifact
    model: str
    checkpoints: tuple[Artifact, ...]

    @property
    def name(self) -> str:
        return self.accepted.spec.key[1]

    @property
    def teacher(self) -> str:
        return ", ".join(each.name for each in self.checkpoints) or f"{self.model} (by URL)"


@dataclass(frozen=True)
class TeacherEvidence:
    """The tables of an audit about teachers, and their summary."""

    items: pl.DataFrame
    reads: pl.DataFrame
    summary: dict[str, Any]

    def write(self, folder: Path) -> None:
        self.items.write_parquet(folder / TEACHERS_FILE, compression="zstd")
        self.reads.write_parquet(folder / ROLLOUT_READS_FILE, compression="zstd")


def taught_corpora(corpora: Sequence[Artifact]) -> list[Taught]:
    """Return the corpora whose raw files a synthetic set accepted."""
    taught = []
    for corpus in corpora:
        accepted = _accepted(corpus)
        if accepted is None:
            continue
        names = [ref.name for ref in accepted.spec.inputs if ref.name.partition(".")[0] == "rollouts"]
        shards = [accepted.input(name) for name in names]
        teachers = {
            ref.address: shard.input(ref.name) for shard in shards for ref in shard.spec.inputs if ref.name == "teacher"
        }
        model = shards[0].manifest.extra["synthetic"]["teacher_model"]
        taught.append(Taught(corpus, accepted, model, tuple(teachers[address] for address in sorted(teachers))))
    return taught


def teacher_evidence(
    taught: Sequence[Taught], audits: Sequence[Artifact], items: pl.DataFrame, matches: pl.DataFrame, exposed: pl.DataFrame
) -> TeacherEvidence:
    """Join items with what the teachers had read, and exposures with rollouts.

    `audits`: those of the teachers' checkpoints. `items`, `matches` and `exposed` are tables of the student's audit.
    Raises: ValueError for an audit of a checkpoint that is no teacher of these corpora.
    """
    known = {each.input("checkpoint").data_version: each for each in audits}
    wanted = {checkpoint.data_version for each in taught for checkpoint in each.checkpoints}
    stranger = next((each for version, each in known.items() if version not in wanted), None)
    if stranger is not None:
        raise ValueError(f"{stranger.name} audits a checkpoint that taught none of the given corpora; leave it out")
    seen = items.select(*ITEM_KEY, seen_by_student=pl.col("num_exposures") > 0)
    tables = [pl.DataFrame(schema=TEACHERS_SCHEMA)]
    for each in taught:
        joined = seen.join(_statuses(each, known), on=ITEM_KEY, how="left").with_columns(pl.col("status").fill_null(UNKNOWN))
        named = joined.with_columns(set=pl.lit(each.name), teacher=pl.lit(each.teacher))
        tables.append(named.select(TEACHERS_SCHEMA.keys()))
    table = pl.concat(tables).sort("set", *ITEM_KEY)
    reads = _rollout_reads(taught, matches, exposed)
    return TeacherEvidence(table, reads, _summary(taught, table, reads))


def _accepted(corpus: Artifact) -> Artifact | None:
    """Return the synthetic set that a corpus was made from."""
    normalized = corpus.input("normalized")
    if not any(ref.name == "raw" for ref in normalized.spec.inputs):
        return None
    raw = normalized.input("raw")
    accepted = raw.input("accepted") if any(ref.name == "accepted" for ref in raw.spec.inputs) else None
    return accepted if accepted is not None and accepted.spec.stage == ACCEPTED_STAGE else None


def _statuses(taught: Taught, audits: dict[str, Artifact]) -> pl.DataFrame:
    """Return the items of the teachers' audits with their status; an item that is in none of them is unknown.

    An item is clean only if audits of all teachers looked for it and cover everything that these had read.
    """
    keys = dict.fromkeys(ITEM_KEY, pl.String)
    tables, whole = [pl.DataFrame(schema={**keys, "read": pl.Boolean, "looked_for": pl.Boolean})], bool(taught.checkpoints)
    for checkpoint in taught.checkpoints:
        audit = audits.get(checkpoint.data_version)
        if audit is None:
            whole = False
            continue
        facts = audit.manifest.extra["audit"]
        whole &= facts.get("origin") is None and facts.get("before") is None
        items = pl.read_parquet(audit.file("items.parquet"))
        tier = "tier_after" if "tier_after" in items.columns else "tier"
        read = (pl.col("num_exposures") > 0) & pl.col(tier).is_in(STANDING_TIERS)
        tables.append(items.select(*ITEM_KEY, read=read, looked_for=pl.col("status").is_in((CLEAN, MATCHED))))
    every = pl.concat(tables).group_by(ITEM_KEY).agg(pl.col("read").any(), pl.col("looked_for").sum())
    clean = (pl.col("looked_for") == len(taught.checkpoints)) & pl.lit(whole)
    status = pl.when("read").then(pl.lit(EXPOSED)).when(clean).then(pl.lit(CLEAN)).otherwise(pl.lit(UNKNOWN))
    return every.select(*ITEM_KEY, status=status)


def _rollout_reads(taught: Sequence[Taught], matches: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    tables = [pl.DataFrame(schema=READS_SCHEMA)]
    places = matches.select("component", "id", "corpus", "leg").unique()
    for each in taught:
        own = exposed.join(places.filter(pl.col("corpus") == each.corpus.name), on=["leg", "component", "id"])
        origins = pl.DataFrame(list(_origins(each.corpus, set(own["id"]))), schema=_ORIGIN_SCHEMA, orient="row")
        tables.append(own.join(origins, on="id").with_columns(set=pl.lit(each.name)).select(READS_SCHEMA.keys()))
    return pl.concat(tables).unique().sort("leg", "step", "rollout", *ITEM_KEY)


_ORIGIN_SCHEMA = {"id": pl.String, "rollout": pl.String, "prompt_id": pl.String, "teacher_version": pl.String}


def _origins(corpus: Artifact, ids: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rollout of each document. Raises: ValueError if the source does not keep the fields."""
    for path in corpus.input("normalized").files(".parquet", under="documents/"):
        table = pl.scan_parquet(path).filter(pl.col("id").is_in(list(ids))).select("id", "metadata").collect()
        for name, metadata in table.iter_rows():
            facts = json.loads(metadata)
            if "rollout" not in facts:
                raise ValueError(
                    f"document {name} of {corpus.name} does not name its rollout; keep the fields of "
                    "recipes.sources_studies.synthetic_source in the format of the source"
                )
            yield name, *(facts.get(field) or "" for field in ("rollout", "prompt_id", "teacher_version"))


def _summary(taught: Sequence[Taught], table: pl.DataFrame, reads: pl.DataFrame) -> dict[str, Any]:
    sets = []
    for each in taught:
        rows = table.filter(pl.col("set") == each.name)
        counts = {status: rows.filter(pl.col("status") == status).height for status in (EXPOSED, UNKNOWN, CLEAN)}
        only = rows.filter((pl.col("status") == EXPOSED) & ~pl.col("seen_by_student")).height
        read = reads.filter(pl.col("set") == each.name)["rollout"].n_unique()
        sets.append({"set": each.name, "teacher": each.teacher, **counts, "only_teacher": only, "rollouts_read": read})
    first = reads.unique([*ITEM_KEY, "rollout"], keep="first", maintain_order=True).head(LISTED)
    only = table.filter((pl.col("status") == EXPOSED) & ~pl.col("seen_by_student")).head(LISTED)
    return {"sets": sets, "reads": first.to_dicts(), "only_teacher": only.to_dicts()}


LISTED = 20
"""Rows that the report lists; the tables have all."""
