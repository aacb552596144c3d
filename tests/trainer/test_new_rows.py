"""A warm start with new special tokens: old rows to the bit, new rows the mean, the export with both, wrong sizes refused."""

import json
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest
from built_here import trained
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tiny import tiny_model, tiny_spec
from tokenizers import Tokenizer, models

from datakit.tokens.extended_tokenizer import EXTENDED_TOKENIZER, ExtendedTokenizerConfig
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.jobs.job import Job
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from recipes.records.tokens import ExtendedTokenizer, TrainedTokenizer
from trainer.array_files import ArrayFiles
from trainer.checkpoint import warm_start
from trainer.hf.convert import from_hf, from_hf_config
from trainer.hf.export import HF_MODEL, HfExportConfig, export_hf
from trainer.initial_state import initial_state
from trainer.new_rows import MoreRows
from trainer.scoring import load_scorer
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

OLD, ADDED = 40, ("<|user|>", "<|end|>")
MODEL = tiny_model(
    vocab_size=OLD, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=16, tie_embeddings=False
)
BASE = tiny_spec(name="base", model=MODEL, seq_len=16, num_steps=4, save_every_steps=None)
RUN = replace(
    BASE, name="chatting", model=replace(MODEL, vocab_size=OLD + len(ADDED)), seed=7, start=WarmStart(new_rows="mean")
)
EMBEDDING, HEAD = (f".{name}[<flat index 0>]" for name in ("embedding", "head"))


@dataclass(frozen=True)
class Words:
    """A tokenizer of words, or documents of its tokens."""

    word: str = "w"
    vocab_size: int = OLD


