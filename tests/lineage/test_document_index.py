"""Finding a document among the ids of a cache equals a dictionary of all of them, sorted shards or not."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.document_index import DocumentIndex

IDS = st.binary(min_size=16, max_size=16) | st.sampled_from([b"\0" * 16, b"a" + b"\0" * 15, b"a" * 16, b"\xff" * 16])
SHARDS = st.lists(st.lists(IDS, max_size=12).flatmap(lambda ids: st.sampled_from([ids, sorted(ids)])), max_size=4)


def array(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16)


@given(SHARDS, IDS)
def test_every_id_is_found_where_a_dictionary_has_it(shards: list[list[bytes]], other: bytes) -> None:
    everything = [document for shard in shards for document in shard]
    slow = {document: number for number, document in enumerate(everything)}
    index = DocumentIndex.of([array(shard) for shard in shards])
    for document in {*everything, other}:
        assert index.find(document) == slow.get(document)


def test_sorted_shards_need_no_table(tmp_path: Path) -> None:
    """The ids stay in their file; an unsorted shard costs 8 bytes a document."""
    ids = np.sort(np.random.default_rng(3).integers(0, 1 << 62, 5_000).astype(">i8")).view(np.uint8).reshape(-1, 8)
    padded = np.concatenate([ids, np.zeros_like(ids)], axis=1)
    (tmp_path / "x.ids").write_bytes(padded.tobytes())
    mapped = np.memmap(tmp_path / "x.ids", np.uint8, mode="r").reshape(-1, 16)
    index = DocumentIndex.of([mapped, padded[::-1].copy()])
    assert np.shares_memory(index.keys[0], mapped) and index.sorters[0] is None
    assert index.sorters[1] is not None and index.sorters[1].nbytes == 8 * 5_000
    assert index.find(padded[17].tobytes()) == 5_000 + (4_999 - 17)
