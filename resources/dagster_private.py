"""The only file that touches Dagster's private modules; `tests/shell/test_dagster_private.py` fails first when they move.

Dagster is pinned to its minor version because of these.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    INPUT_DATA_VERSION_TAG_PREFIX,
    INPUT_EVENT_POINTER_TAG_PREFIX,
    SKIP_PARTITION_DATA_VERSION_DEPENDENCY_THRESHOLD,
    DataProvenance,
    extract_data_provenance_from_entry,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, NullPool, create_engine

__all__ = [
    "UNFOLDED_PARTITIONS",
    "BaseAssetGraph",
    "DataProvenance",
    "SensorExecutionData",
    "UnresolvedAssetJobDefinition",
    "keep_engines",
    "parent_partitions",
    "provenance_of",
]

UNFOLDED_PARTITIONS = SKIP_PARTITION_DATA_VERSION_DEPENDENCY_THRESHOLD
"""From this number of input partitions on, Dagster records the version of the input's last event, not a combined version."""
INPUT_TAGS = (INPUT_DATA_VERSION_TAG_PREFIX, INPUT_EVENT_POINTER_TAG_PREFIX)


def provenance_of(record: dg.EventLogRecord) -> DataProvenance | None:
    """Return what a materialization's tags record of its inputs: version and storage id of the newest event, by asset key.

    Dagster ignores such tags without a code version, and so does an event that somebody reports with tags of their own. They
    are read all the same. Raises: ValueError for a storage id that is no number.
    """
    event = record.asset_materialization
    tags = dict(event.tags or {}) if event is not None else {}
    if CODE_VERSION_TAG not in tags and any(name.startswith(INPUT_TAGS) for name in tags):
        return DataProvenance.from_tags({CODE_VERSION_TAG: "", **tags})
    return extract_data_provenance_from_entry(record.event_log_entry)


def parent_partitions(
    instance: dg.DagsterInstance, graph: BaseAssetGraph, child: dg.AssetKey, partition: str | None, parent: dg.AssetKey
) -> list[str]:
    """Return the partitions of `parent` that a partition of `child` is made from, as the graph maps them today."""
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        result = graph.get_parent_partition_keys_for_child(partition, parent, child)
        return sorted(result.partitions_subset.get_partition_keys())


def keep_engines(instance: dg.DagsterInstance) -> bool:
    """Make this process's event log keep one engine for each database. Returns whether it is a log that makes one for each
    event.

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
