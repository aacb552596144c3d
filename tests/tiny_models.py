"""Random models for tests, made by one compiled program or none: operation by operation, a small mixture compiles a hundred."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from trainer.model.build import init_model, model_shapes
from trainer.model.transformer import Transformer
from trainer.spec.models import ModelConfig

_init = eqx.filter_jit(init_model)


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A new model with random parameters, a function of config and seed. A step may donate its arrays."""
    return _init(config, key=jax.random.PRNGKey(seed))


def noisy_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model with all arrays far from their initial values, norms included, where mistakes show. It compiles nothing."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda shape: jnp.asarray(rng.normal(0.2, 0.6, shape.shape), shape.dtype), model_shapes(config))
