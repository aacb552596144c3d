"""The image's environment on this machine: its packages by its lock, kept in the user's cache (minutes the first time)."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / "deploy" / "requirements.lock"


def image_python() -> Path:
    """The interpreter. Raises: CalledProcessError where a package does not come."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marin-lab"
    folder = cache / f"image-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*install, "--requirement", str(LOCK)], check=True)
        (folder / "whole").touch()
    return folder / "bin" / "python"
