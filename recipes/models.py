"""Published models and their nodes. Runs may start from them, and their scores are compared with ours.

A model's key is `models/<name>`: its weights in our format and its tokenizer, from a raw source of the catalogue.
"""

from dataclasses import dataclass, replace
from functools import cache

from datakit.sources.raw import RAW
from datakit.tokens.tokenizer_files import TOKENIZER_FILES, TokenizerFilesConfig
from lineage.build.nodes import Node
from recipes.sources import catalogue
from trainer.hf.import_model import HF_IMPORT, HfImportConfig
from trainer.spec.llama import LlamaConfig


@dataclass(frozen=True)
class PublishedModel:
    """A model of the catalogue: its raw source, the token that ends a document in its training data, the context used here, the
    rows of its embedding, and the token that opens a document where it is another."""

    name: str
    source: str
    document_end: str
    max_seq_len: int
    vocab_size: int
    document_start: str = ""


def smollm2() -> PublishedModel:
    """SmolLM2-135M-Instruct, 4-bit weights converted to float32 (a GGUF file: no other format is in a package registry)."""
    return PublishedModel("smollm2-135m-instruct", "smollm2_135m", "<|endoftext|>", max_seq_len=2048, vocab_size=49_152)


def smollm2_config() -> LlamaConfig:
    """The architecture that a run which starts from it must declare."""
    return LlamaConfig(
        vocab_size=smollm2().vocab_size,
        hidden_dim=576,
        intermediate_dim=1_536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        max_seq_len=smollm2().max_seq_len,
        rope_theta=100_000.0,
    )


@cache
def imported(model: PublishedModel) -> Node:
    """The model as a checkpoint without a mixture."""
    raw = Node(("datakit", "raw"), model.source, RAW, replace(catalogue()[model.source], mixture_weight=0.0))
    config = HfImportConfig(model.document_end, model.max_seq_len, model.document_start)
    return Node(("models", model.name), None, HF_IMPORT, config, {"raw": raw})


@cache
def model_tokenizer(model: PublishedModel) -> Node:
    """The model's tokenizer as a separate artifact, so that caches do not depend on the weights."""
    return Node(("tokenizer", model.name), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": imported(model)})
