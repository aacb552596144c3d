"""lm-eval over our server, beside lm-eval's own Hugging Face backend and our own log-likelihood runner.

    PYTHONPATH=. .venv/bin/python benchmarks/lm_eval_parity.py CHECKPOINT_FOLDER --peer PEER/bin/python [--limit 24]

PEER is a separate environment: `pip install 'lm-eval[api]==0.4.13' torch transformers`. Four tasks over the items of
`data/`: HellaSwag, MMLU (two examples before each question), GSM8K (greedy text), prose (rolling). Printed and held:

1. `lm_eval run --model local-completions` against our server, unmodified, and `--model hf` on the same weights: every metric.
2. The log-likelihood of every continuation, lm-eval's over HTTP, its own back-end's, our runner's, against one plain
   transformers forward a row: the largest difference, at most 1e-3 nats.
3. Items a CPU second and a second: our runner, lm-eval over HTTP (client and server together), lm-eval's own back-end. Each
   side is warmed, so that nothing compiles, with texts of the same lengths that begin otherwise, so that nothing is cached.

`--parts` and `--keep FOLDER` run them one by one: only the last needs a machine to itself.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval_tasks import write_tasks
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from lineage.artifact.store import Artifact, open_folder
from trainer.checkpoint import read_model_config
from trainer.hf.convert import hf_config, to_hf
from trainer.scoring import load_scorer

MOST_NATS = 1e-3
PARTS = ("tasks", "nats", "rates")
SIDES = ("ours", "http", "hf")
WARM = "\n"
"""Before every context of the warming call (`lm_eval_peer.py` has the same)."""
PEER = Path(__file__).with_name("lm_eval_peer.py")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}


@dataclass(frozen=True)
class Side:
    """What one runner found: nats by request, what it took for them, and its metrics by task where it runs tasks."""

    nats: np.ndarray
    cpu: float
    wall: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a checkpoint artifact that brings its tokenizer")
    parser.add_argument("--peer", required=True, help="Python of an environment with lm-eval, torch and transformers")
    parser.add_argument("--limit", type=int, default=24, help="items a task")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, the sides alternating")
    parser.add_argument("--timed", type=int, default=48, help="log-likelihoods of a timed round")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which of the three to run")
    parser.add_argument("--keep", type=Path, help="a folder for what `tasks` leaves to the other parts")
    options = parser.parse_args()
    if options.keep is None and "tasks" not in options.parts:
        parser.error("--parts without tasks needs the --keep folder that a run of tasks has filled")
    with tempfile.TemporaryDirectory(prefix="lm-eval-parity-") as scratch:
        held = run_parts(options, options.keep or Path(scratch))
    sys.exit(0 if held else 1)


def run_parts(options: argparse.Namespace, folder: Path) -> bool:
    """Run the chosen parts, and say whether what they hold to was so."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, held = open_folder(options.folder), True
    hf = folder / "hf"
    with serving(options.folder) as (address, server):

        def side_of(part: str, pairs: list[tuple[str, str]]) -> Side:
            if part == "ours":
                return our_runner(checkpoint, pairs)
            return peer(options.peer, part, folder, pairs, hf, address, server)

        if "tasks" in options.parts:
            tasks = folder / "tasks" if hf.exists() else write_tasks(folder / "tasks", options.limit)
            hf = hf if hf.exists() else write_hf(checkpoint, hf)
            over_http = f"model=m,base_url={address}/v1/completions,tokenizer_backend=remote,num_concurrent=8,max_length=2048"
            theirs = run_tasks(options.peer, "hf", f"pretrained={hf},dtype=float32", tasks, folder / "own")
            ours = run_tasks(options.peer, "local-completions", over_http, tasks, folder / "http")
            held &= compare_tasks(ours, theirs)
        pairs = pairs_of(folder / "own")
        if "nats" in options.parts:
            reference = side_of("reference", pairs).nats
            held &= compare_nats({side: side_of(side, pairs).nats for side in SIDES}, reference)
        if "rates" in options.parts:
            chosen = whole_items(pairs, options.timed)
            rounds = [{side: side_of(side, chosen) for side in SIDES} for _ in range(options.rounds)]
            show_rates({side: [each[side] for each in rounds] for side in SIDES}, len(chosen))
    return held


def write_hf(checkpoint: Artifact, folder: Path) -> Path:
    """The checkpoint as transformers reads it, its document end as both the first and the last token."""
    folder.mkdir()
    config, end = read_model_config(checkpoint), int(checkpoint.manifest.extra["tokenizer"]["eos"])
    save_file(
        to_hf(load_file(checkpoint.files("model.safetensors")[0]), config), folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "config.json").write_text(json.dumps(hf_config(config, (end,), end)))
    source = checkpoint.files("tokenizer.json")[0]
    (folder / "tokenizer.json").write_bytes(source.read_bytes())
    token = Tokenizer.from_file(str(source)).id_to_token(end)
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": token, "eos_token": token}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts | {"clean_up_tokenization_spaces": False}))
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The real server on a free port: its address and process id."""
    command = [sys.executable, "-m", "serving.server", str(folder), "--port", "0", "--name", "m"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield (
                next(address[0] for line in server.stderr if (address := re.search(r"http://127\.0\.0\.1:\d+", line))),
                server.pid,
            )
        finally:
            server.terminate()


def run_tasks(peer: str, model: str, arguments: str, tasks: Path, out: Path) -> dict[str, Any]:
    """lm-eval's own command on our tasks: its results file, of an earlier run where `out` has one. Its samples lie in `out`."""
    if done := next(out.rglob("results_*.json"), None):
        print(f"lm_eval run --model {model}: as it ran before")
        return json.loads(done.read_text())["results"]
    names = sorted(path.stem for path in tasks.glob("*.yaml"))
    command = [str(Path(peer).with_name("lm_eval")), "run", "--model", model, "--model_args", arguments]
    command += ["--tasks", ",".join(names), "--include_path", str(tasks), "--output_path", str(out), "--log_samples"]
    command += ["--batch_size", "1"] if model == "local-completions" else ["--batch_size", "16", "--device", "cpu"]
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-4000:]}")
    print(f"lm_eval run --model {model}: {time.perf_counter() - start:.0f} s, start included", flush=True)
    return json.loads(next(out.rglob("results_*.json")).read_text())["results"]


