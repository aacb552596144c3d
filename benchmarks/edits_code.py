"""Edits of code: silent ones, refactors that change no byte, fixes that do. Written before the lab is asked."""

from benchmarks.edits_patches import append, reformat, reword, swap, to_the_end
from benchmarks.edits_row import (
    ALL,
    CHECKPOINT,
    CORPUS,
    DUPLICATES,
    MARKS,
    MINHASH,
    NORMALIZE,
    QUALITY,
    RAW,
    READS_DOCUMENTS,
    REPORT,
    Edit,
)


def silent() -> tuple[Edit, ...]:
    """Edits after which nothing may be rebuilt and nothing flagged."""
    counted = '    documents = _total(parts, "documents")\n'
    comment = swap("datakit/normalize.py", counted, "    # repeated ones are gone\n" + counted)
    docstring = reword("lineage/token_cache.py")
    imports = "from lineage.stage import Stage\n", "from lineage.store import Artifact\n"
    return (
        Edit("comment in normalize.py", "formatting", (comment,), "comments are no code"),
        Edit(
            "quality.py written by ast.unparse", "formatting", (reformat("datakit/quality.py"),), "the syntax tree is the same"
        ),
        Edit("docstring of token_cache.py reworded", "formatting", (docstring,), "docstrings are no code"),
        Edit(
            "imports of corpus.py in another order",
            "formatting",
            (swap("datakit/corpus.py", "".join(imports), "".join(reversed(imports))),),
            "imports that stand together bring the same",
        ),
        Edit("paragraph in docs/", "docs", (append("docs/design/contracts.md", "\nMore words.\n"),), "no stage reads it"),
        Edit(
            "test added",
            "tests",
            (append("tests/datakit/test_corpus.py", "\n\ndef test_new() -> None:\n    pass\n"),),
            "no stage imports it",
        ),
        Edit(
            "longer tables in the UI",
            "UI",
            (swap("marin_assets/values.py", "TABLE_ROWS = 30", "TABLE_ROWS = 50"),),
            "the shell makes no bytes",
        ),
        Edit(
            "queue.py (the broker) changed",
            "not imported",
            (append("evals/broker/queue.py", "\n\ndef unused() -> int:\n    return 1\n"),),
            "no stage imports it",
        ),
        Edit("new module datakit/ideas.py", "not imported", (append("datakit/ideas.py", "x = 1\n"),), "no stage imports it"),
        Edit(
            "log text in lineage/plan.py",
            "log message",
            (swap("lineage/plan.py", '"%s: reused, made %s%s"', '"%s: found, made %s%s"'),),
            "plans call stages, stages import no plans",
        ),
        Edit("workers 1 -> 4", "workers", (), "identity knows no workers; bytes must not either", workers=4),
        Edit(
            "the root copied to another region",
            "region",
            (),
            "addresses are relative to the root (every row runs on such a copy)",
        ),
    )


