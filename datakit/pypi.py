"""Pinned wheels from whatever package registry the user's own pip is set up for: resumable, hash-checked, cached.

pip resolves the address (its report names it without installing anything), so mirrors, certificates and credentials are the
user's business and no host stands in this code. The bytes are ours to fetch: with Range requests into a `.partial` file, so a
killed download goes on where it was, and with the sha256 of the pin, so a wrong file is never used.
"""

import json
import logging
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

from datakit.download import RegistryUnreachableError, copy_local, download
from datakit.sources import WheelPin

log = logging.getLogger(__name__)

RESOLVE_SECONDS = 60
UNREACHABLE_MARKS = (
    "Retrying (",
    "Connection refused",
    "Failed to establish a new connection",
    "Name or service not known",
    "Temporary failure in name resolution",
    "timed out",
    "No route to host",
    "Network is unreachable",
    "Max retries exceeded",
)

__all__ = ["RegistryUnreachableError", "cached_wheel", "ensure_downloaded"]


def cached_wheel(pin: WheelPin, downloads: Path) -> Path | None:
    """The wheel, if the cache has it. Files enter the cache only after their hash was checked."""
    return next(iter(sorted((downloads / pin.sha256).glob("*.whl"))), None)


def ensure_downloaded(pin: WheelPin, downloads: Path) -> Path:
    """Path of the pinned wheel, fetched when the cache has it not.

    Raises: RegistryUnreachableError when no registry answers; ValueError for a wrong hash, or a pin that the registry does
    not have.
    """
    found = cached_wheel(pin, downloads)
    if found is not None:
        return found
    parts = urllib.parse.urlsplit(url := resolve_url(pin))
    path = Path(urllib.parse.unquote(parts.path))
    target, what = downloads / pin.sha256 / path.name, f"{pin.package}=={pin.version}"
    if parts.scheme == "file":
        copy_local(path, target, sha256=pin.sha256, what=what)
    else:
        download(url, target, sha256=pin.sha256, what=what)
    return target


def resolve_url(pin: WheelPin) -> str:
    """Where pip would fetch the pin from, by its own configuration."""
    requirement = f"{pin.package}=={pin.version}"
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir",
            "--only-binary", ":all:", "--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--quiet",
            "--report", str(report), requirement,
        ]  # fmt: skip
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise RegistryUnreachableError(f"pip found no registry for {requirement} in {RESOLVE_SECONDS} s") from error
        if result.returncode == 0:
            return json.loads(report.read_text())["install"][0]["download_info"]["url"]
    said = result.stderr.strip()
    if any(mark in said for mark in UNREACHABLE_MARKS):
        raise RegistryUnreachableError(f"pip cannot reach a registry for {requirement}: {said.splitlines()[0][:200]}")
    raise ValueError(f"pip cannot resolve {requirement}: {said[-500:]}")
