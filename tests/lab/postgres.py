"""A temporary PostgreSQL on loopback from the system's binaries, with its data in memory if `/dev/shm` exists.

The server refuses to run as root; then it runs as the user `postgres`. Durability is off, because it lives only as long as a
test.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg2

USER = "dagster"
QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"


@dataclass(frozen=True)
class Postgres:
    """A running server with an empty database."""

    port: int
    database: str = "dagster"
    user: str = USER
    host: str = "127.0.0.1"

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a query over a new connection."""
        with contextlib.closing(self._connect(self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def create_database(self) -> None:
        with contextlib.closing(self._connect("postgres")) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"create database {self.database}")

    def _connect(self, database: str) -> "psycopg2.extensions.connection":
        return psycopg2.connect(host=self.host, port=self.port, user=self.user, dbname=database)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Yield a new server. Raises: FileNotFoundError if the system has no `initdb` and `pg_ctl`."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=shared if shared.is_dir() else None))
    data, server = folder / "data", Postgres(_free_port())
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        _run("initdb", "-D", str(data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-p {server.port} -k {folder} -c listen_addresses={server.host} {QUICK}"
        _run("pg_ctl", "-D", str(data), "-w", "-l", str(data / "server.log"), "-o", options, "start")
        try:
            server.create_database()
            yield server
        finally:
            _run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _run(*command: str) -> None:
    """Run a command from `/`, because the user `postgres` may not read the caller's folder. Output goes to a file, because the
    server keeps it open.
    """
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryFile("w+") as output:
        ended = subprocess.run([*as_user, *command], cwd="/", stdout=output, stderr=subprocess.STDOUT, check=False)
        if ended.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[0]} ended with status {ended.returncode}: {output.read()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
