"""Text and held-out loss of the isoflop study: Python sources of this environment, a BPE of 512 words, nats a token.

The study needs one steady source with more tokens than any run reads; its losses mean nothing beside other data.
"""

import hashlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lineage.artifact.store import Artifact
from lineage.order.history import MIXTURE
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.inference import load_scorer
from trainer.tokenizer_check import tokenizer_of


@dataclass(frozen=True)
class SourceText:
    """Which part of the files, by the hash of their path, and how many bytes at most.

    `sample_bytes` of the training part train the tokenizer. Both parts must state the same, or they get two tokenizers.
    """

    vocab_size: int
    held_out: bool
    max_bytes: int
    sample_bytes: int
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"


def files(config: SourceText) -> list[Path]:
    """Python files of the standard library and of site-packages; one in fifty is held out."""
    roots = [Path(hashlib.__file__).parent, Path(np.__file__).parents[1]]
    paths = sorted({path for root in roots for path in root.rglob("*.py")}, key=lambda path: _order(path, roots))
    return [path for path in paths if (int(_order(path, roots)[:8], 16) % 50 == 0) == config.held_out]


def _order(path: Path, roots: list[Path]) -> str:
    root = next(root for root in reversed(roots) if path.is_relative_to(root))
    return hashlib.sha256(path.relative_to(root).as_posix().encode()).hexdigest()


def train_tokenizer(config: SourceText) -> Tokenizer:
    """A byte-level BPE trained on the first files of the training part: a function of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    sample, size = [], 0
    for path in files(replace(config, held_out=False)):
        sample.append(path.read_text(errors="replace"))
        size += len(sample[-1])
        if size > config.sample_bytes:
            break
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=config.vocab_size, initial_alphabet=alphabet))
    return tokenizer


def write_text(out: Writer, config: SourceText) -> None:
    """One token cache."""
    tokenizer, documents, size = train_tokenizer(config), [], 0
    for path in files(config):
        text = path.read_text(errors="replace")
        size += len(text)
        if size > config.max_bytes:
            break
        if text:
            documents.append((hashlib.sha256(text.encode()).hexdigest()[:32], np.array(tokenizer.encode(text).ids)))
    documents = list(dict(documents).items())
    shard = write_token_shard(out.folder, "s", documents, "uint16")
    name = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]
    out.extra["tokens"] = tokens_extra("python", "uint16", config.vocab_size, name, None, None, [shard])
    out.record(rows_in=len(documents), rows_out=len(documents))


@dataclass(frozen=True)
class HeldOut:
    """How many sequences are scored."""

    sequences: int = 700


def score(
    out: Writer, config: HeldOut, heldout: Artifact, trial: Artifact | None = None, checkpoint: Artifact | None = None
) -> None:
    """Mean nats a token over the first sequences of the held-out text, as a score that `science.forecasts` reads.

    Raises: ValueError where the held-out text has another tokenizer than the model.
    """
    model = trial or checkpoint
    assert model is not None  # the node names one of them
    diverged = model.manifest.extra.get("diverged")
    scores = [] if diverged else [{"task": "python", "metric": "nats", "value": _nats(config, model, heldout)}]
    if trial is None:
        out.extra["scores"], out.extra["policy"] = scores, {"data_version": heldout.data_version}
    else:
        why = diverged["why"] if diverged else None
        out.extra["result"] = {"scores": scores, "policy": heldout.data_version, "diverged": why}
    out.record(rows_in=config.sequences, rows_out=config.sequences)


def _nats(config: HeldOut, model: Artifact, heldout: Artifact) -> float:
    ours, theirs = tokenizer_of(heldout), tokenizer_of(model.input(MIXTURE))
    if ours != theirs:
        raise ValueError(
            f"{model.name} was trained with the tokenizer {theirs}, {heldout.name} was made with {ours}: the same ids are "
            "other words; give both texts the same `sample_bytes`"
        )
    scorer = load_scorer(model)
    order = DataOrder.open(heldout, scorer.max_seq_len)
    nats = np.concatenate(scorer.token_nll(list(order.batch(0, config.sequences))))
    return round(float(nats.mean(dtype=np.float64)), 6)


TEXT = Stage("benchmarks.text", "3", write_text)
HELDOUT = Stage("benchmarks.heldout", "3", score)
