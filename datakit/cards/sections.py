"""The sections of a card: what the source's own artifacts recorded, as blocks of a page."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from datakit.cards.page import Block, Heading, Note, Picture, Table
from datakit.cards.stages import Stages, all_drops
from datakit.cards.tables import Clusters, Lengths, Matches, first_cuts
from datakit.corpus.parts import SPLITS
from datakit.documents.parts import document_paths, texts_of

OPENING_CHARS = 160


def head(stages: Stages, rough_tokens_billion: float | None, origin: str) -> Iterator[Block]:
    """Yield what the source declares: domain, licence, terms, revision, origin, format."""
    source = stages.source
    tokens = "" if rough_tokens_billion is None else f"{rough_tokens_billion:g} billion, rough"
    facts = {
        "domain": source["domain"],
        "licence": _verified(source["licence"]),
        "terms": source["terms"],
        "revision": stages.raw.manifest.extra.get("commit") or _pin(source["loader"]),
        "described at": origin,
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
    """Describe what pins the files."""
    pin = loader.get("pin")
    if pin:
        return f"{pin['package']} {pin['version']}, sha256 {pin['sha256'][:16]}"
    listing = loader.get("listing")
    return f"listing {listing[:16]}" if isinstance(listing, str) else ", ".join(f["url"] for f in loader.get("files", ()))


def what_became(stages: Stages, samples: int) -> Iterator[Block]:
    """Yield the rows in and out of each stage, and why records were dropped, with samples."""
    raw = stages.raw.manifest.statistics
    rows = [("files", f"{raw['files']:,} file{'' if raw['files'] == 1 else 's'}", "", "", _megabytes(raw["bytes_out"]))]
    for name, artifact in (("documents", stages.normalized), ("corpus", stages.corpus)):
        s = artifact.manifest.statistics
        dropped = s["rows_in"] - s["rows_out"]
        rows.append((name, f"{s['rows_in']:,}", f"{s['rows_out']:,}", f"{dropped:,}", _megabytes(s["bytes_out"])))
    if stages.tokens is not None:
        s = stages.tokens.manifest.statistics
        rows.append(("tokens", f"{s['rows_in']:,}", f"{s['rows_out']:,}", f"{s['rows_in'] - s['rows_out']:,}", ""))
    yield Heading("What became of it")
    yield Table(("stage", "rows in", "rows out", "dropped", "MB out"), tuple(rows))
    yield from redacted_note(stages.normalized.manifest.statistics)
    if cut := stages.corpus.manifest.statistics.get("cut_paragraphs"):
        size = _megabytes(stages.corpus.manifest.statistics["cut_bytes"])
        many = "paragraph that stands" if cut == 1 else "paragraphs that stand"
        yield Note(f"Cut out of documents that stay: {cut:,} {many} in an earlier one too ({size} MB).")
        yield Table(
            ("document", "paragraph that was cut"), tuple(_cuts(stages, samples)), frozenset({"paragraph that was cut"})
        )
    yield Picture("fates.png", "records by what became of them")


def redacted_note(normalized: Mapping[str, Any]) -> Iterator[Note]:
    """Yield how many matches of each kind a redaction replaced, if the source has one."""
    if found := normalized.get("redacted"):
        listed = ", ".join(f"{count:,} {kind}" for kind, count in found.items())
        yield Note(f"Replaced by placeholders in all records that were read: {listed}.")


def _cuts(stages: Stages, samples: int) -> Iterator[tuple[str, str]]:
    """Return (document, opening of the first paragraph cut out of it) of the first documents by id."""
    parts = [path for split in SPLITS for path in stages.corpus.files(".parquet", under=f"{split}/")]
    samples_found = first_cuts(parts, samples)
    texts = texts_of(document_paths(stages.normalized), (identity for identity, _ in samples_found))
    return ((identity[:12], short(texts[identity][start:end])) for identity, (start, end) in samples_found)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def length_words(lengths: Lengths) -> str:
    """Return a sentence about the lengths of the documents."""
    low, half, high = map(lengths.quantile, (0.05, 0.5, 0.95))
    words = f"Half of the documents have up to {half:,.0f} characters, nine of ten {low:,.0f} to {high:,.0f}"
    return f"{words}; together {lengths.total:,}."


def drop_samples(stages: Stages, dropped: pl.DataFrame, openings: Mapping[str, str], samples: int) -> Iterator[Block]:
    """Show dropped documents in one table: the first `samples` of each reason of normalization, and all rows of `dropped`.

    `dropped` is a sample of what later stages drop; `openings` has the beginning of each of its documents, by id.
    """
    yield Heading("Drops by reason, with samples")
    first = pl.read_parquet(stages.normalized.files("dropped.parquet")[0])
    first = first.filter(pl.int_range(pl.len()).over("reason") < samples)
    counts = all_drops(stages)
    rows = [("normalize", reason, source_id, short(sample)) for source_id, reason, sample in first.iter_rows()]
    rows += [(stage, reason, identity[:12], openings[identity]) for stage, identity, reason in dropped.iter_rows()]
    if not rows:
        yield Note("Nothing was dropped.")
        return
    cells = [(f"{stage}: {reason}", f"{counts[f'{stage}: {reason}']:,}", place, text) for stage, reason, place, text in rows]
    yield Table(("reason", "documents", "sample", "opening"), tuple(cells), frozenset({"opening"}))


def quality(stages: Stages) -> Iterator[Block]:
    """Yield what the published rule sets would drop, and the deciles of the declared scorer."""
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


def _most(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
    )


def duplicates(stages: Stages, clusters: Clusters, openings: Mapping[str, str]) -> Iterator[Block]:
    """Yield the exact copies and near-duplicates, with the largest cluster."""
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


def contamination(stages: Stages, matches: Matches, openings: Mapping[str, str]) -> Iterator[Block]:
    """Yield the documents that match benchmark items, with the strongest matches."""
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


def short(text: str) -> str:
    """Return the opening of a text in one line of at most `OPENING_CHARS` characters."""
    words = " ".join(text[: 4 * OPENING_CHARS].split())
    return words if len(words) <= OPENING_CHARS else words[: OPENING_CHARS - 1] + "…"
