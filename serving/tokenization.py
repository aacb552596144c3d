"""The tokenizer of a model, for evaluations and the server."""

from pathlib import Path

from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.strangers import naming


def open_tokenizer(artifact: Artifact, vocab_size: int | None) -> tuple[Tokenizer, int]:
    """Open a tokenizer that parses no special tokens in text; returns it with the id that opens every sequence.

    The id is the end of a document, or the one that a published model's import names. Raises: ValueError if the model's
    `vocab_size` (None: unknown) is not the number of tokens or, for a published tokenizer, of that model's rows.
    """
    tokenizer = read_tokenizer(artifact.files("tokenizer.json")[0])
    rows, tokens = _published_rows(artifact), tokenizer.get_vocab_size()
    if vocab_size is not None and vocab_size != (rows or tokens):
        padded = f" for {rows} rows" if rows not in (None, tokens) else ""
        raise ValueError(f"{artifact.name} has {tokens} tokens{padded}, the checkpoint's model {vocab_size}")
    facts = artifact.manifest.extra["tokenizer"]
    return tokenizer, int(facts.get("bos", facts["eos"]))


def _published_rows(artifact: Artifact) -> int | None:
    """Return rows of the model that a tokenizer was published with, which may exceed its tokens; None for our tokenizers."""
    copied = any(ref.name == "model" for ref in artifact.spec.inputs)
    model = artifact.input("model") if copied else artifact
    facts = model.manifest.extra.get("checkpoint", {})
    return facts["vocab_size"] if "imported" in facts else None


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`, with truncation and padding off and special tokens not parsed in text.

    Published files may switch on truncation or padding, left over from the model's training.
    """
    with naming(str(path)):  # tokenizers raises plain Exceptions
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


WORDS_REMEMBERED = 1_000


def limit_memory(tokenizer: Tokenizer) -> None:
    """Let the tokenizer remember the tokens of at most `WORDS_REMEMBERED` words, for a process that runs for weeks.

    BPE and Unigram remember 10,000 by default. Without a pre-tokenizer a whole prompt is one word. Prompts of 128 bytes then
    took 27 MiB, which looked like a leak of 2.4 KiB a request (docs/log.md, 2026-11-25). Other models remember none.
    """
    resize = getattr(tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(WORDS_REMEMBERED)
