"""The stage `evals.leaderboard`: the board of every result of a store as an artifact: rows, scores, page.

Its inputs are the results that the store holds when it is made, so no recipe can name them: `build_leaderboard` lists
them.
"""

from dataclasses import dataclass

from evals.reports.leaderboard import board_of, eval_results, primary_scores
from evals.reports.leaderboard_page import write_page
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.stage_run import run_here
from lineage.config import to_jsonable
from lineage.jobs.job import Job
from lineage.stage import Stage
from lineage.trust.fingerprint import stage_code
from lineage.writing.writer import Writer

KEY = ("leaderboard",)


@dataclass(frozen=True)
class LeaderboardConfig:
    """There is nothing to choose: every result is on its policy's board."""


def write_leaderboard(out: Writer, config: LeaderboardConfig, results: tuple[Artifact, ...]) -> None:
    """Write `leaderboard.parquet` (one metric a task, ranked), `results.parquet` (every score) and `leaderboard.html`.

    Raises: DuplicateResultError naming two results that give one cell.
    """
    board = board_of(results)
    rows, scores = primary_scores(board), board.query("SELECT * FROM results")
    rows.write_parquet(out.folder / "leaderboard.parquet")
    scores.write_parquet(out.folder / "results.parquet")
    write_page(rows, out.folder / "leaderboard.html")
    out.extra["leaderboard"] = {
        "results": len(results),
        "scores": scores.height,
        "models": sorted(rows["model"].unique()),
        "policies": sorted(rows["board"].unique()),
        "incomplete": int(rows["incomplete"].sum()),
    }
    out.record(rows_out=rows.height)


LEADERBOARD = Stage("evals.leaderboard", "2", write_leaderboard)
"""2: a board is a policy by its data version, models have days, every metric has its own direction."""


def build_leaderboard(store: Store, run_id: str = "") -> tuple[Artifact, bool]:
    """Build the board of the results that a store holds now; return it, and whether it existed already. Raises:
    ValueError for no result.
    """
    results = tuple(eval_results(store))
    if not results:
        raise ValueError(f"{store.root} holds no evaluation result under a policy; evaluate a checkpoint first")
    config = LeaderboardConfig()
    refs = tuple(result.ref(f"results.{number}") for number, result in enumerate(results))
    spec = ArtifactSpec(KEY, None, LEADERBOARD.name, LEADERBOARD.version, to_jsonable(config), refs)
    artifact = store.find(spec)
    if artifact is not None:
        return artifact, True
    code = stage_code(LEADERBOARD.module)
    job = Job(store, spec, {"results": results}, code.fingerprint, run_id, packages=tuple(code.packages))
    return run_here(LEADERBOARD, config, job)[0], False
