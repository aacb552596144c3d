"""Token caches whose manifest contradicts their files, and windows without tokens."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.order.token_cache import TokenCache
from lineage.order.token_shards import FOLDER, tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Lie:
    """A fact of the manifest, the value it is given, and the ends that are written instead of [3, 3, 7]."""

    name: str = ""
    value: int | str = 0
    ends: tuple[int, ...] = ()


def write_cache(out: Writer, config: Lie) -> None:
    documents = [("0" * 32, np.arange(3)), ("1" * 32, np.zeros(0, np.int64)), ("2" * 32, np.arange(3, 7))]
    extra = tokens_extra("c", "uint16", 10, "tokenizer", None, 0, [write_token_shard(out.folder, "s", documents, "uint16")])
    place = extra["shards"][0] if config.name in extra["shards"][0] else extra
    place |= {config.name: config.value} if config.name else {}
    if config.ends:
        np.array(config.ends, "<i8").tofile(out.folder / FOLDER / "s.ends")
    out.facts["tokens"] = extra


CACHE = Stage("tests.lying_cache", "1", write_cache)


def open_cache(root: Path, lie: Lie) -> TokenCache:
    return TokenCache.open(build(Store(str(root)), Node(("cache",), None, CACHE, lie)).artifact)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (Lie("num_tokens", 8), r"holds 14 bytes of \.tokens, not 16; its manifest says 8 tokens"),
        (Lie("num_documents", 2), r"holds 24 bytes of \.ends, not 16; its manifest says 7 tokens and 2 documents"),
        (Lie("dtype", "uint32"), r"holds 14 bytes of \.tokens, not 28; .* the tokens as uint32"),
        (Lie("format", "tokens/0"), r"no token cache of format tokens/1; its manifest says .*tokens/0"),
        (Lie(ends=(3, 3, 6)), "must rise to its 7 tokens; the last end is 6"),
        (Lie(ends=(5, 3, 7)), "must rise to its 7 tokens"),
    ],
)
def test_a_lie_is_refused_by_name(tmp_path: Path, lie: Lie, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_cache(tmp_path, lie)


def test_documents_and_windows_without_tokens_are_not_between(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, Lie())
    assert cache.documents_between(1, 1) == []
    assert cache.documents_between(0, 7) == [("0" * 32, 0, 3), ("2" * 32, 3, 7)]
    assert cache.document_span("1" * 32) == (3, 3)
