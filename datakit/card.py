"""The stage `datakit.card`: one page a source, from its files to what is left of it for training, with samples of every drop.

Everything is read from the source's own artifacts; nothing is computed that a stage did not record, so the card cannot
disagree with them. Samples are the first documents by id, which are hashes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from datakit.card_page import Block, Heading, Note, Picture, Table, markdown, page
from datakit.card_pictures import deciles_png, fates_png, lengths_png
from datakit.card_tables import Clusters, Lengths, Matches, first_by_reason, first_cuts
from datakit.corpus_parts import SPLITS
from datakit.documents import document_paths, texts_of
from datakit.schemas import DUPLICATES_FILE
from datakit.token_cache import DROPPED
from lineage.stage import Stage
from lineage.store import Artifact
from lineage.writer import Writer

OPENING_CHARS = 160
MATCHES_SHOWN = 5
CLUSTER_SHOWN = 3


@dataclass(frozen=True)
class CardConfig:
    """What the catalogue says beside a source's identity, and how much is shown."""

    rough_tokens_billion: float | None
    origin: str
    """Where the origin describes the dataset; "" where nobody has said."""

    samples: int = 2

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"card.samples is {self.samples}; it must be at least 1")


@dataclass(frozen=True)
class Stages:
    """The source's artifacts."""

    raw: Artifact
    normalized: Artifact
    quality: Artifact
    rules: Artifact
    contamination: Artifact
    duplicates: Artifact
    corpus: Artifact
    scores: Artifact | None = None
    """Where its line has a scorer."""

    tokens: Artifact | None = None
    """The token cache of what is trained on, whose format may drop documents too; where its line has one."""

    @property
    def source(self) -> Mapping[str, Any]:
        return self.raw.manifest.extra["source"]


def write_card(out: Writer, config: CardConfig, **inputs: Artifact) -> None:
    """Write `card.md`, `card.html` and their pictures."""
    stages = Stages(**inputs)
    lengths = Lengths.of(document_paths(stages.normalized))
    lengths_png(lengths, out.folder / "lengths.png")
    fates_png(_fates(stages), out.folder / "fates.png")
    if stages.scores is not None:
        deciles_png(stages.scores.manifest.extra["scores"]["deciles"], out.folder / "scores.png")
    dropped = _sampled(stages, config.samples)
    clusters = Clusters.of(stages.duplicates.files(DUPLICATES_FILE)[0], stages.source["name"], CLUSTER_SHOWN)
    matches = Matches.of(stages.contamination.files("matches.parquet")[0], MATCHES_SHOWN)
    shown = [*dropped["id"], *(identity for identity, _ in clusters.first), *matches.strongest.get_column("id", default=[])]
    openings = {i: _short(text) for i, text in texts_of(document_paths(stages.normalized), shown).items()}
    blocks = [
        *_head(config, stages),
        *_stages(stages, config.samples),
        Heading("How long the documents are"),
        Picture("lengths.png", "histogram of document lengths"),
        Note(_length_words(lengths)),
        *_drops(stages, dropped, openings, config.samples),
        *_quality(stages),
        *_duplicates(stages, clusters, openings),
        *_contamination(stages, matches, openings),
    ]
    (out.folder / "card.md").write_text(markdown(blocks))
    (out.folder / "card.html").write_text(page(f"{stages.source['name']}: card", blocks, out.folder))
    rows = stages.normalized.manifest.statistics
    fates = _fates(stages)
    out.extra["card"] = {"source": stages.source["name"], "rows_in": rows["rows_in"], "fates": fates}
    out.record(rows_in=rows["rows_in"], rows_out=fates["train"] + fates["held out"], drops=_all_drops(stages))


CARD = Stage("datakit.card", "4", write_card)
"""4: samples of cut paragraphs. 3: one file is one file."""


def _all_drops(stages: Stages) -> dict[str, int]:
    counted = [("normalize", stages.normalized), ("corpus", stages.corpus), ("tokens", stages.tokens)]
    drops = {name: made.manifest.statistics.get("drops", {}) for name, made in counted if made is not None}
    return {f"{name}: {reason}": n for name, found in drops.items() for reason, n in found.items()}


