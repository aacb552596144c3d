"""`python -m serving.server CHECKPOINT_FOLDER`: serve one checkpoint until stopped, or the newest weights of a folder."""

import argparse
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from serving.broker.worker import LAST_WORDS_SECONDS, POLL_SECONDS, Worker, worker_name
from serving.connections import server_config
from serving.refusals import LOOPBACK, check_host, read_key
from serving.server.app import build_app
from serving.server.engine import EngineSettings
from serving.server.following import first_of, following
from serving.server.loaded_model import LoadedModel, shortened
from serving.server.opening import open_model
from serving.server.scheduler import MOST_WAITING, StoppedError
from serving.server.weights import Reloading

log = logging.getLogger("serving.server")
FOLLOWED = "followed"
"""What a server that follows a folder gives a broker as its version. So servers of different weights may share one name while
a trainer changes these; each answer names its own."""


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and the API key that clients need; by default loopback without a key."""

    port: int = 8000
    host: str = LOOPBACK
    api_key: str | None = None
    broker: str | None = None
    """URL of a broker to take requests from, in addition to direct requests."""
    broker_key: str | None = None
    followed: Path | None = None
    """Folder that names the newest weights (`serving.server.following`)."""
    admin_key: str | None = None
    """Key for `POST /v1/weights`. Without it and without an API key, clients of this machine may replace weights."""

    @property
    def may_reload(self) -> bool:
        return self.admin_key is not None or self.api_key is None

    def __post_init__(self) -> None:
        check_host(self.host, self.api_key)
        if self.followed is not None and not self.may_reload:
            raise ValueError(
                f"the server follows {self.followed} and cannot replace weights: it has an API key and no admin key; give "
                "--admin-key-file"
            )


def serve(
    folder: Path,
    where: Listening,
    tokenizer: Path | None,
    name: str | None,
    settings: EngineSettings,
    max_waiting: int = MOST_WAITING,
    context: int | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. Port 0 takes a free port, which the log shows.

    `context`: tokens of a sequence, by default the model's own context. Raises: ValueError for a folder or a context that
    cannot be served; StoppedError when the server has failed and a restart may help.
    """

    def opened(folder: Path) -> LoadedModel:
        served = open_model(folder, tokenizer, name)
        return served if context is None else shortened(served, context)

    served = opened(folder)
    reloading = Reloading(opened, where.admin_key) if where.may_reload else None
    with socket.create_server((where.host, where.port)) as listener:
        address = f"http://{where.host}:{listener.getsockname()[1]}"
        log.info(
            "%s on %s: %s parameters, contexts of %d tokens, %d rows a lane; the first requests wait for compilation",
            served.name, address, f"{served.config.num_parameters:,}", served.config.max_seq_len, settings.rows,
        )  # fmt: skip
        faults: list[BaseException] = []

        def end(fault: BaseException) -> None:
            faults.append(fault)
            server.should_exit = True  # open requests are answered first

        app = build_app(served, settings, max_waiting, where.api_key, end, reloading)
        server = uvicorn.Server(server_config(app))
        with working(where, address, end), following(where.followed, address, where.api_key, where.admin_key):
            server.run(sockets=[listener])
    if faults:
        raise StoppedError(f"the server for {served.name} stopped: {faults[0]!r}") from faults[0]


@contextmanager
def working(where: Listening, address: str, on_fault: Callable[[BaseException], None]) -> Iterator[None]:
    """Run a broker's worker in this context, if a broker is named, with requests for the rows of two steps."""
    if where.broker is None:
        yield
        return
    keys = {"broker_key": where.broker_key, "server_key": where.api_key}
    version = None if where.followed is None else FOLLOWED
    worker = Worker(where.broker, address, worker_name(), own_server=True, model_version=version, **keys)

    def work() -> None:
        try:
            worker.run()
        except Exception as fault:  # runs in a thread; the starter ends the process
            log.exception("the worker ended")
            on_fault(fault)

    thread = threading.Thread(target=work, name="broker-worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stopping.set()
        thread.join(POLL_SECONDS + 2 * LAST_WORDS_SECONDS)


def main() -> None:
    """Serve a model until the process is stopped."""
    defaults = EngineSettings()
    parser = argparse.ArgumentParser(prog="python -m serving.server", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of a checkpoint (with its manifest), or in Hugging Face's format")
    parser.add_argument(
        "--follow", action="store_true", help="FOLDER has newest.json: serve the weights that it names, and replace them"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port")
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of a tokenizer artifact; default: the tokenizer of the training data"
    )
    parser.add_argument("--name", help="name of the model in the API; default: the artifact's name")
    parser.add_argument("--rows", type=int, default=defaults.rows, help="sequences decoded together, in each lane")
    parser.add_argument("--context", type=int, help="tokens of a sequence; default: the model's context")
    parser.add_argument("--prefix-mib", type=int, default=defaults.prefix_bytes >> 20, help="memory for shared prompt blocks")
    parser.add_argument("--cache-mib", type=int, help="memory for all requests' caches; default: half of the free memory")
    parser.add_argument(
        "--max-waiting", type=int, default=MOST_WAITING, help="sequences that may wait for a row; more get status 429"
    )
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on; an address beyond loopback needs a key")
    parser.add_argument("--api-key-file", type=Path, help="file with the key that clients must bring")
    parser.add_argument("--admin-key-file", type=Path, help="file with the key that replaces weights (POST /v1/weights)")
    parser.add_argument("--broker", help="URL of a broker to take requests from (docs/recipes/many_workers.md)")
    parser.add_argument("--broker-key-file", type=Path, help="file with the broker's key")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX logs every missing backend
    cache_bytes = None if given.cache_mib is None else given.cache_mib << 20
    settings = EngineSettings(rows=given.rows, prefix_bytes=given.prefix_mib << 20, cache_bytes=cache_bytes)
    keys = {"api_key": read_key(given.api_key_file), "broker_key": read_key(given.broker_key_file)}
    keys["admin_key"] = read_key(given.admin_key_file)
    followed = given.folder if given.follow else None
    where = Listening(given.port, given.host, broker=given.broker and given.broker.rstrip("/"), followed=followed, **keys)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn re-raises the signal; the worker must end too
    folder = given.folder if followed is None else first_of(followed)
    serve(folder, where, given.tokenizer, given.name, settings, given.max_waiting, given.context)


if __name__ == "__main__":
    main()
