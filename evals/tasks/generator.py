"""Text generation: the interface that generative tasks use, and our server's engine behind it.

The engine is that of `python -m serving.server`, in this process and without HTTP: continuous batching, cached prefixes for the
examples that every prompt of a task begins with, and greedy choice, so a checkpoint gives one text for a prompt.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from lineage.artifact.store import Artifact
from serving.server.engine import Engine, EngineSettings
from serving.server.loaded_model import LoadedModel, open_served
from serving.server.metrics import Metrics
from serving.server.sampling import Sampling
from serving.server.scheduler import Scheduler
from serving.server.sequence import Delta, GenerationRequest


@dataclass(frozen=True)
class Generated:
    """The generated text, why it ended, and how many tokens of the prompt did not fit."""

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int
    truncated_tokens: int


class TextGenerator(Protocol):
    """A model that continues prompts."""

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        """Continue every prompt greedily up to a stop or `max_tokens`; in the order of the prompts."""
        ...

    def sample(
        self,
        prompts: Sequence[str],
        stops: Sequence[str],
        max_tokens: int,
        sampling: Sampling,
        count: int,
        seeds: Sequence[int],
    ) -> list[list[Generated]]:
        """Sample `count` continuations of every prompt, each prompt with its own seed; in the order of the prompts."""
        ...


@dataclass
class _Pending:
    """Deltas of one continuation, delivered by the scheduler's thread."""

    truncated_tokens: int
    pieces: list[str] = field(default_factory=list)
    num_tokens: int = 0
    finish: Literal["stop", "length"] | None = None
    fault: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def take(self, delta: Delta | BaseException) -> None:
        if isinstance(delta, BaseException):
            self.fault = delta
            self.ended.set()
            return
        self.pieces.append(delta.text)
        self.num_tokens += delta.generated
        if delta.finish is not None:
            self.finish = delta.finish
            self.ended.set()

    def wait(self) -> Generated:
        self.ended.wait()
        if self.fault is not None:
            raise self.fault
        assert self.finish is not None
        return Generated("".join(self.pieces), self.finish, self.num_tokens, self.truncated_tokens)


@dataclass(frozen=True)
class EngineGenerator:
    """A checkpoint behind the server's scheduler."""

    served: LoadedModel
    scheduler: Scheduler

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        """Generate. Raises: ValueError if `max_tokens` leaves no room for a prompt; the scheduler's exception if it fails."""
        return [texts[0] for texts in self.sample(prompts, stops, max_tokens, Sampling(0.0), 1, [0] * len(prompts))]

    def sample(
        self,
        prompts: Sequence[str],
        stops: Sequence[str],
        max_tokens: int,
        sampling: Sampling,
        count: int,
        seeds: Sequence[int],
    ) -> list[list[Generated]]:
        """Sample. Raises: as `generate`."""
        room = self.served.config.max_seq_len + 1 - max_tokens
        if room < 2:
            raise ValueError(
                f"max_new_tokens is {max_tokens}; a context of {room + max_tokens - 1} leaves no room for a prompt"
            )
        asks, pending = [], []
        encodings = self.served.tokenizer.encode_batch_fast(list(prompts), add_special_tokens=False)
        for encoded, seed in zip(encodings, seeds, strict=True):
            kept = encoded.ids[max(0, len(encoded.ids) - (room - 1)) :]
            prompt = (self.served.start_token, *kept)
            ends = {"stops": tuple(stops), "end_tokens": self.served.end_tokens, "samples": count}
            pending += [_Pending(len(encoded.ids) - len(kept)) for _ in range(count)]
            asks += [GenerationRequest(prompt, max_tokens, sampling, seed, sample=i, **ends) for i in range(count)]
        samples = _answered(self.scheduler, asks, pending)
        return [samples[first : first + count] for first in range(0, len(samples), count)]


def sampling_from(served: LoadedModel, count: int, max_tokens: int, seed: int) -> list[Generated]:
    """Sample texts from a document's start at temperature 1; text `i` has the seed `seed + i`."""
    start, ends = (served.end_token,), served.end_tokens  # in training a document follows the end of another
    asks = [GenerationRequest(start, max_tokens, Sampling(), seed + i, end_tokens=ends) for i in range(count)]
    with scheduling(served) as scheduler:
        return _answered(scheduler, asks, [_Pending(0) for _ in asks])


@contextmanager
def open_generator(checkpoint: Artifact, tokenizer: Artifact) -> Iterator[EngineGenerator]:
    """Open a generator over a committed checkpoint; its thread ends with the context."""
    served = open_served(checkpoint, tokenizer)
    with scheduling(served) as scheduler:
        yield EngineGenerator(served, scheduler)


def _answered(scheduler: Scheduler, asks: list[GenerationRequest], pending: list[_Pending]) -> list[Generated]:
    scheduler.submit(asks, lambda i: pending[i].take)
    return [each.wait() for each in pending]


@contextmanager
def scheduling(served: LoadedModel) -> Iterator[Scheduler]:
    """Run a scheduler over a model; its thread ends with the context."""
    scheduler = Scheduler(Engine(served.model, served.config, EngineSettings()), served.tokenizer, Metrics(), 1 << 20)
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.stop()
