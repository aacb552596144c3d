"""Which rule, with which numbers: a sum type that JSON tells apart by `kind` (AdamW, the first, has none).

The rules themselves, with formulas and sources, are in the modules beside this one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from trainer.checks import require

type Group = Literal["matrix", "head", "embedding", "norm"]
"""Parameters by role; a tied head is the embedding. `trainer.optimizers.groups` says which is which."""
GROUPS: tuple[Group, ...] = ("matrix", "head", "embedding", "norm")
DECAYED: tuple[Group, ...] = ("matrix", "head")


@dataclass(frozen=True)
class AdamWConfig:
    """AdamW after clipping by global norm (None: no clipping); decay on the `decay_groups`."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Group, ...] = field(default=DECAYED, metadata={"added_later": True})

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class NAdamWConfig:
    """AdamW with Nesterov's momentum."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Group, ...] = DECAYED
    kind: Literal["nadamw"] = "nadamw"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class AdamCConfig:
    """AdamW whose decay falls with the learning rate."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Group, ...] = DECAYED
    kind: Literal["adamc"] = "adamc"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class AdamHConfig:
    """Adam on the sphere: matrices and head keep the norm they began with; Adam without decay on embedding and norms."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    adam_lr_ratio: float = 0.1
    """Learning rate of the Adam groups as a share of the schedule's."""
    max_grad_norm: float | None = 1.0
    kind: Literal["adamh"] = "adamh"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class MuonConfig:
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
    decay_groups: tuple[Group, ...] = DECAYED
    kind: Literal["muon"] = "muon"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class LionConfig:
    """Lion: the sign of an interpolated momentum. Rates three to ten times smaller than AdamW's, decay as much larger."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 1.0
    max_grad_norm: float | None = 1.0
    decay_groups: tuple[Group, ...] = DECAYED
    kind: Literal["lion"] = "lion"

    def __post_init__(self) -> None:
        _check(self)


type ElementwiseConfig = AdamWConfig | NAdamWConfig | AdamCConfig | LionConfig
"""Rules whose direction is made element by element."""


@dataclass(frozen=True)
class CautiousConfig:
    """Another rule, its direction masked to where it agrees with the gradient."""

    rule: ElementwiseConfig
    kind: Literal["cautious"] = "cautious"


type OptimizerConfig = ElementwiseConfig | AdamHConfig | MuonConfig | CautiousConfig


@dataclass(frozen=True)
class ClipUpdateNormConfig:
    """Scale down a direction whose global norm is `num_std` deviations above the mean of the last `window`."""

    window: int = 128
    num_std: float = 3.0
    std_floor: float = 1e-6

    def __post_init__(self) -> None:
        _check(self, "clip_update_norm")


@dataclass(frozen=True)
class SkipBadStepsConfig:
    """Leave out steps whose loss or gradient norm is not finite or `num_std` deviations above the mean of the last `window`."""

    window: int = 128
    num_std: float = 6.0
    std_floor: float = 1e-6
    max_in_a_row: int = 32
    """More skipped steps than this in a row end the run: it does not come back by itself."""

    def __post_init__(self) -> None:
        _check(self, "skip_bad_steps")


@dataclass(frozen=True)
class EmaConfig:
    """Keep an exponential moving average of the parameters beside them."""

    beta: float = 0.999

    def __post_init__(self) -> None:
        _check(self, "ema")


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
    "decay_groups": (lambda value: set(value) <= set(GROUPS), f"of {', '.join(GROUPS)}"),
    "window": (lambda value: value >= 2, "at least 2"),
    "num_std": (lambda value: value > 0, "positive"),
    "std_floor": (lambda value: value > 0, "positive"),
    "max_in_a_row": (lambda value: value > 0, "positive"),
}


def _check(config: Any, where: str = "optimizer") -> None:
    """Raises: ValueError for the first field that holds what is not allowed."""
    for name in (entry.name for entry in fields(config)):
        if name in _ALLOWED:
            holds, allowed = _ALLOWED[name]
            value = getattr(config, name)
            require(holds(value), f"{where}.{name}", value, allowed)
