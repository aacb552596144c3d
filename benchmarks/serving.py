"""What continuous batching gains, and how our decoding stands beside transformers' `generate`, in tokens made a second.

    PYTHONPATH=. .venv/bin/python benchmarks/serving.py CHECKPOINT_FOLDER --rounds 3 [--peer PEER/bin/python]

The real server on a free port, every shape compiled first, the sides in alternating order: 16 clients at once, one client after
the other, and (PEER: an environment with torch and transformers) `generate` in greedy batches of 1 and of 16 over the same
prompts and lengths, on the same weights. The prompts differ from their first token on, so the prefix cache does not help.
CPU seconds are the whole server's. A lone client computes the empty rows of its lane too: part of the gain.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

CLIENTS, PROMPT_TOKENS, NEW_TOKENS = 16, 30, 48
PEER = """
import json, resource, sys, time
import torch, transformers
folder, batch, number, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
rows = torch.tensor([[i + 1] * prompt for i in range(number)])
def run(rows):
    for part in rows.split(batch):
        model.generate(part, attention_mask=torch.ones_like(part), do_sample=False, min_new_tokens=new, max_new_tokens=new,
                       pad_token_id=0)
def cpu():
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime
with torch.no_grad():
    run(rows[:batch])
    start, before = time.perf_counter(), cpu()
    run(rows)
    print(json.dumps({"wall": time.perf_counter() - start, "cpu": cpu() - before, "version": transformers.__version__}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=48, help="requests a round and side")
    parser.add_argument("--rows", type=int, default=16, help="rows of a lane")
    parser.add_argument("--peer", help="Python of an environment with torch and transformers")
    options = parser.parse_args()
    rates: dict[str, list[tuple[float, float]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="serving-") as place,
        started(options.folder, "--rows", str(options.rows)) as server,
    ):
        address, process = server
        hf = exported(options.folder, Path(place)) if options.peer else None
        while not answers(address):
            time.sleep(0.05)
        ask(address, 0)
        for _ in range(options.rounds):
            for clients in (1, CLIENTS):
                before, start = cpu_seconds(process.pid), time.perf_counter()
                with ThreadPoolExecutor(clients) as pool:
                    made = sum(pool.map(lambda number: ask(address, number), range(options.prompts)))
                spent = time.perf_counter() - start, cpu_seconds(process.pid) - before
                rates.setdefault(f"ours, {clients} clients", []).append((made / spent[0], made / spent[1]))
            for batch in (1, CLIENTS) if hf else ():
                result = peer(options.peer, hf, batch, options.prompts)
                made = options.prompts * NEW_TOKENS
                name = f"transformers {result['version']}, batches of {batch}"
                rates.setdefault(name, []).append((made / result["wall"], made / result["cpu"]))
    report(rates)


@contextmanager
def started(folder: str | Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The real server on a free port: its address and process."""
    command = [sys.executable, "-m", "serving.server", str(folder), "--port", "0", "--name", "m", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(address[0] for line in server.stderr if (address := re.search(r"http://127\.0\.0\.1:\d+", line))), server
        finally:
            server.terminate()


def ask(address: str, number: int) -> int:
    """Tokens made: as many as asked for, unless the model ends its text (a temperature keeps that rare)."""
    body = {"model": "m", "prompt": [number + 1] * PROMPT_TOKENS, "max_tokens": NEW_TOKENS, "temperature": 1, "seed": number}
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)["usage"]["completion_tokens"]


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health"):
            return True
    except OSError:
        return False


def exported(folder: Path, place: Path) -> Path:
    """The model as transformers reads it; a folder that has this form already is taken as it is."""
    from lm_eval_parity import write_hf

    from lineage.artifact.store import open_folder
    from trainer.hf.folder import is_hf_folder

    if is_hf_folder(folder):
        return folder
    return write_hf(open_folder(folder), place / "hf")


def peer(python: str, folder: Path, batch: int, number: int) -> dict:
    command = [python, "-c", PEER, str(folder), *map(str, (batch, number, PROMPT_TOKENS, NEW_TOKENS))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(rates: dict[str, list[tuple[float, float]]]) -> None:
    middle = {name: tuple(map(statistics.median, zip(*both, strict=True))) for name, both in rates.items()}
    for name, speeds in rates.items():
        walls = sorted(wall for wall, _ in speeds)
        spread = f"{walls[0]:.1f} to {walls[-1]:.1f}"
        print(f"{name}: {middle[name][0]:,.1f} tokens a second ({spread}), {middle[name][1]:,.1f} a CPU second")
    names = list(rates)
    pairs = [(names[1], names[0]), *((names[side], names[2 + side]) for side in range(len(names) - 2))]
    for one, other in pairs:
        wall, cpu = (a / b for a, b in zip(middle[one], middle[other], strict=True))
        print(f"{one} against {other}: {wall:.2f} times by the clock, {cpu:.2f} by CPU seconds (medians)")


if __name__ == "__main__":
    main()
