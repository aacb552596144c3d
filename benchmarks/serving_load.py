"""200 clients at once for two minutes: every request gets an answer, and memory stays where it was.

    PYTHONPATH=. .venv/bin/python benchmarks/serving_load.py CHECKPOINT_FOLDER --clients 200 --seconds 120

The real server on a free port. Each client asks without pause, of a fixed mix: completions, streams, log-likelihoods of a whole
prompt, chats where there is a template, and requests that must be refused (broken JSON, unknown field, too long a prompt). A
connection that ends without a whole answer is an error, and so is an answer of the wrong kind; 429 is an answer, counted apart.
Memory is the server's own, twice a second; the last third must not lie above the middle third by more than 5 %.
"""

import argparse
import json
import random
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from serving import answers, started

MOST_GROWTH = 1.05
KINDS = ("completion", "stream", "score", "broken", "unknown", "long")


@dataclass
class Tally:
    """What all clients saw."""

    ended: Counter = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, status: int, seconds: float, problem: str | None) -> None:
        with self.lock:
            self.ended[kind, status] += 1
            self.seconds.append(seconds)
            if problem:
                self.problems.append(problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    tally, memory = Tally(), list[float]()
    with started(options.folder) as (address, process):
        while not answers(address):
            time.sleep(0.05)
        for kind in KINDS:  # every shape is compiled before the clock starts
            ask(address, kind, random.Random(0))
        end = time.monotonic() + options.seconds
        threads = [threading.Thread(target=client, args=(address, number, end, tally)) for number in range(options.clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            memory.append(resident_mib(process.pid))
            time.sleep(0.5)
        alive = process.poll() is None and answers(address)
    sys.exit(report(tally, memory, alive, options.clients, options.seconds))


def client(address: str, number: int, end: float, tally: Tally) -> None:
    rng = random.Random(number)
    while time.monotonic() < end:
        kind = rng.choice(KINDS)
        start = time.monotonic()
        status, problem = ask(address, kind, rng)
        tally.add(kind, status, time.monotonic() - start, problem)


def ask(address: str, kind: str, rng: random.Random) -> tuple[int, str | None]:
    """Status (0: no answer), and what was wrong with the answer."""
    ids = [rng.randrange(1, 200) for _ in range(rng.randrange(4, 40))]
    body: dict = {"model": "m", "prompt": ids, "max_tokens": 8, "temperature": 1, "seed": rng.randrange(1 << 30)}
    body |= {
        "stream": {"stream": True},
        "score": {"max_tokens": 0, "echo": True, "logprobs": 1},
        "unknown": {"promt": 1},
        "long": {"prompt": ids * 10_000},
    }.get(kind, {})
    data = b'{"model": ' if kind == "broken" else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/v1/completions", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    except OSError as error:
        return 0, f"{kind}: no answer: {error!r}"
    return status, fault_of(kind, status, text)


def fault_of(kind: str, status: int, text: str) -> str | None:
    if status == 429:
        return None
    wanted = 200 if kind in ("completion", "stream", "score") else 400
    if status != wanted:
        return f"{kind}: {status} instead of {wanted}: {text[:200]}"
    if kind == "stream":
        return None if text.endswith("data: [DONE]\n\n") else f"stream: ends with {text[-80:]!r}"
    try:
        return None if ("choices" if status == 200 else "error") in json.loads(text) else f"{kind}: {text[:200]}"
    except ValueError:
        return f"{kind}: no JSON: {text[:200]}"


def resident_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024 if "VmRSS" in fields else 0.0


def report(tally: Tally, memory: list[float], alive: bool, clients: int, seconds: float) -> int:
    number, waits = sum(tally.ended.values()), sorted(tally.seconds)
    print(f"{clients} clients, {seconds:g} s: {number} requests, {number / seconds:.1f} a second")
    for (kind, status), count in sorted(tally.ended.items()):
        print(f"  {kind:<12} {status}: {count}")
    late = waits[int(len(waits) * 0.99)]
    print(f"seconds to the answer: median {statistics.median(waits):.2f}, 99 % {late:.2f}, most {waits[-1]:.2f}")
    third = max(1, len(memory) // 3)
    middle, last = max(memory[third : 2 * third] or memory), max(memory[2 * third :] or memory)
    print(f"server's MiB: at first {memory[0]:.0f}, most {max(memory):.0f}, middle third {middle:.0f}, last third {last:.0f}")
    print(f"answers that were none or wrong: {len(tally.problems)}; the server is {'alive' if alive else 'GONE'}")
    for problem in tally.problems[:5]:
        print(f"  {problem}")
    return 0 if alive and not tally.problems and last <= middle * MOST_GROWTH else 1


if __name__ == "__main__":
    main()
