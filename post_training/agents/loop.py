"""The loop of an agent that only reads: ask the model, run its command, tell it what the command printed, until it submits.

A trajectory is a pure function of the model's answers and the folder. It ends by a submission, at a cap of turns or tokens, or
because the server refuses a request (the conversation no longer fits into the context).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import requests

from evals.sandbox.run import Limits
from evals.sandbox.shell import SHELL_LIMITS, run_line
from post_training.agents.protocol import SYSTEM, parse_turn
from serving.answer_versions import named_version

type End = Literal["submitted", "turns", "tokens", "refused"]
type Message = dict[str, str]


@dataclass(frozen=True)
class AgentConfig:
    """Caps of a trajectory and how the model is sampled."""

    model: str
    max_turns: int = 15
    max_tokens: int = 32_768
    """Tokens that the model generates in a trajectory."""

    turn_tokens: int = 1_024
    shown_characters: int = 8_000
    """Of a longer observation the model sees both ends."""

    temperature: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tokens", "turn_tokens", "shown_characters"):
            if getattr(self, name) <= 0:
                raise ValueError(f"agent.{name} is {getattr(self, name)}; it must be positive")


@dataclass(frozen=True)
class Said:
    """A model's answer: text, tokens and version; `refused` says why a server gave none."""

    text: str
    tokens: int
    version: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Step:
    """A turn: the command (empty for a fault or a submission), what it printed, and its status."""

    command: str
    observation: str
    status: int
    tokens: int


@dataclass(frozen=True)
class Trajectory:
    """A whole conversation with its end. `answer` is None unless it was submitted."""

    task: str
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    end: End
    answer: str | None
    version: str = ""
    """Version of the model as the server reported it; empty if it reports none."""

    detail: str = ""

    @property
    def tokens(self) -> int:
        """Tokens that the model generated."""
        return sum(step.tokens for step in self.steps)


type Ask = Callable[[list[Message], int, int], Said]
"""Messages, seed, most tokens -> what the model says."""


def run_agent(
    ask: Ask, task: str, question: str, folder: Path, config: AgentConfig, limits: Limits = SHELL_LIMITS
) -> Trajectory:
    """Run one trajectory over a folder.

    Raises: ValueError if the model changes its version in the middle; NoSandboxError if commands cannot be held.
    """
    messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    steps: list[Step] = []
    versions: set[str] = set()
    left = config.max_tokens
    for turn in range(config.max_turns):
        reply = ask(messages, config.seed + turn, min(config.turn_tokens, left))
        if reply.refused:
            return _ended(task, messages, steps, "refused", None, versions, reply.refused)
        versions.add(reply.version)
        if len(versions) > 1:
            raise ValueError(f"{task}: the model had the versions {sorted(versions)} in one trajectory; serve one")
        left -= reply.tokens
        messages.append({"role": "assistant", "content": reply.text})
        parsed = parse_turn(reply.text)
        if parsed.answer is not None:
            steps.append(Step("", "", 0, reply.tokens))
            return _ended(task, messages, steps, "submitted", parsed.answer, versions)
        if parsed.fault:
            steps.append(Step("", parsed.fault, 2, reply.tokens))
        else:
            printed = run_line(parsed.command, folder, limits)
            steps.append(Step(parsed.command, _shown(printed.text, config.shown_characters), printed.status, reply.tokens))
        if left <= 0:
            return _ended(task, messages, steps, "tokens", None, versions)
        last = steps[-1]
        status = f"<status>{last.status}</status>\n" if parsed.command else ""
        messages.append({"role": "user", "content": f"{status}<output>\n{last.observation}\n</output>"})
    return _ended(task, messages[:-1], steps, "turns", None, versions)


def _ended(
    task: str, messages: list[Message], steps: list[Step], end: End, answer: str | None, versions: set[str], detail: str = ""
) -> Trajectory:
    """A trajectory ends with the model's own words: an observation that nobody answers is no part of it."""
    while messages and messages[-1]["role"] != "assistant":
        messages = messages[:-1]
    return Trajectory(task, tuple(messages), tuple(steps), end, answer, "".join(versions), detail)


def _shown(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out; ask for less]\n{text[-half:]}"


def chat_model(url: str, config: AgentConfig, key: str | None = None, timeout: float = 600.0) -> Ask:
    """Return a model behind a URL with OpenAI's chat API. It raises what `requests` raises while the server is away."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def ask(messages: list[Message], seed: int, most: int) -> Said:
        body = {
            "model": config.model,
            "messages": messages,
            "max_tokens": most,
            "seed": seed,
            "temperature": config.temperature,
        }
        answer = requests.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=timeout)
        if 400 <= answer.status_code < 500:
            return Said("", 0, refused=f"{answer.status_code}: {answer.text[:500]}")
        answer.raise_for_status()
        document = answer.json()
        text = document["choices"][0]["message"]["content"] or ""
        tokens = int((document.get("usage") or {}).get("completion_tokens") or 0)
        return Said(text, tokens, named_version(document) or "")

    return ask
