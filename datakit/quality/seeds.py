"""Labelled seeds of a scorer: documents of declared sources, chosen by their ids, which are hashes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from datakit.documents.parts import as_frame, document_paths, iterate_part
from lineage.artifact.store import Artifact

type Label = Literal["positive", "negative"]


@dataclass(frozen=True)
class Seed:
    """Documents of a source that count as good or as poor examples."""

    source: str
    label: Label
    verdict: Literal["any", "kept", "dropped"] = "any"
    """Which side of the source's quality rules they are on."""

    max_documents: int = 2_000

    def __post_init__(self) -> None:
        if self.max_documents < 1:
            raise ValueError(f"seed {self.source}: max_documents is {self.max_documents}; it must be at least 1")


@dataclass(frozen=True)
class Example:
    """One labelled document."""

    source: str
    id: str
    label: Label
    text: str


def seed_examples(
    seeds: tuple[Seed, ...],
    sources: tuple[str, ...],
    normalized: tuple[Artifact, ...],
    quality: tuple[Artifact, ...],
    quality_folder: str,
) -> list[Example]:
    """Return every seed's documents, the first by id. Raises: ValueError for a seed without any, or a document under
    both labels.
    """
    chosen_examples: dict[str, Example] = {}
    for seed in seeds:
        place = sources.index(seed.source)
        examples = list(_of_seed(seed, normalized[place], quality[place], quality_folder))
        if not examples:
            raise ValueError(f"seed {seed.source} ({seed.verdict}): {normalized[place].name} has no such document")
        for example in examples:
            other = chosen_examples.setdefault(example.id, example)
            if other.label != example.label:
                raise ValueError(f"document {example.id} is a seed of both labels, from {other.source} and {example.source}")
    return list(chosen_examples.values())


def _of_seed(seed: Seed, normalized: Artifact, quality: Artifact, quality_folder: str) -> Iterator[Example]:
    """Yield documents in id order. Ids are hashes, so the first documents are a random sample that stays when the
    source grows.
    """
    left = seed.max_documents
    for part in document_paths(normalized):
        kept = pl.read_parquet(quality.folder() / quality_folder / part.name, columns=["id", "keep"])
        wanted = kept if seed.verdict == "any" else kept.filter(pl.col("keep") == (seed.verdict == "kept"))
        for table in iterate_part(part, ["id", "text"]):
            chosen = as_frame(table).join(wanted.select("id"), on="id", how="semi", maintain_order="left").head(left)
            yield from (Example(seed.source, identity, seed.label, text) for identity, text in chosen.iter_rows())
            left -= chosen.height
            if not left:
                return