def write_tokenizer(out: Writer, config: Words) -> None:
    vocabulary = {"<|endoftext|>": 0} | {f"{config.word}{i}": i for i in range(1, OLD)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=f"{config.word}1"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    (out.folder / "tokenizer.json").write_text(tokenizer.to_str())
    out.facts["tokenizer"] = {"vocab_size": OLD, "eos": 0}


def write_cache(out: Writer, config: Words, tokenizer: Artifact) -> None:
    """Documents of old tokens alone, so that the loss of the start is known."""
    tokens = np.random.default_rng(config.vocab_size).integers(0, OLD, 2000)
    shard = write_token_shard(out.folder, "s", [("0" * 32, tokens)], "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", config.vocab_size, tokenizer.data_version, None, None, [shard])


TOKENIZER, CACHE = Stage("tests.word_tokenizer", "1", write_tokenizer), Stage("tests.word_cache", "1", write_cache)


def tokenizer(word: str = "w") -> Node:
    return Node(("tokenizer", word), None, TOKENIZER, Words(word))


def extended(base: Node) -> Node:
    key = ("tokenizer", f"more_{base.key[1]}")
    return Node(key, None, EXTENDED_TOKENIZER, ExtendedTokenizerConfig(ADDED), {"tokenizer": base})


def checkpoint(run: RunSpec, words: Node, start: Node | None = None) -> Node:
    cache = Node(("cache", words.key[1]), None, CACHE, Words("", run.model.vocab_size), {"tokenizer": words})
    config = MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1)
    inputs = {"mixture": Node(("mixture", words.key[1]), None, MIXTURE, config, {"caches": (cache,)})}
    key = ("runs", run.name, "checkpoint")
    return Node(
        key, step_partition(run.num_steps), CHECKPOINT, CheckpointConfig(run, run.num_steps),
        inputs | ({} if start is None else {"start": start}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(str(tmp_path_factory.mktemp("rows")))


@pytest.fixture(scope="module")
def made(store: Store) -> Artifact:
    return trained(store, checkpoint(RUN, extended(tokenizer()), checkpoint(BASE, tokenizer())))


def arrays(artifact: Artifact) -> dict[str, np.ndarray]:
    return load_file(artifact.file("model.safetensors"))


def test_old_rows_are_those_of_the_start_and_new_rows_their_mean(made: Artifact) -> None:
    start = made.input("start")
    there, state = arrays(start), warm_start(start, initial_state(RUN), RUN)
    for name, array in ((EMBEDDING, state.model.embedding.array), (HEAD, state.model.head.array)):
        found, old = np.asarray(array), there[name]
        assert found.shape == (OLD + 2, 16) and found.dtype == old.dtype
        assert (found[:OLD] == old).all()
        assert (found[OLD:] == old.astype(np.float64).mean(axis=0).astype(np.float32)).all()


def test_the_first_step_has_nearly_the_loss_of_the_start(made: Artifact) -> None:
    """Two new tokens take a share of the probability: their logits are the means of those of 40 tokens."""
    batch = DataOrder.open(made.input("mixture"), 16).batch(0, RUN.batch_size)
    before = np.concatenate(load_scorer(made.input("start")).token_nll(list(batch))).mean()
    first = pl.read_parquet(made.file("metrics.parquet"))["loss_nats"][0]
    assert before < first < before + np.log(OLD + 2) - np.log(OLD) + 1e-3


def test_the_export_has_all_rows_and_the_tokenizer_with_the_new_tokens(made: Artifact, store: Store) -> None:
    words = resolve(store, extended(tokenizer()))
    node = Node(("hf",), None, HF_MODEL, HfExportConfig(end_tokens=(ADDED[1],)), {})
    spec = replace(spec_of(store, node), inputs=(made.ref("checkpoint"), words.ref("tokenizer")))
    with Job(store, spec, {}, "code", "").writing(spec, None) as out:
        export_hf(out, HfExportConfig(end_tokens=(ADDED[1],)), made, words)
    folder = out.artifact.folder()
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] == OLD + 2 and config["eos_token_id"] == [0, OLD + 1]
    back, own = from_hf(load_file(folder / "model.safetensors"), from_hf_config(config)), arrays(made)
    assert all((back[name] == own[name]).all() for name in own) and back[EMBEDDING].shape == (OLD + 2, 16)
    opened = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [opened.token_to_id(token) for token in ADDED] == [OLD, OLD + 1] and opened.token_to_id("w5") == 5


def test_what_does_not_fit_is_refused(store: Store, made: Artifact) -> None:
    base, words = checkpoint(BASE, tokenizer()), extended(tokenizer())
    with pytest.raises(ValueError, match=r"array \.embedding\[<flat index 0>\] is \(\(40, 16\)"):  # larger, and not declared
        trained(store, checkpoint(named("a", start=WarmStart(changed_fields=("tokenizer",))), words, base))
    with pytest.raises(ValueError, match="the same ids are other words; extend the tokenizer of the start"):
        trained(store, checkpoint(named("b"), extended(tokenizer("x")), base))
    with pytest.raises(ValueError, match="extends none; give the mixture"):
        trained(store, checkpoint(named("c", model=MODEL), tokenizer(), base))
    start = made.input("start")
    for size in (OLD, OLD - 1):
        smaller = named("d", model=replace(MODEL, vocab_size=size))
        with pytest.raises(ValueError, match=f"model.vocab_size is {size}; it must be more than the 40"):
            warm_start(start, initial_state(smaller), smaller)
    with pytest.raises(ValueError, match="fresh, fresh and same with new_rows"):
        WarmStart("carried", new_rows="mean")
    with pytest.raises(ValueError, match="names no corpus"):
        ExtendedTokenizer("more", TrainedTokenizer("base", 300), ADDED)


def named(name: str, **changes: object) -> RunSpec:
    return replace(RUN, **({"name": f"refused_{name}"} | changes))  # pyrefly: ignore


@given(st.integers(0, 7), st.integers(1, 8), st.integers(0, 2), st.integers(1, 3))
def test_any_slice_is_that_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, row: int, rows_read: int, column: int, columns: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "slices"
    folder.mkdir(exist_ok=True)
    embedding = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    save_file({EMBEDDING: embedding, ".norm.weight": np.ones(5, np.float32)}, folder / "model.safetensors")
    files = ArrayFiles.open(folder, "model", "here")
    assert files is not None
    rows = MoreRows(files, 5, 8)
    whole = rows.read(EMBEDDING)
    assert whole.shape == rows.shapes[EMBEDDING][0] == (8, 3) and rows.shapes[".norm.weight"][0] == (5,)
    index = (slice(row, min(row + rows_read, 8)), slice(column, min(column + columns, 3)))
    assert (rows.read(EMBEDDING, index) == whole[index]).all() and rows.read(EMBEDDING, index).shape == whole[index].shape
    assert (rows.read(".norm.weight") == 1).all()
