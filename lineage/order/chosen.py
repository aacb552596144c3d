"""A mixture whose weights come from an artifact: the lineage of a model then holds the runs that chose its data."""

from collections.abc import Mapping
from dataclasses import dataclass

from lineage.artifact.store import Artifact
from lineage.order.apportion import Apportioning
from lineage.order.mixture import MixtureConfig, Phase, freeze_mixture
from lineage.order.packing import Packing
from lineage.order.permutation import Shuffle
from lineage.stage import Stage
from lineage.writing.writer import Writer

WEIGHTS = "weights"
"""Entry of a manifest's `extra`: choice -> component -> weight."""


@dataclass(frozen=True)
class ChosenMixtureConfig:
    """What a recipe declares of a mixture with one phase; the weights are in the artifact, under the name of the choice."""

    name: str
    choice: str
    seed: int
    shuffle: Shuffle = "splitmix"
    block_size: int = 2048
    packing: Packing | None = None
    apportioning: Apportioning = "carried"


def freeze_chosen(out: Writer, config: ChosenMixtureConfig, caches: tuple[Artifact, ...], weights: Artifact) -> None:
    """Write the mixture of the weights that an artifact chose.

    Raises: ValueError for an artifact without that choice, or weights that are not those of a mixture.
    """
    phase = Phase(0, chosen_weights(weights, config.choice))
    of = MixtureConfig(
        config.name, (phase,), config.seed, config.shuffle, config.block_size, None, config.packing, config.apportioning
    )
    freeze_mixture(out, of, caches)


def chosen_weights(artifact: Artifact, choice: str) -> Mapping[str, float]:
    """Return the weights of a choice, checked. Raises: ValueError naming the choices that there are, or what is no weight."""
    choices = artifact.manifest.extra.get(WEIGHTS)
    if not isinstance(choices, dict) or not isinstance(choices.get(choice), dict):
        known = ", ".join(sorted(choices)) if isinstance(choices, dict) else "none"
        raise ValueError(f"{artifact.name} chooses no weights named {choice!r}; it has {known or 'none'}")
    weights = choices[choice]
    for component, weight in weights.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool):
            raise ValueError(f"{artifact.name}: the weight of {component} in {choice!r} is {weight!r}; it must be a number")
    return {component: float(weight) for component, weight in weights.items()}


CHOSEN_MIXTURE = Stage(
    "lineage.chosen_mixture",
    "1",
    freeze_chosen,
    description="A frozen mixture whose weights an artifact chose, such as the proposal of a swarm.",
    checks=("file_set",),
)
