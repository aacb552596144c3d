"""Eight edits of code, from none that may be flagged to one that changes bytes. Written before the lab is asked."""

from benchmarks.edits_patches import append, reformat, reword, swap, to_the_end
from benchmarks.edits_row import DUPLICATES, MINHASH, RAW, READS_DOCUMENTS, WRITES_DOCUMENTS, Edit

SILENT, FLAGGED = "no code of a stage changes", "the syntax tree changes; evidence clears it"


def edits() -> tuple[Edit, ...]:
    """Every row, in the order in which they are printed."""
    imports = "from lineage.shards.run import SCRATCH_FOLDER\n", "from lineage.stage import Stage\n"
    rename = (
        swap("datakit/dedup/minhash.py", "    matrix = RMinHash.", "    digests = RMinHash."),
        swap("datakit/dedup/minhash.py", "np.array(matrix.to_rows()", "np.array(digests.to_rows()"),
    )
    return (
        Edit("comments and line breaks", "comment", (reformat("datakit/quality/verdicts.py"),), SILENT),
        Edit("words of a docstring", "docstring", (reword("lineage/order/token_cache.py"),), SILENT),
        Edit(
            "imports in another order",
            "import",
            (swap("datakit/corpus/build.py", "".join(imports), "".join(reversed(imports))),),
            SILENT,
        ),
        Edit("local variable renamed", "rename", rename, FLAGGED, flagged=frozenset({MINHASH})),
        Edit(
            "functions reordered",
            "reorder",
            (to_the_end("datakit/text/shingles.py", "mix"),),
            FLAGGED,
            flagged=frozenset({MINHASH, DUPLICATES}),
        ),
        Edit(
            "script beside a module that the stage imports",
            "helper",
            (append("datakit/sources/pydoc_pages.py", "\n\nUNUSED = 1\n"),),
            "the stage names the file and runs it",
            flagged=frozenset({RAW}),
        ),
        Edit(
            "default argument of a config",
            "default argument",
            (swap("datakit/dedup/duplicates.py", "max_band_documents: int = 256", "max_band_documents: int = 512"),),
            "a config is identity: duplicates are found again, and equal bytes stop it there",
            rebuilt=frozenset({DUPLICATES}),
        ),
        Edit(
            "constant that decides bytes",
            "constant",
            (swap("datakit/documents/parts.py", "compression_level=3", "compression_level=4"),),
            "flagged in all that read documents; those that write Parquet differ (no rows in duplicates)",
            flagged=READS_DOCUMENTS,
            differs=WRITES_DOCUMENTS,
        ),
    )
