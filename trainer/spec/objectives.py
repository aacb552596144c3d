"""What a run may minimize: records that JSON distinguishes by `kind`. `trainer.objectives` computes them."""

from dataclasses import dataclass
from typing import Literal

from trainer.spec.checks import require


@dataclass(frozen=True)
class NextToken:
    """Predict every token from those before it. It was the only objective at first, so a recorded spec has no `objective`."""

    kind: Literal["next_token"] = "next_token"
    ROW_SIDES = 1


@dataclass(frozen=True)
class Dpo:
    """Direct preference optimization on pairs, against the log-probabilities of a frozen reference, the run's start.

    A row of a batch is a pair: its chosen side, then its rejected side, each half of `RunSpec.seq_len` tokens. The formulas
    are in `trainer.preferences`.
    """

    beta: float = 0.1
    """Strength of the pull to the reference; with `ipo` the regularization called tau in its paper."""
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    label_smoothing: float = 0.0
    """Assumed share of pairs whose sides are exchanged, for `sigmoid`."""
    length_normalized: bool = False
    """Whether a side counts by the mean over its completion's tokens and not by their sum."""
    kind: Literal["dpo"] = "dpo"
    ROW_SIDES = 2

    def __post_init__(self) -> None:
        require(0 < self.beta < float("inf"), "objective.beta", self.beta, "positive and finite")
        require(self.loss in ("sigmoid", "ipo"), "objective.loss", self.loss, "sigmoid or ipo")
        smoothing = self.label_smoothing
        require(0 <= smoothing < 0.5, "objective.label_smoothing", smoothing, "at least 0 and below 0.5")
        require(self.loss == "sigmoid" or not smoothing, "objective.label_smoothing", smoothing, "0 for the loss ipo")


type Objective = NextToken | Dpo
"""What a run minimizes."""
