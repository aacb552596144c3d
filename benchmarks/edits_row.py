"""One edit of `benchmarks/edits.py` and what must happen after it, and the stages that rows name.

`rebuilt`: stages of which something must be made again. `flagged`: stages of which everything that is reused must be shown as
drifted. `differs`: those of the flagged whose evidence must find other bytes. Whatever is not named must be reused in silence.
"""

from dataclasses import dataclass

from benchmarks.edits_patches import Operation

RAW, NORMALIZE, MINHASH, QUALITY = "datakit.raw", "datakit.normalize", "datakit.minhash", "datakit.quality"
INDEX, MARKS = "datakit.contamination_index", "datakit.contamination"
DUPLICATES, CORPUS, TOKENIZER, CACHE = "datakit.duplicates", "datakit.corpus", "datakit.tokenizer", "datakit.token_cache"
NONE: frozenset[str] = frozenset()
READS_DOCUMENTS = frozenset({NORMALIZE, MINHASH, QUALITY, INDEX, MARKS, DUPLICATES, CORPUS, TOKENIZER, CACHE})
"""Stages whose code imports `datakit/documents/parts.py`."""
WRITES_DOCUMENTS = frozenset({NORMALIZE, MINHASH, QUALITY, MARKS, CORPUS})
"""Those of them that write Parquet on this line."""


@dataclass(frozen=True)
class Edit:
    """One edit: how it is applied, what must happen, and why."""

    name: str
    kind: str
    operations: tuple[Operation, ...]
    why: str
    rebuilt: frozenset[str] = NONE
    flagged: frozenset[str] = NONE
    differs: frozenset[str] = NONE
    jobs: frozenset[str] = NONE
    """Jobs that may run for evidence (seconds); the others are left open."""
    workers: int = 1
    known_miss: str = ""
    """Why the lab does not see it; a row with this is reported as a miss."""
