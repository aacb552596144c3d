"""How a model is computed: precision, attention back-end, what is kept for the backward pass.

A spec declares it (`RunSpec.compute`, part of the identity, because rounding depends on it). `resolve` turns it into choices
for this machine and explains each. A request that is unavailable is never replaced silently: it is an error with `strict`,
else a warning and a line in the run's record.
"""

import logging
from dataclasses import asdict, dataclass, field
from typing import Literal

from trainer.spec.checks import require

log = logging.getLogger("trainer")

type Backend = Literal["reference", "blocked", "xla", "cudnn", "splash"]
type ExpertEngine = Literal["reference", "tiled", "ragged", "hopper"]
type Exchange = Literal["ring", "all_to_all"]
type Remat = Literal["none", "full", "named", "offload"]
BACKENDS: tuple[Backend, ...] = ("reference", "blocked", "xla", "cudnn", "splash")
FIRST_CHOICE: dict[str, Backend] = {"gpu": "cudnn", "tpu": "splash"}
ENGINES: tuple[ExpertEngine, ...] = ("reference", "tiled", "ragged", "hopper")
FIRST_ENGINE: dict[str, ExpertEngine] = {"gpu": "ragged", "tpu": "ragged"}
"""What any GPU or TPU can use. A Hopper GPU prefers `hopper`."""
HOPPER, FLOAT8 = "9.0", 8.9
"""Compute capability of H100 and H200, and of the first GPUs with float8 products."""
CPU_BLOCK, ACCELERATOR_BLOCK = 128, 512
"""Query rows per block of `blocked`: the fastest of those tried on a CPU; not measured on an accelerator."""
LOSS_ROWS = 8192
LOSS_BYTES = {"tpu": 2**30, "gpu": 2**32}
"""Rows of a tile of logits on an accelerator, at most, and bytes of its float32 logits. A tile reads the head and adds to its
gradient once, so few large tiles move less: 256 rows of a 128,256-word head move 6.3 GB for .8 ms of products on an H100. On an
H200 a model of d 192 and 128,256 words takes 1,599,666 tokens/s with tiles of 2,048 rows, 1,661,317 with 4,096 and 1,709,926
with 16,384 (2026-11-26, one run each). TPUs have less memory, and none was measured."""
UNROLLED_LAYERS = 8
"""With `auto`, a CPU unrolls up to this many layers: one takes about 0.5 s to compile (d 256, two cores, 2026-11-22)."""


@dataclass(frozen=True)
class ComputeConfig:
    """What a run requests. Parameters, optimizer state and reductions are float32 with every `dtype`."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and of the inputs of matrix products; bfloat16 gains nothing on CPUs."""
    attention: Literal["auto", "reference", "blocked", "xla", "cudnn", "splash"] = "auto"
    """auto: splash on TPUs, cudnn on GPUs, blocked on CPUs and where the first choice does not support the work."""
    remat: Remat = "none"
    """What the backward pass computes again: nothing; all of a layer from its input (full); all but
    `trainer.model.layer_folds.SAVED_NAMES` (named); all, with inputs kept in host memory (offload)."""
    layers: Literal["auto", "scan", "unrolled"] = "auto"
    """scan: one compiled layer. unrolled: each layer compiled alone, slower to compile and faster to run, because what a layer
    keeps for the backward pass is not copied into arrays of all layers. auto: unrolled on a CPU up to `UNROLLED_LAYERS`."""
    experts: Literal["auto", "reference", "tiled", "ragged", "hopper"] = field(default="auto", metadata={"added_later": True})
    """How rows meet the matrices of their experts (`trainer.model.expert_products`). auto: tiled on CPUs, hopper on Hopper GPUs
    where it supports the work, ragged elsewhere."""
    exchange: Exchange = field(default="ring", metadata={"added_later": True})
    """How tokens meet experts of other devices (`trainer.model.expert_parallel`)."""
    float8: bool = field(default=False, metadata={"added_later": True})
    """Products of activations with weights in float8 (`trainer.model.float8`), beside bfloat16; not those of experts. On an
    H200 it is 1.11 times as fast for 1.5 B parameters, and 20 steps on random tokens learn less
    (benchmarks/notes/2026-11-27-h200.md)."""
    strict: bool = False
    """Refuse to run where something requested by name is unavailable."""

    def __post_init__(self) -> None:
        require(self.dtype in ("float32", "bfloat16"), "compute.dtype", self.dtype, "float32 or bfloat16")
        known = ("auto", *BACKENDS)
        require(self.attention in known, "compute.attention", self.attention, f"one of {', '.join(known)}")
        remats = ("none", "full", "named", "offload")
        require(self.remat in remats, "compute.remat", self.remat, f"one of {', '.join(remats)}")
        require(self.layers in ("auto", "scan", "unrolled"), "compute.layers", self.layers, "auto, scan or unrolled")
        require(self.experts in ("auto", *ENGINES), "compute.experts", self.experts, f"one of auto, {', '.join(ENGINES)}")
        require(not self.float8 or self.dtype == "bfloat16", "compute.float8", self.float8, "false with compute.dtype float32")
        require(self.exchange in ("ring", "all_to_all"), "compute.exchange", self.exchange, "ring or all_to_all")


