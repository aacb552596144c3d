"""Per-item records, `record/2`, and scores: the results of an evaluation."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

type Verdict = Literal["graded", "unparsed", "failed"]

RECORD_SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("item_id", pa.string()),
        ("policy", pa.string()),
        ("checkpoint", pa.string()),
        ("prompt_digest", pa.string()),
        ("continuations", pa.list_(pa.string())),
        ("log_probs", pa.list_(pa.float64())),
        ("answer", pa.string()),
        ("outputs", pa.string()),
        ("verdict", pa.string()),
        ("correct", pa.bool_()),
        ("bpb", pa.float64()),
        ("suite", pa.string()),
        ("source_digest", pa.string()),
    ]
)
LOG_PROB_DIGITS = 4
"""Decimals of a log-probability, for the same reason as the next."""
SIGNIFICANT_DIGITS = 6
"""Scores are kept to six digits: float32 sums may differ beyond that between machines."""


@dataclass(frozen=True)
class EvalRecord:
    """One item (or held-out document): what was asked, what the model answered, how it was judged.

    `continuations`: the texts that were scored after the prompt, or the one that was written; none for held-out text.
    `log_probs`: natural logarithms, one for each scored text. `answer`: the model's answer, a choice or what was found
    in its text; None if there is none. `suite` and `source_digest` (xxh3_128 of the file that the item was read from)
    are empty for held-out text. `outputs`: further facts, as JSON.
    """

    task: str
    item_id: str
    policy: str
    checkpoint: str
    prompt_digest: str
    outputs: str
    verdict: Verdict
    correct: bool | None
    bpb: float | None
    suite: str = ""
    source_digest: str = ""
    continuations: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    answer: str | None = None


@dataclass(frozen=True)
class Score:
    """A number with its 95 % interval over `n` graded units of `attempted` (by default as many)."""

    task: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    attempted: int = -1

    def __post_init__(self) -> None:
        if self.attempted == -1:
            object.__setattr__(self, "attempted", self.n)
        if self.attempted < self.n:
            raise ValueError(f"score {self.task} {self.metric}: {self.n} graded of {self.attempted} attempted")

    def __str__(self) -> str:
        return f"{self.task} {self.metric} {self.value:.4f}"

    def rounded(self) -> dict[str, object]:
        return asdict(self) | {name: _rounded(getattr(self, name)) for name in ("value", "low", "high")}


def log_probs_of(nats: Iterable[float]) -> tuple[float, ...]:
    """Return the value as records hold it."""
    return tuple(round(-float(each), LOG_PROB_DIGITS) for each in nats)


def write_records(records: Sequence[EvalRecord], path: Path) -> None:
    """Write records sorted by task and item, with bits per byte rounded as in scores."""
    ordered = sorted(records, key=lambda r: (r.task, r.item_id))
    pq.write_table(
        pa.Table.from_pylist([asdict(r) | {"bpb": _rounded(r.bpb)} for r in ordered], schema=RECORD_SCHEMA),
        path,
        compression="zstd",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
