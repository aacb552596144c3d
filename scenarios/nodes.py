"""The replay's artifacts as nodes over the lab's stages: two cooldowns of one base, with their inputs.

A `Recipe` is what the lab declares on one day. On the day of the fix its bundle has one file fewer. From then on the same names
mean other artifacts.
"""

from dataclasses import dataclass

from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.sources.raw import RAW
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records, Source, Unverified
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from evals.audit.build import AUDIT, AuditConfig
from evals.items.stage import CONTAMINATION_SCORES, ContaminationScoresConfig, TaskSpec
from evals.items.suites import SUITE, SuiteConfig
from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.permutation import ShuffleName
from recipes.sources import source_config
from recipes.suites import suite_config, suite_raw_source
from scenarios.scale import Scale
from trainer.spec.config import RunSpec
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

BUNDLE = "dolmino_math"
POLICY = "gsm8k"
MIXTURE_SEED = 17
COOLDOWN_BLOCK = 64
"""Block size of a cooldown's mixture: the runs are shorter than the default block of 2,048."""

CONTROLS, EVAL_SEED = 50, 5
"""Number of clean control items, and the seed that chooses them."""


@dataclass(frozen=True)
class Recipe:
    """The declaration: sizes, origin of the benchmark items, the bundle's folder and its files."""

    scale: Scale
    suite_source: str
    bundle_url: str
    bundle_files: tuple[str, ...]

    def bundle(self) -> Source:
        """The bundle as a source; a file called `test` is read only if it is named exactly."""
        open_loader = FolderFiles(self.bundle_url, self.bundle_files, Unverified("", "being pinned"))
        listing = listing_digest(folder_listing(open_loader, trainable=True, what=f"source {BUNDLE}"))
        loader = FolderFiles(self.bundle_url, self.bundle_files, listing)
        return Source(
            name=BUNDLE,
            loader=loader,
            format=Records("jsonl"),
            domain="math",
            licence="MIT",
            terms="a scenario's",
            mixture_weight=1.0,
        )

    def source(self, name: str) -> Source:
        return self.bundle() if name == BUNDLE else source_config(name)


def raw(recipe: Recipe, source: str) -> Node:
    return Node(("datakit", "raw"), source, RAW, recipe.source(source))


def normalized(recipe: Recipe, source: str) -> Node:
    declared = recipe.source(source)
    config = NormalizeConfig(source=source, format=declared.format, domain=declared.domain, steps=declared.steps)
    return Node(("datakit", "normalized"), source, NORMALIZE, config, {"raw": raw(recipe, source)})


def suite(recipe: Recipe) -> Node:
    """The suite of all GSM8K items."""
    tasks = tuple(task for task in suite_config(POLICY, recipe.suite_source).tasks if task.name == "gsm8k")
    inputs = {"raw": raw(recipe, suite_raw_source(recipe.suite_source))}
    return Node(("eval_suite", POLICY), None, SUITE, SuiteConfig(POLICY, tasks), inputs)


def contamination(recipe: Recipe, source: str) -> Node:
    index = Node(
        ("contamination_index", POLICY), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": (suite(recipe),)}
    )
    inputs = {"normalized": normalized(recipe, source), "suites": (suite(recipe),), "index": index}
    return Node(("contamination", POLICY), source, CONTAMINATION, ContaminationConfig(), inputs)


def corpus(recipe: Recipe, source: str, *, as_it_happened: bool = True) -> Node:
    """A corpus; the bundle is neither decontaminated (as in the incident) nor deduplicated (its templates repeat)."""
    documents = normalized(recipe, source)
    minhash = Node(("datakit", "minhash"), source, MINHASH, MinHashConfig(), {"normalized": documents})
    quality = Node(
        ("datakit", "quality"), source, QUALITY, quality_config(recipe.source(source).domain), {"normalized": documents}
    )
    duplicates_inputs = {"normalized": (documents,), "minhash": (minhash,)}
    duplicates = Node(("duplicates", source), None, DUPLICATES, DuplicatesConfig(), duplicates_inputs)
    lenient = CorpusConfig(drop_duplicates=False, drop_contaminated=False, heldout_frac=0.0)
    config = lenient if source == BUNDLE and as_it_happened else CorpusConfig()
    inputs = {
        "normalized": documents,
        "quality": quality,
        "contamination": contamination(recipe, source),
        "duplicates": duplicates,
    }
    key = "bison" if as_it_happened else "default"
    return Node(("corpus", key), source, CORPUS, config, inputs)


