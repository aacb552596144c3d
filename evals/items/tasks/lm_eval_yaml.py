"""Run a task of lm-eval (https://github.com/EleutherAI/lm-evaluation-harness, 0.4.13) from its YAML file as a `Task`.

A YAML task renders prompts from the fields of a document, so rendering happens when the suite is made: the reader of
the task's format turns documents into items whose question, choices and answer are the rendered texts. The evaluator
then adds description, examples and delimiters. Use it in a separate file (`evals/items/tasks/sciq.py`), named in the
registry like any other task:

    SCIQ = lm_eval_task(parse_yaml(SCIQ_YAML))

Supported: `output_type` multiple_choice, loglikelihood and generate_until; jinja templates, field names and constants;
functions (`!function module.name`), which the caller gives by name, because a YAML file must not run code by itself;
`include`; `metric_list` with acc, acc_norm, acc_bytes, exact_match and perplexity; `filter_list` with regex and
take_first. Anything else that changes a score is refused by name. Examples are the first ones of the example suite
(lm-eval's sampler `first_n`); lm-eval's default sampler draws them at random.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import yaml
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from evals.items.files import json_lines, table_rows
from evals.items.item import Item
from evals.items.task import Channels, RenderedItem, Style, Task, first_shots
from evals.items.tasks.lm_eval_metrics import Filter, metrics_of, normalizer_of, read_filters

type OutputType = Literal["multiple_choice", "loglikelihood", "generate_until"]
type Document = Mapping[str, Any]
type Field = str | int | list | dict | Callable[[Document], Any]
"""A template, the name of a document's field, a constant, or a function of the document."""
_USED = {
    "task", "output_type", "doc_to_text", "doc_to_target", "doc_to_choice", "process_docs", "description", "target_delimiter",
    "fewshot_delimiter", "metric_list", "filter_list", "generation_kwargs", "fewshot_config",
}  # fmt: skip
_IGNORED = {
    "tag", "group", "task_alias", "dataset_path", "dataset_name", "dataset_kwargs", "training_split", "validation_split",
    "test_split", "fewshot_split", "num_fewshot", "metadata", "should_decontaminate", "doc_to_decontamination_query",
}  # fmt: skip
"""Keys that say where documents are, which the suite says here, or that change no score."""
_DEFAULTS = {"repeats": 1, "unsafe_code": False}
"""Keys that may be given with lm-eval's default value and no other."""


@dataclass(frozen=True)
class FunctionName:
    """`!function module.name` in a YAML file: the name of a Python function that lm-eval would import."""

    name: str


class _Loader(yaml.SafeLoader):
    """YAML without any Python object, but with names of functions."""


_Loader.add_constructor("!function", lambda loader, node: FunctionName(loader.construct_scalar(node)))


