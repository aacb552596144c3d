"""Make `tests/shell/jobset_v1alpha2.schema.json` again: the schema of JobSet v1alpha2, from the models of kubeflow-trainer-api.

    pip download --no-deps kubeflow-trainer-api==2.3.0 -d /tmp/jobset
    python tools/jobset_schema.py /tmp/jobset/kubeflow_trainer_api-2.3.0-py3-none-any.whl

The package (Apache-2.0) has pydantic models. It is generated from the OpenAPI document of Kubeflow's trainer, which uses
JobSet's types unchanged. The models are made strict here (no unknown field), and what their descriptions say about values
becomes part of the schema. Jobs and pods inside a JobSet are not described: Kubernetes' own schema covers them.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "tests" / "shell" / "jobset_v1alpha2.schema.json"
OWN = "JobsetV1alpha2"
_VALUES = re.compile(r"Valid values are ([A-Za-z, ]+)\.")
_PATTERN = re.compile(r'must match the regular expression "([^"]+)"')


def extract(wheel: Path) -> dict[str, Any]:
    """The schema of a whole JobSet."""
    sys.path.insert(0, str(wheel))
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    job_set = JobsetV1alpha2JobSet.model_json_schema(by_alias=True)
    kept = {name: _strict(schema) for name, schema in job_set.pop("$defs").items() if name.startswith(OWN)}
    note = "From kubeflow-trainer-api 2.3.0 (Apache-2.0, The Kubeflow Authors), JobSet v1alpha2; made by tools/jobset_schema.py"
    return {"$comment": note, **_strict(job_set), "$defs": dict(sorted(kept.items()))}


def _strict(model: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _field(schema) for name, schema in model["properties"].items()}
    return {"type": "object", "additionalProperties": False, "required": model.get("required", []), "properties": properties}


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    """One field: references to JobSet's own models, its values and its pattern; null stands for a field that is not set."""
    description = schema.get("description", "")
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    (value,) = options
    if value.get("type") == "array":
        return {"type": "array", "items": _field(value["items"])}
    if "$ref" in value:
        return {"$ref": value["$ref"]} if value["$ref"].startswith(f"#/$defs/{OWN}") else {"type": "object"}
    field = {"type": value["type"]} if "type" in value else {}
    if match := _VALUES.search(description):
        field["enum"] = match[1].split(", ")
    if match := _PATTERN.search(description):
        field["pattern"] = match[1]
    return field


if __name__ == "__main__":
    OUT.write_text(json.dumps(extract(Path(sys.argv[1])), indent=1) + "\n")
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")
