"""`marin init --lab FOLDER`: the files of a new lab's repository, which runs the wheel and holds recipes alone."""

import importlib.metadata
from pathlib import Path

from lineage.project import CODE, PREFIX

DISTRIBUTION = "marin-lab"
SCRIPT = "marin"

LAB = '''"""The lab: its text, its runs and its daily ferry. What you change gets new artifacts, what was made stays."""

from PREFIXdatakit.corpus.filters import CorpusConfig
from PREFIXdatakit.sources.source import Source
from PREFIXrecipes.ferry import Ferry
from PREFIXrecipes.pipeline import pipeline
from PREFIXrecipes.records.run import Evaluation, Run
from PREFIXrecipes.study import Study
from PREFIXrecipes.suites import Suite
from PREFIXtrainer.spec.config import RunSpec
from PREFIXtrainer.spec.llama import LlamaConfig
from PREFIXtrainer.spec.optimizers import AdamWConfig
from PREFIXtrainer.spec.schedules import WarmupStableDecay

SUITES = (Suite("vendored", "vendored"),)


def sources() -> tuple[Source, ...]:
    """Text of this lab's own, beside the sources that come with the wheel (`marin sources` lists both)."""
    return ()


def study() -> Study:
    return Study("What does a small model learn from the speeches that come with the wheel?", runs=(first,))


def ferry() -> Ferry:
    """What `marin ferry` makes every day. Both runs are equal: neither needs a package registry."""
    return Ferry(online=_run("smoke"), offline=_run("smoke"))


def first() -> Run:
    return _run("first")


def _run(name: str) -> Run:
    mix = pipeline(name, ("vendored_prose",), SUITES, vocab_size=1024, filters=CorpusConfig(heldout_frac=0.1))
    spec = RunSpec(
        name=name,
        model=LlamaConfig(
            vocab_size=mix.tokens.vocab_size,
            hidden_dim=64,
            intermediate_dim=176,
            num_layers=2,
            num_heads=2,
            num_kv_heads=2,
            max_seq_len=128,
        ),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=10, decay_frac=0.4),
        batch_size=8,
        seq_len=128,
        num_steps=100,
        seed=1,
        save_every_steps=50,
    )
    return Run(spec, mix, Evaluation(SUITES))
'''

WORKSPACE = """load_from:
  - python_module:
      module_name: PREFIXmarin_assets.definitions
      working_directory: .
      location_name: lab
"""

COMMAND = """#!/bin/sh
# The lab's command, as its messages write it: that of the lab's own environment, else the one on PATH.
own="$(dirname "$0")/.venv/bin/marin"
if [ -x "$own" ]; then exec "$own" "$@"; fi
exec marin "$@"
"""

README = """# A lab

`lab.py` declares its text, its runs and its daily ferry; everything else is the wheel in `requirements.txt`.

    python3.12 -m venv .venv && .venv/bin/pip install -r requirements.txt
    ./marin ferry    # text to a trained, evaluated and audited model, and a report
    ./marin ui       # the graph, runs and checks on http://127.0.0.1:3000

`./marin -h` lists what else there is. Artifacts are below `.marin/`; `MARIN_ROOT` chooses another folder or a bucket.
"""

CONTINUOUS = """name: lab
on: [push, pull_request]
jobs:
  ferry:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: pip install -r requirements.txt
      - run: marin ferry
"""


def lab_files() -> dict[str, str]:
    """Return the files of a new lab by name."""
    version = importlib.metadata.version(DISTRIBUTION) if PREFIX else "VERSION"
    return {
        "lab.py": LAB.replace("PREFIX", PREFIX),
        "dagster.yaml": (CODE / "dagster.yaml").read_text(),
        "workspace.yaml": WORKSPACE.replace("PREFIX", PREFIX),
        "requirements.txt": f"{DISTRIBUTION}=={version}\n",
        ".github/workflows/lab.yaml": CONTINUOUS,
        ".gitignore": "/.marin/\n/.venv/\n__pycache__/\n",
        "README.md": README,
        SCRIPT: COMMAND,
    }


def write_lab(folder: Path) -> list[Path]:
    """Write the files of a new lab. Raises: ValueError in a checkout, or if one of the files is there."""
    if not PREFIX:
        raise ValueError("--lab makes a lab that runs the wheel: build it with `make wheel`, install it, and call its `marin`")
    files = {folder / name: text for name, text in lab_files().items()}
    if there := [str(path) for path in files if path.exists()]:
        raise ValueError(f"{there[0]} is there already; give an empty folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / SCRIPT).chmod(0o755)
    return list(files)
