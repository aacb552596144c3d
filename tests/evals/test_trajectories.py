"""Held-out conversations: the loss mask counts assistants' tokens, through the real template and token cache."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from unigram import START, UnigramScorer, byte_tokenizer

from datakit.corpus.parts import HELDOUT, TRAIN
from datakit.invariants import check_token_cache
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.formats import Chat
from evals.items.stage import TaskSpec
from evals.tasks.trajectories import evaluate_trajectories, read_trajectories
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
)
NATS = np.linspace(0.5, 3.0, 258)
TASK = TaskSpec("turns", "trajectories", max_items=10)
TALKS = {
    "heldout": ((("user", "why?"), ("assistant", "because")), (("user", "and?"), ("assistant", "no"), ("user", "oh"))),
    "train": ((("user", "hi"), ("assistant", "hello")),),
}


@dataclass(frozen=True)
class Talks:
    name: str = "talks"
    holds_out: bool = True


def write_corpus(out: Writer, config: Talks) -> None:
    for split in (TRAIN, HELDOUT):
        rows = []
        for talk in TALKS[split] if split == TRAIN or config.holds_out else ():
            messages = [{"role": role, "content": content} for role, content in talk]
            text = "\n\n".join(f"{m['role']}: {m['content']}" for m in messages)
            rows.append((text_digest(text), text, json.dumps({"conversation": json.dumps({"messages": messages})})))
        folder = out.folder / split
        folder.mkdir()
        frame = pl.DataFrame(sorted(rows), schema=dict.fromkeys(("id", "text", "metadata"), pl.String), orient="row")
        frame.with_columns(source=pl.lit(config.name)).write_parquet(folder / "part-00000-of-00001.parquet")


def write_tokenizer(out: Writer, config: Talks) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|end|>"])
    tokenizer.save(str(out.folder / "tokenizer.json"))
    out.extra["tokenizer"] = {"vocab_size": 258, "eos": START}


CORPUS = Node(("corpus",), None, Stage("tests.corpus", "1", write_corpus), Talks())
TOKENIZER = Node(("tokenizer",), None, Stage("tests.tokenizer", "1", write_tokenizer), Talks())


def heldout_cache(root: Path, corpus: Node = CORPUS) -> tuple[Artifact, Artifact]:
    store = Store(str(root))
    build(store, corpus)
    tokenizer = build(store, TOKENIZER).artifact
    config = TokenCacheConfig("talks", Chat(TEMPLATE, end_of_turn="<|end|>"), split="heldout", engine="hf")
    node = Node(("token_cache",), None, TOKEN_CACHE, config, {"corpus": corpus, "tokenizer": TOKENIZER})
    return build(store, node).artifact, tokenizer


def test_only_what_the_assistant_says_in_held_out_conversations_counts(tmp_path):
    cache, tokenizer = heldout_cache(tmp_path)
    conversations = read_trajectories((cache,), tokenizer, TASK.max_items)
    assert len(conversations) == len(TALKS["heldout"])
    opened = byte_tokenizer()
    opened.add_special_tokens(["<|endoftext|>", "<|end|>"])
    scores, records = evaluate_trajectories(UnigramScorer(NATS), opened, START, TASK, conversations, "version", seed=0)
    values = {score.metric: score.value for score in scores}
    turns = [b"because", b"no"]
    nats = sum(NATS[byte] for turn in turns for byte in turn) + len(turns) * NATS[257]  # each turn with its end
    assert values["weighted_loss_nats_per_token"] == pytest.approx(nats / (sum(map(len, turns)) + len(turns)), rel=1e-5)
    assert values["weighted_bits_per_byte"] == pytest.approx(nats / sum(map(len, turns)) / math.log(2), rel=1e-5)
    everything = np.concatenate([each.tokens for each in conversations])
    assert values["loss_nats_per_token"] == pytest.approx(NATS[everything].mean(), rel=1e-5)
    assert len(records) == 2 and all(json.loads(r.outputs)["weight"] in (3.0, 8.0) for r in records)
    assert len(read_trajectories((cache,), tokenizer, 1)) == 1


def test_a_source_too_small_to_hold_anything_out_does_not_stop_the_others(tmp_path):
    """Of 40 conversations, 2 % are none as often as not: its cache is empty, and the line is evaluated on the others'."""
    cache, tokenizer = heldout_cache(tmp_path)
    small = Node(("small",), None, CORPUS.stage, Talks(holds_out=False))
    empty, _ = heldout_cache(tmp_path, small)
    assert check_token_cache(empty, resolve(Store(str(tmp_path)), small)) == []
    assert empty.manifest.extra["tokens"]["num_documents"] == 0 and empty.manifest.statistics["rows_in"] == 0
    both = read_trajectories((empty, cache), tokenizer, TASK.max_items)
    assert [each.id for each in both] == [each.id for each in read_trajectories((cache,), tokenizer, TASK.max_items)]


def test_ids_of_another_tokenizer_and_caches_without_a_turn_are_refused(tmp_path):
    cache, _ = heldout_cache(tmp_path)
    with pytest.raises(ValueError, match="was made with the tokenizer"):
        read_trajectories((cache,), cache, 1)
    with pytest.raises(ValueError, match="turns: the caches hold no trajectory in which a token counts"):
        evaluate_trajectories(UnigramScorer(NATS), byte_tokenizer(), START, TASK, [], "version", seed=0)
    with pytest.raises(ValueError, match=r"token_cache.split is 'test'; allowed: train, heldout"):
        TokenCacheConfig("talks", split="test")  # pyrefly: ignore
