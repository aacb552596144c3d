"""What the trainer offers other packages without JAX. `trainer.inference` is the same for what runs a model.

`evals` imports these two modules and no other of this package (tests/test_imports.py).
"""

from collections.abc import Mapping
from typing import Any

from trainer.plots import loss_curve_png
from trainer.spec.models import ModelConfig, read_config
from trainer.spec.stage import Weights, parse_step_partition, step_partition

__all__ = ["ModelConfig", "Weights", "loss_curve_png", "parse_step_partition", "step_partition", "training_flops_per_token"]


def training_flops_per_token(run: Mapping[str, Any], where: str) -> float:
    """FLOPs of training on one token under a recorded run spec. Raises: ValueError for an unknown model."""
    return read_config(run["model"], f"{where}.model").training_flops_per_token(run["seq_len"])
