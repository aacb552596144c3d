"""`lab.yaml` of a lab names its clusters, and `marin --cluster NAME` takes one: what environment variables choose otherwise.

clusters:
  tpu: {settings: clusters/tpu.yaml, root: "gs://lab/root", region: us-central1, data_runners: 8}
  here: {root: /data/marin, workers: 8}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import yaml

from lineage.config import from_jsonable
from lineage.strangers import naming

LAB_FILE = "lab.yaml"


@dataclass(frozen=True)
class NamedCluster:
    """Where a cluster's jobs run, and where its artifacts are. A field that is not given leaves the default."""

    settings: str = field(default="", metadata={"variable": "MARIN_CLUSTER"})
    """File with the fields of `ClusterSettings` (context, queues by hardware), relative to the lab's folder."""

    root: str = field(default="", metadata={"variable": "MARIN_ROOT"})
    scratch: str = field(default="", metadata={"variable": "MARIN_SCRATCH"})
    region: str = field(default="", metadata={"variable": "MARIN_REGION"})
    workers: int | None = field(default=None, metadata={"variable": "MARIN_WORKERS"})
    data_runners: int | None = field(default=None, metadata={"variable": "MARIN_DATA_RUNNERS"})


@dataclass(frozen=True)
class LabFile:
    """What `lab.yaml` says beside the policy of signatures (`lineage/signing/policy.py`)."""

    clusters: Mapping[str, NamedCluster]

    def __post_init__(self) -> None:
        for name, cluster in self.clusters.items():
            if cluster == NamedCluster():
                allowed = ", ".join(each.name for each in fields(NamedCluster))
                raise ValueError(f"clusters.{name} sets nothing; set at least one of {allowed}")
            if cluster.workers is not None and cluster.workers < 1:
                raise ValueError(f"clusters.{name}.workers is {cluster.workers}; it must be at least 1")
            if cluster.data_runners is not None and cluster.data_runners < 0:
                raise ValueError(f"clusters.{name}.data_runners is {cluster.data_runners}; 0 (none) or more is allowed")


@dataclass(frozen=True)
class Chosen:
    """The environment variables that a cluster sets, and a line for each that is set already and holds."""

    variables: Mapping[str, str]
    kept: tuple[str, ...]


def named_cluster(name: str, lab: Path) -> NamedCluster:
    """Return the cluster of a name from the lab's `lab.yaml`; its settings file has its whole path.

    Raises: ValueError if there is no such file or cluster, or naming a wrong field.
    """
    path = lab / LAB_FILE
    if not path.is_file():
        raise ValueError(f"--cluster {name}: there is no {path}; docs/recipes/run_on_a_cluster.md shows one")
    with naming(str(path)):
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        stated = record.get("clusters", {}) if isinstance(record, dict) else record
        clusters = from_jsonable(LabFile, {"clusters": stated}, LAB_FILE).clusters
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if name not in clusters:
        raise ValueError(f"--cluster {name}: {path} names no such cluster; it names {', '.join(clusters) or 'none'}")
    cluster = clusters[name]
    if not cluster.settings:
        return cluster
    settings = lab / cluster.settings
    if not settings.is_file():
        raise ValueError(f"{path}: clusters.{name}.settings is {cluster.settings!r}, but there is no file {settings}")
    return replace(cluster, settings=str(settings))


def chosen(name: str, cluster: NamedCluster, environment: Mapping[str, str]) -> Chosen:
    """Return what a cluster sets in an environment. A variable that is set there holds, and a line says so."""
    variables, kept = {}, []
    for each in fields(cluster):
        value, variable = getattr(cluster, each.name), each.metadata["variable"]
        if value in ("", None):
            continue
        if environment.get(variable, str(value)) != str(value):
            kept.append(f"{variable}={environment[variable]} of the environment holds, not {value} of cluster {name}")
        else:
            variables[variable] = str(value)
    return Chosen(variables, tuple(kept))
