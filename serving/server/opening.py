"""Open the model of a folder, at the start of a server and when its weights are replaced: the gate first, then every byte."""

import logging
from pathlib import Path

from lineage.artifact.store import MANIFEST_NAME, Artifact, open_folder
from lineage.artifact.verified import verify_once
from lineage.trust.gate import apply_waivers, inspect, utc_today
from serving.server.loaded_model import LoadedModel, open_hf_folder, open_served
from trainer.inference import is_hf_folder

log = logging.getLogger("serving.server")
UNREAD = "optimizer"
"""Start of the names of a checkpoint's files that a server does not read."""


def open_model(folder: Path, tokenizer: Path | None, name: str | None) -> LoadedModel:
    """Open one of our checkpoints by its manifest, or a folder in Hugging Face's format. Raises: ValueError, GateError."""
    if not (folder / MANIFEST_NAME).is_file() and is_hf_folder(folder):
        if tokenizer is not None:
            raise ValueError(f"{folder} is a folder in Hugging Face's format, which has a tokenizer; leave --tokenizer out")
        log.warning("%s has no manifest: its origin is unknown and the gate was not checked", folder)
        return open_hf_folder(folder, name)
    checkpoint = open_folder(folder)
    refuse_unfit(checkpoint)
    verify_once(checkpoint, [path for path in checkpoint.manifest.paths if not path.startswith(UNREAD)])
    return open_served(checkpoint, open_folder(tokenizer) if tokenizer else None, name)


def refuse_unfit(checkpoint: Artifact) -> None:
    """Refuse a checkpoint whose ancestors fail the gate. Ancestors that are absent from the store are logged.

    Raises: GateError with the problems that no waiver covers.
    """
    findings = inspect(checkpoint.store, [checkpoint.ref("checkpoint")], {})
    absent = [finding for finding in findings if finding.problem == "missing"]
    if absent:
        log.warning(
            "%s: %d of its ancestors are not in %s and were not checked", checkpoint.name, len(absent), checkpoint.store.root
        )
    apply_waivers(checkpoint.store, f"serving {checkpoint.name}", [f for f in findings if f not in absent], utc_today())
