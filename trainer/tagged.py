"""Evaluate inside a run: bits per byte of held-out texts by tag, for the raw weights and for their average.

The bits per byte of a tag are all bits of its texts over all their bytes; a mean over batches, as in Levanter
(docs/references.md#levanter-bpb), would depend on how texts are batched. Tags are paths: a text of `web/wiki` also
counts for `web`, and every text for the whole. The evaluation does not change the run.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.model.protocol import LanguageModel
from trainer.scoring import Scorer
from trainer.spec.checks import require
from trainer.spec.mesh import Layout
from trainer.spec.models import ModelConfig

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class TaggedText:
    """One tokenized text. Its first token is not scored."""

    tags: tuple[str, ...]
    tokens: np.ndarray
    num_bytes: int
    """UTF-8 bytes of the tokens after the first."""


@dataclass(frozen=True)
class Evaluation:
    """Texts, and the number of steps between scorings. They are always scored after the last step."""

    texts: tuple[TaggedText, ...]
    every_steps: int

    def is_due(self, done: int, last: int) -> bool:
        return done == last or done % self.every_steps == 0

    def values(
        self, models: Mapping[str, LanguageModel], config: ModelConfig, step: int, layout: Layout | None = None
    ) -> dict[str, float]:
        """For trackers: `eval/bpb`, `eval/bpb/TAG` and `eval/macro_bpb` of the first model, `eval/NAME/...` of the others."""
        result = {}
        for number, (name, model) in enumerate(models.items()):
            scores = bits_per_byte(Scorer(model, config.max_seq_len, config.vocab_size, step, layout), self.texts)
            prefix = "eval" if number == 0 else f"eval/{name}"
            result |= {f"{prefix}/bpb{'/' if tag else ''}{tag}": value for tag, value in scores.items()}
            result[f"{prefix}/macro_bpb"] = float(np.mean([scores[tag] for tag in leaf_tags(self.texts)]))
            log.info("step %d, %s weights: %.4f bits a byte of held-out text", step, name, scores[""])
        return result


def read_evaluation(setting: str, vocab_size: int) -> Evaluation | None:
    """Read `FILE@STEPS`; None if empty.

    The file has one line per text: `{"tags": ["web/wiki"], "tokens": [0, 17, 4], "bytes": 9}`.

    Raises: ValueError naming the variable, or the line, the field and the value.
    """
    if not setting:
        return None
    path, at, steps = setting.rpartition("@")
    require(bool(at) and steps.isdecimal() and int(steps) > 0, "MARIN_EVAL", setting, "FILE@STEPS, like heldout.jsonl@500")
    texts = []
    for number, line in enumerate(_lines(path, setting), start=1):
        where = f"{path}, line {number}"
        record = _record(line, where)
        require(set(record) == {"tags", "tokens", "bytes"}, where, sorted(record), "the fields bytes, tags, tokens")
        tokens = np.asarray(record["tokens"])
        are_valid = tokens.dtype.kind in "iu" and tokens.size > 1 and 0 <= tokens.min() <= tokens.max() < vocab_size
        require(are_valid, f"{where}, tokens", _short(record["tokens"]), f"two or more integers in 0..{vocab_size - 1}")
        require(record["bytes"] > 0, f"{where}, bytes", record["bytes"], "positive")
        named = record["tags"] and all(isinstance(tag, str) and tag.strip("/") == tag != "" for tag in record["tags"])
        require(bool(named), f"{where}, tags", record["tags"], "one or more names, like web/wiki")
        texts.append(TaggedText(tuple(record["tags"]), tokens.astype(np.int32), int(record["bytes"])))
    require(bool(texts), "MARIN_EVAL", setting, "a file with at least one text")
    return Evaluation(tuple(texts), int(steps))


def bits_per_byte(scorer: Scorer, texts: Sequence[TaggedText]) -> dict[str, float]:
    """Bits per byte by tag and by every parent of a tag; the whole has the empty name."""
    stride = scorer.max_seq_len - 1
    places = [(number, at) for number, text in enumerate(texts) for at in range(0, len(text.tokens) - 1, stride)]
    windows = [texts[number].tokens[at : at + stride + 1] for number, at in places]
    bits = np.zeros(len(texts))
    for (number, _), nll in zip(places, scorer.token_nll(windows), strict=True):
        bits[number] += nll.sum(dtype=np.float64) / math.log(2)
    sums: dict[str, np.ndarray] = {}
    for text, text_bits in zip(texts, bits, strict=True):
        for name in {"", *(above for tag in text.tags for above in _path(tag))}:
            sums[name] = sums.get(name, np.zeros(2)) + np.array([text_bits, text.num_bytes])
    return {tag: float(total / size) for tag, (total, size) in sorted(sums.items())}


def leaf_tags(texts: Sequence[TaggedText]) -> list[str]:
    """Tags without a tag below them."""
    tags = {tag for text in texts for tag in text.tags}
    return sorted(tag for tag in tags if not any(other.startswith(f"{tag}/") for other in tags))


def _path(tag: str) -> list[str]:
    """A tag and all its parents, from the top.

    >>> _path("web/wiki/en")
    ['web', 'web/wiki', 'web/wiki/en']
    """
    words = tag.split("/")
    return ["/".join(words[: end + 1]) for end in range(len(words))]


def _lines(path: str, setting: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"MARIN_EVAL is {setting!r}; it must be FILE@STEPS with a file that the job can read: {error}"
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
