"""The tokenizer of a model, as evaluations and the server read text with it."""

from pathlib import Path

from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.strangers import naming


def open_tokenizer(artifact: Artifact, vocab_size: int | None) -> tuple[Tokenizer, int]:
    """The tokenizer, reading no special token out of text, and the id that opens every sequence: the end of a document, unless
    a published model's import names another.

    Raises: ValueError when the model that is to read it (None: one that cannot say) has not as many rows as there are tokens,
    or, for a published model's tokenizer, as that model has.
    """
    tokenizer = read_tokenizer(artifact.files("tokenizer.json")[0])
    rows, tokens = _published_rows(artifact), tokenizer.get_vocab_size()
    if vocab_size is not None and vocab_size != (rows or tokens):
        padded = f" for {rows} rows" if rows not in (None, tokens) else ""
        raise ValueError(f"{artifact.name} has {tokens} tokens{padded}, the checkpoint's model {vocab_size}")
    facts = artifact.manifest.extra["tokenizer"]
    return tokenizer, int(facts.get("bos", facts["eos"]))


def _published_rows(artifact: Artifact) -> int | None:
    """Rows of the model that a tokenizer was published with, which may be more than its tokens; None for one made here."""
    copied = any(ref.name == "model" for ref in artifact.spec.inputs)
    model = artifact.input("model") if copied else artifact
    facts = model.manifest.extra.get("checkpoint", {})
    return facts["vocab_size"] if "imported" in facts else None


def read_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizer.json` that reads a text whole, and no special token out of it.

    Published files may say that texts are cut or padded, as those of the batches that the model was last trained on were.
    """
    with naming(str(path)):  # tokenizers raises plain Exceptions
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
