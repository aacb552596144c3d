"""Dagster's event log from manifests alone, and the three witnesses compared over it: seconds for a store with many artifacts.

    PYTHONPATH=. .venv/bin/python benchmarks/event_log.py --artifacts 2000 --inputs 10

Manifests as in `lineage_scale.py` (no data files), a temporary DAGSTER_HOME with SQLite and kept engines. The as-of walk is
silent here (rebuilt events have no pointers): what is timed is one scan of the log and every edge against its manifest.
"""

import argparse
import datetime
import tempfile
from pathlib import Path

import dagster as dg
from lineage_scale import timed, write_manifests

from lineage.artifact.store import Store
from lineage.graph.edges import lineage_tables
from marin_assets.consistency import check_consistency
from marin_assets.event_log import read_log
from marin_assets.rebuild import rebuild_event_log
from resources.dagster_private import keep_engines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=2_000)
    parser.add_argument("--inputs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="event-log-bench-") as folder:
        root, home = Path(folder) / "store", Path(folder) / "home"
        home.mkdir()
        write_manifests(root, options.artifacts, options.inputs)
        store = Store(str(root))
        tables = timed("lineage tables, from manifests alone", lambda: lineage_tables(store))
        print(f"{tables.artifacts.height:,} artifacts, {tables.edges.height:,} edges")
        keys = sorted({tuple(name.split("[")[0].split("/")) for name in tables.artifacts["name"]})
        graph = dg.Definitions(assets=[dg.AssetSpec(list(key)) for key in keys]).resolve_asset_graph()
        with dg.DagsterInstance.local_temp(str(home)) as instance:
            keep_engines(instance)
            done = timed("rebuild the event log", lambda: rebuild_event_log([store], instance, graph))
            print(f"{len(done.reported):,} artifacts reported")
            timed("rebuild it again: nothing to add", lambda: rebuild_event_log([store], instance, graph))
            timed("read the log", lambda: read_log(instance))
            today = datetime.datetime.now(datetime.UTC).date()
            comparison = timed("compare the three witnesses", lambda: check_consistency([store], instance, graph, today))
            print(f"{len(comparison.disagreements)} disagreements, {comparison.counts}")


if __name__ == "__main__":
    main()