@dataclass(frozen=True)
class Compute:
    """The choices for a machine. `notes` explain them in words."""

    dtype: str
    attention: Backend
    block: int
    one_by_one: bool
    """Attention processes the sequences of a batch one after another, so that one fits a CPU's cache."""
    by_rows: bool
    """Products with weights have gradients of their own (`trainer.model.products`); on CPUs only."""
    remat: Remat
    unrolled: bool
    notes: tuple[str, ...]
    experts: ExpertEngine | None = None
    """None for a model without experts."""
    exchange: Exchange | None = None
    loss_rows: int | None = None
    """Rows of a tile of logits; None: those of `trainer.model.cross_entropy`, which fit a CPU's cache."""
    loss_shift: Literal["gold"] | None = None
    """What the loss subtracts from logits before exp: the target's logit, or (None) the largest of the row."""
    float8: bool | None = None
    """Products of activations with weights are float8; None if not."""
    precision: Literal["highest"] | None = None
    """Precision of float32 products. None: the platform's default, which is TF32 on GPUs and bfloat16 on TPUs."""
    training: bool = False
    """Routers report what they did, and capacities apply. Not a choice: `trainer.objectives` sets it."""

    def record(self) -> dict[str, str | int | bool]:
        """Every choice, and the notes in one line, for the run's record."""
        choices = {key: value for key, value in asdict(self).items() if key not in ("notes", "training") and value is not None}
        return {**choices, "notes": "; ".join(self.notes)}


@dataclass(frozen=True)
class Work:
    """The properties of the work that choices depend on."""

    seq_len: int
    head_dim: int
    segmented: bool = False
    window: int | None = None
    num_layers: int = 1
    experts: tuple[int, int] | None = None
    """Widths of the model and of an expert; None for a model without experts."""
    mixed_layers: bool = False
    """Layers differ in their windows, so they are folded by periods."""
    vocab_size: int = 1


@dataclass
class _Choices:
    """Choose one thing after the other for a platform, and collect the notes."""

    config: ComputeConfig
    platform: str
    work: Work
    capability: str | None
    notes: list[str] = field(default_factory=list)

    def miss(self, requested: str, why: str, instead: str) -> None:
        """Note that something is unavailable. Raises: ValueError with `strict`."""
        if self.config.strict:
            raise ValueError(f"{requested} is unavailable ({why}) and compute.strict=True forbids falling back to {instead}")
        log.warning("%s is unavailable (%s); using %s instead", requested, why, instead)
        self.notes.append(f"{requested} unavailable ({why}), using {instead}")

    def attention(self) -> Backend:
        requested, dtype = self.config.attention, self.config.dtype
        if requested == "auto":
            first = FIRST_CHOICE.get(self.platform, "blocked")
            why = cannot(first, self.platform, dtype, self.work)
            backend: Backend = "blocked" if why else first
            self.notes.append(
                f"attention {backend}: " + (f"{first} is out, {why}" if why else f"the choice for {self.platform}")
            )
            return backend
        if why := cannot(requested, self.platform, dtype, self.work):
            self.miss(f"compute.attention {requested!r}", why, "blocked")
            return "blocked"
        self.notes.append(f"attention {requested}: as requested")
        return requested

    def remat(self) -> Remat:
        remat = self.config.remat
        if remat == "offload" and self.platform == "cpu":
            self.miss("compute.remat 'offload'", "a CPU has no second memory", "full")
            return "full"
        if remat == "offload" and self.work.mixed_layers:
            self.miss("compute.remat 'offload'", "layers differ in their windows", "full")
            return "full"
        return remat

    def float8(self) -> bool:
        platform, capability = self.platform, self.capability
        if self.config.float8 and platform != "cpu" and not (platform == "gpu" and float(capability or 0) >= FLOAT8):
            here = f"{platform} {capability or ''}".strip()
            self.miss("compute.float8", f"it needs a GPU of compute capability {FLOAT8} or more, here is {here}", "bfloat16")
            return False
        return self.config.float8

    def unrolled(self) -> bool:
        requested, count = self.config.layers, self.work.num_layers
        few = self.platform == "cpu" and count <= UNROLLED_LAYERS
        unrolled = requested == "unrolled" or (requested == "auto" and few)
        self.notes.append(f"layers {'unrolled' if unrolled else 'scanned'}: {count} on {self.platform}, {requested} requested")
        return unrolled

    def experts(self) -> ExpertEngine | None:
        """The engine of a model with experts."""
        if not self.work.experts:
            return None
        requested, platform, dtype = self.config.experts, self.platform, self.config.dtype
        general = FIRST_ENGINE.get(platform, "tiled")
        engine = general if requested == "auto" else requested
        if why := cannot_multiply(engine, platform, self.capability, dtype, self.work.experts):
            self.miss(f"compute.experts {engine!r}", why, general)
            engine = general
        if requested == "auto" and platform == "gpu":
            out = cannot_multiply("hopper", platform, self.capability, dtype, self.work.experts)
            engine = general if out else "hopper"
            self.notes.extend([f"experts hopper is out, {out}"] if out else [])
        self.notes.append(f"experts {engine}: {requested} requested on {platform}")
        return engine


