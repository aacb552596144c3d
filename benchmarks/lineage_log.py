"""The commit log at scale: seconds and requests of questions about one checkpoint.

    PYTHONPATH=. .venv/bin/python benchmarks/lineage_log.py --artifacts 1000000 [--split-as 10000000]

The log holds that many artifacts: runs of 20 checkpoints, made from the one before and one of 100 mixtures, and evaluated.
Its rows lie in segments as compaction leaves them at worst, and 127 commits are not folded yet. Manifests are written only of
one run and of what it was made from (100 sources, normalized, corpora, caches): a question reads those that it prints.
`--split-as` cuts the same rows into as many segments as another number of artifacts has, to count requests.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator

import polars as pl
from lineage_scale import timed

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, ResourceUse, content_version, to_json
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.commit_log.compact import FAN_OUT, FOLD_AT
from lineage.commit_log.entries import announce
from lineage.commit_log.keys import data_key, stage_key
from lineage.commit_log.segments import MAX_ROWS, ROWS_SCHEMA, segment_sizes, write_segments
from lineage.graph.affected import affected_by
from lineage.graph.below import children_of, tables_below
from lineage.graph.scan import make_log
from lineage.storage.local import LocalFiles

STEPS = 20
SOURCES = 100
MIXTURES = 100
COUNTED = ("read", "read_range", "listing", "folders")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=1_000_000)
    parser.add_argument("--split-as", type=int, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lineage-bench-") as root:
        store = Store(root)
        written = write_run(store)
        make_log(store)
        rows = timed("making the rows", lambda: every_row(options.artifacts))
        timed("writing the segments", lambda: write_as_compacted(store, rows, (options.split_as or options.artifacts)))
        for artifact in written[-FOLD_AT + 1 :]:
            announce(store.storage, artifact.manifest, to_json(artifact.manifest))
        sizes = segment_sizes(store.storage)
        print(f"{rows.height:,} rows in {len(sizes)} segments, {sum(sizes.values()) / 1e6:,.0f} MB")
        checkpoint = next(a for a in written if a.name == f"runs/r0/checkpoint[{STEPS // 2}]")
        ask("what it was made from", lambda: len(list(store.walk_up(checkpoint))))
        ask("made directly from it", lambda: len(children_of(checkpoint)))
        ask("made from it", lambda: tables_below(store, [checkpoint]).artifacts.height)
        ask("affected", lambda: len(affected_by(tables_below(store, [checkpoint]), [checkpoint.spec.address]).addresses))


def ask(what: str, question: Callable[[], int]) -> None:
    counts: Counter[str] = Counter()
    originals = {name: getattr(LocalFiles, name) for name in COUNTED}
    for name, original in originals.items():
        setattr(LocalFiles, name, _counting(original, counts))
    try:
        found = timed(what, question)
    finally:
        for name, original in originals.items():
            setattr(LocalFiles, name, original)
    print(f"    {found:,} artifacts, {sum(counts.values()):,} requests: {dict(counts)}", flush=True)


def _counting(operation: Callable[..., object], counts: Counter[str]) -> Callable[..., object]:
    def counted(*arguments: object) -> object:
        counts[operation.__name__] += 1
        return operation(*arguments)

    return counted


def every_row(count: int) -> pl.DataFrame:
    """Return the rows (ROWS_SCHEMA) of `count` artifacts in runs from the second on."""
    rows: list[tuple[int, str]] = []
    for run in range(1, count // (2 * STEPS) + 1):
        mixture = data_key((f"mixture/m{run % MIXTURES}", f"{run % MIXTURES:032x}"))
        before: int | None = None
        for step in range(STEPS):
            own = data_key((f"runs/r{run}/checkpoint[{step}]", f"{run:016x}{step:016x}"))
            scores = data_key((f"runs/r{run}/eval_result[{step}]", f"{run:016x}{step:016x}"))
            version = f"{own:016x}{scores:016x}"
            where = f"runs/r{run}/checkpoint/{step}/{version}"
            evaluation = f"runs/r{run}/eval_result/{step}/{version}"
            rows += [(own, where), (mixture, where), *((key, where) for key in keys_of_stage("trainer.checkpoint"))]
            rows += [(scores, evaluation), (own, evaluation), *((key, evaluation) for key in keys_of_stage("evals.result"))]
            if before is not None:
                rows.append((before, where))
            before = own
    return pl.DataFrame(rows, schema=ROWS_SCHEMA, orient="row")


def keys_of_stage(stage: str) -> tuple[int, int]:
    return stage_key(stage), stage_key(stage, "1")


def write_as_compacted(store: Store, rows: pl.DataFrame, artifacts: int) -> None:
    """Write rows as segments of the sizes that the log of some number of artifacts has at worst: all but one of each size."""
    total = int(rows.height / max(1, rows["address"].n_unique()) * artifacts)
    sizes, size = list[int](), FOLD_AT * 4
    while size < MAX_ROWS and sum(sizes) < total:
        sizes += [size] * (FAN_OUT - 1)
        size *= FAN_OUT
    sizes += [MAX_ROWS] * max(0, (total - sum(sizes)) // MAX_ROWS)
    shuffled, start = rows.sample(fraction=1.0, shuffle=True, seed=7), 0
    for size in sizes:
        part = max(1, int(size * rows.height / total))
        write_segments(store.storage, shuffled[start : start + part])
        start += part
    write_segments(store.storage, shuffled[start:])


def write_run(store: Store) -> list[Artifact]:
    """Write the manifests of the first run and of all that it was made from."""
    made: list[Artifact] = []

    def add(key: tuple[str, ...], partition: str | None, stage: str, *inputs: Artifact) -> Artifact:
        refs = tuple(parent.ref(f"inputs.{number}") for number, parent in enumerate(inputs))
        made.append(Artifact(store, _manifest(ArtifactSpec(key, partition, stage, "1", {"number": len(made)}, refs))))
        store.storage.create(f"{made[-1].spec.address}/{MANIFEST_NAME}", to_json(made[-1].manifest))
        return made[-1]

    caches = list(_caches(add))
    mixture = add(("mixture", "m0"), None, "lineage.mixture", *caches)
    before: tuple[Artifact, ...] = ()
    for step in range(STEPS):
        before = (add(("runs", "r0", "checkpoint"), str(step), "trainer.checkpoint", mixture, *before),)
        add(("runs", "r0", "eval_result"), str(step), "evals.result", *before)
    return made


def _caches(add: Callable[..., Artifact]) -> Iterator[Artifact]:
    for source in range(SOURCES):
        artifact = add(("datakit", "raw"), f"s{source}", "datakit.raw")
        for key in ("normalized", "corpus", "token_cache"):
            artifact = add(("datakit", key), f"s{source}", f"datakit.{key}", artifact)
        yield artifact


def _manifest(spec: ArtifactSpec) -> Manifest:
    facts = {"name": spec.name}
    return Manifest(
        spec=spec,
        data_version=content_version((), facts),
        data_folder="data-0",
        files=(),
        statistics={},
        extra=facts,
        resources=ResourceUse(1.0, 1.0, 1),
        code_fingerprint="",
        created="2026-11-25T00:00:00.000+00:00",
        run_id="",
        packages={},
        facts=("name",),
    )


if __name__ == "__main__":
    main()
