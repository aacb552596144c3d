"""The launch gate on a bucket that takes 50 ms a request: seconds and requests, the first time and again.

    PYTHONPATH=. .venv/bin/python benchmarks/gate_bucket.py [--ancestors 1000 --keys 50 --levels 10 --delay 0.05]

Bars (issue 26): 1,000 ancestors in 15 s first, in 2 s again. The bucket is the tests' server (`tests/lab/gcs_server.py`) in a
process of its own, which waits before each answer. Every artifact is signed, has four small files and three inputs of the level
above. `--keys` equal to `--ancestors` is the worst case: no two partitions can be listed together.
"""

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from gcs_objects import Objects, Stored  # noqa: E402
from gcs_server import gcs_server  # noqa: E402

from lineage.artifact.spec import ArtifactSpec, InputRef  # noqa: E402
from lineage.artifact.store import Artifact, Store  # noqa: E402
from lineage.trust.gate import inspect  # noqa: E402
from lineage.writing.write import writing  # noqa: E402

BUCKET = "bench"
FILES, INPUTS = 4, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ancestors", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--levels", type=int, default=10)
    parser.add_argument("--delay", type=float, default=0.05)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-bench-") as folder:
        refs = write_levels(Store(f"{folder}/store"), options.ancestors, options.keys, options.levels)
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        server = context.Process(target=serve, args=(f"{folder}/store", options.delay, there), daemon=True)
        server.start()
        os.environ["STORAGE_EMULATOR_HOST"] = here.recv()
        store = Store(f"gs://{BUCKET}", scratch_folder=f"{folder}/scratch")
        print(f"{options.ancestors:,} ancestors of {options.keys:,} keys, load {os.getloadavg()[0]:.1f}")
        for name in ("first", "again", "again"):
            here.send("start")
            here.recv()
            started, cpu = time.perf_counter(), time.process_time()
            assert inspect(store, refs, {}) == []
            seconds, spent = time.perf_counter() - started, time.process_time() - cpu
            here.send("counts")
            print(f"{seconds:6.2f} s {spent:6.2f} CPU s  {name}: requests {here.recv()}", flush=True)
        below = next(store.artifacts("bench", f"k{options.levels}"))
        here.send("start")
        here.recv()
        started = time.perf_counter()
        walked = len(list(store.walk_up(below)))
        seconds = time.perf_counter() - started
        here.send("counts")
        print(f"{seconds:6.2f} s  lineage --up of one artifact, {walked} artifacts: requests {here.recv()}", flush=True)
        server.kill()


def write_levels(store: Store, count: int, keys: int, levels: int) -> list[InputRef]:
    """Write artifacts in levels and return refs that reach all of them."""
    chance, made = random.Random(7), list[list[Artifact]]()
    for number in range(count):
        if number % -(-count // levels) == 0:
            made.append([])
        above = made[-2] if len(made) > 1 else []
        chosen = {number % len(above), *chance.sample(range(len(above)), INPUTS - 1)} if above else set()
        inputs = tuple(above[place].ref(f"inputs.{i}") for i, place in enumerate(sorted(chosen)))
        key = ("bench", f"k{len(made)}", f"k{number % -(-keys // levels)}")
        with writing(store, ArtifactSpec(key, f"p{number}", "bench.stage", "1", {"number": number}, inputs)) as out:
            for file in range(FILES):
                (out.folder / f"part-{file}.bin").write_bytes(b"%d" % number * 10)
        made[-1].append(out.artifact)
    return [artifact.ref("last") for artifact in made[-1]]


def serve(root: str, delay: float, pipe: Connection) -> None:
    """Serve the files of a local root as a bucket. Answer each message with the requests since the last one."""
    objects = Objects()
    with gcs_server(objects) as server:
        server.bucket(BUCKET)
        for generation, path in enumerate(sorted(Path(root).rglob("*")), 1):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not name.startswith(".work/"):
                objects.keep(BUCKET, name, Stored(path.read_bytes(), generation))
        server.delay_seconds = delay
        pipe.send(server.url)
        while pipe.recv():
            pipe.send(dict(server.counts))
            server.counts.clear()


if __name__ == "__main__":
    main()
