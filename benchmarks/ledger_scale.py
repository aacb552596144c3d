"""The ledger of a store with many artifacts: seconds to build it, to open it again, and after one new artifact.

    PYTHONPATH=. .venv/bin/python benchmarks/ledger_scale.py --artifacts 100000 --inputs 3

The bars (issue 31): built in 60 s, incremental in 1 s. "opened" has all tables with costs, without a query.
"""

import argparse
import datetime
import tempfile
from pathlib import Path

from lineage_scale import timed, write_manifests

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.graph.scan import open_log
from lineage.writing.write import writing
from operations.ledger.database import opened, query
from operations.ledger.ledger import open_ledger
from operations.ledger.tables import update_tables
from recipes.prices import price_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=100_000)
    parser.add_argument("--inputs", type=int, default=3)
    options = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    with tempfile.TemporaryDirectory(prefix="ledger-bench-") as root:
        write_manifests(Path(root), options.artifacts, options.inputs)
        store, prices = Store(root), price_table()
        built = timed("built from nothing", lambda: open_ledger([store], prices, today))
        print({name: table.height for name, table in built.tables.items() if table.height})
        timed("the commit log of an existing store, once", lambda: open_log(store))
        timed("opened again, folders read once more", lambda: open_ledger([store], prices, today))
        timed("opened again", lambda: open_ledger([store], prices, today))
        for number in range(3):
            with writing(store, ArtifactSpec(("bench", "new"), f"p{number}", "bench.stage", "1", {})):
                pass
            timed("tables alone, after one new artifact", lambda: update_tables(store))
            with writing(store, ArtifactSpec(("bench", "other"), f"p{number}", "bench.stage", "1", {})):
                pass
            ledger = timed("opened after one new artifact", lambda: open_ledger([store], prices, today))
        with opened(ledger) as connection:
            sql = "SELECT prefix, count(*), sum(dollars) FROM costs GROUP BY ALL ORDER BY ALL"
            timed("costs by prefix in SQL", lambda: query(connection, sql))


if __name__ == "__main__":
    main()
