"""A mixture of experts against a dense model at equal FLOPs a token, on equal tokens in one data order.

`make moe` makes `moe_look`; `make moe-study` makes the rest (`scenarios/experts.py`). All runs read the same sequences at the
same steps: the seed of a run decides its initial parameters alone.
"""

from dataclasses import replace
from typing import Literal

from recipes.records.run import Execution, Run
from recipes.records.sweep import Sweep
from recipes.studies.default import default_evaluation, default_mix
from recipes.study import Study
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.moe import ExpertsConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.settings import RuntimeOptions

type Arm = Literal["dense", "moe", "wide"]
"""`wide` is a dense model with as many parameters as `moe` has in all; it takes more FLOPs a token."""

STEPS = 300
LOOK_SEEDS, RATE_SEED, PAIR_SEEDS = (1, 2, 3), 11, (21, 22, 23, 24, 25)
RATES: dict[Arm, tuple[float, float, float]] = {"dense": (1e-3, 2e-3, 4e-3), "moe": (2e-3, 4e-3, 8e-3)}
"""Grids of peak rates. The study refuses a grid whose best rate is not the middle one; then the grid is moved here.
The dense one was that of `moe`, and its best rate was its lowest (benchmarks/notes/2026-11-26-moe-study.md).
"""
LONGER = (450, 600)
"""Steps of the dense runs that show what more compute would buy."""


def study() -> Study:
    return Study(
        "Is a mixture of experts better than a dense model at equal FLOPs?",
        sweeps=(moe_look, moe_rates, moe_pairs, moe_longer),
    )


def moe_look() -> Sweep:
    """Three seeds of both, at the middle rates."""
    return Sweep("moe_look", tuple(trained(arm, seed) for arm in ("dense", "moe") for seed in LOOK_SEEDS))


def moe_rates() -> Sweep:
    """Three rates of each, with one seed that no comparison uses: the same tuning budget for both."""
    return Sweep("moe_rates", tuple(trained(arm, RATE_SEED, rate) for arm in RATES for rate in RATES[arm]))


def moe_pairs() -> Sweep:
    """Fresh seeds for the comparison, and the dense model of equal total parameters beside it."""
    arms: tuple[Arm, ...] = ("dense", "moe", "wide")
    return Sweep("moe_pairs", tuple(trained(arm, seed) for arm in arms for seed in PAIR_SEEDS))


def moe_longer() -> Sweep:
    """Dense runs over more tokens, each with its own decay."""
    return Sweep("moe_longer", tuple(trained("dense", seed, steps=steps) for steps in LONGER for seed in PAIR_SEEDS[:2]))


def trained(arm: Arm, seed: int, rate: float | None = None, steps: int = STEPS) -> Run:
    """A run of an arm; None: the middle rate of its grid, and the dense one for `wide`."""
    mix = default_mix()
    peak = RATES["dense" if arm == "wide" else arm][1] if rate is None else rate
    spec = RunSpec(
        name=f"{arm}-s{seed}-lr{peak:g}-t{steps}",
        model=model(arm, mix.tokens.vocab_size),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak, warmup_steps=STEPS // 10, decay_frac=0.4, min_lr_ratio=0.1),
        batch_size=16,
        seq_len=256,
        num_steps=steps,
        seed=seed,
    )
    return Run(spec, mix, default_evaluation(), execution=Execution(settings=RuntimeOptions(rolling_seconds=60.0)))


def model(arm: Arm, vocab_size: int) -> ModelConfig:
    """The model of an arm; `moe` has the shapes of `dense`, its MLP split into two experts of eight."""
    dense = LlamaConfig(
        vocab_size, hidden_dim=128, intermediate_dim=352, num_layers=4, num_heads=4, num_kv_heads=2, max_seq_len=256
    )
    if arm == "dense":
        return dense
    if arm == "wide":
        return replace(dense, intermediate_dim=8 * 176)
    return MoeConfig(
        vocab_size,
        hidden_dim=dense.hidden_dim,
        intermediate_dim=dense.intermediate_dim,
        num_layers=dense.num_layers,
        num_heads=dense.num_heads,
        num_kv_heads=dense.num_kv_heads,
        max_seq_len=dense.max_seq_len,
        tie_embeddings=dense.tie_embeddings,
        qk_norm="none",
        experts=ExpertsConfig(8, 176),
        router=RouterConfig(2),
    )
