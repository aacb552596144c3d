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
            "starcoderdata",
            "bigcode/starcoderdata",
            "9fc30b5",
            ("*.parquet",),
            CODE,
            "code",
            Unverified("each file's own, permissive by its detector", FROM_MEMORY),
            "gated: The Stack's terms of use, with opt-outs to honour",
            250.0,
        ),
        *(
            hub_source(
                f"starcoder2_{subset}",
                "bigcode/starcoder2data-extras",
                "1ba0d4f",
                (f"{subset}/*.parquet",),
                CODE,
                "docs" if subset == "documentation" else "code",
                Unverified("", "the dataset card was not read"),
                "each document's own",
                tokens,
            )
            for subset, tokens in STARCODER2_SUBSETS
        ),
        hub_source(
            "common_pile_stackv2_edu_python",
            "common-pile/stackv2_edu_filtered",
            "c354dbe",
            ("stack-edu-*.json.gz",),
            Records("jsonl", only=(OneOf("metadata.extension", STACKV2_PYTHON),)),
            "code",
            Unverified("each file's own, openly licensed", FROM_MEMORY),
            "the licence of each file is in its metadata",
        ),
    )


def math_sources() -> tuple[Source, ...]:
    """Mathematics from papers, the web and models."""
    return (
        hub_source(
            "proofpile_2",
            "EleutherAI/proof-pile-2",
            "901a927",
            ("*/train/*.jsonl.zst",),
            Records("jsonl", id=None),
            "math",
            Unverified("each part's own", FROM_MEMORY),
            "arXiv, OpenWebMath and AlgebraicStack, each under its own terms",
            55.0,
        ),
        hub_source(
            "finemath_3_plus",
            "HuggingFaceTB/finemath",
            "8f233cf",
            ("finemath-3plus/*.parquet",),
            Records("parquet", id="url"),
            "math",
            Unverified("ODC-By-1.0", FROM_MEMORY),
            "pages of Common Crawl, under its terms of use",
            34.0,
        ),
        *(
            hub_source(
                f"megamath_{split}",
                "LLM360/MegaMath",
                "3cbc64616594d6bc8759abaa0b2a71858f880f0d",
                (glob,),
                Records("parquet", id=None),
                "math",
                Unverified("ODC-By-1.0", FROM_MEMORY),
                "pages of Common Crawl and code of The Stack v2, under their terms",
                tokens,
            )
            for split, glob, tokens in MEGAMATH_SPLITS
        ),
    )
