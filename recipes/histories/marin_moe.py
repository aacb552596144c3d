"""The mixtures of experts as phases: the 1e22 run with its capacity factors, the 1e23 run with two attempts, the June model.

Numbers: Marin's weekly summary of 2026-04-06, the roadmap of May 2026 and issues #3800, #4447 and #4697
(docs/references.md#marin-moe). Where they are silent, `chosen` says what stands here.
"""

from dataclasses import replace

from recipes.histories.phase import Contradiction, From, History, Phase, Stated, Utilisation
from recipes.marin_history import SEQ_LEN
from science.heuristics import ADAMH_OVER_ADAM, MOE_BETA1, MOE_BETA2_BASE_PUBLISHED, moe_adamh_learning_rate, moe_beta2
from trainer.spec.compute import ComputeConfig, Exchange
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.moe import ExpertsConfig, ExtrasConfig, LongShortConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import AdamHConfig, MuonHConfig
from trainer.spec.schedules import WarmupStableDecay

VOCABULARY = 128_256
V4_FLOPS = 275e12
SMALL_BATCH, LARGE_BATCH = 1024, 2048
"""Sequences a step: 4 and 8 Mi tokens."""
SMALL_STEPS, LARGE_STEPS = 77_724, 120_331
TAIL = 100
"""Steps of each resumed copy of the 1e22 run."""
CRASHED_FLOPS, EARLY_FLOPS = 7.66e20, 2.06e21
"""Of the first attempt at 1e23 in all, and of the second when the summary was written."""
SMALL = MoeConfig(
    VOCABULARY, 3200, 3200, 32, 25, 25, SEQ_LEN, experts=ExpertsConfig(64, 1600, shared_dim=3200, capacity_factor=1.0),
    router=RouterConfig(4),
)  # fmt: skip
LARGE = MoeConfig(
    VOCABULARY, 5120, 5120, 48, 40, 10, SEQ_LEN, experts=ExpertsConfig(64, 2560, shared_dim=5120), router=RouterConfig(4),
    extras=ExtrasConfig(128, exclude_self=True, head_gate=True, rope_share=0.5, long_short=LongShortConfig(4, 2048)),
)  # fmt: skip
PLAIN = replace(LARGE, extras=ExtrasConfig())
"""The shape by which the documents count: without gates and windows."""


