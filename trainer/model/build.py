"""A model from its config: the table of families for what needs JAX."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray, PyTree

from trainer.model.llama import init_llama
from trainer.model.moe import init_moe
from trainer.model.olmo2 import init_olmo2
from trainer.model.transformer import Transformer
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.moe import MoeConfig
from trainer.spec.olmo2 import Olmo2Config


def init_model(config: ModelConfig, *, key: PRNGKeyArray) -> Transformer:
    """A model with random parameters, a function of config and key alone; a `trainer.model.protocol.LanguageModel`."""
    match config:
        case LlamaConfig():
            return init_llama(config, key=key)
        case MoeConfig():
            return init_moe(config, key=key)
        case Olmo2Config():
            return init_olmo2(config, key=key)


def model_shapes(config: ModelConfig) -> PyTree:
    """The model with shapes in place of arrays; nothing is allocated."""
    return eqx.filter_eval_shape(init_model, config, key=jax.random.PRNGKey(0))
