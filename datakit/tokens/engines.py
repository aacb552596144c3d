"""Encoders: Hugging Face's tokenizers as the reference, gigatoken if it is shown to give the same ids.

gigatoken is 30 to 50 times as fast (benchmarks/tokenization.py) and refuses split patterns that it does not know. But
exactness is a property of a tokenizer and a text, not of a release. So a cache compares the two on documents of its own
corpus and on adversarial texts before it starts. A refusal or one differing text means the reference, with the reason
in the log and the manifest. A text with a character that may be newer than both engines' Unicode goes to the reference
in any case (`datakit.tokens.unicode_check`). The choice cannot change a byte of the output, so it is no part of an
identity.

The reference itself encodes a repeated line once (`hf-lines`, `datakit.tokens.line_cache`) if the same comparison shows
that pieces of a text have the text's ids. This is what a request for the reference gives.

No engine reads special tokens out of text. The reference has a switch for this. gigatoken has none, so it gets the
tokenizer without its special tokens, which leaves their characters to the ordinary merges, as the switch does.
"""

import contextlib
import importlib.metadata
import json
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from unicodedata import unidata_version

import gigatoken
import numpy as np

from datakit.tokens.adversarial_texts import adversarial_texts
from datakit.tokens.line_cache import encode_repeated_once, lines, tokens_across_lines
from datakit.tokens.tokenizer import begins_with_space, load_tokenizer, pieces
from datakit.tokens.unicode_check import has_unassigned

log = logging.getLogger(__name__)

type EngineName = Literal["gigatoken", "hf-lines", "hf"]
type EngineChoice = Literal["auto", "gigatoken", "hf"]
ENGINE_CHOICES: tuple[EngineChoice, ...] = ("auto", "gigatoken", "hf")
"""`auto`: gigatoken if it is exact, else the reference, with a warning. `gigatoken`: an error if it is not exact."""

DISTRIBUTIONS = {"gigatoken": "gigatoken", "hf-lines": "tokenizers", "hf": "tokenizers"}
ENCODE_BATCH = 64
COMPARISONS = 4
"""Pieces that the comparison of engines is cut into, for workers to share."""

SHOWN_CHARS = 60


type MapCalls = Callable[[Callable[..., object], Sequence[tuple[object, ...]]], list[Any]]
"""Runs `function(*call)` for each call, anywhere (`Writer.map_calls`)."""


def map_here(function: Callable[..., object], calls: Sequence[tuple[object, ...]]) -> list[Any]:
    """Run the calls in this process, one after another."""
    return [function(*call) for call in calls]


class EngineError(RuntimeError):
    """The requested engine cannot be used; the message says why."""


@dataclass(frozen=True)
class Encoder:
    """One engine over one tokenizer."""

    engine: EngineName
    encode_pieces: Callable[[Sequence[str]], list[np.ndarray]]
    """Return ids [tokens] of each text, none longer than `datakit.tokenizer.MAX_PIECE_CHARS`."""

    spaced: bool = False
    """Whether it puts a space in front of every text (`datakit.tokenizer.begins_with_space`)."""

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Return ids of each text of any length: long ones are cut, encoded piece by piece and joined."""
        cut = [pieces(text, spaced=self.spaced) for text in texts]
        flat = iter(self.encode_pieces([piece for group in cut for piece in group]))
        joined = ([next(flat) for _ in group] for group in cut)
        return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in joined]


@dataclass(frozen=True)
class EngineVerdict:
    """Which engine encodes a cache, and what was compared to decide it."""

    engine: EngineName
    version: str
    documents_compared: int
    adversarial_compared: int
    differing: int
    reason: str

    def __str__(self) -> str:
        return f"{self.engine} {self.version}: {self.reason}"


def reference_encoder(tokenizer: Path) -> Encoder:
    """Hugging Face's tokenizers."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # Processes are the parallelism here.
    loaded = load_tokenizer(tokenizer)

    def encode(texts: Sequence[str]) -> list[np.ndarray]:
        batches = (texts[i : i + ENCODE_BATCH] for i in range(0, len(texts), ENCODE_BATCH))
        encoded = (one for batch in batches for one in loaded.encode_batch_fast(batch, add_special_tokens=False))
        return [
            np.frombuffer(array("I", one.ids), np.uint32) for one in encoded
        ]  # This takes a quarter of the time of np.array of a list.

    return Encoder("hf", encode, bool(begins_with_space(loaded)))


def fast_encoder(tokenizer: Path) -> Encoder:
    """gigatoken, with the reference for texts whose characters it may know better. Raises: EngineError if it refuses."""
    description = json.loads(tokenizer.read_text())
    description["added_tokens"] = [added for added in description["added_tokens"] if not added["special"]]
    try:
        loaded = gigatoken.Tokenizer.from_json(json.dumps(description))
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"gigatoken refuses the tokenizer: {str(error).splitlines()[0]}") from error

    def encode(texts: Sequence[str]) -> list[np.ndarray]:
        newer = [index for index, text in enumerate(texts) if has_unassigned(text)]
        by_reference = (
            dict(zip(newer, encoder(tokenizer, "hf").encode_pieces([texts[index] for index in newer]), strict=True))
            if newer
            else {}
        )
        return [by_reference[index] if index in by_reference else loaded.encode(text) for index, text in enumerate(texts)]

    return Encoder("gigatoken", encode, bool(begins_with_space(load_tokenizer(tokenizer))))


