"""Code and mathematics: StarCoder, Common Pile's Stack v2, ProofPile 2, FineMath, MegaMath. Facts: see `sources_web`."""

from datakit.sources.source import OneOf, Records, Source, Unverified
from recipes.sources_web import FROM_MEMORY, hub_source

CODE = Records("parquet", text="content")
STARCODER2_SUBSETS = (
    ("documentation", 1.40),
    ("ir_cpp", 39.01),
    ("ir_low_resource", None),
    ("ir_python", 4.64),
    ("ir_rust", 1.84),
    ("kaggle", 1.38),
)
"""Subset, billions of tokens as Marin counted them."""

MEGAMATH_SPLITS = (
    ("web", "megamath-web/*/*.parquet", 263.9),
    ("web_pro", "megamath-web-pro/*.parquet", 15.1),
    ("text_code_block", "megamath-text-code-block/*.parquet", 50.3),
    ("translated_code", "megamath-translated-code/*.parquet", 7.2),
    ("qa", "megamath-qa/*.parquet", 7.0),
)
STACKV2_PYTHON = (".py", ".pyw", ".pyi", "py", "pyw", "pyi")


def code_sources() -> tuple[Source, ...]:
    """Source code, and text about it."""
    return (
        hub_source(
            name="starcoderdata",
            repository="bigcode/starcoderdata",
            revision="9fc30b5",
            globs=("*.parquet",),
            format=CODE,
            domain="code",
            licence=Unverified("each file's own, permissive by its detector", FROM_MEMORY),
            terms="gated: The Stack's terms of use, with opt-outs to honour",
            tokens_billion=250.0,
        ),
        *(
            hub_source(
                name=f"starcoder2_{subset}",
                repository="bigcode/starcoder2data-extras",
                revision="1ba0d4f",
                globs=(f"{subset}/*.parquet",),
                format=CODE,
                domain="docs" if subset == "documentation" else "code",
                licence=Unverified("", "the dataset card was not read"),
                terms="each document's own",
                tokens_billion=tokens,
            )
            for subset, tokens in STARCODER2_SUBSETS
        ),
        hub_source(
            name="common_pile_stackv2_edu_python",
            repository="common-pile/stackv2_edu_filtered",
            revision="c354dbe",
            globs=("stack-edu-*.json.gz",),
            format=Records("jsonl", only=(OneOf("metadata.extension", STACKV2_PYTHON),)),
            domain="code",
            licence=Unverified("each file's own, openly licensed", FROM_MEMORY),
            terms="the licence of each file is in its metadata",
        ),
    )


def math_sources() -> tuple[Source, ...]:
    """Mathematics from papers, the web and models."""
    return (
        hub_source(
            name="proofpile_2",
            repository="EleutherAI/proof-pile-2",
            revision="901a927",
            globs=("*/train/*.jsonl.zst",),
            format=Records("jsonl", id=None),
            domain="math",
            licence=Unverified("each part's own", FROM_MEMORY),
            terms="arXiv, OpenWebMath and AlgebraicStack, each under its own terms",
            tokens_billion=55.0,
        ),
        hub_source(
            name="finemath_3_plus",
            repository="HuggingFaceTB/finemath",
            revision="8f233cf",
            globs=("finemath-3plus/*.parquet",),
            format=Records("parquet", id="url"),
            domain="math",
            licence=Unverified("ODC-By-1.0", FROM_MEMORY),
            terms="pages of Common Crawl, under its terms of use",
            tokens_billion=34.0,
        ),
        *(
            hub_source(
                name=f"megamath_{split}",
                repository="LLM360/MegaMath",
                revision="3cbc64616594d6bc8759abaa0b2a71858f880f0d",
                globs=(glob,),
                format=Records("parquet", id=None),
                domain="math",
                licence=Unverified("ODC-By-1.0", FROM_MEMORY),
                terms="pages of Common Crawl and code of The Stack v2, under their terms",
                tokens_billion=tokens,
            )
            for split, glob, tokens in MEGAMATH_SPLITS
        ),
    )
