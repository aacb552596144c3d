"""Credentials of a kubeconfig's user: files that it names or holds, and credential plugins."""

import atexit
import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class TokenPlugin:
    """A credential plugin of a kubeconfig (client.authentication.k8s.io, such as GKE's); its tokens live about an hour."""

    plugin: Mapping[str, Any]
    held: str = ""

    def token(self, *, fresh: bool = False) -> str:
        """Return the plugin's token; run the plugin again if a `fresh` one is wanted."""
        if fresh or not self.held:
            self.held = _exec_token(self.plugin)
        return self.held


def file_of(entry: Mapping[str, str], name: str) -> str | None:
    """Return the path of a file that an entry of a kubeconfig names or holds in base64, or None if it has neither.

    Held bytes are written to a file that only this user can read and that is deleted when this process exits by itself.
    """
    if f"{name}-data" not in entry:
        return entry.get(name)
    with tempfile.NamedTemporaryFile(prefix="marin-kube-", delete=False) as out:
        out.write(base64.b64decode(entry[f"{name}-data"]))
    atexit.register(Path(out.name).unlink, missing_ok=True)
    return out.name


def _exec_token(plugin: Mapping[str, Any]) -> str:
    """Run the plugin and return its token. Raises: CalledProcessError; FileNotFoundError if the plugin is not installed."""
    env = {**os.environ, **{pair["name"]: pair["value"] for pair in plugin.get("env") or []}}
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    answer = subprocess.run(
        [plugin["command"], *(plugin.get("args") or [])], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout)["status"]["token"]
