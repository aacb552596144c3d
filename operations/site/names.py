"""Kinds of pages, their paths, and values as people read them."""

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lineage.storage.digests import identity_digest
from operations.site.content import Cell, Link
from operations.site.store_reader import Place, SiteArtifact, World

KINDS: Mapping[str, str] = {
    "run": "Runs",
    "sweep": "Sweeps",
    "checkpoint": "Checkpoints",
    "evaluation": "Evaluations",
    "audit": "Contamination audits",
    "forecast": "Forecasts",
    "corpus": "Corpora",
    "source": "Sources",
    "suite": "Suites",
    "artifact": "Other artifacts",
}
"""Kind of a page -> its title in the plural, in the order of the index."""
KIND_OF_STAGE: Mapping[str, str] = {
    "trainer.checkpoint": "checkpoint",
    "trainer.trial": "checkpoint",
    "post_training.checkpoint": "checkpoint",
    "post_training.held_out": "evaluation",
    "post_training.audit": "audit",
    "evals.result": "evaluation",
    "evals.trial_result": "evaluation",
    "evals.audit": "audit",
    "science.forecast": "forecast",
    "science.ladder_forecast": "forecast",
    "science.verdict": "forecast",
    "datakit.corpus": "corpus",
    "datakit.raw": "source",
    "evals.suite": "suite",
}
TRAINED = ("trainer.checkpoint", "trainer.trial", "post_training.checkpoint")
PAGE_PATH = re.compile(
    r"(?:(?:run|sweep|checkpoint|evaluation|audit|forecast|corpus|source|suite|artifact|kind|month)/)?[a-z0-9-]+\.html"
)
"""The pattern of a page's path. The build deletes no other files."""
NONE = "\N{EN DASH}"
STEP = re.compile(r"step-?\d+")

type Namer = Callable[[str], str]


def page_path(kind: str, shown_title: str, identity: object) -> str:
    """Return a path that is equal for equal identities. The veil has already been applied to `shown_title`."""
    words = re.sub(r"[^a-z0-9]+", "-", shown_title.lower()).strip("-")[:60].strip("-")
    return f"{kind}/{words or kind}-{identity_digest(identity)[:10]}.html"


def kind_of(one: SiteArtifact) -> str:
    """Return the kind of page of an artifact."""
    return KIND_OF_STAGE.get(one.artifact.spec.stage, "artifact")


def run_of(one: SiteArtifact) -> tuple[str, str]:
    """Store and name of the run that a checkpoint belongs to. Steps are partitions of a run; a day or a trial names one."""
    spec = one.artifact.spec
    key = spec.key[:-1] if len(spec.key) > 1 and spec.key[-1] in ("checkpoint", "trial") else spec.key
    part = "" if spec.partition is None or STEP.fullmatch(spec.partition) else f" {spec.partition}"
    return one.place[0], "/".join(key) + part


def sweep_of(one: SiteArtifact) -> tuple[str, str] | None:
    """Store and name of the sweep that an artifact belongs to, or None."""
    key = one.artifact.spec.key
    return (one.place[0], "/".join(key[:2])) if key[0] == "sweeps" and len(key) > 2 else None


class Names:
    """Paths of all pages, and links to them."""

    def __init__(self, world: World, veil: Namer) -> None:
        self.world, self.veil = world, veil
        self.paths: dict[object, str] = {
            place: page_path(kind_of(one), veil(one.artifact.name), list(place)) for place, one in world.artifacts.items()
        }
        for one in world.artifacts.values():
            if one.artifact.spec.stage in TRAINED:
                run = run_of(one)
                self.paths["run", run] = page_path("run", veil(run[1]), ["run", *run])
            if (sweep := sweep_of(one)) is not None:
                self.paths["sweep", sweep] = page_path("sweep", veil(sweep[1]), ["sweep", *sweep])

    def artifact(self, place: Place) -> Link:
        one = self.world.artifacts[place]
        config = mapping(one.artifact.spec.config)
        step = f", step {config['step']}" if one.artifact.spec.stage in TRAINED and is_whole(config.get("step")) else ""
        return Link(f"{one.artifact.name}{step}", self.paths[place])

    def run(self, run: tuple[str, str]) -> Link:
        return Link(run[1], self.paths["run", run])

    def sweep(self, sweep: tuple[str, str]) -> Link:
        return Link(sweep[1], self.paths["sweep", sweep])

    def of_name(self, name: str, data_version: str | None = None) -> Cell:
        """Return a link to an artifact by name and data version, or its name."""
        place = self.world.by_name.get((name, data_version or ""))
        return name if place is None else self.artifact(place)


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one: a manifest of strangers may have anything."""
    return value if isinstance(value, Mapping) else {}


def rows_in(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list. Other items are left out."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def is_whole(value: object) -> bool:
    """Whether a value is an integer and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: object) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def shown(value: object) -> str:
    """Return a value for people. NULL is a dash, never 0."""
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return "less than $0.0001" if 0 < value < Decimal("0.0001") else f"${value:.4f}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**30 else "a number of more than 30 digits"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_bytes(count: int) -> str:
    """Return a number of bytes with a decimal unit."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def as_time(text: str) -> str:
    """Return a time of a record, to the minute."""
    return f"{text[:10]} {text[11:16]} UTC" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*", text, re.DOTALL) else text


def as_date(text: str) -> str:
    """Return the day of a record's time, or an empty text if it has none."""
    return text[:10] if re.match(r"\d{4}-(0[1-9]|1[0-2])-\d\d(?!\d)", text, re.ASCII) else ""
