"""Scorers that the lab declares: good and poor example documents."""

from datakit.quality.scorer import ScorerConfig
from datakit.quality.seeds import Seed


def reference_prose() -> ScorerConfig:
    """Prose for readers against generated or boilerplate pages.

    Good: speeches, encyclopedia leads that pass their rules, Python's topic pages. Poor: pydoc's generated pages, package
    descriptions, and the leads that the rules drop. It learns the topics together with their quality, as DCLM's classifier did
    (arXiv:2406.11794): a score means "like the good seeds" and has no meaning for code.
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
