"""The 32B history divided by a thousand: run specs and mixtures of its line to Bison and to Mantis.

Steps and sequences a step are a thousandth of the declared ones. Rules, clips, guards, average, z-loss, warm starts and the
shape of the schedules are the declared ones. The model, the length of a sequence and the peak rate are small.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig
from lineage.order.mixture import Phase as MixPhase
from lineage.order.permutation import ShuffleName
from recipes.histories.marin_32b import PEAK, marin_32b
from recipes.histories.phase import History, Phase
from recipes.marin_history import COOLDOWN_WEB, MANTIS, Mix
from scenarios import nodes
from scenarios.nodes import BUNDLE, Recipe
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.schedules import CycleSchedule

DIVISOR = 1_000
BISON, MANTIS_END = "bison", "mantis-stackv2"
ENDS = (BISON, MANTIS_END)
STACK_SHARE = 5.0
"""Per cent of StackV2's Python in the last phase: the documents do not state it."""
LEAKY, CLEAN = ("all_math",), "megamath/"
"""Datasets that the bundle stands for: with its test file in Bison, without it in Mantis."""
MIXTURE_SEED = 17


@dataclass(frozen=True)
class Miniature:
    """Sizes of a replay."""

    model: LlamaConfig
    batch_size: int
    seq_len: int
    divisor: int
    peak_learning_rate: float
    web: str
    """The lab's source that stands for Nemotron's buckets."""
    docs: str
    """The one that stands for all else but the math of the cooldowns; it may be the same."""

    @property
    def block(self) -> int:
        """Sequences in which a mix holds: those of a whole cooldown, because all_math has one in a hundred."""
        return self.batch_size * round(32_000 / self.divisor)


def thousandth() -> Miniature:
    """`make histories`: 192 steps of 8 sequences from the first to the last phase."""
    model = LlamaConfig(2048, hidden_dim=64, intermediate_dim=160, num_layers=4, num_heads=4, num_kv_heads=2, max_seq_len=256)
    return Miniature(model, 8, 256, DIVISOR, peak_learning_rate=4e-3, web="vendored_prose", docs="python_topics")


def replayed() -> History:
    """The declared history whose phases are replayed."""
    return marin_32b()


def lines(history: History) -> list[Phase]:
    """The phases that lead to one of both ends, in the order of their start."""
    wanted = {phase.name for end in ENDS for phase in history.line_to(end)}
    return [phase for phase in history.phases if phase.name in wanted]


def first_step(history: History, phase: Phase) -> int:
    """The declared step of the whole run at which a phase starts."""
    return 0 if phase.start is None else first_step(history, history.by_name[phase.start.phase]) + phase.start.step


def small_step(history: History, phase: Phase, size: Miniature) -> int:
    """The same step in the replay."""
    return round(first_step(history, phase) / size.divisor)


def small_spec(history: History, phase: Phase, size: Miniature) -> RunSpec:
    """A declared phase as a run of the replay."""
    declared, begin = phase.spec, first_step(history, phase)
    assert isinstance(declared.model, LlamaConfig)
    schedule = declared.schedule
    peak = size.peak_learning_rate * schedule.peak_learning_rate / PEAK
    warmup = -(-schedule.warmup_steps // size.divisor)
    if isinstance(schedule, CycleSchedule):
        shape = {"cycles": 1, "decay_steps": None}  # every declared cycle of this run is one fall over the whole phase
        schedule = replace(schedule, peak_learning_rate=peak, warmup_steps=warmup, **shape)
    else:
        schedule = replace(schedule, peak_learning_rate=peak, warmup_steps=warmup)
    return replace(
        declared,
        name=f"replay-{phase.name}",
        model=replace(size.model, qk_norm=declared.model.qk_norm),
        schedule=schedule,
        batch_size=size.batch_size,
        seq_len=size.seq_len,
        num_steps=round((begin + declared.num_steps) / size.divisor) - round(begin / size.divisor),
        keep_steps=(),
        compute=ComputeConfig(),
    )


def mix_of(phase: Phase) -> Mix:
    """The declared mix; for the last phase Mantis's, whose high-quality part makes room for StackV2's Python."""
    if phase.mix is not None:
        return phase.mix
    web = {name for name, _ in COOLDOWN_WEB}
    rest = sum(share for name, share in MANTIS if name not in web)
    room = (rest - STACK_SHARE) / rest
    kept = tuple((name, share if name in web else share * room) for name, share in MANTIS)
    return (*kept, ("common_pile_stackv2_edu_filtered_python", STACK_SHARE))


def weights(mix: Mix, size: Miniature) -> dict[str, float]:
    """Shares of the lab's sources that stand for the datasets of a mix."""
    shares: dict[str, float] = {}
    for name, share in mix:
        is_math = name in LEAKY or name.startswith(CLEAN)
        source = BUNDLE if is_math else size.web if name.startswith("nemotron_cc/") else size.docs
        shares[source] = shares.get(source, 0.0) + share
    return shares


def mixture(recipe: Recipe, phase: Phase, size: Miniature) -> Node:
    """The mixture of a phase. Phases 1 and 3 share one; a cooldown has its own, Mantis's in Levanter's Feistel order."""
    shares = weights(mix_of(phase), size)
    is_cooldown = BUNDLE in shares
    name = f"replay-{phase.name}" if is_cooldown else "replay-pretraining"
    shuffle: ShuffleName = "feistel_levanter" if phase.name.startswith("mantis") else "linear"
    config = MixtureConfig(name, (MixPhase(0, shares),), MIXTURE_SEED, shuffle, size.block)
    caches = tuple(nodes.token_cache(recipe, source) for source in shares)
    return Node(("mixture", name), None, MIXTURE, config, {"caches": caches})


def checkpoints(before: Recipe, after: Recipe, size: Miniature) -> Mapping[str, Node]:
    """The last checkpoint of every phase by name. Bison reads the bundle of `before`, Mantis that of `after`."""
    history, by_phase = replayed(), dict[str, Node]()
    for phase in lines(history):
        recipe = after if phase.name.startswith("mantis") else before
        start = None if phase.start is None else by_phase[phase.start.phase]
        by_phase[phase.name] = nodes.checkpoint(small_spec(history, phase, size), mixture(recipe, phase, size), start)
    return by_phase
