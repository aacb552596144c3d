"""What the row-tiled loss gains: one gradient of the ferry's model, against the same model with full logits.

    PYTHONPATH=. .venv/bin/python benchmarks/cross_entropy.py --pairs 5

Both sides are compiled once, then timed in alternating order; temporary memory is XLA's own account of the compiled program.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from recipes.smoke import smoke_spec
from trainer.model.build import init_model
from trainer.model.transformer import Transformer
from trainer.objectives import next_token_loss


def full_logits_loss(model: Transformer, tokens: jax.Array, z_loss_weight: float) -> tuple[jax.Array, jax.Array]:
    """The obvious loss: the peer."""
    logits = model(tokens[:, :-1])
    log_z = jax.nn.logsumexp(logits, axis=-1)
    loss = (log_z - jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]).mean()
    return loss + z_loss_weight * jnp.square(log_z).mean(), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    spec = smoke_spec(8192)
    model = init_model(spec.model, key=jax.random.PRNGKey(0))
    tokens = np.random.default_rng(0).integers(0, spec.model.vocab_size, (spec.batches.size(0), spec.seq_len)).astype(np.int32)
    dynamic, static = eqx.partition(model, eqx.is_inexact_array)
    sides = {}
    for name, loss in (("tiled", next_token_loss), ("full", full_logits_loss)):
        gradient = jax.value_and_grad(lambda p, t, loss=loss: loss(eqx.combine(p, static), t, spec.z_loss_weight), has_aux=True)
        compiled = jax.jit(gradient).lower(dynamic, tokens).compile()
        sides[name] = compiled
        mib = compiled.memory_analysis().temp_size_in_bytes / 2**20
        print(f"{name}: {mib:.0f} MiB of temporary memory")
    ratios = []
    for pair in range(options.pairs):
        order = ("tiled", "full") if pair % 2 == 0 else ("full", "tiled")
        seconds = {name: _seconds(lambda name=name: sides[name](dynamic, tokens), options.repeats) for name in order}
        ratios.append(seconds["full"] / seconds["tiled"])
        full, tiled = seconds["full"] * 1e3, seconds["tiled"] * 1e3
        print(f"pair {pair}: full {full:.0f} ms, tiled {tiled:.0f} ms, ratio {ratios[-1]:.2f}")
    print(f"tiled is {statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f}) over {len(ratios)} pairs")


def _seconds(call: Callable[[], object], repeats: int) -> float:
    jax.block_until_ready(call())
    started = time.perf_counter()
    for _ in range(repeats):
        jax.block_until_ready(call())
    return (time.perf_counter() - started) / repeats


if __name__ == "__main__":
    main()