def _fates(stages: Stages) -> dict[str, int]:
    """What became of every record."""
    kept, drops = stages.corpus.manifest.statistics, _all_drops(stages)
    without_tokens = sum(n for name, n in drops.items() if name.startswith("tokens: "))
    return {"train": kept["rows_train"] - without_tokens, "held out": kept["rows_heldout"], **drops}


def _sampled(stages: Stages, samples: int) -> pl.DataFrame:
    """stage, id, reason: the first documents of every reason that the corpus or the token cache dropped."""
    tables = [("corpus", path) for path in stages.corpus.files("dropped.parquet")]
    tables += [] if stages.tokens is None else [("tokens", path) for path in stages.tokens.files(under=f"{DROPPED}/")]
    return first_by_reason(tables, samples)


def _head(config: CardConfig, stages: Stages) -> Iterator[Block]:
    source = stages.source
    tokens = "" if config.rough_tokens_billion is None else f"{config.rough_tokens_billion:g} billion, rough"
    facts = {
        "domain": source["domain"],
        "licence": _verified(source["licence"]),
        "terms": source["terms"],
        "revision": stages.raw.manifest.extra.get("commit") or _pin(source["loader"]),
        "described at": config.origin,
        "tokens at the origin": tokens,
        "format": str(source["format"]) if isinstance(source["format"], str) else source["format"]["container"],
        "data version of the files": stages.raw.data_version[:16],
        "data version of the corpus": stages.corpus.data_version[:16],
    }
    yield Heading(source["name"], 1)
    yield Table(("", " "), tuple((name, value) for name, value in facts.items() if value))


def _verified(licence: Any) -> str:
    return licence if isinstance(licence, str) else f"unverified{': ' + licence['claim'] if licence['claim'] else ''}"


def _pin(loader: Mapping[str, Any]) -> str:
    """What pins the files, in words."""
    pin = loader.get("pin")
    if pin:
        return f"{pin['package']} {pin['version']}, sha256 {pin['sha256'][:16]}"
    listing = loader.get("listing")
    return f"listing {listing[:16]}" if isinstance(listing, str) else ", ".join(f["url"] for f in loader.get("files", ()))


def _stages(stages: Stages, samples: int) -> Iterator[Block]:
    raw = stages.raw.manifest.statistics
    rows = [("files", f"{raw['files']:,} file{'' if raw['files'] == 1 else 's'}", "", "", _megabytes(raw["bytes_out"]))]
    for name, made in (("documents", stages.normalized), ("corpus", stages.corpus)):
        s = made.manifest.statistics
        dropped = s["rows_in"] - s["rows_out"]
        rows.append((name, f"{s['rows_in']:,}", f"{s['rows_out']:,}", f"{dropped:,}", _megabytes(s["bytes_out"])))
    if stages.tokens is not None:
        s = stages.tokens.manifest.statistics
        rows.append(("tokens", f"{s['rows_in']:,}", f"{s['rows_out']:,}", f"{s['rows_in'] - s['rows_out']:,}", ""))
    yield Heading("What became of it")
    yield Table(("stage", "rows in", "rows out", "dropped", "MB out"), tuple(rows))
    if cut := stages.corpus.manifest.statistics.get("cut_paragraphs"):
        size = _megabytes(stages.corpus.manifest.statistics["cut_bytes"])
        many = "paragraph that stands" if cut == 1 else "paragraphs that stand"
        yield Note(f"Cut out of documents that stay: {cut:,} {many} in an earlier one too ({size} MB).")
        yield Table(
            ("document", "paragraph that was cut"), tuple(_cuts(stages, samples)), frozenset({"paragraph that was cut"})
        )
    yield Picture("fates.png", "records by what became of them")


def _cuts(stages: Stages, samples: int) -> Iterator[tuple[str, str]]:
    """(document, opening of the first paragraph cut out of it) of the first documents by id."""
    parts = [path for split in SPLITS for path in stages.corpus.files(".parquet", under=f"{split}/")]
    found = first_cuts(parts, samples)
    texts = texts_of(document_paths(stages.normalized), (identity for identity, _ in found))
    return ((identity[:12], _short(texts[identity][start:end])) for identity, (start, end) in found)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _length_words(lengths: Lengths) -> str:
    low, half, high = map(lengths.quantile, (0.05, 0.5, 0.95))
    words = f"Half of the documents have up to {half:,.0f} characters, nine of ten {low:,.0f} to {high:,.0f}"
    return f"{words}; together {lengths.total:,}."


