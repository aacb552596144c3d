"""Filters of a corpus: attribute tables joined one part at a time, and one small declaration for each filter.

An attribute table is beside the documents: parts of the same names, rows of the same ids in the same order. A filter is
a line of `reasons` below: an expression over the joined columns that gives a reason, or null if the document may stay.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from datakit.corpus.removals import REMOVED, Removed
from datakit.documents.parts import TARGET_PART_BYTES
from datakit.documents.parts_of_tasks import parts_beside
from datakit.documents.schemas import CLUSTERS_FOLDER, CONTAINED_FOLDER, DOMAIN, DOMAINS_FOLDER, KEPT_ID, SEMANTIC_FOLDER
from datakit.quality.cutoff import Cutoff
from datakit.tags import code_licences, languages
from lineage.artifact.store import Artifact
from lineage.shards.reads import Folder, files_of
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class CorpusConfig:
    """Which filters apply, and the held-out share."""

    drop_duplicates: bool = True
    drop_contaminated: bool = True
    drop_low_quality: bool = True
    heldout_frac: float = 0.02
    split_salt: str = "heldout-1"
    rule_sets: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Published rule sets (`datakit.quality_rules`) that a document must pass, if they judge its domain."""

    min_score: float | None = field(default=None, metadata={"added_later": True})
    """Lowest score (`datakit.scores`, 0 to 1) that stays."""

    best_scores: bool = field(default=False, metadata={"added_later": True})
    """Whether only documents within the input `cutoff` stay (`datakit.score_cutoff`: a fraction of the documents)."""

    cut_paragraphs: bool = field(default=False, metadata={"added_later": True})
    """Whether spans of the input `paragraphs` (`datakit.paragraphs`) are cut; a document with nothing left is dropped."""

    max_repeated_share: float | None = field(default=None, metadata={"added_later": True})
    """Largest share of a document's characters that may stand in spans of the input `paragraphs`: a document that lies inside
    others is dropped as a whole. None: any share."""

    drop_contained: bool = field(default=False, metadata={"added_later": True})
    """Whether documents that lie inside another one (the input `containment`, `datakit.containment`) are dropped."""

    remove_listed: bool = field(default=False, metadata={"added_later": True})
    """Whether documents of the input `removals` (`datakit.removals`) and their copies are left out."""

    languages: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Languages (`datakit.languages`) that stay; none: all. `und` is a text whose language is not known. Code stays."""

    code_licences: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """SPDX expressions (`datakit.code_licences`) with which a file of code stays; none: all. A file that states none stays."""

    drop_semantic_duplicates: bool = field(default=False, metadata={"added_later": True})
    """Whether documents that say what another one says (the input `semantic_duplicates`) are dropped."""

    domains: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Domains (`datakit.domains`) that stay; none: all. `undecided` is a text of which no domain is probable."""

    target_part_bytes: int = field(default=TARGET_PART_BYTES, metadata={"added_later": True})
    """Text of one file."""

    def __post_init__(self) -> None:
        if self.target_part_bytes < 1:
            raise ValueError(f"corpus.target_part_bytes is {self.target_part_bytes}; it must be at least 1")
        if not 0 <= self.heldout_frac < 1:
            raise ValueError(f"corpus.heldout_frac is {self.heldout_frac}; it must be in [0, 1)")
        if self.max_repeated_share is not None and not 0 <= self.max_repeated_share < 1:
            raise ValueError(f"corpus.max_repeated_share is {self.max_repeated_share}; it must be in [0, 1)")
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            raise ValueError(f"corpus.min_score is {self.min_score}; it must be from 0 to 1")

    @property
    def reads(self) -> frozenset[str]:
        """Names of the optional inputs that the filters read."""
        scored = {"scores"} if self.min_score is not None or self.best_scores else set()
        chosen = {
            "quality": self.drop_low_quality,
            "rules": bool(self.rule_sets),
            "languages": bool(self.languages),
            "code_licences": bool(self.code_licences),
            "domains": bool(self.domains),
            "semantic_duplicates": self.drop_semantic_duplicates,
            "cutoff": self.best_scores,
            "paragraphs": self.cut_paragraphs or self.max_repeated_share is not None,
            "containment": self.drop_contained,
            "removals": self.remove_listed,
        }
        return frozenset({*scored, *(name for name, is_read in chosen.items() if is_read)})


