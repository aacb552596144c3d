"""The table of prompts of an environment, format `environment/1`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

import polars as pl

from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Split

FORMAT = "environment/1"
PROMPTS_FILE = "prompts.parquet"
SCHEMA = {"prompt_id": pl.String, "split": pl.String, "text": pl.String, "answer": pl.String, "task": pl.String}


def write_prompts(out: Writer, prompts: Iterable[Prompt]) -> None:
    """Write the prompts sorted by id. Raises: ValueError for an id that occurs twice, an empty text, or a split without
    prompts."""
    ordered = sorted(prompts, key=lambda prompt: prompt.prompt_id)
    twice = [name for name, count in Counter(prompt.prompt_id for prompt in ordered).items() if count > 1]
    if twice:
        raise ValueError(f"{out.spec.name}: the prompt id {twice[0]!r} occurs twice; ids must be unique")
    empty = [prompt.prompt_id for prompt in ordered if not prompt.text]
    if empty:
        raise ValueError(f"{out.spec.name}: prompt {empty[0]!r} has an empty text")
    counts = Counter(prompt.split for prompt in ordered)
    for split in ("train", "held_out"):
        if not counts[split]:
            raise ValueError(f"{out.spec.name}: no prompt is in the split {split}; change held_out_share or add prompts")
    pl.DataFrame([asdict(prompt) for prompt in ordered], schema=SCHEMA).write_parquet(
        out.folder / PROMPTS_FILE, compression="zstd"
    )
    out.facts["environment"] = {
        "format": FORMAT,
        "stage": out.spec.stage,
        "verifier": out.spec.stage_version,
        "train": counts["train"],
        "held_out": counts["held_out"],
    }
    out.record(rows_out=len(ordered))


def read_prompts(environment: Artifact, split: Split) -> list[Prompt]:
    """Read the prompts of one split, sorted by id. Raises: ValueError for an artifact of another kind."""
    facts = environment.manifest.extra.get("environment")
    if facts is None or facts.get("format") != FORMAT:
        raise ValueError(f"{environment.name} has no prompts of format {FORMAT}; it was made by {environment.spec.stage}")
    table = pl.read_parquet(environment.file(PROMPTS_FILE)).filter(pl.col("split") == split)
    return [Prompt(**row) for row in table.iter_rows(named=True)]
