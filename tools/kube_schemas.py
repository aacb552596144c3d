"""Make `tests/deploy/kube_schemas.json` again: schemas of the few Kubernetes kinds that we write, from kubernetes-validate.

    pip download --no-deps kubernetes-validate==1.37.0 -d /tmp/kv
    python tools/kube_schemas.py /tmp/kv/kubernetes_validate-1.37.0-py3-none-any.whl

The package (Apache-2.0) turns Kubernetes' own OpenAPI documents (Apache-2.0) into JSON schemas. The strict ones refuse unknown
fields. It is 72 MB in 17,000 files, so we copy only what we need: no descriptions, and no definitions that nothing refers to.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

VERSION = "v1.37.0"
KINDS = (
    "namespace-v1", "serviceaccount-v1", "configmap-v1", "service-v1", "resourcequota-v1", "pod-v1", "job-batch-v1",
    "deployment-apps-v1", "networkpolicy-networking-v1", "role-rbac-v1", "rolebinding-rbac-v1",
    "validatingadmissionpolicy-admissionregistration-v1", "validatingadmissionpolicybinding-admissionregistration-v1",
)  # fmt: skip
OUT = Path(__file__).resolve().parents[1] / "tests" / "deploy" / "kube_schemas.json"
_REFERENCE = "/api/_definitions.json#/$defs/"


def extract(wheel: Path) -> dict[str, Any]:
    """Schemas by `apiVersion/kind`, and the definitions that they need."""
    with zipfile.ZipFile(wheel) as archive:
        folder = f"kubernetes_validate/kubernetes-json-schema/{VERSION}-local-strict"
        everything = json.loads(archive.read(f"{folder}/_definitions.json"))["$defs"]
        kinds, needed = {}, {}
        for name in KINDS:
            schema = _local(json.loads(archive.read(f"{folder}/{name}.json")))
            properties = schema["properties"]
            kinds[f"{properties['apiVersion']['enum'][0]}/{properties['kind']['enum'][0]}"] = schema
    pending = _referred(kinds)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed[name] = _local(everything[name])
            pending |= _referred(needed[name])
    note = f"From kubernetes-validate 1.37.0 (Apache-2.0), Kubernetes {VERSION}, strict; made by tools/kube_schemas.py"
    return {"$comment": note, "kinds": kinds, "$defs": dict(sorted(needed.items()))}


def _local(value: Any) -> Any:
    """Remove descriptions, and make references point into the same document."""
    if isinstance(value, list):
        return [_local(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.replace(_REFERENCE, "#/$defs/") if key == "$ref" and isinstance(item, str) else _local(item)
        for key, item in value.items()
        if key != "description" or not isinstance(item, str)
    }


def _referred(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_referred, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"].removeprefix("#/$defs/")} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(_referred, value.values()))


if __name__ == "__main__":
    OUT.write_text(json.dumps(extract(Path(sys.argv[1])), separators=(",", ":")) + "\n")
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")
