"""`python -m serving.broker --store FILE`: one URL for clients, leases for workers, until it is stopped."""

import argparse
import logging
import socket
from pathlib import Path

import uvicorn

from serving.broker.app import build_broker
from serving.broker.queue import QueueLimits, WorkQueue
from serving.connections import server_config
from serving.refusals import LOOPBACK, check_host, read_key

log = logging.getLogger("serving.broker")


def main() -> None:
    """Run a broker until it is stopped."""
    limits = QueueLimits()
    parser = argparse.ArgumentParser(prog="python -m serving.broker", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="SQLite file of requests and answers; created if missing")
    parser.add_argument("--port", type=int, default=8100, help="0 takes a free port")
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on; an address beyond loopback needs a key")
    parser.add_argument("--api-key-file", type=Path, help="file with the key that clients and workers must bring")
    parser.add_argument(
        "--lease-seconds", type=float, default=limits.lease_seconds, help="a worker silent for this long has lost"
    )
    parser.add_argument(
        "--max-attempts", type=int, default=limits.max_attempts, help="number of workers that may try one request"
    )
    parser.add_argument(
        "--max-open", type=int, default=limits.max_open, help="number of requests that may be open; more get status 429"
    )
    parser.add_argument(
        "--unserved-seconds", type=float, default=limits.unserved_seconds,
        help="seconds to wait for a model that no worker has served, while others are served; then 503",
    )  # fmt: skip
    parser.add_argument("--answer-seconds", type=float, default=3600.0, help="seconds that a connection waits; then 504")
    parser.add_argument("--keep-hours", type=float, default=72.0, help="hours that answers stay on record")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    key = read_key(given.api_key_file)
    check_host(given.host, key)
    promised = QueueLimits(given.lease_seconds, given.max_attempts, given.max_open, given.unserved_seconds)
    queue = WorkQueue(given.store, promised)
    faults: list[BaseException] = []

    def end(fault: BaseException) -> None:
        faults.append(fault)
        server.should_exit = True

    app = build_broker(queue, given.answer_seconds, given.keep_hours * 3600, key, end)
    server = uvicorn.Server(server_config(app))
    with socket.create_server((given.host, given.port)) as listener:
        log.info("broker on http://%s:%d, %s in %s", given.host, listener.getsockname()[1], queue.counts(), given.store)
        server.run(sockets=[listener])
    if faults:
        raise RuntimeError(f"the broker stopped: {faults[0]!r}; restart it: all requests are in {given.store}") from faults[0]


if __name__ == "__main__":
    main()
