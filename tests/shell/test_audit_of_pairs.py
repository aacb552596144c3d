"""A run on preference pairs, trained and audited from the command line: which pair held an item, and which steps read it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from small import repository
from tokenizers import Tokenizer

from lineage.artifact.store import Artifact, Store
from lineage.order.order import DataOrder
from recipes.own_recipes import FOLDER_VARIABLE

pytestmark = pytest.mark.slow

PAIRS, SIDE_TOKENS, BATCH, STEPS = 60, 256, 8, 16
"""As `leaked_pairs.py` says."""
LEAKS = {17: "prompt", 31: "chosen", 48: "rejected"}
"""Where the pair of a number holds the item of that place among the shortest."""


@dataclass(frozen=True)
class Audited:
    """A lab in which the run was trained and audited."""

    folder: Path
    items: dict[int, str]
    """Item by the number of its pair."""
    prompts: dict[int, str]

    def marin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {"MARIN_ROOT": str(self.folder / "root"), "DAGSTER_HOME": str(self.folder), "COLUMNS": "120"}
        own[FOLDER_VARIABLE] = str(self.folder / "own")
        command = [sys.executable, "-m", "marin_assets.cli", *arguments]
        return subprocess.run(command, env=os.environ | own, cwd=repository(), capture_output=True, text=True, check=False)

    @property
    def checkpoint(self) -> Artifact:
        (found,) = Store(str(self.folder / "root/artifacts")).artifacts("runs", "leaked_dpo", "checkpoint")
        return found


def write_lab(folder: Path) -> Audited:
    """Write pairs of sums, three of which hold an item, and the recipe file."""
    lines = (repository() / "data/eval_items/gsm8k.jsonl").read_text().splitlines()
    shortest = sorted(map(json.loads, lines), key=lambda item: len(item["question"]))
    leaked = dict(zip(LEAKS, shortest, strict=False))
    rows = []
    for number in range(PAIRS):
        row = {"id": f"pair-{number}", "prompt": f"{number}+40=", "chosen": f"{number + 40:03d}", "rejected": f"{number:03d}"}
        if number in leaked:
            row[LEAKS[number]] = leaked[number]["question"]
        rows.append(json.dumps(row) + "\n")
    own = folder / "own"
    (own / "pairs").mkdir(parents=True)
    (own / "pairs/pairs.jsonl").write_text("".join(rows))
    shutil.copy(Path(__file__).with_name("leaked_pairs.py"), own)
    shutil.copy(repository() / "dagster.yaml", folder)
    items = {number: item["item_id"] for number, item in leaked.items()}
    return Audited(folder, items, {number: json.loads(rows[number])["prompt"] for number in leaked})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    lab = write_lab(tmp_path_factory.mktemp("pairs"))
    for command in (("runs/leaked_dpo/training",), ("runs/leaked_dpo/contamination_audit", "--partition", f"step-{STEPS:08d}")):
        made = lab.marin("materialize", *command)
        assert made.returncode == 0, made.stdout + made.stderr
    return lab


def steps_of(lab: Audited, number: int) -> list[int]:
    """Steps whose batch holds the pair's prompt, by reading every batch forward."""
    mixture = lab.checkpoint.input("mixture")
    cache = mixture.input("caches.0")
    words = Tokenizer.from_file(str(cache.input("tokenizer").file("tokenizer.json")))
    order = DataOrder.open(mixture, 2 * SIDE_TOKENS)
    read = [[words.decode(row) for row in order.batch(step * BATCH, BATCH).tolist()] for step in range(STEPS)]
    return [step for step, texts in enumerate(read) if any(lab.prompts[number] in text for text in texts)]


def test_the_audit_names_pair_part_and_step(audited: Audited) -> None:
    shown = audited.marin("audit", "runs/leaked_dpo/checkpoint", "--json")
    assert shown.returncode == 1, "a step has read a whole item"
    report = json.loads(shown.stdout)
    found = {(read["item_id"], read["pair"], *read["sides"]) for read in report["pairs"]["reads"]}
    assert found == {(item, f"pair-{number}", LEAKS[number]) for number, item in audited.items.items()}
    page = audited.marin("audit", "runs/leaked_dpo/checkpoint").stdout
    assert "Preference pairs that hold items" in page and all(f"pair-{number}" in page for number in LEAKS)


@pytest.mark.parametrize("number", LEAKS)
def test_exposure_names_every_step_that_read_the_pair(audited: Audited, number: int) -> None:
    item = f"gsm8k/{audited.items[number]}"
    shown = audited.marin("exposure", "runs/leaked_dpo/checkpoint", "--item", item, "--json")
    assert shown.returncode == 0, shown.stderr
    reads = [read["step"] for read in json.loads(shown.stdout)["reads"] if read["leg"] == 1]
    assert reads == steps_of(audited, number) and reads, "the run has read every pair"
