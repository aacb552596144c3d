"""Published models as assets: the model in our form and as an export, and its scores on the suites, one partition a
task.
"""

from collections.abc import Iterator
from dataclasses import replace

from evals.items.stage import TEXT_KINDS
from lineage.build.nodes import Node
from marin_assets.data import of_sources
from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate, Invariant
from marin_assets.runs import CANARY, EVAL_MATERIAL, SCORES, SPECIALS, TERMINATES
from partitions.axes import tasks
from recipes import data
from recipes.models import PublishedModel, imported, model_tokenizer
from recipes.records.run import Run
from recipes.runs import eval_tasks, model_scores, published_export_canary, published_hf_model


def model_assets(model: PublishedModel, run: Run) -> Iterator[AssetTemplate]:
    """Return the model, and its scores on the tasks of a run's suites (held-out text belongs to runs and is left out)."""
    chosen = {task.name: task for task in eval_tasks(run) if task.kind not in TEXT_KINDS}

    def score(partition: str | None) -> Node:
        return model_scores(model, run, chosen[str(partition)])

    yield _of_model(
        imported(model), f"`{model.name}` in our form, with its own tokenizer. What it read before is not known here.", FILES
    )
    yield of_sources(data.raw, (model.source,))
    tokenizer = _of_model(
        model_tokenizer(model), f"The tokenizer of `{model.name}`: caches bind it.", FILES, ("json", "huggingface")
    )
    yield replace(tokenizer, group="tokens")
    yield _of_model(
        published_hf_model(model), "The model as a folder that transformers opens, with its own tokenizer's files.", FILES
    )
    canary = _of_model(published_export_canary(model), CANARY, SPECIALS, kinds=("jax", "huggingface"))
    yield replace(canary, advisories=(TERMINATES,))
    yield AssetTemplate(
        example=model_scores(model, run, next(iter(chosen.values()))),
        node_at=lambda lab, partition: score(partition),
        node=score,
        store_of=lambda lab: lab.store,
        group="models",
        description="Scores with 95 % intervals and per-item records of one task.",
        kinds=frozenset({"jax", "parquet"}),
        partitions_def=tasks(list(chosen)),
        invariants=(SCORES,),
        builds_inputs=EVAL_MATERIAL,
    )


def _of_model(
    node: Node, description: str, promise: Invariant, kinds: tuple[str, ...] = ("safetensors", "huggingface")
) -> AssetTemplate:
    """Return a single asset that depends on the model alone."""
    return AssetTemplate(
        example=node,
        node_at=lambda lab, partition: node,
        node=lambda partition: node,
        store_of=lambda lab: lab.store,
        group="models",
        description=description,
        kinds=frozenset(kinds),
        invariants=(promise,),
    )
