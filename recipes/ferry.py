"""Ferries: daily runs through the whole graph, with and without the package registry."""

from dataclasses import dataclass, replace

from datakit.sources.roster import ROSTER, RosterConfig
from datakit.sources.source import PypiFiles, WheelPin
from evals.reports.report import REPORT, ReportConfig
from lineage.artifact.store import Store
from lineage.build.nodes import MissingArtifactError, Node, ancestors_first, resolve
from recipes.hardware import refuse_accelerators
from recipes.records.data import decontamination
from recipes.records.placement import Daily
from recipes.records.run import Run
from recipes.runs import audit, checkpoint, contamination_scores, eval_result, eval_tasks
from recipes.sources import source_config


@dataclass(frozen=True)
class Ferry:
    """The run for days when the registry answers, and the one for other days. Neither has a day yet."""

    online: Run
    offline: Run
    prefix: str = "ferry"
    """Prefix of every key. The artifacts are in a separate store and expire."""

    with_accelerators: bool = False
    """Whether its jobs may request accelerators. A smoke ferry runs every day and does not need them."""

    def __post_init__(self) -> None:
        if not self.with_accelerators:
            for run in (self.online, self.offline):
                hardware_names = (*run.execution.hardware, *run.evaluation.hardware)
                refuse_accelerators(hardware_names, f"the ferry of run {run.name}", "Set with_accelerators=True to allow it.")

    def run(self, day: str, *, reachable: bool) -> Run:
        return replace(self.online if reachable else self.offline, place=Daily(self.prefix, day))

    def every_source(self, day: str) -> Run:
        """A run over all sources that any day may use; the graph shows this run."""
        sources = tuple(dict.fromkeys((*self.online.sources, *self.offline.sources)))
        tokens, corpus = self.online.tokens, self.online.corpus
        cleaned = decontamination(corpus.decontamination.name, corpus.decontamination.suites, sources)
        corpus = replace(corpus, scope=replace(corpus.scope, sources=sources), decontamination=cleaned)
        mix = replace(self.online.data, tokens=replace(tokens, corpus=corpus))
        return replace(self.online, data=mix, place=Daily(self.prefix, day))

    def suite_sources(self) -> tuple[str, ...]:
        """Raw sources of the benchmark items of both runs."""
        return tuple(sorted({suite.raw_source for run in (self.online, self.offline) for suite in run.evaluation.suites}))


def pins(ferry: Ferry) -> tuple[WheelPin, ...]:
    """Every wheel that the online ferry downloads, with those of benchmark items."""
    names = (*ferry.online.sources, *(suite.raw_source for suite in ferry.online.evaluation.suites))
    loaders = [source_config(name).loader for name in names]
    return tuple(loader.pin for loader in loaders if isinstance(loader, PypiFiles))


def roster(ferry: Ferry, day: str, *, reachable: bool) -> Node:
    """The frozen choice of the day's sources."""
    used = ferry.run(day, reachable=reachable).sources
    left_out = tuple(source for source in ferry.every_source(day).sources if source not in used)
    config = RosterConfig(pins=pins(ferry), reachable=reachable, sources=used, left_out=left_out)
    return Node(*Daily(ferry.prefix, day).of_all("roster"), ROSTER, config)


def existing_roster(ferry: Ferry, store: Store, day: str) -> Node:
    """The day's roster; one that reached the registry is preferred. Raises: MissingArtifactError if there is none."""
    for reachable in (True, False):
        node = roster(ferry, day, reachable=reachable)
        try:
            resolve(store, node)
        except MissingArtifactError:
            continue
        return node
    raise MissingArtifactError(roster(ferry, day, reachable=True), store)


def rostered_run(ferry: Ferry, store: Store, day: str) -> Run:
    """The run that the day's roster chose."""
    chosen = existing_roster(ferry, store, day).config
    assert isinstance(chosen, RosterConfig)
    return ferry.run(day, reachable=chosen.reachable)


def final_checkpoint(run: Run) -> Node:
    """Return the run's last checkpoint."""
    return checkpoint(run, run.spec.num_steps)


def final_eval(run: Run) -> Node:
    """Every task at the final checkpoint, in one job."""
    return eval_result(run, run.spec.num_steps, eval_tasks(run), partition="")


def final_contamination_scores(run: Run) -> Node:
    """Return the contamination scores of the last checkpoint."""
    return contamination_scores(run, run.spec.num_steps)


def final_audit(run: Run) -> Node:
    """Return the audit of the last checkpoint."""
    return audit(run, run.spec.num_steps)


def report(run: Run) -> Node:
    """The ferry's report: stages, loss curve, scores, verdict."""
    ends = (final_checkpoint(run), final_eval(run), final_audit(run))
    return Node(*run.place.of_all("report"), REPORT, ReportConfig(), {"artifacts": tuple(ancestors_first(ends))})


def nodes(run: Run) -> list[Node]:
    """Every node of a day's ferry except its roster, inputs first."""
    return ancestors_first([report(run)])
