"""datatrove's filters that download models or word lists, given declared and hashed files instead.

By themselves they keep what they once fetched in a cache by address, whatever it is by now. Here nothing is requested
from the web.
"""

import csv
import importlib
import importlib.metadata
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from datakit.sources.datatrove_blocks import DatatroveStep, StepFile
from lineage.storage.digests import file_sha256

REPOSITORY = Path(__file__).resolve().parents[2]
LANGUAGES_WITHOUT_SPACES = ("ja", "th", "zh")

type Files = Mapping[str, Path]


def with_files(step: DatatroveStep, block_class: type[Any]) -> Any:
    """Return the block of a step, with its files read.

    Raises: FileNotFoundError or ModuleNotFoundError for an absent file or package; ValueError for bytes other than
    declared, and for a file that the block does not read.
    """
    files = {file.name: _checked(step, file) for file in step.files}
    return _MAKERS[step.class_name](block_class, dict(step.arguments), files)


def _checked(step: DatatroveStep, file: StepFile) -> Path:
    path = _folder(step, file) / file.path
    if not path.is_file():
        raise FileNotFoundError(
            f"step {step.block}: {path} is not there; put the file whose sha256 is {file.sha256} there, wherever shards run"
        )
    digest = file_sha256(path)
    if digest != file.sha256:
        raise ValueError(
            f"step {step.block}: {path} has sha256 {digest}, {file.sha256} is declared. Other bytes are another recipe: "
            "restore the file, or declare this one"
        )
    return path


def _folder(step: DatatroveStep, file: StepFile) -> Path:
    if not file.package:
        return REPOSITORY
    try:
        return Path(str(importlib.metadata.distribution(file.package).locate_file("")))
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            f"step {step.block} reads {file.path} of {file.package}, which is not installed: "
            f".venv/bin/python -m pip install {file.package}"
        ) from None


def _fasttext(path: Path) -> Any:
    try:
        return importlib.import_module("fasttext.FastText")._FastText(str(path))
    except ModuleNotFoundError:
        raise
    except Exception as error:
        # The binding raises MemoryError for a file that is no model, RuntimeError, or ValueError.
        raise ValueError(f"{path} is no model that fastText reads ({type(error).__name__}: {error})") from error


def _classifier(block_class: type[Any], arguments: dict[str, Any], files: Files) -> Any:
    block = block_class(str(files["model"]), **arguments)
    block._model = _fasttext(files["model"])
    there = [label.removeprefix("__label__") for label in block._model.labels]
    if unknown := [label for label, _ in [*(block.keep_labels or ()), *(block.remove_labels or ())] if label not in there]:
        raise ValueError(f"{files['model']} has no label {unknown[0]!r}; it has: {', '.join(there[:50])}")
    return block


def _language(block_class: type[Any], arguments: dict[str, Any], files: Files) -> Any:
    block = block_class(**arguments)
    block.model._model = _fasttext(files["model"])
    return block


def _unigram(block_class: type[Any], arguments: dict[str, Any], files: Files) -> Any:
    path = files["frequencies"]

    def get_frequencies(_: object) -> dict[str, float]:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            if not {"word", "count"} <= set(rows.fieldnames or ()):
                raise ValueError(f"{path} has the columns {rows.fieldnames}; it must have word and count")
            counts = {row["word"]: int(row["count"]) for row in rows}
        total = sum(counts.values())
        return {word: count / total for word, count in counts.items()}

    return type(block_class.__name__, (block_class,), {"get_frequencies": get_frequencies})(**arguments)


def _bad_words(block_class: type[Any], arguments: dict[str, Any], files: Files) -> Any:
    """Return the block with patterns of the declared files, built as datatrove builds them. `files` is by language."""
    allowed = set().union(*importlib.import_module("datatrove.pipeline.filters.c4_filters")._BADWORDS_ALLOWLIST.values())

    def pattern(language: str) -> re.Pattern[str]:
        words = {line.strip() for line in files[language].read_text(encoding="utf-8").splitlines()} - allowed
        either = "|".join(re.escape(word) for word in sorted(words))
        return re.compile(either if language in LANGUAGES_WITHOUT_SPACES else rf"(?:\W|^)({either})(?:\W|$)")

    patterns = {language: pattern(language) for language in files}

    def get_badwords(block: Any, language: str) -> re.Pattern[str] | None:
        if language not in patterns and block.fail_on_missing_language:
            raise ValueError(
                f"a document is in {language!r}, and there are words of {', '.join(sorted(patterns))}; declare a file of that "
                "language, or fail_on_missing_language=False"
            )
        return patterns.get(language)

    return type(block_class.__name__, (block_class,), {"_get_badwords": get_badwords})(**arguments)


_MAKERS: Mapping[str, Callable[[type[Any], dict[str, Any], Files], Any]] = MappingProxyType(
    {
        "FastTextClassifierFilter": _classifier,
        "LanguageFilter": _language,
        "UnigramLogProbFilter": _unigram,
        "C4BadWordsFilter": _bad_words,
    }
)
