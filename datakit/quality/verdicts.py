"""The stage `datakit.quality`: signals of every document as columns, and a verdict by the rules of its domain.

Rules are data: bounds on signals, one set for each domain, because prose rules keep 3 of 220 code and documentation
files (docs/log.md). A threshold may change without reading a text again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from datakit.documents.parts import added, as_frame, iterate_part, value_counts, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from datakit.quality.signals import SIGNALS, quality_signals
from datakit.sources.source import Domain
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

FOLDER = "quality"


@dataclass(frozen=True)
class Bound:
    """A rule: the document is dropped if a signal is below `low` or above `high`."""

    signal: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise ValueError(f"quality rule on {self.signal!r}; the signals are: {', '.join(sorted(SIGNALS))}")
        if self.low is None and self.high is None:
            raise ValueError(f"quality rule on {self.signal!r} has neither low nor high")


@dataclass(frozen=True)
class QualityConfig:
    """The rules of a domain, in order: the first that fails names the reason."""

    domain: Domain
    rules: tuple[Bound, ...]


def quality_config(domain: Domain) -> QualityConfig:
    """Return the declared rules of a domain. Minima are low where documents are short by nature (encyclopedia leads)."""
    prose = (
        Bound("num_words", low=50, high=1_000_000),
        Bound("mean_word_chars", low=3, high=10),
        Bound("symbol_word_ratio", high=0.1),
        Bound("alpha_word_frac", low=0.8),
        Bound("stop_words", low=2),
        Bound("bullet_line_frac", high=0.9),
        Bound("ellipsis_line_frac", high=0.3),
        Bound("duplicate_line_frac", high=0.3),
    )
    lead = (Bound("num_words", low=15), Bound("mean_word_chars", low=2, high=12), Bound("alpha_word_frac", low=0.6))
    reference = (
        Bound("num_words", low=20),
        Bound("alnum_char_frac", low=0.25),
        Bound("digit_char_frac", high=0.5),
        Bound("duplicate_line_frac", high=0.8),
    )
    code = (
        Bound("num_lines", low=3),
        Bound("longest_line_chars", high=5_000),
        Bound("alnum_char_frac", low=0.25),
        Bound("digit_char_frac", high=0.4),
        Bound("duplicate_line_frac", high=0.8),
        Bound("generated_marker", high=0),
    )
    chat = (
        Bound("num_words", low=4),
        Bound("alnum_char_frac", low=0.25),
    )  # Roles count as words, and turns are short by nature.
    rules: Mapping[Domain, tuple[Bound, ...]] = {
        "prose": prose,
        "encyclopedia": lead,
        "code": code,
        "web": reference,
        "math": reference,
        "docs": reference,
        "chat": chat,
    }
    if domain not in rules:
        raise ValueError(f"there are no quality rules for domain {domain!r}; allowed: {', '.join(rules)}")
    return QualityConfig(domain, rules[domain])


def score_documents(out: Writer, config: QualityConfig, normalized: Artifact) -> None:
    """Write `quality/part-*.parquet` beside the documents' parts: id, one column a signal, `keep`, `reason`."""
    tasks = {path.stem: (path, config) for path in parts_of_tasks(out, normalized)}
    scored = out.map_shards(score_part, tasks, lazy=True)
    reasons = added(part["reasons"] for part in scored.values())
    out.extra["low_quality"] = {reason: count for reason, count in reasons.items() if reason}
    out.record(rows_in=sum(reasons.values()), rows_out=sum(reasons.values()))


QUALITY = Stage(
    "datakit.quality",
    "2",
    score_documents,
    description="Quality signals of every document and the result of its domain rules (prose rules never judge code).",
    checks=("file_set", "attributes_aligned"),
)


def score_part(folder: Path, part: Path, config: QualityConfig) -> dict[str, Any]:
    """Score one part, one row group at a time. Returns its rows, and how often each reason occurs."""
    reasons = Counter[str]()
    nothing = pl.DataFrame(schema={"id": pl.String, "text": pl.String})
    with writing_part(folder / FOLDER / part.name, verdicts(nothing, config).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            rows = verdicts(as_frame(table), config)
            reasons.update(value_counts(rows["reason"]))
            out.write(rows.to_arrow())
    return {"rows": out.rows, "reasons": reasons}


def verdicts(documents: pl.DataFrame, config: QualityConfig) -> pl.DataFrame:
    """Return signals, `keep` and `reason` of documents with `id` and `text`; the reason names the first rule that
    fails.
    """
    signals = documents.select("id").hstack(quality_signals(documents["text"]))
    reason = pl.lit("")
    for rule in reversed(config.rules):
        value = pl.col(rule.signal)
        if rule.high is not None:
            reason = pl.when(value > rule.high).then(pl.lit(f"{rule.signal}_high")).otherwise(reason)
        if rule.low is not None:
            reason = pl.when(value < rule.low).then(pl.lit(f"{rule.signal}_low")).otherwise(reason)
    return signals.with_columns(reason=reason).with_columns(keep=pl.col("reason") == "")
