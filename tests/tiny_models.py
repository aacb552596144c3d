"""Random models for tests, drawn with numpy: `init_model` compiles a program for each config (1.5 to 2.5 CPU s)."""

import jax
import jax.numpy as jnp
import numpy as np

from trainer.model.build import model_shapes
from trainer.model.transformer import Transformer
from trainer.spec.models import ModelConfig


def quick_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model that knows nothing yet, made without compiling: norms of one, a bias of zero, the rest normal.

    It is a function of config and seed. `init_model` draws other numbers and scales what writes to the residual stream.
    """
    rng = np.random.default_rng(seed)

    def drawn(path: tuple, shape: jax.ShapeDtypeStruct) -> jax.Array:
        fields = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
        if fields[-1] == "bias":
            return jnp.zeros(shape.shape, shape.dtype)
        if fields[-1] == "weight" and "norm" in fields[-2]:
            return jnp.ones(shape.shape, shape.dtype)
        return jnp.asarray(rng.normal(0, config.initializer_range, shape.shape), shape.dtype)

    return jax.tree_util.tree_map_with_path(drawn, model_shapes(config))


def noisy_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model with all arrays far from their initial values, norms included, where mistakes show. It compiles nothing."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda shape: jnp.asarray(rng.normal(0.2, 0.6, shape.shape), shape.dtype), model_shapes(config))
