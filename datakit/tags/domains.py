"""The stage `datakit.domains`: the domain of every document, by a trained model (`datakit.domain_model`).

A domain here is what a text is about or what it is for, such as `politics`. `Source.domain` says how a source is read.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from datakit.documents.schemas import DOMAIN, DOMAINS_FOLDER
from datakit.tags.domain_model import DomainModel
from datakit.tags.table import tag_one_part, write_tags
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

UNDECIDED = "undecided"
"""Domain of a text of which no domain is probable enough."""


@dataclass(frozen=True)
class DomainsConfig:
    """How sure the model must be."""

    min_probability: float = 0.5
    """A less probable domain is `undecided`."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"domains: min_probability is {self.min_probability}; it is from 0 to 1")


def tag_domains(out: Writer, config: DomainsConfig, normalized: Artifact, model: Artifact) -> None:
    """Write `domains/part-*.parquet` beside the documents' parts: id, domain, probability (of the likeliest domain)."""
    opened = DomainModel.of(model)
    write_tags(out, normalized, tag_part, (config, opened), DOMAIN)
    out.extra["tags"]["model"] = {"name": opened.name, "digest": opened.digest}


DOMAINS = Stage(
    "datakit.domains",
    "1",
    tag_domains,
    description="The domain of every document and its probability, by a model that learned from examples.",
    checks=("file_set", "attributes_aligned"),
)


def tag_part(folder: Path, part: Path, by: tuple[DomainsConfig, DomainModel]) -> dict[str, Any]:
    """Tag one part."""
    return tag_one_part(folder, part, DOMAINS_FOLDER, DOMAIN, partial(tagged, config=by[0], model=by[1]))


def tagged(documents: pl.DataFrame, config: DomainsConfig, model: DomainModel) -> pl.DataFrame:
    """Return `id`, `domain` and `probability` of documents with `id` and `text`."""
    domains, best = pl.Series(DOMAIN, [], pl.String), pl.Series("probability", [], pl.Float64)
    if documents.height:
        probabilities = model.probabilities(documents["text"].to_list())
        best = pl.Series("probability", probabilities.max(axis=1).round(4))
        likeliest = [model.domains[row] for row in probabilities.argmax(axis=1)]
        sure = [domain if p >= config.min_probability else UNDECIDED for domain, p in zip(likeliest, best, strict=True)]
        domains = pl.Series(DOMAIN, sure, pl.String)
    return documents.select("id").with_columns(domains, best)
