"""Which rule, with which numbers: a sum type that JSON distinguishes by `kind` (AdamW, the first, has none).

The rules themselves, with formulas and sources, are in the modules beside this one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from trainer.spec.checks import require
from trainer.spec.roles import ROLES, Role

DECAYED: tuple[Role, ...] = ("matrix", "head")
"""Roles whose parameters decay by default."""


class _Checked:
    """Base of a record that refuses values that are not allowed, by the name of the field (`_ALLOWED`)."""

    WHERE: ClassVar[str] = "optimizer"
    """What the fields are fields of, for messages."""

    def __post_init__(self) -> None:
        _check(self, self.WHERE)


@dataclass(frozen=True)
class _AdamFields(_Checked):
    """Fields of the rules that are Adam with a weight decay. The clip is by the global norm; None: no clipping."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_grad_norm: float | None = 1.0


@dataclass(frozen=True)
class AdamWConfig(_AdamFields):
    """AdamW with decay on the parameters whose role is in `decay_groups`."""

    decay_groups: tuple[Role, ...] = field(default=DECAYED, metadata={"added_later": True})


@dataclass(frozen=True)
class NAdamWConfig(_AdamFields):
    """AdamW with Nesterov's momentum."""

    decay_groups: tuple[Role, ...] = DECAYED
    kind: Literal["nadamw"] = "nadamw"


@dataclass(frozen=True)
class AdamCConfig(_AdamFields):
    """AdamW whose decay falls with the learning rate."""

    decay_groups: tuple[Role, ...] = DECAYED
    kind: Literal["adamc"] = "adamc"


@dataclass(frozen=True)
class AdamHConfig(_Checked):
    """Adam on the sphere: matrices and head keep their initial norms; embedding and norms get Adam without decay."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    adam_lr_ratio: float = 0.1
    """Learning rate of the Adam groups as a share of the schedule's."""
    max_grad_norm: float | None = 1.0
    kind: Literal["adamh"] = "adamh"


@dataclass(frozen=True)
class MuonConfig(_Checked):
    """Muon on the matrices inside the blocks, AdamW on embedding, head and norms. The clip is over all of them together."""

    momentum: float = 0.95
    nesterov: bool = True
    num_iterations: int = 5
    scale: Literal["aspect", "match_adamw"] = "aspect"
    """`aspect`: sqrt(max(1, out / in)), for rates like 0.02; `match_adamw`: 0.2 sqrt(max(in, out)), for AdamW's rates."""
    weight_decay: float = 0.1
    adam_lr_ratio: float = 0.03
    """Learning rate of the AdamW groups as a share of the schedule's."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Role, ...] = DECAYED
    kind: Literal["muon"] = "muon"


@dataclass(frozen=True)
class MuonHConfig(_Checked):
    """Muon on the sphere: matrices, each expert by itself, keep their initial norms and move by orthogonalized momentum; the
    head is AdamH's, the rest Adam's without decay."""

    momentum: float = 0.95
    nesterov: bool = True
    num_iterations: int = 5
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    adam_lr_ratio: float = 0.1
    """Learning rate of the Adam groups as a share of the schedule's."""
    max_grad_norm: float | None = 1.0
    kind: Literal["muonh"] = "muonh"

    scale: ClassVar[Literal["aspect"]] = "aspect"
    """Of no effect: a step on the sphere has the length that the rate says."""


@dataclass(frozen=True)
class LionConfig(_Checked):
    """Lion: the sign of an interpolated momentum. Rates are 3 to 10 times smaller than AdamW's, decay as much larger."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 1.0
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Role, ...] = DECAYED
    kind: Literal["lion"] = "lion"


type ElementwiseConfig = AdamWConfig | NAdamWConfig | AdamCConfig | LionConfig
"""Rules whose direction is made element by element."""


@dataclass(frozen=True)
class CautiousConfig:
    """Another rule, its direction masked to where it agrees with the gradient."""

    rule: ElementwiseConfig
    kind: Literal["cautious"] = "cautious"


type OptimizerConfig = ElementwiseConfig | AdamHConfig | MuonConfig | MuonHConfig | CautiousConfig


@dataclass(frozen=True)
class ClipUpdateNormConfig(_Checked):
    """Scale down a direction whose global norm is `num_std` deviations above the mean of the last `window`."""

    window: int = 128
    num_std: float = 3.0
    std_floor: float = 1e-6

    WHERE: ClassVar[str] = "clip_update_norm"


@dataclass(frozen=True)
class SkipBadStepsConfig(_Checked):
    """Leave out steps whose loss or gradient norm is not finite or `num_std` deviations above the mean of the last `window`."""

    window: int = 128
    num_std: float = 6.0
    std_floor: float = 1e-6
    max_in_a_row: int = 32
    """More skipped steps than this in a row end the run: it does not come back by itself."""

    WHERE: ClassVar[str] = "skip_bad_steps"


@dataclass(frozen=True)
class EmaConfig(_Checked):
    """Keep an exponential moving average of the parameters beside them."""

    beta: float = 0.999

    WHERE: ClassVar[str] = "ema"


def _share(value: float) -> bool:
    return 0 <= value < 1


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "beta": (_share, "in [0, 1)"),
    "beta1": (_share, "in [0, 1)"),
    "beta2": (_share, "in [0, 1)"),
    "momentum": (_share, "in [0, 1)"),
    "eps": (lambda value: value > 0, "positive"),
    "weight_decay": (lambda value: value >= 0, "at least 0"),
    "adam_lr_ratio": (lambda value: value > 0, "positive"),
    "num_iterations": (lambda value: value > 0, "positive"),
    "max_grad_norm": (lambda value: value is None or value > 0, "positive, or None for no clipping"),
    "decay_groups": (lambda value: set(value) <= set(ROLES), f"of {', '.join(ROLES)}"),
    "window": (lambda value: value >= 2, "at least 2"),
    "num_std": (lambda value: value > 0, "positive"),
    "std_floor": (lambda value: value > 0, "positive"),
    "max_in_a_row": (lambda value: value > 0, "positive"),
}


def _check(config: Any, where: str) -> None:
    """Raises: ValueError for the first field that holds what is not allowed."""
    for name in (entry.name for entry in fields(config)):
        if name in _ALLOWED:
            holds, allowed = _ALLOWED[name]
            value = getattr(config, name)
            require(holds(value), f"{where}.{name}", value, allowed)
