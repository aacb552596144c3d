"""The only file that touches Dagster's private modules; `tests/shell/test_dagster_private.py` fails first when they move.

Dagster is pinned to its minor version because of these.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, NullPool, create_engine

__all__ = ["SensorExecutionData", "UnresolvedAssetJobDefinition", "keep_engines"]


def keep_engines(instance: dg.DagsterInstance) -> bool:
    """Let this process's event log keep one engine a database; whether it is one that makes an engine an event.

    Dagster 1.13 makes an engine for every statement of its SQLite event log and throws it away, and with it SQLAlchemy's cache
    of compiled statements. A ferry stores 900 events of about 20 ms; a job of 40 assets with two checks each took 6.0 and 6.6 s
    with engines kept, 7.6 and 9.3 s without (2026-11-21). Connections are opened and closed as before, so no lock is held
    longer, and the stored bytes are the same: the UI reads them with Dagster's own class.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return False
    engines: dict[str, Engine] = {}
    storage._connect = partial(_connect, storage, engines)  # type: ignore[method-assign]
    return True


@contextmanager
def _connect(storage: SqliteEventLogStorage, engines: dict[str, Engine], shard: str) -> Iterator[Connection]:
    """`SqliteEventLogStorage._connect`, with the engine of a shard made once."""
    with storage._db_lock:
        if shard not in engines:
            timeout = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
            engines[shard] = create_engine(storage.conn_string_for_shard(shard), poolclass=NullPool, connect_args=timeout)
        if shard not in storage._initialized_dbs:
            storage._initdb(engines[shard])
            storage._initialized_dbs.add(shard)
        with engines[shard].connect() as connection, connection.begin():
            yield connection
