"""The stage `datakit.code_licences`: the licence that a source file states, as an SPDX expression.

A file states it by an SPDX tag (https://spdx.dev/learn/handling-license-info), or by words of the licence in its first lines.
What is found is what the file says, not what holds: a file without a statement has the licence of its project.
"""

import re
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import polars as pl
from license_expression import ExpressionError, Licensing, get_spdx_licensing

from datakit.sources.source import Domain
from datakit.tags.table import tag_one_part, write_tags
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

FOLDER, COLUMN = "code_licences", "licence"
HEAD_CHARS = 8_192
"""Where licences stand. A licence's own words at the end of a file are missed."""
UNKNOWN_TAG = "unknown"
"""Licence of a file whose SPDX tag is no SPDX expression."""
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*([^\r\n]{1,200})")
_TAG_END = re.compile(r"\s*(?:\*/|-->|\"\"\"|'''|#\}|\*\)|--\]\]).*|[\s*#;]+$")
_BETWEEN_WORDS = re.compile(r"[^a-z0-9.]+")

LATER = "or (at your option) any later version"
STATEMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AGPL-3.0-or-later", ("gnu affero general public license", LATER)),
    ("AGPL-3.0-only", ("gnu affero general public license",)),
    ("LGPL-2.1-or-later", ("gnu lesser general public license", "version 2.1", LATER)),
    ("LGPL-3.0-or-later", ("gnu lesser general public license", "version 3", LATER)),
    ("GPL-2.0-or-later", ("gnu general public license", "version 2", LATER)),
    ("GPL-3.0-or-later", ("gnu general public license", "version 3", LATER)),
    ("GPL-2.0-only", ("gnu general public license version 2",)),
    ("GPL-3.0-only", ("gnu general public license version 3",)),
    ("MPL-2.0", ("mozilla public license v. 2.0",)),
    ("EPL-2.0", ("eclipse public license", "2.0")),
    ("Apache-2.0", ("apache license version 2.0",)),
    ("BSL-1.0", ("boost software license version 1.0",)),
    ("MIT", ("permission is hereby granted free of charge to any person obtaining a copy",)),
    ("MIT", ("licensed under the mit license",)),
    ("MIT", ("released under the mit license",)),
    ("ISC", ("permission to use copy modify and or distribute this software for any purpose with or without fee",)),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "neither the name")),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms",)),
    ("Zlib", ("provided as is without any express or implied warranty", "must not be misrepresented")),
    ("PSF-2.0", ("licensed to psf under a contributor agreement",)),
    ("PSF-2.0", ("python software foundation license",)),
    ("Unlicense", ("this is free and unencumbered software released into the public domain",)),
    ("CC0-1.0", ("creativecommons.org publicdomain zero 1.0",)),
)
"""SPDX identifier and the phrases that must all stand in the head, without punctuation but periods. Of one family (the first
word before a hyphen) only the first that applies counts: a BSD licence of three clauses has all words of that of two."""

type Evidence = Literal["", "tag", "words"]


@dataclass(frozen=True)
class CodeLicencesConfig:
    """The domain of the source: only code is judged."""

    domain: Domain
    head_chars: int = HEAD_CHARS

    def __post_init__(self) -> None:
        if self.head_chars < 1:
            raise ValueError(f"code licences: head_chars is {self.head_chars}; it is at least 1")


def find_licences(out: Writer, config: CodeLicencesConfig, normalized: Artifact) -> None:
    """Write `code_licences/part-*.parquet` beside the documents' parts: id, licence ("" if none is stated), evidence."""
    write_tags(out, normalized, find_in_part, config, COLUMN)


CODE_LICENCES = Stage(
    "datakit.code_licences",
    "1",
    find_licences,
    description="The licence that each source file states, as an SPDX expression; text that is no code is not judged.",
    checks=("file_set", "attributes_aligned"),
)


def find_in_part(folder: Path, part: Path, config: CodeLicencesConfig) -> dict[str, Any]:
    """Judge one part."""
    return tag_one_part(folder, part, FOLDER, COLUMN, partial(found, config=config))


def found(documents: pl.DataFrame, config: CodeLicencesConfig) -> pl.DataFrame:
    """Return `id`, `licence` and `evidence` of documents with `id` and `text`; `id` alone if they are no code."""
    if config.domain != "code":
        return documents.select("id")
    judged = [stated_licence(text[: config.head_chars]) for text in documents["text"]]
    licences = pl.Series(COLUMN, [licence for licence, _ in judged], pl.String)
    return documents.select("id").with_columns(licences, pl.Series("evidence", [by for _, by in judged], pl.String))


def stated_licence(head: str) -> tuple[str, Evidence]:
    """Return the licence that the start of a file states, and by what. Tags count before words; several tags hold together."""
    tags = [_TAG_END.sub("", tag).strip() for tag in _TAG.findall(head)]
    if tags:
        return _together(tags), "tag"
    words = f" {_BETWEEN_WORDS.sub(' ', head.lower())} "
    stated: dict[str, str] = {}
    for identifier, phrases in STATEMENTS:
        if all(f" {_plain(phrase)}" in words for phrase in phrases):
            stated.setdefault(identifier.partition("-")[0].removeprefix("A").removeprefix("L"), identifier)
    return " AND ".join(sorted(stated.values())), "words" if stated else ""


def _plain(phrase: str) -> str:
    return _BETWEEN_WORDS.sub(" ", phrase).strip()


def _together(tags: list[str]) -> str:
    """Return the tags as one simplified expression; `unknown` if one is no SPDX expression."""
    try:
        parsed = [_licensing().parse(tag, validate=True) for tag in dict.fromkeys(tags)]
    except ExpressionError:
        return UNKNOWN_TAG
    return str(parsed[0] if len(parsed) == 1 else _licensing().AND(*parsed).simplify())


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()
