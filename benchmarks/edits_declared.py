"""Edits of what is declared: configs, recipes, sources, pinned packages. Written before the lab is asked."""

from benchmarks.edits_patches import swap
from benchmarks.edits_row import (
    ALL,
    ALTERED,
    AUDIT,
    CACHE,
    CHECKPOINT,
    CORPUS,
    DUPLICATES,
    GROWN,
    INDEX,
    MARKS,
    MINHASH,
    MIXTURE,
    NORMALIZE,
    QUALITY,
    RAW,
    REPORT,
    RESULT,
    RUN,
    SCORES,
    SUITE,
    TOKENIZER,
    TOKENS,
    TOPICS,
    USES_TRAINER,
    Edit,
)


def configs() -> tuple[Edit, ...]:
    """Defaults and fields of configs."""
    field = "    max_whitespace_run_chars: int = 128\n"
    marked = field + '    min_chars: int = field(default=0, metadata={"added_later": True})\n'
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
            (swap("datakit/normalize.py", field, marked),),
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
            (swap("recipes/data.py", "MIXTURE_SEED = 17", "MIXTURE_SEED = 18"),),
            "another mixture, so another run",
            rebuilt=frozenset({MIXTURE}) | RUN,
        ),
        Edit(
            "the run's seed 1 -> 2",
            "recipe",
            (swap("recipes/runs.py", "seed=1,\n        save_every_steps=160", "seed=2,\n        save_every_steps=160"),),
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
            rebuilt=frozenset({"evals.policy", RESULT, SCORES, AUDIT, REPORT}),
        ),
        Edit(
            "a source left out",
            "recipe",
            (swap("benchmarks/edits_line.py", '("python_topics", "bucket")', '("bucket",)'),),
            "what reads all sources is made again, and an index's proof, which is over clean text; nothing else of the others",
            rebuilt=frozenset({DUPLICATES, INDEX}) | TOKENS | RUN,
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
