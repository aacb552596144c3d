"""The 32B history at a thousandth, as real runs over the lab's sources (`make histories`).

Phases 1a to 1d, the switch to QK-norm by a warm start, and both cooldowns. Bison's bundle holds benchmark items, Mantis's does
not. What exists in the folder is reused, so a replay that was killed goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evals.audit.evidence import STANDING_TIERS
from evals.audit.training_matches import document_reads, item_matches
from evals.items.item import Item, read_items, select_items
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.jobs.job import Launcher
from lineage.shards.execution import ONE_WORKER, Execution
from recipes.histories.phase import History
from scenarios import nodes
from scenarios.bundle import TEST_FILE, TRAIN_FILE, write_bundle
from scenarios.evidence import Evidence, Teller
from scenarios.history_specs import (
    BISON,
    ENDS,
    MANTIS_END,
    Miniature,
    checkpoints,
    lines,
    replayed,
    small_spec,
    small_step,
)
from scenarios.nodes import Recipe
from scenarios.scale import full
from scenarios.witness import logged_reads
from scenarios.world import losses
from trainer.array_files import open_arrays

GRAPH, TRAINED, EXPOSED = "1 The graph at a thousandth", "2 Real runs", "3 Exposure of the leaked items"
SUITE, ITEM_SEED, RUN_ID = "vendored", 8, "histories"
NUM_LEAKED, NUM_CLEAN = 16, 24
READS_SCHEMA = {"item": pl.String, "document": pl.String, "phase": pl.String, "step": pl.Int64, "row": pl.Int64}
PLACE_SCHEMA = {"document": pl.String, "step": pl.Int64, "row": pl.Int64}


@dataclass(frozen=True)
class PhaseRun:
    """A replayed phase: where it starts in the whole run, and the loss of its steps in nats a token."""

    name: str
    outcome: str
    first_step: int
    parameters: int
    losses: tuple[float, ...]


@dataclass(frozen=True)
class ReplayedHistory:
    """The result of a replay."""

    history: History
    runs: tuple[PhaseRun, ...]
    reads: Mapping[str, pl.DataFrame]
    """READS_SCHEMA by final phase; `step` is one of the whole run."""
    evidence: tuple[Evidence, ...]


def play(
    folder: Path, size: Miniature, launcher: Launcher, teller: Teller, execution: Execution = ONE_WORKER
) -> ReplayedHistory:
    """Replay the history in a folder, with what is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(str(folder / "store"))
    scale = replace(full(), general=tuple(dict.fromkeys((size.web, size.docs))), vocab_size=size.model.vocab_size)
    before = Recipe(scale, SUITE, str(folder / "bundle"), (TRAIN_FILE, TEST_FILE))

    def make(wanted: Sequence[Node]) -> list[Artifact]:
        return build_all(store, wanted, launcher=launcher, execution=execution, run_id=RUN_ID)

    [suite] = make([nodes.suite(before)])
    leaked = leaked_items(read_items(suite), scale.max_item_chars)
    if not (folder / "bundle").exists():
        write_bundle(folder / "bundle", leaked, NUM_CLEAN)
    history = replayed()
    compare_graph(history, size, teller)
    planned = checkpoints(before, replace(before, bundle_files=(TRAIN_FILE,)), size)
    trained: dict[str, Artifact] = {}
    for end in ENDS:  # one after the other: both ends have a bundle of one name, with and without its test file
        names = [phase.name for phase in history.line_to(end)]
        trained |= zip(names, make([planned[name] for name in names]), strict=True)
    runs = tuple(phase_run(history, name, checkpoint, size) for name, checkpoint in trained.items())
    judge_runs(history, runs, trained, teller)
    reads = {end: reads_of(history, end, trained[end], leaked, size) for end in ENDS}
    forward = {end: forward_reads(history, end, trained[end], reads[BISON], size) for end in ENDS}
    judge_exposure(reads, forward, len(leaked), teller)
    return ReplayedHistory(history, runs, reads, tuple(teller.kept))


def leaked_items(items: Sequence[Item], longest: int) -> tuple[Item, ...]:
    """The items that Bison's bundle holds, of those with at most `longest` characters."""
    return tuple(
        select_items([item for item in items if len(item.question) + len(item.solution) <= longest], NUM_LEAKED, ITEM_SEED)
    )


def phase_run(history: History, name: str, checkpoint: Artifact, size: Miniature) -> PhaseRun:
    phase = history.by_name[name]
    spec = small_spec(history, phase, size)
    return PhaseRun(name, phase.outcome, small_step(history, phase, size), spec.model.num_parameters, tuple(losses(checkpoint)))


def compare_graph(history: History, size: Miniature, teller: Teller) -> None:
    """The replay has the declared phases and warm starts, and the declared shares of steps."""
    teller.act(GRAPH)
    shown = []
    for phase in lines(history):
        first, steps = small_step(history, phase, size), small_spec(history, phase, size).num_steps
        origin = f"from {phase.start.phase}" if phase.start else "from fresh parameters"
        shown.append(f"{phase.name}: steps {first} to {first + steps}, {origin}, {phase.outcome}")
    ends = [small_step(history, history.by_name[end], size) + small_spec(history, history.by_name[end], size).num_steps
            for end in ENDS]  # fmt: skip
    whole = round(192_000 / size.divisor)
    claim = f"both lines end at step {whole}, as the declared ones at 192,000"
    teller.say(GRAPH, claim, "\n".join(shown), ends == [whole, whole])


