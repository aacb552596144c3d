"""What `marin train` makes: a declared run with its data, its evaluation and its audit, a line for each stage."""

from collections.abc import Iterator, Sequence

import dagster as dg

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, exists, find_all, resolve
from lineage.shards.worker_pool import WorkerPool
from marin_assets.cli.console import print_json
from marin_assets.cli.dagster_runs import INTERACTIVE, make
from marin_assets.cli.stage_lines import StageLines, quiet
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.event_log import reports
from recipes import data
from recipes.lab import declarations
from recipes.records.run import HELDOUT_TASK, Run
from recipes.runs import audit, checkpoint, eval_tasks, task_result
from recipes.sources import source_config
from resources.dagster_private import keep_engines
from resources.lab import Lab, lab_from_environment

BITS_PER_BYTE = "micro_bits_per_byte"
SMALL_MEGABYTES = 32
"""Megabytes of text below which one worker is used: with so little text a second worker would load its libraries for longer
than it works.
"""


def train_run(name: str, *, benchmarks: bool, as_json: bool, has_data: bool) -> bool:
    """Make the checkpoint of a declared run with all that is missing above it, its evaluation and its audit.

    It is evaluated on held-out text; with `benchmarks`, on every task of its policy. Returns False where it has made data and
    a new process must go on, with `has_data`: this one holds what the data took (620 MB after an index of 29,000 items; a new
    one takes 200, 2026-11-25), beside the process that trains.
    Raises: ValueError for a run that is not declared, and errors of the engines.
    """
    run = declarations().run(name)
    with dg.DagsterInstance.get() as instance, WorkerPool() as pool:
        keep_engines(instance)
        lab = lab_from_environment(num_workers(run)).lab(priority=INTERACTIVE, pool=pool)
        log_file = lab.store.scratch / "logs" / f"train-{name}.log"
        nodes = final_nodes(run, benchmarks=benchmarks)
        every, of_data = ancestors_first(nodes), ancestors_first(nodes[:1])[:-1]
        with quiet(log_file, errors=as_json, titled=not has_data) as terminal:
            if not has_data:
                is_there = all(exists(lab.store, node) for node in of_data)
                make_data(lab, instance, run, of_data, StageLines(terminal, len(every)))
                if not is_there:
                    return False
            before = {node.name for node in of_data}
            training = {nodes[0].key: ("runs", run.name, "training")}
            lines = StageLines(terminal, len(every), done=len(of_data))
            make(lab, instance, [node for node in every if node.name not in before], training, lines=lines)
        report_checkpoints(instance, lab.store, run)
    result = outcome(lab.store, run)
    if as_json:
        print_json(result)
    else:
        for line in outcome_lines(result):
            print(line)
    return True


def make_data(lab: Lab, instance: dg.DagsterInstance, run: Run, nodes: Sequence[Node], lines: StageLines) -> None:
    """Make what a run trains on, its corpora first. Raises: ValueError if no document is held out; what the engines raise."""
    corpora = data.corpora(run.heldout_corpus)
    first = ancestors_first(corpora)
    names = {node.name for node in first}
    make(lab, instance, first, {}, lines=lines)
    check_heldout([resolve(lab.store, node) for node in corpora])
    make(lab, instance, [node for node in nodes if node.name not in names], {}, lines=lines)


def num_workers(run: Run) -> int:
    """Return the number of processes for the shards of a run's data, by the declared size of its sources."""
    return 1 if sum(source_config(source).mixture_weight for source in run.sources) < SMALL_MEGABYTES else 2


def final_nodes(run: Run, *, benchmarks: bool) -> list[Node]:
    """Return the last checkpoint, its scores on held-out text or on every task of the policy, and its audit."""
    last = run.spec.num_steps
    tasks = [task for task in eval_tasks(run) if benchmarks or task.name == HELDOUT_TASK]
    return [checkpoint(run, last), *(task_result(run, last, task) for task in tasks), audit(run, last)]


def check_heldout(corpora: Sequence[Artifact]) -> None:
    """Check before training that there is a held-out document to evaluate on. Raises: ValueError if there is none."""
    rows = [corpus.manifest.statistics for corpus in corpora]
    if not sum(int(str(each["rows_heldout"])) for each in rows):
        kept, read = (sum(int(str(each[name])) for each in rows) for name in ("rows_out", "rows_in"))
        raise ValueError(
            f"none of the {kept} documents that the filters keep (of {read}) is held out, so nothing could be evaluated; give "
            "more text, or raise heldout_frac in the recipe file"
        )


def report_checkpoints(instance: dg.DagsterInstance, store: Store, run: Run) -> None:
    """Report the existing checkpoints to Dagster, as the sensor does while it runs."""
    for artifact in find_all(store, [checkpoint(run, step) for step in run.spec.saved_steps()]):
        if artifact is not None and not reports(instance, artifact, newest=1):
            instance.report_runless_asset_event(materialization(artifact, recorded(artifact) | provenance(artifact)))


def outcome(store: Store, run: Run) -> dict[str, object]:
    """Return the loss, the held-out bits a byte and the audit's verdict at a run's last step, and the checkpoint's place."""
    last, heldout = run.spec.num_steps, next(task for task in eval_tasks(run) if task.name == HELDOUT_TASK)
    nodes = (checkpoint(run, last), task_result(run, last, heldout), audit(run, last))
    trained, scored, audited = (resolve(store, node) for node in nodes)
    bits = [score["value"] for score in scored.manifest.extra["scores"] if score["metric"] == BITS_PER_BYTE]
    return {
        "run": run.name,
        "checkpoint": trained.uri,
        "loss_nats": trained.manifest.extra["checkpoint"]["loss_nats"],
        "heldout_bits_per_byte": bits[0],
        "audit": audited.manifest.extra["audit"]["verdict_at_step"],
    }


def outcome_lines(outcome: dict[str, object]) -> Iterator[str]:
    """Yield the lines of an outcome, and the next commands."""
    run = outcome["run"]
    loss, bits = outcome["loss_nats"], outcome["heldout_bits_per_byte"]
    yield f"loss    {loss:.3f} nats a token at the last step; held-out text {bits:.3f} bits a byte"
    yield f"audit   {str(outcome['audit']).replace('_', ' ')}"
    yield f"model   {outcome['checkpoint']}"
    yield f"next    ./marin audit {run}"
    yield f"        ./marin export {run} --into {run}_model"
    yield f"        ./marin serve {run}"
