"""Prompts and rollouts as documents in the data engine's format, so that `datakit.contamination` can mark them.

The text of a prompt is the prompt with its answer; that of a rollout is the prompt with the completion. Equal texts are one
document: `origins.parquet` lists every rollout of it and the steps that trained on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from datakit.documents.parts import write_sorted_parts
from datakit.documents.schemas import DOCUMENT_SCHEMA, ID, METADATA, SOURCE, TEXT
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from post_training.environments.table import read_prompts
from post_training.order import steps_of_rows
from post_training.stage import REWARD_CHECKPOINT, ROLLOUTS_FILE, RewardCheckpointConfig, parse_iteration

DOCUMENTS = "documents"
ORIGINS_FILE = "origins.parquet"
ORIGINS_SCHEMA = {
    "id": pl.String,
    "prompt_id": pl.String,
    "iteration": pl.Int64,
    "row": pl.Int64,
    "steps": pl.List(pl.Int64),
    "verdict": pl.String,
    "used": pl.Boolean,
}
"""A row for each rollout. `steps` are the updates that read it, one for each inner epoch; empty for a masked rollout."""


@dataclass(frozen=True)
class TextsConfig:
    """Nothing to choose: the documents follow from the input."""


def prompt_texts(out: Writer, config: TextsConfig, environment: Artifact) -> None:
    """Write a document for every prompt with its answer, of both splits."""
    prompts = [prompt for split in ("train", "held_out") for prompt in read_prompts(environment, split)]
    table = pl.DataFrame(
        {"prompt_id": [each.prompt_id for each in prompts], TEXT: [each.text + each.answer for each in prompts]},
        schema={"prompt_id": pl.String, TEXT: pl.String},
    )
    _write(out, environment.name, _with_ids(table))


def rollout_texts(out: Writer, config: TextsConfig, checkpoint: Artifact) -> None:
    """Write a document for every distinct rollout that the checkpoint learned from, and `origins.parquet`.

    Raises: ValueError if a rollout shard is missing, or is not the one that the checkpoint lists.
    """
    run = from_jsonable(RewardCheckpointConfig, checkpoint.spec.config)
    environment = checkpoint.input("environment")
    prompt_texts = {each.prompt_id: each.text for each in read_prompts(environment, "train")}
    tables = [pl.DataFrame(schema=ORIGINS_SCHEMA | {TEXT: pl.String})]
    for shard in shards_of(checkpoint):
        iteration = parse_iteration(str(shard.spec.partition).rpartition(".")[2])
        table = pl.read_parquet(shard.file(ROLLOUTS_FILE), columns=["prompt_id", "row", "text", "verdict", "used"])
        texts = [prompt_texts[name] + text for name, text in table.select("prompt_id", "text").iter_rows()]
        steps = pl.Series("steps", steps_of_rows(run, iteration).T.tolist(), dtype=pl.List(pl.Int64))
        read = table.with_columns(pl.Series(TEXT, texts, dtype=pl.String), steps, iteration=pl.lit(iteration, pl.Int64))
        learned = pl.when("used").then("steps").otherwise(pl.lit([], dtype=pl.List(pl.Int64)))
        tables.append(_with_ids(read.with_columns(steps=learned)).select(*ORIGINS_SCHEMA, TEXT))
    every = pl.concat(tables)
    _write(out, checkpoint.name, every)
    origins = every.select(ORIGINS_SCHEMA.keys()).sort("id", "iteration", "row")
    origins.write_parquet(out.folder / ORIGINS_FILE, compression="zstd")


def shards_of(checkpoint: Artifact) -> Iterator[Artifact]:
    """Return the rollout shards that a checkpoint learned from, in the order of their iterations.

    Raises: ValueError naming one that the store no longer has with these bytes.
    """
    if checkpoint.spec.stage != REWARD_CHECKPOINT.name:
        raise ValueError(f"{checkpoint.name} was made by {checkpoint.spec.stage}; only {REWARD_CHECKPOINT.name} has rollouts")
    key = (*checkpoint.spec.key[:-1], "rollouts")
    listed = checkpoint.manifest.extra["checkpoint"]["rollouts"]
    there = {(each.spec.partition, each.data_version): each for each in checkpoint.store.artifacts(*key)}
    for partition, data_version in sorted(listed.items()):
        shard = there.get((partition, data_version))
        if shard is None:
            raise ValueError(
                f"{checkpoint.name} learned from {'/'.join(key)}[{partition}] of data version {data_version}, which is not in "
                f"{checkpoint.store.root}; restore it"
            )
        yield shard


def _with_ids(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.Series(ID, [text_digest(text) for text in table[TEXT]], dtype=pl.String))


def _write(out: Writer, source: str, table: pl.DataFrame) -> None:
    """Write the distinct texts; the metadata of each names one prompt."""
    distinct = table.unique(ID, keep="first", maintain_order=True)
    named = distinct.select(
        ID,
        TEXT,
        pl.lit(source).alias(SOURCE),
        pl.struct(source_id="prompt_id").struct.json_encode().alias(METADATA),
    )
    write_sorted_parts(out.folder, DOCUMENTS, named, schema=DOCUMENT_SCHEMA)
    out.extra["documents"] = {"domain": "rewards"}
    out.record(rows_in=len(table), rows_out=len(distinct), drops={"equal text": len(table) - len(distinct)})


PROMPT_TEXTS = Stage(
    "post_training.prompt_texts",
    "1",
    prompt_texts,
    description="Every prompt of an environment with its answer, as a document to be marked.",
    checks=("rows_conserved", "file_set", "documents_valid"),
)
ROLLOUT_TEXTS = Stage(
    "post_training.rollout_texts",
    "1",
    rollout_texts,
    description="Every distinct rollout that a checkpoint learned from, as a document to be marked, and where it came from.",
    checks=("rows_conserved", "file_set", "documents_valid"),
)
