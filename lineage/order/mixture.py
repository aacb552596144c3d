"""Mixtures, format `mixture/1`: weights by phase, frozen with the exact cache digests that they bind.

A mixture is the pivot between data and training: it is unpartitioned and content-addressed. So a run's recorded input
is one plain digest, and a cache that it does not use may change without making the run stale.
"""

import itertools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from lineage.artifact.spec import InputRef
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.order.apportion import Apportioning, check_apportioning
from lineage.order.batches import BatchSchedule
from lineage.order.packing import Packing, PackingStatistics, plan_files, write_plan
from lineage.order.permutation import Shuffle, check_shuffle
from lineage.order.token_cache import TokenCache
from lineage.stage import Stage
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)
FORMAT = "mixture/1"
MIXTURE_FILE = "mixture.json"


@dataclass(frozen=True)
class Phase:
    """Weights from a global sequence index on; they need not sum to one, and zero leaves a component out."""

    start_sequence: int
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        bad = {name: weight for name, weight in self.weights.items() if not 0 <= weight < float("inf")}
        if bad or not sum(self.weights.values()) > 0:
            raise ValueError(f"phase at {self.start_sequence}: weights {dict(self.weights)} must be >= 0 with a sum > 0")


@dataclass(frozen=True)
class StepPhase:
    """Weights from a training step on: what a person declares, before the run's batch sizes turn steps into sequences."""

    start_step: int
    weights: tuple[tuple[str, float], ...]
    """(component, weight) pairs, because the record that declares them must be hashable."""


def phases_by_step(phases: Sequence[StepPhase], batches: BatchSchedule, block_size: int) -> tuple[Phase, ...]:
    """Return phases of a mixture that begin with given steps of a run: step `t` begins with the global sequence
    `batches.first(t)`.

    Raises: ValueError naming a step with which no block begins, and the largest block that would fit.
    """
    starts = [batches.first(phase.start_step) for phase in phases]
    for phase, start in zip(phases, starts, strict=True):
        if start % block_size:
            raise ValueError(
                f"mixture phase at step {phase.start_step} begins with sequence {start} of the run, no multiple of the block "
                f"size {block_size}; a block size that divides {math.gcd(*starts)} would do"
            )
    return tuple(Phase(start, dict(phase.weights)) for phase, start in zip(phases, starts, strict=True))


@dataclass(frozen=True)
class SimulatedEpoching:
    """Repeat data as a run of `target_tokens` would, in one of `experiment_tokens`: each component is cut to their
    ratio.

    Of a component's n sequences, the first `n * experiment_tokens // target_tokens` of a shuffle of all are used, and
    only those, in every epoch (Levanter's simulated epoching).
    """

    experiment_tokens: int
    target_tokens: int

    def __post_init__(self) -> None:
        if not 0 < self.experiment_tokens <= self.target_tokens:
            raise ValueError(
                f"simulated epoching: experiment_tokens is {self.experiment_tokens}, target_tokens {self.target_tokens}; the "
                "first must be positive and at most the second"
            )

    def used(self, num_sequences: int) -> int:
        """Return how many of a component's sequences the experiment uses."""
        return num_sequences * self.experiment_tokens // self.target_tokens


@dataclass(frozen=True)
class MixtureConfig:
    """What a recipe declares: phases in order, how components are shuffled, and the block in which weights hold."""

    name: str
    phases: tuple[Phase, ...]
    seed: int
    shuffle: Shuffle = "splitmix"
    block_size: int = 2048
    simulate: SimulatedEpoching | None = field(default=None, metadata={"added_later": True})
    packing: Packing | None = field(default=None, metadata={"added_later": True})
    """How documents become sequences; None: end to end, cut wherever a sequence is full."""
    apportioning: Apportioning = field(default="carried", metadata={"added_later": True})
    """How a block's sequences are shared out; `split` finds a late block directly (`lineage.order.apportion`)."""

    def __post_init__(self) -> None:
        check_apportioning(self.apportioning, f"mixture {self.name}: ")
        if self.block_size < 1:
            raise ValueError(f"mixture {self.name}: block_size is {self.block_size}; it must be at least 1")
        check_shuffle(self.shuffle, f"mixture {self.name}: ")
        starts = [phase.start_sequence for phase in self.phases]
        if not starts or starts[0] != 0 or any(b <= a for a, b in itertools.pairwise(starts)):
            raise ValueError(f"mixture {self.name}: phases start at {starts}; the first must be 0 and each later than the last")
        if any(start % self.block_size for start in starts):
            raise ValueError(f"mixture {self.name}: phases start at {starts}; each must be a multiple of {self.block_size}")


