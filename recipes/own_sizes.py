"""Rules that choose the vocabulary, the model and the schedule of a run over own text, from its size and a budget of FLOPs.

They are rules of thumb for one small machine. `marin train` shows what they chose, and `marin init` writes it to be edited.
"""

import math
from dataclasses import dataclass

from trainer.spec.llama import LlamaConfig

DEFAULT_FLOPS = 2.5e13
"""About ten minutes on two cores (45 GFLOP/s, docs/log.md)."""
TOKENS_PER_PARAMETER = 20
"""Hoffmann et al. 2022, arXiv 2203.15556."""
EPOCHS = 4
"""Repeated text is nearly as good as new text up to four times (Muennighoff et al. 2023, arXiv 2305.16264)."""
BYTES_PER_TOKEN = 3.2
"""Of a small vocabulary on English."""
BYTES_PER_ENTRY = 1024
"""Text for each entry of the vocabulary."""
ROOT_FLOPS_PER_ENTRY = 1024
"""Root of the budget for each entry: the output head must not take most of a small budget."""
VOCABULARIES = (384, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SHAPES = ((64, 2), (96, 3), (128, 4), (192, 6), (256, 8), (384, 10), (512, 12), (768, 14))
"""Width and layers."""
HEAD_DIM = 32
SEQ_LEN = 256
BATCH_SIZE = 8
MOST_STEPS, LEAST_STEPS = 8_000, 20
RATE_AT_128 = 4e-3
"""Peak learning rate of the ferry's model, which is 128 wide; it falls with the root of the width."""


@dataclass(frozen=True)
class Sizes:
    """What the rules chose."""

    vocab_size: int
    hidden_dim: int
    num_layers: int
    batch_size: int
    num_steps: int
    learning_rate: float
    epochs: float
    """Times that the text is read."""

    @property
    def intermediate_dim(self) -> int:
        """8/3 of the width, in whole sixteens."""
        return math.ceil(self.hidden_dim * 8 / 3 / 16) * 16

    @property
    def num_heads(self) -> int:
        return self.hidden_dim // HEAD_DIM

    @property
    def model(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_dim=self.hidden_dim,
            intermediate_dim=self.intermediate_dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_heads,
            max_seq_len=SEQ_LEN,
        )

    @property
    def tokens(self) -> int:
        """Tokens that training reads."""
        return self.num_steps * self.batch_size * SEQ_LEN

    @property
    def flops(self) -> float:
        return self.tokens * self.model.training_flops_per_token(SEQ_LEN)


def sizes(num_bytes: int, num_words: int, flops: float = DEFAULT_FLOPS, vocab_size: int | None = None) -> Sizes:
    """Choose sizes for so much text with so many different words.

    Raises: ValueError for a vocabulary that the text cannot give, or a budget that is not positive.
    """
    if not flops > 0:
        raise ValueError(f"--flops is {flops:g}; give a positive number, such as {DEFAULT_FLOPS:g}")
    chosen = vocabulary(num_bytes, num_words, flops, vocab_size)
    tokens = max(1.0, num_bytes / BYTES_PER_TOKEN)
    read = min(EPOCHS * tokens, math.sqrt(flops * TOKENS_PER_PARAMETER / 6))
    width, layers = _shape(chosen, flops / (6 * read))
    flops_per_token = Sizes(chosen, width, layers, 1, 1, 0.0, 0.0).model.training_flops_per_token(SEQ_LEN)
    read = min(EPOCHS * tokens, flops / flops_per_token)
    batch = BATCH_SIZE
    while read / (batch * SEQ_LEN) > MOST_STEPS:
        batch *= 2
    steps = max(LEAST_STEPS, round(read / (batch * SEQ_LEN)))
    rate = float(f"{RATE_AT_128 * math.sqrt(128 / width):.2g}")
    return Sizes(chosen, width, layers, batch, steps, rate, round(steps * batch * SEQ_LEN / tokens, 2))


def vocabulary(num_bytes: int, num_words: int, flops: float, chosen: int | None = None) -> int:
    """Choose the entries of a vocabulary, or check those asked for.

    Raises: ValueError naming the largest that the text surely gives: half of its words, beside the 257 that are always there.
    """
    most = 257 + num_words // 2
    fitting = [size for size in VOCABULARIES if size <= most]
    if chosen is None:
        affordable = min(num_bytes / BYTES_PER_ENTRY, math.sqrt(flops) / ROOT_FLOPS_PER_ENTRY)
        small = [size for size in fitting if size <= affordable]
        return (small or [257 + min(num_words // 2, VOCABULARIES[0] - 257)])[-1]
    if chosen > most:
        raise ValueError(f"--vocab is {chosen}; {num_words:,} different words give at most {most}: lower it or give more text")
    if chosen < 257:
        raise ValueError(f"--vocab is {chosen}; give 257 (bytes and the end of text) to {most}")
    return chosen


def _shape(vocab_size: int, parameters: float) -> tuple[int, int]:
    """Return the largest shape within so many parameters, or the smallest."""
    fitting = [shape for shape in SHAPES if Sizes(vocab_size, *shape, 1, 1, 0.0, 0.0).model.num_parameters <= parameters]
    return (fitting or [SHAPES[0]])[-1]
