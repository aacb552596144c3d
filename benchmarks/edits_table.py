"""The edits of `benchmarks/edits.py`, and what must happen after each: written before the lab is asked.

`rebuilt`: stages of which something must be made again. `flagged`: stages of which everything that is reused must be shown as
drifted. `differs`: those of the flagged whose evidence must find other bytes. Whatever is not named must be reused in silence.
"""

from dataclasses import dataclass

from benchmarks.edits_patches import Operation, append, reformat, reword, swap, to_the_end

RAW, NORMALIZE, MINHASH, QUALITY = "datakit.raw", "datakit.normalize", "datakit.minhash", "datakit.quality"
SUITE, INDEX, MARKS = "evals.suite", "datakit.contamination_index", "datakit.contamination"
DUPLICATES, CORPUS, TOKENIZER, CACHE = "datakit.duplicates", "datakit.corpus", "datakit.tokenizer", "datakit.token_cache"
MIXTURE, CHECKPOINT, RESULT, SCORES = "lineage.mixture", "trainer.checkpoint", "evals.result", "evals.contamination_scores"
AUDIT, REPORT = "evals.audit", "evals.report"
NONE: frozenset[str] = frozenset()
RUN = frozenset({CHECKPOINT, RESULT, SCORES, AUDIT, REPORT})
TOKENS = frozenset({TOKENIZER, CACHE, MIXTURE})
DATA = frozenset({RAW, NORMALIZE, MINHASH, QUALITY, SUITE, INDEX, MARKS, DUPLICATES, CORPUS}) | TOKENS
ALL = DATA | RUN
READS_DOCUMENTS = frozenset({NORMALIZE, MINHASH, QUALITY, MARKS, DUPLICATES, CORPUS, TOKENIZER, CACHE})
"""Whose code imports datakit/documents.py."""
USES_TRAINER = frozenset({CHECKPOINT, RESULT, SCORES})
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


