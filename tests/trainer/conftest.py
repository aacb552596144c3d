"""Fixtures of the trainer's tests."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Programs of this process are compiled with few optimizations: most run once, and compiling was most of their time.

    Jobs that tests start, and with them everything that is compared bit for bit between processes, compile as users' do.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
