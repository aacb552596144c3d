"""The state of every asset as the Dagster UI shows it, compared with what the stores hold.

By itself it looks at the lab of this checkout, whose UI it serves on a free port, and prints what disagrees:

    DAGSTER_HOME=$PWD PYTHONPATH=.:tests/lab:tests/shell .venv/bin/python tests/shell/ui_states.py
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from control_plane import free_port
from launches import ROOT, until

from lineage.artifact.store import Store
from marin_assets.event_log import LEFT_OUT, read_log
from resources.stores import stores_from_environment

QUERY = """{
  assetNodes {
    assetKey { path }
    groupName
    partitionStats { numPartitions numMaterialized numFailed }
    assetMaterializations(limit: 1) { timestamp }
  }
}"""
"""What the asset page, the catalogue and the graph of the UI are drawn from."""

type Key = tuple[str, ...]


@dataclass(frozen=True)
class ShownAsset:
    """What the UI shows of an asset."""

    key: Key
    group: str
    partitions: int | None
    """Number of its partitions; None for an asset without them."""
    made: int
    """Number of green partitions; 1 for an asset without partitions that is green."""
    failed: int


@contextmanager
def webserver(workspace: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve the UI of a workspace on loopback, without a daemon, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "dagster_webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ui:
        try:
            until(lambda: _answers(f"http://127.0.0.1:{port}/server_info"), "the UI to answer")
            yield f"http://127.0.0.1:{port}"
        finally:
            ui.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def shown_assets(url: str) -> list[ShownAsset]:
    """Ask the UI's own interface for every asset. Raises: RuntimeError for an answer with errors."""
    body = json.dumps({"query": QUERY}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        answer = json.load(response)
    if answer.get("errors"):
        raise RuntimeError(str(answer["errors"])[:2000])
    return [_shown(node) for node in answer["data"]["assetNodes"]]


def _shown(node: Mapping) -> ShownAsset:
    stats = node["partitionStats"]
    made = len(node["assetMaterializations"]) if stats is None else stats["numMaterialized"]
    return ShownAsset(
        key=tuple(node["assetKey"]["path"]),
        group=node["groupName"],
        partitions=None if stats is None else stats["numPartitions"],
        made=made,
        failed=0 if stats is None else stats["numFailed"],
    )


def made_places(stores: Sequence[Store], instance: dg.DagsterInstance) -> dict[Key, set[str | None]]:
    """Return the partitions of each key that have an artifact, or that a roster has left out and says so."""
    places: dict[Key, set[str | None]] = {}
    for store in stores:
        for artifact in store.artifacts():
            places.setdefault(artifact.spec.key, set()).add(artifact.spec.partition)
    for event in read_log(instance).reported:
        if event.data_version == LEFT_OUT:
            places.setdefault(tuple(event.key.path), set()).add(event.partition)
    return places


def disagreements(shown: Sequence[ShownAsset], made: Mapping[Key, set[str | None]], others: Sequence[Key]) -> list[str]:
    """Return what the UI shows as made that was not made, and what it shows as missing that was made.

    `others`: assets that are no artifacts and were made too (a pass rate).
    """
    lines = []
    for asset in shown:
        wanted = len(made.get(asset.key, ())) or int(asset.key in others)
        if asset.made != wanted:
            lines.append(f"{'/'.join(asset.key)}: the UI shows {asset.made} made, there are {wanted}")
        if asset.partitions == 0:
            lines.append(f"{'/'.join(asset.key)}: it has no partition, which the UI draws as a green tick")
        if asset.failed:
            lines.append(f"{'/'.join(asset.key)}: {asset.failed} failed")
    unknown = made.keys() - {asset.key for asset in shown}
    return [*lines, *(f"{'/'.join(key)}: made, but the UI has no such asset" for key in sorted(unknown))]


def counts(shown: Sequence[ShownAsset]) -> dict[str, object]:
    """Return how many assets the UI shows, how many of them as made, and how many there are in each group."""
    groups = Counter(asset.group for asset in shown)
    made = sum(asset.made > 0 for asset in shown)
    return {"assets": len(shown), "made": made, "groups": dict(sorted(groups.items()))}


def main() -> None:
    with dg.DagsterInstance.get() as instance:
        made = made_places(stores_from_environment(), instance)
    with webserver(ROOT / "workspace.yaml", os.environ) as url:
        shown = shown_assets(url)
    print(json.dumps(counts(shown), indent=1))
    found = disagreements(shown, made, [("operations", "ferry_pass_rate")])
    print("\n".join(found) or "nothing disagrees")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
