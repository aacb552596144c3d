"""Regret of the mixture search on known surfaces: `python -m benchmarks.science.mixtures 8 50 --surfaces 50`.

Sources, runs; the peer is RegMix's trees on the same designs and noise. Dated results: docs/design/science.md.
"""

import argparse

import numpy as np

from science.mixtures.designs import swarm
from science.mixtures.propose import ProposalConfig, propose, regmix_proposal
from science.mixtures.surfaces import Kind, known_surface

KINDS: tuple[Kind, ...] = ("log_linear", "quadratic", "interaction")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=int)
    parser.add_argument("runs", type=int)
    parser.add_argument("--surfaces", type=int, default=50)
    parser.add_argument(
        "--noise", type=float, default=0.0016, help="standard deviation of repeats (marin-community/marin#2404)"
    )
    parser.add_argument("--draws", type=int, default=20)
    asked = parser.parse_args()
    print("| surface | sources | runs | regret | RegMix's | 90 % intervals of the gain that hold |", "|---" * 6 + "|", sep="\n")
    for kind in KINDS:
        ours, peers, held = [], [], []
        for seed in range(asked.surfaces):
            surface = known_surface(kind, asked.sources, seed)
            weights = swarm(surface.prior, surface.limits, asked.runs, seed)
            random = np.random.default_rng(seed)
            metrics = {name: of(weights) + random.normal(0, asked.noise, asked.runs) for name, of in surface.metrics.items()}
            found = propose(weights, metrics, surface.prior, surface.limits, ProposalConfig(draws=asked.draws))
            expected = surface.mean(np.stack([surface.prior, np.array(found.weights)]))
            held.append(found.low <= expected[0] - expected[1] <= found.high)
            ours.append(surface.regret(np.array(found.weights)))
            peers.append(surface.regret(regmix_proposal(weights, metrics, surface.prior, surface.limits, seed)))
        means = [f"{np.mean(side):.3f} ± {np.std(side) / np.sqrt(len(side)):.3f}" for side in (ours, peers)]
        print(f"| {kind} | {asked.sources} | {asked.runs} | {means[0]} | {means[1]} | {np.mean(held):.2f} |", flush=True)


if __name__ == "__main__":
    main()
