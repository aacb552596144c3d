"""A served model: a checkpoint with the tokenizer of its training data."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from lineage.order.mixture import caches_of
from lineage.storage.digests import file_digest, identity_digest
from lineage.strangers import naming
from serving.server.chat import ChatTemplate, find_chat_template, special_token
from serving.server.versions import UNKNOWN, WeightsVersion
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
    """A model with its tokenizer. `start_token` opens documents and `end_token` ends them; our models use one for both."""

    name: str
    created: str
    model: Decoder
    config: ModelConfig
    tokenizer: Tokenizer
    start_token: int
    end_token: int
    end_tokens: frozenset[int]
    chat_template: ChatTemplate | None
    weights: WeightsVersion = UNKNOWN


def tokenizer_of(checkpoint: Artifact) -> Artifact:
    """Find the tokenizer of a checkpoint: that of its token caches, or that of an imported model.

    Raises: ValueError if the lineage names none or several.
    """
    if "tokenizer" in checkpoint.manifest.extra:
        return checkpoint
    if any(ref.name == "tokenizer" for ref in checkpoint.spec.inputs):  # a run that learned from rewards reads no mixture
        return checkpoint.input("tokenizer")
    tokenizers: dict[str, Artifact] = {}
    for cache in caches_of(checkpoint.input("mixture")):
        tokenizer = cache.input("tokenizer")
        tokenizers[tokenizer.data_version] = tokenizer
    if len(tokenizers) != 1:
        raise ValueError(f"{checkpoint.name} was trained on caches of {len(tokenizers)} tokenizers; name one with --tokenizer")
    return next(iter(tokenizers.values()))


def open_hf_folder(folder: Path, name: str | None = None) -> LoadedModel:
    """Load a folder in Hugging Face's format, which has no lineage. Raises: ValueError for an unsupported model."""
    with naming(str(folder)):
        return _open_hf_folder(folder, name)


def _open_hf_folder(folder: Path, name: str | None) -> LoadedModel:
    digest = folder_digest(folder)
    imported = read_hf_folder(folder)
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    if tokenizer.get_vocab_size() > imported.config.vocab_size:
        raise ValueError(
            f"{folder}: {tokenizer.get_vocab_size()} tokens do not fit the model's {imported.config.vocab_size} rows"
        )
    template = find_chat_template(folder)
    if folder_digest(folder) != digest:
        raise ValueError(f"{folder} changed while it was read; open it when its files are complete")
    return LoadedModel(
        name=name or folder.resolve().name,
        created=datetime.fromtimestamp((folder / CONFIG_FILE).stat().st_mtime, UTC).isoformat(),
        model=imported.model.decoder(),
        config=imported.config,
        tokenizer=tokenizer,
        start_token=opening_token(folder, tokenizer, imported),
        end_token=imported.end_tokens[0],
        end_tokens=frozenset(imported.end_tokens) | turn_end(template, tokenizer),
        chat_template=template,
        weights=WeightsVersion(digest, None, digest),
    )


def folder_digest(folder: Path) -> str:
    """Return the digest of the files of a folder in Hugging Face's format, which names its weights."""
    return identity_digest({path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.suffix in HF_SUFFIXES})


def shortened(served: LoadedModel, context: int) -> LoadedModel:
    """Limit the context to fewer tokens. Raises: ValueError for fewer than 2 or more than the model's context."""
    own = served.config.max_seq_len
    if not 2 <= context <= own:
        raise ValueError(f"context is {context}; 2 to {own} tokens (the model's context) are allowed")
    return replace(served, config=replace(served.config, max_seq_len=context))


def opening_token(folder: Path, tokenizer: Tokenizer, imported: HfFolder) -> int:
    """Return the token that opens texts: the tokenizer's `bos_token`, else that of `config.json`, else the end of a document.

    Raises: ValueError for a `bos_token` that the tokenizer does not have.
    """
    name = special_token(folder, "bos_token")
    if not name:
        return imported.end_tokens[0] if imported.bos_token is None else imported.bos_token
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError(f"{folder}: bos_token of tokenizer_config.json is {name!r}, which {TOKENIZER_FILE} does not have")
    return number


def turn_end(template: ChatTemplate | None, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the token that ends a turn of a chat; empty if no template names one."""
    token = tokenizer.token_to_id(template.eos_token) if template is not None and template.eos_token else None
    return frozenset() if token is None else frozenset({token})


def open_served(checkpoint: Artifact, tokenizer: Artifact | None = None, name: str | None = None) -> LoadedModel:
    """Load a checkpoint. Raises: ValueError for another kind of artifact, or a tokenizer of another vocabulary."""
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
        weights=WeightsVersion(
            digest=checkpoint.data_version,
            step=checkpoint.manifest.extra["checkpoint"].get("step"),
            # an imported model is its tokenizer's artifact too
            fingerprint="+".join(dict.fromkeys((checkpoint.data_version, chosen.data_version))),
        ),
    )
