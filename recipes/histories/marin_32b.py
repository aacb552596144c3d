"""The 32B run as phases: Llama until its spikes, three abandoned rescues, the QK-norm switch, Bison and Mantis.

Numbers: the published 32B retrospective. Where the documents are silent, `chosen` says what stands here.
"""

from dataclasses import replace

from lineage.order.batches import BatchPhase
from recipes.histories.phase import Contradiction, From, History, Phase, Stated
from recipes.marin_history import BISON, MANTIS, NEMOTRON_PT, SEQ_LEN
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import (
    AdamCConfig,
    AdamWConfig,
    ClipUpdateNormConfig,
    EmaConfig,
    MuonConfig,
    NAdamWConfig,
    OptimizerConfig,
    SkipBadStepsConfig,
)
from trainer.spec.schedules import CycleSchedule, Schedule, WarmupStableDecay

LLAMA = LlamaConfig(128_256, 5120, 27_648, 64, 40, 8, SEQ_LEN, rope_theta=500_000.0, tie_embeddings=False)
QWEN3 = replace(LLAMA, qk_norm=True)
PEAK = 7e-4
HOLD = WarmupStableDecay(PEAK, warmup_steps=0, decay_frac=0.0)
CARRIED = WarmStart(optimizer="carried", data="continued", average="carried")
FRESH = replace(CARRIED, optimizer="fresh")
GUARDS = (ClipUpdateNormConfig(window=128, num_std=2.0), SkipBadStepsConfig(window=128, num_std=2.0))
SPLIT, GUARDED, UNGUARDED, RESCUED, SPIKES, SWITCHED = 56_400, 72_233, 74_000, 77_096, 80_000, 160_000
RESCUE_STEPS = 3_000
COOLDOWN, ADDED = 32_000, 14_000
"""Steps of a cooldown, and of Mantis before StackV2's Python."""
HARDWARE = "v4-2048"


def _spec(name: str, steps: int, **changed: object) -> RunSpec:
    fields = {
        "model": LLAMA, "optimizer": AdamWConfig(weight_decay=0.05, max_grad_norm=0.2), "schedule": HOLD, "batch_size": 8192,
        "seq_len": SEQ_LEN, "num_steps": steps, "seed": 0, "z_loss_weight": 1e-4, "ema": EmaConfig(0.995), "start": CARRIED,
        "compute": ComputeConfig(dtype="bfloat16", remat="full"),
    }  # fmt: skip
    return RunSpec(f"marin-32b-{name}", **(fields | changed))  # type: ignore[arg-type]


def _rescue(name: str, optimizer: OptimizerConfig, schedule: Schedule, reason: str, chosen: str) -> Phase:
    spec = _spec(name, RESCUE_STEPS, optimizer=optimizer, schedule=schedule, start=FRESH)
    return Phase(name, spec, NEMOTRON_PT, From("1d", RESCUED - UNGUARDED), "abandoned", reason, chosen)


def _first_phases() -> tuple[Phase, ...]:
    """0 to 80,000 as one run whose clipping changed three times."""
    optimizer = AdamWConfig(weight_decay=0.05, max_grad_norm=1.0)
    warmup = WarmupStableDecay(PEAK, warmup_steps=2_000, decay_frac=0.0)
    batches = (BatchPhase(0, 8192), BatchPhase(18_500, 7680), BatchPhase(21_010, 8192))
    clip, skip = GUARDS
    first = _spec("1a", SPLIT, optimizer=optimizer, schedule=warmup, batch_size=batches, start=None)
    spared = _spec("1d", SPIKES - UNGUARDED, keep_steps=(RESCUED - UNGUARDED,))
    silent = "warm-up of 2,000 steps: 1 % of a length that is not stated"
    return (
        Phase("1a", first, NEMOTRON_PT, chosen=silent),
        Phase("1b", _spec("1b", GUARDED - SPLIT), NEMOTRON_PT, From("1a", SPLIT)),
        Phase(
            "1c",
            _spec("1c", UNGUARDED - GUARDED, clip_update_norm=clip, skip_bad_steps=skip),
            NEMOTRON_PT,
            From("1b", GUARDED - SPLIT),
        ),
        Phase(
            "1d", spared, NEMOTRON_PT, From("1c", UNGUARDED - GUARDED), chosen="both guards off from 74,000: stated as about"
        ),
    )


