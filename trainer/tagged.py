"""Evaluation inside a run: bits per byte of held-out texts by tag, of the raw weights and of their average side by side.

A tag's bits per byte is the sum of all bits of its texts over that of their bytes; a mean over batches would depend on how
texts fell into them (Levanter's does: research/training_levanter_haliax_grug.md, section 1.15). Tags are paths: a text of
`web/wiki` counts for `web` too, and every text for the whole. What is evaluated changes nothing of a run.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checks import require
from trainer.mesh import Layout
from trainer.model import Llama
from trainer.scoring import Scorer

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class TaggedText:
    """One text, tokenized. The first token opens it and is not scored."""

    tags: tuple[str, ...]
    tokens: np.ndarray
    num_bytes: int
    """UTF-8 bytes that the tokens after the first stand for."""


@dataclass(frozen=True)
class Evaluation:
    """Texts, and after how many steps they are scored again; after the last step in any case."""

    texts: tuple[TaggedText, ...]
    every_steps: int

    def is_due(self, done: int, last: int) -> bool:
        return done == last or done % self.every_steps == 0

    def values(
        self, models: Mapping[str, Llama], max_seq_len: int, step: int, layout: Layout | None = None
    ) -> dict[str, float]:
        """For trackers: `eval/bpb`, `eval/bpb/TAG` and `eval/macro_bpb` of the first model, `eval/NAME/...` of the others."""
        found = {}
        vocab_size = next(iter(models.values())).embedding.resolve_axis("vocab").size
        for number, (name, model) in enumerate(models.items()):
            scores = bits_per_byte(Scorer(model, max_seq_len, vocab_size, step, layout), self.texts)
            prefix = "eval" if number == 0 else f"eval/{name}"
            found |= {f"{prefix}/bpb{'/' if tag else ''}{tag}": value for tag, value in scores.items()}
            found[f"{prefix}/macro_bpb"] = float(np.mean([scores[tag] for tag in leaf_tags(self.texts)]))
            log.info("step %d, %s weights: %.4f bits a byte of held-out text", step, name, scores[""])
        return found


def read_evaluation(told: str, vocab_size: int) -> Evaluation | None:
    """`FILE@STEPS`, or nothing. The file has a line a text: `{"tags": ["web/wiki"], "tokens": [0, 17, 4], "bytes": 9}`.

    Raises: ValueError naming what is odd: the variable, or line, field and value.
    """
    if not told:
        return None
    path, at, steps = told.rpartition("@")
    require(bool(at) and steps.isdecimal() and int(steps) > 0, "MARIN_EVAL", told, "FILE@STEPS, like heldout.jsonl@500")
    texts = []
    for number, line in enumerate(_lines(path, told), start=1):
        where = f"{path}, line {number}"
        record = _record(line, where)
        require(set(record) == {"tags", "tokens", "bytes"}, where, sorted(record), "the fields bytes, tags, tokens")
        tokens = np.asarray(record["tokens"])
        known = tokens.dtype.kind in "iu" and tokens.size > 1 and 0 <= tokens.min() <= tokens.max() < vocab_size
        require(known, f"{where}, tokens", _short(record["tokens"]), f"two or more integers in 0..{vocab_size - 1}")
        require(record["bytes"] > 0, f"{where}, bytes", record["bytes"], "positive")
        named = record["tags"] and all(isinstance(tag, str) and tag.strip("/") == tag != "" for tag in record["tags"])
        require(bool(named), f"{where}, tags", record["tags"], "one or more names, like web/wiki")
        texts.append(TaggedText(tuple(record["tags"]), tokens.astype(np.int32), int(record["bytes"])))
    require(bool(texts), "MARIN_EVAL", told, "a file with at least one text")
    return Evaluation(tuple(texts), int(steps))


def bits_per_byte(scorer: Scorer, texts: Sequence[TaggedText]) -> dict[str, float]:
    """By tag and by what stands above it, the whole under the empty name: sum of bits over sum of bytes."""
    stride = scorer.max_seq_len - 1
    places = [(number, at) for number, text in enumerate(texts) for at in range(0, len(text.tokens) - 1, stride)]
    windows = [texts[number].tokens[at : at + stride + 1] for number, at in places]
    bits = np.zeros(len(texts))
    for (number, _), nll in zip(places, scorer.token_nll(windows), strict=True):
        bits[number] += nll.sum(dtype=np.float64) / math.log(2)
    sums: dict[str, np.ndarray] = {}
    for text, found in zip(texts, bits, strict=True):
        for name in {"", *(above for tag in text.tags for above in _path(tag))}:
            sums[name] = sums.get(name, np.zeros(2)) + np.array([found, text.num_bytes])
    return {tag: float(total / size) for tag, (total, size) in sorted(sums.items())}


def leaf_tags(texts: Sequence[TaggedText]) -> list[str]:
    """Tags that no other tag stands below."""
    tags = {tag for text in texts for tag in text.tags}
    return sorted(tag for tag in tags if not any(other.startswith(f"{tag}/") for other in tags))


def _path(tag: str) -> list[str]:
    """`a/b/c` and all above it.

    >>> _path("web/wiki/en")
    ['web', 'web/wiki', 'web/wiki/en']
    """
    words = tag.split("/")
    return ["/".join(words[: end + 1]) for end in range(len(words))]


def _lines(path: str, told: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"MARIN_EVAL is {told!r}; it must be a file that can be read, where the job runs, @STEPS: {error}"
        ) from error


def _record(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"MARIN_EVAL: {where} is {_short(line)!r}; it must be a JSON object: {error}") from error
    require(isinstance(record, dict), f"MARIN_EVAL: {where}", record, "a JSON object with the fields bytes, tags, tokens")
    return record


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
