"""SQL over the ledger: its tables in DuckDB, read-only, and views with costs.

A query is one SELECT. It cannot use files, the network or settings: external access is off and the configuration is locked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl

from operations.ledger.ledger import Ledger

MEMORY = "2GB"
READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
VIEWS = {
    "processes": """
        SELECT store, process, count(*) AS attempts, count(*) FILTER (state IN ('failed', 'interrupted')) AS failed_attempts,
               CASE WHEN count(*) FILTER (dollars IS NULL) > 0 THEN NULL ELSE sum(dollars) END AS dollars,
               string_agg(DISTINCT unpriced, '; ') FILTER (unpriced <> '') AS unpriced,
               max(peak_rss_bytes) AS peak_rss_bytes
        FROM attempts GROUP BY store, process""",
    "costs": """
        SELECT a.store, a.address, a.name, a.key, a.partition, a.prefix, a.stage, a.owner, a.run_id, a.created, a.num_bytes,
               first_value(a.address) OVER last_first AS paid_by,
               CASE WHEN first_value(a.address) OVER last_first = a.address THEN p.dollars ELSE 0 END AS dollars,
               CASE WHEN first_value(a.address) OVER last_first = a.address THEN p.unpriced END AS unpriced,
               p.attempts, p.failed_attempts
        FROM artifacts a LEFT JOIN processes p USING (store, process)
        WINDOW last_first AS (PARTITION BY a.store, a.process ORDER BY a.step DESC, a.created DESC)""",
    "unfinished": """
        SELECT * FROM attempts t
        WHERE NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.store = t.store AND a.process = t.process)""",
    "last_used": """
        SELECT p.store, p.address, greatest(p.created, max(c.created)) AS used_at, count(c.address) AS readers
        FROM artifacts p LEFT JOIN inputs i ON i.store = p.store AND i.parent = p.address
        LEFT JOIN artifacts c ON c.store = i.store AND c.address = i.child GROUP BY p.store, p.address, p.created""",
    "standing_verdicts": """
        SELECT * FROM verdicts
        QUALIFY row_number() OVER (PARTITION BY store, name, data_version, verdict ORDER BY number DESC) = 1 AND standing""",
}
"""`costs`: a row for each artifact; the artifacts of one training job share one bill, and the last of them pays it.
`processes`: all attempts of a job. `unfinished`: attempts that made no artifact. `last_used`: when an artifact was last an
input."""


class RefusedQueryError(ValueError):
    """A query that does more than read the ledger."""


@contextmanager
def opened(ledger: Ledger) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a locked connection with every table and view."""
    connection = duckdb.connect(":memory:", config={"memory_limit": MEMORY, "python_enable_replacements": "false"})
    try:
        _fill(connection, ledger, "VIEW")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> pl.DataFrame:
    """Return the rows of one SELECT. Raises: RefusedQueryError for anything else; duckdb.Error for a wrong query."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type not in READING:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        raise RefusedQueryError(f"the query is {kinds}; one SELECT is allowed. `--to FILE.duckdb` writes the tables elsewhere")
    return connection.sql(sql).pl()


def save(ledger: Ledger, path: Path) -> None:
    """Write every table and view to a new DuckDB file. Raises: ValueError if there is one."""
    if path.exists():
        raise ValueError(f"{path} exists already; name another file, or delete it first")
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    connection = duckdb.connect(str(partial))
    try:
        _fill(connection, ledger, "TABLE")
    finally:
        connection.close()
    partial.rename(path)


def _fill(connection: duckdb.DuckDBPyConnection, ledger: Ledger, kind: str) -> None:
    for name, table in ledger.tables.items():
        connection.register(f"of_{name}", table.to_arrow())
        connection.execute(f"CREATE {kind} {name} AS SELECT * FROM of_{name}")
        if kind == "TABLE":
            connection.unregister(f"of_{name}")
    for name, sql in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {sql}")
