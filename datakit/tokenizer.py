"""The stage `datakit.tokenizer`: byte-level BPE trained on a sample of the corpus, by the reference implementation.

Special tokens stand for what only we may say (the end of a document). The characters `<|endoftext|>` inside a document stay
text, which is not the default of any peer: there, a document that quotes the token injects a document boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from datakit.corpus_parts import TRAIN
from datakit.documents import iterate_documents
from lineage.stage import Stage
from lineage.store import Artifact
from lineage.writer import Writer

TOKENIZER_FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Words with a leading space, digits by three: the split of Llama 3's tokenizer."""
SPACES = ("\u2581", "\u0120")
"""How SentencePiece and byte-level tokenizers write a space at the beginning of a token."""
MAX_PIECE_CHARS = 1 << 20
"""Longer texts are cut before encoding: 16 MB of one character panics the reference's regex (research, section 6)."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Size of the vocabulary, special tokens and bytes included, and how much text it is trained on."""

    vocab_size: int
    sample_bytes: int = 12_000_000
    special_tokens: tuple[str, ...] = (END_OF_TEXT,)

    def __post_init__(self) -> None:
        smallest = 256 + len(self.special_tokens)
        if self.vocab_size < smallest:
            raise ValueError(f"tokenizer.vocab_size is {self.vocab_size}; at least {smallest} (bytes and special tokens)")
        if END_OF_TEXT not in self.special_tokens:
            raise ValueError(f"tokenizer.special_tokens is {self.special_tokens}; it must hold {END_OF_TEXT!r}")
        if self.sample_bytes < 1:
            raise ValueError(f"tokenizer.sample_bytes is {self.sample_bytes}; it must be at least 1")


def train_tokenizer(out: Writer, config: TokenizerConfig, corpora: tuple[Artifact, ...]) -> None:
    """Write `tokenizer.json`. Every corpus gives the share of the sample that its bytes are of the whole."""
    tokenizer = new_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(config.special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sizes = [int(str(corpus.manifest.statistics["bytes_out"])) for corpus in corpora]
    budgets = [config.sample_bytes * size // max(1, sum(sizes)) for size in sizes]
    texts = [text for corpus, budget in zip(corpora, budgets, strict=True) for text in _sample(corpus, budget)]
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != config.vocab_size:
        raise ValueError(
            f"{out.spec.name}: {sum(map(len, texts))} characters give {tokenizer.get_vocab_size()} tokens, "
            f"vocab_size asks for {config.vocab_size}; lower it or give more text"
        )
    (out.folder / TOKENIZER_FILE).write_text(tokenizer.to_str())
    out.extra["tokenizer"] = {"vocab_size": tokenizer.get_vocab_size(), "eos": tokenizer.token_to_id(END_OF_TEXT)}
    out.record(rows_in=len(texts), bytes_in=sum(len(text.encode()) for text in texts))


TOKENIZER = Stage("datakit.tokenizer", "1", train_tokenizer)


def new_tokenizer() -> Tokenizer:
    """An untrained byte-level BPE tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])  # pyrefly: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyrefly: ignore
    return tokenizer


@lru_cache(maxsize=2)
def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer that never reads special tokens out of text. One a process (.1 s of parsing each): nobody changes it."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def begins_with_space(tokenizer: Tokenizer) -> str:
    """The first token of "a" where the tokenizer puts a space in front of every text (SentencePiece's kind), else ""."""
    first = tokenizer.encode("a", add_special_tokens=False).tokens[:1]
    return first[0] if first and first[0].startswith(SPACES) else ""


def pieces(text: str, *, spaced: bool = False) -> list[str]:
    """A text in pieces short enough to encode; almost always the text itself.

    Cuts are in front of lone spaces, where every split pattern in use ends a word, so that the pieces' ids are those of the
    text; a stretch without one is cut anywhere. `spaced`: for a tokenizer that puts a space in front of each piece, which the
    space at a cut is left to.
    """
    found, start = [], 0
    while len(text) - start > MAX_PIECE_CHARS:
        lone = _last_lone_space(text, start, start + MAX_PIECE_CHARS)
        end = start + MAX_PIECE_CHARS if lone is None else lone
        found.append(text[start:end])
        start = end + (spaced and lone is not None)
    return [*found, text[start:]]


def _last_lone_space(text: str, start: int, end: int) -> int | None:
    """Place of the last space in `(start, end]` with no white space beside it."""
    place = end + 1
    while (place := text.rfind(" ", start + 1, place)) >= 0:
        if not text[place - 1].isspace() and not text[place + 1 : place + 2].isspace():
            return place
    return None


def _sample(corpus: Artifact, budget: int) -> Iterator[str]:
    """Train documents in id order, which is a random order, until the budget of bytes is spent; the last one is cut."""
    for batch in iterate_documents(corpus, TRAIN, columns=["text"]):
        for text in batch["text"]:
            size = len(text.encode())
            sampled = text if size <= budget else text[:budget]
            # not `pieces`: what is learned from need not be cut where tokens end, and a tokenizer's bytes stay what they were
            yield from (sampled[i : i + MAX_PIECE_CHARS] for i in range(0, max(len(sampled), 1), MAX_PIECE_CHARS))
            budget -= size
            if budget <= 0:
                return
