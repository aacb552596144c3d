"""The tokenizer of a model, as evaluations and the server read text with it."""

from pathlib import Path

from tokenizers import Tokenizer

from lineage.store import Artifact


def open_tokenizer(artifact: Artifact, vocab_size: int | None) -> tuple[Tokenizer, int]:
    """The tokenizer, reading no special token out of text, and the id that opens every sequence (the end of a document).

    Raises: ValueError when it has not as many tokens as the model that is to read them (None: a model that cannot say).
    """
    tokenizer = read_tokenizer(artifact.files("tokenizer.json")[0])
    if vocab_size is not None and tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"{artifact.name} has {tokenizer.get_vocab_size()} tokens, the checkpoint's model {vocab_size}")
    return tokenizer, int(artifact.manifest.extra["tokenizer"]["eos"])


def read_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizer.json` that reads a text whole, and no special token out of it.

    Published files may say that texts are cut or padded, as those of the batches that the model was last trained on were.
    """
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