def reasons(config: CorpusConfig, cutoff: Cutoff | None, removed: Removed | None) -> Iterator[pl.Expr]:
    """Yield the declared filters in order; the first that applies to a document names the drop."""
    if removed is not None:
        yield pl.when(removed.drops()).then(pl.lit(REMOVED))
    if config.drop_duplicates:
        yield pl.when(~pl.col("is_kept")).then(pl.lit("duplicate"))
    if config.drop_semantic_duplicates:
        yield pl.when(pl.col("semantic_kept") != "").then(pl.lit("semantic_duplicate"))
    if config.drop_contaminated:
        yield pl.when("contaminated").then(pl.lit("contaminated"))
    if config.drop_low_quality:
        yield pl.when(pl.col("low_quality") != "").then(pl.concat_str(pl.lit("low_quality:"), "low_quality"))
    for name in config.rule_sets:
        yield pl.when(pl.col(name) != "").then(pl.concat_str(pl.lit(f"{name}:"), name))
    if config.languages:
        is_wanted = pl.col("language").is_in(("", *config.languages))  # "": not judged
        yield pl.when(~is_wanted).then(pl.concat_str(pl.lit("language:"), "language"))
    if config.code_licences:
        is_allowed = pl.col("licence").is_in(("", *config.code_licences))
        yield pl.when(~is_allowed).then(pl.concat_str(pl.lit("licence:"), "licence"))
    if config.domains:
        is_chosen = pl.col("domain").is_in(("", *config.domains))
        yield pl.when(~is_chosen).then(pl.concat_str(pl.lit("domain:"), "domain"))
    if config.min_score is not None:
        yield pl.when(pl.col("score") < config.min_score).then(pl.lit("low_score"))
    if cutoff is not None:
        yield pl.when(cutoff.drops()).then(pl.lit("below_cutoff"))
    if config.drop_contained:
        yield pl.when(pl.col("container") != "").then(pl.lit("inside_another"))
    if config.max_repeated_share is not None:
        yield pl.when(pl.col("repeated_share") > config.max_repeated_share).then(pl.lit("inside_others"))
    if config.cut_paragraphs:
        yield pl.when("is_emptied").then(pl.lit("only_repeated_paragraphs"))


@dataclass(frozen=True)
class Table:
    """An attribute table of an artifact: the folder of its parts, and the columns that filters read, by their new
    names.
    """

    folder: str
    columns: Mapping[str, str]


def tables(config: CorpusConfig, source: str) -> Mapping[str, Table]:
    """Return the attribute tables of a source by the name of the corpus's input."""
    return {
        "quality": Table("quality", {"low_quality": "reason"}),
        "contamination": Table("marks", {"contaminated": "contaminated"}),
        "rules": Table("rules", {name: name for name in config.rule_sets}),
        "languages": Table(languages.FOLDER, {"language": languages.COLUMN}),
        "code_licences": Table(code_licences.FOLDER, {"licence": code_licences.COLUMN}),
        "containment": Table(f"{CONTAINED_FOLDER}/{source}", {"container": "container"}),
        "domains": Table(DOMAINS_FOLDER, {"domain": DOMAIN}),
        "scores": Table("scores", {"score": "score"}),
        "semantic_duplicates": Table(f"{SEMANTIC_FOLDER}/{source}", {"semantic_kept": KEPT_ID}),
    }


@dataclass(frozen=True)
class Attributes:
    """Where the attributes of one source's documents are. Paths only, because it is sent between processes."""

    duplicates: str
    """Name of the artifact that made the clusters."""

    clusters: Folder
    """Folder of the files of this source's parts."""

    tables: Mapping[str, tuple[str, Folder, Table]]
    """Input -> (name of the artifact, folder of its parts, what is read of them)."""

    @staticmethod
    def of(
        out: Writer, parts: Sequence[str], source: str, duplicates: Artifact, config: CorpusConfig, **given: Artifact
    ) -> "Attributes":
        """Locate the tables. Raises: ValueError for an input that `tables` does not know, or that lacks one of `parts`."""
        declared = tables(config, source)
        if unknown := given.keys() - declared.keys():
            raise ValueError(
                f"no attribute table is declared for {', '.join(sorted(unknown))}; there are: {', '.join(declared)}"
            )
        folders = {
            name: (a.name, parts_beside(out, a, declared[name].folder, parts), declared[name]) for name, a in given.items()
        }
        return Attributes(duplicates.name, parts_beside(out, duplicates, f"{CLUSTERS_FOLDER}/{source}", parts), folders)

    def reading(self, part: str) -> "Attributes":
        """Return the attributes for a task that reads those of one part."""
        tables = {name: (a, files_of(folder, [part]), table) for name, (a, folder, table) in self.tables.items()}
        return Attributes(self.duplicates, files_of(self.clusters, [part]), tables)

    def of_part(self, part: str, ids: pl.Series) -> pl.DataFrame:
        """Return attributes of the documents of one part, in order; those of duplicates are null if a document has no
        cluster.

        Raises: ValueError if a table's ids are not the documents', or if a cluster has a document that is not there.
        """
        joined = ids.to_frame("id")
        for _, (artifact, folder, table) in sorted(self.tables.items()):
            joined = joined.with_columns(_aligned(folder / part, table, ids, artifact))
        clusters = pl.read_parquet(self.clusters / part)
        joined = joined.join(clusters, on="id", how="left", validate="1:1", maintain_order="left")
        if unknown := clusters.height - joined["cluster_id"].count():
            raise ValueError(
                f"{self.duplicates}: part {part} names {unknown} documents that are not there; it was made from other "
                "documents: materialize it again"
            )
        return joined


def _aligned(path: Path, table: Table, ids: pl.Series, artifact: str) -> list[pl.Series]:
    """Return the columns that filters read. A table with ids only does not judge its source (prose rules and code)."""
    table_rows = pl.read_parquet(path)
    if not table_rows["id"].equals(ids):
        raise ValueError(
            f"{artifact}: part {path.name} has {table_rows.height} rows for {ids.len()} documents, or other ids; it was made "
            "from other documents: materialize it again"
        )
    if table_rows.width == 1:
        return [pl.repeat("", ids.len(), dtype=pl.String, eager=True).alias(name) for name in table.columns]
    if missing := set(table.columns.values()) - set(table_rows.columns):
        raise ValueError(f"{artifact} has no column {', '.join(sorted(missing))}; it has: {', '.join(table_rows.columns)}")
    return [table_rows[column].alias(name) for name, column in table.columns.items()]
