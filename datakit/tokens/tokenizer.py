"""The stage `datakit.tokenizer`: byte-level BPE trained on a sample of the corpus, by the reference implementation.

Special tokens are for what only the pipeline may say (the end of a document). The characters `<|endoftext|>` inside a
document stay text, which is not the default of any peer: there, a document that quotes the token injects a document
boundary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from datakit.corpus.parts import TRAIN
from datakit.documents.parts import iterate_documents
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

TOKENIZER_FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Words with a leading space, digits by three: the split of Llama 3's tokenizer."""
SPACES = ("\u2581", "\u0120")
"""How SentencePiece and byte-level tokenizers write a space at the beginning of a token."""
MAX_PIECE_CHARS = 1 << 20
"""Longer texts are cut before encoding: 16 MB of one character make the reference's regex panic (docs/references.md)."""


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
    """Write `tokenizer.json`. Every corpus gives a share of the sample equal to its share of all bytes."""
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
    out.facts["tokenizer"] = {"vocab_size": tokenizer.get_vocab_size(), "eos": tokenizer.token_to_id(END_OF_TEXT)}
    out.record(rows_in=len(texts), bytes_in=sum(len(text.encode()) for text in texts))


TOKENIZER = Stage(
    "datakit.tokenizer",
    "2",
    train_tokenizer,
    description="Byte-level BPE trained on the corpus.",
    checks=("file_set",),
)


def new_tokenizer() -> Tokenizer:
    """Return an untrained byte-level BPE tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])  # pyrefly: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyrefly: ignore
    return tokenizer


@lru_cache(maxsize=2)
def load_tokenizer(path: Path) -> Tokenizer:
    """Return a tokenizer that never reads special tokens out of text. It is cached in the process (parsing takes .1 s);
    do not change it.
    """
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def begins_with_space(tokenizer: Tokenizer) -> str:
    """Return the first token of "a" if the tokenizer puts a space in front of every text (SentencePiece's kind), else
    "".
    """
    first = tokenizer.encode("a", add_special_tokens=False).tokens[:1]
    return first[0] if first and first[0].startswith(SPACES) else ""


def pieces(text: str, *, spaced: bool = False) -> list[str]:
    """Return a text in pieces short enough to encode; almost always the text itself.

    Cuts are before lone spaces, else after line feeds, where no token crosses, so that the pieces' ids are those of the
    text; a stretch without either is cut anywhere. `spaced`: the tokenizer puts a space in front of each piece. Then a
    lone space belongs to neither piece, and a line feed is no better than any other place.
    """
    cuts, start = [], 0
    while len(text) - start > MAX_PIECE_CHARS:
        end = start + MAX_PIECE_CHARS
        lone = _last_place(text, " ", start, end, _alone)
        if lone is not None:
            cuts.append(text[start:lone])
            start = lone + spaced
            continue
        cut = end if spaced else _behind_line_feed(text, start, end)
        cuts.append(text[start:cut])
        start = cut
    return [*cuts, text[start:]]


def _behind_line_feed(text: str, start: int, end: int) -> int:
    """Return the place after the last line feed that the next line's first word follows; `end` if there is none.

    A single line feed is best: GPT-2's split ends a run of them before its last. A next line that begins with another
    character is no place to cut, because o200k's split puts a slash after a line feed into the word before it.
    """
    for fits in (lambda before, behind: _alone(before, behind) and behind.isalnum(), lambda _, behind: behind.isalnum()):
        place = _last_place(text, "\n", start, end - 1, fits)
        if place is not None:
            return place + 1
    return end


def _alone(before: str, behind: str) -> bool:
    return not before.isspace() and not behind.isspace()


def _last_place(text: str, mark: str, start: int, end: int, fits: Callable[[str, str], bool]) -> int | None:
    """Return the place of the last mark in `(start, end]` that fits between the characters before and after it."""
    place = end + 1
    while (place := text.rfind(mark, start + 1, place)) >= 0:
        if fits(text[place - 1], text[place + 1 : place + 2]):
            return place
    return None


def _sample(corpus: Artifact, budget: int) -> Iterator[str]:
    """Yield pieces of training documents until `budget` bytes are spent. The last document is cut to `budget` characters.

    Documents come in id order, which is a random order.
    """
    for batch in iterate_documents(corpus, TRAIN, columns=["text"]):
        for text in batch["text"]:
            size = len(text.encode())
            sampled = text if size <= budget else text[:budget]
            # Cut anywhere, not with `pieces`: the sample must stay the one that earlier releases trained on.
            yield from (sampled[i : i + MAX_PIECE_CHARS] for i in range(0, len(sampled), MAX_PIECE_CHARS)) if sampled else [""]
            budget -= size
            if budget <= 0:
                return
