"""A server's process is killed while it replaces its weights: nothing of the half-made change is left."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from processes import ended, free_port, start, wait_for
from served_models import Client, write_hf_folder

from serving.server.loaded_model import open_hf_folder

pytestmark = pytest.mark.slow

PROMPT = list(b"The cafe in the square")
FIELDS = {"temperature": 1.0, "seed": 5, "n": 9, "ignore_eos": True, "return_token_ids": True}


def test_a_kill_while_new_weights_are_read_leaves_the_old_ones(tmp_path: Path) -> None:
    """A pipe among the new folder's files holds the server in the middle of its read, while it also streams an answer."""
    old, new = (write_hf_folder(tmp_path / name, seed) for seed, name in enumerate(("old", "new")))
    digests = [str(open_hf_folder(folder).weights.digest) for folder in (old, new)]
    before = {path: path.read_bytes() for folder in (old, new) for path in folder.iterdir()}
    os.mkfifo(new / "zz.json")
    port = free_port()
    client = Client(port, "m")
    processes = [start("serving.server", str(old), "--name", "m", "--port", str(port))]
    with ended(processes), ThreadPoolExecutor(2) as pool:
        wait_for(client.url("/v1/models"), processes[0])
        answer = client.complete(PROMPT, max_tokens=40, **FIELDS)
        reading = threading.Event()
        stream, reload = pool.submit(streamed, client, reading), pool.submit(reloaded, client, new, digests[1])
        with (new / "zz.json").open("wb"):  # returns when the server has opened the other end
            assert reading.wait(60)
            assert not reload.done()
            processes[0].kill()
            processes[0].wait()
        assert reload.result() is None, "no answer says that the weights were replaced"
        assert set(stream.result()) == {digests[0]}
        (new / "zz.json").unlink()
        assert before == {path: path.read_bytes() for folder in (old, new) for path in folder.iterdir()}
        processes.append(start("serving.server", str(old), "--name", "m", "--port", str(port)))
        wait_for(client.url("/v1/models"), processes[1])
        again = client.complete(PROMPT, max_tokens=40, **FIELDS)
        assert again["weights_version"] == answer["weights_version"] == {"digest": digests[0], "step": None}
        assert again["choices"] == answer["choices"]
        assert reloaded(client, new, digests[1]) == 200
        assert client.complete(PROMPT, max_tokens=1)["weights_version"]["digest"] == digests[1]


def reloaded(client: Client, folder: Path, digest: str) -> int | None:
    """Return the status of a reload; None if the connection ends without an answer."""
    try:
        return requests.post(client.url("/v1/weights"), json={"folder": str(folder), "digest": digest}, timeout=120).status_code
    except requests.ConnectionError:
        return None


def streamed(client: Client, reading: threading.Event) -> list[str]:
    """Return the digests that the events of a long stream name, up to its end or the server's."""
    digests: list[str] = []
    body = {"model": "m", "prompt": PROMPT, "stream": True, "max_tokens": 90} | FIELDS
    try:
        with requests.post(client.url("/v1/completions"), json=body, stream=True, timeout=120) as answer:
            for line in answer.iter_lines():
                if line.startswith(b"data: {"):
                    digests.append(json.loads(line.removeprefix(b"data: "))["weights_version"]["digest"])
                    reading.set()
    except requests.RequestException:
        pass  # the kill
    return digests
