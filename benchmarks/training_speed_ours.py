"""Our side of `training_speed.py`: the step of `trainer.step`, as a run takes it."""

import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from step_times import report_steps
from training_speed import SHAPES, run_spec

from trainer.batch import Batch
from trainer.model.build import init_model
from trainer.model.protocol import LanguageModel
from trainer.model.transformer import Transformer
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec
from trainer.step import compiled_step, initial_step_state, resolved_compute

WAYS = {
    "reference": ComputeConfig(attention="reference"),
    "xla": ComputeConfig(attention="xla"),
    "scanned": ComputeConfig(layers="scan"),
}
"""Other ways to compute than the automatic one, by what follows `ours_` in a side's name."""


def main(folder: Path, side: str) -> None:
    weights, tokens = np.load(folder / "weights.npz"), np.load(folder / "tokens.npy")
    _, batch, length = tokens.shape
    vocab = weights["embedding"].shape[0]
    shape = next(s for s in SHAPES.values() if (s.batch, s.model.max_seq_len, s.model.vocab_size) == (batch, length, vocab))
    spec = replace(run_spec(shape, len(tokens)), compute=WAYS.get(side.partition("_")[2], ComputeConfig()))
    train_and_report(spec, with_weights(init_model(spec.model, key=jax.random.PRNGKey(0)), weights), tokens)


def train_and_report(spec: RunSpec, model: LanguageModel, tokens: np.ndarray) -> None:
    """Train on tokens [steps, batch, sequence] from a model's weights, and print losses, times and the matrix product's."""
    state, step_fn, number = initial_step_state(spec, model), compiled_step(spec, model), 0

    def step(batch: np.ndarray) -> float:
        nonlocal state, number
        state, metrics = step_fn(state, Batch(batch), number)
        number += 1
        jax.block_until_ready(state)
        return float(metrics.loss)

    square = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(jnp.matmul)
    notes = "; ".join(resolved_compute(spec, model).notes)
    report_steps(step, tokens, lambda: product(square, square).block_until_ready(), f"jax {jax.__version__}, {notes}")


def with_weights(model: Transformer, weights: np.lib.npyio.NpzFile) -> Transformer:
    def places(model: Transformer) -> list:
        blocks = model.blocks.stacked
        attention, mlp = blocks.attention, blocks.mlp
        named = [model.embedding, attention.w_q, attention.w_k, attention.w_v, attention.w_o, mlp.w_gate, mlp.w_up, mlp.w_down]
        return [each.array for each in named]

    names = ("embedding", "q", "k", "v", "o", "gate", "up", "down")
    return eqx.tree_at(places, model, [jnp.asarray(weights[name]) for name in names])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