def compare_tasks(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Every metric of every task, side by side; perplexities by their logarithms, sums of float32 that may differ at 1e-5."""
    equal = True
    for task, metrics in sorted(theirs.items()):
        for name, value in sorted(metrics.items()):
            if not isinstance(value, float) or "stderr" in name:
                continue
            one, other = np.log([ours[task][name], value]) if "perplexity" in name else (ours[task][name], value)
            same = bool(abs(one - other) <= 1e-5 * max(1.0, abs(other)))
            equal &= same
            outcome = "equal" if same else "DIFFERENT"
            print(f"{task:<18} {name:<22} over HTTP {ours[task][name]:<12.8g} hf {value:<12.8g} {outcome}", flush=True)
    return equal


def pairs_of(samples: Path) -> list[tuple[str, str]]:
    """Context and continuation of every log-likelihood that the tasks asked for."""
    pairs: list[tuple[str, str]] = []
    for path in sorted(samples.rglob("samples_*.jsonl")):
        for line in path.read_text().splitlines():
            arguments = json.loads(line)["arguments"].values()
            text_pairs = [(one["arg_0"], one["arg_1"]) for one in arguments if isinstance(one.get("arg_1"), str)]
            pairs += text_pairs
    return pairs


def whole_items(pairs: list[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """About so many of them, spread over the tasks, with all choices of an item, which share its context."""
    items = [list(group) for _, group in groupby(pairs, key=lambda pair: pair[0])]
    return list(chain(*items[:: max(1, len(pairs) // number)]))


def peer(python: str, part: str, folder: Path, pairs: list[tuple[str, str]], hf: Path, address: str, server: int) -> Side:
    """One part of `lm_eval_peer.py`. The server's CPU seconds are counted to the part that asks it."""
    (folder / "pairs.json").write_text(json.dumps(pairs))
    command = [python, str(PEER), part, str(folder / "pairs.json"), str(hf), address, str(server), str(folder / "found.json")]
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-4000:]}")
    record = json.loads((folder / "found.json").read_text())
    return Side(np.array(record["nats"]), record["cpu"], record["wall"])


def our_runner(checkpoint: Artifact, pairs: list[tuple[str, str]]) -> Side:
    """What `evals.tasks.scorer` does, on tokens split as lm-eval splits them, in this process; compiled before it is timed."""
    scorer = load_scorer(checkpoint)
    tokenizer = Tokenizer.from_file(str(checkpoint.files("tokenizer.json")[0]))

    def score(before: str = "") -> np.ndarray:
        contexts = [before + context for context, _ in pairs]
        heads = tokenizer.encode_batch_fast(contexts, add_special_tokens=False)
        whole_texts = [context + ending for context, (_, ending) in zip(contexts, pairs, strict=True)]
        wholes = tokenizer.encode_batch_fast(whole_texts, add_special_tokens=False)
        sequences = [np.asarray(whole.ids, np.int32) for whole in wholes]
        tails = [len(whole.ids) - len(head.ids) for whole, head in zip(wholes, heads, strict=True)]
        return np.array([nll.sum(dtype=np.float64) for nll in scorer.tail_nll(sequences, tails)])

    score(WARM)
    cpu, wall = time.process_time(), time.perf_counter()
    return Side(score(), time.process_time() - cpu, time.perf_counter() - wall)


def compare_nats(nats_by_side: Mapping[str, np.ndarray], reference: np.ndarray) -> bool:
    close = True
    for name, nats in nats_by_side.items():
        off = float(np.abs(nats - reference).max())
        close &= off <= MOST_NATS
        print(f"{name}: {len(reference)} log-likelihoods, largest difference from a plain forward {off:.2e} nats", flush=True)
    return close


def show_rates(rounds: Mapping[str, list[Side]], number: int) -> None:
    for name, sides in rounds.items():
        cpu, wall = sorted(number / side.cpu for side in sides), sorted(number / side.wall for side in sides)
        spread = f"{cpu[0]:.2f} to {cpu[-1]:.2f}"
        print(f"{name}: {np.median(cpu):.2f} items a CPU second ({spread}), {np.median(wall):.2f} a second")
    for other in ("http", "hf"):
        ratios = [b.cpu / a.cpu for a, b in zip(rounds["ours"], rounds[other], strict=True)]
        walls = [b.wall / a.wall for a, b in zip(rounds["ours"], rounds[other], strict=True)]
        print(f"ours against {other}: {np.median(ratios):.2f} times by CPU seconds, {np.median(walls):.2f} by the clock")


if __name__ == "__main__":
    main()
