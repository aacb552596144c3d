"""JSON output: which tokens may come next, so that the whole answer follows a JSON schema (`response_format`)."""

import functools
import json
from dataclasses import dataclass
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np
from jaxtyping import Bool
from tokenizers import Tokenizer

from serving.refusals import RequestError

ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True)
class Grammar:
    """A schema for one tokenizer. `end_token` ends an answer, and is allowed as soon as the JSON is complete."""

    tokenizer: llguidance.LLTokenizer
    source: str
    vocab_size: int
    end_token: int

    def begin(self) -> "Constraint":
        """Return the state of a new answer."""
        return Constraint(self, llguidance.LLMatcher(self.tokenizer, self.source))


@dataclass
class Constraint:
    """The tokens of one answer so far, against its grammar. Not thread-safe."""

    grammar: Grammar
    matcher: llguidance.LLMatcher

    def allowed(self) -> Bool[np.ndarray, " V"]:
        """Return the tokens that may come next. Raises: ValueError if the grammar fails, for example on a limit of its size."""
        words = llguidance.numpy.allocate_token_bitmask(1, self.grammar.vocab_size)
        llguidance.numpy.fill_next_token_bitmask(self.matcher, words, 0)
        if self.matcher.is_error():
            raise ValueError(f"the response_format cannot be followed further: {self.matcher.get_error()}")
        bits = np.unpackbits(words[0].view(np.uint8), bitorder="little")
        return bits[: self.grammar.vocab_size].astype(bool)

    def take(self, token: int) -> None:
        """Add a token that was allowed."""
        self.matcher.consume_token(token)


def json_grammar(tokenizer: Tokenizer, vocab_size: int, end_token: int, schema: dict[str, Any]) -> Grammar:
    """Compile a JSON schema. Raises: RequestError, 400, for a schema that is wrong or not supported."""
    tokens = _token_trie(tokenizer.to_str(), vocab_size, end_token)
    try:
        source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        problem = llguidance.LLMatcher.validate_grammar(source, tokens)
    except ValueError as error:
        raise _refused(str(error)) from error
    if problem:
        raise _refused(problem)
    return Grammar(tokens, source, vocab_size, end_token)


def _refused(problem: str) -> RequestError:
    return RequestError(400, f"response_format: the schema cannot be followed: {problem}", "response_format")


@functools.lru_cache(maxsize=2)
def _token_trie(tokenizer: str, vocab_size: int, end_token: int) -> llguidance.LLTokenizer:
    """Return the tokenizer in llguidance's form; made once, because it takes .1 to 1 s for a large vocabulary."""
    return llguidance.LLTokenizer(tokenizer, n_vocab=vocab_size, eos_token=end_token)
