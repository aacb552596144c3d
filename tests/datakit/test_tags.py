"""Tags: the language of prose and the licence that code states, as tables, counts and filters of a corpus."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, corpus, documents, made, random_texts

from datakit.corpus.filters import CorpusConfig, reasons
from datakit.invariants import check_attributes
from datakit.tags.code_licences import CODE_LICENCES, STATEMENTS, CodeLicencesConfig, stated_licence
from datakit.tags.languages import LANGUAGES, LanguagesConfig, identified, windows_of
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.storage.digests import text_digest

SENTENCES = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "ar": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}
"""The first article of the Universal Declaration of Human Rights."""
PROSE = LanguagesConfig("prose")


def tagged(folder: Path, stage: Stage, config: object, texts: tuple[str, ...], workers: int = 1) -> tuple[Artifact, dict]:
    """The tags of texts, in parts of some hundred bytes: the artifact, and text -> its row without the id."""
    source = documents(Texts("here", texts, domain="prose", part_bytes=300))
    artifact = made(folder, Node(("tags",), "here", stage, config, {"normalized": source}), workers)
    check_attributes(artifact, artifact.input("normalized"))
    by_id = {row[0]: row[1:] for path in artifact.files(".parquet") for row in pl.read_parquet(path).rows()}
    return artifact, {text: by_id[text_digest(text)] for text in texts}


def language_of(text: str, config: LanguagesConfig = PROSE) -> str:
    return identified(pl.DataFrame({"id": ["0"], "text": [text]}), config)["language"][0]


def test_the_language_of_prose_is_found_and_counted(tmp_path: Path) -> None:
    texts = (*SENTENCES.values(), "1 2 3 4 5 6 7", SENTENCES["de"] * 2)
    artifact, rows = tagged(tmp_path, LANGUAGES, PROSE, texts)
    assert {language: rows[text][0] for language, text in SENTENCES.items()} == {language: language for language in SENTENCES}
    assert rows["1 2 3 4 5 6 7"][0] == "und"
    facts = artifact.manifest.extra["tags"]
    assert facts["language"] == {"de": 2} | {language: 1 for language in sorted((*SENTENCES, "und")) if language != "de"}
    assert facts["model"]["name"] == "py3langid==0.4.0" and len(facts["model"]["digest"]) == 32
    assert artifact.manifest.statistics["rows_in"] == artifact.manifest.statistics["rows_out"] == len(texts)
    again, _ = tagged(tmp_path / "two", LANGUAGES, PROSE, texts, workers=2)
    assert again.data_version == artifact.data_version and len(artifact.files(".parquet")) > 2


def test_a_long_text_is_judged_by_all_its_windows() -> None:
    english, german = SENTENCES["en"] * 40, SENTENCES["de"] * 40
    assert language_of(english[:400] + german) == "de" == language_of(german)
    assert language_of("\n" * 3000 + english) == "en"
    assert language_of(english, replace(PROSE, min_probability=1.0)) in ("en", "und")


@given(st.text(max_size=60), st.integers(1, 5), st.integers(1, 9))
def test_windows_lie_from_start_to_end(text: str, count: int, chars: int) -> None:
    windows = list(windows_of(text, count, chars))
    if len(text) <= count * chars:
        assert windows == [text]
        return
    assert [len(window) for window in windows] == [chars] * count and text.startswith(windows[0])
    assert count == 1 or text.endswith(windows[-1])


@given(st.text(max_size=300))
def test_any_text_has_a_language_or_none(text: str) -> None:
    assert language_of(text) == "und" or 2 <= len(language_of(text)) <= 3


def test_code_has_no_language(tmp_path: Path) -> None:
    artifact, rows = tagged(tmp_path, LANGUAGES, LanguagesConfig("code"), ("x = 1\n", "y = 2\n"))
    assert set(rows.values()) == {()} and artifact.manifest.extra["tags"]["language"] == {}
    assert artifact.manifest.statistics["rows_out"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": 0}, "windows is 0"),
        ({"min_probability": 1.5}, "min_probability is 1.5; it is from 0 to 1"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PROSE, **change)


@pytest.mark.parametrize(
    ("model", "message"),
    [("lid.176", "only py3langid is known"), ("py3langid==0.3.0", "py3langid 0.4.0 is installed.*declare py3langid==0.4.0")],
)
def test_another_model_is_refused(tmp_path: Path, model: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tagged(tmp_path, LANGUAGES, replace(PROSE, model=model), ("text\n",))


APACHE = """#!/usr/bin/env python
# Copyright 2020 Somebody
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
"""
MIT = """/*
 * Permission is hereby granted, free of charge, to any person obtaining a
 * copy of this software and associated documentation files
 */
