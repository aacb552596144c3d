"""Ask a teacher for the completions of some prompts, and read its answers as rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from evals.remote.model import model_card
from lineage.storage.digests import utf8_digest
from post_training.environments.prompt import Prompt
from post_training.synthetic.spec import SynthesisConfig, Teacher
from serving.answer_versions import named_version
from serving.broker.client import ItemRequest, Record, Recorded, ask_all

SCHEMA = {
    "rollout": pl.String,
    "prompt_id": pl.String,
    "sample": pl.Int64,
    "seed": pl.Int64,
    "text": pl.String,
    "finish_reason": pl.String,
    "tokens": pl.Int64,
    "teacher_model": pl.String,
    "teacher_version": pl.String,
    "fault": pl.String,
    "messages": pl.String,
}
"""A row for each completion. `rollout` is `<prompt id>#<sample>`. `teacher_version` is what the answer
names (`serving.answer_versions`); empty if it names nothing. `fault` is the server's refusal, and empty for a completion.
`messages` is an agent's conversation as JSON, and empty otherwise."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def served_version(teacher: Teacher, name: str, expected: str | None) -> str:
    """Return the version that the server reports for the teacher of the set `name`; empty if it reports none there.

    vLLM's card has none; what follows @ in the name under which it serves the model counts as one.
    `expected`: the data version of the checkpoint that should be served. Raises: ValueError if another one is served.
    """
    card = model_card(teacher.url, teacher.model, None)
    version = str(card.get("data_version") or named_version({"model": card["id"]}) or "")
    if expected is not None and version.partition("+")[0] != expected:
        raise ValueError(
            f"{teacher.url} serves {teacher.model!r} of data version {version or 'unknown'}; the teacher of {name} is "
            f"{expected}: serve that checkpoint (docs/recipes/serve_a_checkpoint.md)"
        )
    return version


def rows_of(config: SynthesisConfig, prompts: Sequence[Prompt], version: str) -> pl.DataFrame:
    """Return `samples` rows for each prompt, in order. Raises: ValueError if an answer is of another version of the teacher.

    If the server reported no version, the answers may name one, the same in all.
    """
    samples = [(prompt, sample) for prompt in prompts for sample in range(config.samples)]
    requests = [ItemRequest(rollout_id(prompt, sample), *_request(config, prompt, sample)) for prompt, sample in samples]
    how = {"concurrency": config.concurrency, "patience": config.patience_seconds}
    with TemporaryDirectory(prefix="synthetic-") as folder:
        answers = ask_all(config.teacher.url, requests, Record(Path(folder) / "answers.jsonl"), **how)
    rows = [_row(config, prompt, sample, answers[rollout_id(prompt, sample)]) for prompt, sample in samples]
    one_version(config.name, version, (row["teacher_version"] for row in rows if not row["fault"]))
    return pl.DataFrame(rows, schema=SCHEMA)


def one_version(name: str, version: str, answered: Iterable[str]) -> str:
    """Return the version of a teacher: what it reported, else what all answers name; empty if both are unknown.

    Raises: ValueError if answers name another version, or several.
    """
    versions = sorted({version, *answered} if version else set(answered))
    if len(versions) > 1:
        raise ValueError(
            f"{name}: the teacher had version {version or 'unknown'} at the start and answers with "
            f"{', '.join(each or 'none' for each in versions if each != version)}; a set has one teacher, so serve the first "
            "one again"
        )
    return versions[0] if versions else version


def rollout_id(prompt: Prompt, sample: int) -> str:
    return f"{prompt.prompt_id}#{sample}"


def seed_of(config: SynthesisConfig, prompt: Prompt, sample: int) -> int:
    """Return the seed of a completion, 63 bits: it depends on the set's seed, the prompt and the sample alone."""
    digest = int(utf8_digest(prompt.prompt_id.encode())[:8], 16)
    return int(np.random.default_rng([config.seed, digest, sample]).integers(1 << 53))


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt.text}]


def _request(config: SynthesisConfig, prompt: Prompt, sample: int) -> tuple[str, dict[str, Any]]:
    how = {"model": config.teacher.model, "max_tokens": config.max_tokens, "temperature": config.temperature}
    how |= {"top_p": config.top_p, "seed": seed_of(config, prompt, sample)}
    if config.teacher.form == "chat":
        return CHAT, how | {"messages": messages_of(prompt)}
    return COMPLETIONS, how | {"prompt": prompt.text}


def _row(config: SynthesisConfig, prompt: Prompt, sample: int, recorded: Recorded) -> dict[str, Any]:
    row = {"rollout": rollout_id(prompt, sample), "prompt_id": prompt.prompt_id, "sample": sample}
    row |= {"seed": seed_of(config, prompt, sample), "teacher_model": config.teacher.model, "messages": ""}
    if recorded.status != 200:
        fault = f"{recorded.status}: {recorded.answer}"[:500]
        return row | {"text": "", "finish_reason": "", "tokens": 0, "teacher_version": "", "fault": fault}
    choice, usage = recorded.answer["choices"][0], recorded.answer.get("usage") or {}
    text = choice["message"]["content"] if config.teacher.form == "chat" else choice["text"]
    version = named_version(recorded.answer) or ""
    return row | {
        "text": text or "",
        "finish_reason": choice.get("finish_reason") or "",
        "tokens": int(usage.get("completion_tokens") or 0),
        "teacher_version": version,
        "fault": "",
    }
