"""How a model is computed, as opposed to what it is: precision, attention back-end, what is kept for the backward pass.

A spec declares it (`RunSpec.compute`, identity, because rounding depends on it); `resolve` turns it into choices for the
machine at hand and says in words what it chose and why. What was asked for and cannot be had is never replaced in silence: it
is an error under `strict`, else a warning and a line of the run's record.
"""

import logging
from dataclasses import asdict, dataclass
from typing import Literal

from trainer.checks import require

log = logging.getLogger("trainer")

type Backend = Literal["reference", "blocked", "xla", "cudnn", "splash"]
type Remat = Literal["none", "full", "named", "offload"]
BACKENDS: tuple[Backend, ...] = ("reference", "blocked", "xla", "cudnn", "splash")
FIRST_CHOICE: dict[str, Backend] = {"gpu": "cudnn", "tpu": "splash"}
CPU_BLOCK, ACCELERATOR_BLOCK = 128, 512
"""Rows of queries in a block of `blocked`: on a CPU the fastest of those tried; an accelerator's is not measured."""


UNROLLED_LAYERS = 8
"""More are scanned unless told: a layer takes about .5 s to compile (d 256, two cores, 2026-11-22)."""


@dataclass(frozen=True)
class ComputeConfig:
    """What a run asks for. Parameters, optimizer state and reductions are float32 whatever `dtype` is."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of activations and of matrix products' sides; CPUs gain nothing from bfloat16."""
    attention: Literal["auto", "reference", "blocked", "xla", "cudnn", "splash"] = "auto"
    """auto: splash on TPUs, cudnn on GPUs, blocked on CPUs and wherever the first choice cannot do what is asked."""
    remat: Remat = "none"
    """What backward makes again: nothing, all of a layer from its input, all but what `trainer.model.SAVED_NAMES` says, or all
    with inputs kept in the host's memory."""
    layers: Literal["auto", "scan", "unrolled"] = "auto"
    """One compiled layer, or each its own, which is slower to compile and faster to run: what a layer keeps for the way back is
    not copied into arrays of all layers. auto: unrolled where a CPU trains up to `UNROLLED_LAYERS`."""
    strict: bool = False
    """Refuse to run where something asked for by name cannot be had."""

    def __post_init__(self) -> None:
        require(self.dtype in ("float32", "bfloat16"), "compute.dtype", self.dtype, "float32 or bfloat16")
        known = ("auto", *BACKENDS)
        require(self.attention in known, "compute.attention", self.attention, f"one of {', '.join(known)}")
        remats = ("none", "full", "named", "offload")
        require(self.remat in remats, "compute.remat", self.remat, f"one of {', '.join(remats)}")
        require(self.layers in ("auto", "scan", "unrolled"), "compute.layers", self.layers, "auto, scan or unrolled")


@dataclass(frozen=True)
class Compute:
    """What runs. `notes` say in words what was chosen and why."""

    dtype: str
    attention: Backend
    block: int
    one_by_one: bool
    """Attention takes the sequences of a batch one after another, so that a CPU's cache holds what one needs."""
    by_rows: bool
    """Products with weights are of rows with matrices and have gradients of their own (`trainer.products`), on a CPU alone."""
    remat: Remat
    unrolled: bool
    notes: tuple[str, ...]

    def record(self) -> dict[str, str | int | bool]:
        """For the run's record: every choice, and the notes in one line."""
        return {**{key: value for key, value in asdict(self).items() if key != "notes"}, "notes": "; ".join(self.notes)}


@dataclass(frozen=True)
class Work:
    """What is to be computed, as far as the choices care."""

    seq_len: int
    head_dim: int
    segmented: bool = False
    window: int | None = None
    num_layers: int = 1


def resolve(config: ComputeConfig, platform: str, work: Work) -> Compute:
    """The choices for a platform (`jax.default_backend()`). Raises: ValueError under `strict` for what cannot be had."""
    notes: list[str] = []

    def miss(asked: str, why: str, instead: str) -> None:
        if config.strict:
            raise ValueError(f"{asked} cannot be had: {why}; compute.strict forbids {instead} in its place")
        log.warning("%s cannot be had: %s; %s in its place", asked, why, instead)
        notes.append(f"{asked} refused ({why}), {instead} runs")

    backend: Backend
    if config.attention == "auto":
        first = FIRST_CHOICE.get(platform, "blocked")
        why = cannot(first, platform, config.dtype, work)
        backend = "blocked" if why else first
        notes.append(f"attention {backend}: " + (f"{first} is out, {why}" if why else f"the choice for {platform}"))
    elif why := cannot(config.attention, platform, config.dtype, work):
        backend = "blocked"
        miss(f"compute.attention {config.attention!r}", why, "blocked")
    else:
        backend = config.attention
        notes.append(f"attention {backend}: as asked")
    remat = config.remat
    if remat == "offload" and platform == "cpu":
        miss("compute.remat 'offload'", "a CPU has no other memory to move to", "full")
        remat = "full"
    if config.dtype == "bfloat16" and platform == "cpu":
        notes.append("bfloat16 on a CPU is for checking, not for speed")
    on_cpu = platform == "cpu"
    block = CPU_BLOCK if on_cpu else ACCELERATOR_BLOCK
    by_rows = on_cpu and config.dtype == "float32"
    few = on_cpu and work.num_layers <= UNROLLED_LAYERS
    unrolled = config.layers == "unrolled" or (config.layers == "auto" and few)
    notes.append(f"layers {'unrolled' if unrolled else 'scanned'}: {work.num_layers} on {platform}, {config.layers} asked for")
    return Compute(config.dtype, backend, block, on_cpu, by_rows, remat, unrolled, tuple(notes))


def cannot(backend: Backend, platform: str, dtype: str, work: Work) -> str | None:
    """Why a back-end cannot do the work, None where it can. Limits: jax 0.11.2's `cudnn.fused_attention_stablehlo` and
    `splash_attention_kernel`."""
    if backend == "cudnn":
        limits = [
            (platform == "gpu", f"it needs a GPU, here is {platform}"),
            (dtype == "bfloat16", f"it computes in bfloat16, compute.dtype is {dtype}"),
            (work.head_dim % 8 == 0 and work.head_dim <= 128, f"heads of {work.head_dim}, it takes multiples of 8 up to 128"),
            (not work.segmented, "the batch has segment ids, which it would take as a bias of S x S"),
        ]
    elif backend == "splash":
        limits = [
            (platform == "tpu", f"it needs a TPU, here is {platform}"),
            (work.seq_len % 128 == 0, f"rows of {work.seq_len} tokens, it takes multiples of 128"),
        ]
    else:
        limits = []
    return next((why for holds, why in limits if not holds), None)
