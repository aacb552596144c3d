"""Memory of the model server over many mixed requests: whole, streamed, scored, left half-way, refused.

    PYTHONPATH=.:tests:tests/evals .venv/bin/python -P benchmarks/server_memory.py [--requests 10000]

Starts `python -m serving.server` over a small model with a small prefix cache, sends the requests from eight threads, and
prints the resident size of the server after each tenth of them. The last number less that after the first fifth is what
grows: lanes are compiled and the prefix cache is filled by then.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from served_models import write_hf_folder

THREADS = 8
CONTEXT = 256
WORDS = ("the", "café", "in", "a", "square", "opens", "at", "noon", "and", "young", "men", "said", "no", "to", "it")


def ask(port: int, seed: int) -> int:
    """One request by its number; the status of its answer, 0 where we left."""
    draw = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    prompt = " ".join(draw.choices(WORDS, k=draw.randint(1, 30)))[: CONTEXT // 2]
    body = {"model": "small", "prompt": prompt, "max_tokens": draw.choice([0, 1, 4, 16, 48]), "temperature": draw.random()}
    kind = draw.choice(["whole", "whole", "stream", "leave", "scored", "list", "broken", "long", "info"])
    path, raw = "/v1/completions", b""
    if kind in ("stream", "leave"):
        body["stream"] = True
    if kind == "scored":
        body |= {"echo": True, "logprobs": draw.randint(0, 20), "max_tokens": 0}
    if kind == "list":
        body["prompt"] = [prompt] * draw.randint(2, 6)
    if kind == "long":
        body["max_tokens"] = 10**9
    if kind == "broken":
        raw = bytes(draw.choices(range(256), k=draw.randint(1, 4000)))
    if kind == "info":
        path = draw.choice(["/v1/models", "/metrics", "/health", "/nowhere"])
        connection.request("GET", path)
    else:
        connection.request("POST", path, raw or json.dumps(body), {"content-type": "application/json"})
    if kind == "leave":
        connection.close()
        return 0
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def resident_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--prefix-mib", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = write_hf_folder(Path(root) / "small", max_seq_len=CONTEXT)
        command = [sys.executable, "-m", "serving.server", str(folder), "--port", "0", "--prefix-mib", str(options.prefix_mib)]
        with subprocess.Popen([*command, "--name", "small"], stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "http://" in line)
            port = int(re.search(r"127\.0\.0\.1:(\d+)", line)[1])  # type: ignore[index]
            print(f"before the first request: {resident_mib(server.pid):.0f} MiB", flush=True)
            step, start = options.requests // 10, time.monotonic()
            with ThreadPoolExecutor(THREADS) as pool:
                for first in range(0, options.requests, step):
                    statuses = list(pool.map(lambda number: ask(port, number), range(first, first + step)))
                    faults = sum(status >= 500 for status in statuses)
                    rate = (first + step) / (time.monotonic() - start)
                    mib = resident_mib(server.pid)
                    print(f"{first + step}: {mib:.0f} MiB, {faults} answers of 5xx, {rate:.0f} requests/s", flush=True)
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    main()
