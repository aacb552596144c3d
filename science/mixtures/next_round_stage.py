"""The mixtures of a swarm's second round as an artifact: `round.json` and `round.md`, with what round one says of each.

The mixtures of the trials take their weights from it, so the lineage of a trial holds the runs that chose its data.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lineage.artifact.store import Artifact
from lineage.order.chosen import WEIGHTS
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.mixtures.next_round import NextMixtures, next_round
from science.mixtures.proposal_stage import PROPORTIONAL, SwarmProposalConfig, deciding_runs, named_shares
from science.search.proposers import seed_of

ROUND = "round"
"""Entry of a manifest's `extra`."""
NUMBER = 2


@dataclass(frozen=True)
class NextRoundConfig:
    """How the mixtures of the second round are chosen, for the target and within the caps of the swarm's proposal."""

    trials: NextMixtures
    proposal: SwarmProposalConfig


def trial_names(trials: NextMixtures) -> tuple[str, ...]:
    """Names of the trials of the second round, which are the choices of the artifact."""
    return tuple(f"t{number:02d}" for number in range(trials.count))


def make_next_round(out: Writer, config: NextRoundConfig, table: Artifact, snr: Artifact) -> None:
    """Choose the mixtures from the runs of round one. The random numbers follow from the table's data version and the seed.

    Raises: NoSignalError if no target has enough signal to noise; ValueError if the table has other sources than the config.
    """
    of = config.proposal
    runs, deciding, signal = deciding_runs(of, table, snr)
    seed = seed_of(table.data_version, config.trials.seed, NUMBER)
    chosen = next_round(runs.weights, deciding, of.contenders()[PROPORTIONAL], of.limits, config.trials, seed)
    names = trial_names(config.trials)
    named = {name: named_shares(of, shares) for name, shares in zip(names, chosen.weights, strict=True)}
    rows = zip(names, chosen.predicted, chosen.spread, strict=True)
    facts = {
        "number": NUMBER, "table": table.data_version, "known": len(runs.names), "targets": sorted(deciding),
        "left_out": {name: ratio for name, ratio in signal.items() if name not in deciding},
        "optimum": named_shares(of, chosen.optimum),
        "trials": [{"name": name, "predicted": float(loss), "spread": float(spread)} for name, loss, spread in rows],
    }  # fmt: skip
    out.facts[WEIGHTS] = named  # a fact is part of the artifact's digest: mixtures are made from it
    out.extra[ROUND] = facts
    (out.folder / "round.json").write_text(json.dumps({"round": facts, "weights": named}, indent=1, sort_keys=True) + "\n")
    (out.folder / "round.md").write_text("\n".join(_page(out.spec.name, facts, named)) + "\n")
    out.record(rows_in=len(runs.names), rows_out=len(names))


def _page(name: str, facts: Mapping[str, Any], weights: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    sources = list(facts["optimum"])
    yield from (f"# {name}", "", f"Mixtures of round {facts['number']}, from {facts['known']} runs. The loss is the mean over")
    yield f"{', '.join(facts['targets'])}; its spread is over fits to drawn runs."
    yield from ("", f"| trial | predicted loss | spread | {' | '.join(sources)} |", "|---" * (3 + len(sources)) + "|")
    for each in facts["trials"]:
        shares = " | ".join(f"{weights[each['name']][source]:.4f}" for source in sources)
        yield f"| {each['name']} | {each['predicted']:.4f} | {each['spread']:.4f} | {shares} |"
    yield f"| optimum of round one | - | - | {' | '.join(f'{share:.4f}' for share in facts['optimum'].values())} |"


SWARM_NEXT_ROUND = Stage(
    "science.swarm_round",
    "3",
    make_next_round,
    description="The mixtures of a swarm's second round, chosen from the runs of the first.",
    checks=("file_set",),
)