"""
GPL = """# This program is free software; you can redistribute it and/or modify it under the terms of the GNU
# General Public License as published by the Free Software Foundation; either version {} of the License,
# or (at your option) any later version.
"""
LESSER = """-- This library is free software; under the terms of the GNU Lesser General Public
-- License as published by the Free Software Foundation; either
-- version 2.1 of the License, or (at your option) any later version.
-- See the GNU General Public License for version 2 details.
"""
BSD = """// Redistribution and use in source and binary forms, with or without modification, are permitted
{}"""


@pytest.mark.parametrize(
    ("head", "licence", "evidence"),
    [
        (APACHE, "Apache-2.0", "words"),
        (MIT, "MIT", "words"),
        (GPL.format(2), "GPL-2.0-or-later", "words"),
        (GPL.format(3), "GPL-3.0-or-later", "words"),
        (LESSER, "LGPL-2.1-or-later", "words"),
        (BSD.format("// Neither the name of the author nor"), "BSD-3-Clause", "words"),
        (BSD.format(""), "BSD-2-Clause", "words"),
        (APACHE + MIT, "Apache-2.0 AND MIT", "words"),
        ("# SPDX-License-Identifier: MIT\n" + APACHE, "MIT", "tag"),
        ("/* SPDX-License-Identifier: GPL-2.0-only OR MIT */", "GPL-2.0-only OR MIT", "tag"),
        ("<!-- SPDX-License-Identifier: CC0-1.0 -->", "CC0-1.0", "tag"),
        ("// SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note", "GPL-2.0-only WITH Linux-syscall-note", "tag"),
        ("# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: Apache-2.0\n", "Apache-2.0 AND MIT", "tag"),
        ("# SPDX-License-Identifier: see LICENSE file\n", "unknown", "tag"),
        ('"""Permission to use this is not granted."""\nx = 1\n', "", ""),
        ("# the MIT Media Lab, Apache helicopters, and the General Public\n", "", ""),
        ("", "", ""),
    ],
)
def test_a_file_states_its_licence(head: str, licence: str, evidence: str) -> None:
    assert stated_licence(head) == (licence, evidence)


@given(st.text(max_size=220))
def test_any_tag_is_an_expression_or_unknown(tag: str) -> None:
    licence, evidence = stated_licence(f"# SPDX-License-Identifier: {tag}\n")
    assert evidence in ("tag", "") and (licence or not evidence)


def test_statements_are_spdx_identifiers() -> None:
    for identifier, phrases in STATEMENTS:
        assert stated_licence(f"SPDX-License-Identifier: {identifier}") == (identifier, "tag")
        licence, evidence = stated_licence(" ".join(phrases))
        assert evidence == "words" and identifier in licence


def test_licences_are_counted_and_other_text_is_not_judged(tmp_path: Path) -> None:
    texts = (APACHE, APACHE + "x = 1\n", MIT, "y = 2\n")
    artifact, rows = tagged(tmp_path / "code", CODE_LICENCES, CodeLicencesConfig("code"), texts)
    assert artifact.manifest.extra["tags"]["licence"] == {"Apache-2.0": 2, "": 1, "MIT": 1}
    assert rows[MIT] == ("MIT", "words") and rows[texts[3]] == ("", "")
    artifact, rows = tagged(tmp_path / "prose", CODE_LICENCES, CodeLicencesConfig("prose"), texts)
    assert artifact.manifest.extra["tags"]["licence"] == {} and set(rows.values()) == {()}


def test_a_corpus_is_built_of_the_languages_that_it_names(tmp_path: Path) -> None:
    source = Texts("here", (*SENTENCES.values(), *random_texts(4, 60, seed=3)), domain="prose")
    how = CorpusConfig(drop_low_quality=False, languages=("en", "de", "und"))
    node = corpus(source, how=how)
    tags = Node(("languages",), "here", LANGUAGES, PROSE, {"normalized": documents(source)})
    artifact = made(tmp_path, replace(node, inputs={**node.inputs, "languages": tags}))
    drops = artifact.manifest.statistics["drops"]
    assert {f"language:{language}": 1 for language in SENTENCES if language not in ("en", "de")}.items() <= drops.items()
    assert not {"language:en", "language:de", "language:und"} & drops.keys()
    with pytest.raises(ValueError, match=r"its filters read \['languages'\], its optional inputs are \[\]"):
        made(tmp_path / "without", node)


def test_a_corpus_keeps_what_it_names() -> None:
    frame = pl.DataFrame({"language": ["en", "de", "und", ""], "licence": ["", "MIT", "GPL-3.0-only", ""]})

    def dropped(config: CorpusConfig) -> list[str | None]:
        plain = replace(config, drop_duplicates=False, drop_contaminated=False, drop_low_quality=False)
        return frame.select(reason=pl.coalesce(*reasons(plain, None, None)))["reason"].to_list()

    assert dropped(CorpusConfig(languages=("en",))) == [None, "language:de", "language:und", None]
    assert dropped(CorpusConfig(code_licences=("MIT",))) == [None, None, "licence:GPL-3.0-only", None]
    both = CorpusConfig(languages=("en", "de"), code_licences=("MIT",))
    assert dropped(both) == [None, None, "language:und", None]
    assert {"languages", "code_licences"} <= both.reads and not {"languages", "code_licences"} & CorpusConfig().reads
