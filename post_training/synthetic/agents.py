"""Completions of a teacher that works as an agent: a trajectory for each prompt and sample, as rows of a synthetic set."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from post_training.agents.loop import AgentConfig, Trajectory, chat_model, run_agent
from post_training.environments.prompt import Prompt
from post_training.synthetic.spec import SynthesisConfig
from post_training.synthetic.teacher import SCHEMA, one_version, rollout_id, seed_of


def agent_rows(config: SynthesisConfig, prompts: Sequence[Prompt], version: str, folder: Path) -> pl.DataFrame:
    """Return `samples` rows for each prompt, in order; the text is the submitted answer, empty without one.

    Raises: ValueError if an answer is of another version of the teacher; what `requests` raises if the server goes away.
    """
    samples = [(prompt, sample) for prompt in prompts for sample in range(config.samples)]
    with ThreadPoolExecutor(config.concurrency) as pool:
        trajectories = list(pool.map(lambda each: _trajectory(config, each[0], each[1], folder), samples))
    one_version(config.name, version, (each.version for each in trajectories if each.version or not each.detail))
    rows = [_row(config, prompt, sample, each) for (prompt, sample), each in zip(samples, trajectories, strict=True)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _trajectory(config: SynthesisConfig, prompt: Prompt, sample: int, folder: Path) -> Trajectory:
    caps = AgentConfig(
        config.teacher.model,
        config.max_turns,
        config.max_tokens,
        temperature=config.temperature,
        seed=seed_of(config, prompt, sample),
    )
    ask = chat_model(config.teacher.url, caps, timeout=config.patience_seconds)
    return run_agent(ask, rollout_id(prompt, sample), prompt.text, folder, caps)


def _row(config: SynthesisConfig, prompt: Prompt, sample: int, trajectory: Trajectory) -> dict:
    return {
        "rollout": trajectory.task,
        "prompt_id": prompt.prompt_id,
        "sample": sample,
        "seed": seed_of(config, prompt, sample),
        "text": trajectory.answer or "",
        "finish_reason": "stop" if trajectory.end == "submitted" else "length" if trajectory.end in ("turns", "tokens") else "",
        "tokens": trajectory.tokens,
        "teacher_model": config.teacher.model,
        "teacher_version": trajectory.version,
        "fault": trajectory.detail if trajectory.end == "refused" else "",
        "messages": json.dumps(trajectory.messages, ensure_ascii=False),
    }
