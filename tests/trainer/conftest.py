"""Fixtures of the trainer's tests."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def quickly(quick_compilation: None) -> None:
    """All tests of the trainer compile quickly."""
