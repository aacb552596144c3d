"""Caches read from a bucket by ranges: the tokens of a memory map, few requests, no download."""

import gc
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gcs_server import Fault, GcsServer
from hypothesis import given
from hypothesis import strategies as st
from test_order import SEQ_LEN, Docs, mixture_of

from lineage.artifact.store import Artifact, Store
from lineage.order import token_files
from lineage.order.mixture import Phase
from lineage.order.order import DataOrder
from lineage.order.token_cache import TokenCache
from lineage.storage.local import LocalFiles
from lineage.storage.ranges import RemoteArray
from lineage.upkeep.mirror import mirror

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 320), st.integers(0, 320))))
def test_slices_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, size: int, items: int, kept: int, spans: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("root")
    whole = np.arange(size, dtype="<u2") * 7
    whole.tofile(root / "x")
    array = RemoteArray(LocalFiles(root), "x", whole.dtype, size, block_bytes=2 * items, kept_blocks=kept)
    for start, stop in spans:
        assert np.array_equal(array[start:stop], whole[start:stop])
    assert len(array._blocks) <= kept


@pytest.fixture
def mixtures(gcs: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Artifact, Artifact]]:
    """A mixture of two caches on disk, and its copy in a bucket, where caches count as large."""
    docs = [Docs("a", (500, 3, 900)), Docs("b", (41, 1200))]
    local = mixture_of(tmp_path / "local", docs, (Phase(0, {"a": 1.0, "b": 2.0}),))
    bucket = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    list(mirror(local, bucket, "test"))
    copy = bucket.find(local.spec)
    assert copy is not None
    monkeypatch.setattr(token_files, "WHOLE_BYTES", 0)
    gcs.counts.clear()
    gcs.bytes_read = 0
    yield local, copy
    gc.collect()  # the sockets of broken answers: here, where they are expected


def test_batches_are_the_local_ones(mixtures: tuple[Artifact, Artifact], gcs: GcsServer) -> None:
    orders = [DataOrder.open(mixture, SEQ_LEN) for mixture in mixtures]
    opened = gcs.counts["any"]
    gcs.faults.append(Fault("read", gcs.counts["read"] + 1, "torn"))
    for start in range(0, 64, 16):
        assert np.array_equal(orders[0].batch(start, 16), orders[1].batch(start, 16))
    assert gcs.counts["any"] - opened <= 1 + 2 * 16, "every file is one block: racing threads may ask for it more than once"
    num_requests = gcs.counts["any"]
    orders[1].batch(0, 64)
    assert gcs.counts["any"] == num_requests, "blocks are kept"


def test_opening_reads_ends_and_ids_alone(mixtures: tuple[Artifact, Artifact], gcs: GcsServer) -> None:
    caches = [mixture.store.parents(mixture)[0] for mixture in mixtures]
    gcs.bytes_read = 0
    local, remote = (TokenCache.open(cache) for cache in caches)
    assert remote.is_remote
    assert not local.is_remote
    assert gcs.bytes_read == remote.num_documents * (8 + 16)
    assert remote.document_ids() == local.document_ids()
    assert gcs.bytes_read == remote.num_documents * (8 + 16)
    assert np.array_equal(remote.read(100, 700), local.read(100, 700))


def test_a_shorter_file_than_the_manifest_says_is_refused(mixtures: tuple[Artifact, Artifact], gcs: GcsServer) -> None:
    cache = mixtures[1].store.parents(mixtures[1])[0]
    opened = TokenCache.open(cache)
    bucket = cache.store.root.removeprefix("gs://")
    for name in gcs.names(bucket):
        if name.startswith(cache.spec.address) and name.endswith(".tokens"):
            gcs.objects.put(bucket, name, b"short!", {})
    with pytest.raises(ValueError, match="the file is shorter than its manifest says"):
        opened.read(0, opened.num_tokens)
