"""Held-out text scored during a run: bits per byte by tag, both weight sets, the run unchanged."""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_models import quick_model
from tiny_run import ROOT, RUN, job_of

from lineage.jobs.job import job_folder
from trainer.running import Running
from trainer.scoring import Scorer, load_scorer
from trainer.spec.optimizers import EmaConfig
from trainer.tagged import TaggedText, bits_per_byte, leaf_tags, read_evaluation
from trainer.trackers import attempts_of
from trainer.train import train

RANDOM = np.random.default_rng(0)
TEXTS = tuple(
    TaggedText(tags, RANDOM.integers(0, 50, length).astype(np.int32), size)
    for tags, length, size in [(("web/wiki",), 40, 90), (("web/forum", "short"), 5, 11), (("code",), 17, 30), (("web",), 16, 7)]
)


def line_of(text: TaggedText) -> str:
    return json.dumps({"tags": text.tags, "tokens": text.tokens.tolist(), "bytes": text.num_bytes}) + "\n"


def test_a_tag_is_its_bits_over_its_bytes() -> None:
    """Beside the logits themselves: a text's windows of 16 tokens are each opened by the last token of the one before."""
    model = quick_model(RUN.model)
    by_tag = bits_per_byte(Scorer(model, 16, 50, 0), TEXTS)
    logits = jax.jit(lambda tokens: model(tokens))

    def bits(text: TaggedText) -> float:
        total = 0.0
        for at in range(0, len(text.tokens) - 1, 15):
            window = text.tokens[at : at + 16]
            padded = np.pad(window, (0, 16 - window.size))[None]
            chances = jax.nn.log_softmax(logits(padded)[0])
            total -= sum(float(chances[place, token]) for place, token in enumerate(window[1:])) / math.log(2)
        return total

    of_tag = {"": TEXTS, "web": (TEXTS[0], TEXTS[1], TEXTS[3]), "web/wiki": TEXTS[:1], "web/forum": TEXTS[1:2],
              "short": TEXTS[1:2], "code": TEXTS[2:3]}  # fmt: skip
    assert by_tag.keys() == of_tag.keys()
    for tag, texts in of_tag.items():
        assert by_tag[tag] == pytest.approx(sum(map(bits, texts)) / sum(text.num_bytes for text in texts), rel=1e-5)
    assert leaf_tags(TEXTS) == ["code", "short", "web/forum", "web/wiki"]


def test_a_run_tells_raw_and_averaged_weights_and_stays_the_same(tmp_path: Path) -> None:
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text("".join(map(line_of, TEXTS)))
    run = replace(RUN, num_steps=12, ema=EmaConfig(beta=0.8))
    plain = train(job_of(tmp_path / "plain", run))
    job = job_of(tmp_path / "told", run)
    made = train(job, Running(evaluation=f"{heldout}@5"))
    assert made.data_version == plain.data_version
    by_step = {line["step"]: line for line in attempts_of(job_folder(job) / "metrics.jsonl") if "eval/bpb" in line}
    assert sorted(by_step) == [5, 10, 12]
    for weights, prefix in (("raw", "eval"), ("ema", "eval/ema")):
        wanted = bits_per_byte(load_scorer(made, weights), TEXTS)
        for tag, value in wanted.items():
            assert by_step[12][f"{prefix}/bpb{'/' if tag else ''}{tag}"] == pytest.approx(value, rel=1e-6)
        macro = np.mean([wanted[tag] for tag in leaf_tags(TEXTS)])
        assert by_step[12][f"{prefix}/macro_bpb"] == pytest.approx(macro, rel=1e-6)
    assert by_step[12]["eval/bpb"] != by_step[12]["eval/ema/bpb"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"tags": ["a"], "tokens": [1, 2]}, "line 2 is ['tags', 'tokens']; it must be the fields bytes, tags, tokens"),
        (
            {"tags": ["a"], "tokens": [1, 50], "bytes": 3},
            "line 2, tokens is '[1, 50]'; it must be two or more integers in 0..49",
        ),
        ({"tags": ["a"], "tokens": [1], "bytes": 3}, "line 2, tokens is '[1]'"),
        ({"tags": ["a/"], "tokens": [1, 2], "bytes": 3}, "line 2, tags is ['a/']"),
        ({"tags": [], "tokens": [1, 2], "bytes": 3}, "line 2, tags is []"),
        ({"tags": ["a"], "tokens": [1, 2], "bytes": 0}, "line 2, bytes is 0; it must be positive"),
    ],
)
def test_an_odd_text_is_named(line: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(line_of(TEXTS[0]) + json.dumps(line) + "\n")
    with pytest.raises(ValueError) as error:
        read_evaluation(f"{path}@10", 50)
    assert message in str(error.value)


@pytest.mark.parametrize("line", ['{"tags": ["a"], "tokens": [1,', "7"])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(line_of(TEXTS[0]) + line + "\n")
    with pytest.raises(ValueError, match=rf"^MARIN_EVAL: {re.escape(str(path))}, line 2 is .*; it must be a JSON object"):
        read_evaluation(f"{path}@10", 50)


def test_a_file_that_is_not_there_is_named_with_the_variable(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"^MARIN_EVAL is '.*no.jsonl@10'; it must be FILE@STEPS with a file that the job can read: .*No such file",
    ):
        read_evaluation(f"{tmp_path / 'no.jsonl'}@10", 50)


@pytest.mark.parametrize("setting", ["texts.jsonl", "texts.jsonl@", "texts.jsonl@0", "@5x"])
def test_an_odd_setting_is_named(setting: str) -> None:
    with pytest.raises(ValueError, match=r"MARIN_EVAL is .* it must be FILE@STEPS"):
        read_evaluation(setting, 50)


ON_A_MESH = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job
from trainer.spec.mesh import MeshShape
from trainer.running import Running
from trainer.train import train
train(read_job(Path(sys.argv[1])), Running(mesh=MeshShape.parse(sys.argv[2]), evaluation=sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["data=2,tensor=2", "data=1,tensor=2"])
def test_several_devices_tell_what_one_does(tmp_path: Path, mesh: str) -> None:
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text("".join(map(line_of, TEXTS)))
    job = job_of(tmp_path / "run", replace(RUN, num_steps=6, ema=EmaConfig(beta=0.8)))
    devices = math.prod(int(part[-1]) for part in mesh.split(","))
    environment = {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    command = [sys.executable, "-c", ON_A_MESH, str(tmp_path / "run" / "job.json"), mesh, f"{heldout}@3"]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    made = job.store.find(job.spec)
    assert made is not None, ran.stderr
    by_step = {line["step"]: line for line in attempts_of(job_folder(job) / "metrics.jsonl") if "eval/bpb" in line}
    assert sorted(by_step) == [3, 6]
    for weights, prefix in (("raw", "eval"), ("ema", "eval/ema")):
        for tag, value in bits_per_byte(load_scorer(made, weights), TEXTS).items():
            assert by_step[6][f"{prefix}/bpb{'/' if tag else ''}{tag}"] == pytest.approx(value, rel=1e-5)
