"""The 8B run as phases: Kestrel to Starling, the abandoned cooldowns Raccoon and Spoonbill, and the SFT probe.

Numbers: the published outline of both runs. Where the documents are silent, `chosen` says what stands here.
"""

from dataclasses import replace

from recipes.histories.phase import Contradiction, From, History, Phase, Stated
from recipes.marin_history import INTERPOLATED_STEPS, JELLYFISH, KESTREL, NEMOTRON_PT, SEQ_LEN, STARLING
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.decoder import Llama3RopeScaling
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig, EmaConfig
from trainer.spec.schedules import CycleSchedule, WarmupStableDecay

LLAMA_2 = LlamaConfig(128_256, 4096, 14_336, 32, 32, 8, SEQ_LEN, tie_embeddings=False)
LLAMA_3 = replace(LLAMA_2, rope_theta=500_000.0, rope_scaling=Llama3RopeScaling())
SMALL, MIDDLE, LARGE = 1024, 3072, 4096
"""Sequences a step: 4, 12 and 16 Mi tokens."""
FULL, LOW, LOWEST = 1.7e-3, 1.7e-4, 1.7e-5
CARRIED = WarmStart(optimizer="carried", data="continued")


def _steps(tokens: float, batch: int) -> int:
    return round(tokens / (batch * SEQ_LEN))


def _spec(name: str, steps: int, **changed: object) -> RunSpec:
    fields = {
        "model": LLAMA_3, "optimizer": AdamWConfig(weight_decay=0.05), "batch_size": MIDDLE, "seq_len": SEQ_LEN,
        "schedule": WarmupStableDecay(FULL, warmup_steps=0, decay_frac=0.0), "num_steps": steps, "seed": 0, "start": CARRIED,
        "compute": ComputeConfig(dtype="bfloat16", remat="full"),
    }  # fmt: skip
    return RunSpec(f"marin-8b-{name}", **(fields | changed))  # type: ignore[arg-type]


def _fall(start: float, end: float) -> CycleSchedule:
    return CycleSchedule(start, decay="linear", min_lr_ratio=end / start)


