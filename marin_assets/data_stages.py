"""The blocking checks that stages name in `Stage.checks`, and how the graph shows the stages of the data half."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from datakit import contained_rates, invariants, removal_rates
from marin_assets.factory import Invariant
from marin_assets.quarantine import SHARDS_CHECK, SHARDS_PROMISE, missing_shards

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
CLEARED_ITEMS = Invariant(
    "cleared_items_read", "no match was cleared as a common phrase that nobody has read", invariants.check_cleared_items
)
REMOVAL_RATES = Invariant(
    "removal_rates", "no source loses more than the declared share of its documents", removal_rates.check_removal_rates
)
CONTAINED_RATES = Invariant(
    "contained_rates",
    "no source loses more than the declared share of its documents to containers and duplicates",
    contained_rates.check_contained_rates,
)
CORPUS_VALID = Invariant(
    "corpus_valid", "both splits sorted, unique, disjoint and of the exact schema", invariants.check_corpus
)
TOKENS_VALID = Invariant(
    "tokens_match_documents",
    "token rows = documents of the train split, in the same order",
    lambda artifact: invariants.check_token_cache(artifact, artifact.input("corpus")),
)
_CHECKS = (ROWS, FILES, DOCUMENTS, ATTRIBUTES, CLEARED_ITEMS, REMOVAL_RATES, CONTAINED_RATES, CORPUS_VALID, TOKENS_VALID)
CHECKS: Mapping[str, Invariant] = MappingProxyType({check.name: check for check in _CHECKS})
"""Name -> check. If a stage names a check that this table lacks, loading the graph raises KeyError."""


@dataclass(frozen=True)
class View:
    """How the graph shows the assets of a stage: their group, and the kinds of their files."""

    group: str
    kinds: frozenset[str]


_ATTRIBUTES = View("documents", frozenset({"parquet"}))
_VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "datakit.raw": View("sources", frozenset({"file"})),
        "datakit.card": View("sources", frozenset({"markdown"})),
        "datakit.normalize": View("documents", frozenset({"parquet", "polars"})),
        "datakit.quality": View("documents", frozenset({"parquet", "polars"})),
        "datakit.quality_rules": View("documents", frozenset({"parquet", "polars"})),
        "datakit.languages": View("documents", frozenset({"parquet", "numpy"})),
        "datakit.code_licences": View("documents", frozenset({"parquet"})),
        "labels": View("documents", frozenset({"parquet"})),
        "datakit.embeddings": View("documents", frozenset({"parquet", "numpy"})),
        "datakit.domain_model": View("documents", frozenset({"json", "numpy"})),
        "datakit.domains": View("documents", frozenset({"parquet", "numpy"})),
        "datakit.scorer": View("documents", frozenset({"json"})),
        "datakit.scores": View("documents", frozenset({"parquet", "numpy"})),
        "datakit.contamination": View("contamination", frozenset({"parquet"})),
        "datakit.contamination_index": View("contamination", frozenset({"numpy"})),
        "datakit.corpus": View("corpora", frozenset({"parquet", "polars"})),
        "datakit.removals": View("corpora", frozenset({"parquet", "polars"})),
        "datakit.score_cutoff": View("corpora", frozenset({"json"})),
        "datakit.tokenizer": View("tokens", frozenset({"json", "huggingface"})),
        "datakit.extended_tokenizer": View("tokens", frozenset({"json", "huggingface"})),
        "datakit.token_cache": View("tokens", frozenset({"binary"})),
        "trainer.pair_scores": View("tokens", frozenset({"jax", "parquet"})),
        "lineage.mixture": View("tokens", frozenset({"json"})),
        "lineage.chosen_mixture": View("tokens", frozenset({"json"})),
        "environments": View("sources", frozenset({"parquet"})),
        "synthetic": View("sources", frozenset({"parquet"})),
        "post_training.prompt_texts": View("contamination", frozenset({"parquet"})),
        "evals.suite": View("evaluation", frozenset({"parquet"})),
        "evals.policy": View("evaluation", frozenset({"json"})),
    }
)


def view_of(stage: str) -> View:
    """Return the view of a stage's assets, or of its family. One without a row is shown as an attribute table of documents."""
    return _VIEWS.get(stage, _VIEWS.get(stage.partition(".")[0], _ATTRIBUTES))