@lru_cache(maxsize=3)
def encoder(tokenizer: Path, engine: EngineName) -> Encoder:
    """Return an encoder kept by the process: shards of one cache share its cache of frequent words."""
    match engine:
        case "gigatoken":
            return fast_encoder(tokenizer)
        case "hf":
            return reference_encoder(tokenizer)
        case "hf-lines":
            reference = encoder(tokenizer, "hf")
            return replace(
                reference, engine=engine, encode_pieces=lambda texts: encode_repeated_once(texts, reference.encode_pieces)
            )


def choose_engine(
    tokenizer: Path, choice: EngineChoice, documents: Sequence[str], map_calls: MapCalls = map_here
) -> EngineVerdict:
    """Compare the engines on documents and on adversarial texts, and choose which one encodes.

    Raises: EngineError if `choice` is `gigatoken` and it refuses the tokenizer or differs on a text.
    """
    verdict = _verdict(tokenizer, choice, documents, map_calls)
    if choice == "gigatoken" and verdict.engine != "gigatoken":
        raise EngineError(f"engine 'gigatoken' was asked for and cannot be used: {verdict.reason}; allowed here: 'auto', 'hf'")
    loud = choice == "auto" and verdict.engine != "gigatoken"
    log.log(logging.WARNING if loud else logging.INFO, "tokenizing with %s", verdict)
    return verdict


def _verdict(tokenizer: Path, choice: EngineChoice, documents: Sequence[str], map_calls: MapCalls) -> EngineVerdict:
    adversarial = adversarial_texts(load_tokenizer(tokenizer).get_added_tokens_decoder().values())
    counts = len(documents), len(adversarial)
    texts = [*documents, *adversarial]

    def unequal(compare: Callable[[Path, Sequence[str]], list[str] | str]) -> list[str] | str:
        """Return the texts that engines encode differently, in their order, or why one refuses."""
        results = map_calls(compare, [(tokenizer, texts[i::COMPARISONS]) for i in range(COMPARISONS)])
        refusal = next((some for some in results if isinstance(some, str)), None)
        different = {text for some in results for text in some}
        return [text for text in texts if text in different] if refusal is None else refusal

    why = "asked for"
    if choice != "hf":
        different = unequal(_differing_by_both)
        if different == []:
            newer = f"texts with characters newer than Unicode {unidata_version} go to tokenizers"
            return _judged("gigatoken", counts, 0, f"{_equal(counts)}; {newer}")
        why = different if isinstance(different, str) else f"gigatoken gives other ids for {_shown(different)}"
    again = f"{why}; lines that repeat are encoded again"
    if across := tokens_across_lines(load_tokenizer(tokenizer)):
        return _judged("hf", (0, 0), 0, f"{again}: {len(across)} tokens continue after a line feed, one is {across[0]!r}")
    of_lines = unequal(_differing_by_lines)
    if of_lines != []:
        return _judged("hf", counts, len(of_lines), f"{again}: each by itself gives other ids for {_shown(of_lines)}")
    return _judged("hf-lines", counts, 0, f"{why}; lines that repeat are encoded once, {_equal(counts)}")


def _equal(counts: tuple[int, int]) -> str:
    return f"ids equal to tokenizers' on {counts[0]} documents and {counts[1]} adversarial texts"


def _shown(different: Sequence[str]) -> str:
    return f"{len(different)} texts, the first begins {different[0][:SHOWN_CHARS]!r}"


def _judged(engine: EngineName, counts: tuple[int, int], differing: int, reason: str) -> EngineVerdict:
    return EngineVerdict(engine, importlib.metadata.version(DISTRIBUTIONS[engine]), *counts, differing, reason)


def _differing_by_both(tokenizer: Path, texts: Sequence[str]) -> list[str] | str:
    """Return the texts that the engines encode differently, or why the fast one refuses the tokenizer."""
    try:
        candidate = encoder(tokenizer, "gigatoken")
    except EngineError as error:
        return str(error)
    return differing(encoder(tokenizer, "hf"), candidate, texts)


def _differing_by_lines(tokenizer: Path, texts: Sequence[str]) -> list[str]:
    """Return the texts whose ids are not those of their lines, each encoded alone: more cuts than are ever made."""
    whole = encoder(tokenizer, "hf")

    def by_lines(texts: Sequence[str]) -> list[np.ndarray]:
        cut = [lines(text) for text in texts]
        ids = iter(whole.encode_pieces([line for of_text in cut for line in of_text]))
        return [np.concatenate([np.zeros(0, np.uint32), *(next(ids) for _ in of_text)]) for of_text in cut]

    return differing(whole, replace(whole, encode_pieces=by_lines), texts)


def load_engines(tokenizer: Path, choice: EngineChoice) -> None:
    """Load what comparing and encoding need, ahead of both (`Writer.warm`): also the fast engine, unless it refuses."""
    encoder(tokenizer, "hf")
    if choice != "hf":
        with contextlib.suppress(EngineError):  # `choose_engine` reports it.
            encoder(tokenizer, "gigatoken")


def differing(reference: Encoder, candidate: Encoder, texts: Sequence[str]) -> list[str]:
    """Return the texts that the two encode differently."""
    pairs = zip(texts, reference.encode(texts), candidate.encode(texts), strict=True)
    return [text for text, wanted, encoded in pairs if not np.array_equal(wanted, encoded)]
