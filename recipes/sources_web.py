"""Web corpora of the reference runs (Marin 8B and 32B): Nemotron-CC, DCLM, FineWeb-Edu, Common Corpus.

Where the facts come from, here and in the other `sources_*` modules: a `Revision` is the commit that Marin's public code pins
(stored copies of github.com/marin-community/marin, read 2026-11-21); nobody here has asked the hub for it, but a wrong one
cannot load. Licences were read on no origin's page and are `Unverified`, with what is believed, unless the entry says
otherwise. Field names and token counts are the publishers' as remembered: rough, and never part of an identity.
"""

from datakit.sources.source import Domain, Format, HttpFile, HttpListing, HubFiles, OneOf, Records, Revision, Source, Unverified

JSONL = Records("jsonl")
PARQUET = Records("parquet")
FROM_MEMORY = "from memory of the dataset card; read the card and its terms"
WEIGHT_PER_BILLION_TOKENS = 4000.0
"""Megabytes of text in a billion tokens, at 4 bytes a token: what `mixture_weight` counts."""

COMMON_CRAWL = "https://data.commoncrawl.org/"
NEMOTRON_LIST = f"{COMMON_CRAWL}contrib/Nemotron/Nemotron-CC/data-jsonl.paths.gz"
NEMOTRON_BUCKETS = (
    ("hq_actual", "quality=high/kind=actual", 0.91351),
    ("hq_synth", "quality=high/kind=synthetic", 2.72),
    ("medium_high", "quality=medium-high", 0.82471),
    ("medium", "quality=medium", 3.38),
    ("medium_low", "quality=medium-low", 1.54),
    ("low_actual", "quality=low/kind=actual", 0.70123),
    ("low_synth", "quality=low/kind=synthetic", 0.62771),
)
"""Name, folder, compressed TiB (Marin's mixture weights)."""


def hub_source(
    *,
    name: str,
    repository: str,
    revision: str | Unverified,
    globs: tuple[str, ...],
    format: Records | Format,
    domain: Domain,
    licence: str | Unverified,
    terms: str,
    tokens_billion: float | None = None,
    exclude: tuple[str, ...] = (),
    trainable: bool = True,
) -> Source:
    """A source of the hub. Without a token count its weight is 0; mixtures must declare one (`recipes.tokenized.mixture`)."""
    pin = Revision(revision) if isinstance(revision, str) else revision
    return Source(
        name=name,
        loader=HubFiles(repository, pin, globs, exclude),
        format=format,
        domain=domain,
        licence=licence,
        terms=terms,
        mixture_weight=WEIGHT_PER_BILLION_TOKENS * (tokens_billion or 0.0) if trainable else 0.0,
        trainable=trainable,
        rough_tokens_billion=tokens_billion,
        card=f"https://huggingface.co/datasets/{repository}",
    )


def web_sources() -> tuple[Source, ...]:
    """Crawled text, filtered by its publishers."""
    return (
        *nemotron_cc(),
        hub_source(
            name="dclm_baseline",
            repository="mlfoundations/dclm-baseline-1.0",
            revision="a3b142c",
            globs=("*.jsonl.zst",),
            format=Records("jsonl", id="metadata.WARC-Record-ID"),
            domain="web",
            licence=Unverified("CC-BY-4.0", FROM_MEMORY),
            terms="pages of Common Crawl, under its terms of use",
            tokens_billion=4000.0,
        ),
        hub_source(
            name="fineweb_edu_10bt",
            repository="HuggingFaceFW/fineweb-edu",
            revision="87f09149ef4734204d70ed1d046ddc9ca3f2b8f9",
            globs=("sample/10BT/*.parquet",),
            format=PARQUET,
            domain="web",
            licence=Unverified("ODC-By-1.0", FROM_MEMORY),
            terms="pages of Common Crawl, under its terms of use",
            tokens_billion=10.0,
        ),
        hub_source(
            name="common_corpus_english",
            repository="PleIAs/common_corpus",
            revision="b78a5c1",
            globs=("common_corpus_*/*.parquet",),
            format=Records(
                "parquet",
                id="identifier",
                only=(
                    OneOf("language", ("English",)),
                    OneOf("open_type", ("Open Science", "Open Government", "Open Culture")),
                ),
            ),
            domain="prose",
            licence=Unverified("each document's own", FROM_MEMORY),
            terms="the licence of each document is a column of the files",
        ),
    )


def nemotron_cc() -> tuple[Source, ...]:
    """The seven buckets. Common Crawl publishes a list of files and no hashes; pin the list's sha256 after reading it."""
    listing = HttpFile(NEMOTRON_LIST, "data-jsonl.paths.gz", Unverified("", "Common Crawl publishes no hash of its list"))
    return tuple(
        Source(
            name=f"nemotron_cc_{bucket}",
            loader=HttpListing(listing, COMMON_CRAWL, (f"*/{folder}/*",)),
            format=Records("jsonl", id="warc_record_id"),
            domain="web",
            licence=Unverified("Common Crawl terms of use", "from memory; the publisher's page was not read"),
            terms="synthetic buckets are rephrased by language models, whose terms apply too",
            mixture_weight=round(tebibytes * 2**40 / 1e6),
            card=f"{COMMON_CRAWL}contrib/Nemotron/Nemotron-CC/index.html",
        )
        for bucket, folder, tebibytes in NEMOTRON_BUCKETS
    )
