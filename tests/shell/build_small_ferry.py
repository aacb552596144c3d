"""Build the small ferry up to a stage, without Dagster, in a process: `python build_small_ferry.py ROOT STAGE [kill]`.

With `kill` it kills its process group when the first shard of that stage is finished. Others kill it from outside.
The graph is imported inside `main`: worker processes import this file again as their main module.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from unittest import mock


def main(root: str, last_stage: str, end_of_it: str = "") -> None:
    from small_runs import DAY, small_ferry

    from lineage.artifact.store import Store
    from lineage.build.plan import build
    from lineage.shards import run
    from lineage.shards.execution import Execution
    from recipes import ferry as recipe

    store = Store(f"{root}/ttl-7d", scratch_folder=f"{root}/work")
    two_workers = Execution(2)
    ferry = small_ferry()
    build(store, recipe.roster(ferry, DAY, reachable=True))
    nodes = recipe.nodes(ferry.run(DAY, reachable=True))
    end = max(index for index, node in enumerate(nodes) if node.stage.name == last_stage)
    for node in nodes[: end + 1]:
        if end_of_it == "kill" and node.stage.name == last_stage:
            with mock.patch("lineage.shards.run._attempts", killed_at_the_first_of(run._attempts)):
                build(store, node, execution=two_workers)
        else:
            build(store, node, execution=two_workers)


def killed_at_the_first_of(attempts):
    def killed(*given: object) -> Iterator[tuple[str, object]]:
        for ended in attempts(*given):
            os.killpg(0, signal.SIGKILL)
            yield ended

    return killed


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    main(*sys.argv[1:])
