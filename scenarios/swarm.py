"""A swarm: many mixtures, a frozen proposal, its confirmation by fresh seeds, and a page (`make swarm`)."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.scoring.report_page import Table, image, page
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build
from lineage.figures import new_figure
from lineage.order.chosen import WEIGHTS
from recipes.swarms import Swarm, confirmation, every_run, fit, proposal, runs_table, second_proposal, snr
from recipes.sweeps import results
from scenarios.evidence import Evidence, Teller, failures
from scenarios.in_workers import build_in_workers
from scenarios.rewards_page import verdict_section
from science.mixtures.proposal_stage import PROPORTIONAL

RUN_ID = "swarm"
RUNS = ("trial", "result")
"""Last part of the keys of trials and results; all else is data."""


@dataclass(frozen=True)
class Searched:
    """What a swarm ends with."""

    swarm: Swarm
    snr: Artifact
    fit: Artifact
    proposal: Artifact
    confirmation: Artifact


def search(store: Store, swarm: Swarm, workers: int, teller: Teller) -> Searched:
    """Build everything of a swarm, or reuse it. The proposal exists before a run of the confirmation starts."""
    teller.act(f"{len(swarm.trials.trials)} trials over {len(swarm.sources)} sources")
    _train(store, swarm, results(swarm.trials), workers, teller)
    for node in (runs_table(swarm), snr(swarm)):
        build(store, node, run_id=RUN_ID)
    if swarm.second is not None:
        teller.act(f"{swarm.second.count} trials of a second round, which the first chooses")
        build(store, second_proposal(swarm), run_id=RUN_ID)
        _train(store, swarm, results(swarm.second_trials), workers, teller)
    for node in (every_run(swarm), fit(swarm), proposal(swarm)):
        build(store, node, run_id=RUN_ID)
    promise = resolve(store, proposal(swarm)).manifest.extra["proposal"]
    teller.act("Confirmation by fresh seeds")
    teller.console.print(f"promised: {promise['gain']:+.4f} ({promise['low']:+.4f} to {promise['high']:+.4f})", highlight=False)
    _train(store, swarm, results(swarm.confirmation), workers, teller)
    build(store, confirmation(swarm), run_id=RUN_ID)
    artifacts = (resolve(store, node(swarm)) for node in (snr, fit, proposal, confirmation))
    return Searched(swarm, *artifacts)


def _train(store: Store, swarm: Swarm, nodes: Sequence[Node], workers: int, teller: Teller) -> None:
    for built in build_in_workers(store, nodes, workers, RUN_ID, lambda node: node.key[-1] not in RUNS):
        teller.console.print(f"{built.node.partition}: {_losses(swarm, built.artifact)}", highlight=False)


def _losses(swarm: Swarm, result: Artifact) -> str:
    scores = {(each["task"], each["metric"]): each["value"] for each in result.manifest.extra["result"]["scores"]}
    shown = [f"{task} {scores[task, swarm.metric]:.4f}" for task in swarm.tasks if (task, swarm.metric) in scores]
    return ", ".join(shown) or "diverged"


def judge(searched: Searched, teller: Teller) -> None:
    """Report signal to noise, surrogates, the promise and the verdicts. A mixture that beats proportional is the claim."""
    for row in searched.snr.manifest.extra["snr"]["targets"]:
        noise = ", ".join(f"{anchor} {value:.4f}" for anchor, value in row["noise"].items())
        shown = f"{row['ratio']:.1f} (spread of the designs {row['signal']:.4f}; noise at {noise})"
        teller.say("snr", f"signal to noise of {row['target']}", shown)
    for row in searched.fit.manifest.extra["fit"]["targets"]:
        errors = ", ".join(f"{name} {error:.4f}" for name, error in row["errors"].items())
        teller.say("fit", f"cross-validated error on {row['target']}", f"{errors}; the mean of all runs {row['spread']:.4f}")
    facts = searched.confirmation.manifest.extra["confirmation"]
    for each in facts["verdicts"]:
        shown = f"{each['gain']:+.4f} (95 %: {each['low']:+.4f} to {each['high']:+.4f}), {each['pairs']} pairs of fresh seeds"
        claim = f"the proposal against {each['contender']}: {each['verdict']}"
        teller.say("confirmation", claim, shown, each["verdict"] == "beats" if each["contender"] == PROPORTIONAL else None)
    promise = facts["promise"]
    shown = f"promised {promise['gain']:+.4f} ({promise['low']:+.4f} to {promise['high']:+.4f}): {facts['promise_held']}"
    teller.say("promise", "the gain over proportional lies in the promised interval", shown, facts["promise_held"] == "hit")


def write_swarm_page(path: Path, searched: Searched, evidence: Sequence[Evidence]) -> Path:
    """Write the page; the file appears atomically."""
    expected = [each for each in evidence if each.holds is not None]
    weights = searched.proposal.manifest.extra[WEIGHTS]
    rows = [(source, *(f"{weights[choice][source]:.4f}" for choice in weights)) for source in searched.swarm.sources]
    facts = {
        "expectations that hold": f"{len(expected) - len(failures(evidence))} of {len(expected)}",
        "trials": str(len(searched.swarm.trials.trials)),
        "runs of the confirmation": str(len(searched.swarm.confirmation.trials)),
    }
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "confirmation.png"
        losses_png(searched.confirmation.manifest.extra["confirmation"]["losses"], picture)
        sections = [
            ("Verdict", verdict_section(evidence)),
            ("Fresh seeds, a line a seed", image(picture)),
            ("Weights", Table(("source", *weights), rows).html()),
            ("Trials that the surrogate did not see", image(searched.fit.file("fit.png"))),
        ]
        text = page(f"Swarm {searched.swarm.name}: a mixture that is searched", facts, sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def losses_png(losses: dict[str, dict[str, float]], path: Path) -> None:
    """The mean loss of every contender by seed: the pairs of the confirmation."""
    figure = new_figure(6.5, 3.8)
    axes = figure.subplots()
    choices = list(losses)
    for seed in losses[choices[0]]:
        of_seed = [losses[choice][seed] for choice in choices]
        axes.plot(range(len(choices)), of_seed, marker="o", markersize=3, linewidth=0.8, label=seed)
    axes.set_xticks(range(len(choices)), choices)
    axes.set_ylabel("bits a byte, mean over the targets")
    axes.legend(title="seed", fontsize=7)
    figure.savefig(path, dpi=110)
