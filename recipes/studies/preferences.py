"""Two-digit addition: fine-tuning, then preferences of right over wrong answers (docs/recipes/train_with_preferences.md)."""

from dataclasses import dataclass, replace

from datakit.corpus.filters import CorpusConfig
from datakit.tokens.formats import Chat, Preferences
from datakit.tokens.tokenizer import END_OF_TEXT
from recipes.records.data import Corpus, Decontamination, Scope, decontamination
from recipes.records.run import AtStep, Evaluation, Run
from recipes.records.tokens import ORDER_SEED, Mix, Tokens, TrainedTokenizer
from recipes.sources_studies import HELD_OUT, LENGTH, PAIRS, SOLVED, STYLE
from recipes.studies.chat import CHAT_TEMPLATE
from recipes.study import Study
from recipes.suites import main_suite
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.objectives import Dpo
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay

SIDE_TOKENS = 16
END_OF_TURN = "<|end|>"
SEED = 3
"""Seed of the runs of the catalogue."""
ARMS = {"dpo": PAIRS, "length": LENGTH, "style": STYLE}
"""What a run prefers: right answers; of one answer in two forms the longer one, or the one in round brackets. The last two are
controls, which `make post-train-study` trains."""


@dataclass(frozen=True)
class Course:
    """How many steps a model is fine-tuned, and how many it prefers then."""

    name: str
    fine_tuning: int
    preferring: int

    def named(self, arm: str, seed: int) -> str:
        """Name a run. Those of the catalogue's seed have no number."""
        return f"{self.name}_{arm}" + (f"_{seed}" if seed != SEED else "")


WHOLE, EARLY = Course("addition", 1500, 600), Course("addition_early", 300, 300)
"""Of the catalogue and of `make post-train-study`; and a short one, whose base knows little of sums."""


def study() -> Study:
    return Study(
        "Does a model that half knows addition learn it from right and wrong answers?", runs=(addition_sft, addition_dpo)
    )


def addition_corpus(source: str, cleaned: Decontamination | None = None) -> Corpus:
    """Every sum of a source: sums resemble each other, so no near-duplicate and no quality filter applies.

    `cleaned`: of what; None for the main suite, by an index for each source.
    """
    filters = CorpusConfig(drop_duplicates=False, drop_low_quality=False, heldout_frac=0.0 if source == HELD_OUT else 0.02)
    return Corpus(source, Scope(source, (source,)), cleaned or decontamination(source, (main_suite(),), ()), filters)


def addition_tokens(source: str, cleaned: Decontamination | None = None) -> Tokens:
    """Bytes without merges, so that every digit is a token; pairs and solved sums share the tokenizer."""
    specials = (END_OF_TEXT, "<|user|>", "<|assistant|>", END_OF_TURN)
    tokenizer = TrainedTokenizer("addition-bytes", 260, specials, corpus=addition_corpus(SOLVED, cleaned))
    pairs = Preferences(CHAT_TEMPLATE, END_OF_TURN, SIDE_TOKENS)
    format = Chat(CHAT_TEMPLATE, END_OF_TURN) if source == SOLVED else pairs
    return Tokens(source, addition_corpus(source, cleaned), tokenizer, format)


def sft_spec(vocab_size: int, course: Course = WHOLE, seed: int = SEED) -> RunSpec:
    """A model of .1 M parameters."""
    return RunSpec(
        name=course.named("sft", seed),
        model=LlamaConfig(vocab_size, 64, 176, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=64),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=3e-3, warmup_steps=20, decay_frac=0.3),
        batch_size=32,
        seq_len=64,
        num_steps=course.fine_tuning,
        seed=seed,
    )


def fine_tuned(course: Course = WHOLE, seed: int = SEED, cleaned: Decontamination | None = None) -> Run:
    """Fine-tuning on solved sums from fresh parameters."""
    tokens = addition_tokens(SOLVED, cleaned)
    evaluation = Evaluation(tokens.corpus.decontamination.suites)
    return Run(sft_spec(tokens.vocab_size, course, seed), _mix(SOLVED, tokens, seed), evaluation)


def preferring(arm: str = "dpo", course: Course = WHOLE, seed: int = SEED, cleaned: Decontamination | None = None) -> Run:
    """Preferences from the fine-tuned model of that seed; held-out pairs of right and wrong answers measure every arm.

    `arm`: a key of `ARMS`.
    """
    before, pairs = fine_tuned(course, seed, cleaned), ARMS[arm]
    spec = replace(
        before.spec,
        name=course.named(arm, seed),
        objective=Dpo(beta=0.5),
        start=WarmStart(),
        schedule=WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=20, decay_frac=0.3),
        seq_len=2 * SIDE_TOKENS,
        batch_size=64,
        num_steps=course.preferring,
    )
    evaluation = replace(before.evaluation, pairs=addition_tokens(HELD_OUT, cleaned))
    mix = _mix(pairs, addition_tokens(pairs, cleaned), seed)
    return Run(spec, mix, evaluation, start=AtStep(before, before.spec.num_steps))


def addition_sft() -> Run:
    """The fine-tuned model of the catalogue."""
    return fine_tuned()


def addition_dpo() -> Run:
    """Preferences between right and wrong answers."""
    return preferring()


def _mix(source: str, tokens: Tokens, seed: int) -> Mix:
    """The mix of a run. Another seed reads the data in another order."""
    return Mix(source, tokens) if seed == SEED else Mix(f"{source}_{seed}", tokens, order_seed=ORDER_SEED + seed)
