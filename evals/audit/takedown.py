"""Takedown: which artifacts hold a document (a source, a licence), and which training steps read it.

A document is looked for in the bytes of every normalized set, corpus and token cache, so the answer needs no ancestor to be
there still. A source or a licence is what raw artifacts say of themselves (`extra["source"]`), followed down; a normalized set
whose raw artifact is gone is reported as unknown, and so is a checkpoint whose data order cannot be opened any more.
The steps come from inverting the data order (`lineage.order.exposure`); `evals.audit.takedown_plan` says what making each clean
costs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Literal

import numpy as np
import polars as pl

from evals.audit.licences import licences_in
from lineage.artifact.store import Artifact, Store
from lineage.graph.edges import LineageTables, open_all
from lineage.order.batches import BatchSchedule
from lineage.order.exposure import exposures
from lineage.order.history import batches_read
from lineage.order.mixture import bound_caches
from lineage.order.order import DataOrder
from lineage.order.token_cache import TokenCache
from lineage.trust.verdicts import subject_of, subject_of_ref

type Role = Literal["raw", "normalized", "suite", "corpus", "cache", "mixture", "checkpoint", "export"]
ROLES: dict[str, Role] = {
    "datakit.raw": "raw",
    "datakit.normalize": "normalized",
    "evals.suite": "suite",
    "datakit.corpus": "corpus",
    "datakit.token_cache": "cache",
    "lineage.mixture": "mixture",
    "lineage.chosen_mixture": "mixture",
    "trainer.checkpoint": "checkpoint",
    "trainer.trial": "checkpoint",
    "trainer.hf_model": "export",
}  # fmt: skip
LINKS: tuple[tuple[Role, str, Role], ...] = (
    ("normalized", "raw", "raw"),
    ("suite", "raw", "raw"),
    ("corpus", "normalized", "normalized"),
    ("cache", "corpus", "corpus"),
)
"""Which artifact's text another holds, and under which input's name."""
FOLDERS: dict[Role, tuple[str, ...]] = {
    "normalized": ("documents/",),
    "corpus": ("train/", "heldout/"),
    "suite": ("items.parquet",),
}
"""Where the documents (items) of an artifact are."""
BY_ID: tuple[Role, ...] = ("normalized", "corpus", "cache")
"""Where a document's id is searched."""
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Selection:
    """What is to be taken down: documents by id, or everything of a source or under a licence (one of the three)."""

    documents: tuple[str, ...] = ()
    source: str | None = None
    licence: str | None = None
    """An SPDX expression: whatever is under any of its licences, ignoring case. A licence that is no such expression
    (`various`, one that nobody has verified) is reported as unknown."""

    def __post_init__(self) -> None:
        given = [bool(self.documents), self.source is not None, self.licence is not None]
        if sum(given) != 1:
            raise ValueError(f"a takedown names documents, a source or a licence, one of them; this names {sum(given)}")
        if self.licence is not None and licences_in(self.licence) is None:
            raise ValueError(
                f"licence {self.licence!r} is no SPDX expression, such as MIT, GPL-3.0-only or 'MIT OR Apache-2.0'"
            )
        bad = [text for text in self.documents if not _ID.fullmatch(text)]
        if bad:
            raise ValueError(
                f"document id {bad[0]!r} is not 32 hex digits in lower case, as the column `id` of documents has them"
            )


@dataclass(frozen=True)
class Copy:
    """An artifact that holds what was selected, or read it. `num_selected` of its `num_documents`, if it has documents."""

    artifact: Artifact
    role: Role
    num_selected: int
    num_documents: int
    components: tuple[str, ...] = ()
    """For a mixture or checkpoint: the components that hold it."""
    steps: tuple[int, ...] = ()
    """For a checkpoint or its export: every step of its run, from 0, whose batch held a token of it."""
    inherited: str | None = None
    """For a checkpoint: the address of the one it started from, if that one or an earlier one had read it."""

    @property
    def is_whole(self) -> bool:
        """Whether it holds nothing else."""
        return self.num_selected == self.num_documents

    @property
    def is_clean(self) -> bool:
        """Whether it is a checkpoint whose mixture holds it, but which has not read it yet."""
        return self.role == "checkpoint" and not self.steps and self.inherited is None


@dataclass(frozen=True)
class TakedownScope:
    """Holders with inputs first; `unknown` names artifacts about which nothing is known, and why."""

    selection: Selection
    holders: tuple[Copy, ...]
    unknown: tuple[tuple[str, str], ...] = field(default=())