def parse_yaml(text: str) -> dict[str, Any]:
    """Return the mapping in a YAML text. Raises: ValueError when it is none, or when it includes another file."""
    config = yaml.load(text, _Loader)  # a subclass of SafeLoader
    if not isinstance(config, dict):
        raise ValueError(f"an lm-eval task is a YAML mapping, not {type(config).__name__}")
    if "include" in config:
        raise ValueError(f"task {config.get('task')} includes {config['include']!r}; read the file with read_yaml")
    return config


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, over the files that it includes (paths relative to it)."""
    config = yaml.load(path.read_text(), _Loader)
    included = config.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [included] if isinstance(included, str) else included:
        merged |= read_yaml(path.parent / name)
    return merged | config


def lm_eval_task(
    config: Mapping[str, Any], functions: Mapping[str, Callable] = MappingProxyType({}), format_name: str | None = None
) -> Task:
    """Return the task of an lm-eval configuration. `functions`: what the configuration names by `!function`.

    The task has the style `lm_eval` alone, and one format, by default `lm_eval_<task>`: files of documents, as JSON
    lines, Parquet or Arrow streams.

    Raises: ValueError naming what is missing or not supported.
    """
    _check_keys(config)
    documents = _Documents(_resolved(config, functions))
    output, name = documents.output_type, config["task"]
    filters = read_filters(name, config.get("filter_list"))
    metric_list = config.get("metric_list") or []
    return Task(
        name,
        MappingProxyType({"lm_eval": documents.render}),
        kind="multiple_choice" if output == "multiple_choice" else "gold_bpb",
        stops=_stops(config),
        extract=_extractor(filters[0], normalizer_of(metric_list)),
        normalize=normalizer_of(metric_list),
        metrics=metrics_of(name, output, metric_list, filters),
        shots=_no_shots if output == "loglikelihood" else first_shots,
        separator=documents.config.get("fewshot_delimiter", "\n\n"),
        description=_constant(documents.config.get("description") or ""),
        formats=MappingProxyType({format_name or f"lm_eval_{name}": documents.read}),
    )


@dataclass(frozen=True)
class _Documents:
    """How documents of a task become channels, and items become prompts. `config` has functions in the place of their
    names."""

    config: Mapping[str, Any]

    @property
    def output_type(self) -> OutputType:
        return self.config.get("output_type", "generate_until")

    @property
    def delimiter(self) -> str:
        return self.config.get("target_delimiter", " ")

    def read(self, path: Path) -> Iterator[Channels]:
        """Yield the channels of the items of a file of documents; ids are row numbers."""
        rows = table_rows(path) if path.suffix in (".parquet", ".arrow") else json_lines(path)
        process = self.config.get("process_docs")
        for row, document in enumerate(process(list(rows)) if process else rows):
            yield self.channels(f"{row:05d}", document)

    def channels(self, item_id: str, document: Document) -> Channels:
        """Raises: ValueError for a document with several right answers, or a right answer that is no choice."""
        text, target = (self._value(key, document) for key in ("doc_to_text", "doc_to_target"))
        if isinstance(target, list):
            raise ValueError(f"item {item_id} has {len(target)} right answers; a task of this lab has one")
        if self.config.get("doc_to_choice") is None:
            return {"item_id": item_id, "question": str(text), "answer": str(target)}
        choices = [str(choice) for choice in self._value("doc_to_choice", document)]
        if isinstance(text, int):  # lm-eval's "multiple inputs": the choices are prompts, the target continues all of them
            question, gold = str(target), text
        else:
            question, gold = str(text), choices.index(target) if isinstance(target, str) else int(target)
        if not 0 <= gold < len(choices):
            raise ValueError(f"item {item_id}: the right answer is {gold}, but there are {len(choices)} choices")
        if self.output_type != "multiple_choice":
            return {"item_id": item_id, "question": question, "answer": choices[gold]}
        passage = {"passage": choices[gold]} if isinstance(text, int) else {}
        return {
            "item_id": item_id,
            "question": question,
            "choices": tuple(choices),
            "answer": choices[gold],
            "answer_index": gold,
            **passage,
        }

    def render(self, item: Item) -> RenderedItem:
        """Return an item of `channels` as lm-eval's requests. An item with multiple inputs has its right prompt as passage."""
        if not item.choices:
            delimiter = "" if self.output_type == "loglikelihood" else self.delimiter
            return RenderedItem((item.question,), (f"{delimiter}{item.answer}",), 0)
        if item.passage:
            endings = (f"{self.delimiter}{item.question}",) * len(item.choices)
            return RenderedItem(item.choices, endings, item.answer_index)
        endings = tuple(f"{self.delimiter}{choice}" for choice in item.choices)
        return RenderedItem((item.question,) * len(endings), endings, item.answer_index)

    def _value(self, key: str, document: Document) -> Any:
        """Return the value of a field for a document, by lm-eval's rules: digits are an index, lists are read from their
        text."""
        field: Field = self.config[key]
        if callable(field):
            return field(document)
        if isinstance(field, dict):
            return list(field.values())
        if not isinstance(field, str):
            return field
        if field in document:
            return document[field]
        text = _environment().from_string(field).render(**document)
        if key == "doc_to_choice":
            return ast.literal_eval(text)
        if text.isdigit() and self.config.get("doc_to_choice") is not None:
            return int(text)
        if key == "doc_to_target" and text.startswith("[") and text.endswith("]"):
            return _literal_or_text(text)
        return text


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as lm-eval sets it up, but in a sandbox: a template cannot reach Python's internals."""
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = lambda text, pattern, repl, count=0: re.sub(pattern, repl, text, count=count)
    return environment


