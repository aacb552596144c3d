"""The code of the pages on environments, rewards and adapters in docs/recipes runs, and does what the pages say."""

import re
from pathlib import Path
from typing import Any

import pytest

from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from marin_assets.runs import run_templates
from post_training.environments.table import read_prompts
from post_training.environments.verify import verify

PAGES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


def run_page(name: str) -> dict[str, Any]:
    """Run the Python blocks of a page, one after another, as one module."""
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": __name__}  # a stage is fingerprinted by the file of its module
    exec(compile("\n".join(blocks), name, "exec"), names)
    return names


def test_the_environment_of_the_page_is_built_and_judged(tmp_path: Path) -> None:
    page = run_page("add_an_environment.md")
    words = tuple(f"word{number}" for number in range(40))
    node = Node(("environments", "reversal"), None, page["REVERSAL"], page["Reversal"](words))
    made = build(Store(str(tmp_path)), node).artifact
    train, held = (read_prompts(made, split) for split in ("train", "held_out"))
    assert len(train) + len(held) == 40 and held
    right = verify(page["judge"], train, [prompt.text.split()[0][::-1] for prompt in train])
    assert {verdict.outcome for verdict in right} == {"right"}
    assert {verdict.outcome for verdict in verify(page["judge"], train, ["x"] * len(train))} == {"wrong"}
    with pytest.raises(ValueError, match="held_out_share is 1"):
        page["Reversal"](words, 1)


def test_the_run_of_the_page_is_a_run_from_its_base() -> None:
    page = run_page("train_with_rewards.md")
    assert [run.name for run in page["sums"].history] == ["addition_base", "sums"]


def test_the_run_of_the_page_trains_an_adapter_and_exports_it() -> None:
    run = run_page("train_an_adapter.md")["run"]
    keys = [template.example.key for template in run_templates(run)]
    assert ("runs", "addition_dpo_lora", "hf_adapter") in keys
