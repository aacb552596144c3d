"""Continuous batching: one thread advances all sequences step by step and admits new ones between steps.

Weights are replaced between sequences: after `swap` is called, only begun requests get rows, until all of them have ended.

In a step, waiting sequences get free rows of their lane. Each sequence that is still in its prompt computes one block (cached
blocks are free). Then each lane decodes one token for all its rows at once.
"""

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import jax
import numpy as np
from tokenizers import Tokenizer

from serving.server.engine import Engine
from serving.server.metrics import Metrics
from serving.server.prefix import block_keys
from serving.server.sequence import Delta, FaultError, GenerationRequest, Sequence, StoppedError, Submission, TokenScore
from serving.server.versions import WeightsVersion
from trainer.inference import Decoder

log = logging.getLogger(__name__)

type Deliver = Callable[[Delta | BaseException], None]

MOST_WAITING = 1024
NO_NUMBERS = "the model's log-probabilities are not numbers"


class QueueFullError(RuntimeError):
    """As many sequences wait as the server allows."""


@dataclass(frozen=True)
class Swap:
    """Weights that wait until the begun requests end; `done` is set when the engine has them."""

    model: Decoder
    weights: WeightsVersion
    done: Future[None] = field(default_factory=Future)


@dataclass
class Scheduler:
    """Owns the engine and its thread. `submit` and `cancel` may be called from any thread."""

    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics
    max_waiting: int = MOST_WAITING
    on_fault: Callable[[BaseException], None] = lambda fault: None
    """Called in the scheduler's thread after all sequences have failed."""
    waiting: deque[Sequence] = field(default_factory=deque)
    active: list[Sequence] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: bool = False
    swaps: deque[Swap] = field(default_factory=deque)
    fault: BaseException | None = None
    suspects: list[Sequence] = field(default_factory=list)
    """Sequences of the current step, one of which causes a fault."""
    thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        if self.max_waiting < 1:
            raise ValueError(f"max_waiting is {self.max_waiting}; it must be at least 1")

    def start(self) -> None:
        self.metrics.replaced(self.engine.weights)
        self.thread = threading.Thread(target=self._run, name="serve-scheduler", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the thread after the current step; unfinished sequences get `StoppedError`."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        if self.thread is not None:
            self.thread.join()

    @property
    def alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive() and not self.closing

    def submit(self, asks: list[GenerationRequest], deliver: Callable[[int], Deliver]) -> list[Sequence]:
        """Queue prompts together; `deliver(i)` receives the deltas of prompt `i`.

        Raises: QueueFullError, StoppedError, NoRoomError.
        """
        now = time.monotonic()
        submission = Submission()
        sequences = [Sequence(ask, deliver(i), self.tokenizer, now, submission) for i, ask in enumerate(asks)]
        block = self.engine.settings.block_tokens
        for sequence in sequences:
            sequence.lane = self.engine.lane_for(len(sequence.ask.prompt) + max(sequence.ask.max_tokens - 1, 0))
            shared = sequence.ask.samples > 1
            sequence.keys = block_keys(np.asarray(sequence.ask.prompt), block, sequence.lane, incomplete=shared)
        with self.changed:
            if not self.alive:
                raise StoppedError(f"the scheduler does not run: {self.fault or 'it was stopped'}")
            for lane in sorted({sequence.lane for sequence in sequences}):
                self.engine.reserve(lane)
            if len(self.waiting) + len(sequences) > self.max_waiting:
                raise QueueFullError(
                    f"{len(self.waiting)} sequences wait and {len(sequences)} were added; at most {self.max_waiting} may wait"
                )
            self.waiting.extend(sequences)
            self.changed.notify()
        return sequences

    def swap(self, model: Decoder, weights: WeightsVersion) -> Future[None]:
        """Use other weights as soon as no begun request is left; the future ends then. Its exception: StoppedError."""
        swap = Swap(model, weights)
        with self.changed:
            if self.alive:
                self.swaps.append(swap)
                self.changed.notify()
            else:
                swap.done.set_exception(StoppedError(f"the scheduler does not run: {self.fault or 'it was stopped'}"))
        return swap.done

    def cancel(self, sequences: list[Sequence]) -> None:
        """Cancel sequences; their rows are free at the next step."""
        for sequence in sequences:
            sequence.cancelled = True

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._step()
            self._end_all("the server is shutting down", [])
        except BaseException as fault:  # reported to every client, /health, the log and the starter
            log.exception("the scheduler stopped")
            self.fault = fault
            self._end_all(f"the scheduler failed: {fault!r}", self.suspects or [*self.active, *self.waiting])
            self.on_fault(fault)

    def _wait_for_work(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.closing or self.waiting or self.active or self.swaps)
            self._admit()
            while self.swaps and not self.active:
                swap = self.swaps.popleft()
                if swap.done.set_running_or_notify_cancel():
                    self.engine.replace(swap.model, swap.weights)
                    self.metrics.replaced(swap.weights)
                    swap.done.set_result(None)
                self._admit()
            return not self.closing

    def _end_all(self, reason: str, suspects: list[Sequence]) -> None:
        with self.changed:
            self.closing = True
            left = [*self.active, *self.waiting]
            self.active.clear()
            self.waiting.clear()
            swaps = list(self.swaps)
            self.swaps.clear()
        for swap in swaps:
            if swap.done.set_running_or_notify_cancel():
                swap.done.set_exception(StoppedError(reason))
        for sequence in left:
            sequence.deliver(FaultError(reason) if sequence in suspects else StoppedError(reason))

    def _admit(self) -> None:
        """Give free rows to the longest waiting sequences of each lane; a full lane does not block others.

        While weights wait, only sequences of begun requests get rows.
        """
        taken: dict[int, set[int]] = defaultdict(set)
        for sequence in self.active:
            taken[sequence.lane].add(sequence.row)
        still: deque[Sequence] = deque()
        for sequence in self.waiting:
            free = set(range(self.engine.settings.rows)) - taken[sequence.lane]
            if sequence.cancelled:
                self.metrics.cancelled.inc()
            elif free and (sequence.submission.begun or not self.swaps):
                sequence.submission.begun = True
                sequence.weights = self.engine.weights
                sequence.row = min(free)
                taken[sequence.lane].add(sequence.row)
                self.active.append(sequence)
            else:
                still.append(sequence)
        self.waiting = still
        self.metrics.waiting.set(len(self.waiting))

    def _step(self) -> None:
        for sequence in self.active:
            if sequence.in_prompt and not sequence.cancelled:
                self.suspects = [sequence]
                self._prefill(sequence)
        self._retire()
        for lane in sorted({sequence.lane for sequence in self.active if not sequence.in_prompt}):
            self._decode(lane)
        self.suspects = []
        self._retire()
        self.metrics.prefix_bytes.set(self.engine.prefix.num_bytes)

    def _prefill(self, sequence: Sequence) -> None:
        """Compute one block after all cached ones; at the prompt's end also choose the first token."""
        prompt, block, is_cached = sequence.ask.prompt, self.engine.settings.block_tokens, True
        start = sequence.filled
        while is_cached and sequence.in_prompt:
            start = sequence.filled
            tokens = prompt[start : start + block]
            key = sequence.keys[start // block] if start // block < len(sequence.keys) else None
            hidden, is_cached = self.engine.prefill(sequence.lane, sequence.row, tokens, start, key)
            if sequence.ask.echo:
                self._score_prompt(sequence, hidden, start)
            if sequence.finished:
                return
            sequence.filled += len(tokens)
            sequence.reused_tokens += len(tokens) * is_cached
            self.metrics.prompt_tokens.inc(len(tokens))
            self.metrics.reused_tokens.inc(len(tokens) * is_cached)
            if not sequence.in_prompt:
                sequence.end_prompt()
                if not sequence.finished:
                    self._take_next(sequence, self.engine.next_log_probs(hidden, len(tokens) - 1))

    def _score_prompt(self, sequence: Sequence, hidden: jax.Array, start: int) -> None:
        prompt, top = sequence.ask.prompt, sequence.ask.top
        targets = prompt[start + 1 : start + 1 + len(hidden)]
        if top is None:
            sequence.prompt_scores += [TokenScore(token, None) for token in targets]
        elif targets:
            scores = self.engine.score(hidden, targets, top)
            if np.isnan(scores.log_probs).any():
                return sequence.fail(FaultError(NO_NUMBERS))
            for i, token in enumerate(targets):
                best = zip(scores.top_tokens[i].tolist(), scores.top_log_probs[i].tolist(), strict=True)
                sequence.prompt_scores.append(TokenScore(token, float(scores.log_probs[i]), tuple(best)))

    def _decode(self, lane: int) -> None:
        """Decode one token for every row of a lane whose prompt is complete."""
        rows = self.engine.settings.rows
        tokens, starts = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        here = [sequence for sequence in self.active if sequence.lane == lane]
        ready = [sequence for sequence in here if not sequence.in_prompt]
        for sequence in here:
            starts[sequence.row] = sequence.filled
        self.suspects = ready
        for sequence in ready:
            tokens[sequence.row] = sequence.newest
        log_probs = self.engine.decode(lane, tokens, starts)
        self.metrics.decode_rows.observe(len(ready))
        for sequence in ready:
            self.suspects = [sequence]
            sequence.filled += 1
            self._take_next(sequence, log_probs[sequence.row])

    def _take_next(self, sequence: Sequence, log_probs: np.ndarray) -> None:
        if np.isnan(log_probs).any():
            return sequence.fail(FaultError(NO_NUMBERS))
        sequence.take_next(log_probs)
        if not sequence.generated:  # its grammar allows no first token
            return
        self.metrics.generated_tokens.inc()
        if sequence.generated == 1:
            self.metrics.first_token.observe(time.monotonic() - sequence.submitted)

    def _retire(self) -> None:
        self.metrics.cancelled.inc(sum(s.cancelled and not s.finished for s in self.active))
        self.active = [s for s in self.active if not (s.finished or s.cancelled)]
        self.metrics.active.set(len(self.active))
