"""What the rest of the project may ask of a model, whatever its family.

Shapes: B batch, S sequence, D hidden, V vocabulary, R rows of a cache, C positions of a row, N rows of hidden states.

A model is an `equinox` module, so it is a pytree of arrays. Every inexact array declares a role (`trainer.spec.roles`):
parameters have gradients, a router's balancing bias is state that training changes without one (`trainer.model.parts`).
"""

from typing import NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int

from trainer.model.router import Routing
from trainer.spec.compute import Compute, ComputeConfig


class KeyValueCache(NamedTuple):
    """Keys and values of the tokens that each row holds so far, one array a layer: K key/value heads of size H.

    Every leaf begins with the axes (row, position), which is what `serving.server` relies on to copy parts of a cache.
    """

    keys: tuple[Float[Array, "R C K H"], ...]
    values: tuple[Float[Array, "R C K H"], ...]


class Decoder(Protocol):
    """A model that reads a few tokens at a time. A pytree, so a compiled function can take it as an argument."""

    def empty_cache(self, rows: int, positions: int) -> KeyValueCache:
        """A cache of zeros."""
        ...

    def extend(
        self, cache: KeyValueCache, tokens: Int[Array, "R S"], starts: Int[Array, " R"]
    ) -> tuple[KeyValueCache, Float[Array, "R S D"]]:
        """Append S tokens to each row behind its first `starts[r]`; return the new cache and the hidden states.

        The hidden states equal `LanguageModel.hidden` of the whole row up to the order of float sums. `starts[r] + S` must not
        exceed C: XLA would clamp the write and overwrite earlier tokens. The caller checks that.
        """
        ...

    def log_probabilities(self, hidden: Float[Array, "N D"]) -> Float[Array, "N V"]:
        """Log-probabilities in nats of the token after each position."""
        ...


class LanguageModel(Protocol):
    """Token ids to hidden states, and the matrix that turns these into logits."""

    def hidden(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None, compute: Compute | None = None
    ) -> Float[Array, "B S D"]:
        """Hidden states; state `s` depends on tokens `0..s` only, of its own segment where ids are given."""
        ...

    def routed(
        self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None, how: Compute
    ) -> tuple[Float[Array, "B S D"], Routing | None]:
        """(`hidden`, what the routers did if `how.training`, with a leading axis of layers; None for a dense model)."""
        ...

    def hidden_in_tree(
        self, tokens: Int[Array, " S"], positions: Int[Array, " S"], reach: Bool[Array, "S S"]
    ) -> Float[Array, "S D"]:
        """Hidden states where token `s` has the position `positions[s]` and attends where `reach[s]` is true."""
        ...

    def head_weight(self) -> Float[Array, "V D"]:
        """The output matrix; the embedding if the two are tied."""
        ...

    def __call__(self, tokens: Int[Array, "B S"], segment_ids: Int[Array, "B S"] | None = None) -> Float[Array, "B S V"]:
        """Logits of the token after each position. Training and scoring use `trainer.model.cross_entropy` instead."""
        ...

    def resolved(self, config: ComputeConfig, seq_len: int, segmented: bool) -> Compute:
        """What a declared way to compute means for this model on this machine."""
        ...

    def decoder(self) -> Decoder:
        """The same model for decoding. It copies the parameters: drop the model where memory is short."""
        ...