def refactors() -> tuple[Edit, ...]:
    """Edits that change code and no bytes: flagged, cleared by evidence, nothing rebuilt."""
    rename = (
        swap("datakit/minhash.py", "    matrix = RMinHash.", "    digests = RMinHash."),
        swap("datakit/minhash.py", "np.array(matrix.to_rows()", "np.array(digests.to_rows()"),
    )
    extract = (
        swap("datakit/quality.py", '    return {"rows": out.rows}\n', "    return _counted(out.rows)\n"),
        append("datakit/quality.py", '\n\ndef _counted(rows: int) -> dict[str, int]:\n    return {"rows": rows}\n'),
    )
    body = '''def _encodable(name: str) -> str:
    """A name or sample with lone surrogates written as `\\\\udc80`: a bad file name or title must not stop its source."""
    return name.encode("utf-8", "backslashreplace").decode()
'''
    move = (
        swap("datakit/normalize.py", "\n\n" + body, ""),
        swap(
            "datakit/normalize.py",
            "from datakit.record import LONE_SURROGATE, Record,",
            "from datakit.record import LONE_SURROGATE, Record, _encodable,",
        ),
        append("datakit/record.py", "\n\n" + body),
    )
    plain, whole = (
        "flagged: the syntax tree changed; evidence clears it",
        "flagged: every stage stands on it; evidence clears it",
    )
    return (
        Edit("local variable renamed in minhash.py", "refactor", rename, plain, flagged=frozenset({MINHASH})),
        Edit("function extracted in quality.py", "refactor", extract, plain, flagged=frozenset({QUALITY})),
        Edit("function moved: normalize.py -> record.py", "refactor", move, plain, flagged=frozenset({RAW, NORMALIZE})),
        Edit(
            "functions reordered in shingles.py",
            "refactor",
            (to_the_end("datakit/shingles.py", "mix"),),
            plain,
            flagged=frozenset({MINHASH, DUPLICATES}),
        ),
        Edit(
            "annotation in documents.py",
            "annotation",
            (
                swap(
                    "datakit/documents.py",
                    "def document_paths(artifact: Artifact, split: str = DOCUMENTS) -> list[Path]:",
                    "def document_paths(artifact: Artifact, split: str = DOCUMENTS) -> Sequence[Path]:",
                ),
            ),
            plain,
            flagged=READS_DOCUMENTS,
        ),
        Edit(
            "log text in lineage/commit.py",
            "log message",
            (
                swap(
                    "lineage/commit.py",
                    "another writer committed first; its artifact is used",
                    "another writer was first; its artifact is used",
                ),
            ),
            whole,
            flagged=ALL,
        ),
        Edit(
            "progress bar's title",
            "progress bar",
            (swap("lineage/progress.py", "TITLE_CHARS = 44", "TITLE_CHARS = 50"),),
            whole,
            flagged=ALL,
        ),
        Edit(
            "larger reads in lineage/digests.py",
            "ground module",
            (swap("lineage/digests.py", "READ_BYTES = 1 << 22", "READ_BYTES = 1 << 23"),),
            whole,
            flagged=ALL,
        ),
        Edit(
            "hub.py, imported inside a function",
            "lazy import",
            (swap("datakit/hub.py", "SHA256_CHARS = 64", "SHA256_CHARS = 8 * 8"),),
            "flagged: a lazy import is an import",
            flagged=frozenset({RAW}),
        ),
        Edit(
            "pydoc_pages.py, run as a script",
            "script",
            (append("datakit/pydoc_pages.py", "\n\nUNUSED = 1\n"),),
            "flagged: raw.py names the file and runs it",
            flagged=frozenset({RAW}),
        ),
        Edit(
            "local variable renamed in step.py",
            "refactor",
            (
                swap(
                    "trainer/step.py",
                    "        rate = learning_rate(spec.schedule, spec.num_steps, step)\n",
                    "        rate_now = learning_rate(spec.schedule, spec.num_steps, step)\n        rate = rate_now\n",
                ),
            ),
            "flagged; jobs are verified when they are allowed, here training is",
            flagged=frozenset({CHECKPOINT}),
            jobs=frozenset({CHECKPOINT}),
        ),
    )


def fixes() -> tuple[Edit, ...]:
    """Bug fixes and constants, with and without a bump of the stage version."""
    strip = swap(
        "datakit/record.py",
        "    if text.isspace():",
        '    if not text.strip("\\ufeff \\t\\r\\n\\x0b\\x0c"):',
    )
    shift = swap("datakit/minhash.py", "np.arange(1, config.bands + 1,", "np.arange(2, config.bands + 2,")
    return (
        Edit(
            "fix in record.py, no bytes on this data",
            "bug fix",
            (strip,),
            "flagged; evidence clears it",
            flagged=frozenset({RAW, NORMALIZE}),
        ),
        Edit(
            "the same, stage version bumped",
            "bug fix",
            (strip, swap("datakit/normalize.py", '"datakit.normalize", "7"', '"datakit.normalize", "8"')),
            "rebuilt as declared; equal bytes stop it there; raw files of Debian packages are read as records too",
            rebuilt=frozenset({NORMALIZE}),
            flagged=frozenset({RAW}),
        ),
        Edit(
            "fix in minhash.py, other bytes",
            "bug fix",
            (shift,),
            "flagged; evidence finds the difference",
            flagged=frozenset({MINHASH}),
            differs=frozenset({MINHASH}),
        ),
        Edit(
            "the same, stage version bumped",
            "bug fix",
            (shift, swap("datakit/minhash.py", '"datakit.minhash", "3"', '"datakit.minhash", "4"')),
            "rebuilt with what reads it; the same clusters come out and stop it there",
            rebuilt=frozenset({MINHASH, DUPLICATES, REPORT}),
        ),
        Edit(
            "zstd level 3 -> 4 in documents.py",
            "constant",
            (swap("datakit/documents.py", "compression_level=3", "compression_level=4"),),
            "flagged in all that read documents; those that write Parquet differ (no rows in duplicates)",
            flagged=READS_DOCUMENTS,
            differs=frozenset({NORMALIZE, MINHASH, QUALITY, MARKS, CORPUS}),
        ),
        Edit(
            "Adam's epsilon inside the root",
            "bug fix",
            (
                swap(
                    "trainer/optimizers/adam.py",
                    "    return optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps)\n",
                    "    return optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=0.0, eps_root=config.eps**2)\n",
                ),
            ),
            "flagged; training again finds other parameters",
            flagged=frozenset({CHECKPOINT}),
            differs=frozenset({CHECKPOINT}),
            jobs=frozenset({CHECKPOINT}),
        ),
    )
