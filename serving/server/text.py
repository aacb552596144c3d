"""Tokens into text as they come: characters split over tokens, and stop strings split over tokens.

A token is bytes; a character may need several. Text is let out when its last character is whole, so the pieces join to the
text of all the tokens at once. Tokenizers of SentencePiece's kind (Llama 2, Mistral) drop the space that a text's first token
begins with: a token is read behind those before it, so that it keeps its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"
MOST_BEFORE = 8
"""Tokens at a prompt's end among which there is whole text to go on from: twice as many as a character has bytes."""


@dataclass
class TextStream:
    """The text of tokens given one by one; tokens that only we may say (the end of a document) have none.

    `before`: tokens that the newest one is read behind, whose own text is not given out; at first the prompt's, where it is
    not part of the text.
    """

    tokenizer: Tokenizer
    before: Sequence[int] = ()
    pending: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = whole_end(self.tokenizer, self.before)

    def push(self, token: int) -> str:
        """What can be read now: nothing while the newest character is not whole."""
        self.pending.append(token)
        text = text_behind(self.tokenizer, self.before, self.pending)
        return "" if text.endswith(HALF_CHARACTER) else self._give(text)

    def flush(self) -> str:
        """The rest, with U+FFFD for bytes that make no character."""
        return self._give(text_behind(self.tokenizer, self.before, self.pending))

    def _give(self, text: str) -> str:
        if text and not is_byte_level(self.tokenizer):
            self.before = tuple(self.pending)  # whole characters; a token without text opens none
        self.pending.clear()
        return text


@dataclass
class StopScanner:
    """Lets text through up to the first stop string, holding back an end that may be the beginning of one."""

    stops: Sequence[str]
    held: str = ""
    stopped: bool = False

    def push(self, piece: str) -> str:
        """What is certain to be before any stop string; nothing once one was seen."""
        if self.stopped:
            return ""
        text = self.held + piece
        found = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:  # the one that was complete first, however the text was cut into tokens
            self.stopped, self.held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        text, self.held = self.held, ""
        return text


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token as the API names it: its text, or `token_id:N` where it is no whole characters alone (as vLLM writes it)."""
    before = whole_end(tokenizer, tokenizer.encode("a", add_special_tokens=False).ids)
    text = text_behind(tokenizer, before, [token], skip_special_tokens=False)
    return f"token_id:{token}" if HALF_CHARACTER in text else text


def text_behind(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
    """The text of tokens where they stand behind others; of tokens alone where they change the text of those (broken bytes)."""
    if before and tokens:
        held = tokenizer.decode(list(before), skip_special_tokens)
        whole = tokenizer.decode([*before, *tokens], skip_special_tokens)
        if whole.startswith(held):
            return whole[len(held) :]
    return tokenizer.decode(list(tokens), skip_special_tokens)


def whole_end(tokenizer: Tokenizer, tokens: Sequence[int]) -> Sequence[int]:
    """The fewest tokens at the end that are whole text; none where no token minds what it stands behind."""
    if is_byte_level(tokenizer):
        return ()
    ends = (tokens[-count:] for count in range(1, min(MOST_BEFORE, len(tokens)) + 1))
    return next((end for end in ends if (text := tokenizer.decode(list(end))) and HALF_CHARACTER not in text), ())


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether a token's text is the same wherever it stands."""
    return type(tokenizer.decoder).__name__ == "ByteLevel"


def text_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text in which special tokens are plain text; a text that is one special token and no more is that token.

    A remote tokenizer's client asks so what the ids of the tokens in `/tokenizer_info` are (lm-eval 0.4.13).
    """
    added = tokenizer.get_added_tokens_decoder()
    alone = [token for token, entry in added.items() if entry.special and entry.content == text]
    return alone or tokenizer.encode(text, add_special_tokens=False).ids


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with, short of all of it."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
