"""Turn a stream of tokens into text: characters and stop strings may span several tokens.

A token is bytes, and a character may need several tokens. Text is delivered when its last character is complete, so the pieces
join to the text of all tokens decoded at once. SentencePiece tokenizers (Llama 2, Mistral) drop the space at the start of a
text's first token. So each token is decoded together with the tokens before it, which keeps its space.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"
MOST_BEFORE = 8
"""Tokens at a prompt's end that certainly contain a complete character: twice the bytes of a character."""


@dataclass
class TextStream:
    """Decodes tokens given one by one; special tokens (the end of a document) have no text.

    `before`: tokens that give the newest one its context and whose text is not delivered; at first the prompt's tokens, if the
    prompt is not part of the text.
    """

    tokenizer: Tokenizer
    before: Sequence[int] = ()
    pending: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = whole_end(self.tokenizer, self.before)

    def push(self, token: int) -> str:
        """Add a token; returns the new text, empty while the newest character is incomplete."""
        self.pending.append(token)
        text = text_behind(self.tokenizer, self.before, self.pending)
        return "" if text.endswith(HALF_CHARACTER) else self._give(text)

    def flush(self) -> str:
        """Return the rest, with U+FFFD for bytes that are not a character."""
        return self._give(text_behind(self.tokenizer, self.before, self.pending))

    def _give(self, text: str) -> str:
        if text and not is_byte_level(self.tokenizer):
            self.before = tuple(self.pending)  # complete characters; a token without text does not start one
        self.pending.clear()
        return text


@dataclass
class StopScanner:
    """Passes text up to the first stop string; holds back an end that may be the start of one."""

    stops: Sequence[str]
    held: str = ""
    stopped: bool = False

    def push(self, piece: str) -> str:
        """Add text; returns what is certainly before a stop string, and nothing after one."""
        if self.stopped:
            return ""
        text = self.held + piece
        matches = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if matches:  # the stop string that was complete first, whatever the tokens
            self.stopped, self.held = True, ""
            return text[: min(matches)[1]]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return the text held back, when no more text comes."""
        text, self.held = self.held, ""
        return text


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """Name a token as vLLM does: its text, or `token_id:N` if its bytes are not complete characters."""
    before = whole_end(tokenizer, tokenizer.encode("a", add_special_tokens=False).ids)
    text = text_behind(tokenizer, before, [token], skip_special_tokens=False)
    return f"token_id:{token}" if HALF_CHARACTER in text else text


def text_behind(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
    """Decode tokens that follow others; decode them alone if they change the earlier text (incomplete bytes)."""
    if before and tokens:
        opening = tokenizer.decode(list(before), skip_special_tokens)
        joined = tokenizer.decode([*before, *tokens], skip_special_tokens)
        if joined.startswith(opening):
            return joined[len(opening) :]
    return tokenizer.decode(list(tokens), skip_special_tokens)


def whole_end(tokenizer: Tokenizer, tokens: Sequence[int]) -> Sequence[int]:
    """Return the fewest tokens at the end that are complete text; none if a token's text never depends on its context."""
    if is_byte_level(tokenizer):
        return ()
    ends = (tokens[-count:] for count in range(1, min(MOST_BEFORE, len(tokens)) + 1))
    return next((end for end in ends if (text := tokenizer.decode(list(end))) and HALF_CHARACTER not in text), ())


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether a token's text is the same in any context."""
    return type(tokenizer.decoder).__name__ == "ByteLevel"


def text_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokenize a text without special tokens in it; a text that is exactly one special token becomes that token.

    lm-eval 0.4.13 uses this to get the ids of the tokens in `/tokenizer_info`.
    """
    added = tokenizer.get_added_tokens_decoder()
    alone = [token for token, entry in added.items() if entry.special and entry.content == text]
    return alone or tokenizer.encode(text, add_special_tokens=False).ids


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of `stop` that ends `text`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
