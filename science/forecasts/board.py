"""The page of all verdicts that a store holds, misses and void ones included, as an artifact.

Its inputs are the verdicts that exist when it is made, so no recipe can name them: `build_board` lists them.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.stage_run import run_here
from lineage.config import to_jsonable
from lineage.jobs.job import Job
from lineage.stage import Stage
from lineage.trust.fingerprint import stage_code
from lineage.writing.writer import Writer
from science.forecasts.verdict import VERDICT, write_page

KEY = ("forecast_verdicts",)
PAGE = "verdicts.md"


@dataclass(frozen=True)
class BoardConfig:
    """There is nothing to choose: every verdict is on the page."""


def write_board(out: Writer, config: BoardConfig, verdicts: tuple[Artifact, ...]) -> None:
    """Write `verdicts.md` and `verdicts.json`."""
    write_page(out.folder / PAGE, list(verdicts))
    rows = [
        {"verdict": verdict.name, "smallest_visible": None} | verdict.manifest.extra["verdict"]
        for verdict in sorted(verdicts, key=lambda one: one.name)
    ]
    (out.folder / "verdicts.json").write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    out.extra["verdicts"] = {"outcomes": dict(Counter(str(row["outcome"]) for row in rows)), "rows": rows}
    out.record(rows_in=len(rows), rows_out=len(rows))


BOARD = Stage("science.verdicts", "2", write_board)
"""2: the smallest error that is a miss; what an earlier version of the stage judged is there once."""


def standing(verdicts: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Verdicts in the order of their addresses; of one forecast, result and config that of the stage's last version."""
    last: dict[str, Artifact] = {}
    for verdict in sorted(verdicts, key=lambda one: int(one.spec.stage_version)):
        judged = [(ref.name, ref.data_version) for ref in verdict.spec.inputs]
        last[json.dumps([verdict.spec.key, verdict.spec.config, judged], sort_keys=True)] = verdict
    return tuple(sorted(last.values(), key=lambda one: one.spec.address))


def build_board(store: Store, run_id: str = "") -> tuple[Artifact, bool]:
    """Build the page of the verdicts that a store holds now; return it, and whether it existed already."""
    verdicts = standing(artifact for artifact in store.artifacts("forecasts") if artifact.spec.stage == VERDICT.name)
    refs = tuple(verdict.ref(f"verdicts.{number}") for number, verdict in enumerate(verdicts))
    spec = ArtifactSpec(KEY, None, BOARD.name, BOARD.version, to_jsonable(BoardConfig()), refs)
    existing = store.find(spec)
    if existing is not None:
        return existing, True
    code = stage_code(BOARD.module)
    job = Job(store, spec, {"verdicts": verdicts}, code.fingerprint, run_id, packages=tuple(code.packages))
    return run_here(BOARD, BoardConfig(), job)[0], False
