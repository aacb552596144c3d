"""Compare two models by a judge: conversations of several turns, each judged twice with the sides swapped.

    python -m evals.remote.pairs --conversations FILE.jsonl --out FOLDER \\
        --first URL MODEL --second URL MODEL --judge URL MODEL

A line of FILE is `{"id": ..., "turns": ["first message of the user", "second message", ...]}`. Models and judge are servers
with OpenAI's chat API. A verdict counts only if the judge gives it in both orders: judges prefer a position (Zheng et al. 2023,
arXiv:2306.05685, section 3.4). All answers and judgements are on disk, so a run that was killed goes on.
"""

import argparse
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from evals.scoring.intervals import mean_bootstrap
from serving.broker.client import ItemRequest, Record, Recorded, ask_all
from serving.refusals import read_key

log = logging.getLogger("evals.remote")
CHAT = "/v1/chat/completions"
SEED = 0
type Outcome = Literal["first", "second", "tie", "inconsistent", "unparsed", "failed"]
"""Who wins in both orders. `inconsistent`: the orders disagree. `unparsed`: a judgement states no verdict. `failed`: a model or
the judge refused a request."""
VALUES: Mapping[str, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}
_STATED = re.compile(r"\[\[([ABC])\]\]")
_RULES = (
    "Compare the answers of two assistants, A and B, to the user's messages. Judge whether they follow the instructions, are "
    "right, and help. The order in which they are shown and the length of an answer do not count. Explain briefly, then end "
    "with [[A]] if A is better, [[B]] if B is better, or [[C]] for a tie."
)


@dataclass(frozen=True)
class Conversation:
    """The messages of a user, one a turn."""

    id: str
    turns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.turns or not all(turn.strip() for turn in self.turns):
            raise ValueError(f"conversation {self.id!r} has the turns {self.turns}; give at least one, none empty")


@dataclass(frozen=True)
class ChatModel:
    """A model behind a URL, without /v1."""

    url: str
    model: str
    key: str | None = None


@dataclass(frozen=True)
class Asking:
    """How models and judge are asked; greedy. `max_tokens` of an answer and of a judgement."""

    max_tokens: int = 512
    concurrency: int = 16
    patience: float = 600.0


@dataclass(frozen=True)
class Judgement:
    """One conversation: the answers, the judge's two texts (the first model is A, then B), their verdicts, and the outcome."""

    id: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    texts: tuple[str, ...]
    verdicts: tuple[str | None, ...]
    """As stated: A, B or C; None where a text states none."""
    outcome: Outcome
    reason: str = ""


