"""Upcycling: a mixture of experts that starts from a dense model, every expert a copy of its layer's MLP.

Source: Komatsuzaki et al. 2022, arXiv 2212.05055. With weights of a token's experts that sum to one, the mixture computes what
the dense model does, up to the rounding of grouped products; the experts' matrices are the MLP's to the bit. Routers are fresh.
"""

import logging
from dataclasses import dataclass

import numpy as np

from trainer.array_files import ArrayFiles, Index
from trainer.spec.checks import require
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.moe import ExtrasConfig, MoeConfig

log = logging.getLogger("trainer")
MLP, EXPERTS = ".mlp.w_", ".experts.w_"


@dataclass(frozen=True)
class MlpsAsExperts:
    """The arrays of a dense model's checkpoint by a mixture's names: an MLP [layers, ...] is [layers, experts, ...]."""

    files: ArrayFiles
    experts: int

    @property
    def where(self) -> str:
        return self.files.where

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        named = {name.replace(MLP, EXPERTS): (name, *shape) for name, shape in self.files.shapes.items()}
        return {
            new: ((shape[0], self.experts, *shape[1:]) if MLP in old else shape, dtype)
            for new, (old, shape, dtype) in named.items()
        }

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """A slice of an array, or the whole array."""
        if EXPERTS not in name:
            return self.files.read(name, index)
        shape, _ = self.shapes[name]
        wanted = index or (slice(None),) * len(shape)
        of_mlp = self.files.read(name.replace(EXPERTS, MLP), (wanted[0], *wanted[2:]))
        first, last, _ = wanted[1].indices(self.experts)
        return np.repeat(of_mlp[:, None], last - first, axis=1)


def check_upcycling(there: ModelConfig, here: ModelConfig, where: str) -> None:
    """Raises: ValueError naming what keeps a mixture from computing what the dense model of `where` does."""
    if not isinstance(there, LlamaConfig) or not isinstance(here, MoeConfig):
        raise ValueError(
            f"run.start.experts is 'from_mlp': the run's model is a {type(here).__name__}, {where} holds a "
            f"{type(there).__name__}; they must be a MoeConfig and a LlamaConfig"
        )
    plain = there.rope_scaling is None and there.sliding_window is None
    require(plain, f"rope_scaling and sliding_window of {where}", (there.rope_scaling, there.sliding_window), "None")
    same = {
        "experts.dim": (here.experts.dim, there.intermediate_dim),
        "experts.shared_dim": (here.experts.shared_dim, 0),
        "experts.activation": (here.experts.activation, "swiglu"),
        "dense_layers": (here.dense_layers, 0),
        "qk_norm": (here.qk_norm, "head" if there.qk_norm else "none"),
        "extras": (here.extras, ExtrasConfig()),
        "rope_theta": (here.rope_theta, there.rope_theta),
        "norm_eps": (here.norm_eps, there.norm_eps),
    }
    for name, (mine, theirs) in same.items():
        require(mine == theirs, f"model.{name}", mine, f"{theirs} to start from {where}")
    if not (here.router.renormalize and here.router.scale == 1):
        log.warning("weights of a token's experts do not sum to one: the first loss is not that of %s", where)
