"""Planned runs: the 1e23 recipe and the June model, with the origin of every number.

`stated` numbers are from Marin's weekly summaries and roadmap (docs/references.md#marin-moe); `chosen` numbers are ours.
"""

from dataclasses import dataclass

from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec
from trainer.spec.mesh import MeshShape
from trainer.spec.moe import ExpertsConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import AdamHConfig, MuonHConfig
from trainer.spec.schedules import WarmupStableDecay

ON_PAPER = ComputeConfig(dtype="bfloat16", remat="full")


@dataclass(frozen=True)
class PlannedRun:
    """A run spec, the hardware and mesh it is planned for, and the assumed utilisation."""

    spec: RunSpec
    hardware: str
    mesh: MeshShape
    utilisation: float
    """Share of the hardware's peak that the run's FLOPs reach."""

    stated: str
    chosen: str

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"paper run {self.spec.name}: utilisation is {self.utilisation}; it must be above 0, at most 1")

    @property
    def name(self) -> str:
        return self.spec.name


def april_1e23() -> PlannedRun:
    """The preregistered 1e23 run on v4-512."""
    steps = round(1.02e12 / (2048 * 4096))
    spec = RunSpec(
        name="1e23",
        model=_model(hidden_dim=5120, layers=48, seq_len=4096, expert_dim=2560),
        optimizer=AdamHConfig(beta1=0.9062, beta2=0.95),
        schedule=WarmupStableDecay(1e-3, warmup_steps=steps // 10, decay_frac=0.9, min_lr_ratio=0.0),
        batch_size=2048,
        microbatch_size=256,
        seq_len=4096,
        num_steps=steps,
        seed=0,
        compute=ON_PAPER,
    )
    return PlannedRun(
        spec,
        "v4-512",
        MeshShape(expert=4),
        utilisation=0.28,
        stated=(
            "48 layers, d 5120, 40 heads, groups of 4, 64 experts of which a token meets 4, one shared expert, 129 to 131 B "
            "parameters of which 16 B are active, 1.02 T tokens, 2,048 sequences a step, experts over 4, AdamH, 14 % of the "
            "peak of 512 chips, which is 28 % of the 256 that a v4-512 has"
        ),
        chosen="sequences of 4,096, microbatches of 256, full remat in bfloat16, rolling checkpoints every ten minutes",
    )


def june() -> PlannedRun:
    """The June model, 16B-A2B, on two nodes of eight H100."""
    spec = RunSpec(
        name="june",
        model=_model(hidden_dim=2560, layers=24, seq_len=8192, expert_dim=1280),
        optimizer=MuonHConfig(),
        schedule=WarmupStableDecay(2e-2, warmup_steps=10, decay_frac=0.9, min_lr_ratio=0.05),
        batch_size=512,
        microbatch_size=16,
        seq_len=8192,
        num_steps=1000,
        seed=0,
        compute=ON_PAPER,
    )
    return PlannedRun(
        spec,
        "2xh100x8",
        MeshShape(expert=8),
        utilisation=0.2,
        stated="about 16 B parameters of which 2 B are active, about 1,000 steps, two nodes or more; MuonH, sequences of 8,192",
        chosen=(
            "its shape by April's rules at d 2560 with 24 layers (May's recipe has 256 experts; how many a token meets is not "
            "stated), 512 sequences a step, microbatches of 16, 20 % MFU (the April model of that width and 26 "
            "layers had 26.7 % on one node)"
        ),
    )


def planned_runs() -> dict[str, PlannedRun]:
    """All planned runs by name."""
    return {run.name: run for run in (april_1e23(), june())}


def _model(*, hidden_dim: int, layers: int, seq_len: int, expert_dim: int) -> MoeConfig:
    """By April's rules: heads of 128 in groups of four, a shared expert as wide as the residual stream, an untied head."""
    heads = hidden_dim // 128
    return MoeConfig(
        vocab_size=128_256,
        hidden_dim=hidden_dim,
        intermediate_dim=hidden_dim,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads // 4,
        max_seq_len=seq_len,
        experts=ExpertsConfig(64, expert_dim, shared_dim=hidden_dim),
        router=RouterConfig(4),
    )