def read_conversations(path: Path) -> list[Conversation]:
    """Read conversations. Raises: ValueError naming the line, or an id that occurs twice."""
    conversations = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            conversations.append(Conversation(str(record["id"]), tuple(record["turns"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}; a line is {{'id': ..., 'turns': ['...', ...]}}") from error
    repeated = [name for name, count in Counter(one.id for one in conversations).items() if count > 1]
    if repeated or not conversations:
        raise ValueError(
            f"{path} has {len(conversations)} conversations, ids that occur twice: {repeated}; give each its own id"
        )
    return conversations


def converse(model: ChatModel, conversations: Sequence[Conversation], record: Record, how: Asking) -> dict[str, list[Recorded]]:
    """Ask turn by turn; each request holds the turns and the answers before it. A conversation ends at a refused request."""
    answers: dict[str, list[Recorded]] = {one.id: [] for one in conversations}
    for turn in range(max(len(one.turns) for one in conversations)):
        due = [one for one in conversations if turn < len(one.turns) and all(a.status == 200 for a in answers[one.id])]
        requests = [ItemRequest(f"{one.id}/{turn}", CHAT, _body(model, _messages(one, answers[one.id]), how)) for one in due]
        done = _ask(model, requests, record, how)
        for one in due:
            answers[one.id].append(done[f"{one.id}/{turn}"])
    return answers


def judge_pairs(
    first: ChatModel, second: ChatModel, judge: ChatModel, conversations: Sequence[Conversation], out: Path, how: Asking
) -> list[Judgement]:
    """Let both models answer and the judge compare; write `judgements.jsonl` and `result.json`.

    Raises: ValueError for a judge that is one of the models, or a folder that holds other requests.
    """
    if (judge.url, judge.model) in ((first.url, first.model), (second.url, second.model)):
        raise ValueError(f"the judge {judge.model!r} at {judge.url} is one of the compared models; give another")
    out.mkdir(parents=True, exist_ok=True)
    sides = {"first": first, "second": second}
    answers = {name: converse(m, conversations, Record(out / f"{name}.jsonl"), how) for name, m in sides.items()}
    texts = {
        name: {id: [_text(answer) for answer in of_id] for id, of_id in of_side.items()} for name, of_side in answers.items()
    }
    whole = [one for one in conversations if all(_answered(answers[name][one.id], one) for name in sides)]
    requests = []
    for one in whole:
        shown = texts["first"][one.id], texts["second"][one.id]
        for order, (a, b) in enumerate((shown, shown[::-1])):
            requests.append(ItemRequest(f"{one.id}/{order}", CHAT, _body(judge, _question(one, a, b), how)))
    judged = _ask(judge, requests, Record(out / "judge.jsonl"), how)
    judgements = [_judgement(one, texts, [judged.get(f"{one.id}/{order}") for order in range(2)]) for one in conversations]
    lines = [json.dumps(asdict(one), ensure_ascii=False) for one in judgements]
    _write(out / "judgements.jsonl", "\n".join(lines) + "\n")
    facts = {"first": first.model, "second": second.model, "judge": judge.model, "rules": _RULES, **summary(judgements)}
    _write(out / "result.json", json.dumps(facts, indent=1) + "\n")
    return judgements


def summary(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Counts of outcomes; the first model's share of wins, ties as half, over verdicts that agree, with its 95 % interval over
    conversations; and how often the judge preferred the first place."""
    counts = Counter(one.outcome for one in judgements)
    values = np.array([VALUES[one.outcome] for one in judgements if one.outcome in VALUES])
    stated = [verdict for one in judgements for verdict in one.verdicts if verdict in ("A", "B")]
    share = mean_bootstrap(values, SEED) if values.size else None
    return {
        "outcomes": {name: counts[name] for name in get_args(Outcome.__value__)},
        "share_of_first": None if share is None else dict(zip(("value", "low", "high"), share, strict=True)),
        "counted": int(values.size),
        "preferred_place_a": round(stated.count("A") / len(stated), 4) if stated else None,
    }


def outcome_of(verdicts: Sequence[str | None]) -> Outcome:
    """Return the outcome of two verdicts, the second of which was given with the sides swapped."""
    agreed: dict[tuple[str | None, ...], Outcome] = {("A", "B"): "first", ("B", "A"): "second", ("C", "C"): "tie"}
    return "unparsed" if None in verdicts else agreed.get(tuple(verdicts), "inconsistent")


def stated_verdict(text: str) -> str | None:
    """Return the last verdict that a judgement states; None if there is none."""
    stated = _STATED.findall(text)
    return stated[-1] if stated else None


def _write(path: Path, text: str) -> None:
    """Write a file that appears whole."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def _judgement(one: Conversation, texts: Mapping[str, Mapping[str, list[str]]], judged: Sequence[Recorded | None]) -> Judgement:
    sides = tuple(texts["first"][one.id]), tuple(texts["second"][one.id])
    if any(each is None or each.status != 200 for each in judged):
        refused = next((f"the judge: {each.answer}" for each in judged if each is not None), "a model refused a turn")
        return Judgement(one.id, *sides, (), (), "failed", refused)
    judge_texts = tuple(_text(each) for each in judged if each is not None)
    verdicts = tuple(stated_verdict(text) for text in judge_texts)
    return Judgement(one.id, *sides, judge_texts, verdicts, outcome_of(verdicts))


def _answered(answers: Sequence[Recorded], one: Conversation) -> bool:
    return len(answers) == len(one.turns) and all(answer.status == 200 for answer in answers)


def _messages(one: Conversation, answers: Sequence[Recorded]) -> list[dict[str, str]]:
    exchanges = [(turn, _text(answer)) for turn, answer in zip(one.turns, answers, strict=False)]
    before = [
        m for turn, text in exchanges for m in ({"role": "user", "content": turn}, {"role": "assistant", "content": text})
    ]
    return [*before, {"role": "user", "content": one.turns[len(answers)]}]


def _question(one: Conversation, a: Sequence[str], b: Sequence[str]) -> list[dict[str, str]]:
    shown = [_RULES]
    for name, answers in (("A", a), ("B", b)):
        shown += [f"<conversation with assistant {name}>"]
        shown += [f"User: {turn}\n\nAssistant {name}: {text}" for turn, text in zip(one.turns, answers, strict=True)]
        shown += [f"</conversation with assistant {name}>"]
    return [{"role": "user", "content": "\n\n".join(shown)}]


def _body(model: ChatModel, messages: list[dict[str, str]], how: Asking) -> dict[str, Any]:
    return {"model": model.model, "messages": messages, "temperature": 0, "max_tokens": how.max_tokens}


def _ask(model: ChatModel, requests: Sequence[ItemRequest], record: Record, how: Asking) -> dict[str, Recorded]:
    return ask_all(model.url, requests, record, concurrency=how.concurrency, key=model.key, patience=how.patience)


def _text(recorded: Recorded) -> str:
    return recorded.answer["choices"][0]["message"]["content"] or "" if recorded.status == 200 else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the answers of two models by a judge."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.remote.pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    for name in ("first", "second", "judge"):
        parser.add_argument(f"--{name}", nargs=2, metavar=("URL", "MODEL"), required=True)
        parser.add_argument(f"--{name}-key-file", type=Path)
    parser.add_argument("--max-tokens", type=int, default=Asking.max_tokens)
    parser.add_argument("--concurrency", type=int, default=Asking.concurrency)
    given = parser.parse_args(arguments)

    def model(name: str) -> ChatModel:
        url, served = getattr(given, name)
        return ChatModel(url.rstrip("/"), served, read_key(getattr(given, f"{name}_key_file")))

    how = Asking(given.max_tokens, given.concurrency)
    models = model("first"), model("second"), model("judge")
    judgements = judge_pairs(*models, read_conversations(given.conversations), given.out, how)
    print(json.dumps(summary(judgements), indent=1))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    main()