def freeze_mixture(out: Writer, config: MixtureConfig, caches: tuple[Artifact, ...]) -> None:
    """Write `mixture.json`: the declared phases and, for every component, the cache that it is bound to.

    Raises: ValueError naming a weight without a cache, or a cache of another tokenizer, vocabulary or type (a stale
    one).
    """
    opened = [TokenCache.open(cache) for cache in caches]
    _check_components(config, opened)
    _check_one_tokenizer(config, opened)
    components = [
        {"name": o.component, "data_version": c.data_version, "num_tokens": o.num_tokens}
        for c, o in zip(caches, opened, strict=True)
    ]
    record = {
        "format": FORMAT,
        "name": config.name,
        "components": components,
        "phases": to_jsonable(config.phases),
        "shuffle": to_jsonable(config.shuffle),
        "seed": config.seed,
        "block_size": config.block_size,
    }
    if config.simulate is not None:
        record["simulate"] = asdict(config.simulate)
    if config.apportioning != "carried":
        record["apportioning"] = config.apportioning
    dropped = 0
    if config.packing is not None:
        packed = _pack(out, config.packing, opened)
        record["packing"] = {**to_jsonable(config.packing), "components": {name: asdict(f) for name, f in packed.items()}}
        dropped = sum(statistics.tokens_dropped for statistics in packed.values())
    (out.folder / MIXTURE_FILE).write_text(json.dumps(record, indent=1) + "\n")
    out.facts["mixture"] = record
    num_tokens = sum(o.num_tokens for o in opened)
    out.record(tokens_in=num_tokens, tokens_out=num_tokens - dropped)


def _pack(out: Writer, packing: Packing, caches: Sequence[TokenCache]) -> dict[str, PackingStatistics]:
    """Write a packing plan for every component; return what became of each one's documents and tokens."""
    statistics = {}
    for number, cache in enumerate(caches):
        try:
            packed = write_plan((out.folder / plan_files(number)[0]).parent, cache.ends, packing)
        except ValueError as error:
            raise ValueError(f"{cache.artifact_name}: {error}") from error
        statistics[cache.component] = packed
        log.info(
            "%s packed: %d documents in %d sequences of %d tokens, %.2f %% padding; %d documents cut, %d dropped (%d tokens)",
            cache.component, cache.num_documents - packed.documents_dropped, packed.sequences, packing.seq_len,
            100 * packed.padding / max(1, packed.sequences * packing.seq_len), packed.documents_cut, packed.documents_dropped,
            packed.tokens_dropped,
        )  # fmt: skip
    return statistics


def _check_components(config: MixtureConfig, caches: list[TokenCache]) -> None:
    names = [cache.component for cache in caches]
    if len(set(names)) != len(names):
        raise ValueError(f"mixture {config.name}: components {names} repeat a name")
    for phase in config.phases:
        unknown = sorted(set(phase.weights) - set(names))
        if unknown:
            raise ValueError(
                f"mixture {config.name}: no cache is given for component {unknown[0]!r}; allowed: {', '.join(names)}"
            )


def _check_one_tokenizer(config: MixtureConfig, caches: list[TokenCache]) -> None:
    first = caches[0]
    for cache in caches[1:]:
        wanted = (first.tokenizer, first.vocab_size, first.dtype)
        tokens_as = (cache.tokenizer, cache.vocab_size, cache.dtype)
        if tokens_as != wanted:
            raise ValueError(
                f"mixture {config.name}: {cache.artifact_name} was made with (tokenizer, vocabulary, type) {tokens_as}, "
                f"{first.artifact_name} with {wanted}; materialize the stale one again"
            )


MIXTURE = Stage(
    "lineage.mixture",
    "3",
    freeze_mixture,
    description="Frozen weights and the digests of the caches: the pivot between data and training.",
    checks=("file_set",),
)
"""2: no addresses in the file. A cache made again with equal bytes has another address, but its mixture is the same."""


def bound_caches(mixture: Artifact) -> dict[str, str]:
    """Return the address of the cache behind each component. Caches are inputs of the mixture, in the components'
    order.
    """
    names = [component["name"] for component in mixture.manifest.extra["mixture"]["components"]]
    return dict(zip(names, (ref.address for ref in _cache_refs(mixture)), strict=True))


def caches_of(mixture: Artifact) -> list[Artifact]:
    """Open the caches of a mixture, in the components' order. A mixture whose weights were chosen has one more input.

    Raises: what `Store.parents` raises.
    """
    store = mixture.store
    return store.storage.read_each(lambda ref: store.parent(mixture, ref), _cache_refs(mixture))


def _cache_refs(mixture: Artifact) -> tuple[InputRef, ...]:
    return tuple(ref for ref in mixture.spec.inputs if ref.name.startswith("caches"))
