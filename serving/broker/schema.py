"""The tables of the broker's SQLite file, and their schema number."""

import sqlite3
from pathlib import Path

SCHEMA_NUMBER = 3
SCHEMA = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    model TEXT,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'leased', 'done')),
    attempts INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    worker TEXT,
    lease_until REAL,
    version TEXT,
    status INTEGER,
    answer BLOB,
    put_at REAL NOT NULL,
    done_at REAL
);
CREATE INDEX IF NOT EXISTS requests_by_state ON requests (state, number);
CREATE INDEX IF NOT EXISTS requests_by_lease ON requests (lease) WHERE lease IS NOT NULL;
CREATE TABLE IF NOT EXISTS served (
    model TEXT NOT NULL,
    worker TEXT NOT NULL,
    version TEXT,
    seen_at REAL NOT NULL,
    left INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (model, worker)
) WITHOUT ROWID;
PRAGMA user_version = {SCHEMA_NUMBER};
COMMIT;
"""
BUSY_SECONDS = 2.0
"""Seconds to wait while another process locks the file."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file, or create it; every commit is synced to disk. Raises: ValueError for another schema number."""
    db = sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    (number,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and number != SCHEMA_NUMBER:
        db.close()
        raise ValueError(f"{path} has schema {number} of a broker's file; {SCHEMA_NUMBER} is allowed: use a new file")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.executescript(SCHEMA)
    return db
