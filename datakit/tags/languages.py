"""The stage `datakit.languages`: the language of every document, by py3langid's model (139 languages, naive Bayes over bytes).

The model is in the package, whose hash the lock pins, and its version is part of the identity. A long document is judged by its
start, middle and end, because the cost is that of a walk over every byte. Source code has no language and is not judged.
"""

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from datakit.sources.source import Domain
from datakit.tags.table import tag_one_part, write_tags
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.storage.digests import file_digest
from lineage.writing.writer import Writer

FOLDER, COLUMN = "languages", "language"
PACKAGE, VERSION = "py3langid", "0.4.0"
UNDETERMINED = "und"
"""ISO 639's code for a text whose language is not known."""


@dataclass(frozen=True)
class LanguagesConfig:
    """Which model judges, and how much of a document. Code is not judged."""

    domain: Domain
    model: str = f"{PACKAGE}=={VERSION}"
    windows: int = 3
    window_chars: int = 500
    min_probability: float = 0.5
    """A less probable language is `und`."""

    def __post_init__(self) -> None:
        if self.windows < 1 or self.window_chars < 1:
            raise ValueError(f"languages: windows is {self.windows}, window_chars {self.window_chars}; both are at least 1")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"languages: min_probability is {self.min_probability}; it is from 0 to 1")


def identify_languages(out: Writer, config: LanguagesConfig, normalized: Artifact) -> None:
    """Write `languages/part-*.parquet` beside the documents' parts: id, language (ISO 639-1 if there is one), probability.

    Raises: ValueError if the installed model is not the declared one.
    """
    _check_installed(config.model)
    write_tags(out, normalized, identify_part, config, COLUMN)
    out.extra["tags"]["model"] = {"name": config.model, "digest": _model_digest()}


LANGUAGES = Stage(
    "datakit.languages",
    "1",
    identify_languages,
    description="The language of every document and its probability, by a kept model.",
    checks=("file_set", "attributes_aligned"),
)


def identify_part(folder: Path, part: Path, config: LanguagesConfig) -> dict[str, Any]:
    """Judge one part."""
    return tag_one_part(folder, part, FOLDER, COLUMN, partial(identified, config=config))


def identified(documents: pl.DataFrame, config: LanguagesConfig) -> pl.DataFrame:
    """Return `id`, `language` and `probability` of documents with `id` and `text`; `id` alone if they are code."""
    if config.domain == "code":
        return documents.select("id")
    judged = [_language(text, config) for text in documents["text"]]
    languages = pl.Series(COLUMN, [language for language, _ in judged], pl.String)
    return documents.select("id").with_columns(languages, pl.Series("probability", [p for _, p in judged], pl.Float64))


def _language(text: str, config: LanguagesConfig) -> tuple[str, float]:
    language, probability = _identifier().classify("\n".join(windows_of(text, config.windows, config.window_chars)))
    return language if probability >= config.min_probability else UNDETERMINED, round(probability, 4)


def windows_of(text: str, count: int, chars: int) -> Iterator[str]:
    """Yield the whole text if it is short, else `count` windows of it from start to end, equally far apart."""
    if len(text) <= count * chars:
        yield text
        return
    for number in range(count):
        start = (len(text) - chars) * number // max(1, count - 1)
        yield text[start : start + chars]


@cache
def _identifier() -> Any:
    """The model; a worker loads it once, in a second. `norm_probs`: probabilities that do not grow with the text's length."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # only here: it is of use to this stage alone

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _model_digest() -> str:
    from py3langid.langid import MODEL_DIR, MODEL_FILE

    return file_digest(MODEL_DIR / MODEL_FILE)


def _check_installed(model: str) -> None:
    package, _, version = model.partition("==")
    if package != PACKAGE:
        raise ValueError(f"languages: model is {model!r}; only {PACKAGE} is known, as {PACKAGE}=={VERSION}")
    if (installed := importlib.metadata.version(PACKAGE)) != version:
        raise ValueError(
            f"languages: model is {model!r} and {PACKAGE} {installed} is installed. Another version may judge otherwise: "
            f"declare {PACKAGE}=={installed}, or install {version}"
        )
