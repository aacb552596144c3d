"""The stage `trainer.pair_scores` (`trainer.pair_scores` is its code), without JAX."""

from dataclasses import dataclass, field

from lineage.stage import Stage
from trainer.spec.compute import ComputeConfig


@dataclass(frozen=True)
class PairScoresConfig:
    """How the log-probabilities are computed: as the runs that use them compute theirs."""

    compute: ComputeConfig = field(default_factory=ComputeConfig)


PAIR_SCORES = Stage(
    "trainer.pair_scores",
    "1",
    job="trainer",
    config=PairScoresConfig,
    description="Log-probabilities of the chosen and the rejected side of every pair under one checkpoint.",
)
