"""Files of this repository and synthetic sets that single studies read. Each is a partition only if a run uses it."""

from dataclasses import replace

from datakit.sources.raw import repository_listing
from datakit.sources.source import Domain, Records, RepositoryFiles, Source, SyntheticFiles

SOLVED, PAIRS, HELD_OUT = "addition_solved", "addition_pairs", "addition_pairs_heldout"
LENGTH, STYLE = "addition_length", "addition_style"
CONTROLS = "data/addition/controls.jsonl.gz"


def study_sources() -> tuple[Source, ...]:
    """Sums of two numbers of two digits (`benchmarks/post_training/make_addition.py`), solved and as preference pairs.

    The sides of the controls have the same digits: one is longer, or in other brackets.
    """
    pairs = Records("jsonl", text="chosen", form="preferences", rejected="rejected", prompt="prompt")
    return (
        _addition(SOLVED, "data/addition/solved.jsonl.gz", Records("jsonl", text="messages", form="messages")),
        _addition(PAIRS, "data/addition/pairs.jsonl.gz", pairs),
        _addition(HELD_OUT, "data/addition/pairs_heldout.jsonl.gz", pairs),
        _addition(LENGTH, CONTROLS, replace(pairs, text="longer", rejected="shorter")),
        _addition(STYLE, CONTROLS, replace(pairs, text="round", rejected="square")),
        synthetic_source("addition_synthetic", "addition_own", "math", "CC0-1.0"),
    )


def synthetic_source(name: str, of: str, domain: Domain, licence: str) -> Source:
    """Return the source of what a synthetic set accepted. Its documents keep rollout, prompt, teacher and verifier."""
    return Source(
        name=name,
        loader=SyntheticFiles(of),
        format=Records("jsonl", keep=("rollout", "prompt_id", "teacher_model", "teacher_version", "verifier")),
        domain=domain,
        licence=licence,
        terms="made by this repository",
        mixture_weight=1.0,
    )


def _addition(name: str, path: str, format: Records) -> Source:
    return Source(
        name=name,
        loader=RepositoryFiles((path,), repository_listing((path,))),
        format=format,
        domain="chat",
        licence="CC0-1.0",
        terms="made by this repository",
        mixture_weight=1.0,
    )
