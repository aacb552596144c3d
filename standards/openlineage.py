"""OpenLineage events (https://openlineage.io, spec 2-0-2): one COMPLETE event for each artifact that was made.

`OPENLINEAGE_URL` names the server (Marquez, DataHub ...); without it nothing is sent. `OPENLINEAGE_ENDPOINT` is the path,
default `api/v1/lineage`; `OPENLINEAGE_API_KEY` a bearer token. These are the variables of OpenLineage's own clients.
"""

import json
import logging
import os
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from lineage.artifact.manifest import Manifest
from lineage.artifact.spec import InputRef

log = logging.getLogger(__name__)

URL, ENDPOINT, API_KEY = "OPENLINEAGE_URL", "OPENLINEAGE_ENDPOINT", "OPENLINEAGE_API_KEY"
DEFAULT_ENDPOINT = "api/v1/lineage"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PRODUCER = "urn:marin-lab"
NAMESPACE = "marin-lab"
SECONDS = 5
_RUNS = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122's namespace for addresses


def run_event(manifest: Manifest) -> dict[str, Any]:
    """Return the event that says that an artifact was made. Equal manifests give equal events."""
    spec = manifest.spec
    rows = manifest.statistics.get("rows_out")
    size = sum(entry.bytes for entry in manifest.files)
    statistics = {"size": size, "fileCount": len(manifest.files)} | ({"rowCount": rows} if isinstance(rows, int) else {})
    output = {
        "namespace": NAMESPACE,
        "name": _name(spec.key, spec.partition),
        "facets": {"version": _version(manifest.data_version)},
        "outputFacets": {"outputStatistics": _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", statistics)},
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": manifest.created,
        "run": {"runId": str(uuid.uuid5(_RUNS, f"{PRODUCER}/{spec.address}/{manifest.data_folder}"))},
        "job": {"namespace": NAMESPACE, "name": f"{spec.stage}.{_name(spec.key, spec.partition)}"},
        "inputs": [_input(ref) for ref in spec.inputs],
        "outputs": [output],
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
    }


def _input(ref: InputRef) -> dict[str, Any]:
    return {
        "namespace": NAMESPACE,
        "name": _name(ref.key, ref.partition),
        "facets": {"version": _version(ref.data_version)},
    }


def _name(key: tuple[str, ...], partition: str | None) -> str:
    return "/".join((*key, *([partition] if partition else [])))


def _version(data_version: str) -> dict[str, Any]:
    return _facet("DatasetVersionDatasetFacet", "1-0-1", {"datasetVersion": data_version})


def _facet(name: str, version: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    schema = f"https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **fields}


def send(event: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> bool:
    """Send an event where the environment names a server; whether it was taken.

    A server that is away or refuses is a warning, never an error: the event can be made again from the manifest.
    """
    base = environment.get(URL, "")
    if not base:
        return False
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"{URL} is {base!r}; give an http:// or https:// address")
    headers = {"Content-Type": "application/json"}
    if environment.get(API_KEY):
        headers["Authorization"] = f"Bearer {environment[API_KEY]}"
    where = f"{base.rstrip('/')}/{environment.get(ENDPOINT, DEFAULT_ENDPOINT).lstrip('/')}"
    request = urllib.request.Request(where, json.dumps(event).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return True
    except OSError as error:  # URLError, HTTPError and timeouts
        log.warning("an OpenLineage event was not sent to %s: %s; ./marin openlineage sends it again", where, error)
        return False
