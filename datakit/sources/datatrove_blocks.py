"""Blocks of datatrove that can be steps of a source, declared without importing datatrove. A refusal says what to use
instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

type Argument = str | bool | int | float | tuple[Argument, ...] | None

_BLOCK = re.compile(r"datatrove\.pipeline\.(\w+)(?:\.\w+)*:(\w+)")
_STEPS = ("filters", "formatters", "extractors")
_ELSEWHERE = MappingProxyType(
    {
        "readers": "`Source.format` reads JSONL, Parquet, Arrow and WARC, counts what it cannot read and cuts large files",
        "dedup": "it needs the whole corpus: `datakit/minhash` and `datakit/duplicates` remove duplicates",
        "decont": "it needs an index of the evaluations: `datakit/contamination` compares with them",
        "stats": "it adds up a whole corpus: `datakit/quality` and a source's card measure one",
        "tokens": "it writes files of its own: `datakit/tokens` writes token caches",
        "writers": "it writes files of its own: the store commits artifacts",
        "inference": "it needs a server and writes files of its own",
        "media": "it fetches media; documents here are text",
    }
)
_NO_STEP = MappingProxyType(
    {
        "LambdaFilter": "a function has no stable form for an identity; write a filter (docs/recipes/add_a_filter.md)",
        "SamplerFilter": "its draws depend on which documents came before, so on the shards; a mixture's weights sample",
    }
)
_NO_ARGUMENT = MappingProxyType(
    {
        "exclusion_writer": "drops are counted, and shown in dropped.parquet",
        "batch_size": "a step sees one document at a time",
        "timeout": "a clock would decide which documents there are; extraction runs without one",
        "model_url": "what it downloads could change under one identity; the model of `files` is read in its place",
    }
)
LANGUAGES = "a language"
READS = MappingProxyType(
    {
        "FastTextClassifierFilter": "model",
        "LanguageFilter": "model",
        "UnigramLogProbFilter": "frequencies",
        "C4BadWordsFilter": LANGUAGES,
    }
)
"""What filters would download by themselves: the name of the one file, or of the word lists by language."""


@dataclass(frozen=True)
class StepFile:
    """A model or list that a block reads. The block runs only if the bytes match the digest."""

    name: str
    """What the file is to the block: a name from `READS`, or the language of C4's bad words."""

    path: str
    """Path below the repository's root, or below the folder of the installed `package`; never a path of one machine."""

    sha256: str
    package: str = ""
    """A distribution that ships the file. Its version needs no pin, because the bytes have a digest."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"step file {self.path}: sha256 is {self.sha256!r}; it must be 64 hex digits in small letters")
        if not self.path or self.path.startswith(("/", "~")) or ".." in self.path.split("/"):
            raise ValueError(
                f"step file: path is {self.path!r}; it must be below the repository, or below the folder that `package` is "
                "installed in, so that every machine finds it"
            )


@dataclass(frozen=True)
class DatatroveStep:
    """A filter, formatter or extractor of datatrove with its arguments; all of it is identity."""

    block: str
    """Import path of the class: `datatrove.pipeline.filters:GopherQualityFilter`."""

    version: str
    """Version of datatrove. The installed one must be equal."""

    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Keyword arguments of the class. Omitted ones have the default of this version of datatrove."""

    beside: Mapping[str, str] = field(default_factory=dict)
    """Versions of other packages that decide what the block does, e.g. {"spacy": "3.8.18"} if it splits words. Also
    checked.
    """

    files: tuple[StepFile, ...] = field(default=(), metadata={"added_later": True})
    """Files that the block would otherwise download: StepFile("model", "models/lid.176.bin", sha256)."""

    def __post_init__(self) -> None:
        match = _BLOCK.fullmatch(self.block)
        if match is None:
            raise ValueError(f"step: block is {self.block!r}; it must be like 'datatrove.pipeline.filters:GopherQualityFilter'")
        if refusal := _ELSEWHERE.get(self.kind) or _NO_STEP.get(self.class_name):
            raise ValueError(f"step: block {self.block} cannot be a step: {refusal}")
        if self.kind not in _STEPS:
            raise ValueError(f"step: block {self.block} cannot be a step; those of {', '.join(_STEPS)} can")
        for name in self.arguments:
            if name in _NO_ARGUMENT:
                raise ValueError(f"step {self.block}: arguments has {name!r}; leave it out: {_NO_ARGUMENT[name]}")
            _check_argument(self.arguments[name], f"step {self.block}: arguments[{name!r}]")
        if self.class_name == "URLFilter" and "tldextract" not in self.beside:
            raise ValueError(
                f"step {self.block}: beside is {dict(self.beside)}; it must name the version of tldextract, whose list of "
                "public suffixes decides what a domain is"
            )
        self._check_files()
        if self.class_name == "Trafilatura" and self.arguments.get("deduplicate", True):
            raise ValueError(
                f"step {self.block}: arguments['deduplicate'] must be False: trafilatura remembers the paragraphs of documents "
                "before, so the text of one would depend on the shards"
            )

    def _check_files(self) -> None:
        wanted, names = READS.get(self.class_name), [file.name for file in self.files]
        alone = "by itself it downloads one, which has no hash, so its verdicts could change under one identity"
        if wanted is None and names:
            raise ValueError(f"step {self.block}: files has {names}; this block reads none")
        if wanted == LANGUAGES and (not names or len({*names}) < len(names)):
            raise ValueError(
                f"step {self.block}: files has {names}; it must have one of words for each language ('en'): {alone}"
            )
        if wanted not in (None, LANGUAGES) and names != [wanted]:
            raise ValueError(f"step {self.block}: files has {names}; it must have {wanted!r} and no other: {alone}")
        if wanted == "model" and not any(package.startswith("fasttext") for package in self.beside):
            raise ValueError(
                f"step {self.block}: beside is {dict(self.beside)}; it must name the version of fastText that reads the model, "
                '{"fasttext-numpy2-wheel": "0.9.2"} say'
            )
        if self.class_name == "C4BadWordsFilter" and self.arguments.get("keep_fraction", 0):
            raise ValueError(
                f"step {self.block}: arguments['keep_fraction'] must be 0: which documents are kept by chance would depend on "
                "those before, so on the shards"
            )

    @property
    def name(self) -> str:
        return self.block

    @property
    def module(self) -> str:
        return self.block.partition(":")[0]

    @property
    def class_name(self) -> str:
        return self.block.partition(":")[2]

    @property
    def kind(self) -> str:
        """Return `filters`, `formatters` or `extractors`."""
        return self.module.split(".")[2]


def _check_argument(value: object, where: str) -> None:
    if isinstance(value, tuple):
        for item in value:
            _check_argument(item, where)
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise ValueError(f"{where} is {value!r}; allowed: str, bool, int, float, None and tuples of them")