def _spec(name: str, model: MoeConfig, batch: int, steps: int, peak: float, exchange: Exchange = "ring") -> RunSpec:
    beta2 = moe_beta2(batch, MOE_BETA2_BASE_PUBLISHED)
    return RunSpec(
        name=name,
        model=model,
        optimizer=AdamHConfig(beta1=MOE_BETA1, beta2=beta2, adam_lr_ratio=1 / ADAMH_OVER_ADAM),
        schedule=WarmupStableDecay(peak, warmup_steps=steps // 10, decay_frac=0.9, min_lr_ratio=0.0),
        batch_size=batch,
        seq_len=SEQ_LEN,
        num_steps=steps,
        seed=0,
        z_loss_weight=1e-4,
        compute=ComputeConfig(dtype="bfloat16", remat="full", exchange=exchange),
    )


def marin_1e22() -> History:
    """One run until its last steps, then three resumed copies of it that differ in their capacity factor."""
    peak = ADAMH_OVER_ADAM * 2943.27 * 1e22**-0.334 * (SMALL_BATCH / 32) ** 0.5
    whole = _spec("marin-1e22", SMALL, SMALL_BATCH, SMALL_STEPS, peak)
    before = SMALL_STEPS - TAIL
    left = TAIL / (SMALL_STEPS - SMALL_STEPS // 10)
    falling = WarmupStableDecay(
        peak, warmup_steps=SMALL_STEPS // 10, decay_frac=1 - SMALL_STEPS // 10 / before, min_lr_ratio=left
    )
    first = replace(whole, num_steps=before, schedule=falling)

    def copy(name: str, factor: float) -> RunSpec:
        model = replace(SMALL, experts=replace(SMALL.experts, capacity_factor=factor))
        last = WarmupStableDecay(peak * left, warmup_steps=0, decay_frac=1.0, min_lr_ratio=0.0)
        carried = WarmStart(optimizer="carried", data="continued")
        return replace(whole, name=f"marin-1e22-{name}", model=model, num_steps=TAIL, schedule=last, start=carried)

    shape = (
        "the shape by depth 32, plain attention of 25 heads and experts of 1,600: of those tried, only it has all four "
        "published numbers; the rate by the rule before v16"
    )
    resumed = "the step of the resume is not stated; .2 to .3 hours at 38 % are about 100 steps"
    on = {"hardware": "v4-256"}
    start = From("train", before)
    phases = (
        Phase(
            "train", first, None, chosen=shape, **on,
            resumes=(
                "resumes crashed in broadcast_one_to_all while trainable weights were in tuple[Block, ...]; the copies loaded "
                "the latest checkpoint into a new folder and log (#4458)"
            ),
        ),
        Phase(
            "v2", copy("v2", 1.0), None, start, "compared", chosen=resumed, **on, utilisation=Utilisation(0.19, 256, V4_FLOPS),
            measured="capacity factor 1: Paloma macro 2.459, bits per byte .750",
        ),
        Phase(
            "v3", copy("v3", 2.0), None, start, "compared", utilisation=Utilisation(0.37, 256, V4_FLOPS), **on,
            chosen=f"capacity factor 2: not stated, its bits per byte lie between those of 1 and 4; {resumed}",
            measured="bits per byte .738",
        ),
        Phase(
            "v4", copy("v4", 4.0), None, start, "final", chosen=resumed, **on, utilisation=Utilisation(0.38, 256, V4_FLOPS),
            measured="capacity factor 4: Paloma macro 2.432, bits per byte .733; uncheatable macro 1.968",
        ),
    )  # fmt: skip
    return History("marin_1e22", phases, _stated_1e22(whole), CONTRADICTIONS_1E22)


def _stated_1e22(whole: RunSpec) -> tuple[Stated, ...]:
    model, every = SMALL, Phase("all", whole, None)
    embedding = VOCABULARY * model.hidden_dim
    return (
        Stated("parameters, B", 34.6, model.num_parameters / 1e9, 1),
        Stated("active parameters without the embedding table, B", 4.7, (model.active_parameters - embedding) / 1e9, 1),
        Stated("tokens, B", 326, every.tokens / 1e9, 0),
        Stated("tokens a step, M", 4, whole.step_tokens(0) / 1e6, 0),
        Stated("training FLOPs, 1e22", 1.08, every.flops / 1e22, 2),
        Stated("training FLOPs without the head, 1e22", 1, every.headless_flops / 1e22, 0),
        Stated("FLOPs that v4's hardware could do, 1e22", 2.84, every.flops / 0.38 / 1e22, 2),
    )


CONTRADICTIONS_1E22 = (
    Contradiction("macro loss of v4", "2.432 (text)", "2.290 (v4's own line)", "2.432: its forecast is compared with it"),
    Contradiction("bits per byte of v4", ".742 (text)", ".733 (table)", ".733, beside those of v2 and v3"),
    Contradiction("length of v2 to v4", "three reruns of 1.08e22 FLOPs", ".2 to .3 hours", "the hours; FLOPs count the start"),
    Contradiction("chips of a v4-256", "256 (table)", "128 (Google's page)", "256 in a printed share, 128 in least days"),
)


def marin_1e23() -> History:
    """The preregistered run: an attempt that diverged, and the one that ended."""
    peak = moe_adamh_learning_rate(LARGE_STEPS * LARGE_BATCH * SEQ_LEN, LARGE.hidden_dim, LARGE_BATCH)
    whole = _spec("marin-1e23-ring", LARGE, LARGE_BATCH, LARGE_STEPS, peak)
    a_step = PLAIN.training_flops_per_token(SEQ_LEN) * LARGE_BATCH * SEQ_LEN
    crashed = round(CRASHED_FLOPS / a_step)
    rising = WarmupStableDecay(peak * crashed / (LARGE_STEPS // 10), warmup_steps=crashed, decay_frac=0.0)
    ragged = _spec("marin-1e23-ragged", LARGE, LARGE_BATCH, crashed, peak, "all_to_all")
    silent = "the mix by name only (Nemotron); its capacity factor is not stated, so nothing is dropped here"
    phases = (
        Phase(
            "ep8-ragged", replace(ragged, schedule=rising), None, None, "abandoned",
            "loss 8.89 after 7 B tokens: receive buffers were not clipped to their capacity (#4359)", hardware="v4-512",
            chosen=f"steps by its 7.66e20 FLOPs; experts over 8; {silent}", utilisation=Utilisation(0.17, 512, V4_FLOPS),
            measured="bits per byte 4.032",
        ),
        Phase(
            "ep4-ring", whole, None, None, "final", hardware="v4-512", utilisation=Utilisation(0.14, 512, V4_FLOPS),
            chosen=f"experts over 4; norms of queries and keys have weights; {silent}",
            measured="Paloma macro 2.234 at the end (2.2333 sealed), 2.4986 after about 487 B tokens",
            resumes=(
                'three crash-resumes before 487 B tokens, at steps that are not stated: wandb.init(resume="allow") made the '
                'launch ids of hosts differ; mended by a fresh id for each attempt and resume="never"'
            ),
        ),
    )  # fmt: skip
    return History("marin_1e23", phases, _stated_1e23(whole, phases[0].tokens), CONTRADICTIONS_1E23)


def _stated_1e23(whole: RunSpec, first_tokens: int) -> tuple[Stated, ...]:
    counted = Phase("counted", replace(whole, model=PLAIN), None)
    hours = {name: flops / Utilisation(share, 512, V4_FLOPS).flops_per_second / 3600
             for name, flops, share in (("first", CRASHED_FLOPS, 0.17), ("second", EARLY_FLOPS, 0.14))}  # fmt: skip
    return (
        Stated("parameters, B", 129, LARGE.num_parameters / 1e9, 0, "131 in the weekly summary"),
        Stated("active parameters, B", 16, LARGE.active_parameters / 1e9, 0, "13 in the milestone's title"),
        Stated("tokens a step, M", 8, whole.step_tokens(0) / 1e6, 0),
        Stated("tokens of the first attempt, B", 7, first_tokens / 1e9, 0),
        Stated("hours of the first attempt", 8.9, hours["first"], 1),
        Stated(
            "tokens of the second attempt in the summary, B", 20, EARLY_FLOPS / PLAIN.training_flops_per_token(SEQ_LEN) / 1e9, 0
        ),
        Stated("days of the second attempt in the summary", 1.2, hours["second"] / 24, 1),
        Stated("training FLOPs without the head, 1e23", 1, counted.headless_flops / 1e23, 2),
        Stated("steps", 120_331, whole.num_steps, 0, "about 1.02 T tokens, which are 121,593 steps; 1.2 T in the title"),
    )


CONTRADICTIONS_1E23 = (
    Contradiction("tokens", "about 1.02 T (sizing)", "1.2 T (milestone, launch)", "step 120,331, where it ended: 1.009 T"),
    Contradiction("parameters", "131 B (summary)", "129 B (roadmap)", "129 B, which the shape has"),
    Contradiction("active parameters", "about 16 B", "A13B (milestone's title)", "16 B, which the shape has"),
    Contradiction("the forecast of one formula", "2.25", "2.252, and 2.2555 with .094 as printed", "2.252, by .0941"),
    Contradiction("final macro loss", "2.234", "2.2333 (sealed record)", "both are kept"),
    Contradiction("chips of a v4-512", "512 (table)", "256 (Google's page)", "512 in a printed share, 256 in least days"),
)


def june_model() -> History:
    """The June model's trial on GPUs, as the roadmap of May plans it; the production run has no stated length.

    Its spec is that of `marin plan-run june` (`recipes/planned_runs.py`, which loads JAX) but for the layers.
    """
    experts = ExpertsConfig(64, 1280, shared_dim=2560)
    model = MoeConfig(VOCABULARY, 2560, 2560, 23, 20, 5, 8192, experts=experts, router=RouterConfig(4))
    trial = RunSpec(
        name="june-trial",
        model=model,
        optimizer=MuonHConfig(),
        schedule=WarmupStableDecay(2e-2, warmup_steps=10, decay_frac=0.9, min_lr_ratio=0.05),
        batch_size=512,
        microbatch_size=16,
        seq_len=8192,
        num_steps=1_000,
        seed=0,
        compute=ComputeConfig(dtype="bfloat16", remat="full"),
    )
    chosen = (
        "April's rules at d 2,560 with 23 layers, with which the total is 16 B (May's recipe has 256 experts; how many a token "
        "meets is not stated); 512 sequences a step; the rate"
    )
    phases = (Phase("gpu-trial", trial, None, None, "planned", chosen=chosen, hardware="2xh100x8"),)
    stated = (
        Stated("parameters, B", 16, model.num_parameters / 1e9, 0),
        Stated("active parameters, B", 2, model.active_parameters / 1e9, 0),
        Stated("steps, thousands", 1, trial.num_steps / 1e3, 0),
    )
    return History("june", phases, stated)
