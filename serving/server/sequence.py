"""One sequence in the server: its request, its state, and the deltas that it delivers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from serving.server.grammar import Constraint, Grammar
from serving.server.sampling import Sampling, likeliest, sampling_distribution, uniform
from serving.server.text import StopScanner, TextStream
from serving.server.versions import UNKNOWN, WeightsVersion


class StoppedError(RuntimeError):
    """The scheduler's thread has ended: at shutdown, or by the fault in the message."""


class FaultError(StoppedError):
    """The scheduler failed in a step with this sequence; a retry may fail again."""


type Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Reported:
    """What an answer reports of its tokens, in addition to OpenAI's fields."""

    token_ids: bool = False
    sampling: bool = False
    """Log-probabilities of generated tokens, whole and under the sampling distribution, and the mass of the kept tokens."""
    kept_token_ids: bool = False
    processed: bool = False
    """OpenAI's `logprobs` are those of the sampling distribution (vLLM's `processed_logprobs`), not the model's own."""


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt and the options of one answer. `top`: alternatives at each position; None: no log-probabilities."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    seed: int
    sample: int = 0
    """Index of this answer among the answers to its prompt."""
    samples: int = 1
    """Answers to the prompt; with several, all of the prompt goes into the prefix cache and is computed once."""
    stops: tuple[str, ...] = ()
    end_tokens: frozenset[int] = frozenset()
    top: int | None = None
    echo: bool = False
    grammar: Grammar | None = None
    """What the answer must follow; None: any text."""
    reported: Reported = Reported()

    @property
    def before(self) -> tuple[int, ...]:
        """Tokens before the delivered text: the prompt, or nothing with echo."""
        return () if self.echo else self.prompt


@dataclass(frozen=True)
class TokenScore:
    """A token, its log-probability in nats (None for a prompt's first), and the likeliest tokens there with theirs.

    `log_prob` is the model's own: temperature 1, no token left out. `top` follows `Reported.processed`.
    """

    token: int
    log_prob: float | None
    top: tuple[tuple[int, float], ...] = ()
    drawn: "DrawnFrom | None" = None
    """None for tokens of the prompt."""


@dataclass(frozen=True)
class DrawnFrom:
    """The distribution that a token was drawn from."""

    log_prob: float
    """Of the token, in nats, after temperature and cuts."""
    mass: float
    """Of the kept tokens, after temperature and before cuts."""
    kept: tuple[int, ...] | None = None
    """Their ids in ascending order; None if no cut is in force, or they are not reported."""


@dataclass(frozen=True)
class Delta:
    """New output of a sequence: text, tokens (`generated` of them from the model), and the reason if it ended."""

    text: str
    scores: tuple[TokenScore, ...]
    generated: int
    finish: Finish | None
    reused_tokens: int = 0
    weights: WeightsVersion = UNKNOWN


@dataclass(eq=False)
class Submission:
    """The sequences of one HTTP request. The same weights answer all of them."""

    begun: bool = False
    """Whether one of them has a row."""


@dataclass(eq=False)
class Sequence:
    """The state of one `GenerationRequest`. Only the scheduler's thread changes it, except `cancelled`."""

    ask: GenerationRequest
    deliver: Callable[[Delta | BaseException], None]
    tokenizer: Tokenizer
    submitted: float
    submission: Submission = field(default_factory=Submission)
    weights: WeightsVersion = UNKNOWN
    """The weights that the engine had when the sequence got its row."""
    lane: int = 0
    row: int = -1
    filled: int = 0
    """Tokens in the row's cache."""
    generated: int = 0
    reused_tokens: int = 0
    newest: int = 0
    """The last generated token, which is not in the cache yet."""
    keys: list[bytes] = field(default_factory=list)
    prompt_scores: list[TokenScore] = field(default_factory=list)
    finished: bool = False
    cancelled: bool = False
    constraint: Constraint | None = field(init=False)
    stream: TextStream = field(init=False)
    scanner: StopScanner = field(init=False)

    def __post_init__(self) -> None:
        self.constraint = None if self.ask.grammar is None else self.ask.grammar.begin()
        self.stream = TextStream(self.tokenizer, self.ask.before)
        self.scanner = StopScanner(self.ask.stops)
        if self.ask.echo:
            self.prompt_scores.append(TokenScore(self.ask.prompt[0], None))

    @property
    def in_prompt(self) -> bool:
        return self.filled < len(self.ask.prompt)

    def end_prompt(self) -> None:
        """Deliver the echo once the prompt is in the cache; a sequence that generates nothing ends here."""
        text = "".join(map(self.stream.push, self.ask.prompt)) if self.ask.echo else ""
        self.finished = self.ask.max_tokens == 0
        if self.finished:
            text += self.stream.flush()
        if self.ask.echo or self.finished:
            finish: Finish | None = "length" if self.finished else None
            self.deliver(Delta(text, tuple(self.prompt_scores), 0, finish, self.reused_tokens, self.weights))

    def fail(self, fault: BaseException) -> None:
        """End this sequence alone with an error."""
        self.finished = True
        self.deliver(fault)

    def take_next(self, log_probs: np.ndarray) -> None:
        """Choose the next token and deliver the new output."""
        ask = self.ask
        try:
            score = self._draw(log_probs)
        except ValueError as wrong:  # a grammar that allows nothing more
            return self.fail(FaultError(str(wrong)))
        token = score.token
        self.newest, self.generated = token, self.generated + 1
        ended = token in ask.end_tokens
        text = "" if ended else self.scanner.push(self.stream.push(token))
        if ended or self.generated == ask.max_tokens:
            text += self.scanner.push(self.stream.flush())
            text += self.scanner.flush()
        finish: Finish | None = "stop" if ended or self.scanner.stopped else None
        if finish is None and self.generated == ask.max_tokens:
            finish = "length"
        self.finished = finish is not None
        self.deliver(Delta(text, (score,), 1, finish, self.reused_tokens, self.weights))

    def _draw(self, log_probs: np.ndarray) -> TokenScore:
        ask = self.ask
        allowed = None if self.constraint is None else self.constraint.allowed()
        distribution = sampling_distribution(log_probs, ask.sampling, allowed)
        drawn = distribution.draw(uniform(ask.seed, ask.sample, self.generated))
        if self.constraint is not None:
            self.constraint.take(drawn.token)
        cut = ask.sampling.cuts or allowed is not None
        kept = tuple(distribution.tokens.tolist()) if ask.reported.kept_token_ids and cut else None
        shown = distribution.log_probs(len(log_probs)) if ask.reported.processed else log_probs
        top = tuple(likeliest(shown, ask.top)) if ask.top is not None else ()
        drawn_from = DrawnFrom(drawn.log_prob, distribution.mass, kept)
        return TokenScore(drawn.token, float(log_probs[drawn.token]), top, drawn_from)