def marin_32b() -> History:
    """The whole graph; Mantis was published."""
    clip, skip = GUARDS
    rebuilt = replace(CARRIED, guards="rebuilt")
    necro = _spec("necromancy", RESCUE_STEPS, clip_update_norm=clip, skip_bad_steps=skip, start=rebuilt)
    switch = replace(CARRIED, new_parameters=("k_norm", "q_norm"), data="continued")
    qk = _spec(
        "3", SWITCHED - SPIKES, model=QWEN3, schedule=WarmupStableDecay(PEAK, warmup_steps=1_000, decay_frac=0.0), start=switch
    )
    cooldown = _spec(
        "bison", COOLDOWN, model=QWEN3, optimizer=AdamCConfig(weight_decay=0.05, max_grad_norm=0.2),
        schedule=_falling(0, COOLDOWN), start=FRESH,
    )  # fmt: skip
    mantis = replace(cooldown, name="marin-32b-mantis", num_steps=ADDED, schedule=_falling(0, ADDED))
    stack = replace(
        mantis, name="marin-32b-mantis-stackv2", num_steps=COOLDOWN - ADDED, schedule=_falling(ADDED, COOLDOWN), start=CARRIED
    )
    few = "3,000 steps: stated as a few thousand"
    moments = "fresh moments, because the rule changes; the last rate, a tenth of the peak"
    phases = (
        *_first_phases(),
        Phase("necromancy", necro, NEMOTRON_PT, From("1d", SPIKES - UNGUARDED), "abandoned", "spikes return", few),
        _rescue("nadamw", NAdamWConfig(beta1=0.95, weight_decay=0.05, max_grad_norm=0.2), HOLD, "spikes return", few),
        _rescue("muon", MuonConfig(weight_decay=0.05), replace(HOLD, peak_learning_rate=2e-3), "spikes return", few),
        Phase("3", qk, NEMOTRON_PT, From("1d", SPIKES - UNGUARDED)),
        Phase(
            "bison", cooldown, BISON, From("3", SWITCHED - SPIKES), "abandoned",
            "GSM8K's test set was in all_math, and batches came in phases near step 190,000", moments,
        ),
        Phase("mantis", mantis, MANTIS, From("3", SWITCHED - SPIKES), chosen=moments),
        Phase(
            "mantis-stackv2", stack, None, From("mantis", ADDED), "published",
            chosen=(
                "from step 174,000, stated as about; the share of common_pile_stackv2_edu_filtered_python is not stated, and "
                "the rest of the high-quality part was scaled to make room"
            ),
        ),
    )  # fmt: skip
    phases = tuple(replace(phase, hardware=HARDWARE) for phase in phases)
    return History("marin_32b", phases, _stated(phases), CONTRADICTIONS)


def _falling(first: int, last: int) -> CycleSchedule:
    """The steps [first, last) of the cooldown's one line from the peak to a tenth of it."""
    start, end = (PEAK * (1 - 0.9 * step / COOLDOWN) for step in (first, last))
    return CycleSchedule(start, decay="linear", min_lr_ratio=end / start)


CONTRADICTIONS = (
    Contradiction("largest gradient norm", ".2 (table)", "1.0 until about step 56,400 (outline)", "both, by step"),
    Contradiction("the clip of update norms", "on (table)", "from step 72,233, off from about 74,000 to 80,000", "by step"),
    Contradiction("decay", "40 % of the steps (table)", "none before step 160,000, then 32,000 steps", "the steps"),
    Contradiction(
        "hardware", "v5p-512 multislices, then v4-2048 (outline)", "v4-2048 (retrospective)", "v4-2048 in least days"
    ),
    Contradiction("StackV2's Python", "in the text, from about step 174,000", "in no table of shares", "a phase without a mix"),
)


def _stated(phases: tuple[Phase, ...]) -> tuple[Stated, ...]:
    by_name = {phase.name: phase for phase in phases}
    first = sum(by_name[name].tokens for name in ("1a", "1b", "1c", "1d")) / 1e12
    third, cooldown = by_name["3"].tokens / 1e12, by_name["bison"].tokens / 1e12
    blocks = LLAMA.num_parameters - 2 * LLAMA.vocab_size * LLAMA.hidden_dim
    return (
        Stated("tokens of phase 1, T", 2.679, first, 3),
        Stated("tokens of phase 3, T", 2.684, third, 3),
        Stated("tokens of Bison, T", 1.074, cooldown, 3),
        Stated("tokens of Mantis, T", 1.074, sum(by_name[name].tokens for name in ("mantis", "mantis-stackv2")) / 1e12, 3),
        Stated("tokens of the published model, T", 6.437, first + third + cooldown, 3),
        Stated("parameters with both embeddings, B", 32.5, LLAMA.num_parameters / 1e9, 1, "32B in its name"),
        Stated("parameters without embeddings, B", 31.2, blocks / 1e9, 1),
        Stated("share of the cooldown in all steps, %", 16.7, 100 * COOLDOWN / 192_000, 1),
    )
