"""Blocks of Hugging Face's datatrove as steps of a source, between its reader and its content ids.

A step judges or changes one document at a time, in this process. What a filter drops is counted with datatrove's own
reason, as `gopher_quality:gopher_short_doc`. datatrove's executor, writers and statistics are not used: the lab cuts,
resumes and counts the shards. datatrove is an optional package (docs/dependencies.md), imported only if a source has
steps.
"""

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from datakit.readers.datatrove_files import with_files
from datakit.sources.record import Record, Step, Unreadable
from datakit.sources.source import DatatroveStep

_KINDS = MappingProxyType({"filters": "BaseFilter", "formatters": "BaseFormatter", "extractors": "BaseExtractor"})
_ENVIRONMENT_FAULTS = (ImportError, MemoryError, OSError)
"""Errors that are not about the document that a block was reading."""


def reason_prefix(step: DatatroveStep) -> str:
    """Return the first part of a drop's reason: `gopher_quality` of `GopherQualityFilter`."""
    stem = re.sub(r"(Filter|Formatter|Extractor)$", "", step.class_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", stem).lower()


def block_step(step: DatatroveStep) -> Step:
    """Return a block, ready to be called.

    Raises: ModuleNotFoundError, with the install command, for an absent package; ValueError for another version than the
    step declares, for a block that datatrove does not have, and for arguments that the block refuses.
    """
    for package, version in {"datatrove": step.version, **step.beside}.items():
        _check_installed(step, package, version)
    block_class = _block_class(step)
    _construct(step, block_class)  # Checked now, so that a bad argument stops before the first record.
    return _MAKERS[step.kind](step, block_class)


def _check_installed(step: DatatroveStep, package: str, version: str) -> None:
    install = f".venv/bin/python -m pip install {package}=={version}"
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"step {step.block} needs {package} {version}, which is not installed: {install}") from None
    if installed != version:
        raise ValueError(
            f"step {step.block} declares {package} {version}, and {installed} is installed. Another version is another recipe: "
            f"declare it, or {install}"
        )


def _block_class(step: DatatroveStep) -> type[Any]:
    try:
        block_class = getattr(importlib.import_module(step.module), step.class_name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"step {step.block}: datatrove {step.version} cannot give it ({error})") from error
    base_name = _KINDS[step.kind]
    modules = {"filters": "filters.base_filter", "formatters": "formatters.base", "extractors": "extractors.base"}
    base = getattr(importlib.import_module(f"datatrove.pipeline.{modules[step.kind]}"), base_name)
    if not issubclass(block_class, base) or block_class.run is not base.run:
        raise ValueError(f"step {step.block} is no plain {base_name}; only blocks that see one document at a time are steps")
    return block_class


def _construct(step: DatatroveStep, block_class: type[Any]) -> Any:
    try:
        block = with_files(step, block_class) if step.files else block_class(**step.arguments)
        if step.class_name == "URLFilter":  # By itself it requests today's list of public suffixes from the web.
            block.tldextractor = importlib.import_module("tldextract").TLDExtract(suffix_list_urls=(), cache_dir=None)
        return block
    except ImportError as error:  # datatrove's own message names the packages of this block.
        raise ModuleNotFoundError(f"step {step.block}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"step {step.block} refuses its arguments {dict(step.arguments)}: {error}") from error


def _filter(step: DatatroveStep, block_class: type[Any]) -> Step:
    """Return one block for all records: filters hold tokenizers and lists, and no state about documents."""
    block, document_class, prefix = _construct(step, block_class), _document_class(), reason_prefix(step)

    def judge(record: Record) -> Record | Unreadable:
        document = document_class(text=record.text, id=record.source_id, metadata=dict(record.fields))
        (verdict,) = naming_faults(step, record, lambda: block.filter_batch([document]))
        kept, reason = verdict if isinstance(verdict, tuple) else (verdict, None)
        if kept:
            return replace(record, text=document.text)  # C4's filters remove lines from texts that they keep.
        return Unreadable(record.source_id, f"{prefix}:{reason}" if reason else prefix, record.text)

    return judge


def _formatter(step: DatatroveStep, block_class: type[Any]) -> Step:
    """Return a new block for every record: PIIFormatter rotates its replacements, and must not depend on earlier documents."""

    def reformat(record: Record) -> Record:
        block = _construct(step, block_class)
        return replace(record, text=naming_faults(step, record, lambda: block.format(record.text)))

    return reformat


def _extractor(step: DatatroveStep, block_class: type[Any]) -> Step:
    """Run in this process, without datatrove's one-second timeout in a child: a clock would decide which documents
    exist.
    """
    block, prefix = _construct(step, block_class), reason_prefix(step)

    def extract(record: Record) -> Record | Unreadable:
        try:
            return replace(record, text=block.extract(record.text))
        except _ENVIRONMENT_FAULTS:
            raise
        except Exception:  # Any error of a parser: datatrove also drops such a document as `clean_error`.
            return Unreadable(record.source_id, f"{prefix}:clean_error", record.text)

    return extract


_MAKERS = MappingProxyType({"filters": _filter, "formatters": _formatter, "extractors": _extractor})


def _document_class() -> type[Any]:
    return importlib.import_module("datatrove.data").Document


def naming_faults[T](step: DatatroveStep, record: Record, call: Callable[[], T]) -> T:
    """Return what a block says of a record; errors name both. Raises: ValueError, or a machine's error unchanged."""
    try:
        return call()
    except ImportError as error:  # Some blocks need a package only when the first document arrives.
        raise ModuleNotFoundError(f"step {step.block}: {error}") from error
    except _ENVIRONMENT_FAULTS as error:  # A list or model that did not arrive may arrive when the shard is tried again.
        error.add_note(f"in step {step.block}, on record {record.source_id}")
        raise
    except Exception as error:  # A block may raise anything; the block's name and the record help to find the cause.
        raise ValueError(f"step {step.block} failed on record {record.source_id}: {type(error).__name__}: {error}") from error
