"""Scorers that the lab declares: which documents are good examples, which are poor ones."""

from datakit.quality.scorer import ScorerConfig
from datakit.quality.seeds import Seed


def reference_prose() -> ScorerConfig:
    """Text that someone wrote to be read, against pages that a program or a habit wrote.

    Good: speeches, encyclopedia leads that pass their rules, Python's topic pages. Poor: pydoc's generated pages, package
    descriptions, and the leads that the rules drop. It learns these topics as well as their quality, as DCLM's classifier did
    (arXiv:2406.11794): a score means "like the good seeds", and says nothing of code.
    """
    return ScorerConfig(
        name="reference_prose",
        seeds=(
            Seed("sotu", "positive"),
            Seed("wiki", "positive", verdict="kept", max_documents=600),
            Seed("python_topics", "positive"),
            Seed("stdlib_html", "negative"),
            Seed("package_docs", "negative"),
            Seed("wiki", "negative", verdict="dropped", max_documents=200),
        ),
    )
