"""Our sides of `moe_speed.py`: the step of `trainer.step`, as a run takes it."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from moe_speed import model_of, run_spec, shapes
from step_times import report_steps

from trainer.batch import Batch
from trainer.model.build import init_model
from trainer.step import compiled_step, initial_step_state, resolved_compute


def main(folder: Path, side: str, shape: str) -> None:
    tokens, given = np.load(folder / "tokens.npy"), shapes()[shape]
    spec = run_spec(model_of(given, side), given.batch, len(tokens))
    model = init_model(spec.model, key=jax.random.PRNGKey(0))
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
