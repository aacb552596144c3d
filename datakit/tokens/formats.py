"""How a document becomes tokens and weights: plain text, a conversation, given ids, DNA.

A format is declared in the cache's config and is identity. Every token has a weight as a prediction target: one if the
format has no mask, zero if the loss must ignore it. A document that a format cannot encode is a drop with its reason. A
weight belongs to the token itself; Levanter stores the weight of the next token (`np.roll(weights, -1)` of ours).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from datakit.readers.conversations import CONVERSATION_FIELD
from datakit.tokens.chat_template import ChatTemplate, Conversation, conversation_spans
from datakit.tokens.engines import Encoder
from datakit.tokens.template_trial import refuse_overrun
from datakit.tokens.tokenizer import begins_with_space, load_tokenizer


@dataclass(frozen=True)
class PlainText:
    """The document's text; every token counts."""

    kind: Literal["plain"] = "plain"


@dataclass(frozen=True)
class Chat:
    """A conversation through a Jinja template; what assistants say counts, with the token that ends their turn."""

    template: str
    """In Hugging Face's form, with `{% generation %}` blocks allowed; special tokens are read only from its own text."""
    end_of_turn: str
    kind: Literal["chat"] = "chat"

    def __post_init__(self) -> None:
        ChatTemplate(self.template)  # Raises if the template does not parse.
        if not self.end_of_turn:
            raise ValueError("token_cache.format.end_of_turn is ''; name the special token that ends a turn in the template")


@dataclass(frozen=True)
class Prebuilt:
    """Token ids that the record brings in a kept field (`Records.keep`), as JSON lists; weights likewise, or all one."""

    ids_field: str = "input_ids"
    weights_field: str | None = None
    kind: Literal["prebuilt"] = "prebuilt"


NUCLEOTIDES = "ACGTURYSWKMBDHVNacgturyswkmbdhvn"
"""IUPAC's codes for one base or a choice of some, without its gaps."""


@dataclass(frozen=True)
class Dna:
    """One token for each base, weighed by case: lower case is soft-masked, usually a repeat (format "dna" of Marin's
    Levanter).
    """

    uppercase_weight: float = 1.0
    lowercase_weight: float = 1.0
    fold_case: bool = True
    """Encode in upper case, so that a masked base is the same token; False if the tokenizer folds case, or must not."""
    kind: Literal["dna"] = "dna"
    alphabet: str = field(default=NUCLEOTIDES, metadata={"added_later": True})
    """Allowed letters, in either case as written here; a document with a header, a line feed or a gap is dropped."""

    def __post_init__(self) -> None:
        if not self.alphabet.isascii() or not self.alphabet.isalpha():
            raise ValueError(
                f"token_cache.format.alphabet is {self.alphabet!r}; it must be letters of ASCII, which have a case"
            )
        for name, weight in (("uppercase_weight", self.uppercase_weight), ("lowercase_weight", self.lowercase_weight)):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"token_cache.format.{name} is {weight}; it must be finite and at least 0")


@dataclass(frozen=True)
class Preferences:
    """Pairs of answers through a Jinja template: rows of a chosen and a rejected side (`datakit.tokens.pairs`)."""

    template: str
    """As of `Chat`."""
    end_of_turn: str
    side_tokens: int
    """Tokens of a side, with its prompt. A longer pair is dropped; a shorter side is padded."""
    kind: Literal["preferences"] = "preferences"

    def __post_init__(self) -> None:
        Chat(self.template, self.end_of_turn)
        if self.side_tokens < 2:
            raise ValueError(f"token_cache.format.side_tokens is {self.side_tokens}; it must be at least 2")


type TokenFormat = PlainText | Chat | Prebuilt | Dna | Preferences
PLAIN = PlainText()


@dataclass(frozen=True)
class TokenPolicy:
    """Which ids exist and which frame a document, resolved against one tokenizer."""

    vocab_size: int
    bos: int | None
    eos: int | None
    specials: tuple[int, ...]

    @staticmethod
    def of(tokenizer: Path, name: str, bos: str | None, eos: str | None) -> "TokenPolicy":
        """Resolve a config. Raises: ValueError for a token that the tokenizer lacks or that text can make, and for one
        that cuts or pads.
        """
        loaded = load_tokenizer(tokenizer)
        if loaded.truncation is not None or loaded.padding is not None:
            raise ValueError(
                f"{name} sets truncation or padding, which would cut documents; take both out of its tokenizer.json"
            )
        specials = sorted(number for number, token in loaded.get_added_tokens_decoder().items() if token.special)
        first, last = (None if token is None else _frame_id(loaded, token, name) for token in (bos, eos))
        return TokenPolicy(loaded.get_vocab_size(), first, last, tuple(specials))


