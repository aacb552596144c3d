"""marin-dupekit in its own environment: Marin's MinHash over a folder of Parquet parts (id, text); prints one line of JSON.

    PYTHON benchmarks/dedup_dupekit.py FOLDER BANDS ROWS

CleanText, character 5-grams, signatures and bands are dupekit's. It has no clustering (Marin's runs on its cluster), so equal
bands are joined here by a union-find over a Python dict: transitive clusters, nothing verified, the smallest id stays.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from dupekit import Transformation, transform


def main() -> None:
    folder, bands, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    steps = [
        Transformation.CleanText(input_col="text", output_col="clean"),
        Transformation.MinHash(input_col="clean", output_col="signature", num_perms=bands * rows, ngram_size=5, seed=42),
        Transformation.MinHashLSH(input_col="signature", output_col="buckets", num_bands=bands),
        Transformation.SelectColumns(columns=["id", "buckets"]),
    ]
    start = time.process_time()
    buckets_of = []
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(512, columns=["id", "text"]):
            signed = transform(batch, steps)
            buckets_of += zip(signed["id"].to_pylist(), signed["buckets"].to_pylist(), strict=True)
    signatures = time.process_time() - start
    parent = {i: i for i, _ in buckets_of}
    first: dict[tuple[int, int], str] = {}
    for document, buckets in buckets_of:
        for band in enumerate(buckets or ()):
            a, b = _root(parent, document), _root(parent, first.setdefault(band, document))
            parent[max(a, b)] = min(a, b)
    removed = [document for document, _ in buckets_of if _root(parent, document) != document]
    rest = time.process_time() - start - signatures
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": {"signatures": signatures, "rest": rest}, "peak_mib": peak, "removed": removed}))


def _root(parent: dict[str, str], document: str) -> str:
    while parent[document] != document:
        parent[document] = parent[parent[document]]
        document = parent[document]
    return document


if __name__ == "__main__":
    main()
