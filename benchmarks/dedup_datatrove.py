"""datatrove in its own environment: its four MinHash stages over a folder of Parquet parts (id, text); prints one line of JSON.

    PYTHON benchmarks/dedup_datatrove.py FOLDER BANDS ROWS

One task and one worker a stage, defaults otherwise (word-5-grams after its normalization, 64-bit hashes, English).
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import JsonlWriter


def main() -> None:
    folder, bands, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = MinhashConfig(num_buckets=bands, hashes_per_bucket=rows)
    with tempfile.TemporaryDirectory() as scratch:
        place = {name: f"{scratch}/{name}" for name in ("signatures", "buckets", "remove", "kept")}
        start = _cpu()
        _run(scratch, "1", 1, ParquetReader(folder), MinhashDedupSignature(place["signatures"], config))
        signatures = _cpu() - start
        _run(scratch, "2", bands, MinhashDedupBuckets(place["signatures"], place["buckets"], config=config))
        _run(scratch, "3", 1, MinhashDedupCluster(place["buckets"], place["remove"], config=config))
        kept = JsonlWriter(place["kept"], compression=None)
        _run(scratch, "4", 1, ParquetReader(folder), MinhashDedupFilter(place["remove"]), kept)
        rest = _cpu() - start - signatures
        lines = [line for path in Path(place["kept"]).glob("*.jsonl") for line in path.read_text().splitlines()]
        peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    ids = [json.loads(line)["id"] for line in lines]
    print(json.dumps({"seconds": {"signatures": signatures, "rest": rest}, "peak_mib": peak, "kept": ids}))


def _run(scratch: str, name: str, tasks: int, *steps: object) -> None:
    LocalPipelineExecutor(list(steps), tasks=tasks, workers=1, logging_dir=f"{scratch}/logs-{name}").run()


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