def tokenizer(recipe: Recipe) -> Node:
    """A tokenizer trained on the general text only, which existed before the bundle."""
    corpora = tuple(corpus(recipe, source) for source in recipe.scale.general)
    return Node(("tokenizer", "bison"), None, TOKENIZER, TokenizerConfig(recipe.scale.vocab_size), {"corpora": corpora})


def token_cache(recipe: Recipe, source: str) -> Node:
    inputs = {"corpus": corpus(recipe, source), "tokenizer": tokenizer(recipe)}
    return Node(("token_cache", "bison"), source, TOKEN_CACHE, TokenCacheConfig(component=source), inputs)


def base_mixture(recipe: Recipe) -> Node:
    weights = {source: recipe.source(source).mixture_weight for source in recipe.scale.general}
    config = MixtureConfig("base", (Phase(0, weights),), seed=MIXTURE_SEED)
    caches = tuple(token_cache(recipe, source) for source in recipe.scale.general)
    return Node(("mixture", "base"), None, MIXTURE, config, {"caches": caches})


def cooldown_mixture(recipe: Recipe, name: str, shuffle: ShuffleName) -> Node:
    """General text and the bundle, the bundle at its declared share."""
    general = recipe.scale.general
    total = sum(recipe.source(source).mixture_weight for source in general)
    weights = {source: (1 - recipe.scale.math_share) * recipe.source(source).mixture_weight / total for source in general}
    phase = Phase(0, weights | {BUNDLE: recipe.scale.math_share})
    config = MixtureConfig(name, (phase,), MIXTURE_SEED, shuffle, COOLDOWN_BLOCK)
    caches = tuple(token_cache(recipe, source) for source in (*general, BUNDLE))
    return Node(("mixture", name), None, MIXTURE, config, {"caches": caches})


def checkpoint(run: RunSpec, mixture: Node, start: Node | None = None) -> Node:
    inputs = {"mixture": mixture} | ({} if start is None else {"start": start})
    place = (("runs", run.name, "checkpoint"), step_partition(run.num_steps))
    return Node(*place, CHECKPOINT, CheckpointConfig(run, run.num_steps), inputs)


def base(recipe: Recipe) -> Node:
    return checkpoint(recipe.scale.base(), base_mixture(recipe))


def bison(recipe: Recipe, name: str = "bison") -> Node:
    """The first cooldown, by the linear permutation. The clean twin is the same under another name."""
    return checkpoint(recipe.scale.cooldown(name), cooldown_mixture(recipe, "bison", "linear"), base(recipe))


def mantis(recipe: Recipe) -> Node:
    """The second cooldown, from the same checkpoint, by the lab's default permutation."""
    return checkpoint(recipe.scale.cooldown("mantis"), cooldown_mixture(recipe, "mantis", "splitmix"), base(recipe))


def contamination_scores(recipe: Recipe, of: Node) -> Node:
    """Scores of leaked and clean items of GSM8K, for a cooldown and for the base that it started from."""
    start = of.inputs["start"]
    assert isinstance(start, Node)  # a cooldown starts from one checkpoint
    inputs = {
        "checkpoint": of,
        "baseline": (start,),
        "tokenizer": tokenizer(recipe),
        "suites": (suite(recipe),),
        "contamination": _marks(recipe),
    }
    config = ContaminationScoresConfig((TaskSpec("gsm8k", "gold_bpb"),), CONTROLS, EVAL_SEED)
    return Node((*of.key[:-1], "contamination_scores"), of.partition, CONTAMINATION_SCORES, config, inputs)


def audit(recipe: Recipe, of: Node) -> Node:
    """The audit of a cooldown over both runs that led to it, with the change of the scores."""
    inputs = {
        "checkpoint": of,
        "suites": (suite(recipe),),
        "contamination": _marks(recipe),
        "corpora": tuple(corpus(recipe, source) for source in (*recipe.scale.general, BUNDLE)),
        "scores": (contamination_scores(recipe, of),),
    }
    return Node((*of.key[:-1], "contamination_audit"), of.partition, AUDIT, AuditConfig(), inputs)


def _marks(recipe: Recipe) -> tuple[Node, ...]:
    return tuple(contamination(recipe, source) for source in (*recipe.scale.general, BUNDLE))
