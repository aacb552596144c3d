"""One measured run of our deduplication in a separate process; prints one line of JSON. Started by `dedup.py`.

python benchmarks/dedup_ours.py STORE PRESET      signatures, joins, verification, from artifacts on storage to an artifact
python benchmarks/dedup_ours.py STORE exact       reading the documents, and their content ids made unique
python benchmarks/dedup_ours.py STORE marin       Marin's definition, re-implemented (`benchmarks/marin_duplicates.py`)
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from benchmarks.marin_duplicates import marin_removals
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig, find_duplicates
from datakit.dedup.minhash import MINHASH, preset, sign_documents
from datakit.documents.parts import document_paths
from datakit.documents.schemas import DUPLICATES_FILE
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.stage import Stage
from lineage.storage.digests import utf8_digest
from lineage.writing.write import writing
from lineage.writing.writer import Writer


def no_documents(out: Writer, config: str) -> None:
    """The documents lie in the store already."""
    raise AssertionError(f"the documents of {config} are missing from {out.store.root}")


def documents_node(name: str) -> Node:
    """Documents that `dedup.py` wrote."""
    return Node(("benchmark", "documents"), None, Stage("benchmarks.documents", "1", no_documents), name)


def peak_mib() -> float:
    """Of this process since it started; `ru_maxrss` would begin with what its parent held."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def measured(seconds: dict[str, float], name: str) -> Iterator[None]:
    """CPU seconds of this process, all threads."""
    start = time.process_time()
    yield
    seconds[name] = time.process_time() - start


def fuzzy(store: Store, name: str, seconds: dict[str, float]) -> list[str]:
    """Ids that our stages remove."""
    documents = documents_node("documents")
    signatures = Node(("benchmark", "minhash"), None, MINHASH, preset(name), {"normalized": documents})
    clusters = Node(
        ("benchmark", "duplicates"),
        None,
        DUPLICATES,
        DuplicatesConfig(),
        {"normalized": (documents,), "minhash": (signatures,)},
    )
    read = resolve(store, documents)
    with measured(seconds, "signatures"), writing(store, spec_of(store, signatures)) as out:
        sign_documents(out, preset(name), read)
    with measured(seconds, "rest"), writing(store, spec_of(store, clusters)) as writer:
        find_duplicates(writer, DuplicatesConfig(), (read,), (out.artifact,))
    made = writer.artifact
    rows = pl.read_parquet(made.files(DUPLICATES_FILE)[0])
    return rows.filter(~pl.col("is_kept"))["id"].to_list()


def exact(documents: Artifact, seconds: dict[str, float]) -> list[str]:
    """Content ids of what was read, made unique."""
    with measured(seconds, "read"):
        tables = [pq.read_table(path, columns=["id", "text", "source", "metadata"]) for path in document_paths(documents)]
    texts = [
        text.encode() for table in tables for text in table["text"].to_pylist()
    ]  # normalization has encoded them to check them
    with measured(seconds, "exact"):
        pl.Series([utf8_digest(text) for text in texts]).unique()
    return []


def main() -> None:
    root, what = sys.argv[1:]
    store, seconds = Store(root), dict[str, float]()
    documents = next(store.artifacts("benchmark", "documents"))
    if what == "exact":
        removed = exact(documents, seconds)
    elif what == "marin":
        tables = [pl.read_parquet(path, columns=["id", "text"]) for path in document_paths(documents)]
        table = pl.concat(tables)
        with measured(seconds, "signatures"):
            removed = marin_removals(table["id"].to_list(), table["text"].to_list())
    else:
        removed = fuzzy(store, what, seconds)
    print(json.dumps({"seconds": seconds, "peak_mib": peak_mib(), "removed": removed}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
