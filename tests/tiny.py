"""The smallest model and run that most tests of training and evaluation need; a test states what it needs otherwise."""

from typing import Any

from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay

MODEL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_dim": 32,
    "intermediate_dim": 48,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "max_seq_len": 16,
}


def tiny_model(**changes: Any) -> LlamaConfig:
    """A Llama of two layers, 64 words and 16 positions, with the named fields changed."""
    return LlamaConfig(**{**MODEL, **changes})


def tiny_spec(**changes: Any) -> RunSpec:
    """A run of 40 steps of 4 sequences of 16 tokens, with the named fields changed."""
    default = {
        "name": "tiny",
        "model": tiny_model(),
        "optimizer": AdamWConfig(),
        "schedule": WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=2, decay_frac=0.5),
        "batch_size": 4,
        "seq_len": 16,
        "num_steps": 40,
        "seed": 0,
    }
    return RunSpec(**{**default, **changes})
