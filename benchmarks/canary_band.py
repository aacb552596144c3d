"""How far the canary's final loss lies apart for other seeds: what its band (`recipes/canary.py: RECORDED`) rests on.

    PYTHONPATH=. .venv/bin/python benchmarks/canary_band.py --seeds 4

The canary's own data and spec, trained in a scratch store, once with the recorded seed (twice, to see whether it comes out the
same to the bit) and once with each of some others. A change of numerics that matters less than a seed cannot be told from one.
"""

import argparse
import dataclasses
import statistics
import tempfile

from lineage.artifact.store import Artifact
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build
from lineage.shards.execution import Execution
from recipes.canary import canary, canary_run
from recipes.runs import checkpoint
from resources.lab import Lab

DAY = "2026-11-21"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="how many other seeds")
    options = parser.parse_args()
    recorded = canary_run("cpu", DAY).spec.seed
    losses = {}
    with tempfile.TemporaryDirectory(prefix="canary-band-") as scratch:
        first, again = (trained(f"{scratch}/{name}", recorded) for name in ("first", "again"))
        same = first.data_version == again.data_version
        print(f"seed {recorded} twice: {'the same to the bit' if same else 'NOT the same to the bit'}", flush=True)
        losses[recorded] = _loss(first)
        for seed in range(recorded + 1, recorded + 1 + options.seeds):
            losses[seed] = _loss(trained(f"{scratch}/first", seed))
            print(f"seed {seed}: {losses[seed]:.4f} nats", flush=True)
    low, high, middle = min(losses.values()), max(losses.values()), statistics.fmean(losses.values())
    print(f"{len(losses)} seeds: mean {middle:.4f}, {low:.4f} to {high:.4f} nats ({(high - low) / middle:.1%} apart)")
    print(f"the recorded seed: {losses[recorded]:.4f}; band {canary('cpu').band}")


def trained(root: str, seed: int) -> Artifact:
    """The canary's checkpoint with a seed, its data made where they are missing."""
    lab = Lab.at(root, execution=Execution(2))
    run = canary_run("cpu", DAY)
    node = checkpoint(dataclasses.replace(run, spec=dataclasses.replace(run.spec, seed=seed)), run.spec.num_steps)
    for ancestor in ancestors_first([node]):
        made = build(lab.store, ancestor, launcher=lab.launcher).artifact
    return made


def _loss(artifact: Artifact) -> float:
    return float(artifact.manifest.extra["checkpoint"]["loss_nats"])


if __name__ == "__main__":
    main()
