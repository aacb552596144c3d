"""Low-rank adapters (LoRA): which weights get one, and of which rank. No JAX."""

from dataclasses import dataclass, field

from trainer.spec.checks import require

TARGETS = ("w_q", "w_k", "w_v", "w_o", "w_gate", "w_up", "w_down")


@dataclass(frozen=True)
class LoraConfig:
    """W + (alpha / rank) A B with A [in, rank] and B [rank, out] trained and W fixed (Hu et al. 2021, arXiv 2106.09685).

    The sum is computed before the product with activations, so merged and unmerged weights are the same numbers. Dropout of the
    adapter's input has no such form: a training step with dropout computes both products.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...] = ("w_q", "w_k", "w_v", "w_o")
    """Weights of every layer, by the names of `trainer.model.layers`."""
    dropout: float = field(default=0.0, metadata={"added_later": True})
    """Share of the values that the adapter reads that a training step sets to 0, while the others are divided by the share that
    stays. The mask is a function of seed, step and place in the batch. Evaluation drops nothing."""

    def __post_init__(self) -> None:
        require(self.rank > 0, "run.adapter.rank", self.rank, "positive; None instead of an adapter trains all parameters")
        require(self.alpha > 0, "run.adapter.alpha", self.alpha, "positive")
        require(0 <= self.dropout < 1, "run.adapter.dropout", self.dropout, "in [0, 1)")
        are_known = bool(self.targets) and set(self.targets) <= set(TARGETS) and len(set(self.targets)) == len(self.targets)
        require(are_known, "run.adapter.targets", self.targets, f"some of {', '.join(TARGETS)}, each once")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank
