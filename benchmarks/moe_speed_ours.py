"""Our sides of `moe_speed.py`: the step of `trainer.step`, as a run takes it."""

import sys
from pathlib import Path

import jax
import numpy as np
from moe_speed import model_of, run_spec, shapes
from training_speed_ours import train_and_report

from trainer.model.build import init_model


def main(folder: Path, side: str, shape: str) -> None:
    tokens, given = np.load(folder / "tokens.npy"), shapes()[shape]
    spec = run_spec(model_of(given, side), given.batch, len(tokens))
    train_and_report(spec, init_model(spec.model, key=jax.random.PRNGKey(0)), tokens)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
