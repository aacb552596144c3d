"""Levanter's side of `training_speed.py`, in an environment with marin-levanter: its model, its loss, its optimizer."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from haliax.nn.scan import BlockSeq
from levanter.models.llama import LlamaConfig, LlamaLMHeadModel
from levanter.models.lm_model import LmExample
from levanter.optim.config import AdamConfig
from step_times import report_steps

AXES = {
    "embedding": ("vocab", "embed"),
    "q": ("layer", "embed", "kv_head", "q_heads_per_group", "head_size"),
    "k": ("layer", "embed", "kv_head", "head_size"),
    "v": ("layer", "embed", "kv_head", "head_size"),
    "o": ("layer", "heads", "head_size", "embed"),
    "gate": ("layer", "embed", "mlp"),
    "up": ("layer", "embed", "mlp"),
    "down": ("layer", "mlp", "embed"),
}


def main(folder: Path, side: str) -> None:
    shape, tokens = json.loads((folder / "shape.json").read_text()), np.load(folder / "tokens.npy")
    names = ("max_seq_len", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
    config = LlamaConfig(
        **{name: shape[name] for name in names},
        layer_norm_epsilon=shape["norm_eps"],
        tie_word_embeddings=True,
        gradient_checkpointing=side == "levanter_as_shipped",
        scan_layers=side != "levanter_unrolled",
    )
    model = LlamaLMHeadModel.init(hax.Axis("vocab", shape["vocab_size"]), config, key=jax.random.PRNGKey(0))
    model = with_weights(model, dict(np.load(folder / "weights.npz")))
    rule = AdamConfig(
        learning_rate=shape["learning_rate"], weight_decay=shape["weight_decay"], beta1=shape["beta1"], beta2=shape["beta2"],
        epsilon=shape["eps"], max_grad_norm=shape["max_grad_norm"], lr_schedule="constant", warmup=0, min_lr_ratio=1.0,
    ).build(len(tokens))  # fmt: skip
    batch_axis, position = hax.Axis("batch", shape["batch"]), model.Pos

    def loss_of(trainable: LlamaLMHeadModel, tokens: jax.Array) -> jax.Array:
        model = eqx.combine(trainable, static)
        examples = hax.vmap(LmExample.causal, batch_axis)(hax.named(tokens, (batch_axis, position)))
        return model.compute_next_token_loss(examples, key=None).scalar()

    def step_fn(trainable: LlamaLMHeadModel, state: optax.OptState, tokens: jax.Array):
        loss, gradients = eqx.filter_value_and_grad(loss_of)(trainable, tokens)
        updates, state = rule.update(gradients, state, params=trainable)
        return eqx.apply_updates(trainable, updates), state, loss

    trainable, static = eqx.partition(model, eqx.is_inexact_array)
    state, compiled = rule.init(trainable), jax.jit(step_fn, donate_argnums=(0, 1))

    def step(batch: np.ndarray) -> float:
        nonlocal trainable, state
        trainable, state, loss = compiled(trainable, state, batch)
        jax.block_until_ready((trainable, state))
        return float(loss)

    square = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(jnp.matmul)
    versions = f"marin-levanter {version('marin-levanter')}, jax {jax.__version__}"
    report_steps(step, tokens, lambda: product(square, square).block_until_ready(), versions)


def with_weights(model: LlamaLMHeadModel, weights: dict[str, np.ndarray]) -> LlamaLMHeadModel:
    """The model with given weights, each laid out as the model's own array is."""
    layers, kv_heads, group, size, d = weights["o"].shape
    weights["o"] = weights["o"].reshape(layers, kv_heads * group, size, d)

    def blocks_of(model: LlamaLMHeadModel) -> list:
        layers = model.transformer.layers
        return list(layers.blocks) if isinstance(layers, BlockSeq) else [layers.stacked]

    def places(model: LlamaLMHeadModel) -> list:
        of_blocks = []
        for block in blocks_of(model):
            attention, mlp = block.self_attn, block.mlp
            linear = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
            of_blocks += [each.weight for each in (*linear, mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
        return [model.embeddings.token_embeddings.weight, *of_blocks]

    named = {name: hax.named(jnp.asarray(weights[name]), axes) for name, axes in AXES.items()}
    of_layers = [array for name, array in named.items() if name != "embedding"]
    if isinstance(model.transformer.layers, BlockSeq):
        of_layers = [array["layer", number] for number in range(layers) for array in of_layers]
    given = [named["embedding"], *of_layers]
    laid = [new.rearrange([axis.name for axis in old.axes]) for new, old in zip(given, places(model), strict=True)]
    return eqx.tree_at(places, model, laid, is_leaf=lambda leaf: isinstance(leaf, hax.NamedArray))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
