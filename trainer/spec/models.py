"""Configs of all model families, as a sum type that JSON distinguishes by `kind`. Llama, the first family, has none.

The other tables by family are `trainer.model.build` (parameters and computation) and `trainer.hf.convert` (published form).
"""

from typing import Any, cast

from lineage.config import from_jsonable
from trainer.spec.llama import LlamaConfig
from trainer.spec.moe import MoeConfig
from trainer.spec.olmo2 import Olmo2Config

type ModelConfig = LlamaConfig | Olmo2Config | MoeConfig


def read_config(value: object, where: str) -> ModelConfig:
    """A model's config from JSON. Raises: ValueError naming the place, the value and what is allowed."""
    return cast("ModelConfig", from_jsonable(cast("Any", ModelConfig), value, where))


def no_array_fields() -> tuple[str, ...]:
    """Fields of any family that change what a model computes and that the shapes of its arrays do not show."""
    members = (LlamaConfig, Olmo2Config, MoeConfig)
    return tuple(dict.fromkeys(name for member in members for name in member.NO_ARRAY_FIELDS))