def find_holders(store: Store, tables: LineageTables, selection: Selection) -> TakedownScope:
    """Find everything in the store that holds or read the selection."""
    artifacts = {role: open_all(store, of_role(tables, role)) for role in ROLES.values()}
    artifacts["checkpoint"] = starts_first(artifacts["checkpoint"])
    unknown: list[tuple[str, str]] = []
    if selection.documents:
        data = [h for role in BY_ID for h in _by_id(artifacts[role], role, selection.documents)]
        data = _raw_of(data, artifacts["raw"]) + data
    else:
        data = _by_source(artifacts, selection, unknown)
    caches = {holder.artifact.spec.address: holder for holder in data if holder.role == "cache"}
    mixtures = _mixtures(artifacts, caches, unknown)
    checkpoints = _checkpoints(artifacts["checkpoint"], mixtures, selection, unknown)
    exports = _exports(artifacts["export"], checkpoints)
    return TakedownScope(selection, (*data, *mixtures.values(), *checkpoints, *exports), tuple(unknown))


def of_role(tables: LineageTables, role: Role) -> list[str]:
    """Return the addresses of the artifacts of a role, the oldest first."""
    stages = [stage for stage, name in ROLES.items() if name == role]
    return tables.artifacts.filter(pl.col("stage").is_in(stages)).sort("created", "address")["address"].to_list()


def starts_first(checkpoints: Sequence[Artifact]) -> list[Artifact]:
    """Checkpoints in an order in which the one that another started from comes first.

    The order goes by inputs and not by `created`: a commit clock that ran two hours late hid a warm start (red team, L-D4).
    """
    of = {artifact.spec.address: artifact for artifact in checkpoints}
    before = {
        address: [ref.address for ref in artifact.spec.inputs if ref.name == "start" and ref.address in of]
        for address, artifact in of.items()
    }
    return [of[address] for address in TopologicalSorter(before).static_order()]


def _by_id(artifacts: Sequence[Artifact], role: Role, documents: tuple[str, ...]) -> list[Copy]:
    holders = []
    for artifact in artifacts:
        if role == "cache":
            cache = TokenCache.open(artifact)
            count = sum(cache.document_span(document) is not None for document in set(documents))
            total = cache.num_documents
        else:
            count, total = _rows_with(artifact, role, documents)
        if count:
            holders.append(Copy(artifact, role, count, total))
    return holders


def _raw_of(data: Sequence[Copy], raw: Sequence[Artifact]) -> list[Copy]:
    """Return the raw artifacts behind normalized sets. One of their files has the text; the id does not say which."""
    behind = {ref.address for h in data if h.role == "normalized" for ref in h.artifact.spec.inputs if ref.name == "raw"}
    return [Copy(a, "raw", 0, _num_documents(a, "raw")) for a in raw if a.spec.address in behind]


def _rows_with(artifact: Artifact, role: Role, documents: tuple[str, ...]) -> tuple[int, int]:
    paths = [path for folder in FOLDERS[role] for path in artifact.files(".parquet", under=folder)]
    wanted = pl.Series(sorted(set(documents)), dtype=pl.String).implode()
    frame = pl.scan_parquet(paths).select(selected=pl.col("id").is_in(wanted).sum(), all=pl.len()).collect()
    return int(frame["selected"][0]), int(frame["all"][0])


def _by_source(artifacts: dict[Role, list[Artifact]], selection: Selection, unknown: list[tuple[str, str]]) -> list[Copy]:
    """Return raw artifacts that match and what was made of their files, link by link."""
    held: dict[Role, list[Artifact]] = {"raw": []}
    for raw in artifacts["raw"]:
        holds = _matches(raw, selection)
        if holds is None:
            licence = raw.manifest.extra["source"]["licence"]
            unknown.append((raw.spec.address, f"its licence is {licence!r}, which is no SPDX expression: read its card"))
        elif holds:
            held["raw"].append(raw)
    for role, name, parent_role in LINKS:
        here = {subject_of(artifact) for artifact in artifacts[parent_role]}
        wanted = {subject_of(artifact) for artifact in held[parent_role]}
        held[role] = []
        for artifact in artifacts[role]:
            ref = next(ref for ref in artifact.spec.inputs if ref.name == name)
            if subject_of_ref(ref) in wanted:
                held[role].append(artifact)
            elif subject_of_ref(ref) not in here:
                unknown.append((artifact.spec.address, f"the {parent_role} that it was made from is gone ({ref.address})"))
    return [Copy(a, role, n, n) for role, copies in held.items() for a in copies for n in (_num_documents(a, role),)]


def _matches(raw: Artifact, selection: Selection) -> bool | None:
    """Whether a raw artifact is of the selected source or licence; None where its licence does not show it."""
    facts = raw.manifest.extra["source"]
    if selection.licence is None:
        return facts["name"] == selection.source
    wanted, stated = licences_in(selection.licence), licences_in(facts["licence"])
    assert wanted is not None  # `Selection` has checked it
    return None if stated is None else bool(wanted & stated)


