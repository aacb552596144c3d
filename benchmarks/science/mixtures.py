"""Regret of the mixture search on known surfaces: `python -m benchmarks.science.mixtures 8 50 --surfaces 50`.

Sources, runs; the peer is RegMix's trees on the same designs and noise. With `--rows FILE` every surface becomes a line of the
file when it is done, and a surface that has a line is not run again. Dated results: docs/design/science.md.
Rows of another version of the search need a file of their own.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from science.mixtures.designs import swarm
from science.mixtures.propose import ProposalConfig, propose, regmix_proposal
from science.mixtures.surfaces import Kind, known_surface

KINDS: tuple[Kind, ...] = ("log_linear", "quadratic", "interaction")
DENSE: Kind = "dense"
"""All pairs of sources interact. It has no bar, so it runs only where it is named: `--kinds dense`."""


def one_surface(kind: Kind, seed: int, sources: int, runs: int, noise: float, peer: bool) -> dict[str, float | None]:
    """Search one surface. Regrets are shares of the gap; gain, truth, low and high are in the unit of the metrics."""
    started = time.process_time()
    surface = known_surface(kind, sources, seed)
    weights = swarm(surface.prior, surface.limits, runs, seed)
    random = np.random.default_rng(seed)
    metrics = {name: of(weights) + random.normal(0, noise, runs) for name, of in surface.metrics.items()}
    proposal = propose(weights, metrics, surface.prior, surface.limits, ProposalConfig())
    expected = surface.mean(np.stack([surface.prior, np.array(proposal.weights)]))
    ours = time.process_time() - started
    theirs = surface.regret(regmix_proposal(weights, metrics, surface.prior, surface.limits, seed)) if peer else None
    return {
        "seed": seed,
        "regret": surface.regret(np.array(proposal.weights)),
        "peer": theirs,
        "gap": surface.gap,
        "truth": float(expected[0] - expected[1]),
        "gain": proposal.gain,
        "low": proposal.low,
        "high": proposal.high,
        "cpu": ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=int)
    parser.add_argument("runs", type=int)
    parser.add_argument("--surfaces", type=int, default=50, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=(*KINDS, DENSE))
    parser.add_argument("--rows", type=Path, help="a file to continue from")
    parser.add_argument(
        "--noise", type=float, default=0.0016, help="standard deviation of repeats (marin-community/marin#2404)"
    )
    parser.add_argument("--without-peer", action="store_true", help="leave RegMix's trees out")
    options = parser.parse_args()
    asked = {key: getattr(options, key) for key in ("sources", "runs", "noise")}
    lines = options.rows.read_text().splitlines() if options.rows and options.rows.exists() else []
    done = {(row["kind"], row["seed"]): row for row in map(json.loads, lines) if asked.items() <= row.items()}
    print("| surface | n | regret | RegMix's | 90 % intervals that hold | width / gap | CPU s |", "|---" * 7 + "|", sep="\n")
    for kind in options.kinds:
        rows = []
        for seed in range(options.first, options.first + options.surfaces):
            if (row := done.get((kind, seed))) is None:
                row = asked | {"kind": kind} | one_surface(kind, seed=seed, peer=not options.without_peer, **asked)
                if options.rows:
                    with options.rows.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                print(f"{kind} {seed}: regret {row['regret']:.4f}, {row['cpu']:.1f} CPU s", file=sys.stderr, flush=True)
            rows.append(row)
        print(summary(kind, rows), flush=True)


def summary(kind: Kind, rows: list[dict[str, float | None]]) -> str:
    """A row of the table; errors are those of the mean, and the peer's mean is over the surfaces that have it."""
    of = {key: np.array([row[key] for row in rows if row[key] is not None], float) for key in rows[0] if key != "kind"}
    regret, peer = (_mean(of[side]) for side in ("regret", "peer"))
    held = (of["low"] <= of["truth"]) & (of["truth"] <= of["high"])
    width = ((of["high"] - of["low"]) / of["gap"]).mean()
    return f"| {kind} | {len(rows)} | {regret} | {peer} | {held.mean():.2f} | {width:.3f} | {of['cpu'].mean():.1f} |"


def _mean(values: np.ndarray) -> str:
    if len(values) < 2:
        return "-"
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    main()
