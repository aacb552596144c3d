"""The canary: fixed vendored data, a fixed spec, and the band of the final loss on each kind of hardware.

Every lab has the one on `cpu`. A study declares others: `Study(..., canaries=("h100x8", "v5p-8"))`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from recipes.hardware import hardware
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.placement import CANONICAL, CanaryOf
from recipes.records.run import Evaluation, Execution, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.smoke import smoke_spec
from recipes.suites import Suite
from trainer.spec.config import RunSpec

VOCAB, BATCH = 4096, 8


@dataclass(frozen=True)
class RecordedRun:
    """A canary that ran: its day, its final loss, and where that is written."""

    day: str
    loss_nats: float
    source: str


@dataclass(frozen=True)
class Canary:
    """The canary on one kind of hardware, with the runs that its band rests on.

    Without a recorded run it has no band, and its check says so.
    """

    hardware: str
    recorded: tuple[RecordedRun, ...] = ()
    margin: float = 0.06
    """The band reaches this share below the lowest and above the highest recorded loss."""

    min_throughput_ratio: float = 0.7
    """Warn when tokens a second fall below this share of the median of recent runs; needs at least `min_runs` runs."""

    min_runs: int = 3
    window_runs: int = 14

    def __post_init__(self) -> None:
        chips = max(hardware(self.hardware).chips, 1)
        if BATCH % chips:
            raise ValueError(
                f"canary on {self.hardware}: its batch of {BATCH} sequences cannot be divided among {chips} chips; "
                f"name hardware whose number of chips divides {BATCH}"
            )
        if not 0 < self.margin < 1:
            raise ValueError(f"canary on {self.hardware}: margin is {self.margin}; above 0 and below 1 is allowed")
        if strange := next((run for run in self.recorded if not 0 < run.loss_nats < math.inf), None):
            raise ValueError(
                f"canary on {self.hardware}: the loss of {strange.day} is {strange.loss_nats} nats; above 0 is allowed"
            )

    @property
    def band(self) -> tuple[float, float] | None:
        """Return the lowest and the highest final loss that pass, in nats; None without a recorded run."""
        losses = [run.loss_nats for run in self.recorded]
        return (min(losses) * (1 - self.margin), max(losses) * (1 + self.margin)) if losses else None

    @property
    def campaign(self) -> str:
        """Name of its jobs, tags and pass rate; Dagster allows no hyphen in the name of a job."""
        return f"canary_{self.hardware.replace('-', '_')}"


def canary_spec(vocab_size: int) -> RunSpec:
    """A run of a few hundred steps with fixed data and spec: only the machine and the code change."""
    base = smoke_spec(vocab_size)
    model = replace(base.model, hidden_dim=128, intermediate_dim=352, num_layers=2, num_heads=4, num_kv_heads=2)
    return replace(base, name="cpu", model=model, batch_size=BATCH, num_steps=300, save_every_steps=300)


def canary_tokens() -> Tokens:
    """The canary's fixed data: vendored prose, cleaned of the vendored items."""
    suites, sources = (Suite("vendored", "vendored"),), ("vendored_prose",)
    corpus = Corpus("canary", Scope("canary", sources), decontamination("vendored", suites, sources))
    return Tokens("canary4k", corpus, TrainedTokenizer("canary4k", vocab_size=VOCAB))


def canary_run(hardware: str, day: str | None) -> Run:
    """The canary of a day on a kind of hardware; with `day` None a canonical run over the same data."""
    tokens = canary_tokens()
    return Run(
        spec=replace(canary_spec(tokens.vocab_size), name=hardware),
        data=Mix("canary", tokens),
        evaluation=Evaluation(tokens.corpus.decontamination.suites),
        execution=Execution((hardware,)),
        place=CANONICAL if day is None else CanaryOf(hardware, day),
    )


RECORDED: Mapping[str, tuple[RecordedRun, ...]] = MappingProxyType(
    {
        "cpu": (
            RecordedRun("2026-11-21", 5.542, "docs/log.md"),
            RecordedRun("2026-11-21", 5.520, "docs/log.md, after changes to loss tiles and rotations"),
        )
    }
)
"""Runs by hardware. Add a run here after somebody has looked at its loss curve. On one machine the run repeats bit for bit; the
margin allows for other processors' rounding over 300 steps."""


def canary(name: str) -> Canary:
    """Return the canary on hardware of any name of `recipes.hardware` (`cpu`, `h100x8`, `v5p-8`).

    Raises: ValueError for an unknown name, or for hardware among whose chips the canary's batch cannot be divided.
    """
    return Canary(name, RECORDED.get(name, ()))
