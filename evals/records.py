"""Per-item records, `record/1`, and scores: what an evaluation leaves behind."""

from collections.abc import Sequence
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
        ("outputs", pa.string()),
        ("verdict", pa.string()),
        ("correct", pa.bool_()),
        ("bpb", pa.float64()),
        ("suite", pa.string()),
        ("source_digest", pa.string()),
    ]
)
SIGNIFICANT_DIGITS = 6
"""Scores are kept to six digits: float32 sums may differ beyond that between machines."""


@dataclass(frozen=True)
class EvalRecord:
    """One item (or held-out document): what was asked, what came out, how it was judged.

    `suite` and `source_digest` (xxh3_128 of the file that the item was read from) are empty for held-out text.
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


@dataclass(frozen=True)
class Score:
    """A number with its 95 % interval over `n` units that were graded, of `attempted` (as many, unless told)."""

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


def write_records(records: Sequence[EvalRecord], path: Path) -> None:
    """Write records sorted by task and item, bits per byte to as many digits as scores have."""
    ordered = sorted(records, key=lambda r: (r.task, r.item_id))
    pq.write_table(
        pa.Table.from_pylist([asdict(r) | {"bpb": _rounded(r.bpb)} for r in ordered], schema=RECORD_SCHEMA),
        path,
        compression="zstd",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