def _frame_id(loaded: Tokenizer, token: str, name: str) -> int:
    """Return the id of a token that begins or ends documents. Raises: ValueError if the tokenizer has no such special token."""
    token_id = loaded.token_to_id(token)
    if token_id is None:
        raise ValueError(f"{name} has no token {token!r} to frame documents with; train one that has")
    check_special(loaded, token, name, "frame documents with")
    return token_id


def check_special(loaded: Tokenizer, token: str, name: str, purpose: str) -> None:
    """Refuse a token that a text's own characters would make: text could end a document, or a turn. Raises: ValueError."""
    special = sorted(added.content for added in loaded.get_added_tokens_decoder().values() if added.special)
    if token not in special:
        raise ValueError(
            f"{name} has no special token {token!r} to {purpose}: text that quotes these characters would be taken for it; its "
            f"special tokens are {', '.join(special) or 'none'}: mark it `special` in tokenizer.json, or name one of them"
        )


def check_chat(loaded: Tokenizer, format: Chat | Preferences, name: str) -> None:
    """Refuse an end of turn that text can make, and a tokenizer that begins every text with a space. Raises:
    ValueError.

    A conversation is encoded in spans, between special tokens and at both ends of a turn. With such a tokenizer (Llama
    2 and Mistral, of SentencePiece's kind) each span would begin with a space that no server sends.
    """
    check_special(loaded, format.end_of_turn, name, "end a turn with")
    if first := begins_with_space(loaded):
        raise ValueError(
            f"{name} puts a space in front of every text ('a' begins with {first!r}), so every span of a conversation "
            "would get one; take a tokenizer that does not (prepend_scheme 'never', add_prefix_space false)"
        )


@dataclass(frozen=True)
class Encoded:
    """One document: ids [tokens] and, if the format has a mask, their weights [tokens]."""

    tokens: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class Dropped:
    """Why a document has no tokens."""

    reason: str


def weights_dtype(format: TokenFormat) -> str | None:
    """Return the type of a format's weights; None if every token counts."""
    match format:
        case Chat() | Preferences():
            return "uint8"
        case Dna():
            return None if format.uppercase_weight == format.lowercase_weight == 1 else "float32"
        case Prebuilt():
            return None if format.weights_field is None else "float32"
        case PlainText():
            return None


def columns(format: TokenFormat) -> tuple[str, ...]:
    """Return the columns of documents that a format reads; always the text, whose size is recorded."""
    return ("text", "metadata") if isinstance(format, Chat | Prebuilt | Preferences) else ("text",)


def encode_documents(
    format: TokenFormat, documents: pl.DataFrame, encoder: Encoder | None, policy: TokenPolicy, tokenizer: Path
) -> list[Encoded | Dropped]:
    """Yield every document with its beginning and end, or why it has none. Only `Prebuilt` works without an encoder."""
    if isinstance(format, Prebuilt):
        return [_prebuilt(format, json.loads(metadata), policy) for metadata in documents["metadata"]]
    assert encoder is not None
    match format:
        case PlainText():
            return [_framed(Encoded(ids), policy) for ids in encoder.encode(documents["text"])]
        case Dna():
            return _dna(format, documents["text"].to_list(), encoder, policy)
        case Chat():
            return _chat(format, documents["metadata"].to_list(), encoder, policy, tokenizer)
        case Preferences():
            raise ValueError("pairs are rows of two sides; encode them with datakit.tokens.pairs")


def _framed(document: Encoded, policy: TokenPolicy, frame_weight: float = 1.0) -> Encoded:
    """Frame the document with its first and last token, unless a template has already written them."""
    begun = document.tokens.size and document.tokens[0] == policy.bos
    before = [] if policy.bos is None or begun else [policy.bos]
    ended = document.tokens.size and document.tokens[-1] == policy.eos
    after = [] if policy.eos is None or ended else [policy.eos]
    tokens = np.concatenate([np.array(before, np.uint32), document.tokens, np.array(after, np.uint32)])
    if document.weights is None:
        return Encoded(tokens)
    around = [np.full(len(part), frame_weight, document.weights.dtype) for part in (before, after)]
    return Encoded(tokens, np.concatenate([around[0], document.weights, around[1]]))


