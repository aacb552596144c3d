"""`marin export` of a run that no recipe declares: its only declaration is the spec file that it was trained from."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from small import repository
from small_runs import small_spec

from lineage.config import to_jsonable
from lineage.private_files import KEY_FOLDER
from trainer.hf.folder import is_hf_folder


def run(arguments: list[str], environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "marin_assets.cli", *arguments]
    done = subprocess.run(command, env=environment, cwd=repository(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_of_a_spec_file_alone_is_trained_and_exported_in_both_forms(own_day: Path, tmp_path: Path) -> None:
    root = own_day / "lab/ttl-7d"
    spec = tmp_path / "spec.json"
    trained = replace(small_spec("by_hand"), num_steps=8, save_every_steps=None)
    spec.write_text(json.dumps({"root": str(root), "mixture": "ferry/mixture/small[2026-11-20]", "run": to_jsonable(trained)}))
    environment = os.environ | {"MARIN_ROOT": str(own_day / "lab"), "JAX_PLATFORMS": "cpu", KEY_FOLDER: str(own_day / "keys")}
    run(["train", str(spec)], environment)
    folder, gguf = tmp_path / "by_hand", tmp_path / "by_hand.gguf"
    answer = json.loads(run(["export", "by_hand", "--into", str(folder), "--json"], environment))
    assert answer["artifact"].startswith("runs/by_hand/hf_model[") and answer["problems"] == []
    assert is_hf_folder(folder) and (folder / "README.md").exists() and (folder / "provenance/attestation.json").exists()
    assert load_file(folder / "model.safetensors")["model.embed_tokens.weight"].shape == (1024, 32)
    run(["export", "by_hand@8", "--form", "gguf", "--into", str(gguf)], environment)
    assert gguf.read_bytes().startswith(b"GGUF")
    assert "is as" in run(["verify", "--attested", str(folder)], environment)
