"""The Bison incident, replayed with the lab's real parts (docs/recipes/replay_the_incident.md).

A math bundle brings GSM8K test items into a cooldown (Bison). Then the file is removed from the bundle. Under Marin's identity
rules all later artifacts silently keep it. In this lab the caches are flagged, training is refused, the audit names items and
steps, and a second cooldown from the same checkpoint (Mantis) is clean.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.jobs.job import Launcher
from lineage.shards.execution import ONE_WORKER, Execution
from scenarios import nodes
from scenarios.evidence import Evidence, Teller
from scenarios.incident import as_it_happened, in_this_lab, under_marins_rules
from scenarios.judgement import Difference, audit_bison, audit_mantis, draw_histories, measure_surprisal
from scenarios.scale import Scale
from scenarios.shuffles import PhaseShift, shift_phases
from scenarios.surprisal import Measured
from scenarios.world import World, new_world

LINEAGE_PAGE = "lineage.html"


@dataclass(frozen=True)
class Replay:
    """The result of a replay: its evidence and its numbers."""

    world: World
    evidence: tuple[Evidence, ...]
    reads: pl.DataFrame
    """item_id, leg, component, id, step, row: the reads of the leaked items by Bison."""
    moved: pl.DataFrame
    measured: Measured
    differences: tuple[Difference, ...]
    phase_shift: PhaseShift


def replay(
    folder: Path,
    store: Store,
    scale: Scale,
    suite_source: str,
    launcher: Launcher,
    console: Console,
    execution: Execution = ONE_WORKER,
) -> Replay:
    """Run every act in a new folder. Failed expectations are in the evidence; errors of the lab's parts are raised."""
    teller = Teller(console, [])
    world = new_world(folder, store, scale, suite_source, launcher, teller, execution)
    bison = as_it_happened(world)
    reads = audit_bison(world, nodes.bison(world.before))
    under_marins_rules(world)
    moved = in_this_lab(world, bison)
    world.make(nodes.cooldown_mixture(world.after, "bison", "linear"))
    [twin] = world.make(nodes.bison(world.after, "bison-clean"))
    mantis = audit_mantis(world)
    base = resolve(store, nodes.base(world.before))
    checkpoints = {"base": base, "bison": bison, "clean twin": twin, "mantis": mantis}
    measured, differences = measure_surprisal(world, checkpoints)
    of_bison, of_mantis = nodes.bison(world.before), nodes.mantis(world.after)
    audits = [
        resolve(store, nodes.audit(world.before, of_bison)),
        resolve(store, nodes.audit(world.after, of_mantis)),
    ]
    draw_histories(world, audits, folder / LINEAGE_PAGE)
    phase_shift = shift_phases(world)
    return Replay(world, tuple(teller.kept), reads, moved, measured, tuple(differences), phase_shift)
