"""Columns of the accepted rows of a synthetic set: `post_training.synthetic.accepted` writes them, the ledger reads them."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

ACCEPTED_FILE = "accepted.parquet"
ACCEPTED_SCHEMA: Mapping[str, type[pl.DataType]] = MappingProxyType(
    {
        "rollout": pl.String,
        "prompt_id": pl.String,
        "shard": pl.String,
        "environment": pl.String,
        "verifier": pl.String,
        "teacher_model": pl.String,
        "teacher_version": pl.String,
        "detail": pl.String,
        "grade": pl.Int64,
    }
)
"""`shard` and `environment` are addresses of artifacts. `verifier` is the stage and version whose verifier accepted the row,
`judge <model>` if a judge alone did. `grade` is null without a judge."""
