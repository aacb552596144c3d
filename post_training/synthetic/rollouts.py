"""The stage `synthetic.rollouts`: one shard of the completions of a teacher, answered by all processes that build it.

A process that builds a shard claims units of its prompts (`post_training.synthetic.claims`) and commits when every unit has a
record, whoever made it. So further machines help by materializing the same partition.
"""

import io
import logging
import os
import socket
import uuid
from collections.abc import Sequence

import polars as pl

from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments import repository
from post_training.environments.prompt import Prompt
from post_training.environments.table import read_prompts
from post_training.synthetic.claims import Claims
from post_training.synthetic.spec import ShardConfig

log = logging.getLogger("post_training.synthetic")
ROLLOUTS_FILE = "rollouts.parquet"
FORMAT = "synthetic_rollouts/1"


def synthesize(out: Writer, config: ShardConfig, environment: Artifact, teacher: Artifact | None = None) -> None:
    """Write `rollouts.parquet` (`post_training.synthetic.teacher.SCHEMA`), in the order of prompts and samples.

    `teacher`: the checkpoint that the URL must serve; without it the teacher is known by its URL alone.
    Raises: ValueError if the URL serves another checkpoint, or a shard has no prompt.
    """
    from post_training.synthetic.agents import agent_rows
    from post_training.synthetic.teacher import SCHEMA, one_version, rows_of, served_version  # it loads JAX, unlike the graph

    prompts = prompts_of(config, environment)
    version = served_version(config.teacher, config.name, None if teacher is None else teacher.data_version)
    units = {
        f"unit-{first // config.unit_prompts:06d}": prompts[first : first + config.unit_prompts]
        for first in range(0, len(prompts), config.unit_prompts)
    }
    who = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:6]}"

    def answered(prompts: Sequence[Prompt]) -> pl.DataFrame:
        if config.teacher.form == "agent":
            return agent_rows(config, prompts, version, repository.folder_of(environment.input("raw")))
        return rows_of(config, prompts, version)

    claims = Claims(out.store.storage, out.spec.version, who, config.claim_seconds)
    names = list(units)
    recorded = claims.work(names, lambda unit: answered(units[unit]).write_ndjson())
    log.info("%s: %d of %d units by this process", out.spec.name, recorded, len(units))
    tables = [pl.read_ndjson(io.StringIO(text), schema=SCHEMA) for text in claims.sealed(names)]
    rows = pl.concat(tables)
    version = one_version(out.spec.name, version, rows.filter(pl.col("fault") == "")["teacher_version"])
    rows.write_parquet(out.folder / ROLLOUTS_FILE, compression="zstd")
    out.extra["synthetic"] = {
        "format": FORMAT,
        "teacher_model": config.teacher.model,
        "teacher_version": version,
        "teacher_known_by": "url" if teacher is None else "checkpoint",
        "tokens": int(rows["tokens"].sum()),
    }
    out.record(rows_in=len(prompts), rows_out=len(rows), tokens_out=int(rows["tokens"].sum()))


def prompts_of(config: ShardConfig, environment: Artifact) -> list[Prompt]:
    """Return the prompts of a shard: train prompts only, in the order of their ids. Raises: ValueError if there is none."""
    every = read_prompts(environment, "train")[: config.most_prompts]
    first, end = (len(every) * number // config.shards for number in (config.shard, config.shard + 1))
    if first == end:
        raise ValueError(
            f"{config.name}: shard {config.shard} of {config.shards} has no prompt; {environment.name} gives {len(every)}"
        )
    return every[first:end]


SYNTHETIC_ROLLOUTS = Stage(
    "synthetic.rollouts",
    "1",
    synthesize,
    description="Completions of a teacher for one shard of the prompts, a row each.",
    checks=("file_set",),
)
