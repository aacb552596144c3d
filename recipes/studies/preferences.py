"""Two-digit addition: fine-tuning, then preferences of right over wrong answers (docs/recipes/train_with_preferences.md)."""

from dataclasses import replace

from datakit.corpus.filters import CorpusConfig
from datakit.tokens.formats import Chat, Preferences
from datakit.tokens.tokenizer import END_OF_TEXT
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import AtStep, Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.sources_studies import HELD_OUT, PAIRS, SOLVED
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


def study() -> Study:
    return Study(
        "Does a model that half knows addition learn it from right and wrong answers?", runs=(addition_sft, addition_dpo)
    )


def addition_corpus(source: str) -> Corpus:
    """Every sum of a source: sums resemble each other, so no near-duplicate and no quality filter applies."""
    filters = CorpusConfig(drop_duplicates=False, drop_low_quality=False, heldout_frac=0.0 if source == HELD_OUT else 0.02)
    return Corpus(source, Scope(source, (source,)), decontamination(source, (main_suite(),), ()), filters)


def addition_tokens(source: str) -> Tokens:
    """Bytes without merges, so that every digit is a token; pairs and solved sums share the tokenizer."""
    specials = (END_OF_TEXT, "<|user|>", "<|assistant|>", END_OF_TURN)
    tokenizer = TrainedTokenizer("addition-bytes", 260, specials, corpus=addition_corpus(SOLVED))
    pairs = Preferences(CHAT_TEMPLATE, END_OF_TURN, SIDE_TOKENS)
    return Tokens(source, addition_corpus(source), tokenizer, Chat(CHAT_TEMPLATE, END_OF_TURN) if source == SOLVED else pairs)


def sft_spec(vocab_size: int) -> RunSpec:
    """A model of .1 M parameters."""
    return RunSpec(
        name="addition_sft",
        model=LlamaConfig(vocab_size, 64, 176, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=64),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=3e-3, warmup_steps=20, decay_frac=0.3),
        batch_size=32,
        seq_len=64,
        num_steps=1500,
        seed=3,
    )


def addition_sft() -> Run:
    """Fine-tuning on solved sums from fresh parameters."""
    tokens = addition_tokens(SOLVED)
    return Run(sft_spec(tokens.vocab_size), Mix(SOLVED, tokens), Evaluation((main_suite(),)))


def addition_dpo() -> Run:
    """Preferences between right and wrong answers, from the fine-tuned model; held-out pairs measure it."""
    before = addition_sft()
    spec = replace(
        before.spec,
        name="addition_dpo",
        objective=Dpo(beta=0.5),
        start=WarmStart(),
        schedule=WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=20, decay_frac=0.3),
        seq_len=2 * SIDE_TOKENS,
        batch_size=64,
        num_steps=600,
    )
    evaluation = Evaluation((main_suite(),), pairs=addition_tokens(HELD_OUT))
    return Run(spec, Mix(PAIRS, addition_tokens(PAIRS)), evaluation, start=AtStep(before, before.spec.num_steps))