def _kestrel() -> tuple[Phase, Phase]:
    """WSD-S: a decay of 1,000 steps every 10,000 until step 200,000, then 2,000 every 20,000."""
    total, change = _steps(2.77e12, SMALL), 200_000
    fields = {"model": LLAMA_2, "batch_size": SMALL, "save_every_steps": 20_000}
    early = CycleSchedule(1e-3, 1_000, "linear", 1_000, tuple(range(10_000, change + 1, 10_000)))
    ends = (*range(20_000, total - change, 20_000), -(-(total - change) // 20_000) * 20_000)
    late = CycleSchedule(1e-3, 0, "linear", 2_000, ends)
    silent = "warm-up of 1,000 steps, decay to a tenth, no re-warm-up"
    return (
        Phase("kestrel-1", _spec("kestrel-1", change, schedule=early, start=None, **fields), KESTREL, chosen=silent),
        Phase(
            "kestrel-2", _spec("kestrel-2", total - change, schedule=late, **fields), KESTREL, From("kestrel-1", change),
            chosen=silent,
        ),
    )  # fmt: skip


def _phoenix(before: Phase) -> tuple[Phase, Phase]:
    """2,000 steps in which mix and rate go over linearly, then the new mix."""
    rise = WarmupStableDecay(FULL, warmup_steps=INTERPOLATED_STEPS, decay_frac=0.0, start_lr_ratio=LOW / FULL)
    steps = _steps(11.1e12 - 4.78e12, MIDDLE) - INTERPOLATED_STEPS
    return (
        Phase(
            "phoenix-1", _spec("phoenix-1", INTERPOLATED_STEPS, schedule=rise), NEMOTRON_PT,
            From(before.name, before.spec.num_steps), chosen="the mix goes over in 20 parts of 100 steps",
            mix_before=JELLYFISH,
        ),
        Phase("phoenix-2", _spec("phoenix-2", steps), NEMOTRON_PT, From("phoenix-1", INTERPOLATED_STEPS)),
    )  # fmt: skip


def marin_8b() -> History:
    """The whole graph; Starling was published, and the SFT probe starts from it."""
    ocelot_steps, starling_steps = _steps(3.78e12 - 2.77e12, MIDDLE), _steps(1.34e12, LARGE)
    kestrel = _kestrel()
    rope = replace(CARRIED, changed_fields=("rope_theta", "rope_scaling"))
    ocelot = Phase(
        "ocelot", _spec("ocelot", ocelot_steps, start=rope, ema=EmaConfig(0.995)), KESTREL,
        From("kestrel-2", kestrel[1].spec.num_steps), chosen="the change of RoPE at its start; when in Ocelot is not stated",
    )  # fmt: skip
    jellyfish = Phase(
        "jellyfish", _spec("jellyfish", 79_500, schedule=_fall(FULL, LOW)), JELLYFISH, From("ocelot", ocelot_steps)
    )
    end = From("jellyfish", 79_500)
    short = _steps(1e11, MIDDLE)
    raccoon = _spec("raccoon", short, schedule=_fall(LOW, LOWEST))
    spoonbill = _spec("spoonbill", short, schedule=_fall(LOW, 3e-5))
    phoenix = _phoenix(jellyfish)
    starling = _spec("starling", starling_steps, schedule=_fall(FULL, LOWEST), batch_size=LARGE, z_loss_weight=1e-4)
    sft = _spec("sft", 10_240, schedule=_fall(LOW, LOWEST), batch_size=128, z_loss_weight=1e-4, start=WarmStart())
    phases = (
        *kestrel,
        ocelot,
        jellyfish,
        Phase("raccoon", raccoon, JELLYFISH, end, "abandoned", "loss creeps upward", "Jellyfish's mix"),
        Phase(
            "spoonbill", spoonbill, None, end, "abandoned", "loss creeps upward: the norm of lm_head explodes without z-loss",
            "100 B tokens as Raccoon; Tulu v3 .3 % and FLAN 1 % are stated, the rest of the mix is not",
        ),
        *phoenix,
        Phase("starling", starling, STARLING, From("phoenix-2", phoenix[1].spec.num_steps), "published"),
        Phase("sft", sft, None, From("starling", starling_steps), chosen="mix stated by names only; the rate falls to 1.7e-5"),
    )  # fmt: skip
    where = {"kestrel-1": "2xv5e-256", "kestrel-2": "2xv5e-256", "sft": ""}
    phases = tuple(replace(phase, hardware=where.get(phase.name, "v4-2048")) for phase in phases)
    return History("marin_8b", phases, _stated(History("marin_8b", phases)), CONTRADICTIONS)


CONTRADICTIONS = (
    Contradiction("Kestrel's end", "2.7 T (table)", "2.77 T (text, where the batch grows)", "2.77 T, with the larger batch"),
    Contradiction(
        "Starling's length", "1.34 T (text)", "12.75 - 11.1 = 1.65 T (timeline)", "1.34 T: the timeline is 'approximate'"
    ),
    Contradiction("names of Nemotron's buckets", "nemotron_cc/medium (32B)", "Nemotron CC Medium (8B)", "each as its document"),
)


def _stated(history: History) -> tuple[Stated, ...]:
    def end(name: str) -> float:
        phase = history.by_name[name]
        return (history.tokens_at_start(phase) + phase.tokens) / 1e12

    return (
        Stated("Kestrel's end, T tokens", 2.77, end("kestrel-2"), 2, "2.7 in the table of phases"),
        Stated("Ocelot's end, T tokens", 3.78, end("ocelot"), 2),
        Stated("Jellyfish's end, T tokens", 4.78, end("jellyfish"), 2),
        Stated("Phoenix's end, T tokens", 11.1, end("phoenix-2"), 1),
        Stated("the interpolation, B tokens", 25.2, history.by_name["phoenix-1"].tokens / 1e9, 1),
        Stated(
            "Starling's length, T tokens",
            1.34,
            history.by_name["starling"].tokens / 1e12,
            2,
            "12.75 - 11.1 = 1.65 by the timeline",
        ),
        Stated("SFT, Gi tokens", 5, history.by_name["sft"].tokens / 2**30, 0),
        Stated("parameters, B", 8, LLAMA_3.num_parameters / 1e9, 0),
    )
