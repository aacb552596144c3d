"""A mixture of experts against a dense model at equal FLOPs a token, on equal tokens in one data order.

`make moe` makes `moe_look`; `make moe-study` makes the rest (`scenarios/experts.py`). All runs read the same sequences at the
same steps: the seed of a run decides its initial parameters alone.

The models are narrow and read many tokens each (7 for each parameter of the dense one), because experts add capacity, which a
model lacks only then. An earlier design of width 128 and a vocabulary of 8,192 over 1.2 M tokens, in which MLPs took 30 % of
the FLOPs, showed no difference (benchmarks/notes/2026-11-26-moe-study.md).
"""

from dataclasses import replace
from typing import Literal

from recipes.records.run import Execution, Run
from recipes.records.sweep import Sweep
from recipes.studies.default import default_evaluation
from recipes.studies.small_models import BETA2, SEQ_LEN, small_mix
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

BATCH, STEPS = 8, 1200
LOOK_SEEDS, RATE_SEED, PAIR_SEEDS = (1, 2, 3), 11, (21, 22, 23, 24, 25, 26, 27, 28)
WIDE_SEEDS, LONGER_SEEDS = PAIR_SEEDS[:2], PAIR_SEEDS[:2]
RATES: dict[Arm, tuple[float, float, float]] = {"dense": (3e-3, 6e-3, 12e-3), "moe": (3e-3, 6e-3, 12e-3)}
"""Grids of peak rates. The study refuses a grid whose best rate is not the middle one; then the grid is moved here."""
LONGER = (1800, 2400)
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
    seeds: dict[Arm, tuple[int, ...]] = {"dense": PAIR_SEEDS, "moe": PAIR_SEEDS, "wide": WIDE_SEEDS}
    return Sweep("moe_pairs", tuple(trained(arm, seed) for arm in seeds for seed in seeds[arm]))


def moe_longer() -> Sweep:
    """Dense runs over more tokens, each with its own decay."""
    return Sweep("moe_longer", tuple(trained("dense", seed, steps=steps) for steps in LONGER for seed in LONGER_SEEDS))


def trained(arm: Arm, seed: int, rate: float | None = None, steps: int = STEPS) -> Run:
    """A run of an arm; None: the middle rate of its grid, and the dense one for `wide`."""
    mix = small_mix()
    peak = RATES["dense" if arm == "wide" else arm][1] if rate is None else rate
    spec = RunSpec(
        name=f"{arm}-s{seed}-lr{peak:g}-t{steps}",
        model=model(arm, mix.tokens.vocab_size),
        optimizer=AdamWConfig(beta2=BETA2),
        schedule=WarmupStableDecay(peak, warmup_steps=STEPS // 10, decay_frac=0.5, min_lr_ratio=0.0),
        batch_size=BATCH,
        seq_len=SEQ_LEN,
        num_steps=steps,
        seed=seed,
    )
    return Run(spec, mix, default_evaluation(), execution=Execution(settings=RuntimeOptions(rolling_seconds=60.0)))


def model(arm: Arm, vocab_size: int) -> ModelConfig:
    """The model of an arm; `moe` has the shapes of `dense`, its MLP split into two experts of eight."""
    dense = LlamaConfig(vocab_size, 64, 256, num_layers=4, num_heads=4, num_kv_heads=4, max_seq_len=SEQ_LEN, qk_norm=True)
    if arm == "dense":
        return dense
    experts = ExpertsConfig(count=8, dim=dense.intermediate_dim // 2)
    if arm == "wide":
        return replace(dense, intermediate_dim=experts.count * experts.dim)
    return MoeConfig(
        vocab_size,
        hidden_dim=dense.hidden_dim,
        intermediate_dim=dense.intermediate_dim,
        num_layers=dense.num_layers,
        num_heads=dense.num_heads,
        num_kv_heads=dense.num_kv_heads,
        max_seq_len=dense.max_seq_len,
        tie_embeddings=dense.tie_embeddings,
        experts=experts,
        router=RouterConfig(2),
    )
