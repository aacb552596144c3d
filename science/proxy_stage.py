"""Small models as the judge of a corpus: `proxy.json`, `proxy.png` and `proxy.md`, a page with a verdict for each corpus.

Small models train on the text before and after a change of filters, in pairs of one seed, and are scored on one held-out
text in bits a byte (`science/in_pairs.py`; small models that rank data sets: Magnusson et al. 2025, arXiv 2504.11393).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome
from science.forecasts.table import data_of
from science.in_pairs import Arms, Words, check_config, outcomes_by_arm, write_verdict
from trainer.spec.config import RunSpec
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

WORDS = Words("proxy", "corpus", "corpora")


@dataclass(frozen=True)
class ProxyConfig:
    """What is compared; part of the verdict's identity."""

    corpora: tuple[str, ...]
    """The control first. The results stand in this order, all seeds of a corpus together."""
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    metric: str
    unit: str
    max_epochs: float
    """The page warns of a corpus of which a source is read more often."""
    level: float = 0.95

    def __post_init__(self) -> None:
        check_config(self, WORDS)
        if not self.max_epochs > 0:
            raise ValueError(f"proxy: max_epochs is {self.max_epochs}; it must be above 0")

    @property
    def arms(self) -> tuple[str, ...]:
        return self.corpora


@dataclass(frozen=True)
class Read:
    """What each run of a corpus reads."""

    corpus: str
    tokens: int
    epochs: float
    """The most times that a run reads any source."""


def judge_proxy(out: Writer, config: ProxyConfig, results: tuple[Artifact, ...]) -> None:
    """Compare every corpus with the control. A corpus of which a run diverged is not compared.

    Raises: RefusedPairsError for several policies or held-out texts, pairs of unequal runs, a corpus with the control's text,
    or a control that diverged.
    """
    arms = outcomes_by_arm(out.spec.name, config, WORDS, results, _faults)
    read = [_read(corpus, runs[0]) for corpus, runs in arms.items()]
    facts = {"read": [asdict(each) for each in read], "max_epochs": config.max_epochs}
    write_verdict(out, config, WORDS, arms, facts, _sentences(config, read))


def _faults(arms: Arms) -> Iterator[str]:
    (name, control), *others = arms.items()
    for corpus, runs in others:
        if _caches(control[0]) == _caches(runs[0]):
            yield f"{corpus} has the text of {name}: their filters drop the same documents, so there is nothing to compare"
        for base, tried in zip(control, runs, strict=True):
            if _spec(base) != _spec(tried):
                yield f"{base.name} and {tried.name} are a pair of unequal runs; give both one spec and one seed"
    for outcome in (outcome for runs in arms.values() for outcome in runs):
        if "start" in {ref.name for ref in outcome.checkpoint.spec.inputs}:
            yield f"{outcome.name} starts from a checkpoint; start every run with fresh parameters"


def _spec(of: Outcome) -> RunSpec:
    return from_jsonable(CheckpointConfig, of.checkpoint.spec.config).run


def _caches(of: Outcome) -> frozenset[str]:
    """Digests of the token caches that a run reads."""
    return frozenset(ref.data_version for ref in of.checkpoint.input("mixture").spec.inputs if ref.name.startswith("caches."))


def _read(corpus: str, of: Outcome) -> Read:
    """All runs of a corpus read equally many tokens of equal shares."""
    tokens = size_of(_spec(of)).tokens
    return Read(corpus, tokens, data_of(of.checkpoint.input("mixture")).epochs(tokens))


def _sentences(config: ProxyConfig, read: Sequence[Read]) -> Iterator[str]:
    yield f"{len(config.seeds)} runs on each corpus, with equal seeds, against {config.corpora[0]}; all scored on one text."
    for each in read:
        yield f"A run on {each.corpus} reads {each.tokens} tokens, and no source more than {each.epochs:.2f} times."
        if each.epochs > config.max_epochs:
            yield f"**That is more than {config.max_epochs:g} times: the verdict may be about repeats, not about the text.**"


PROXY = Stage("science.proxy", "1", judge_proxy)
"""The verdict over corpora as an asset; `marin_assets/sweeps.py` makes the runs."""