def _literal_or_text(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _check_keys(config: Mapping[str, Any]) -> None:
    name = config.get("task")
    missing = [key for key in ("task", "doc_to_text", "doc_to_target", "metric_list") if config.get(key) is None]
    if missing:
        raise ValueError(f"lm-eval task {name!r} lacks {', '.join(missing)}")
    for key, value in config.items():
        allowed = key in _USED | _IGNORED or value is None or (key in _DEFAULTS and value == _DEFAULTS[key])
        if not allowed:
            raise ValueError(f"lm-eval task {name!r} sets {key} to {value!r}, which is not supported; write the task in Python")
    output = config.get("output_type", "generate_until")
    if output not in get_args(OutputType.__value__):
        allowed = ", ".join(get_args(OutputType.__value__))
        raise ValueError(f"lm-eval task {name!r}: output_type is {output!r}; allowed: {allowed}")
    if output == "multiple_choice" and config.get("doc_to_choice") is None:
        raise ValueError(f"lm-eval task {name!r} is multiple choice, but has no doc_to_choice")
    other = set(config.get("fewshot_config") or {}) - {"sampler", "split"}
    if other:
        raise ValueError(f"lm-eval task {name!r}: fewshot_config sets {', '.join(sorted(other))}; allowed: sampler, split")


def _resolved(config: Mapping[str, Any], functions: Mapping[str, Callable]) -> dict[str, Any]:
    """Return the configuration with functions in the place of their names. Raises: ValueError naming one that is not given."""
    named = {value.name for value in config.values() if isinstance(value, FunctionName)}
    if lacking := sorted(named - functions.keys()):
        raise ValueError(f"lm-eval task {config['task']!r} needs the functions {', '.join(lacking)}; give them by name")
    return {key: functions[value.name] if isinstance(value, FunctionName) else value for key, value in config.items()}


def _stops(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a generated text ends. Raises: ValueError when texts are to be sampled, since ours are greedy."""
    options = config.get("generation_kwargs") or {}
    if options.get("do_sample") and options.get("temperature") != 0:
        raise ValueError(
            f"lm-eval task {config['task']!r} samples its texts; this lab generates greedily, set do_sample: false"
        )
    until = options.get("until", [config.get("fewshot_delimiter", "\n\n")])
    return (until,) if isinstance(until, str) else tuple(until)


def _extractor(chosen: Filter, normalize: Callable[[str], str]) -> Callable[[str], str | None]:
    """Return the answer of a text by a filter, normalized; None when the filter finds none."""

    def extract(text: str) -> str | None:
        position = chosen.find(text)
        return None if position is None else normalize(position)

    return extract


def _constant(text: str) -> Callable[[Item, Style], str]:
    """Return the description of every item. Raises: ValueError for a template, whose document is not known any more."""
    if "{{" in text or "{%" in text:
        raise ValueError(f"the description {text[:60]!r} is a template; only a constant description is supported")
    return lambda item, style: text


def _no_shots(item: Item, shots: Sequence[Item], count: int) -> list[Item]:
    if count:
        raise ValueError(
            f"item {item.task}/{item.item_id}: a loglikelihood task of lm-eval takes no examples here, not {count}"
        )
    return []
