"""Datasets of the Hugging Face hub, by `huggingface_hub`: its endpoint (HF_ENDPOINT), token (HF_TOKEN), resume and retries.

What it does not do is done here: the commit that answers must be the pinned one, and every file's bytes must have the digest
that the commit's tree gives them (sha256 for large files, git's blob id for small ones).
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.hf_api import RepoFile

from datakit.download import RegistryUnreachableError
from datakit.file_choice import choose
from datakit.sources import Commit, HubFiles

log = logging.getLogger(__name__)

DATASET = "dataset"
READ_BYTES = 1 << 22


@dataclass(frozen=True)
class HubFile:
    """One file of a commit: its path, size in bytes, and digest, a sha256 (64 hex) or a git blob id (40 hex)."""

    repository: str
    commit: str
    path: str
    size: int
    digest: str


def hub_listing(loader: HubFiles, revision: Commit, *, trainable: bool) -> list[HubFile]:
    """The files that the loader names, at its commit.

    Raises: ValueError when the hub refuses (no such repository or commit, terms not accepted) or answers with another commit;
    RegistryUnreachableError when it does not answer.
    """
    api, what = HfApi(), f"hub dataset {loader.repository}"
    try:
        commit = str(api.dataset_info(loader.repository, revision=revision.sha).sha)
        if not commit.startswith(revision.sha):
            raise ValueError(f"{what}: commit {revision.sha} was asked for, the hub answers with {commit}")
        folder = common_folder(loader.globs)
        tree = api.list_repo_tree(loader.repository, folder or None, recursive=True, revision=commit, repo_type=DATASET)
        files = {item.path: item for item in tree if isinstance(item, RepoFile)}
    except HfHubHTTPError as error:
        raise refusal(what, error) from error
    except httpx.TransportError as error:
        raise RegistryUnreachableError(f"{what}: {api.endpoint} does not answer ({error})") from error
    chosen = choose(files, loader.globs, loader.exclude, trainable=trainable, what=f"{what} at {commit[:12]}")
    return [_hub_file(loader.repository, commit, files[name]) for name in chosen]


def fetch_hub_file(folder: Path, file: HubFile, downloads: Path) -> Mapping[str, int]:
    """One file into `folder`, by way of `downloads`, where a killed download goes on."""
    cache, what = downloads / "hub" / file.repository.replace("/", "--") / file.commit, f"{file.repository}: {file.path}"
    try:
        HfApi().hf_hub_download(file.repository, file.path, repo_type=DATASET, revision=file.commit, local_dir=cache)
    except LocalEntryNotFoundError as error:
        raise RegistryUnreachableError(f"{what}: the hub does not answer ({error})") from error
    except HfHubHTTPError as error:
        raise refusal(what, error) from error
    except httpx.TransportError as error:
        raise RegistryUnreachableError(f"{what}: the connection was lost, and retrying did not help ({error})") from error
    fetched = cache / file.path
    if (found := hub_digest(fetched, file.digest)) != file.digest:
        fetched.unlink()
        raise ValueError(f"{what}: the fetched file has digest {found}, its commit says {file.digest}; it was deleted")
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(fetched, target)
    return {"bytes": file.size}


def hub_digest(path: Path, like: str) -> str:
    """sha256 of a file, or its git blob id, whichever has the length of `like`."""
    git_prefix = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(git_prefix, usedforsecurity=False)
    with path.open("rb") as stream:
        while piece := stream.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def common_folder(globs: tuple[str, ...]) -> str:
    """The deepest folder that every glob stays below: the hub lists it alone, not a tree of 100,000 files."""
    literal = [glob.split("*")[0].split("?")[0].split("[")[0] for glob in globs]
    return os.path.commonpath([f"/{prefix.rpartition('/')[0]}" for prefix in literal]).lstrip("/")


def refusal(what: str, error: HfHubHTTPError) -> Exception:
    """What a status means for the caller: silence (5xx, 429) or a refusal that waiting does not cure."""
    status = error.response.status_code
    if status == 429 or status >= 500:
        return RegistryUnreachableError(f"{what}: the hub answers {status} ({error})")
    hint = "; a gated dataset wants its terms accepted and HF_TOKEN set" if status in (401, 403) else ""
    return ValueError(f"{what}: the hub refuses with {status}{hint} ({error})")


def _hub_file(repository: str, commit: str, item: RepoFile) -> HubFile:
    return HubFile(repository, commit, item.path, item.size, item.lfs.sha256 if item.lfs else item.blob_id)
