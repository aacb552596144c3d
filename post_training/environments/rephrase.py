"""Prompts that ask a teacher to rephrase documents, and a verifier that a rephrasing keeps their numbers and is no copy.

Rephrased text helps most beside the original (WRAP, Maini et al. 2024, arXiv 2401.16380). The verifier is exact about what it
can see, and says nothing about style: give a judge beside it (`post_training.synthetic.spec.AcceptConfig`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import polars as pl

from datakit.documents.parts import iterate_documents
from datakit.text.shingles import shingle_hashes
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict, check_share, graded, split_of
from post_training.environments.table import write_prompts

type Style = Literal["encyclopedia", "simple", "question_answer"]
INSTRUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "encyclopedia": "Rewrite the text in the style of an encyclopedia.",
        "simple": "Rewrite the text in short sentences with plain words.",
        "question_answer": "Rewrite the text as questions and their answers.",
    }
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
COPY_WORDS = 8


@dataclass(frozen=True)
class Rephrase:
    """How documents are rephrased, and what counts as a rephrasing."""

    styles: tuple[Style, ...] = ("encyclopedia",)
    most_characters: int = 4_000
    """Longer documents are left out, because their rephrasing would be cut."""

    least_length: float = 0.3
    """Characters of a rephrasing as a share of the document's."""

    most_length: float = 2.0
    most_copied: float = 0.5
    """Share of the rephrasing's runs of eight words that stand in the document."""

    held_out_share: float = 0.1

    def __post_init__(self) -> None:
        unknown = [style for style in self.styles if style not in INSTRUCTIONS]
        if unknown or not self.styles:
            raise ValueError(f"rephrase.styles is {self.styles}; give one or more of {', '.join(INSTRUCTIONS)}")
        if not 0 < self.least_length < self.most_length or not 0 <= self.most_copied <= 1:
            raise ValueError(
                f"rephrase.least_length is {self.least_length}, most_length {self.most_length}, most_copied "
                f"{self.most_copied}; lengths must be positive and ordered, most_copied in [0, 1]"
            )
        check_share("rephrase", self.held_out_share)


def build(out: Writer, config: Rephrase, normalized: Artifact) -> None:
    """Write a prompt for each document and style. Longer documents are left out and counted."""
    all_prompts = [prompt for table in iterate_documents(normalized) for prompt in prompts(config, table)]
    write_prompts(out, all_prompts)
    lengths = [text for table in iterate_documents(normalized, columns=["text"]) for text in table["text"].str.len_chars()]
    out.record(rows_in=len(lengths), too_long=sum(length > config.most_characters for length in lengths))


def prompts(config: Rephrase, documents: pl.DataFrame) -> Iterator[Prompt]:
    """Yield prompts named `<style>/<document id>`; all styles of a document are in one split."""
    limits = {"least": config.least_length, "most": config.most_length, "copied": config.most_copied}
    for name, text in documents.select("id", "text").iter_rows():
        if len(text) > config.most_characters:
            continue
        split = split_of(name, config.held_out_share)
        for style in config.styles:
            prompt_text = f"{INSTRUCTIONS[style]}\n\nText:\n{text}\n\nRewritten text:\n"
            yield Prompt(f"{style}/{name}", split, prompt_text, "", json.dumps({"document": text, **limits}))


def judge(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge rephrasings: length, numbers, and how much is copied. The detail names the first fault."""
    return [_judged(json.loads(prompt.task), text) for prompt, text in zip(prompts, texts, strict=True)]


def _judged(task: dict, text: str) -> Verdict:
    document, length = task["document"], len(text) / max(1, len(task["document"]))
    if not task["least"] <= length <= task["most"]:
        return graded(False, f"length {length:.2f} of the document's")
    invented = sorted(set(NUMBER.findall(text)) - set(NUMBER.findall(document)))
    if invented:
        return graded(False, f"the document has no {invented[0]}")
    own, there = (set(shingle_hashes(each, COPY_WORDS).tolist()) for each in (text, document))
    copied = len(own & there) / max(1, len(own))
    return graded(copied <= task["copied"], f"{copied:.2f} copied")


REPHRASE = Stage(
    "environments.rephrase",
    "1",
    build,
    description="Documents with the instruction to rephrase them; the verifier compares numbers, length and copied runs.",
    checks=("file_set",),
)
