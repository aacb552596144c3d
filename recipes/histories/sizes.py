"""The size of a phase's checkpoint, from its spec alone: parameters, moments and average are float32."""

from trainer.spec.config import RunSpec
from trainer.spec.optimizers import MuonConfig, MuonHConfig

FLOAT32 = 4


def checkpoint_bytes(spec: RunSpec) -> int:
    """Bytes of parameters, optimizer state and average, without the guards' rings and the router's bias.

    Adam and its kin keep two moments of every parameter. Muon and MuonH keep one of a matrix; they leave embeddings to Adam.
    `trainer.footprint` has the exact number from the trainer's own state (tests/recipes/test_histories.py compares the two).
    """
    model = spec.model
    embeddings = model.vocab_size * model.hidden_dim * (1 if model.tie_embeddings else 2)
    second = embeddings if isinstance(spec.optimizer, MuonConfig | MuonHConfig) else model.num_parameters
    averages = 0 if spec.ema is None else model.num_parameters
    return FLOAT32 * (2 * model.num_parameters + second + averages)
