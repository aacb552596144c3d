"""What continuous batching gains: tokens a second for 16 clients at once, against one client after the other.

    PYTHONPATH=. .venv/bin/python benchmarks/serving.py CHECKPOINT_FOLDER --rounds 3

The real server on a free port, every shape compiled first, the sides in alternating order. The prompts differ from their
first token on, so the prefix cache does not help. A lone client computes the empty rows of its lane too: part of the gain.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

CLIENTS, PROMPTS, NEW_TOKENS = 16, 48, 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "evals.serve", options.folder, "--port", "0", "--name", "m"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))

        def ask(number: int) -> int:
            body = {"model": "m", "prompt": [number + 1] * 30, "max_tokens": NEW_TOKENS, "temperature": 1, "seed": number}
            request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode())
            with urllib.request.urlopen(request) as response:
                return json.load(response)["usage"]["completion_tokens"]

        while not answers(address):
            time.sleep(0.05)
        ask(0)
        rates: dict[int, list[float]] = {1: [], CLIENTS: []}
        for _ in range(options.rounds):
            for clients, found in rates.items():
                with ThreadPoolExecutor(clients) as pool:
                    start = time.perf_counter()
                    found.append(sum(pool.map(ask, range(PROMPTS))) / (time.perf_counter() - start))
        server.terminate()
    one, many = (statistics.median(found) for found in rates.values())
    print(f"1 client {one:,.0f} tokens/s, {CLIENTS} clients {many:,.0f} tokens/s: {many / one:.2f} times (medians)")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health"):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
