"""One edit of `benchmarks/edits.py` and what must happen after it, and the stages that rows name.

`rebuilt`: stages of which something must be made again. `flagged`: stages of which everything that is reused must be shown as
drifted. `differs`: those of the flagged whose evidence must find other bytes. Whatever is not named must be reused in silence.
"""

from dataclasses import dataclass

from benchmarks.edits_patches import Operation

RAW, NORMALIZE, MINHASH, QUALITY = "datakit.raw", "datakit.normalize", "datakit.minhash", "datakit.quality"
SUITE, INDEX, MARKS = "evals.suite", "datakit.contamination_index", "datakit.contamination"
DUPLICATES, CORPUS, TOKENIZER, CACHE = "datakit.duplicates", "datakit.corpus", "datakit.tokenizer", "datakit.token_cache"
MIXTURE, CHECKPOINT, RESULT, SCORES = "lineage.mixture", "trainer.checkpoint", "evals.result", "evals.contamination_scores"
POLICY, AUDIT, REPORT = "evals.policy", "evals.audit", "evals.report"
NONE: frozenset[str] = frozenset()
RUN = frozenset({CHECKPOINT, RESULT, SCORES, AUDIT, REPORT})
TOKENS = frozenset({TOKENIZER, CACHE, MIXTURE})
DATA = frozenset({RAW, NORMALIZE, MINHASH, QUALITY, SUITE, INDEX, MARKS, DUPLICATES, CORPUS}) | TOKENS
ALL = DATA | RUN | {POLICY}
READS_DOCUMENTS = frozenset({NORMALIZE, MINHASH, QUALITY, INDEX, MARKS, DUPLICATES, CORPUS, TOKENIZER, CACHE})
"""Whose code imports datakit/documents.py."""
USES_TRAINER = frozenset({CHECKPOINT, RESULT, SCORES, POLICY})
"""Whose code imports the trainer's configs and model; its steps and optimizers are the checkpoint's alone."""


GROWN, ALTERED = "grown", "altered"
TOPICS = '"topics_python", "docs", PSF, "with attribution",'


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
    package: str = ""
    """Folder of another version of a package, below the folder of packages."""
    bucket: str = ""
    """What happens to the bucket that one source is fetched from."""
    workers: int = 1
    known_miss: str = ""
    """Why the lab does not see it; a row with this is reported as a miss."""
