"""The stage `datakit.quality_rules`: the verdicts of Gopher, C4 and FineWeb on every document of a source.

It is an attribute table beside `datakit.quality`, whose few rules for each domain the default corpus uses. A corpus may
name sets of this table as filters. Prose rules are not applied to code or mathematics, and a config that would do so is
refused.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from datakit.documents.parts import added, as_frame, iterate_part, slices, value_counts, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from datakit.quality.rule_sets import PROSE_DOMAINS, PUBLISHED, RuleSet, measured, verdict
from datakit.sources.source import Domain
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

FOLDER = "rules"
SLICE_CHARS = 1 << 22
"""Texts judged at once. polars takes some milliseconds to plan verdicts, however few texts there are; a row group may
hold four times as much.
"""


@dataclass(frozen=True)
class QualityRulesConfig:
    """Return the rule sets that judge a source; none if it is not prose."""

    domain: Domain
    sets: tuple[RuleSet, ...]

    def __post_init__(self) -> None:
        names = [rules.name for rules in self.sets]
        if len(set(names)) < len(names):
            raise ValueError(f"quality rules: two sets have one name, of {', '.join(names)}")
        if self.sets and self.domain not in PROSE_DOMAINS:
            raise ValueError(
                f"quality rules: sets are {', '.join(names)} for domain {self.domain!r}; prose rules judge only "
                f"{', '.join(sorted(PROSE_DOMAINS))}: leave the sets empty"
            )


def quality_rules_config(domain: Domain) -> QualityRulesConfig:
    """Return every published set for prose, none for other domains."""
    return QualityRulesConfig(domain, PUBLISHED if domain in PROSE_DOMAINS else ())


def judge_documents(out: Writer, config: QualityRulesConfig, normalized: Artifact) -> None:
    """Write `rules/part-*.parquet` beside the documents' parts: id, one column a signal, one reason a set ("" if it
    stays).
    """
    tasks = {path.stem: (path, config) for path in parts_of_tasks(out, normalized)}
    judged_parts = out.map_shards(judge_part, tasks, lazy=True).values()
    rows = sum(part["rows"] for part in judged_parts)
    out.extra["rule_sets"] = {rules.name: added(part["reasons"][rules.name] for part in judged_parts) for rules in config.sets}
    out.record(rows_in=rows, rows_out=rows)


QUALITY_RULES = Stage(
    "datakit.quality_rules",
    "2",
    judge_documents,
    description="What Gopher, C4 and FineWeb would drop, rule by rule, and the signals that they use; code is not judged.",
    checks=("file_set", "attributes_aligned"),
)
"""2: C4's list of bad words."""


def judge_part(folder: Path, part: Path, config: QualityRulesConfig) -> dict[str, Any]:
    """Judge one part, one row group and slice of it at a time, so that columns of words and lines stay small.

    Returns its rows, and how many documents each set drops for each reason.
    """
    reasons = {rules.name: Counter[str]() for rules in config.sets}
    nothing = pl.DataFrame(schema={"id": pl.String, "text": pl.String})
    with writing_part(folder / FOLDER / part.name, judged(nothing, config.sets).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            for rows in slices(as_frame(table), SLICE_CHARS):
                judgements = judged(rows, config.sets)
                for name, counts in reasons.items():
                    counts.update(value_counts(judgements[name].filter(judgements[name] != "")))
                out.write(judgements.to_arrow())
    return {"rows": out.rows, "reasons": reasons}


def judged(documents: pl.DataFrame, sets: tuple[RuleSet, ...]) -> pl.DataFrame:
    """Return `id`, the signals and one reason a set, for documents with `id` and `text`; only `id` if no set judges."""
    if not sets:
        return documents.select("id")
    return documents.select("id").hstack(measured(documents["text"])).with_columns(verdict(rules) for rules in sets)
