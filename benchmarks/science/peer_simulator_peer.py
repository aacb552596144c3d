"""chinchilla's half of benchmarks/science/peer_simulator.py; runs in a separate environment, where nothing of ours is.

PEER/bin/python benchmarks/science/peer_simulator_peer.py OUT.json --draws 50 --runs 100 --noise exponential 0.1
"""

import argparse
import json
import os
import random
import tempfile
from importlib.metadata import version
from pathlib import Path

from chinchilla import Chinchilla
from chinchilla._metrics import asymmetric_mae, log_huber
from chinchilla.simulator import Simulator

NOISES = {"exponential": (lambda mean: random.expovariate(1 / mean), asymmetric_mae), "normal": (random.gauss, log_huber)}
"""Kind -> (a run's noise, the objective of the package that suits it: its default, or that of Hoffmann et al. 2022)."""
STARTS = {"E": (1.4, 2.0), "a": (5.0, 7.0), "b": (5.0, 7.0), "alpha": (0.25, 0.45), "beta": (0.2, 0.4)}
"""32 starts near the truth. The package's example has 3,125, of which a fit takes minutes."""
RANGES = {"C": (1e15, 1e16), "N_to_D": (10, 100)}
"""Those of the package's example: FLOPs, and tokens a parameter."""
TRUTH = {"E": 1.69337368, "A": 406.401018, "B": 410.722827, "alpha": 0.33917084, "beta": 0.2849083}
"""The simulator's default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--draws", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--noise", nargs=2, required=True, metavar=("KIND", "SIZE"), help="exponential MEAN, or normal SIGMA")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        draws = [
            one_draw(seed, options.runs, options.noise[0], float(options.noise[1]), folder) for seed in range(options.draws)
        ]
    options.out.write_text(json.dumps({"version": version("chinchilla"), "truth": TRUTH, "draws": draws}))


def one_draw(seed: int, runs: int, kind: str, size: float, folder: str) -> dict:
    """Simulate, then fit the simulated runs: points, parameters, and CPU seconds of the fit with its processes."""
    random.seed(seed)
    noise, objective = NOISES[kind]
    peer = Chinchilla(folder, param_grid=STARTS, seed_ranges=RANGES, loss_fn=objective, scaling_factor=10.0, log_level=100)
    peer.visualizer.optim = lambda *_, **__: None
    simulator = Simulator(peer)
    simulator.plot = lambda *_, **__: None
    arguments = (0.0, size) if kind == "normal" else (size,)
    simulator(runs, 0, 10.0, TRUTH, (noise, arguments))
    peer.database = simulator.database
    before = _cpu_seconds()
    peer.fit()
    frame = peer.database.df
    points = {name: frame[column].astype(float).tolist() for name, column in (("n", "N"), ("d", "D"), ("losses", "loss"))}
    return points | {"fitted": {"alpha": float(peer.alpha), "beta": float(peer.beta)}, "cpu": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
