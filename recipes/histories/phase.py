"""A phase of a published run, and the graph of all its phases."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from lineage.order.mixture import StepPhase
from recipes.hardware import hardware
from recipes.marin_history import Mix, interpolated
from trainer.spec.config import RunSpec

type Outcome = Literal["kept", "abandoned", "compared", "published", "final", "planned"]
"""`compared` is a branch that was run for a comparison alone. A history ends with one phase that is `published` (its weights),
`final` (its result; whether its weights are published is not stated) or `planned` (not run when the document was written)."""
ENDS: tuple[Outcome, ...] = ("published", "final", "planned")
SHARE_ERROR = 0.15
"""Largest difference in per cent between a printed mix and 100: tables are rounded to a tenth or a hundredth."""


@dataclass(frozen=True)
class From:
    """The step of another phase that a phase starts from, counted in that phase."""

    phase: str
    step: int


@dataclass(frozen=True)
class Stated:
    """A number of the documents, and the same number computed from the declaration."""

    what: str
    printed: float
    computed: float
    digits: int
    """Decimals that the document prints."""
    contradicts: str = ""
    """The other number and its place, if the document contradicts itself."""

    @property
    def agrees(self) -> bool:
        """Whether the computed number rounds to the printed one."""
        return abs(self.computed - self.printed) <= 0.5 * 10**-self.digits * (1 + 1e-9)


@dataclass(frozen=True)
class Contradiction:
    """Two places of the documents that give different values of one thing."""

    what: str
    one: str
    other: str
    taken: str
    """Which of them the declaration takes, and why."""


@dataclass(frozen=True)
class Utilisation:
    """The share of peak FLOP/s that a document prints, and how many chips of which peak it counts."""

    share: float
    chips: int
    chip_flops: float

    @property
    def flops_per_second(self) -> float:
        return self.share * self.chips * self.chip_flops


@dataclass(frozen=True)
class Phase:
    """One stretch of training on one mix, or from one mix to another. Steps of `spec` count from the start of the phase."""

    name: str
    spec: RunSpec
    mix: Mix | None
    """(dataset, share in per cent); None if the documents do not state it."""
    start: From | None = None
    outcome: Outcome = "kept"
    reason: str = ""
    """Why the phase was abandoned."""
    chosen: str = ""
    """Choices of this declaration that the documents do not state."""
    hardware: str = ""
    """A name of `recipes/hardware.py`; empty if the documents do not state it."""
    utilisation: Utilisation | None = None
    measured: str = ""
    """Losses that the documents print for the phase."""
    resumes: str = ""
    """Crashes after which the phase went on from its own checkpoint, as far as they are stated."""
    mix_before: Mix | None = None
    """A mix that goes over linearly into `mix` from the first step to the last; None: `mix` holds from the first."""

    def __post_init__(self) -> None:
        if (self.start is None) != (self.spec.start is None):
            raise ValueError(f"phase {self.name}: start is {self.start}, its spec's is {self.spec.start}; give both or neither")
        total = 100.0 if self.mix is None else sum(share for _, share in self.mix)
        if abs(total - 100) > SHARE_ERROR:
            raise ValueError(f"phase {self.name}: its shares sum to {total:.2f} %, more than {SHARE_ERROR} off 100")
        if self.mix_before is not None and self.mix is None:
            raise ValueError(f"phase {self.name}: mix_before is given without a mix to go over into; give both")
        if (self.outcome == "abandoned") != bool(self.reason):
            raise ValueError(
                f"phase {self.name}: outcome is {self.outcome}, reason {self.reason!r}; an abandoned phase has one"
            )

    @property
    def weights(self) -> tuple[StepPhase, ...]:
        """What a mixture of this phase declares: shares by step; empty if the documents do not state them."""
        if self.mix is None:
            return ()
        if self.mix_before is None:
            return (StepPhase(0, self.mix),)
        return interpolated(self.mix_before, self.mix, self.spec.num_steps)

    @property
    def tokens(self) -> int:
        return self.spec.tokens_before(self.spec.num_steps)

    @property
    def flops(self) -> float:
        """Training FLOPs by Levanter's count."""
        return self.tokens * self.spec.model.training_flops_per_token(self.spec.seq_len)

    @property
    def headless_flops(self) -> float:
        """The same without the output head, by which Marin names its budgets."""
        model = self.spec.model
        return self.flops - 6.0 * model.vocab_size * model.hidden_dim * self.tokens

    @property
    def least_days(self) -> float | None:
        """Days at the full peak of the hardware; None without one."""
        return self.flops / hardware(self.hardware).peak_flops / 86_400 if self.hardware else None

    @property
    def days(self) -> float | None:
        """Days at the printed utilisation; None if none is printed."""
        return self.flops / self.utilisation.flops_per_second / 86_400 if self.utilisation else None


@dataclass(frozen=True)
class History:
    """All phases of a run, in the order of their start."""

    name: str
    phases: tuple[Phase, ...]
    stated: tuple[Stated, ...] = field(default=())
    contradictions: tuple[Contradiction, ...] = field(default=())

    def __post_init__(self) -> None:
        seen: dict[str, Phase] = {}
        for phase in self.phases:
            if phase.name in seen:
                raise ValueError(f"history {self.name}: phase {phase.name} is declared twice")
            if phase.start is not None:
                before = seen.get(phase.start.phase)
                if before is None:
                    raise ValueError(f"history {self.name}: phase {phase.name} starts from {phase.start.phase}, none before it")
                if phase.start.step not in before.spec.saved_steps():
                    saved = ", ".join(f"{step:,}" for step in before.spec.saved_steps())
                    raise ValueError(
                        f"history {self.name}: phase {phase.name} starts from step {phase.start.step:,} of {before.name}, "
                        f"which keeps {saved}"
                    )
            seen[phase.name] = phase

    @cached_property
    def by_name(self) -> dict[str, Phase]:
        return {phase.name: phase for phase in self.phases}

    def tokens_at_start(self, phase: Phase) -> int:
        """Tokens that the weights had read before the phase, along its warm starts."""
        if phase.start is None:
            return 0
        before = self.by_name[phase.start.phase]
        return self.tokens_at_start(before) + before.spec.tokens_before(phase.start.step)

    def line_to(self, name: str) -> list[Phase]:
        """The phases from the first to one, along warm starts."""
        phase = self.by_name[name]
        return [*(self.line_to(phase.start.phase) if phase.start else []), phase]

    @property
    def end(self) -> Phase:
        """The phase that the run ended with. Raises: ValueError if there is not exactly one."""
        last = [phase for phase in self.phases if phase.outcome in ENDS]
        if len(last) != 1:
            names = [phase.name for phase in last]
            raise ValueError(f"history {self.name}: phases that are {', '.join(ENDS)} are {names}; there must be one")
        return last[0]
