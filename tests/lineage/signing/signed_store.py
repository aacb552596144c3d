"""A store of small signed artifacts, and keys that tests hold in memory."""

from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.signing.keys import LocalKey
from lineage.signing.policy import ROLES, NamedKey, Policy
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Words:
    text: str = "words"


def write_words(out: Writer, config: Words, **inputs: Artifact) -> None:
    (out.folder / "words.txt").write_text(config.text)
    (out.folder / "more.txt").write_text("more")


WORDS = Stage("tests.words", "1", write_words)


def made(store: Store, name: str, text: str = "words", **inputs: Node) -> Artifact:
    return build(store, Node((name,), None, WORDS, Words(text), inputs)).artifact


def text_of(artifact: Artifact) -> str:
    return Path(artifact.store.root, artifact.spec.address, MANIFEST_NAME).read_text()


def envelope_path(artifact: Artifact) -> Path:
    """The one envelope beside a manifest."""
    (path,) = Path(artifact.store.root, artifact.spec.address, "signatures").glob("*.json")
    return path


def strict(*keys: NamedKey, **more: object) -> Policy:
    """A policy of these keys that refuses what is unsigned."""
    return Policy("tests", keys, unsigned="refuse", oldest_schema=2, **more)  # pyrefly: ignore


def named(name: str, key: LocalKey, *may: str) -> NamedKey:
    return NamedKey(name, key.public, frozenset(may or ROLES))  # pyrefly: ignore