def resolve(config: ComputeConfig, platform: str, work: Work, capability: str | None = None) -> Compute:
    """Return the choices for a platform (`jax.default_backend()`) and, on a GPU, its compute capability.

    Raises: ValueError with `strict` for what is unavailable.
    """
    choices = _Choices(config, platform, work, capability)
    notes, on_cpu = choices.notes, platform == "cpu"
    attention, remat, float8 = choices.attention(), choices.remat(), choices.float8()
    if config.dtype == "bfloat16" and on_cpu:
        notes.append("bfloat16 on a CPU is for checking, not for speed")
    unrolled, experts = choices.unrolled(), choices.experts()
    rows = None if on_cpu else loss_rows(work.vocab_size, platform)
    precision = "highest" if config.dtype == "float32" and not on_cpu else None
    if not on_cpu:
        notes.append(f"loss in tiles of {rows} rows" + (", float32 products in full float32" if precision else ""))
    return Compute(
        config.dtype,
        attention,
        block=CPU_BLOCK if on_cpu else ACCELERATOR_BLOCK,
        one_by_one=on_cpu,
        by_rows=on_cpu and config.dtype == "float32",
        remat=remat,
        unrolled=unrolled,
        notes=tuple(notes),
        experts=experts,
        exchange=config.exchange if work.experts else None,
        loss_rows=rows,
        loss_shift="gold" if platform == "gpu" else None,
        float8=float8 or None,
        precision=precision,
    )


def loss_rows(vocab_size: int, platform: str) -> int:
    """Rows of a tile of logits on an accelerator: a power of two within `LOSS_ROWS` and, down to 256, `LOSS_BYTES`.

    >>> loss_rows(32_000, "tpu"), loss_rows(128_256, "tpu"), loss_rows(128_256, "gpu")
    (8192, 2048, 8192)
    """
    rows = LOSS_ROWS
    while rows > 256 and rows * vocab_size * 4 > LOSS_BYTES.get(platform, LOSS_BYTES["tpu"]):
        rows //= 2
    return rows


def cannot(backend: Backend, platform: str, dtype: str, work: Work) -> str | None:
    """Why a back-end does not support the work; None if it does. Limits: jax 0.11.2's `cudnn.fused_attention_stablehlo` and
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


def cannot_multiply(
    engine: ExpertEngine, platform: str, capability: str | None, dtype: str, widths: tuple[int, int]
) -> str | None:
    """Why an engine of expert products does not support the work; None if it does."""
    if engine == "ragged":
        limits = [(platform != "cpu", "on a CPU it multiplies every row by every expert")]
    elif engine == "hopper":
        limits = [
            (
                platform == "gpu" and capability == HOPPER,
                f"it needs a Hopper GPU, here is {platform} {capability or ''}".strip(),
            ),
            (dtype == "bfloat16", f"it computes in bfloat16, compute.dtype is {dtype}"),
            (all(each % 64 == 0 for each in widths), f"widths {widths[0]} and {widths[1]}, it takes multiples of 64"),
        ]
    else:
        limits = []
    return next((why for holds, why in limits if not holds), None)
