"""The stage `datakit.extended_tokenizer`: a tokenizer with more special tokens, whose old ids are what they were.

A run with such a tokenizer starts from a model of the old one and gives its embedding new rows (`trainer.new_rows`).
"""

from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer

from datakit.tokens.tokenizer import TOKENIZER_FILE
from datakit.tokens.tokenizer_files import BESIDE
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class ExtendedTokenizerConfig:
    """The new special tokens, in the order of their ids."""

    special_tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.special_tokens or len(set(self.special_tokens)) != len(self.special_tokens):
            raise ValueError(f"tokenizer.special_tokens is {self.special_tokens}; it must hold at least one, and none twice")


def extend_tokenizer(out: Writer, config: ExtendedTokenizerConfig, tokenizer: Artifact) -> None:
    """Write `tokenizer.json` with the new tokens behind the old ids, and copy the files beside it.

    Raises: ValueError for a token that is there already, and for a tokenizer whose ids have gaps.
    """
    extended = Tokenizer.from_file(str(tokenizer.file(TOKENIZER_FILE)))
    old = extended.get_vocab_size()
    there = [token for token in config.special_tokens if extended.token_to_id(token) is not None]
    if there:
        raise ValueError(f"{tokenizer.name} has the token {there[0]!r} already; leave it out of special_tokens")
    extended.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in config.special_tokens])
    ids = [extended.token_to_id(token) for token in config.special_tokens]
    if ids != list(range(old, old + len(ids))):
        raise ValueError(
            f"{tokenizer.name} has {old} tokens, and the new ones got the ids {ids}, not those that follow: its ids have gaps, "
            "so rows of an embedding cannot be appended for them"
        )
    (out.folder / TOKENIZER_FILE).write_text(extended.to_str())
    for name in BESIDE:
        for path in tokenizer.files(name):
            (out.folder / name).write_bytes(path.read_bytes())
    facts = tokenizer.manifest.extra["tokenizer"]
    added = {"vocab_size": extended.get_vocab_size(), "extends": tokenizer.data_version}
    out.facts["tokenizer"] = {**facts, **added}
    out.record(rows_in=old, rows_out=extended.get_vocab_size())


EXTENDED_TOKENIZER = Stage(
    "datakit.extended_tokenizer",
    "1",
    extend_tokenizer,
    description="A tokenizer with more special tokens; the old ids stay.",
    checks=("file_set",),
)
