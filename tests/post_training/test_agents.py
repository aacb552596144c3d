"""Agents that read: the protocol, the caps, what the numbers count, and what of a trajectory is trained on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_stub import chatting
from served_models import SETTINGS, serving, untrained

import datakit
from datakit.tokens.chat_template import ChatTemplate, Conversation, conversation_spans
from post_training.agents.loop import AgentConfig, Said, Step, Trajectory, chat_model, run_agent
from post_training.agents.protocol import MARKER, parse_turn
from post_training.agents.statistics import statistics, unique_commands
from post_training.agents.trajectories import read_trajectories, record_of, write_trajectories

REPOSITORY = Path(datakit.__file__).parent
"""A real repository: this project's data engine."""
QUESTION = "In which file is the function `shingle_hashes` defined?"
TURNS = (
    'THOUGHT: look for it.\n\n```bash\ngrep -rn "def shingle_hashes" .\n```',
    "THOUGHT: read it.\n\n```bash\nsed -n '1,5p' text/shingles.py\n```",
    "I forgot the fence.",
    f"THOUGHT: found.\n\n```bash\necho {MARKER}\ntext/shingles.py\n```",
)
TEMPLATE = ChatTemplate(
    "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{% generation %}{{ m.content }}<|end|>"
    "{% endgeneration %}"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
)


def scripted(turns: tuple[str, ...]) -> Callable[[list[dict]], str]:
    """A model that says one text after another; its place is the number of its own messages."""
    return lambda messages: turns[min(len(turns) - 1, sum(m["role"] == "assistant" for m in messages))]


@pytest.fixture(scope="module")
def trajectory() -> Iterator[Trajectory]:
    with chatting(scripted(TURNS)) as stub:
        config = AgentConfig("stub")
        yield run_agent(chat_model(stub.url, config), "shingles", QUESTION, REPOSITORY, config)


def test_an_agent_reads_a_real_repository_and_submits(trajectory: Trajectory) -> None:
    assert (trajectory.end, trajectory.answer) == ("submitted", "text/shingles.py")
    assert [step.status for step in trajectory.steps] == [0, 0, 2, 0]
    found, read = trajectory.steps[0].observation, trajectory.steps[1].observation
    assert "./text/shingles.py:" in found and "def shingle_hashes(text: str" in found
    assert read == "\n".join((REPOSITORY / "text/shingles.py").read_text().split("\n")[:5])
    assert "0 commands; give exactly one" in trajectory.messages[-2]["content"]
    assert [m["role"] for m in trajectory.messages] == ["system", "user", *["assistant", "user"] * 3, "assistant"]


def test_only_the_models_own_turns_are_trained_on(trajectory: Trajectory, tmp_path: Path) -> None:
    spans = conversation_spans(TEMPLATE, Conversation(trajectory.messages), (), "<|end|>")
    assert isinstance(spans, list)
    assert "".join(span.text for span in spans if span.counts) == "".join(f"{turn}<|end|>" for turn in TURNS)
    masked = "".join(span.text for span in spans if not span.counts)
    assert all(step.observation in masked for step in trajectory.steps if step.observation)
    path = tmp_path / "trajectories.jsonl"
    assert write_trajectories(path, [trajectory]) == 1
    assert read_trajectories(path) == [trajectory]
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1 is no trajectory"):
        read_trajectories(path)


@pytest.mark.parametrize(
    ("config", "end", "turns"),
    [
        (AgentConfig("stub", max_turns=2), "turns", 2),
        (AgentConfig("stub", max_tokens=25, turn_tokens=10), "tokens", 3),
    ],
)
def test_caps_end_a_trajectory_with_the_models_own_words(config: AgentConfig, end: str, turns: int) -> None:
    asked = []

    def ask(messages: list[dict], seed: int, most: int) -> Said:
        asked.append((seed, most))
        return Said(TURNS[1], most, "1")

    made = run_agent(ask, "task", QUESTION, REPOSITORY, config)
    assert (made.end, len(made.steps), made.answer) == (end, turns, None)
    assert made.messages[-1]["role"] == "assistant" and made.tokens <= config.max_tokens
    assert [seed for seed, _ in asked] == list(range(turns))
    assert end != "tokens" or [most for _, most in asked] == [10, 10, 5]


def test_a_refusal_ends_and_a_change_of_the_model_is_an_error() -> None:
    config = AgentConfig("stub")
    with chatting(lambda messages: 400 if len(messages) > 3 else TURNS[0]) as stub:
        made = run_agent(chat_model(stub.url, config), "task", QUESTION, REPOSITORY, config)
    assert made.end == "refused" and made.detail.startswith("400") and len(made.steps) == 1
    versions = iter("ab")
    with pytest.raises(ValueError, match=r"the versions \['a', 'b'\] in one trajectory"):
        run_agent(lambda *_: Said(TURNS[1], 1, next(versions)), "task", QUESTION, REPOSITORY, config)


@pytest.mark.slow
def test_the_projects_server_is_such_a_model() -> None:
    """A model of random weights never keeps to the protocol: every turn is a fault, until its context is full."""
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    config = AgentConfig("noise", max_turns=3, turn_tokens=8)
    with serving(untrained("noise"), SETTINGS) as client:
        made = run_agent(chat_model(client.url(""), config), "task", QUESTION, REPOSITORY, config)
    assert template and made.end in ("refused", "turns")
    assert record_of(made)["end"] == made.end


@pytest.mark.parametrize(
    ("text", "command", "answer"),
    [
        ("Look.\n```bash\nls\n```", "ls", None),
        ("```\nls -l\n```\nafter", "ls -l", None),
        (f"```bash\necho {MARKER}\nline one\nline two\n```", "", "line one\nline two"),
        (f"```sh\necho '{MARKER}'\n```", "", ""),
        (f"```bash\ncat x && echo {MARKER}\n```", f"cat x && echo {MARKER}", None),
    ],
)
def test_a_turn_is_read(text: str, command: str, answer: str | None) -> None:
    turn = parse_turn(text)
    assert (turn.command, turn.answer, turn.fault) == (command, answer, "")


@pytest.mark.parametrize("text", ["", "ls", "```bash\n```", "```bash\nls\n```\n```bash\npwd\n```", "```python\nprint()\n```"])
def test_a_turn_without_exactly_one_command_is_a_fault(text: str) -> None:
    assert parse_turn(text).fault and not parse_turn(text).command


def test_numbers_are_counted_as_published() -> None:
    commands = ["grep -rn parse src", "grep -rn parse src tests", "cat README.md", "ls"]
    assert unique_commands(commands) == [commands[0], commands[2], commands[3]]

    def made(end: str, steps: list[Step]) -> Trajectory:
        return Trajectory("t", (), tuple(steps), end, None)  # type: ignore[arg-type]

    good, empty, bad = Step(commands[0], "x", 0, 10), Step(commands[1], " ", 0, 20), Step(commands[2], "no", 1, 30)
    found = statistics([made("submitted", [good, empty]), made("turns", [bad, Step("", "fault", 2, 40)])])
    assert (found.trajectories, found.commands, found.ends) == (2, 3, {"submitted": 1, "turns": 1})
    assert found.unique_commands == pytest.approx(2 / 3) and found.useful_observations == pytest.approx(1 / 3)
    assert (found.submitted, found.mean_turns, found.mean_tokens) == (0.5, 2.0, 50.0)
    assert statistics([]).submitted is None
