"""Microannealing as an artifact: `annealing.json`, `annealing.png` and `annealing.md`, a page with a verdict for each mix.

Short runs branch from one checkpoint, a mix and a data order each. A mix is compared with the control in pairs that share the
data order's seed (`science/in_pairs.py`; Blakeney et al. 2024, arXiv 2406.03476; Feng et al. 2024, arXiv 2412.15285).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.in_pairs import Arms, Words, check_config, outcomes_by_arm, write_verdict

WORDS = Words("annealing", "mix", "mixes")


@dataclass(frozen=True)
class AnnealingConfig:
    """What is compared; part of the verdict's identity."""

    mixes: tuple[str, ...]
    """The control first. The results stand in this order, all seeds of a mix together."""
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    metric: str
    unit: str
    level: float = 0.95

    def __post_init__(self) -> None:
        check_config(self, WORDS)

    @property
    def arms(self) -> tuple[str, ...]:
        return self.mixes


def judge_annealing(out: Writer, config: AnnealingConfig, results: tuple[Artifact, ...]) -> None:
    """Compare every mix with the control. A mix of which a branch diverged is not compared.

    Raises: RefusedPairsError for several policies or starts, or a control that diverged.
    """
    arms = outcomes_by_arm(out.spec.name, config, WORDS, results, _faults)
    control = config.mixes[0]
    start = arms[control][0].checkpoint.input("start").name
    sentence = f"{len(config.seeds)} branches of each mix from {start}, against {control}."
    write_verdict(out, config, WORDS, arms, {"start": start}, [sentence])


def _faults(arms: Arms) -> Iterator[str]:
    outcomes = [outcome for branches in arms.values() for outcome in branches]
    without = [o.name for o in outcomes if "start" not in {ref.name for ref in o.checkpoint.spec.inputs}]
    if without:
        yield f"{', '.join(without)} start from no checkpoint"
        return
    starts = sorted({outcome.checkpoint.input("start").data_version for outcome in outcomes})
    if len(starts) > 1:
        yield f"the branches start from {len(starts)} checkpoints; branch all from one"


ANNEALING = Stage("science.annealing", "1", judge_annealing)
"""The verdict over branches from one checkpoint as an asset; `marin_assets/sweeps.py` makes the branches."""
