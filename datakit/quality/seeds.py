"""Labelled seeds of a scorer: documents of declared sources, chosen by their ids, which are hashes, or by a model's labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from datakit.documents.parts import as_frame, document_paths, iterate_part
from datakit.quality.labels import read_labelled
from datakit.text.examples import Example
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
class LabelledSeed:
    """Documents of a source that a model labelled (`labels.documents`). Those with other labels are no seeds.

    A source may have one side only, if another seed has the other.
    """

    source: str
    labels: str
    """Name of the declared labels."""

    positive: tuple[str, ...] = ("4", "5")
    """Labels of good examples; by default grades."""

    negative: tuple[str, ...] = ("0", "1")

    def __post_init__(self) -> None:
        if not self.positive or not self.negative or set(self.positive) & set(self.negative):
            raise ValueError(
                f"seed {self.source}: positive is {self.positive}, negative {self.negative}; give each a label that the other "
                "does not have"
            )


def seed_examples(
    seeds: tuple[Seed | LabelledSeed, ...],
    sources: tuple[str, ...],
    normalized: tuple[Artifact, ...],
    quality: tuple[Artifact, ...],
    quality_folder: str,
    labels: tuple[Artifact, ...] = (),
) -> list[Example]:
    """Return every seed's documents, the first by id. `labels` are those of the labelled seeds, in their order.

    Raises: ValueError for a source without any, a label without any, or a document under both labels.
    """
    gathered = list[Example]()
    for seed in seeds:
        if isinstance(seed, LabelledSeed):
            continue
        place = sources.index(seed.source)
        examples = list(_of_seed(seed, normalized[place], quality[place], quality_folder))
        if not examples:
            raise ValueError(f"seed {seed.source} ({seed.verdict}): {normalized[place].name} has no such document")
        gathered += examples
    labelled = list(zip((seed for seed in seeds if isinstance(seed, LabelledSeed)), labels, strict=True))
    for seed, artifact in labelled:
        gathered += _labelled(seed, artifact)
    if missing := {"positive", "negative"} - {example.label for example in gathered}:
        without = f"no {' and no '.join(sorted(missing))} document"
        counts = (
            f"seed {seed.source}: {artifact.name} has {without}; its labels are {artifact.manifest.extra['labels']['labels']}, "
            f"positive {seed.positive}, negative {seed.negative}"
            for seed, artifact in labelled
        )
        raise ValueError(f"{'; '.join(counts)}: choose by what is there, or label more documents")
    return unique_examples(gathered)


def unique_examples(examples: Iterable[Example]) -> list[Example]:
    """Return each document once. Raises: ValueError for a document with two labels."""
    unique: dict[str, Example] = {}
    for example in examples:
        other = unique.setdefault(example.id, example)
        if other.label != example.label:
            raise ValueError(
                f"document {example.id} has two labels: {other.label} by {other.source}, {example.label} by {example.source}"
            )
    return list(unique.values())


def _labelled(seed: LabelledSeed, labels: Artifact) -> list[Example]:
    rows = read_labelled(labels, seed.labels, seed.source)
    sides: Sequence[tuple[Label, tuple[str, ...]]] = (("positive", seed.positive), ("negative", seed.negative))
    return [
        Example(seed.source, identity, side, text)
        for side, wanted in sides
        for identity, text in rows.filter(pl.col("label").is_in(wanted)).select("id", "text").iter_rows()
    ]


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
