"""Float32 that is float32: scores, decoding and comparisons with other libraries mean the same on every machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def exact_float32() -> Iterator[None]:
    """Products of float32 arrays that are traced in the block are computed in float32.

    By default they are TF32 on GPUs and one bfloat16 pass on TPUs, which moves logits by more than 1e-4. A CPU computes them in
    float32 anyway, so nothing changes there. It is a decorator too.
    """
    if jax.default_backend() == "cpu":
        yield
        return
    with jax.default_matmul_precision("highest"):
        yield
