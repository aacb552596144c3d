"""lm-eval's half of `lm_eval_parity.py`; runs in a separate environment, where nothing of ours is.

    PEER/bin/python benchmarks/lm_eval_peer.py PART PAIRS.json HF_FOLDER SERVER SERVER_PID OUT.json

PART: `http` (lm-eval's local-completions against SERVER), `hf` (its own back-end), `reference` (transformers, one plain forward
a pair, no padding, no cache). Writes the nats of every continuation, and what the requests alone took (of `http` the server's
CPU seconds too).
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model

CONTEXT = 2048
WARM = "\n"
"""Before every context of the warming call: the same lengths but for a token, and no beginning that a server could keep."""


def main() -> None:
    part, pairs_file, folder, server, pid, out = sys.argv[1:]
    pairs = [tuple(pair) for pair in json.loads(Path(pairs_file).read_text())]
    nats, cpu, wall = reference(pairs, folder) if part == "reference" else timed(part, folder, server, pid, pairs)
    Path(out).write_text(json.dumps({"nats": nats, "cpu": cpu, "wall": wall}))


def model_of(part: str, folder: str, server: str) -> LM:
    if part == "hf":
        return get_model("hf").create_from_arg_string(f"pretrained={folder},dtype=float32,device=cpu,batch_size=16")
    address = f"model=m,base_url={server}/v1/completions,tokenizer_backend=huggingface,tokenizer={folder}"
    return get_model("local-completions").create_from_arg_string(f"{address},num_concurrent=8,max_length={CONTEXT}")


def timed(part: str, folder: str, server: str, pid: str, pairs: list[tuple[str, str]]) -> tuple[list[float], float, float]:
    """Two calls: the first one warms (compilation, kernels' choices) with other texts as long, the second is timed."""
    model = model_of(part, folder, server)
    warm = [(WARM + context, continuation) for context, continuation in pairs]
    model.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(warm)], disable_tqdm=True)
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    cpu, wall = seconds(part, pid), time.perf_counter()
    answers = model.loglikelihood(requests, disable_tqdm=True)
    return [-nats for nats, _ in answers], seconds(part, pid) - cpu, time.perf_counter() - wall


def reference(pairs: list[tuple[str, str]], folder: str) -> tuple[list[float], float, float]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    cpu, wall, nats = seconds("reference", ""), time.perf_counter(), []
    for context, continuation in pairs:
        head = tokenizer(context, add_special_tokens=False)["input_ids"]
        whole = tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            log_probs = torch.log_softmax(model(torch.tensor([whole[:-1]])).logits[0].double(), -1)
        places = range(len(head), len(whole))
        nats.append(-sum(float(log_probs[place - 1, whole[place]]) for place in places))
    return nats, seconds("reference", "") - cpu, time.perf_counter() - wall


def seconds(part: str, server: str) -> float:
    """CPU seconds so far, of this process and, over HTTP, of the server."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split() if part == "http" else []
    server_seconds = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return spent.ru_utime + spent.ru_stime + server_seconds


if __name__ == "__main__":
    main()
