"""The confirmation of a proposal as an artifact: paired fresh seeds against each contender, and whether the promise held."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.order.chosen import chosen_weights
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.mixtures.evidence import Confirmation, confirm
from science.mixtures.proposal_stage import PROPORTIONAL, PROPOSAL
from trainer.spec.stage import CheckpointConfig


@dataclass(frozen=True)
class Fresh:
    """A run of the confirmation: which mixture it reads, and its seed."""

    name: str
    choice: str
    seed: int


@dataclass(frozen=True)
class ConfirmationConfig:
    """The runs, and the score that is compared: the mean over the targets that the proposal was made for."""

    runs: tuple[Fresh, ...]
    metric: str


def confirm_proposal(out: Writer, config: ConfirmationConfig, proposal: Artifact, results: tuple[Artifact, ...]) -> None:
    """Write `confirmation.json` and `confirmation.md`.

    Raises: ValueError for missing, diverged or mispaired runs, for seeds of the swarm, or for a run that read other weights
    than those of this proposal.
    """
    promised = proposal.manifest.extra["proposal"]
    outcomes = {str(result.spec.partition): outcome_of(result) for result in results}
    if missing := [run.name for run in config.runs if run.name not in outcomes]:
        raise ValueError(f"{out.spec.name}: no result of {', '.join(missing)}; materialize the results of all its runs")
    losses: dict[str, dict[int, float]] = {}
    for run in config.runs:
        _check_run(outcomes[run.name], run, proposal)
        scores = [outcomes[run.name].score(target, config.metric) for target in promised["targets"]]
        losses.setdefault(run.choice, {})[run.seed] = float(np.mean(scores))
    if not {PROPOSAL, PROPORTIONAL} <= losses.keys():
        raise ValueError(f"{out.spec.name}: its runs are of {', '.join(losses)}; it needs {PROPOSAL} and {PROPORTIONAL}")
    verdicts = [
        confirm(choice, losses[PROPOSAL], other, promised["seeds"]) for choice, other in losses.items() if choice != PROPOSAL
    ]
    facts = {
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "promise": {name: promised[name] for name in ("gain", "low", "high", "level")},
        "promise_held": promise_held(promised, next(v for v in verdicts if v.contender == PROPORTIONAL)),
        "losses": {choice: {str(seed): loss for seed, loss in by_seed.items()} for choice, by_seed in losses.items()},
    }
    (out.folder / "confirmation.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    (out.folder / "confirmation.md").write_text(page(out.spec.name, facts, verdicts))
    out.extra["confirmation"] = facts
    out.record(rows_in=len(config.runs), rows_out=len(verdicts))


def _check_run(outcome: Outcome, run: Fresh, proposal: Artifact) -> None:
    if outcome.diverged is not None:
        raise ValueError(f"run {run.name} of the confirmation diverged ({outcome.diverged}); it has no pair")
    seed = from_jsonable(CheckpointConfig, outcome.checkpoint.spec.config).run.seed
    read = outcome.checkpoint.input("mixture").manifest.extra["mixture"]["phases"][0]["weights"]
    wanted = chosen_weights(proposal, run.choice)
    if seed != run.seed or read != wanted:
        raise ValueError(
            f"run {run.name} has seed {seed} and read the weights {read}; the confirmation wants seed {run.seed} and what "
            f"{proposal.name} has for {run.choice}, {dict(wanted)}"
        )


def promise_held(promised: Mapping[str, float], verdict: Confirmation) -> str:
    """Whether the measured gain over proportional lies in the predicted interval, and on which side if not."""
    if verdict.gain < promised["low"]:
        return "low"
    return "high" if verdict.gain > promised["high"] else "hit"


def page(name: str, facts: Mapping[str, Any], verdicts: list[Confirmation]) -> str:
    """The confirmation as a page: the verdict on proportional first."""
    promise: Mapping[str, float] = facts["promise"]
    first = next(verdict for verdict in verdicts if verdict.contender == PROPORTIONAL)
    lines = [
        f"# {name}",
        "",
        f"The proposal **{first.verdict}** the proportional mixture: {first.gain:+.4f} (95 %: {first.low:+.4f} to "
        f"{first.high:+.4f}) over {first.pairs} pairs of fresh seeds. The promise was {promise['gain']:+.4f} "
        f"({promise['level']:.0%}: {promise['low']:+.4f} to {promise['high']:+.4f}): {facts['promise_held']}.",
        "",
        "| contender | verdict | gain of the proposal | 95 % | pairs | smallest gain that would have shown |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.contender} | {each.verdict} | {each.gain:+.4f} | {each.low:+.4f} to {each.high:+.4f} | {each.pairs} | "
        f"{each.smallest_visible:.4f} |"
        for each in verdicts
    ]
    return "\n".join(lines) + "\n"


SWARM_CONFIRMATION = Stage(
    "science.swarm_confirmation",
    "1",
    confirm_proposal,
    description="The proposal of a swarm against its contenders, by paired fresh seeds.",
    checks=("file_set",),
)
