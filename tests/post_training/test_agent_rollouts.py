"""A set whose teacher is an agent: questions about a real package, trajectories as rows, and conversations as a source."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from chat_stub import chatting
from small_rewards import store_at
from small_synthetic import built

from datakit.sources.raw import RAW, repository_listing
from datakit.sources.source import RepositoryFiles, Source
from lineage.build.nodes import Node, resolve
from post_training.agents.protocol import MARKER
from post_training.environments.repository import REPOSITORY, Repository
from post_training.environments.table import read_prompts
from post_training.synthetic.accepted import SYNTHETIC_ACCEPTED
from post_training.synthetic.rollouts import ROLLOUTS_FILE, SYNTHETIC_ROLLOUTS
from post_training.synthetic.spec import AcceptConfig, ShardConfig, Teacher, shard_partition

GLOBS = ("datakit/text/*.py",)


def reader(messages: list[dict]) -> str:
    """Looks for the name, then submits the file that the shell printed; gives up on names with a p."""
    (name,) = re.findall(r"is `(\w+)` defined", messages[1]["content"])
    if len(messages) == 2:
        return f'THOUGHT: search.\n\n```bash\ngrep -rnE "^(def|class) {name}\\b" .\n```'
    found = re.search(r"^\./(\S+\.py):", messages[-1]["content"], re.MULTILINE)
    answer = found[1] if found and "p" not in name else "nowhere.py"
    return f"THOUGHT: found {name}.\n\n```bash\necho {MARKER}\n{answer}\n```"


def nodes(url: str) -> Node:
    source = Source(
        name="engine", loader=RepositoryFiles(GLOBS, repository_listing(GLOBS)), format="python", domain="code",
        licence="Apache-2.0", terms="made by this repository", mixture_weight=1.0,
    )  # fmt: skip
    raw = Node(("datakit", "raw"), "engine", RAW, source)
    environment = Node(("environments", "engine"), None, REPOSITORY, Repository(10, 0.3), {"raw": raw})
    config = ShardConfig("reading", Teacher("stub", url, "agent"), samples=1, max_tokens=2_000, max_turns=4, concurrency=2)
    shard = Node(
        ("synthetic", "reading", "rollouts"), shard_partition(0), SYNTHETIC_ROLLOUTS, config, {"environment": environment}
    )
    inputs = {"environment": environment, "rollouts": (shard,)}
    return Node(("synthetic", "reading", "accepted"), None, SYNTHETIC_ACCEPTED, AcceptConfig(), inputs)


def test_an_agents_trajectories_become_conversations_of_a_source(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with chatting(reader) as stub:
        last = nodes(stub.url)
        accepted = built(store, last)
    prompts = read_prompts(resolve(store, last.inputs["environment"]), "train")  # type: ignore[arg-type]
    shard = pl.read_parquet(accepted.input("rollouts.0").file(ROLLOUTS_FILE))
    assert len(shard) == len(prompts) > 3 and shard["tokens"].sum() == 0  # the stub counts none
    lines = [json.loads(line) for line in accepted.file("files/accepted.jsonl").read_text().splitlines()]
    right = [prompt for prompt in prompts if "p" not in prompt.prompt_id]
    assert sorted(line["prompt_id"] for line in lines) == sorted(prompt.prompt_id for prompt in right) and right
    for line in lines:
        assert [message["role"] for message in line["messages"]] == ["system", "user", "assistant", "user", "assistant"]
        assert line["prompt_id"] in line["messages"][3]["content"]
    dropped = pl.read_parquet(accepted.file("dropped.parquet"))
    assert set(dropped["reason"]) <= {"wrong"} and len(dropped) == len(prompts) - len(right)


def test_a_repository_without_questions_is_refused() -> None:
    with pytest.raises(ValueError, match="most_questions is 1"):
        Repository(1)
