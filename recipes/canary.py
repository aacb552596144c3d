"""The canary: fixed vendored data, a fixed spec, and the band of the final loss on each kind of hardware."""

from dataclasses import dataclass, replace

from recipes.hardware import hardware
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.placement import CANONICAL, CanaryOf
from recipes.records.run import Evaluation, Execution, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.smoke import smoke_spec
from recipes.suites import Suite
from trainer.spec.config import RunSpec


@dataclass(frozen=True)
class CanaryBand:
    """Bounds of a canary run on one kind of hardware, recorded with their origin."""

    hardware: str
    low_loss_nats: float
    high_loss_nats: float
    min_throughput_ratio: float
    """Warn when tokens a second fall below this share of the median of recent runs; needs at least `min_runs` runs."""

    min_runs: int = 3
    window_runs: int = 14

    def __post_init__(self) -> None:
        hardware(self.hardware)
        if not 0 < self.low_loss_nats < self.high_loss_nats:
            raise ValueError(
                f"canary band of {self.hardware}: low {self.low_loss_nats} and high {self.high_loss_nats} nats; "
                "0 < low < high is needed"
            )

    @property
    def campaign(self) -> str:
        """Name of its jobs, tags and pass rate."""
        return f"canary_{self.hardware}"


def canary_spec(vocab_size: int) -> RunSpec:
    """A run of a few hundred steps with fixed data and spec: only the machine and the code change."""
    base = smoke_spec(vocab_size)
    model = replace(base.model, hidden_dim=128, intermediate_dim=352, num_layers=2, num_heads=4, num_kv_heads=2)
    return replace(base, name="cpu", model=model, num_steps=300, save_every_steps=300)


def canary_tokens() -> Tokens:
    """The canary's fixed data: vendored prose, cleaned of the vendored items."""
    suites, sources = (Suite("vendored", "vendored"),), ("vendored_prose",)
    corpus = Corpus("canary", Scope("canary", sources), decontamination("vendored", suites, sources))
    return Tokens("canary4k", corpus, TrainedTokenizer("canary4k", vocab_size=4096))


def canary_run(hardware: str, day: str | None) -> Run:
    """The canary of a day on a kind of hardware; with `day` None a canonical run over the same data."""
    tokens = canary_tokens()
    return Run(
        spec=canary_spec(tokens.vocab_size),
        data=Mix("canary", tokens),
        evaluation=Evaluation(tokens.corpus.decontamination.suites),
        execution=Execution((hardware,)),
        place=CANONICAL if day is None else CanaryOf(hardware, day),
    )


def bands() -> tuple[CanaryBand, ...]:
    """The band of every kind of hardware that a canary runs on; each band makes a canary.

    CPU: around 5.542 nats, the loss of the run of 2026-11-21 (`docs/log.md`). On one machine the run repeats bit for bit.
    6 % on each side allows for other processors' rounding over 300 steps. The band rests on one recorded run: narrow it
    with more runs.
    """
    return (CanaryBand(hardware="cpu", low_loss_nats=5.2, high_loss_nats=5.9, min_throughput_ratio=0.7),)
