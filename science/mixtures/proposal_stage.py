"""The proposal of a swarm as an artifact: weights, predicted gain with its interval, and the contenders that it will meet.

A confirmation's mixtures take their weights from this artifact, so no run of a confirmation can start before it exists.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.order.chosen import WEIGHTS
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.mixtures.designs import caps, within
from science.mixtures.propose import Proposal, ProposalConfig, propose
from science.mixtures.runs import SwarmRuns, read_runs
from science.mixtures.snr_stage import ratios

PROPOSAL, PROPORTIONAL, UNIFORM, HAND_PICKED = "proposal", "proportional", "uniform", "hand_picked"
DIGITS = 4


@dataclass(frozen=True)
class SwarmProposalConfig:
    """How the mixture is searched, and for which target run."""

    sources: tuple[tuple[str, int], ...]
    """Sources with their tokens: the proportional mixture."""
    target_tokens: int
    """What the run for which the mixture is chosen reads."""
    max_epochs: float
    """Times that it may read any source."""
    hand_picked: tuple[tuple[str, float], ...] = ()
    """Weights that a person chose, as a contender; none: no such contender."""
    search: ProposalConfig = field(default_factory=ProposalConfig)

    def __post_init__(self) -> None:
        if strange := sorted(dict(self.hand_picked).keys() - dict(self.sources).keys()):
            raise ValueError(f"hand_picked has a weight of {', '.join(strange)}, which is no source of the swarm")

    @property
    def proportional(self) -> np.ndarray:
        tokens = np.array([tokens for _, tokens in self.sources], float)
        return tokens / tokens.sum()

    @property
    def limits(self) -> np.ndarray:
        """The largest share of each source. Raises: ValueError if all together are below 1."""
        return caps(np.array([tokens for _, tokens in self.sources]), self.target_tokens, self.max_epochs)

    def contenders(self) -> dict[str, np.ndarray]:
        """What the proposal is compared with, within the same caps."""
        equal = np.full(len(self.sources), 1 / len(self.sources))
        every = {PROPORTIONAL: self.proportional, UNIFORM: equal}
        if self.hand_picked:
            picked = dict(self.hand_picked)
            every[HAND_PICKED] = np.array([picked.get(name, 0.0) for name, _ in self.sources])
        return {name: within(weights, self.limits)[0] for name, weights in every.items()}


class NoSignalError(ValueError):
    """No target of a swarm moves enough with the mixture, beside its noise, to choose between mixtures."""


def make_proposal(out: Writer, config: SwarmProposalConfig, table: Artifact, snr: Artifact) -> None:
    """Search the mixture and write `proposal.json` and `proposal.md`.

    Raises: NoSignalError if no target has enough signal to noise; ValueError if the table has other sources than the config.
    """
    runs, deciding, signal = deciding_runs(config, table, snr)
    contenders = config.contenders()
    proposal = propose(runs.weights, deciding, contenders[PROPORTIONAL], config.limits, config.search)
    weights = {PROPOSAL: np.array(proposal.weights)} | contenders
    named = {name: named_shares(config, shares) for name, shares in weights.items()}
    out.facts[WEIGHTS] = named  # a fact is part of the artifact's digest: mixtures are made from it
    out.facts["proposal"] = promise = _facts(config, runs, proposal, deciding, signal)
    (out.folder / "proposal.json").write_text(
        json.dumps({"proposal": promise, "weights": named}, indent=1, sort_keys=True) + "\n"
    )
    (out.folder / "proposal.md").write_text(page(out.spec.name, promise, named))
    out.record(rows_in=len(runs.names), rows_out=len(weights))


def deciding_runs(
    config: SwarmProposalConfig, table: Artifact, snr: Artifact
) -> tuple[SwarmRuns, dict[str, np.ndarray], dict[str, float]]:
    """The runs of a table, the losses of the targets that may decide, and every target's signal to noise.

    Raises: NoSignalError if no target has enough signal to noise; ValueError if the table has other sources than the config.
    """
    runs, signal = read_runs(table), ratios(snr)
    if runs.sources != (names := tuple(name for name, _ in config.sources)):
        raise ValueError(f"{table.name} has the sources {', '.join(runs.sources)}; the proposal is over {', '.join(names)}")
    deciding = {target: losses for target, losses in runs.losses.items() if signal[target] >= config.search.min_snr}
    if not deciding:
        shown = ", ".join(f"{target} {ratio:.2f}" for target, ratio in signal.items())
        raise NoSignalError(
            f"no target of {table.name} has a signal to noise of at least {config.search.min_snr}: {shown}. Train longer, "
            "add repeats, or choose targets that the mixture moves"
        )
    return runs, deciding, signal


def named_shares(config: SwarmProposalConfig, shares: np.ndarray) -> dict[str, float]:
    """Shares by source; they are rounded, and one that rounds to 0 leaves its source out."""
    return {name: round(float(share), DIGITS) for (name, _), share in zip(config.sources, shares, strict=True)}


def _facts(
    config: SwarmProposalConfig,
    runs: SwarmRuns,
    proposal: Proposal,
    deciding: Mapping[str, np.ndarray],
    signal: Mapping[str, float],
) -> dict[str, Any]:
    limits = {name: round(float(limit), DIGITS) for (name, _), limit in zip(config.sources, config.limits, strict=True)}
    facts: dict[str, Any] = {**asdict(proposal)}
    facts |= {
        "level": config.search.level, "runs": len(runs.names), "seeds": sorted(set(runs.seeds)), "limits": limits,
        "targets": sorted(deciding), "left_out": {name: ratio for name, ratio in signal.items() if name not in deciding},
        "target_tokens": config.target_tokens, "max_epochs": config.max_epochs,
    }  # fmt: skip
    del facts["weights"]
    return facts


def page(name: str, facts: Mapping[str, Any], weights: Mapping[str, Mapping[str, float]]) -> str:
    """The proposal as a page: the promise first, then the weights beside those of the contenders."""
    chosen, level = list(weights), facts["level"]
    lines = [
        f"# {name}",
        "",
        f"Predicted gain over proportional: **{facts['gain']:+.4f}** ({level:.0%}: {facts['low']:+.4f} to "
        f"{facts['high']:+.4f}), mean over {', '.join(facts['targets'])}, from {facts['runs']} runs. "
        f"The target run reads {facts['target_tokens']} tokens and no source more than {facts['max_epochs']:g} times.",
        "",
        f"| source | largest share | {' | '.join(chosen)} |",
        f"|---|---|{'---|' * len(chosen)}",
    ]
    limits: Mapping[str, float] = facts["limits"]
    for source, limit in limits.items():
        shares = " | ".join(f"{weights[choice][source]:.4f}" for choice in chosen)
        lines.append(f"| {source} | {limit:.4f} | {shares} |")
    return "\n".join(lines) + "\n"


SWARM_PROPOSAL = Stage(
    "science.swarm_proposal",
    "3",
    make_proposal,
    description="The mixture that a swarm proposes, with its predicted gain, frozen before its confirmation.",
    checks=("file_set",),
)
