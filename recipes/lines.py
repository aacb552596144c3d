"""A line: one declared walk from sources to a trained, evaluated and audited model.

Every asset of the graph is a node of some line, so the canonical graph, the daily ferry and the canary come from the same
functions (`recipes/data.py`, `recipes/runs.py`) and differ only in what is declared here: which sources, which names,
and where the artifacts go. A canonical line puts the source into the partition; a ferry puts the source into the key and
has the day as its one partition (DESIGN, section 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from datakit.corpus.filters import CorpusConfig
from datakit.dedup.duplicates import DuplicatesConfig
from datakit.dedup.minhash import preset
from datakit.quality.score_cutoff import ScoreCutoffConfig
from datakit.quality.scorer import ScorerConfig
from datakit.sources.source import Source
from datakit.tokens.formats import PLAIN, Chat, Prebuilt, TokenFormat
from datakit.tokens.tokenizer import END_OF_TEXT
from lineage.order.batches import BatchSchedule
from lineage.order.mixture import StepPhase
from lineage.order.packing import Packing
from lineage.order.permutation import Shuffle
from recipes.hardware import alternatives
from recipes.licences import permissive_only
from recipes.models import PublishedModel
from recipes.sources import catalogue
from trainer.spec.config import RunSpec
from trainer.spec.settings import RuntimeOptions

type Place = tuple[tuple[str, ...], str | None]
"""Key and partition of a node."""


@dataclass(frozen=True)
class Line:
    """The names and the choices of one walk through the graph."""

    sources: tuple[str, ...]
    """Sources of the corpus, in the order that breaks ties between duplicates."""

    scope: str
    policy: str
    suite: str
    suite_source: str
    corpus: str
    tokenizer: str
    vocab_size: int
    cache: str
    mixture: str
    run: RunSpec
    minhash: str = "14x8"
    """The preset that near-duplicates are looked for with (`datakit.minhash.PRESETS`); 20x5 finds nearly all of them."""

    duplicates: DuplicatesConfig = field(default_factory=DuplicatesConfig)
    """Which of those that are found count as duplicates."""

    corpus_filters: CorpusConfig = field(default_factory=CorpusConfig)
    """What makes a document leave the corpus."""

    more_suites: tuple[tuple[str, str], ...] = ()
    """Suites (name, kind of `recipes/suites.py`) beside `suite`. `policy` binds every suite that checkpoints are evaluated on:
    the corpus is cleaned of and audited against all of them, so a suite added here asks for a policy of another name."""

    shots: tuple[tuple[str, str], ...] = ()
    """Suites that hold the examples of few-shot prompts."""

    scorer: ScorerConfig | None = None
    """The scorer of the line's sources, where it has one; the corpus goes by it only where its filters say so."""

    best_scores: ScoreCutoffConfig | None = None
    """Which fraction of the scored documents `corpus_filters` keep; set with `corpus_filters.best_scores`."""

    prefix: tuple[str, ...] = ()
    day: str | None = None
    run_key: tuple[str, ...] = ()
    """Where the run's nodes go: `runs/<run>` unless told (a canary's runs are partitioned by day under `canary/<hardware>`)."""

    run_day: str | None = None
    """Day partition of the run's nodes when it is not that of the data."""

    after: "tuple[Line, int] | None" = None
    """The line, and the step of its run, whose checkpoint this run starts from (`trainer.spec.config.WarmStart`)."""

    hardware: tuple[str, ...] = ("cpu",)
    """What the run trains on, names of `recipes/hardware.py` in order of preference; no part of any identity."""

    settings: RuntimeOptions = field(default_factory=RuntimeOptions)
    """How the run runs: trackers, evaluation on the way, profile, meshes; no part of any identity either."""

    eval_hardware: tuple[str, ...] = ("cpu",)
    """What its checkpoints are scored on: one host, whose processes meet no others."""

    start_model: PublishedModel | None = None
    """The published model that this run starts from; its tokenizer is the line's."""

    format: TokenFormat = PLAIN
    """How documents become tokens."""

    special_tokens: tuple[str, ...] = (END_OF_TEXT,)
    """Of the tokenizer; a chat template's roles and end of turn are among them."""

    phases: tuple[StepPhase, ...] = ()
    """Weights of the mixture by step of the run, counted from the first of the runs whose data it continues; none: one phase,
    by the sources' declared weights."""

    mixture_block: int = 2048
    """Sequences in which weights hold; phases begin with whole blocks."""

    shuffle: Shuffle = "splitmix"
    """How the sequences of each source are shuffled."""

    packing: Packing | None = None
    """How documents become sequences; none: end to end, cut wherever a sequence is full."""

    left_out: tuple[tuple[str, str], ...] = ()
    """Sources that a choice over the line left out, and why; set by `permissive`."""

    def __post_init__(self) -> None:
        preset(self.minhash)
        if self.corpus_filters.best_scores != (self.best_scores is not None):
            raise ValueError(
                f"line of corpus {self.corpus}: best_scores is {self.best_scores}, corpus_filters.best_scores is "
                f"{self.corpus_filters.best_scores}; set both or neither"
            )
        named = {source: phase.start_step for phase in self.phases for source, _ in phase.weights}
        if strange := sorted(named.keys() - set(self.sources)):
            raise ValueError(
                f"line of mixture {self.mixture}: its phase at step {named[strange[0]]} weighs {strange[0]!r}, which is "
                f"none of the line's sources; they are {', '.join(self.sources)}"
            )
        if self.corpus_filters.cut_paragraphs and isinstance(self.format, Chat | Prebuilt):
            raise ValueError(
                f"line of corpus {self.corpus}: its filters cut paragraphs out of texts, and format {self.format.kind!r} makes "
                "tokens of what lies beside them, which would stay whole; leave it out, or take the format 'plain'"
            )
        if "scores" in self.corpus_filters.reads and self.scorer is None:
            raise ValueError(f"line of corpus {self.corpus}: its filters read scores and it has no scorer")
        starts = [start for start in (self.after, self.start_model) if start is not None]
        if len(starts) != (self.run.start is not None):
            raise ValueError(
                f"line of run {self.run.name}: run.start is {self.run.start!r}, and {len(starts)} of after and start_model are "
                "set; give one of them with run.start, none without"
            )
        before = None if self.after is None else self.after[0].run
        if self.continues and (before is None or before.seq_len != self.run.seq_len):
            raise ValueError(
                f"line of run {self.run.name}: run.start.data is 'continued', which goes on in the data order of a run of ours "
                f"with run.seq_len {self.run.seq_len}; after is {before and (before.name, before.seq_len)}"
            )
        if self.packing is not None and self.packing.seq_len != self.run.seq_len:
            raise ValueError(
                f"line of run {self.run.name}: packing.seq_len is {self.packing.seq_len}, run.seq_len {self.run.seq_len}; a "
                "mixture is packed for the sequences of its run"
            )
        alternatives(self.hardware)
        for shape in alternatives(self.eval_hardware):
            if shape.pods > 1:
                raise ValueError(
                    f"line of run {self.run.name}: eval_hardware has {shape.name}, which is {shape.pods} hosts; evaluations "
                    "run on one"
                )
        if strange := sorted(dict(self.settings.meshes).keys() - set(self.hardware)):
            raise ValueError(
                f"line of run {self.run.name}: settings.meshes is for {strange[0]}, which is none of its hardware; that is "
                f"{', '.join(self.hardware)}"
            )

    @property
    def every_suite(self) -> tuple[tuple[str, str], ...]:
        """Name and kind of every suite of the line, the main one first."""
        return ((self.suite, self.suite_source), *self.more_suites)

    @property
    def meshes(self) -> dict[str, str]:
        """The mesh of the run on each of its hardware that has one: the line's, else the preset's."""
        presets = {shape.name: shape.mesh for shape in alternatives(self.hardware) if shape.mesh}
        return presets | dict(self.settings.meshes)

    @property
    def continues(self) -> bool:
        """Whether the run goes on in the data order where the one before it ended."""
        return self.run.start is not None and self.run.start.data == "continued"

    @property
    def first_step(self) -> int:
        """Steps that the runs before this one took in its data order."""
        return self.after[0].first_step + self.after[1] if self.continues and self.after is not None else 0

    @property
    def batches(self) -> BatchSchedule:
        """Sequences a step of the data order, from its first step on, whichever run took it."""
        if not self.continues or self.after is None:
            return self.run.batches
        return self.after[0].batches.followed_by(self.run.batches, self.first_step)

    @property
    def history(self) -> "tuple[Line, ...]":
        """The lines whose runs led to this one, the oldest first, this one last."""
        return (self,) if self.after is None else (*self.after[0].history, self)

    def source_place(self, *key: str, source: str) -> Place:
        """Place of a node that each source has one of."""
        if self.day is None:
            return key, source
        return (*self.prefix, *key, source), self.day

    def place(self, *key: str) -> Place:
        """Place of a node that the line has one of."""
        return (*self.prefix, *key), self.day

    def run_place(self, *key: str, partition: str) -> Place:
        """Place of a node of the run: its own partition (a step), or the day where the line has one."""
        base = self.run_key or (*self.prefix, "runs", self.run.name)
        return (*base, *key), self.run_day or self.day or partition