def _drops(stages: Stages, dropped: pl.DataFrame, openings: Mapping[str, str], samples: int) -> Iterator[Block]:
    yield Heading("Drops by reason, with samples")
    first = pl.read_parquet(stages.normalized.files("dropped.parquet")[0])
    first = first.filter(pl.int_range(pl.len()).over("reason") < samples)
    counts = _all_drops(stages)
    rows = [("normalize", reason, source_id, _short(sample)) for source_id, reason, sample in first.iter_rows()]
    rows += [(stage, reason, identity[:12], openings[identity]) for stage, identity, reason in dropped.iter_rows()]
    if not rows:
        yield Note("Nothing was dropped.")
        return
    cells = [(f"{stage}: {reason}", f"{counts[f'{stage}: {reason}']:,}", place, text) for stage, reason, place, text in rows]
    yield Table(("reason", "documents", "sample", "opening"), tuple(cells), frozenset({"opening"}))


def _quality(stages: Stages) -> Iterator[Block]:
    yield Heading("Quality")
    drops, rows = stages.rules.manifest.extra["rule_sets"], stages.rules.manifest.statistics["rows_in"]
    if drops:
        yield Note("What the published rule sets would drop (the corpus goes by its own rules, above):")
        shares = [(n, f"{100 * sum(f.values()) / rows:.1f}%", _most(f)) for n, f in drops.items()]
        yield Table(("rule set", "of the documents", "most often"), tuple(shares))
    else:
        yield Note("The published rule sets judge prose and do not apply to this domain.")
    if stages.scores is None:
        yield Note("No scorer is declared for the line of this corpus.")
        return
    scores = stages.scores.manifest.extra["scores"]
    yield Note(f"Deciles of the score {scores['scorer']} (0 to 1: how much a document is like the scorer's good seeds):")
    yield Picture("scores.png", "scores by decile")
    shown = [(str(d["decile"]), f"{d['low']:.3f}", f"{d['high']:.3f}", d["samples"][0]["text"]) for d in scores["deciles"]]
    yield Table(("decile", "from", "to", "opening"), tuple(shown), frozenset({"opening"}))


def _most(found: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:2])


def _duplicates(stages: Stages, clusters: Clusters, openings: Mapping[str, str]) -> Iterator[Block]:
    documents = stages.normalized.manifest.statistics["rows_out"]
    copies = stages.normalized.manifest.statistics["drops"].get("exact_duplicate", 0)
    yield Heading("Duplicates")
    yield Note(
        f"{copies:,} records were exact copies within the source. Of its {documents:,} documents {clusters.documents:,} "
        f"({100 * clusters.documents / documents:.1f}%) are in clusters of near-duplicates across sources, and "
        f"{clusters.gone:,} of them leave."
    )
    if clusters.largest:
        yield Note(f"The largest cluster has {clusters.largest:,} documents of this source, among them:")
        rows = [(i[:12], "kept" if kept else "dropped", openings[i]) for i, kept in clusters.first]
        yield Table(("document", "", "opening"), tuple(rows), frozenset({"opening"}))


def _contamination(stages: Stages, matches: Matches, openings: Mapping[str, str]) -> Iterator[Block]:
    yield Heading("Benchmark contamination")
    if not matches.documents:
        yield Note("No document matches a benchmark item that the policy binds.")
        return
    tiers = ", ".join(f"{count:,} {tier}" for tier, count in matches.by_tier.items())
    yield Note(f"{matches.documents:,} documents match benchmark items ({tiers}). The strongest matches:")
    columns = ("suite", "task", "item_id", "tier", "score", "id")
    rows = [
        (f"{suite}/{task}", item, tier, f"{score:.2f}", openings[identity])
        for suite, task, item, tier, score, identity in matches.strongest.select(columns).iter_rows()
    ]
    yield Table(("task", "item", "tier", "score", "opening"), tuple(rows), frozenset({"opening"}))


def _short(text: str) -> str:
    words = " ".join(text[: 4 * OPENING_CHARS].split())
    return words if len(words) <= OPENING_CHARS else words[: OPENING_CHARS - 1] + "…"
