"""What a run would be: its recipe without its name and seed, its size, its tokens and FLOPs; and the check of a forecast.

A forecast (`science.forecasts`) is an input of the checkpoint that it forecasts, so it exists before step 0 and its data
version is part of the checkpoint's identity. The check here makes sure that the two speak of the same run.
"""

import json
from dataclasses import dataclass

from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from trainer.spec.config import RunSpec

FORECAST = "forecast"
"""Name of the job's input."""
FORECAST_FILE = "forecast.json"


@dataclass(frozen=True)
class Size:
    """What laws are functions of."""

    parameters: int
    """Without embedding and head."""
    tokens: int
    flops: float
    """Forward and backward, by Levanter's count, of the whole run."""


def size_of(run: RunSpec) -> Size:
    """Parameters, tokens and FLOPs of a whole run."""
    model = run.model
    embeddings = model.vocab_size * model.hidden_dim * (1 if model.tie_embeddings else 2)
    tokens = run.tokens_before(run.num_steps)
    return Size(model.num_parameters - embeddings, tokens, tokens * model.training_flops_per_token(run.seq_len))


def run_digest(run: RunSpec) -> str:
    """Digest of the whole spec but its name: renaming a run does not make it another."""
    return identity_digest({key: value for key, value in to_jsonable(run).items() if key != "name"})


def recipe_digest(run: RunSpec) -> str:
    """Digest of the spec without name and seed: a run of the same recipe would give the result away."""
    return identity_digest({key: value for key, value in to_jsonable(run).items() if key not in ("name", "seed")})


def bound_to(run: RunSpec, mixture: Artifact, start: Artifact | None) -> dict[str, str]:
    """What makes a run the target of a forecast: digest of its spec, and data versions of its mixture and its start.

    A run with fresh parameters has no `start`.
    """
    bound = {"run": run_digest(run), "mixture": mixture.data_version}
    return bound if start is None else bound | {"start": start.data_version}


def check_forecast(forecast: Artifact, run: RunSpec, mixture: Artifact, start: Artifact | None) -> None:
    """Refuse a forecast of another run, mixture or start, or one whose file was edited.

    Raises: ValueError naming what differs.
    """
    forecast.verify()
    target = json.loads(forecast.file(FORECAST_FILE).read_text())["target"]
    own = bound_to(run, mixture, start)
    for name in ("run", "mixture", "start"):
        said, is_own = target.get(name, "none"), own.get(name, "none")
        if said != is_own:
            raise ValueError(
                f"run {run.name}: {forecast.name} forecasts the {name} {said}, this run's is {is_own}; make a forecast of "
                "this run before it starts"
            )