def _num_documents(artifact: Artifact, role: Role) -> int:
    """Return the number of documents (items of a suite, files of a raw artifact) that a manifest states."""
    if role == "cache":
        return int(artifact.manifest.extra["tokens"]["num_documents"])
    if role == "raw":
        return len(artifact.manifest.files)
    return sum(entry.rows or 0 for entry in artifact.manifest.files if entry.path.startswith(FOLDERS[role]))


def _mixtures(
    artifacts: dict[Role, list[Artifact]], caches: dict[str, Copy], unknown: list[tuple[str, str]]
) -> dict[str, Copy]:
    """Return mixtures that bind a cache which holds it, by address; a component without weight in any phase is bound
    too.
    """
    every = {cache.spec.address: _num_documents(cache, "cache") for cache in artifacts["cache"]}
    holders = {}
    for mixture in artifacts["mixture"]:
        bound = bound_caches(mixture)
        for address in bound.values():
            if address not in every:
                unknown.append((mixture.spec.address, f"its cache {address} is gone"))
        held = {name: caches[address] for name, address in bound.items() if address in caches}
        if held:
            selected = sum(holder.num_selected for holder in held.values())
            total = sum(every.get(address, 0) for address in bound.values())
            holders[mixture.spec.address] = Copy(mixture, "mixture", selected, total, tuple(held))
    return holders


def _checkpoints(
    artifacts: Sequence[Artifact],
    mixtures: dict[str, Copy],
    selection: Selection,
    unknown: list[tuple[str, str]],
) -> list[Copy]:
    """Return checkpoints that hold or read the selection; `artifacts` lists a checkpoint before those that started from
    it.
    """
    holders: dict[str, Copy] = {}
    read: dict[tuple[str, int, BatchSchedule], _Reads] = {}
    for artifact in artifacts:
        inputs = {ref.name: ref.address for ref in artifact.spec.inputs}
        mixture, start = mixtures.get(inputs["mixture"]), holders.get(inputs.get("start", ""))
        inherited = start.artifact.spec.address if start is not None and not start.is_clean else None
        if mixture is None:
            if start is not None and inherited is not None:
                total = max(start.num_documents, 1)
                holders[artifact.spec.address] = Copy(artifact, "checkpoint", 0, total, inherited=inherited)
            continue
        run = artifact.spec.config["run"]
        batches, step = batches_read(artifact), artifact.spec.config["step"]
        place = (mixture.artifact.spec.address, run["seq_len"], batches)
        try:
            if place not in read:
                read[place] = _Reads(mixture, run["seq_len"], batches, selection)
        except ValueError as error:
            unknown.append((artifact.spec.address, f"its data order cannot be opened: {error}"))
            continue
        steps = read[place].steps(step)
        counts = (mixture.num_selected, mixture.num_documents)
        holder = Copy(artifact, "checkpoint", *counts, mixture.components, steps, inherited)
        holders[artifact.spec.address] = holder
    return list(holders.values())


def _exports(artifacts: Sequence[Artifact], checkpoints: Sequence[Copy]) -> list[Copy]:
    """Return exports of checkpoints that have read it; the export of one that has not is clean too."""
    read = {holder.artifact.spec.address: holder for holder in checkpoints if not holder.is_clean}
    pairs = [
        (artifact, read.get(next(ref.address for ref in artifact.spec.inputs if ref.name == "checkpoint")))
        for artifact in artifacts
    ]
    return [replace(holder, artifact=artifact, role="export") for artifact, holder in pairs if holder is not None]


class _Reads:
    """Return the data order of a mixture at one geometry, opened once for all its checkpoints."""

    def __init__(self, mixture: Copy, seq_len: int, batches: BatchSchedule, selection: Selection):
        self.order = DataOrder.open(mixture.artifact, seq_len)
        self.components, self.batches, self.documents = mixture.components, batches, selection.documents

    def steps(self, num_steps: int) -> tuple[int, ...]:
        """Return steps below `num_steps` that read a selected document; without documents, any sequence of the
        components.
        """
        if self.documents:
            chosen = {component: sorted(set(self.documents)) for component in self.components}
            seen = exposures(self.order, chosen, batches=self.batches, num_steps=num_steps)
            return tuple(seen["step"].unique().sort().to_list())
        wanted = [self.order.names.index(component) for component in self.components]
        sequences = np.arange(self.batches.first(0), self.batches.first(num_steps))
        components, _ = self.order.locate(sequences)
        steps, _ = self.batches.locate(sequences[np.isin(components, wanted)])
        return tuple(np.unique(steps).tolist())
