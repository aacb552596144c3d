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
            name="arxiv_markdown_no_problem",
            repository="marin-community/ar5iv-no-problem-markdown",
            revision=Unverified("", NO_PIN),
            globs=("*.jsonl.gz",),
            format=JSONL,
            domain="math",
            licence=MARKDOWNIFIED,
            terms="arXiv's licences, paper by paper; conversion without warnings",
        ),
        hub_source(
            name="arxiv_markdown_warning",
            repository="marin-community/ar5iv-warning-markdown",
            revision=Unverified("", NO_PIN),
            globs=("*.jsonl.gz",),
            format=JSONL,
            domain="math",
            licence=MARKDOWNIFIED,
            terms="arXiv's licences, paper by paper; conversion with warnings",
        ),
        hub_source(
            name="stackexchange_markdown",
            repository="marin-community/stackexchange-markdown",
            revision=Unverified("", NO_PIN),
            globs=("*.jsonl.gz",),
            format=JSONL,
            domain="web",
            licence=Unverified("CC-BY-SA", f"{MODEL_CARD} points to StackExchange's licensing, whose versions differ by date"),
            terms="attribution and share-alike",
        ),
        hub_source(
            name="wikipedia_markdown",
            repository="marin-community/wikipedia-markdown",
            revision=Unverified("", NO_PIN),
            globs=("*.jsonl.gz",),
            format=JSONL,
            domain="encyclopedia",
            licence=Unverified("CC-BY-SA", f"{MODEL_CARD} points to Wikipedia's database terms"),
            terms="attribution and share-alike",
        ),
        hub_source(
            name="datashop_science_qa",
            repository="marin-community/datashop-science-qa",
            revision=Unverified("", NO_PIN),
            globs=("*.jsonl.gz",),
            format=JSONL,
            domain="prose",
            licence="CC-BY-SA-4.0",
            terms=f"share-alike; licence as {MODEL_CARD} gives it",
        ),
    )


def abstract_sources() -> tuple[Source, ...]:
    """NSF grant abstracts, by the agency's own list of yearly archives."""
    file = HttpFile(
        NSF_LIST, "list-files.json", Unverified("", "the agency answers with addresses that expire; repack the years")
    )
    return (
        Source(
            name="nsf_awards",
            loader=HttpFiles((file,)),
            format=Records("jsonl", text="awd_abstract_narration", id="awd_id"),
            domain="prose",
            licence=Unverified("public domain", "works of a US agency's grantees; the reference documents say public domain"),
            terms="yearly zip archives of one JSON an award: repack them as JSONL and load those",
            mixture_weight=680.0,
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
        name="tulu_3",
        repository="allenai/tulu-3-sft-mixture",
        revision="55e9fd6",
        globs=("data/*.parquet",),
        format=Records("parquet", text="messages", keep=("source",), form="messages"),
        domain="chat",
        licence=unread,
        terms=terms,
    )
    raw = (
        hub_source(
            name=name,
            repository=repository,
            revision=Unverified("", NO_PIN),
            globs=globs,
            format="none",
            domain="prose",
            licence=unread,
            terms=terms,
            tokens_billion=tokens,
            trainable=False,
        )
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
            name="paloma",
            repository="allenai/paloma",
            revision="65cd6fc",
            globs=PALOMA_SPLITS,
            format="none",
            domain="benchmark",
            licence=Unverified("AI2 ImpACT (low risk)", "from memory of the dataset card; gated"),
            terms="evaluation only; gated",
            trainable=False,
        ),
        Source(
            name="uncheatable_eval",
            loader=HttpFiles((dump,)),
            format="none",
            domain="benchmark",
            licence=Unverified("", "the texts are news, papers and code of the last weeks, each its author's"),
            terms="evaluation only",
            mixture_weight=0.0,
            trainable=False,
            card=UNCHEATABLE,
        ),
    )
