"""The stage `datakit.card`: one page for each source, from its files to what is left of it for training, with samples
of every drop.

Everything is read from the source's own artifacts. The card computes nothing that a stage did not record, so it cannot
disagree with them. Samples are the first documents by id, which are hashes.
"""

from dataclasses import dataclass

import polars as pl

from datakit.cards import sections
from datakit.cards.page import Heading, Note, Picture, markdown, page
from datakit.cards.pictures import deciles_png, fates_png, lengths_png
from datakit.cards.stages import Stages, all_drops, fates
from datakit.cards.tables import Clusters, Lengths, Matches, first_by_reason
from datakit.documents.parts import document_paths, texts_of
from datakit.documents.schemas import DUPLICATES_FILE
from datakit.tokens.cache import DROPPED
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

MATCHES_SHOWN = 5
CLUSTER_SHOWN = 3


@dataclass(frozen=True)
class CardConfig:
    """What the catalogue says besides a source's identity, and how much is shown."""

    rough_tokens_billion: float | None
    origin: str
    """Where the origin describes the dataset; "" if unknown."""

    samples: int = 2

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"card.samples is {self.samples}; it must be at least 1")


def write_card(out: Writer, config: CardConfig, **inputs: Artifact) -> None:
    """Write `card.md`, `card.html` and their pictures."""
    stages = Stages(**inputs)
    lengths = Lengths.of(document_paths(stages.normalized))
    became = fates(stages)
    lengths_png(lengths, out.folder / "lengths.png")
    fates_png(became, out.folder / "fates.png")
    if stages.scores is not None:
        deciles_png(stages.scores.manifest.extra["scores"]["deciles"], out.folder / "scores.png")
    dropped = _sampled(stages, config.samples)
    clusters = Clusters.of(stages.duplicates.file(DUPLICATES_FILE), stages.source["name"], CLUSTER_SHOWN)
    matches = Matches.of(stages.contamination.files("matches.parquet")[0], MATCHES_SHOWN)
    shown = [*dropped["id"], *(identity for identity, _ in clusters.first), *matches.strongest.get_column("id", default=[])]
    openings = {i: sections.short(text) for i, text in texts_of(document_paths(stages.normalized), shown).items()}
    blocks = [
        *sections.head(stages, config.rough_tokens_billion, config.origin),
        *sections.what_became(stages, config.samples),
        Heading("How long the documents are"),
        Picture("lengths.png", "histogram of document lengths"),
        Note(sections.length_words(lengths)),
        *sections.drop_samples(stages, dropped, openings, config.samples),
        *sections.quality(stages),
        *sections.duplicates(stages, clusters, openings),
        *sections.contamination(stages, matches, openings),
    ]
    (out.folder / "card.md").write_text(markdown(blocks))
    (out.folder / "card.html").write_text(page(f"{stages.source['name']}: card", blocks, out.folder))
    rows = stages.normalized.manifest.statistics
    out.extra["card"] = {"source": stages.source["name"], "rows_in": rows["rows_in"], "fates": became}
    out.record(rows_in=rows["rows_in"], rows_out=became["train"] + became["held out"], drops=all_drops(stages))


CARD = Stage(
    "datakit.card",
    "5",
    write_card,
    description="A page about a source: licence, pin, rows by stage, drops with samples, quality, duplicates, leaks.",
    checks=("rows_conserved", "file_set"),
)
"""5: lengths within two powers of ten are on a linear axis. 4: samples of cut paragraphs. 3: one file is one file."""


def _sampled(stages: Stages, samples: int) -> pl.DataFrame:
    """stage, id, reason: the first documents of every reason that the corpus or the token cache dropped."""
    tables = [("corpus", path) for path in stages.corpus.files("dropped.parquet")]
    tables += [] if stages.tokens is None else [("tokens", path) for path in stages.tokens.files(under=f"{DROPPED}/")]
    return first_by_reason(tables, samples)