def silent() -> tuple[Edit, ...]:
    """Edits after which nothing may be rebuilt and nothing flagged."""
    counted = '    documents = _total(parts, "documents")\n'
    comment = swap("datakit/normalize.py", counted, "    # repeated ones are gone\n" + counted)
    docstring = reword("lineage/token_cache.py")
    imports = "from lineage.stage import Stage\n", "from lineage.store import Artifact, Writer\n"
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
            (swap("marin_assets/describe.py", "TABLE_ROWS = 30", "TABLE_ROWS = 50"),),
            "the shell makes no bytes",
        ),
        Edit(
            "decoding.py (serving) changed",
            "not imported",
            (append("trainer/decoding.py", "\n\ndef unused() -> int:\n    return 1\n"),),
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
            "from datakit.record import Record, Unreadable",
            "from datakit.record import Record, Unreadable, _encodable",
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
        Edit("function moved: normalize.py -> record.py", "refactor", move, plain, flagged=frozenset({NORMALIZE})),
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
            "log text in lineage/store.py",
            "log message",
            (
                swap(
                    "lineage/store.py",
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
        "datakit/normalize.py", "    if record.text.isspace():", '    if not record.text.strip("\\ufeff \\t\\r\\n\\x0b\\x0c"):'
    )
    shift = swap("datakit/minhash.py", "np.arange(1, config.bands + 1,", "np.arange(2, config.bands + 2,")
    return (
        Edit(
            "fix in normalize.py, no bytes on this data",
            "bug fix",
            (strip,),
            "flagged; evidence clears it",
            flagged=frozenset({NORMALIZE}),
        ),
        Edit(
            "the same, stage version bumped",
            "bug fix",
            (strip, swap("datakit/normalize.py", '"datakit.normalize", "3"', '"datakit.normalize", "4"')),
            "rebuilt as declared; equal bytes stop it there",
            rebuilt=frozenset({NORMALIZE}),
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
            (shift, swap("datakit/minhash.py", '"datakit.minhash", "2"', '"datakit.minhash", "3"')),
            "rebuilt with what reads it; the same clusters come out and stop it there",
            rebuilt=frozenset({MINHASH, DUPLICATES, REPORT}),
        ),
        Edit(
            "zstd level 3 -> 4 in documents.py",
            "constant",
            (swap("datakit/documents.py", "compression_level=3", "compression_level=4"),),
            "flagged in all that read documents; those that write Parquet differ (no rows in duplicates)",
            flagged=READS_DOCUMENTS,
            differs=frozenset({NORMALIZE, MINHASH, QUALITY, CORPUS}),
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


def configs() -> tuple[Edit, ...]:
    """Defaults and fields of configs."""
    field = "    max_whitespace_run_chars: int = 128\n"
    later = (
        swap("datakit/normalize.py", "from dataclasses import dataclass\n", "from dataclasses import dataclass, field\n"),
        swap("datakit/normalize.py", field, field + '    min_chars: int = field(default=0, metadata={"added_later": True})\n'),
    )
    return (
        Edit(
            "max_band_documents 256 -> 512",
            "config default",
            (swap("datakit/duplicates.py", "max_band_documents: int = 256", "max_band_documents: int = 512"),),
            "a config is identity; the same clusters come out and stop it there",
            rebuilt=frozenset({DUPLICATES}),
        ),
        Edit(
            "words asked of docs and web 20 -> 60",
            "config default",
            (
                swap(
                    "datakit/quality.py",
                    '        Bound("num_words", low=20),\n        Bound("alnum_char_frac"',
                    '        Bound("num_words", low=60),\n        Bound("alnum_char_frac"',
                ),
            ),
            "both sources are judged anew, some documents fall, and all below is other text",
            rebuilt=frozenset({QUALITY, CORPUS}) | TOKENS | RUN,
        ),
        Edit(
            "field added, added_later",
            "config field",
            later,
            "no identity moves; flagged; evidence clears it",
            flagged=frozenset({NORMALIZE}),
        ),
        Edit(
            "field added, not marked",
            "config field",
            (swap("datakit/normalize.py", field, field + "    min_chars: int = 0\n"),),
            "identity moves; equal bytes stop it there",
            rebuilt=frozenset({NORMALIZE}),
        ),
        Edit(
            "default of an added_later field changed",
            "config default",
            (swap("trainer/config.py", "qk_norm: bool = field(default=False,", "qk_norm: bool = field(default=True,"),),
            "the trap: the identity does not move. Flagged; training again finds the difference",
            flagged=USES_TRAINER,
            differs=frozenset({CHECKPOINT}),
            jobs=frozenset({CHECKPOINT}),
        ),
    )


def recipe_values() -> tuple[Edit, ...]:
    """What the lab declares: recipes are identity where they say so, and never code."""
    return (
        Edit(
            "a source's weight 1 -> 2",
            "recipe",
            (swap("recipes/sources.py", '"topics_python", "docs", PSF, "with attribution", 1.0', f"{TOPICS} 2.0"),),
            "another mixture, so another run; no byte of the source",
            rebuilt=frozenset({MIXTURE}) | RUN,
        ),
        Edit(
            "the mixture's seed 17 -> 18",
            "recipe",
            (swap("recipes/data.py", "seed=17)", "seed=18)"),),
            "another mixture, so another run",
            rebuilt=frozenset({MIXTURE}) | RUN,
        ),
        Edit(
            "the run's seed 1 -> 2",
            "recipe",
            (swap("recipes/runs.py", "        seed=1,", "        seed=2,"),),
            "another run over the same data",
            rebuilt=RUN,
        ),
        Edit(
            "the run's steps 6 -> 9",
            "recipe",
            (swap("benchmarks/edits_line.py", "num_steps=6", "num_steps=9"),),
            "another run over the same data",
            rebuilt=RUN,
        ),
        Edit(
            "the evaluation's seed 5 -> 6",
            "recipe",
            (swap("recipes/policies.py", "EVAL_SEED = 5", "EVAL_SEED = 6"),),
            "another evaluation of the same run",
            rebuilt=frozenset({RESULT, SCORES, AUDIT, REPORT}),
        ),
        Edit(
            "a source left out",
            "recipe",
            (swap("benchmarks/edits_line.py", '("python_topics", "bucket")', '("bucket",)'),),
            "what reads all sources is made again; the others' documents, attributes and corpora are not",
            rebuilt=frozenset({DUPLICATES}) | TOKENS | RUN,
        ),
        Edit(
            "a source's domain web -> docs (same rules)",
            "recipe",
            (swap("recipes/sources.py", 'Records("jsonl"), "web"', 'Records("jsonl"), "docs"'),),
            "the domain is a fact of normalized and corpus that evaluations go by; the same tokens stop it above training",
            rebuilt=frozenset(
                {RAW, NORMALIZE, MINHASH, QUALITY, MARKS, DUPLICATES, CORPUS, TOKENIZER, CACHE, RESULT, AUDIT, REPORT}
            ),
        ),
    )


def sources() -> tuple[Edit, ...]:
    """Revisions and places of sources."""
    below = frozenset({RAW, NORMALIZE, MINHASH, QUALITY, MARKS, DUPLICATES, CORPUS}) | TOKENS | RUN
    return (
        Edit(
            "a source's terms reworded",
            "source revision, same content",
            (swap("recipes/sources.py", TOPICS, '"topics_python", "docs", PSF, "with its notice",'),),
            "the terms are recorded with the files; equal bytes stop it there",
            rebuilt=frozenset({RAW}),
        ),
        Edit(
            "the bucket has one more file",
            "source revision, other content",
            (),
            "its line down to the run; other sources' documents are reused",
            rebuilt=below,
            bucket=GROWN,
        ),
        Edit(
            "the bucket's URL is another region's",
            "region",
            (swap("recipes/sources.py", '/region-a"', '/region-b"'),),
            "fetched again, as its pin is of names and sizes; equal bytes stop it there",
            rebuilt=frozenset({RAW}),
        ),
        Edit(
            "a file altered in place, same size and pin",
            "source content",
            (),
            "the artifact is what was fetched; nobody asks the bucket again",
            bucket=ALTERED,
            known_miss="what was fetched is kept and nobody asks the bucket again; fetching it again is refused",
        ),
    )


def packages() -> tuple[Edit, ...]:
    """Other versions of dependencies, installed for real beside the environment (pip --target)."""
    return (
        Edit(
            "tokenizers, another version",
            "dependency",
            (),
            "flagged where it is imported, and nowhere else",
            flagged=frozenset({TOKENIZER, CACHE, RESULT, SCORES}),
            package="tokenizers",
        ),
        Edit(
            "pyarrow, another version",
            "dependency",
            (),
            "flagged everywhere; Parquet names its writer, so files differ",
            flagged=ALL,
            differs=frozenset({NORMALIZE, MINHASH, QUALITY, SUITE, MARKS, DUPLICATES, CORPUS, AUDIT}),
            package="pyarrow",
        ),
        Edit("xxhash, another version", "dependency", (), "flagged everywhere; the same hashes", flagged=ALL, package="xxhash"),
        Edit("typer, another version (metadata alone)", "dependency", (), "no stage imports it", package="typer"),
    )


def edits() -> tuple[Edit, ...]:
    return (*silent(), *refactors(), *fixes(), *configs(), *recipe_values(), *sources(), *packages())
