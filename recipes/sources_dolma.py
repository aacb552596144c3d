"""Dolma 1.7 and Dolmino (OLMo 2's mid-training mix) of the Allen Institute for AI, part by part.

Dolma's hub repository holds lists of addresses; Dolmino's holds the files. Facts: see `recipes/sources_web.py`.
"""

from datakit.sources.source import Domain, HttpFile, HttpListing, Source, Unverified
from recipes.sources_web import FROM_MEMORY, JSONL, WEIGHT_PER_BILLION_TOKENS, hub_source

ODC_BY = Unverified("ODC-By-1.0", "from a mirror of the dataset card (licence: odc-by, since 2024-04-15)")
AI2_TERMS = "the collection is ODC-By; each document keeps its own rights"
DOLMA_LIST = "https://huggingface.co/datasets/allenai/dolma/resolve/7f48140530a023e9ea4c5cfb141160922727d4d3/urls/v1_7.txt"
DOLMA_PARTS: tuple[tuple[str, str, Domain, float], ...] = (
    ("algebraic_stack", "algebraic-stack-train-*", "math", 12.6),
    ("arxiv", "arxiv-*", "math", 28.0),
    ("books", "books-*", "prose", 5.3),
    ("c4", "c4-*", "web", 138.4),
    ("cc", "cc_en_*", "web", 1195.5),
    ("cc_news", "cc_news_*", "web", 14.3),
    ("falcon", "falcon-*", "web", 456.4),
    ("flan", "tulu_flan-*", "prose", 16.5),
    ("megawika", "megawika-*", "encyclopedia", 4.6),
    ("open_web_math", "open-web-math-train-*", "math", 12.6),
    ("pes2o", "pes2o-*", "prose", 57.2),
    ("reddit", "reddit-*", "web", 79.9),
    ("stackexchange", "stackexchange-*", "web", 19.6),
    ("starcoder", "starcoder-*", "code", 263.8),
    ("wiki", "wiki-*", "encyclopedia", 3.7),
)
"""Name, file names, domain, billions of tokens (Dolma's data sheet; all but `cc` from memory)."""

DOLMINO_PARTS: tuple[tuple[str, str, Domain, float | None], ...] = (
    ("dclm", "data/dclm/*.json.zst", "web", 752.0),
    ("flan", "data/flan/*.json.gz", "prose", 17.0),
    ("pes2o", "data/pes2o/*.json.gz", "prose", 58.6),
    ("stackexchange", "data/stackexchange/*.json.gz", "web", 1.26),
    ("wiki", "data/wiki/*.json.gz", "encyclopedia", 3.7),
    ("math_codesearchnet", "data/math/codesearchnet-owmfilter/*.jsonl.gz", "code", None),
    ("math_synth", "data/math/dolmino_math_synth/*.jsonl", "math", None),
    ("math_gsm8k", "data/math/gsm8k/*.jsonl.zst", "math", None),
    ("math_mathcoder2", "data/math/mathcoder2-synthmath/*.jsonl", "math", None),
    ("math_metamath", "data/math/metamath-owmfilter/*.jsonl.gz", "math", None),
    ("math_tinygsm_mind", "data/math/tinyGSM-MIND/*.jsonl.gz", "math", None),
    ("math_tulu", "data/math/tulu_math/*.jsonl", "math", None),
)
"""Name, glob, domain, billions of tokens (OLMo 2's report, from memory; None where it is not known here)."""

SPLITS = ("*[!A-Za-z]test[!A-Za-z]*", "*[!A-Za-z]validation[!A-Za-z]*")
"""GSM8K's `test.json` lies beside its training files; it contaminated Marin 32B's first cooldown. `latest` is no such word."""


def dolma_sources() -> tuple[Source, ...]:
    """The fifteen parts of Dolma 1.7."""
    listing = HttpFile(DOLMA_LIST, "v1_7.txt", Unverified("", "nobody here has fetched the list; its commit is 7f48140"))
    return tuple(
        Source(
            name=f"dolma_{part}",
            loader=HttpListing(listing, "https://olmo-data.org/", (f"*/{files}.json.gz",)),
            format=JSONL,
            domain=domain,
            licence=ODC_BY,
            terms=AI2_TERMS,
            mixture_weight=WEIGHT_PER_BILLION_TOKENS * tokens,
            rough_tokens_billion=tokens,
            card="https://huggingface.co/datasets/allenai/dolma",
        )
        for part, files, domain, tokens in DOLMA_PARTS
    )


def dolmino_sources() -> tuple[Source, ...]:
    """Dolmino by part; `dolmino_dclm` is what the reference documents call DCLM HQ."""
    return tuple(
        hub_source(
            name=f"dolmino_{part}",
            repository="allenai/dolmino-mix-1124",
            revision="bb54cab",
            globs=(glob,),
            format=JSONL,
            domain=domain,
            licence=Unverified("ODC-By-1.0", FROM_MEMORY),
            terms=AI2_TERMS,
            tokens_billion=tokens,
            exclude=SPLITS,
        )
        for part, glob, domain, tokens in DOLMINO_PARTS
    )
