"""What is served: the model of a checkpoint's folder, with the tokenizer that its data was tokenized with."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.storage.digests import file_digest, identity_digest
from lineage.strangers import naming
from serving.server.chat import ChatTemplate, find_chat_template, special_token
from serving.tokenization import open_tokenizer, read_tokenizer
from trainer.inference import (
    CONFIG_FILE,
    TOKENIZER_FILE,
    Decoder,
    HfFolder,
    ModelConfig,
    load_decoder,
    read_hf_folder,
    read_model_config,
)

HF_SUFFIXES = (".json", ".safetensors", ".jinja")


@dataclass(frozen=True)
class LoadedModel:
    """A model and all that is needed to talk to it. `start_token` opens documents, `end_token` ends them; here they are one."""

    name: str
    created: str
    model: Decoder
    config: ModelConfig
    tokenizer: Tokenizer
    start_token: int
    end_token: int
    end_tokens: frozenset[int]
    chat_template: ChatTemplate | None
    version: str | None = None
    """Which bytes answer, told with every answer: the data versions of the model and of its tokenizer; None if nobody knows."""


def tokenizer_of(checkpoint: Artifact) -> Artifact:
    """The tokenizer of a checkpoint's token caches, by lineage, or that an imported model brings itself.

    Raises: ValueError where the lineage names none, or several.
    """
    if "tokenizer" in checkpoint.manifest.extra:
        return checkpoint
    found: dict[str, Artifact] = {}
    for cache in checkpoint.store.parents(checkpoint.input("mixture")):
        tokenizer = cache.input("tokenizer")
        found[tokenizer.data_version] = tokenizer
    if len(found) != 1:
        raise ValueError(f"{checkpoint.name} was trained on caches of {len(found)} tokenizers; name its own with --tokenizer")
    return next(iter(found.values()))


def open_hf_folder(folder: Path, name: str | None = None) -> LoadedModel:
    """Load a folder in Hugging Face's form, which has no lineage. Raises: ValueError for what our model does not compute."""
    with naming(str(folder)):
        return _open_hf_folder(folder, name)


def _open_hf_folder(folder: Path, name: str | None) -> LoadedModel:
    found = read_hf_folder(folder)
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    if tokenizer.get_vocab_size() > found.config.vocab_size:
        raise ValueError(f"{folder}: {tokenizer.get_vocab_size()} tokens do not fit the model's {found.config.vocab_size} rows")
    template = find_chat_template(folder)
    return LoadedModel(
        name=name or folder.resolve().name,
        created=datetime.fromtimestamp((folder / CONFIG_FILE).stat().st_mtime, UTC).isoformat(),
        model=found.model.decoder(),
        config=found.config,
        tokenizer=tokenizer,
        start_token=opening_token(folder, tokenizer, found),
        end_token=found.end_tokens[0],
        end_tokens=frozenset(found.end_tokens) | turn_end(template, tokenizer),
        chat_template=template,
        version=identity_digest(
            {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.suffix in HF_SUFFIXES}
        ),
    )


def shortened(served: LoadedModel, context: int) -> LoadedModel:
    """The same with contexts of fewer tokens. Raises: ValueError for more than the model's own, or none to go on from."""
    own = served.config.max_seq_len
    if not 2 <= context <= own:
        raise ValueError(f"context is {context}; 2 to {own} tokens, the model's own, are allowed")
    return replace(served, config=replace(served.config, max_seq_len=context))


def opening_token(folder: Path, tokenizer: Tokenizer, found: HfFolder) -> int:
    """What texts begin with, in this order: the tokenizer's `bos_token`, that of `config.json`, a document's end.

    Raises: ValueError for a `bos_token` that is no token.
    """
    name = special_token(folder, "bos_token")
    if not name:
        return found.end_tokens[0] if found.bos_token is None else found.bos_token
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError(f"{folder}: bos_token of tokenizer_config.json is {name!r}, which {TOKENIZER_FILE} does not have")
    return number


def turn_end(template: ChatTemplate | None, tokenizer: Tokenizer) -> frozenset[int]:
    """The token that ends a turn of the chat, where there is a template that names one."""
    found = tokenizer.token_to_id(template.eos_token) if template is not None and template.eos_token else None
    return frozenset() if found is None else frozenset({found})


def open_served(checkpoint: Artifact, tokenizer: Artifact | None = None, name: str | None = None) -> LoadedModel:
    """Load a checkpoint. Raises: ValueError for an artifact that is none, or a tokenizer of another vocabulary."""
    if "checkpoint" not in checkpoint.manifest.extra:
        raise ValueError(f"{checkpoint.name} was made by {checkpoint.spec.stage}; give the folder of a checkpoint")
    chosen = tokenizer or tokenizer_of(checkpoint)
    config = read_model_config(checkpoint)
    opened, start = open_tokenizer(chosen, config.vocab_size)
    template = find_chat_template(chosen.folder())
    return LoadedModel(
        name=name or checkpoint.name,
        created=checkpoint.manifest.created,
        model=load_decoder(checkpoint),
        config=config,
        tokenizer=opened,
        start_token=start,
        end_token=start,
        end_tokens=turn_end(template, opened) | {start},
        chat_template=template,
        version="+".join(dict.fromkeys((checkpoint.data_version, chosen.data_version))),  # an imported model brings its own
    )
