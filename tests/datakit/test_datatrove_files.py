"""datatrove filters that use models and word lists: declared files give the results of datatrove's downloads."""

import hashlib
import importlib
import importlib.metadata
import json
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_datatrove_steps import FILTERS, LINES, PROSE, VERSION, needs, step

from datakit.documents.normalize import NormalizeConfig
from datakit.readers import datatrove_files
from datakit.readers.steps import after, prepared
from datakit.sources.datatrove_blocks import DatatroveStep, StepFile
from datakit.sources.record import Record, Unreadable
from lineage.config import from_jsonable, to_jsonable

ANY = "0" * 64
FASTTEXT = {"fasttext-numpy2-wheel": "0.9.2"}
ENGLISH, FRENCH = "the heron stood in the shallow water", "le héron se tenait dans une eau peu profonde"
FREQUENCIES = "word,count\nthe,900\nheron,60\nwater,40\n"
WORDS = "kumin\nrostal (x)\n性\n"

_needs_fasttext = needs("datatrove", "fasttext", "fasteners")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the repository, in a world where no name is resolved."""

    def nobody(host: object, *_: object, **__: object) -> None:
        raise AssertionError(f"{host} is asked for")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setattr(datatrove_files, "REPOSITORY", tmp_path)
    return tmp_path


def declared(path: Path, name: str, package: str = "") -> StepFile:
    return StepFile(name, path.name, hashlib.sha256(path.read_bytes()).hexdigest(), package)


def with_one(name: str, file: StepFile, **arguments: Any) -> DatatroveStep:
    return DatatroveStep(f"{FILTERS}:{name}", VERSION, arguments, files=(file,))


def model(folder: Path) -> Path:
    """A model in fastText's format that knows the words of two sentences. Written here: the wheel's training ends in NaN."""
    words = {"en": ENGLISH.split(), "fr": FRENCH.split()}
    entries = [(word, 0) for each in words.values() for word in dict.fromkeys(each)] + [
        (f"__label__{name}", 1) for name in words
    ]
    known = len(entries) - len(words)
    axis = {word: i for i, each in enumerate(words.values()) for word in each}
    inputs = [(5.0 * (1 - axis[word]), 5.0 * axis[word]) for word, _ in entries[:known]]
    head = struct.pack("<2i12id", 793712314, 12, 2, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4)  # dim 2, softmax, supervised
    table = struct.pack("<3i2q", len(entries), known, len(words), len(entries), -1)
    table += b"".join(word.encode() + b"\0" + struct.pack("<qb", 1, kind) for word, kind in entries)
    matrices = [inputs, [(1.0, 0.0), (0.0, 1.0)]]
    weights = b"".join(
        struct.pack("<?2q", False, len(rows), 2) + b"".join(struct.pack("<2f", *row) for row in rows) for rows in matrices
    )
    (folder / "model.bin").write_bytes(head + table + weights)
    return folder / "model.bin"


def verdicts(declared: DatatroveStep, texts: list[str], **fields: str) -> list[str | None]:
    """Texts that are left, and the reasons of those that are not."""
    records = after(prepared([declared]), [Record(str(i), text, fields) for i, text in enumerate(texts)])
    return [record.reason if isinstance(record, Unreadable) else record.text for record in records]


def theirs(module: str, path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any], texts: list[str]) -> list[str]:
    """Texts that datatrove itself keeps, when what it downloads is the file."""
    imported = importlib.import_module(module)
    monkeypatch.setattr(imported, "cached_asset_path_or_download", lambda *_, **__: str(path))
    document = importlib.import_module("datatrove.data").Document
    block = make(importlib.import_module("datatrove.pipeline.filters"))
    return [each.text for each in block.run(document(text, str(i)) for i, text in enumerate(texts))]


@_needs_fasttext
def test_languages_are_identified_by_the_declared_model(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, texts = model(repository), [ENGLISH, FRENCH, f"{ENGLISH}\n{ENGLISH}"]
    arguments = {"languages": "en", "language_threshold": 0.6}
    results = verdicts(
        DatatroveStep(f"{FILTERS}:LanguageFilter", VERSION, arguments, FASTTEXT, (declared(path, "model"),)), texts
    )
    assert results == [ENGLISH, "language", texts[2]]
    kept = theirs("datatrove.utils.lid", path, monkeypatch, lambda blocks: blocks.LanguageFilter(**arguments), texts)
    assert [text for text in results if text in texts] == kept


@_needs_fasttext
@pytest.mark.parametrize("rule", ["keep_labels", "remove_labels"])
@pytest.mark.parametrize("mode", ["DOCUMENT", "PARAGRAPH"])
def test_a_classifier_judges_by_the_declared_model(
    rule: str, mode: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, texts = model(repository), [ENGLISH, FRENCH, f"{ENGLISH}\n\n{FRENCH}\n\n{ENGLISH}"]
    arguments = {rule: (("fr", 0.6),), "filter_mode": mode}
    block = f"{FILTERS}:FastTextClassifierFilter"
    results = verdicts(DatatroveStep(block, VERSION, arguments, FASTTEXT, (declared(path, "model"),)), texts)
    module = "datatrove.pipeline.filters.fasttext_filter"
    settings = {**arguments, rule: [("fr", 0.6)]}  # of tuples its own check of the labels makes a TypeError
    kept = theirs(module, path, monkeypatch, lambda blocks: blocks.FastTextClassifierFilter("x", **settings), texts)
    assert [text for text in results if text != "fast_text_classifier"] == kept
    assert results[rule == "keep_labels"] in texts and results[rule != "keep_labels"] == "fast_text_classifier"
    with pytest.raises(ValueError, match=r"has no label 'de'; it has: (en, fr|fr, en)"):
        prepared([DatatroveStep(block, VERSION, {rule: ("de", 0.5)}, FASTTEXT, (declared(path, "model"),))])


@needs("datatrove", "spacy")
def test_words_are_weighed_by_the_declared_frequencies(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, texts = repository / "frequencies.csv", ["the heron", "The water.", "zwyx qvrt", PROSE]
    path.write_text(FREQUENCIES)
    unigram = with_one("UnigramLogProbFilter", declared(path, "frequencies"), logprobs_threshold=-9)
    results = verdicts(unigram, texts)
    assert results[0] == "the heron" and results[2] == "unigram_log_prob"
    cache = repository / "cache"
    cache.mkdir()
    (cache / "unigram_freq.csv").write_text(FREQUENCIES)
    module = importlib.import_module("datatrove.pipeline.filters.unigram_log_probs")
    monkeypatch.setattr(module, "cached_assets_path", lambda **_: cache)
    kept = theirs(
        "datatrove.utils.lid", path, monkeypatch, lambda blocks: blocks.UnigramLogProbFilter(logprobs_threshold=-9), texts
    )
    assert [text for text in results if text != "unigram_log_prob"] == kept
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"has the columns \['a', 'b'\]; it must have word and count"):
        prepared([replace(unigram, files=(declared(path, "frequencies"),))])


@needs("datatrove", "spacy", "fasteners")
def test_bad_words_are_those_of_the_declared_lists(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, texts = repository / "words", ["a KUMIN.", "kuminic", "rostal (x)", "性", "words"]
    path.write_text(WORDS)
    english = with_one("C4BadWordsFilter", declared(path, "en"))
    results = verdicts(english, texts)
    dropped = "c4_bad_words:document_removed_with_badwords"
    assert results == [dropped, "kuminic", dropped, "性", "words"]
    module = "datatrove.pipeline.filters.c4_filters"
    assert theirs(module, path, monkeypatch, lambda blocks: blocks.C4BadWordsFilter(), texts) == ["kuminic", "性", "words"]
    both = replace(english, files=(*english.files, declared(path, "th")))
    assert verdicts(both, ["kuminic"], language="th") == [dropped], "where words are not set apart"
    with pytest.raises(ValueError, match=r"record 0: .*in 'fi', and there are words of en, th"):
        verdicts(both, ["words"], language="fi")
    lenient = replace(both, arguments={"fail_on_missing_language": False})
    assert verdicts(lenient, ["kumin"], language="fi") == ["kumin"]


@needs("datatrove", "spacy")
def test_other_bytes_than_declared_stop_before_the_first_record(repository: Path) -> None:
    path = repository / "words"
    path.write_text(WORDS)
    english = with_one("C4BadWordsFilter", declared(path, "en"))
    prepared([english])
    path.write_text(WORDS + "more\n")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} has sha256 \w+, {english.files[0].sha256} is declared"):
        prepared([english])
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"is not there; put the file whose sha256 is {english.files[0].sha256}"):
        prepared([english])
    absent = StepFile("en", "words", ANY, "no-such-package")
    with pytest.raises(ModuleNotFoundError, match=r"words of no-such-package, which is not installed: .*pip install no-such"):
        prepared([replace(english, files=(absent,))])


@needs("datatrove", "spacy")
def test_a_file_may_be_of_an_installed_package(repository: Path) -> None:
    path = Path(str(importlib.metadata.distribution("pytest").locate_file("pytest/__init__.py")))
    shipped = StepFile("en", "pytest/__init__.py", hashlib.sha256(path.read_bytes()).hexdigest(), "pytest")
    results = verdicts(with_one("C4BadWordsFilter", shipped), ["from __future__ import annotations", "words"])
    assert results == ["c4_bad_words:document_removed_with_badwords", "words"]


@_needs_fasttext
def test_a_file_that_is_no_model_stops_with_its_name(repository: Path) -> None:
    path = repository / "model.bin"
    path.write_bytes(b"junk" * 100)
    declared_model = (declared(path, "model"),)
    with pytest.raises(ValueError, match=r"model\.bin is no model that fastText reads"):
        prepared([DatatroveStep(f"{FILTERS}:LanguageFilter", VERSION, {}, FASTTEXT, declared_model)])


MODEL = (StepFile("model", "m.bin", ANY),)


@pytest.mark.parametrize(
    ("block", "settings", "message"),
    [
        ("LanguageFilter", {}, r"files has \[\]; it must have 'model' and no other: by itself it downloads"),
        ("FastTextClassifierFilter", {"files": (StepFile("en", "m.bin", ANY),)}, r"files has \['en'\]; it must have 'model'"),
        ("UnigramLogProbFilter", {"files": MODEL}, "it must have 'frequencies'"),
        ("C4BadWordsFilter", {}, r"files has \[\]; it must have one of words for each language"),
        (
            "C4BadWordsFilter",
            {"files": (StepFile("en", "a", ANY), StepFile("en", "b", ANY))},
            r"\['en', 'en'\]; it must have one",
        ),
        ("C4BadWordsFilter", {"files": (StepFile("en", "a", ANY),), "arguments": {"keep_fraction": 0.1}}, "must be 0"),
        ("RegexFilter", {"files": MODEL}, "this block reads none"),
        ("LanguageFilter", {"files": MODEL}, "must name the version of fastText"),
        (
            "FastTextClassifierFilter",
            {"files": MODEL, "beside": FASTTEXT, "arguments": {"model_url": "https://x"}},
            "'model_url'; leave it out: what it downloads could change",
        ),
    ],
)
def test_a_filter_without_its_files_is_refused_when_it_is_declared(block: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatatroveStep(f"{FILTERS}:{block}", VERSION, **settings)


@pytest.mark.parametrize(
    ("path", "sha256", "message"),
    [
        ("/models/m.bin", ANY, "must be below the repository"),
        ("../m.bin", ANY, "must be below the repository"),
        ("", ANY, "must be below the repository"),
        ("m.bin", "0" * 63, "64 hex digits"),
        ("m.bin", "F" * 64, "64 hex digits"),
    ],
)
def test_a_file_of_one_machine_or_without_a_hash_is_refused(path: str, sha256: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepFile("model", path, sha256)


def test_the_files_are_identity_and_steps_without_them_keep_theirs() -> None:
    bare = step(f"{FILTERS}:RegexFilter", regex_exp="x")
    assert "files" not in to_jsonable(bare)
    english = with_one("C4BadWordsFilter", StepFile("en", "words", ANY))
    other = replace(english, files=(replace(english.files[0], sha256="1" * 64),))
    assert to_jsonable(english) != to_jsonable(other)
    config = NormalizeConfig("s", LINES, "prose", steps=(english, bare))
    assert from_jsonable(NormalizeConfig, json.loads(json.dumps(to_jsonable(config)))) == config
