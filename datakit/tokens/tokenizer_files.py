"""The stage `datakit.tokenizer_files`: the tokenizer of a published model, as an artifact that token caches bind."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from datakit.tokens.tokenizer import TOKENIZER_FILE
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

BESIDE = ("tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class TokenizerFilesConfig:
    """There is nothing to choose: the files are the model's own."""


def copy_tokenizer(out: Writer, config: TokenizerFilesConfig, model: Artifact) -> None:
    """Copy `tokenizer.json` and the files beside it, byte for byte.

    Raises: ValueError if the document's end, as the model's manifest names it, is no token.
    """
    for name in (TOKENIZER_FILE, *BESIDE):
        for path in model.files(name):
            (out.folder / name).write_bytes(path.read_bytes())
    facts = model.manifest.extra["tokenizer"]
    tokenizer = Tokenizer.from_file(str(out.folder / TOKENIZER_FILE))
    if tokenizer.id_to_token(facts["eos"]) is None:
        raise ValueError(f"{model.name}: document end {facts['eos']} is none of {tokenizer.get_vocab_size()} tokens")
    out.facts["tokenizer"] = dict(facts)
    out.record(bytes_out=sum(path.stat().st_size for path in out.folder.iterdir() if path.is_file()))


TOKENIZER_FILES = Stage("datakit.tokenizer_files", "2", copy_tokenizer)
