"""A broker whose file fails: it reports, continues when it can, ends when it cannot."""

import asyncio
import re
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from processes import ended, free_port, start, wait_for

from serving.broker.schema import SCHEMA_NUMBER
from serving.broker.upkeep import Upkeep

BODY = {"model": "m", "prompt": "a", "temperature": 0}


def lease(url: str) -> list[dict]:
    body = {"worker": "w", "models": {"m": "v"}, "count": 1, "wait": 1}
    return requests.post(f"{url}/broker/lease", json=body, timeout=60).json()["requests"]


def leased(url: str) -> dict:
    while not (requests_now := lease(url)):
        pass
    return requests_now[0]


def test_a_locked_file_is_reported_and_leases_run_out_when_it_is_free_again(tmp_path: Path) -> None:
    port, store = free_port(), tmp_path / "b.sqlite"
    url = f"http://127.0.0.1:{port}"
    broker = start("serving.broker", "--store", str(store), "--port", str(port), "--lease-seconds", "1")
    with ended([broker]), ThreadPoolExecutor(1) as client:
        wait_for(f"{url}/health", broker)
        asking = client.submit(requests.post, f"{url}/v1/completions", json=BODY, timeout=600)
        first = leased(url)
        locking = sqlite3.connect(store, timeout=600, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        while (health := requests.get(f"{url}/health", timeout=600)).status_code == 200 or "locked" not in health.text:
            time.sleep(0.05)
        assert health.status_code == 503 and "database is locked" in health.json()["reason"]
        refused = requests.post(f"{url}/broker/renew", json={"leases": [first["lease"]]}, timeout=60)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage")
        locking.execute("ROLLBACK")
        locking.close()
        second = leased(url)
        assert (second["key"], second["body"]) == (first["key"], first["body"]) and second["lease"] != first["lease"]
        wait_for(f"{url}/health", broker)
        query = {"key": second["key"], "status": 200, "version": "v"}
        assert requests.post(f"{url}/broker/finish", b"{}", params=query, timeout=60).json() == {"counted": True}
        assert asking.result().json() == {}


def test_a_spoilt_file_ends_the_broker(tmp_path: Path) -> None:
    port, store, log = free_port(), tmp_path / "b.sqlite", tmp_path / "log"
    broker = start("serving.broker", "--store", str(store), "--port", str(port), log=log)
    with ended([broker]):
        wait_for(f"http://127.0.0.1:{port}/health", broker)
        with sqlite3.connect(store) as writing:
            writing.execute("INSERT INTO served VALUES ('m', 'w', 'v', 0, 0)")
        writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with store.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 16)
        writing.execute(f"PRAGMA user_version = {SCHEMA_NUMBER}")  # a change: the broker reads again what it has in memory
        assert broker.wait(600) == 1
        writing.close()
    assert "the broker stopped: DatabaseError('database disk image is malformed')" in log.read_text()


def test_a_sweep_that_fails_by_a_fault_of_ours_is_reported_and_not_repeated() -> None:
    swept, faults = [], []

    async def sweep(now: float) -> None:
        swept.append(now)
        raise KeyError("a fault")

    upkeep = Upkeep(sweep, faults.append)
    assert upkeep.trouble() is None
    asyncio.run(upkeep.run())
    assert len(swept) == 1 and [repr(fault) for fault in faults] == ["KeyError('a fault')"]
    assert "KeyError('a fault')" in (upkeep.trouble() or "")


def test_no_sweep_for_long_is_trouble() -> None:
    upkeep = Upkeep(asyncio.sleep, print, swept=time.monotonic() - 11)
    assert re.match(r"no sweep since \d+\.\d s", upkeep.trouble() or "")
