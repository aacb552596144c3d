"""pass@k of a larger model, forecast from smaller rungs before the larger model is trained.

    python benchmarks/post_training/pass_at_k_ladder.py FOLDER

Every rung imitates answers of two-digit addition (`recipes/rewards.py`) for the same number of steps, with three seeds. Its
loss is in nats a token over all held-out answers. Its pass@k is of 500 held-out prompts x 128 samples. The first step of the
forecast is a power law of the loss by parameters, with an asymptote of 0 because the answers are certain. The second is one
curve for all k (`science/forecasts/pass_curves.py`). The forecast is in FOLDER/forecast.json before the target is trained.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training.asking import EncodedPrompts, Words
from post_training.held_out import score_held_out
from post_training.log_probs import token_log_probs
from post_training.rows import inside
from post_training.spec import SamplingConfig
from post_training.stage import HELD_OUT, HeldOutConfig
from post_training.train import train_on_rewards
from recipes import reward_runs, rewards
from recipes.records.reward_run import RewardRun
from science.forecasts.pass_curves import fit_pass_curve
from science.forecasts.two_steps import DRAWS, PASS_AT, Curve, ScoreStep, forecast_score
from science.laws.power import PowerLaw, fit_pinned
from trainer.checkpoint import read_model
from trainer.model.build import model_shapes
from trainer.spec.target import size_of

WIDTHS, TARGET, SEEDS = (24, 32, 48), 64, (0, 1, 2)
STEPS, PROMPTS, SAMPLES = 516, 500, 128
LEVEL = 0.9


@dataclass(frozen=True)
class Point:
    """A trained model: its loss, and its pass@k by k."""

    width: int
    seed: int
    parameters: int
    loss: float
    passes: Mapping[int, float]


def rung(width: int, seed: int) -> RewardRun:
    """The base of `recipes/rewards.py` at another width."""
    run = rewards.base(seed)
    model = replace(run.spec.run.model, hidden_dim=width, intermediate_dim=width * 11 // 4)
    spec = replace(run.spec.run, name=f"ladder_{width}_{seed}", model=model, num_steps=STEPS)
    return replace(run, spec=replace(run.spec, run=spec))


def here(launch: LaunchRequest) -> LaunchRecord:
    job = read_job(launch.job_path)
    if job.spec.stage == HELD_OUT.name:
        score_held_out(job)
    else:
        train_on_rewards(job)
    return LaunchRecord("this process", "", ())


def measured(store: Store, width: int, seed: int) -> Point:
    """Train a rung and score it, or read what is there."""
    run = rung(width, seed)
    sampling = SamplingConfig(16, SAMPLES, rewards.ANSWER)
    node = reward_runs.held_out(run, STEPS, HeldOutConfig(sampling, PROMPTS))
    [scored] = build_all(store, [node], launcher=here)
    passes = scored.manifest.extra["held_out"]["pass_at_k"]
    point = Point(
        width, seed, size_of(run.spec.run).parameters, held_out_loss(store, run), {int(k): value for k, value in passes.items()}
    )
    print(json.dumps({"width": width, "seed": seed, "loss": round(point.loss, 4), "pass_at_k": passes}), flush=True)
    return point


def held_out_loss(store: Store, run: RewardRun) -> float:
    """Nats a token of the answers to all held-out prompts, with the end of text."""
    model = read_model(resolve(store, reward_runs.last_checkpoint(run)), model_shapes(run.spec.run.model))
    words, seq_len = Words.of(resolve(store, run.tokenizer)), run.spec.run.seq_len
    encoded = EncodedPrompts.of(resolve(store, run.environment), "held_out", words, run.spec.longest_prompt)
    tokens, starts = encoded.rows(range(len(encoded.prompts)), seq_len, words.stop)
    answers = [words.answer(prompt.answer) for prompt in encoded.prompts]
    for row, answer in enumerate(answers):
        tokens[row, starts[row] : starts[row] + len(answer)] = answer
    log_probs = np.asarray(token_log_probs(model, tokens, starts, rewards.ANSWER)[0])
    counted = inside(0, np.array([len(answer) for answer in answers]), rewards.ANSWER)
    return float(-log_probs[counted].mean(dtype=np.float64))


def curves(points: Sequence[Point]) -> dict[int, Curve]:
    """The second step, for each k. Raises: RefusedScoreError."""
    losses, ks = np.array([point.loss for point in points]), sorted(points[0].passes)
    by_k = {k: np.array([point.passes[k] for point in points]) for k in ks}
    return {k: fit_pass_curve(ScoreStep("addition", f"{PASS_AT}{k}", form="pass_at_k"), losses, by_k) for k in ks}


def drawn(law: PowerLaw, size: float) -> np.ndarray:
    """Losses of one run of a size, as the law's intervals have them."""
    slopes = np.array([1.0, law.centre - np.log(size)])
    scale = float(np.sqrt(slopes @ law.covariance @ slopes + law.spread**2))
    random = np.random.default_rng(0).standard_t(law.freedom, DRAWS)
    return law.asymptote + (law.at(size) - law.asymptote) * np.exp(scale * random)


def forecasts(of: Mapping[int, Curve], losses: np.ndarray) -> dict[int, tuple[float, float, float]]:
    """(point, low, high) of pass@k by k."""
    made = {k: forecast_score(curve, losses, 0.0) for k, curve in of.items()}
    return {k: (each.point, *each.intervals[LEVEL]) for k, each in made.items()}


def main(folder: Path) -> None:
    store = Store(str(folder / "store"))
    points = [measured(store, width, seed) for width in WIDTHS for seed in SEEDS]
    law = fit_pinned(np.array([float(point.parameters) for point in points]), np.array([point.loss for point in points]), 0.0)
    of, size = curves(points), float(size_of(rung(TARGET, 0).spec.run).parameters)
    ahead = forecasts(of, drawn(law, size))
    loss = (law.at(size), *law.interval(size, LEVEL))
    frozen = folder / "forecast.json"
    if not frozen.exists():
        frozen.write_text(json.dumps({"target": TARGET, "loss": loss, "exponent": law.exponent, "pass_at_k": ahead}, indent=1))
    print(f"loss of width {TARGET}: {loss[0]:.4f} [{loss[1]:.4f}, {loss[2]:.4f}], exponent {law.exponent:.2f}")
    for seed in SEEDS:
        target = measured(store, TARGET, seed)
        inside_law = loss[1] <= target.loss <= loss[2]
        print(f"seed {seed}: loss {target.loss:.4f} {'hit' if inside_law else 'miss'}")
        given = forecasts(of, np.full(DRAWS, target.loss))
        for k, value in target.passes.items():
            shown = [f"{p:.3f} [{low:.3f}, {high:.3f}] {'hit' if low <= value <= high else 'miss'}" for p, low, high in
                     (ahead[k], given[k])]  # fmt: skip
            print(f"  pass@{k}: {value:.3f}; forecast {shown[0]}; given the loss {shown[1]}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
