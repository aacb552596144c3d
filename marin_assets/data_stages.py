"""The stages of the data half of the graph: how each is shown and what it checks."""

from collections.abc import Callable
from dataclasses import dataclass

from datakit import invariants, removal_rates
from lineage.build.plan import Node
from marin_assets.factory import Invariant
from marin_assets.quarantine import SHARDS_CHECK, SHARDS_PROMISE, missing_shards
from recipes import data

SHARDS = Invariant(SHARDS_CHECK, SHARDS_PROMISE, missing_shards)
ROWS = Invariant("rows_conserved", "rows in = rows out + drops by reason", invariants.check_rows_conserved)
FILES = Invariant("file_set", "the files are exactly those of the manifest, complete and in order", invariants.check_file_set)
DOCUMENTS = Invariant(
    "documents_valid", "ids are content ids, sorted and unique; the schema is exact", invariants.check_documents
)
ATTRIBUTES = Invariant(
    "attributes_aligned",
    "one row a document, same ids in the same files",
    lambda artifact: invariants.check_attributes(artifact, artifact.input("normalized")),
)
REMOVAL_RATES = Invariant(
    "removal_rates", "no source loses more than the declared share of its documents", removal_rates.check_removal_rates
)
CORPUS_VALID = Invariant(
    "corpus_valid", "both splits sorted, unique, disjoint and of the exact schema", invariants.check_corpus
)
TOKENS_VALID = Invariant(
    "tokens_match_documents",
    "token rows = documents of the train split, in the same order",
    lambda artifact: invariants.check_token_cache(artifact, artifact.input("corpus")),
)


@dataclass(frozen=True)
class DataStage:
    """A row of the table: the recipe's node function and how the graph shows it."""

    node: Callable[..., Node]
    """Takes the record that it needs, then the source if each source has its own, then the placement."""

    group: str
    description: str
    kinds: frozenset[str]
    invariants: tuple[Invariant, ...]


RAW = DataStage(
    data.raw,
    "sources",
    "Files as fetched: pinned, hash-checked, licence recorded.",
    frozenset({"file"}),
    (FILES,),
)
NORMALIZED = DataStage(
    data.normalized,
    "datakit",
    "Documents with `id = xxh3_128(text)`, sorted and unique; dropped rows are counted by reason with samples.",
    frozenset({"parquet", "polars"}),
    (ROWS, FILES, DOCUMENTS),
)
MINHASH = DataStage(
    data.minhash,
    "datakit",
    "MinHash bands of every document's word 5-grams, the candidates of fuzzy deduplication.",
    frozenset({"parquet"}),
    (FILES, ATTRIBUTES),
)
QUALITY = DataStage(
    data.quality,
    "datakit",
    "Quality signals of every document and the verdict of its domain's rules (prose rules never judge code).",
    frozenset({"parquet", "polars"}),
    (FILES, ATTRIBUTES),
)
CONTAMINATION = DataStage(
    data.contamination,
    "contamination",
    "Marks against the benchmark items that the policy binds, with matched spans and canary recall.",
    frozenset({"parquet"}),
    (FILES, ATTRIBUTES),
)
CORPUS = DataStage(
    data.corpus,
    "corpora",
    "Documents that survive the declared filters, split into train and held-out (whole duplicate clusters to one side).",
    frozenset({"parquet", "polars"}),
    (ROWS, FILES, CORPUS_VALID),
)
TOKEN_CACHE = DataStage(
    data.token_cache,
    "token_caches",
    "Token shards of the train split, bound to the exact tokenizer; document ends and ids are kept.",
    frozenset({"binary"}),
    (FILES, TOKENS_VALID),
)
QUALITY_RULES = DataStage(
    data.quality_rules,
    "datakit",
    "What Gopher, C4 and FineWeb would drop, rule by rule, and the signals that they judge by; code is not judged.",
    frozenset({"parquet", "polars"}),
    (FILES, ATTRIBUTES),
)

DUPLICATES = DataStage(
    data.duplicates,
    "datakit",
    "Verified duplicate clusters across the scope's sources; a document leaves only for a match with a kept one.",
    frozenset({"parquet"}),
    (FILES, ROWS, REMOVAL_RATES),
)
SUITE = DataStage(
    data.suite,
    "eval_suites",
    "Benchmark items by content. Checkpoints are evaluated on them, and corpora are cleaned of them.",
    frozenset({"parquet"}),
    (FILES,),
)
CONTAMINATION_INDEX = DataStage(
    data.contamination_index,
    "contamination",
    "Grams of the items that the policy binds, weighed by how many items share them: sources are scanned with it.",
    frozenset({"numpy"}),
    (FILES,),
)
TOKENIZER = DataStage(
    data.tokenizer,
    "tokenizers",
    "Byte-level BPE trained on the corpus.",
    frozenset({"json", "huggingface"}),
    (FILES,),
)
MIXTURE = DataStage(
    data.mixture,
    "mixtures",
    "Frozen weights and the exact cache digests they bind: the pivot between data and training.",
    frozenset({"json"}),
    (FILES,),
)
SCORER = DataStage(
    data.scorer,
    "datakit",
    "A quality score learned from labelled seeds: ranking and calibration on held-out seeds, and the words that weigh most.",
    frozenset({"json"}),
    (FILES,),
)
SCORES = DataStage(
    data.scores,
    "datakit",
    "The scorer's probability for every document; deciles with samples to read.",
    frozenset({"parquet", "numpy"}),
    (FILES, ATTRIBUTES),
)
CUTOFF = DataStage(
    data.score_cutoff,
    "corpora",
    "Which scores a corpus keeps that keeps a fraction of its documents: the last one that stays, by source.",
    frozenset({"json"}),
    (ROWS, FILES),
)
REPEATED_PARAGRAPHS = DataStage(
    data.paragraphs,
    "datakit",
    "Paragraphs that stand in an earlier document of the scope, as spans that a corpus cuts.",
    frozenset({"parquet"}),
    (ROWS, FILES),
)
CARD = DataStage(
    data.card,
    "sources",
    "A source's page: licence, pin, rows through every stage, drops by reason with samples, quality, duplicates, leaks.",
    frozenset({"markdown"}),
    (ROWS, FILES),
)
TRAJECTORIES = DataStage(
    data.trajectory_cache,
    "token_caches",
    "Tokens and mask of the held-out conversations, for evaluations of what an assistant says.",
    frozenset({"binary"}),
    (FILES, TOKENS_VALID),
)
SHOTS_DESCRIPTION = "Examples that few-shot prompts begin with: solved items that are never scored."
POLICY_DESCRIPTION = (
    "The dated evaluation policy: tasks, styles, examples, limits, seed, and when each is asked of a checkpoint."
)
