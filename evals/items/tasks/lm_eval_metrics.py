"""Metrics and filters of lm-eval 0.4.13 as metrics of a `Task`: equal values for equal log-probabilities and texts."""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evals.items.item import Item
from evals.items.task import Metric, Outcome

INVALID = "[invalid]"
"""What lm-eval's regex filter gives for a text without a match; it is compared with the gold answer like any other
text."""
_LENGTHS: Mapping[str, Callable[[str], int]] = {
    "acc": lambda _: 1,
    "acc_norm": len,
    "acc_bytes": lambda text: len(text.encode()),
}
_SUPPORTED = {
    "multiple_choice": ("acc", "acc_norm", "acc_bytes"),
    "loglikelihood": ("acc", "perplexity"),
    "generate_until": ("exact_match",),
}
_MATCH_OPTIONS = {"regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers"}


@dataclass(frozen=True)
class Regex:
    """lm-eval's `regex` filter: the match number `group` of all, its first non-empty group, stripped."""

    pattern: re.Pattern[str]
    group: int
    fallback: str

    def find(self, text: str) -> str | None:
        matches = self.pattern.findall(text)
        if not matches:
            return None
        match = matches[self.group]
        if isinstance(match, tuple):
            match = next((part for part in match if part), None)
        return None if match is None else match.strip()


@dataclass(frozen=True)
class Filter:
    """One entry of `filter_list`: its name, and its regexes in order."""

    name: str
    regexes: tuple[Regex, ...]

    def find(self, text: str) -> str | None:
        """Return the filtered text; None when a regex does not match."""
        for regex in self.regexes:
            match = regex.find(text)
            if match is None:
                return None
            text = match
        return text

    def apply(self, text: str) -> str:
        """Return the filtered text as lm-eval compares it: a regex without a match gives its fallback to the next one."""
        for regex in self.regexes:
            match = regex.find(text)
            text = regex.fallback if match is None else match
        return text


def read_filters(task: str, filter_list: Sequence[Mapping[str, Any]] | None) -> tuple[Filter, ...]:
    """Return the filters of a task; one that changes nothing when it has none. Raises: ValueError for another function."""
    if not filter_list:
        return (Filter("none", ()),)
    return tuple(Filter(entry["name"], tuple(_regexes(task, entry["filter"]))) for entry in filter_list)


def _regexes(task: str, steps: Sequence[Mapping[str, Any]]) -> list[Regex]:
    regexes = []
    for at, step in enumerate(steps):
        match step["function"]:
            case "regex":
                pattern = step.get("regex_pattern", r"#### (\-?[0-9\.\,]+)")
                regexes.append(Regex(re.compile(pattern), step.get("group_select", 0), step.get("fallback", INVALID)))
            case "take_first" if at == len(steps) - 1:
                pass  # one text is generated for each item
            case other:
                raise ValueError(
                    f"lm-eval task {task!r}: filter step {at} is {other!r}; allowed: regex, and take_first as last"
                )
    return regexes


def normalizer_of(metric_list: Sequence[Mapping[str, Any]]) -> Callable[[str], str]:
    """How `exact_match` changes both texts before it compares them; no change when the task has no such metric."""
    options = next((entry for entry in metric_list if entry["metric"] == "exact_match"), {})
    patterns = [re.compile(pattern) for pattern in options.get("regexes_to_ignore") or ()]
    removed = (string.punctuation if options.get("ignore_punctuation") else "") + (
        string.digits if options.get("ignore_numbers") else ""
    )
    table = str.maketrans("", "", removed)

    def normalize(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub("", text)
        return (text.lower() if options.get("ignore_case") else text).translate(table)

    return normalize


def metrics_of(
    task: str,
    output_type: str,
    metric_list: Sequence[Mapping[str, Any]],
    filters: Sequence[Filter],
) -> tuple[Metric, ...]:
    """Return the metrics by lm-eval's names; those of generated texts are `<metric>,<filter>`.

    Raises: ValueError for a metric, an aggregation or an option that is not supported.
    """
    metrics: list[Metric] = []
    for entry in metric_list:
        name = entry["metric"]
        _check_metric(task, output_type, entry)
        better = "higher" if entry.get("higher_is_better", name != "perplexity") else "lower"
        if name == "exact_match":
            normalize = normalizer_of([entry])
            metrics += [Metric(f"{name},{each.name}", _exact_match(each, normalize), "text", better=better) for each in filters]
        elif name == "perplexity":
            metrics.append(Metric(name, lambda item, outcome: outcome.nats[0], "nats", "perplexity", better))
        elif output_type == "loglikelihood":
            metrics.append(Metric(name, lambda item, outcome: float(bool(outcome.is_greedy)), "greedy", better=better))
        else:
            metrics.append(Metric(name, _accuracy(_LENGTHS[name]), "nats", better=better))
    return tuple(metrics)


def _check_metric(task: str, output_type: str, entry: Mapping[str, Any]) -> None:
    name = entry["metric"]
    if name not in _SUPPORTED[output_type]:
        allowed = ", ".join(_SUPPORTED[output_type])
        raise ValueError(f"lm-eval task {task!r}: metric is {name!r}; allowed for {output_type}: {allowed}")
    wanted = "perplexity" if name == "perplexity" else "mean"
    if entry.get("aggregation", wanted) != wanted:
        raise ValueError(f"lm-eval task {task!r}: aggregation of {name} is {entry['aggregation']!r}; allowed: {wanted}")
    options = set(entry) - {"metric", "aggregation", "higher_is_better"} - (_MATCH_OPTIONS if name == "exact_match" else set())
    if options:
        raise ValueError(
            f"lm-eval task {task!r}: metric {name} has the options {', '.join(sorted(options))}, which are unknown"
        )


def _accuracy(length: Callable[[str], int]) -> Callable[[Item, Outcome], float]:
    """1 when the choice with the least nats per length is right; the first of equals."""

    def value(item: Item, outcome: Outcome) -> float:
        lengths = np.array([length(choice) for choice in item.choices], np.float64)
        return float(int(np.argmax(-np.asarray(outcome.nats) / lengths)) == item.answer_index)

    return value


def _exact_match(chosen: Filter, normalize: Callable[[str], str]) -> Callable[[Item, Outcome], float]:
    def value(item: Item, outcome: Outcome) -> float:
        return float(normalize(chosen.apply(outcome.text)) == normalize(item.answer))

    return value
