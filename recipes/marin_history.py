"""The mixes of the 8B and 32B retrospectives as data: phases by step, shares in per cent, batch sizes.

The numbers are those of Marin's 8B and 32B retrospectives. Where only tokens are stated, steps are those tokens divided
by the batch, and `exact_steps` is false. Shares are as printed, rounded to a hundredth or a tenth, so a table may miss
100 by some hundredths; a mixture divides by their sum.
"""

from dataclasses import dataclass

from lineage.order.batches import BatchPhase, BatchSchedule
from lineage.order.mixture import MixtureConfig, StepPhase, phases_by_step
from lineage.order.permutation import ShuffleName

SEQ_LEN = 4096
MIXTURE_BLOCK = 512
"""A divisor of every batch of both histories (one is 7,680), so that a phase may begin at any step."""
INTERPOLATED_STEPS = 2_000
"""Steps of the 8B run in which Jellyfish's mix and rate go over linearly into Phoenix's."""
INTERPOLATED_PARTS = 20
"""Parts of constant shares in which a mix goes over into another, since a mixture's weights hold from a step on."""
type Mix = tuple[tuple[str, float], ...]


def interpolated(old: Mix, new: Mix, steps: int, parts: int = INTERPOLATED_PARTS) -> tuple[StepPhase, ...]:
    """A mix that goes over linearly into another in `steps`, in equal parts, each at the mean of its part.

    Raises: ValueError if the parts are not of whole steps.
    """
    if steps % parts:
        raise ValueError(f"{steps:,} steps in {parts} parts are no whole steps; give a divisor of {steps:,}")
    middles = [(part + 0.5) / parts for part in range(parts)]
    return tuple(StepPhase(part * steps // parts, _between(old, new, middle)) for part, middle in enumerate(middles))


def _between(old: Mix, new: Mix, share: float) -> Mix:
    weights: dict[str, float] = {}
    for mix, part in ((old, 1 - share), (new, share)):
        total = sum(value for _, value in mix)
        for name, value in mix:
            weights[name] = weights.get(name, 0.0) + 100 * part * value / total
    return tuple(weights.items())


@dataclass(frozen=True)
class HistoryPhase:
    """Steps `[start_step, end_step)` of a history, on one mix."""

    name: str
    start_step: int
    end_step: int
    mix: Mix
    """(dataset, share in per cent)."""
    exact_steps: bool = True
    note: str = ""
    before: Mix = ()
    """A mix that goes over linearly into `mix` during the phase; empty: `mix` holds from its start."""

    @property
    def weights(self) -> tuple[StepPhase, ...]:
        """The mix by step of the run."""
        if not self.before:
            return (StepPhase(self.start_step, self.mix),)
        parts = interpolated(self.before, self.mix, self.end_step - self.start_step)
        return tuple(StepPhase(self.start_step + part.start_step, part.weights) for part in parts)


@dataclass(frozen=True)
class History:
    """A run as a list of phases."""

    name: str
    phases: tuple[HistoryPhase, ...]
    batches: BatchSchedule
    shuffle: ShuffleName
    """Shuffle of the last phase. If that phase began a new order (Mantis), earlier phases used `linear`."""
    stated_tokens: float
    """Tokens of all phases together, as the retrospective states them."""

    def tokens(self, phase: HistoryPhase) -> int:
        """Tokens of a phase."""
        return (self.batches.first(phase.end_step) - self.batches.first(phase.start_step)) * SEQ_LEN

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens(phase) for phase in self.phases)

    def mixture(self, seed: int) -> MixtureConfig:
        """The history as one mixture in one shuffle, to be bound to caches of these names."""
        declared = [part for phase in self.phases for part in phase.weights]
        phases = phases_by_step(declared, self.batches, MIXTURE_BLOCK)
        return MixtureConfig(self.name, phases, seed, self.shuffle, MIXTURE_BLOCK)


NEMOTRON_PT: Mix = (
    ("nemotron_cc/medium", 30.69),
    ("nemotron_cc/hq_synth", 24.70),
    ("nemotron_cc/medium_low", 13.98),
    ("nemotron_cc/hq_actual", 8.30),
    ("nemotron_cc/medium_high", 7.49),
    ("nemotron_cc/low_actual", 6.37),
    ("nemotron_cc/low_synth", 5.70),
    ("starcoderdata", 2.27),
    ("proofpile_2", 0.50),
)
COOLDOWN_WEB: Mix = (
    ("nemotron_cc/medium", 21.49),
    ("nemotron_cc/hq_synth", 17.29),
    ("nemotron_cc/medium_low", 9.79),
    ("nemotron_cc/hq_actual", 5.81),
    ("nemotron_cc/medium_high", 5.24),
    ("nemotron_cc/low_actual", 4.46),
    ("nemotron_cc/low_synth", 3.99),
)
BISON: Mix = (
    *COOLDOWN_WEB,
    ("arxiv_markdownified", 7.41),
    ("dolmino/pes2o", 7.41),
    ("finemath-3-plus", 4.33),
    ("dolmino/flan", 4.33),
    ("stackexchange_custom", 2.18),
    ("dolmino/stackexchange", 2.18),
    ("starcoderdata", 1.59),
    ("all_math", 1.08),
    ("proofpile_2", 0.35),
    ("wikipedia_markdown", 0.47),
    ("dolmino/wiki", 0.47),
    ("medu_science_qa", 0.15),
)
MANTIS: Mix = (
    *COOLDOWN_WEB,
    ("megamath/web", 5.57),
    ("arxiv_markdownified", 4.54),
    ("megamath/text_code_block", 4.24),
    ("dolmino/pes2o", 4.54),
    ("megamath/web_pro", 1.27),
    ("megamath/translated_code", 0.61),
    ("megamath/qa", 0.59),
    ("finemath-3-plus", 2.66),
    ("dolmino/flan", 2.66),
    ("stackexchange_custom", 1.34),
    ("dolmino/stackexchange", 1.34),
    ("starcoderdata", 1.59),
    ("proofpile_2", 0.35),
    ("wikipedia_markdown", 0.29),
    ("dolmino/wiki", 0.29),
    ("medu_science_qa", 0.09),
)
KESTREL: Mix = (("DCLM Baseline", 92.6), ("StarCoder Data", 6.1), ("ProofPile 2", 1.3))
JELLYFISH: Mix = (
    ("Dolmino DCLM HQ", 67.8),
    ("Dolma peS2o", 10.8),
    ("FineMath 3+", 6.3),
    ("Dolma ArXiv", 5.2),
    ("Dolma StackExchange", 3.2),
    ("StarCoder", 2.2),
    ("Dolma Algebraic Stack", 2.1),
    ("Dolma Open Web Math", 0.9),
    ("Dolma Megawika", 0.8),
    ("Dolma Wikipedia", 0.7),
)
STARLING: Mix = (
    ("Nemotron CC Medium", 22.1),
    ("Nemotron CC HQ Synth", 17.8),
    ("Nemotron CC Medium Low", 10.1),
    ("Nemotron CC HQ Actual", 6.0),
    ("Nemotron CC Medium High", 5.4),
    ("Nemotron CC Low Actual", 4.6),
    ("Nemotron CC Low Synth", 4.1),
    ("Marin ArXiv Markdown", 5.2),
    ("Dolmino peS2o", 5.2),
    ("StarCoder Data", 4.5),
    ("ProofPile 2", 4.5),
    ("FineMath 3+", 3.0),
    ("Dolmino FLAN", 3.0),
    ("Dolmino StackExchange", 1.5),
    ("Marin StackExchange Markdown", 1.5),
    ("Dolmino Math", 0.8),
    ("Marin Wikipedia Markdown", 0.3),
    ("Dolmino Wiki", 0.3),
    ("Marin Datashop Science QA", 0.1),
)


def marin_32b(cooldown: str) -> History:
    """The 32B run with its cooldown `bison` (linear shuffle, leaked GSM8K) or `mantis` (Feistel, MegaMath).

    The two share steps 0 to 160,000. Mantis added StackV2's Python at about step 174,000, with weights that are not stated.
    Raises: ValueError for another name.
    """
    cooldowns: dict[str, tuple[Mix, ShuffleName, str]] = {
        "bison": (BISON, "linear", "abandoned: GSM8K's test set was in all_math, and batches came in phases near 190k"),
        "mantis": (MANTIS, "feistel_levanter", "StackV2 Python from about step 174k on, with weights that are not stated"),
    }
    if cooldown not in cooldowns:
        raise ValueError(f"cooldown {cooldown!r} of the 32B run; allowed: {', '.join(cooldowns)}")
    mix, shuffle, note = cooldowns[cooldown]
    return History(
        f"marin_32b_{cooldown}",
        (
            HistoryPhase("1 (Llama)", 0, 80_000, NEMOTRON_PT),
            HistoryPhase("3 (QK-norm)", 80_000, 160_000, NEMOTRON_PT, note="phase 2's restarts were discarded"),
            HistoryPhase(f"4 ({cooldown})", 160_000, 192_000, mix, note=note),
        ),
        BatchSchedule((BatchPhase(0, 8192), BatchPhase(18_500, 7680), BatchPhase(21_010, 8192))),
        shuffle,
        stated_tokens=6.437e12,
    )


def marin_8b() -> History:
    """The 8B run, Kestrel to Starling. Phoenix's mix is that of the 32B run, which says that it mirrors it.

    Starling ends at 11.1 + 1.34 T tokens: the cooldown's length is stated exactly, the timeline's 12.75 T as "about".
    """
    small, middle, large = 1024, 3072, 4096  # 4, 12 and 16 Mi tokens
    kestrel = _steps(2.77e12, small)
    ocelot = kestrel + _steps(3.78e12 - 2.77e12, middle)
    jellyfish = ocelot + 79_500
    joined = jellyfish + INTERPOLATED_STEPS
    phoenix = jellyfish + _steps(11.1e12 - 4.78e12, middle)
    starling = phoenix + _steps(1.34e12, large)
    return History(
        "marin_8b",
        (
            HistoryPhase("Kestrel", 0, kestrel, KESTREL, False, "4 Mi tokens a step, to 2.77 T"),
            HistoryPhase("Ocelot", kestrel, ocelot, KESTREL, False, "12 Mi tokens a step from 2.77 T on"),
            HistoryPhase("Jellyfish", ocelot, jellyfish, JELLYFISH, True, "1 T tokens of cooldown"),
            HistoryPhase("Phoenix 1", jellyfish, joined, NEMOTRON_PT, True, "linearly from Jellyfish's mix", JELLYFISH),
            HistoryPhase("Phoenix 2", joined, phoenix, NEMOTRON_PT, False),
            HistoryPhase("Starling", phoenix, starling, STARLING, False, "16 Mi tokens a step; 1.34 T of cooldown"),
        ),
        BatchSchedule((BatchPhase(0, small), BatchPhase(kestrel, middle), BatchPhase(phoenix, large))),
        "linear",
        stated_tokens=12.44e12,
    )


def named_mixes() -> dict[str, Mix]:
    """The stated mixes, by the name of the phase that first read them."""
    return {
        "kestrel": KESTREL,
        "jellyfish": JELLYFISH,
        "nemotron_pt": NEMOTRON_PT,
        "starling": STARLING,
        "bison": BISON,
        "mantis": MANTIS,
    }


def histories() -> tuple[History, ...]:
    """All declared histories."""
    return (marin_8b(), marin_32b("bison"), marin_32b("mantis"))


def _steps(tokens: float, batch_size: int) -> int:
    return round(tokens / (batch_size * SEQ_LEN))
