"""Markdownified text of Marin, grant abstracts, instructions, and texts to evaluate on. Facts: see `recipes/sources_web.py`."""

from datakit.sources.source import HttpFile, HttpFiles, Records, Source, Unverified
from recipes.sources_web import JSONL, hub_source

MODEL_CARD = "Marin 8B's model card"
NO_PIN = "no public code that was read pins a revision"
MARKDOWNIFIED = Unverified("each document's own", f"{MODEL_CARD}: under the licences of the individual documents")
NSF_LIST = "https://api.nsf.gov/services/v2/s3/list-files"
UNCHEATABLE = "https://github.com/Jellyfish042/uncheatable_eval"
PALOMA_SPLITS = ("*/val/val*.jsonl.gz",)


def markdown_sources() -> tuple[Source, ...]:
    """arXiv, StackExchange and Wikipedia as Markdown, and Datashop's science questions."""
    return (
        hub_source(
            "arxiv_markdown_no_problem",
            "marin-community/ar5iv-no-problem-markdown",
            Unverified("", NO_PIN),
            ("*.jsonl.gz",),
            JSONL,
            "math",
            MARKDOWNIFIED,
            "arXiv's licences, paper by paper; conversion without warnings",
        ),
        hub_source(
            "arxiv_markdown_warning",
            "marin-community/ar5iv-warning-markdown",
            Unverified("", NO_PIN),
            ("*.jsonl.gz",),
            JSONL,
            "math",
            MARKDOWNIFIED,
            "arXiv's licences, paper by paper; conversion with warnings",
        ),
        hub_source(
            "stackexchange_markdown",
            "marin-community/stackexchange-markdown",
            Unverified("", NO_PIN),
            ("*.jsonl.gz",),
            JSONL,
            "web",
            Unverified("CC-BY-SA", f"{MODEL_CARD} points to StackExchange's licensing, whose versions differ by date"),
            "attribution and share-alike",
        ),
        hub_source(
            "wikipedia_markdown",
            "marin-community/wikipedia-markdown",
            Unverified("", NO_PIN),
            ("*.jsonl.gz",),
            JSONL,
            "encyclopedia",
            Unverified("CC-BY-SA", f"{MODEL_CARD} points to Wikipedia's database terms"),
            "attribution and share-alike",
        ),
        hub_source(
            "datashop_science_qa",
            "marin-community/datashop-science-qa",
            Unverified("", NO_PIN),
            ("*.jsonl.gz",),
            JSONL,
            "prose",
            "CC-BY-SA-4.0",
            f"share-alike; licence as {MODEL_CARD} gives it",
        ),
    )


def abstract_sources() -> tuple[Source, ...]:
    """NSF grant abstracts, by the agency's own list of yearly archives."""
    file = HttpFile(
        NSF_LIST, "list-files.json", Unverified("", "the agency answers with addresses that expire; repack the years")
    )
    return (
        Source(
            "nsf_awards",
            HttpFiles((file,)),
            Records("jsonl", text="awd_abstract_narration", id="awd_id"),
            "prose",
            Unverified("public domain", "works of a US agency's grantees; the reference documents say public domain"),
            "yearly zip archives of one JSON an award: repack them as JSONL and load those",
            680.0,
            rough_tokens_billion=0.17,
            card="https://www.nsf.gov/awardsearch/",
        ),
    )


def instruction_sources() -> tuple[Source, ...]:
    """Conversations, for caches of the chat format. FLAN is in Dolma and Dolmino. Agents' trajectories are raw files so far."""
    rows = (
        ("nemotron_terminal", "nvidia/Nemotron-Terminal-Corpus", ("*.parquet",), None),
        ("swe_rebench_v2", "nebius/SWE-rebench-V2", ("*.parquet",), None),
        # 4.52 M completion tokens (weekly summary of 2026-04-06); the prompts are not counted.
        ("swe_zero_1k", "AlienKevin/SWE-ZERO-1k-trajectories-32k", ("*",), 0.0045),
        ("swe_zero_multilang_300", "AlienKevin/SWE-ZERO-multilang-300-trajectories", ("*",), None),
    )
    unread, terms = Unverified("", "the dataset card was not read"), "each part's own; some parts forbid competing models"
    tulu = hub_source(
        "tulu_3",
        "allenai/tulu-3-sft-mixture",
        "55e9fd6",
        ("data/*.parquet",),
        Records("parquet", text="messages", keep=("source",), form="messages"),
        "chat",
        unread,
        terms,
    )
    raw = (
        hub_source(name, repository, Unverified("", NO_PIN), globs, "none", "prose", unread, terms, tokens, trainable=False)
        for name, repository, globs, tokens in rows
    )
    return (tulu, *raw)


def perplexity_sources() -> tuple[Source, ...]:
    """Texts that models are measured on, and never trained on."""
    dump = HttpFile(
        f"{UNCHEATABLE}/raw/master/data",
        "data",
        Unverified("", "a new dump every few weeks; name the dump's files and hash them"),
    )
    return (
        hub_source(
            "paloma",
            "allenai/paloma",
            "65cd6fc",
            PALOMA_SPLITS,
            "none",
            "benchmark",
            Unverified("AI2 ImpACT (low risk)", "from memory of the dataset card; gated"),
            "evaluation only; gated",
            trainable=False,
        ),
        Source(
            "uncheatable_eval",
            HttpFiles((dump,)),
            "none",
            "benchmark",
            Unverified("", "the texts are news, papers and code of the last weeks, each its author's"),
            "evaluation only",
            0.0,
            trainable=False,
            card=UNCHEATABLE,
        ),
    )
