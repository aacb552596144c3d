"""A recipe file of a lab's own, for tests: a run on preference pairs of which three hold an item of GSM8K.

The items stay in the corpus, because its filters do not drop them: what an audit must find.
"""

from dataclasses import replace
from pathlib import Path

from datakit.corpus.filters import CorpusConfig
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records, Source, Unverified
from datakit.tokens.formats import Chat, Preferences
from datakit.tokens.tokenizer import END_OF_TEXT
from recipes.pipeline import cleaned_of_vendored_items
from recipes.records.data import Corpus, Scope
from recipes.records.run import AtStep, Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.sources_studies import SOLVED
from recipes.studies.chat import CHAT_TEMPLATE
from recipes.studies.preferences import END_OF_TURN, sft_spec
from recipes.study import Study
from trainer.spec.config import WarmStart
from trainer.spec.objectives import Dpo
from trainer.spec.schedules import WarmupStableDecay

SPECIALS = (END_OF_TEXT, "<|user|>", "<|assistant|>", END_OF_TURN)
PAIRS = "leaked_pairs"
SIDE_TOKENS = 256
FILES = FolderFiles(str(Path(__file__).with_name("pairs")), ("*.jsonl",), Unverified("", "the test has just written it"))


def sources() -> tuple[Source, ...]:
    digest = listing_digest(folder_listing(FILES, trainable=True, what=PAIRS))
    format = Records("jsonl", text="chosen", form="preferences", rejected="rejected", prompt="prompt")
    source = Source(
        name=PAIRS,
        loader=replace(FILES, listing=digest),
        format=format,
        domain="chat",
        licence="CC0-1.0",
        terms="made by a test",
        mixture_weight=1.0,
    )
    return (source,)


def study() -> Study:
    return Study("Which pair, and which step?", runs=(leaked_sft, leaked_dpo))


def corpus(name: str, source: str) -> Corpus:
    """Every document of a source."""
    filters = CorpusConfig(drop_duplicates=False, drop_contaminated=False, drop_low_quality=False, heldout_frac=0.0)
    return Corpus(name, Scope(name, (source,)), cleaned_of_vendored_items(), filters)


def solved() -> Tokens:
    """Solved sums as bytes without merges."""
    of = corpus("leaked_solved", SOLVED)
    tokenizer = TrainedTokenizer("leaked-bytes", 260, SPECIALS, corpus=of)
    return Tokens("leaked_solved", of, tokenizer, Chat(CHAT_TEMPLATE, END_OF_TURN))


def leaked_sft() -> Run:
    """A few steps on solved sums, so that there is a reference."""
    tokens = solved()
    spec = sft_spec(tokens.vocab_size)
    model = replace(spec.model, max_seq_len=SIDE_TOKENS, hidden_dim=32, intermediate_dim=64)
    schedule = WarmupStableDecay(peak_learning_rate=3e-3, warmup_steps=4, decay_frac=0.3)
    spec = replace(spec, name="leaked_sft", model=model, schedule=schedule, num_steps=20)
    return Run(spec, Mix("leaked_solved", tokens), Evaluation(tokens.corpus.decontamination.suites))


def leaked_dpo() -> Run:
    """Sixteen steps of eight pairs."""
    before = leaked_sft()
    tokens = Tokens(PAIRS, corpus(PAIRS, PAIRS), before.tokens.tokenizer, Preferences(CHAT_TEMPLATE, END_OF_TURN, SIDE_TOKENS))
    spec = replace(
        before.spec, name="leaked_dpo", objective=Dpo(beta=0.5), start=WarmStart(), seq_len=2 * SIDE_TOKENS, batch_size=8,
        num_steps=16,
    )  # fmt: skip
    return Run(spec, Mix(PAIRS, tokens), before.evaluation, start=AtStep(before, before.spec.num_steps))
