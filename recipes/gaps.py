"""Perplexity gaps that the lab keeps: two checkpoints and the held-out text on which they are compared.

A gap is `gaps/<name>`; above zero the text is harder for the second checkpoint (docs/recipes/add_an_eval_suite.md).
"""

from dataclasses import dataclass

from evals.items.stage import GAP, GapConfig
from lineage.build.nodes import Node
from recipes.data import corpora
from recipes.models import PublishedModel, imported, model_tokenizer
from recipes.records.run import Run
from recipes.runs import checkpoint
from recipes.tokenized import tokenizer


@dataclass(frozen=True)
class Side:
    """A checkpoint with its tokenizer."""

    checkpoint: Node
    tokenizer: Node


@dataclass(frozen=True)
class Gap:
    """Two checkpoints, and the run whose held-out text they score."""

    name: str
    first: Side
    second: Side
    text: Run


def at_step(run: Run, step: int) -> Side:
    """A declared run at a saved step."""
    return Side(checkpoint(run, step), tokenizer(run.tokens))


def published(model: PublishedModel) -> Side:
    """A published model with its tokenizer."""
    return Side(imported(model), model_tokenizer(model))


def gap_node(gap: Gap) -> Node:
    """The gap as an artifact."""
    inputs = {
        "first": gap.first.checkpoint,
        "second": gap.second.checkpoint,
        "first_tokenizer": gap.first.tokenizer,
        "second_tokenizer": gap.second.tokenizer,
        "corpora": corpora(gap.text.corpus),
    }
    return Node(("gaps", gap.name), None, GAP, GapConfig(), inputs, gap.text.evaluation.hardware)
