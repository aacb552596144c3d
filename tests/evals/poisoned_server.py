"""`python -m poisoned_server`: the model server, whose engine fails at the prompt `POISON`, as a device out of memory does."""

import runpy
from collections.abc import Sequence

from serving.server.engine import Engine

POISON = "x" * 16
"""A byte is a token of the tests' model, and no other prompt repeats one token so often."""


def main() -> None:
    """Start the server with the fault in place."""
    prefill = Engine.prefill

    def failing(engine: Engine, lane: int, row: int, tokens: Sequence[int], start: int, key: bytes | None):
        if len(tokens) >= len(POISON) and len(set(tokens[-len(POISON) + 1 :])) == 1:
            raise MemoryError("RESOURCE_EXHAUSTED: out of memory (injected)")
        return prefill(engine, lane, row, tokens, start, key)

    Engine.prefill = failing  # pyrefly: ignore
    runpy.run_module("serving.server", run_name="__main__")


if __name__ == "__main__":
    main()