def permissive(line: Line) -> Line:
    """The line over its permissively licensed sources alone, under names of its own; the others are logged and in `left_out`.

    So is the line whose run this one starts from. A published model that it starts from is taken as it is.

    Raises: ValueError when no source is left or one is not in the catalogue, and for a phase that reads none of those left.
    """
    choice = permissive_only(line.sources, {name: source_config(name) for name in line.sources})
    return replace(
        line,
        sources=choice.kept,
        left_out=tuple(choice.left_out.items()),
        after=None if line.after is None else (permissive(line.after[0]), line.after[1]),
        phases=tuple(_of_sources(phase, choice.kept, line.mixture) for phase in line.phases),
        run=replace(line.run, name=f"{line.run.name}_permissive"),
        scope=f"{line.scope}-permissive",
        policy=f"{line.policy}-permissive",
        corpus=f"{line.corpus}-permissive",
        tokenizer=f"{line.tokenizer}-permissive",
        cache=f"{line.cache}-permissive",
        mixture=f"{line.mixture}-permissive",
    )


def _of_sources(phase: StepPhase, kept: tuple[str, ...], mixture: str) -> StepPhase:
    weights = tuple((source, weight) for source, weight in phase.weights if source in kept)
    if not any(weight > 0 for _, weight in weights):
        read = ", ".join(source for source, _ in phase.weights)
        raise ValueError(
            f"mixture {mixture}: its phase at step {phase.start_step} reads {read} alone, and none of them is permissively "
            f"licensed; of the line's sources these are: {', '.join(kept)}. Declare another phase for the permissive line"
        )
    return replace(phase, weights=weights)


def declared_weights(line: Line) -> StepPhase:
    """The one phase of a line that declares none. Raises ValueError naming sources that would train nothing."""
    weights = {source: source_config(source).mixture_weight for source in line.sources}
    if weightless := [source for source, weight in weights.items() if not weight > 0]:
        raise ValueError(
            f"mixture {line.mixture}: the catalogue's mixture_weight of {', '.join(weightless)} is 0 (no token count is "
            "known), so nothing of it would be trained on; declare the line's phases with their weights, or leave it out"
        )
    return StepPhase(0, tuple(weights.items()))


def source_config(name: str) -> Source:
    """The declared source of a name. Raises ValueError listing the catalogue."""
    return by_name(catalogue(), name)


def by_name(sources: Mapping[str, Source], name: str) -> Source:
    if name not in sources:
        raise ValueError(f"source {name!r} is not in the catalogue; it has: {', '.join(sorted(sources))}")
    return sources[name]