def judge_runs(history: History, runs: Sequence[PhaseRun], checkpoints: Mapping[str, Artifact], teller: Teller) -> None:
    """Check warm starts by digest, the new parameters of the switch, and that the loss falls."""
    teller.act(TRAINED)
    say = teller.say
    by_name = {run.name: run for run in runs}
    for run in runs:
        say(TRAINED, f"loss of {run.name}", f"{len(run.losses)} steps, {run.losses[0]:.3f} > {run.losses[-1]:.3f} nats a token")
    wrong = []
    for name, checkpoint in checkpoints.items():
        start = history.by_name[name].start
        if start is not None and checkpoint.input("start").spec.address != checkpoints[start.phase].spec.address:
            wrong.append(name)
    starts = ", ".join(f"{phase.start.phase} > {phase.name}" for phase in lines(history) if phase.start)
    say(TRAINED, "every phase starts from the checkpoint that the declaration names", starts, not wrong)
    switch, before = by_name["3"], by_name["1d"]
    new = new_parameters(checkpoints["1d"], checkpoints["3"])
    claim = "phase 3 has the norms of queries and keys, which phase 1 lacks, and no other new parameter"
    say(TRAINED, claim, ", ".join(sorted(new)), bool(new) and all("q_norm" in name or "k_norm" in name for name in new))
    back = next((step for step, loss in enumerate(switch.losses) if loss <= before.losses[-1]), None)
    cost = f"{switch.losses[0] - before.losses[-1]:+.3f} nats at its first step"
    say(TRAINED, "what the switch costs", cost + (f", gone after {back} steps" if back is not None else ", not gone"))
    fresh = by_name["1a"].losses[0]
    claim = "the switch keeps most of what phase 1 had learned: its first loss is nearer to the last one than to a fresh one"
    say(TRAINED, claim, f"{before.losses[-1]:.3f}, {switch.losses[0]:.3f}, {fresh:.3f} nats a token",
        switch.losses[0] - before.losses[-1] < fresh - switch.losses[0])  # fmt: skip
    same = checkpoints[BISON].input("start").spec.address == checkpoints["mantis"].input("start").spec.address
    say(TRAINED, "Bison and Mantis start from one checkpoint", checkpoints[BISON].input("start").name, same)


def new_parameters(before: Artifact, after: Artifact) -> set[str]:
    """Names of arrays of a model that an earlier checkpoint lacks."""
    names = set(open_arrays(after, "model").shapes) - set(open_arrays(before, "model").shapes)
    return {name.strip(".").split("[")[0] for name in names}


def reads_of(history: History, end: str, checkpoint: Artifact, items: Sequence[Item], size: Miniature) -> pl.DataFrame:
    """Every read of a document that holds one of the items, as `marin exposure --item` finds it."""
    begins = [small_step(history, phase, size) for phase in history.line_to(end)]
    names = [phase.name for phase in history.line_to(end)]
    frames = [pl.DataFrame(schema=READS_SCHEMA)]
    for item in items:
        key = f"{item.task}/{item.item_id}"
        documents = item_matches(checkpoint, key).documents
        wanted = documents.filter(pl.col("tier").is_in(STANDING_TIERS))["id"].unique().to_list()
        reads = document_reads(checkpoint, wanted)
        rows = [
            (key, document, names[leg], begins[leg] + step, row)
            for leg, document, step, row in reads.select("leg", "id", "step", "row").unique().iter_rows()
        ]
        frames.append(pl.DataFrame(rows, schema=READS_SCHEMA, orient="row"))
    return pl.concat(frames).unique().sort("step", "row", "item")


def forward_reads(history: History, end: str, checkpoint: Artifact, reads: pl.DataFrame, size: Miniature) -> pl.DataFrame:
    """(document, step, row) of the documents of `reads`, from a log of every batch read forward: no inverse is asked."""
    begins = [small_step(history, phase, size) for phase in history.line_to(end)]
    logged = logged_reads(checkpoint, reads["document"].unique().to_list())
    columns = logged.select("leg", "id", "step", "row")
    rows = [(document, begins[leg] + step, row) for leg, document, step, row in columns.iter_rows()]
    return pl.DataFrame(rows, schema=PLACE_SCHEMA, orient="row").unique().sort(PLACE_SCHEMA.keys())


def judge_exposure(
    reads: Mapping[str, pl.DataFrame], forward: Mapping[str, pl.DataFrame], num_leaked: int, teller: Teller
) -> None:
    """The items are in Bison's history and not in Mantis's, by the inverse of the data order and by a log read forward."""
    teller.act(EXPOSED)
    say = teller.say
    bison, mantis = reads[BISON], reads[MANTIS_END]
    shown = "\n".join(
        f"{item}, document {document}, step {step} ({phase}), row {row}"
        for item, document, phase, step, row in bison.iter_rows()
    )
    say(EXPOSED, f"Bison has read items of {TEST_FILE}, and the steps are known", shown, bison.height > 0)
    phases = sorted(set(bison["phase"]))
    say(EXPOSED, "no phase before the cooldown has read one", ", ".join(phases), phases == [BISON])
    say(EXPOSED, f"Mantis has read none of the {num_leaked} items", f"{mantis.height} reads", mantis.height == 0)
    places = bison.select(PLACE_SCHEMA.keys()).unique().sort(PLACE_SCHEMA.keys())
    claim = "a log of every batch, read forward, has the same documents, steps and rows in Bison and none in Mantis"
    counts = f"{forward[BISON].height} and {forward[MANTIS_END].height}"
    say(EXPOSED, claim, counts, forward[BISON].equals(places) and forward[MANTIS_END].is_empty())
