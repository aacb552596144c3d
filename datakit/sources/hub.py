"""Datasets of the Hugging Face hub. `huggingface_hub` gives endpoint (HF_ENDPOINT), token (HF_TOKEN), addresses and
listings.

The commit that answers must be the pinned one, and each file must have the digest from the commit's tree (sha256 for
large files, git's blob id for small ones). `datakit.sources.download` fetches the bytes: `hf_hub_download` 2.4 starts
over after a kill (its temporary name is random) and checks no hash. What is lost is Xet's transfer in chunks.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers

from datakit.sources.download import RegistryUnreachableError, download
from datakit.sources.file_choice import choose
from datakit.sources.source import HubFiles, Revision

DATASET = "dataset"
SHA256_CHARS = 64


@dataclass(frozen=True)
class HubFile:
    """One file at a revision: its path, size in bytes, and digest: a sha256 (64 hex) or a git blob id (40 hex)."""

    repository: str
    revision: str
    """The full commit, 40 hex digits."""

    path: str
    size: int
    digest: str


def hub_listing(loader: HubFiles, revision: Revision, *, trainable: bool) -> list[HubFile]:
    """Return the files that the loader names, at its revision.

    Raises: ValueError if the hub refuses (no such repository or commit, terms not accepted) or answers with another
    commit; RegistryUnreachableError if it does not answer.
    """
    api, what = HfApi(), f"hub dataset {loader.repository}"
    try:
        full = str(api.dataset_info(loader.repository, revision=revision.sha).sha)
        if not full.startswith(revision.sha):
            raise ValueError(f"{what}: revision {revision.sha} was requested, the hub answers with {full}")
        folder = common_folder(loader.globs)
        tree = api.list_repo_tree(loader.repository, folder or None, recursive=True, revision=full, repo_type=DATASET)
        files = {item.path: item for item in tree if isinstance(item, RepoFile)}
    except HfHubHTTPError as error:
        raise refusal(what, error) from error
    except httpx2.TransportError as error:
        raise RegistryUnreachableError(f"{what}: {api.endpoint} does not answer ({error})") from error
    chosen = choose(files, loader.globs, loader.exclude, trainable=trainable, what=f"{what} at {full[:12]}")
    return [_hub_file(loader.repository, full, files[name]) for name in chosen]


def fetch_hub_file(folder: Path, file: HubFile, partial: Path) -> Mapping[str, int]:
    """Fetch one file into `folder` by way of `partial`, where a killed download resumes. Raises: what `download`
    raises.
    """
    what, is_large = f"{file.repository}: {file.path}", len(file.digest) == SHA256_CHARS
    url = hf_hub_url(file.repository, file.path, repo_type=DATASET, revision=file.revision, endpoint=HfApi().endpoint)
    fetched = partial / Path(file.path).name
    download(url, fetched, sha256=file.digest if is_large else None, what=what, headers=build_hf_headers())
    if not is_large and (actual := git_blob_id(fetched)) != file.digest:
        fetched.unlink()
        raise ValueError(f"{what}: the fetched file has git blob id {actual}, its revision says {file.digest}; it was deleted")
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(fetched, target)
    return {"bytes": file.size}


def git_blob_id(path: Path) -> str:
    """Return git's blob id: the sha1 of `blob <size>`, a null byte and the bytes. For small files only."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def common_folder(globs: tuple[str, ...]) -> str:
    """Return the deepest folder that holds all globs, so that the hub lists it alone and not a tree of 100,000 files."""
    literal = [glob.split("*")[0].split("?")[0].split("[")[0] for glob in globs]
    return os.path.commonpath([f"/{prefix.rpartition('/')[0]}" for prefix in literal]).lstrip("/")


def refusal(what: str, error: HfHubHTTPError) -> Exception:
    """Turn a status into the caller's error: unreachable (5xx, 429), or a refusal that waiting does not cure."""
    status = error.response.status_code
    if status == 429 or status >= 500:
        return RegistryUnreachableError(f"{what}: the hub answers {status} ({error})")
    hint = "; a gated dataset wants its terms accepted and HF_TOKEN set" if status in (401, 403) else ""
    return ValueError(f"{what}: the hub refuses with {status}{hint} ({error})")


def _hub_file(repository: str, revision: str, item: RepoFile) -> HubFile:
    return HubFile(repository, revision, item.path, item.size, item.lfs.sha256 if item.lfs else item.blob_id)
