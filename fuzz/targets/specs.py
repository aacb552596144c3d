"""What a person or a launcher writes for a run: a spec file and a job file, opened as `python -m trainer` opens them."""

import json
from pathlib import Path

from fuzz.run import Target
from lineage.config import from_jsonable, to_jsonable
from lineage.trust.gate import GateError
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec_file import open_job


def target() -> Target:
    return Target("specs", _seeds(), _attempt, (OSError, GateError))


def _seeds() -> list[bytes]:
    model = LlamaConfig(
        vocab_size=64, hidden_dim=32, intermediate_dim=48, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=16
    )
    schedule = WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=2, decay_frac=0.5)
    run = RunSpec("tiny", model, AdamWConfig(), schedule, batch_size=4, seq_len=16, num_steps=40, seed=0)
    file = {"root": "FOLDER", "mixture": "mixture/default", "run": to_jsonable(run)}
    job = {
        "job": 2, "store": {"root": "FOLDER", "scratch_folder": None}, "execution": {"workers": 1, "limits": {}},
        "key": ["runs", "tiny", "checkpoint"], "partition": "step-40", "stage": "trainer.checkpoint", "stage_version": "8",
        "config": {"run": to_jsonable(run)}, "inputs": [], "tuples": [], "code_fingerprint": "x", "run_id": "y", "gate": None,
        "waivers": [], "packages": [],
    }  # fmt: skip
    return [json.dumps(each).encode() for each in (file, job, to_jsonable(run))]


def _attempt(data: bytes, folder: Path) -> None:
    path = folder / "spec.json"
    path.write_bytes(data.replace(b"FOLDER", str(folder).encode()))
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and "model" in record:
        from_jsonable(RunSpec, record, where="spec.json")
        return
    if isinstance(record, dict) and isinstance(record.get("root"), str) and Path(record["root"]).is_dir():
        path.write_text(json.dumps(record | {"root": str(folder)}))  # `/` is a root too, and listing it takes minutes
    open_job(path)
