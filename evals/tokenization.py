"""The tokenizer of a model, as evaluations and the server read text with it."""

from tokenizers import Tokenizer

from lineage.store import Artifact


def open_tokenizer(artifact: Artifact, vocab_size: int | None) -> tuple[Tokenizer, int]:
    """The tokenizer, reading no special token out of text, and the id that opens every sequence (the end of a document).

    Raises: ValueError when it has not as many tokens as the model that is to read them (None: a model that cannot say).
    """
    tokenizer = Tokenizer.from_file(str(artifact.files("tokenizer.json")[0]))
    if vocab_size is not None and tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"{artifact.name} has {tokenizer.get_vocab_size()} tokens, the checkpoint's model {vocab_size}")
    tokenizer.encode_special_tokens = True
    return tokenizer, int(artifact.manifest.extra["tokenizer"]["eos"])
