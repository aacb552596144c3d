"""Regret of a swarm in one round of n trials against two of n / 2, on known surfaces, in pairs.

`python -m benchmarks.science.second_round --sources 8 --trials 50 --surfaces 50`. Dated results: docs/log.md.
"""

import argparse
import time

import numpy as np

from science.mixtures.designs import swarm
from science.mixtures.next_round import NextMixtures, next_round
from science.mixtures.propose import fit_metrics, lowest, mean_of
from science.mixtures.surfaces import Kind, KnownSurface, known_surface

KINDS: tuple[Kind, ...] = ("log_linear", "quadratic", "interaction")
NOISE = 0.0016
"""Standard deviation of repeats (marin-community/marin#2404)."""
SEED = 0


def regrets(kind: Kind, sources: int, trials: int, seed: int, next_mixtures: NextMixtures | None = None) -> tuple[float, float]:
    """Regret of one round and of two at the same number of trials; the surface, the noise and its seed are the same."""
    surface = known_surface(kind, sources, seed)
    random = np.random.default_rng([seed, trials])
    of_round = next_mixtures or NextMixtures(trials // 2)
    whole = swarm(surface.prior, surface.limits, trials, seed)
    first = swarm(surface.prior, surface.limits, trials - of_round.count, seed)
    runs = _measured(surface, first, random)
    second = next_round(first, runs, surface.prior, surface.limits, of_round, seed).weights
    more = _measured(surface, second, random)
    both = {name: np.concatenate([runs[name], more[name]]) for name in runs}
    once = _regret(surface, whole, _measured(surface, whole, random))
    return once, _regret(surface, np.concatenate([first, second]), both)


def _measured(surface: KnownSurface, weights: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: of(weights) + random.normal(0, NOISE, len(weights)) for name, of in surface.metrics.items()}


def _regret(surface: KnownSurface, weights: np.ndarray, runs: dict[str, np.ndarray]) -> float:
    """Regret of the weights that `propose` gives, without its interval."""
    fitted = mean_of(list(fit_metrics(weights, runs).values()))
    return surface.regret(lowest(fitted, weights, surface.prior, surface.limits, np.random.default_rng(SEED)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, default=8)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--surfaces", type=int, default=50)
    parser.add_argument("--apart", type=float, nargs="+", default=NextMixtures.apart)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    print("| surface | sources | trials | one round | two rounds | difference | CPU s |", "|---" * 7 + "|", sep="\n")
    for kind in options.kinds:
        before = time.process_time()
        asked = NextMixtures(options.trials // 2, tuple(options.apart))
        rows = np.array([regrets(kind, options.sources, options.trials, seed, asked) for seed in range(options.surfaces)])
        shown = [
            f"{side.mean():.4f} ± {side.std(ddof=1) / np.sqrt(len(side)):.4f}"
            for side in (rows[:, 0], rows[:, 1], rows[:, 0] - rows[:, 1])
        ]
        spent = time.process_time() - before
        print(f"| {kind} | {options.sources} | {options.trials} | {' | '.join(shown)} | {spent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
