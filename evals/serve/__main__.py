"""`python -m evals.serve CHECKPOINT_FOLDER`: one checkpoint on loopback until it is told to stop."""

import argparse
import logging
import socket
from pathlib import Path

import uvicorn

from evals.serve.app import build_app
from evals.serve.engine import EngineSettings
from evals.serve.served import open_served
from lineage.gate import inspect, today, waived
from lineage.store import Artifact, open_folder

LOOPBACK = "127.0.0.1"
"""The only address: the server asks nobody who they are. From elsewhere, come through ssh or a proxy that does."""
log = logging.getLogger("evals.serve")


def serve(folder: Path, port: int, tokenizer: Path | None, name: str | None, settings: EngineSettings) -> None:
    """Serve until SIGINT or SIGTERM. Port 0 takes a free one; the line on the log says which."""
    checkpoint = open_folder(folder)
    refuse_unfit(checkpoint)
    served = open_served(checkpoint, open_folder(tokenizer) if tokenizer else None, name)
    with socket.create_server((LOOPBACK, port)) as listener:
        address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        log.info(
            "%s on %s: %s parameters, contexts of %d tokens, %d rows a lane; the first requests wait for compilation",
            served.name, address, f"{served.config.num_parameters:,}", served.config.max_seq_len, settings.rows,
        )  # fmt: skip
        config = uvicorn.Config(build_app(served, settings), log_level="warning", timeout_graceful_shutdown=5)
        uvicorn.Server(config).run(sockets=[listener])


def refuse_unfit(checkpoint: Artifact) -> None:
    """The gate, for reading: a checkpoint on bad ancestors is not served. Ancestors that were not copied along are told.

    Raises: GateError naming what is wrong and not waived.
    """
    findings = inspect(checkpoint.store, [checkpoint.ref("checkpoint")], {})
    absent = [finding for finding in findings if finding.problem == "missing"]
    if absent:
        log.warning(
            "%s: %d of its ancestors are not in %s and were not looked at", checkpoint.name, len(absent), checkpoint.store.root
        )
    waived(checkpoint.store, f"serving {checkpoint.name}", [f for f in findings if f not in absent], today())


def main() -> None:
    defaults = EngineSettings()
    parser = argparse.ArgumentParser(prog="python -m evals.serve", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of a checkpoint artifact (the one with its manifest)")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer artifact; by default the training data's own")
    parser.add_argument("--name", help="what the API calls the model; by default the artifact's name")
    parser.add_argument("--rows", type=int, default=defaults.rows, help="sequences decoded together, in each lane")
    parser.add_argument("--prefix-mib", type=int, default=defaults.prefix_bytes >> 20, help="memory for shared prompt blocks")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every backend that is not there
    settings = EngineSettings(rows=given.rows, prefix_bytes=given.prefix_mib << 20)
    serve(given.folder, given.port, given.tokenizer, given.name, settings)


if __name__ == "__main__":
    main()
