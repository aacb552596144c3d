"""What the trainer offers other packages to run a model: score token sequences, and decode with a cache. It imports JAX.

`trainer.api` is the part that imports no JAX.
"""

from lineage.artifact.store import Artifact
from trainer.checkpoint import read_model, read_model_config
from trainer.hf.folder import CONFIG_FILE, TOKENIZER_FILE, HfFolder, is_hf_folder, read_hf_folder
from trainer.model.build import model_shapes
from trainer.model.protocol import Decoder, KeyValueCache
from trainer.scoring import Scorer, load_scorer
from trainer.shared_programs import sharing_programs
from trainer.spec.models import ModelConfig

__all__ = [
    "CONFIG_FILE",
    "TOKENIZER_FILE",
    "Decoder",
    "HfFolder",
    "KeyValueCache",
    "ModelConfig",
    "Scorer",
    "is_hf_folder",
    "load_decoder",
    "load_scorer",
    "read_hf_folder",
    "read_model_config",
    "sharing_programs",
]


def load_decoder(checkpoint: Artifact) -> Decoder:
    """The decoder of a committed checkpoint, on its raw weights."""
    return read_model(checkpoint, model_shapes(read_model_config(checkpoint))).decoder()
