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
    options = parser.parse_args()
    print("| surface | sources | runs | regret | RegMix's | 90 % intervals of the gain that hold |", "|---" * 6 + "|", sep="\n")
    for kind in KINDS:
        ours, peers, held = [], [], []
        for seed in range(options.surfaces):
            surface = known_surface(kind, options.sources, seed)
            weights = swarm(surface.prior, surface.limits, options.runs, seed)
            random = np.random.default_rng(seed)
            metrics = {
                name: of(weights) + random.normal(0, options.noise, options.runs) for name, of in surface.metrics.items()
            }
            proposal = propose(weights, metrics, surface.prior, surface.limits, ProposalConfig(draws=options.draws))
            expected = surface.mean(np.stack([surface.prior, np.array(proposal.weights)]))
            held.append(proposal.low <= expected[0] - expected[1] <= proposal.high)
            ours.append(surface.regret(np.array(proposal.weights)))
            peers.append(surface.regret(regmix_proposal(weights, metrics, surface.prior, surface.limits, seed)))
        means = [f"{np.mean(side):.3f} ± {np.std(side) / np.sqrt(len(side)):.3f}" for side in (ours, peers)]
        print(f"| {kind} | {options.sources} | {options.runs} | {means[0]} | {means[1]} | {np.mean(held):.2f} |", flush=True)


if __name__ == "__main__":
    main()
