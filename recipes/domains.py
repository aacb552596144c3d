"""Domain models that the lab declares: sources that are examples of a domain."""

from datakit.tags.domain_model import DomainModelConfig, SourceOfDomain


def text_domains() -> DomainModelConfig:
    """Eight domains, by small sources. A domain of one source is also that source's manner (docs/log.md says how it does)."""
    return DomainModelConfig(
        name="text_domains",
        examples=(
            SourceOfDomain("stdlib_code", "code"),
            SourceOfDomain("stdlib_html", "code_docs"),
            SourceOfDomain("python_topics", "code_docs"),
            SourceOfDomain("package_docs", "packages"),
            SourceOfDomain("math_docstrings", "mathematics"),
            SourceOfDomain("sotu", "politics"),
            SourceOfDomain("kjv", "religion"),
            SourceOfDomain("wiki", "encyclopedia", max_documents=2_000),
            SourceOfDomain("chatterbot", "conversation"),
        ),
    )
