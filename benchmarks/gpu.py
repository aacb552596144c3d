"""Everything about training that only a GPU can show, checked and timed by one command in under 10 minutes (6 on an H200).

    PYTHONPATH=. python benchmarks/gpu.py [--out FOLDER] [--only attention,llama_50m] [--tiny]

Parts, each a separate process with a time limit, so that one which fails or hangs costs the others nothing:

Three check, and run at once:

- numbers: five float32 steps of a dense and a mixed model, against the same on the CPU.
- attention: every back-end that the machine has, values and gradients against the formula in float32, and how long they take.
- resume: a run killed at a step and inside a save and started again ends with the bytes of one that was left alone.

Seven measure, one after another:

- machine: what is there; bfloat16 and float32 products of large matrices, copies.
- llama_50m: d 192, 4 layers, rows of 1,024, batch 128, vocabulary 128,256 (Levanter's speedrun: 848 k tokens/s on one H200).
- dense_1b: d 2,048, 24 layers, 1.5 thousand million parameters; the bar is 50 % MFU, causal.
- float8: the same with float8 products of activations with weights.
- moe_256m: d 768, 8 layers, 8 experts of which a token meets 2, 250 million parameters.
- experts: the grouped products against the plain form, and their rates against a dense one (bar .6).
- serving: tokens/s of the server's engine, prompts and 16 rows.

`--tiny` takes shapes that a CPU does in a minute: to see that the script is whole, not to measure. Bars are printed with what
was reached. Results go to `FOLDER/gpu.json` too. Deterministic XLA (`--xla_gpu_deterministic_ops`) is set in `resume` alone.
Needs Python 3.12, jax 0.11 and the machine's plugin, and of our packages aqtp, equinox, fsspec, jaxtyping, marin-haliax, optax,
polars, pyarrow, safetensors, rich (where a machine has no registry: wheels, by `pip download --no-deps` at our pins).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKS = {"numbers": 150, "resume": 150, "attention": 240}
"""Parts that time nothing but themselves, which run at once, and the seconds that each may take."""
TIMED = {
    "machine": 20, "llama_50m": 50, "dense_1b": 60, "float8": 60, "moe_256m": 60, "experts": 60, "serving": 50,
}  # fmt: skip
"""Parts that run alone: 360 seconds, so 600 in all at worst."""
PARTS = CHECKS | TIMED
TINY_SECONDS = 600
"""The same for a rehearsal, which must not fail on a loaded machine."""
ROOT = Path(__file__).resolve().parents[1]
MODEL_PARTS = ("numbers", "experts", "serving")
DETERMINISTIC = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies the seconds that each part may take")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(f"--only names {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    began = time.monotonic()
    with ThreadPoolExecutor(len(CHECKS)) as pool:
        checks = [part for part in chosen if part in CHECKS]
        results = dict(zip(checks, pool.map(lambda part: run(part, options, shared=True), checks), strict=True))
    options.out.mkdir(parents=True, exist_ok=True)
    for part in (part for part in chosen if part in TIMED):
        results[part] = run(part, options, shared=False)
        (options.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    failed = [part for part, result in results.items() if "failed" in result]
    print(f"\n{time.monotonic() - began:.0f} s in all; {f'FAILED: {", ".join(failed)}' if failed else 'every part ended'}")
    raise SystemExit(bool(failed))


def run(part: str, options: argparse.Namespace, *, shared: bool) -> dict:
    """One part in its process: what it found, or why it found nothing. `shared`: other parts use the device too."""
    script = [str(Path(__file__).with_name("gpu_resume.py" if part == "resume" else "gpu_parts.py"))]
    if part in MODEL_PARTS:  # as a module, because `serving.py` beside it would hide the package
        script = ["-m", "benchmarks.gpu_model_parts"]
    limit = TINY_SECONDS if options.tiny else options.patience * PARTS[part]
    command = [sys.executable, *script, part, *(["--tiny"] if options.tiny else [])]
    memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if shared else {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"}
    deterministic = DETERMINISTIC if part == "resume" and not options.tiny else {}
    environment = {**os.environ, **memory, **deterministic, "PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=limit, cwd=ROOT)
    except subprocess.TimeoutExpired as late:
        lines = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        print(f"\n== {part}\n{lines}\n{part} is not done after {limit} s", flush=True)
        return {"failed": f"not done after {limit} s"}
    *lines, last = done.stdout.splitlines() or [""]
    print("\n".join([f"\n== {part}", *lines]), flush=True)
    if done.returncode:
        print(f"{last}\n{part} ended with status {done.returncode}; its error is above", flush=True)
        return {"failed": f"status {done.returncode}"}
    return {**json.loads(last), "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    main()
