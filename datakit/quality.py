"""The stage `datakit.quality`: signals of every document as columns, and a verdict by the rules of its domain.

The signals are the counters of Gopher, C4 and FineWeb, computed column-wise in polars (51 MB/s against 0.4 for a per-word
Python filter; research/data_peers_measured.md, section 8b). Rules are data: bounds on signals, one set a domain, because prose
rules keep 3 of 220 code and documentation files. A threshold may change without reading a text again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from datakit.documents import document_paths, write_parquet
from datakit.sources import Domain
from lineage.plan import Stage
from lineage.store import Artifact, Writer

FOLDER = "quality"
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
SLICE_ROWS = 512


@dataclass(frozen=True)
class Bound:
    """A rule: the document goes when a signal lies below `low` or above `high`."""

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
    """The rules of a domain, in the order in which the first that fails names the reason."""

    domain: Domain
    rules: tuple[Bound, ...]


def _fraction(count: pl.Expr, total: pl.Expr) -> pl.Expr:
    return pl.when(total > 0).then(count / total).otherwise(0.0)


TEXT = pl.col("text")
LINES = TEXT.str.split("\n").list.eval(pl.element().str.strip_chars())
FILLED_LINES = LINES.list.eval(pl.element().filter(pl.element().str.len_chars() > 0))
WORDS = TEXT.str.count_matches(r"\S+")
LETTER_WORDS = TEXT.str.count_matches(r"\S*[A-Za-z]\S*")
SIGNALS: Mapping[str, pl.Expr] = {
    "num_words": WORDS,
    "mean_word_chars": _fraction(TEXT.str.count_matches(r"\S"), WORDS),
    "symbol_word_ratio": _fraction(TEXT.str.count_matches(r"#|\.\.\.|…"), WORDS),
    "alpha_word_frac": _fraction(LETTER_WORDS, WORDS),
    "stop_words": TEXT.str.to_lowercase().str.count_matches(rf"\b(?:{'|'.join(STOP_WORDS)})\b"),
    "alnum_char_frac": _fraction(TEXT.str.count_matches(r"[A-Za-z0-9]"), TEXT.str.len_chars()),
    "digit_char_frac": _fraction(TEXT.str.count_matches(r"[0-9]"), TEXT.str.len_chars()),
    "num_lines": FILLED_LINES.list.len(),
    "duplicate_line_frac": 1.0 - _fraction(FILLED_LINES.list.n_unique(), FILLED_LINES.list.len()),
    "bullet_line_frac": _fraction(
        FILLED_LINES.list.eval(pl.element().str.contains(r"^[-*•]")).list.sum(), FILLED_LINES.list.len()
    ),
    "ellipsis_line_frac": _fraction(
        FILLED_LINES.list.eval(pl.element().str.contains(r"(?:\.\.\.|…)$")).list.sum(), FILLED_LINES.list.len()
    ),
    "longest_line_chars": LINES.list.eval(pl.element().str.len_chars()).list.max(),
}


def quality_config(domain: Domain) -> QualityConfig:
    """The declared rules of a domain. Minima are low where documents are short by nature (encyclopedia leads)."""
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
    )
    rules: Mapping[Domain, tuple[Bound, ...]] = {
        "prose": prose,
        "encyclopedia": lead,
        "code": code,
        "web": reference,
        "math": reference,
        "docs": reference,
    }
    if domain not in rules:
        raise ValueError(f"there are no quality rules for domain {domain!r}; allowed: {', '.join(rules)}")
    return QualityConfig(domain, rules[domain])


def score_documents(out: Writer, config: QualityConfig, normalized: Artifact) -> None:
    """Write `quality/part-*.parquet` beside the documents' parts: id, a column a signal, `keep`, `reason`."""
    tasks = {path.stem: (path, config) for path in document_paths(normalized)}
    out.map_shards(score_part, tasks)
    verdicts = pl.concat([pl.read_parquet(p, columns=["reason"]) for p in sorted((out.folder / FOLDER).glob("*.parquet"))])
    marks = verdicts.filter(pl.col("reason") != "").group_by("reason").len().sort("reason")
    out.extra["low_quality"] = dict(marks.iter_rows())
    out.record(rows_in=verdicts.height, rows_out=verdicts.height)


QUALITY = Stage("datakit.quality", "1", score_documents)


def score_part(folder: Path, part: Path, config: QualityConfig) -> dict[str, int]:
    """Score one part, a slice at a time so that lists of lines stay small."""
    documents = pl.read_parquet(part, columns=["id", "text"])
    slices = [verdicts(documents.slice(i, SLICE_ROWS), config) for i in range(0, max(1, documents.height), SLICE_ROWS)]
    table = pl.concat(slices)
    write_parquet(folder / FOLDER / part.name, table.to_arrow())
    return {"rows": table.height}


def verdicts(documents: pl.DataFrame, config: QualityConfig) -> pl.DataFrame:
    """Signals, `keep` and `reason` of documents with `id` and `text`; the reason names the first rule that fails."""
    signals = documents.select("id", *(expr.cast(pl.Float64).alias(name) for name, expr in SIGNALS.items()))
    reason = pl.lit("")
    for rule in reversed(config.rules):
        value = pl.col(rule.signal)
        if rule.high is not None:
            reason = pl.when(value > rule.high).then(pl.lit(f"{rule.signal}_high")).otherwise(reason)
        if rule.low is not None:
            reason = pl.when(value < rule.low).then(pl.lit(f"{rule.signal}_low")).otherwise(reason)
    return signals.with_columns(reason=reason).with_columns(keep=pl.col("reason") == "")
