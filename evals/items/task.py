"""`Task`: everything the evaluator knows about one benchmark, in one record. `evals/items/tasks/` has a file for each
benchmark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from evals.items.item import Item

type Better = Literal["higher", "lower", "neither"]
"""Which direction of a metric is better. `neither`: a fact about the items, equal for every model."""
type Style = Literal["cloze", "letters", "lm_eval"]
"""`cloze`: the question alone, each choice as its continuation (OLMES "rc"). `letters`: the choices are listed and the
letter is the continuation (OLMES "mc"). `lm_eval`: the prompt of lm-eval 0.4, where it differs."""
type Channels = dict[str, Any]
"""`item_id` and the text channels of one item, by the field names of `Item`."""
type Reader = Callable[[Path], Iterator[Channels]]
"""Reads one file of a benchmark into the channels of its items, in file order."""


@dataclass(frozen=True)
class RenderedItem:
    """An item as prompts and continuations: one pair for each choice, or one pair when the item has no choices."""

    prompts: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int
    """Index of the right pair."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.prompts, self.continuations, strict=True))

    @property
    def solved(self) -> str:
        """The item as a few-shot example: its prompt with the right continuation."""
        return self.prompts[self.gold] + self.continuations[self.gold]


type Renderer = Callable[[Item], RenderedItem]


@dataclass(frozen=True)
class Outcome:
    """What a model did with one item. `nats`, `is_greedy`: of the continuations, by likelihood. `text`: what it
    generated."""

    nats: tuple[float, ...] = ()
    is_greedy: bool | None = None
    """Whether the model would generate the right continuation; None when nobody asked."""
    text: str = ""


def one(item: Item) -> float:
    """Return the default weight."""
    del item
    return 1.0


@dataclass(frozen=True)
class Metric:
    """A metric of one task, beside the metrics that every task of its kind has.

    `summary` turns the values of the items into the score: `share` of items with value 1, `mean`, `perplexity`, which is
    exp(mean), or `ratio`: the sum of the values over the sum of the items' weights.
    """

    name: str
    value: Callable[[Item, Outcome], float]
    reads: Literal["nats", "greedy", "text"]
    """The field of `Outcome` that `value` reads. `greedy` is known for tasks of kind `gold_bpb` alone."""
    summary: Literal["share", "mean", "perplexity", "ratio"] = "share"
    better: Better = "higher"
    weight: Callable[[Item], float] = one
    """The denominator of a `ratio`."""


def no_description(item: Item, style: Style) -> str:
    """Return the default description: nothing before the examples."""
    del item, style
    return ""


def no_program_start(item: Item) -> str:
    """Return the default: a generated program is complete by itself."""
    del item
    return ""


def first_line(text: str) -> str | None:
    """Return the first non-empty line of a generated text, stripped; None when there is none."""
    stripped = text.strip()
    return stripped.splitlines()[0].strip() if stripped else None


def first_shots(item: Item, shots: Sequence[Item], count: int) -> list[Item]:
    """Return the first `count` examples of the item's task. Raises: ValueError when there are fewer."""
    return take_shots(item, [shot for shot in shots if shot.task == item.task], count)


def take_shots(item: Item, candidates: Sequence[Item], count: int) -> list[Item]:
    """Return the first `count` candidates. Raises: ValueError naming the item when there are fewer."""
    if len(candidates) < count:
        raise ValueError(f"item {item.task}/{item.item_id} needs {count} examples, but the shots hold only {len(candidates)}")
    return list(candidates[:count])


@dataclass(frozen=True)
class Task:
    """One benchmark: how to ask its items, how to read answers, and how to count them.

    The defaults make a task of plain questions, so a benchmark with plain questions and choices needs no record at all.
    """

    name: str
    render: Mapping[Style, Renderer]
    """One renderer for each style that the task supports."""
    kind: Literal["multiple_choice", "gold_bpb"] = "multiple_choice"
    """How policies score the task by likelihood: by its choices, or by the likelihood of the gold answer."""
    stops: tuple[str, ...] = ("\n\n",)
    """Texts at which a generated answer ends."""
    extract: Callable[[str], str | None] = first_line
    """The normalized answer in a generated text; None when the text holds no answer."""
    normalize: Callable[[str], str] = str.strip
    """The gold answer in the form in which `extract` returns answers."""
    equality: Literal["text", "math"] = "text"
    """When two normalized answers are equal: as texts, or as `evals/tasks/math_equal.py` says."""
    verify: Callable[[Item, str], bool] | None = None
    """Whether a generated text is right, where no gold answer decides it; `extract` and `normalize` are not used then."""
    metrics: tuple[Metric, ...] = ()
    shots: Callable[[Item, Sequence[Item], int], list[Item]] = first_shots
    """(item, all examples, how many) -> the examples of the item."""
    separator: str = "\n\n"
    """Text after each few-shot example."""
    description: Callable[[Item, Style], str] = no_description
    """Text before the first example."""
    program_start: Callable[[Item], str] = no_program_start
    """Code before a generated completion that together make the program of the item."""
    formats: Mapping[str, Reader] = field(default_factory=lambda: MappingProxyType({}))
    """Readers of the file formats that only this benchmark uses, by format name."""

    def rendered(self, item: Item, style: Style) -> RenderedItem:
        """Return the item alone, without examples. Raises: ValueError when the task has no such style."""
        if style not in self.render:
            raise ValueError(f"task {self.name} has no style {style!r}; it has: {', '.join(self.render)}")
        return self.render[style](item)