def _dna(format: Dna, texts: Sequence[str], encoder: Encoder, policy: TokenPolicy) -> list[Encoded | Dropped]:
    encoded: list[Encoded | Dropped] = []
    bases = set(format.alphabet)
    for text, ids in zip(texts, encoder.encode([t.upper() if format.fold_case else t for t in texts]), strict=True):
        if not bases.issuperset(text):
            encoded.append(Dropped("not_a_base"))
            continue
        if ids.size != len(text):
            encoded.append(Dropped("not_one_token_a_character"))
            continue
        codes = np.frombuffer(text.encode(), np.uint8)
        upper = (codes >= ord("A")) & (codes <= ord("Z"))
        weights = np.where(upper, format.uppercase_weight, format.lowercase_weight).astype(np.float32)
        encoded.append(_framed(Encoded(ids, None if weights_dtype(format) is None else weights), policy))
    return encoded


def _prebuilt(format: Prebuilt, fields: dict[str, str], policy: TokenPolicy) -> Encoded | Dropped:
    """Return the ids that the record holds, with its loss weights if the format names them.

    Dropped: no ids, an id outside the vocabulary, a begin or an end other than the policy's, weights that do not fit.
    """
    ids = _numbers(fields.get(format.ids_field), (int,))
    if not ids:
        return Dropped("no_token_ids")
    if min(ids) < 0 or max(ids) >= policy.vocab_size:
        return Dropped("not_in_vocabulary")
    if policy.bos is not None and ids[0] != policy.bos:
        return Dropped("no_begin_token")
    if policy.eos is not None and ids[-1] != policy.eos:
        return Dropped("no_end_token")
    tokens = np.array(ids, np.uint32)
    if format.weights_field is None:
        return Encoded(tokens)
    numbers = _numbers(fields.get(format.weights_field), (int, float))
    weights = None if numbers is None else _as_weights(numbers)
    if weights is None or weights.size != tokens.size:
        return Dropped("bad_weights")
    return Encoded(tokens, weights)


def _numbers(text: str | None, allowed: tuple[type, ...]) -> list[Any] | None:
    """Read a JSON list of numbers of any size; None for anything else: true, an integer too long to read, lists too
    deep.
    """
    try:
        values = json.loads(text or "null")
    except (ValueError, RecursionError):  # ValueError: not JSON, or an integer with more digits than Python reads.
        return None
    return values if isinstance(values, list) and all(type(value) in allowed for value in values) else None


def _as_weights(numbers: Sequence[float]) -> np.ndarray | None:
    """Return float32; None if one is negative, or not finite as it is stored."""
    try:
        wide = np.array(numbers, np.float64)
    except OverflowError:  # An integer beyond float64.
        return None
    with np.errstate(over="ignore"):
        stored = wide.astype(np.float32)
    return stored if np.all(np.isfinite(stored) & (wide >= 0)) else None


def _chat(
    format: Chat, metadata: Sequence[str], encoder: Encoder, policy: TokenPolicy, tokenizer: Path
) -> list[Encoded | Dropped]:
    encode = conversation_encoder(format, encoder, policy, tokenizer)
    encoded: list[Encoded | Dropped] = []
    for line in metadata:
        conversation = Conversation.from_json(json.loads(line).get(CONVERSATION_FIELD))
        whole = Dropped("no_conversation") if conversation is None else encode(conversation)
        encoded.append(whole if isinstance(whole, Dropped) else _framed(whole, policy, frame_weight=0))
    return encoded


def conversation_encoder(
    format: Chat | Preferences, encoder: Encoder, policy: TokenPolicy, tokenizer: Path
) -> Callable[[Conversation], Encoded | Dropped]:
    """Return the function that encodes a conversation as its template renders it; what assistants say has weight one."""
    loaded = load_tokenizer(tokenizer)
    names = {number: token.content for number, token in loaded.get_added_tokens_decoder().items() if token.special}
    special_ids = {content: number for number, content in names.items()}
    template = ChatTemplate(
        format.template,
        bos_token="" if policy.bos is None else names[policy.bos],
        eos_token="" if policy.eos is None else names[policy.eos],
    )
    refuse_overrun(template)

    def encode(conversation: Conversation) -> Encoded | Dropped:
        spans = conversation_spans(template, conversation, tuple(special_ids), format.end_of_turn)
        if isinstance(spans, str):
            return Dropped(spans)
        texts = iter(encoder.encode([span.text for span in spans if not span.special]))
        parts = [np.array([special_ids[span.text]], np.uint32) if span.special else next(texts) for span in spans]
        weights = [np.full(part.size, span.counts, np.uint8) for part, span in zip(parts, spans, strict=True)]
        return Encoded(np.concatenate(parts), np.concatenate(weights))

    return encode
