"""A process of its own that sails the small ferry up to a stage, without Dagster: `python sail.py ROOT STAGE [kill]`.

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
    from small_lines import DAY, small_ferry

    from lineage import shards
    from lineage.plan import build
    from lineage.store import Store
    from recipes import ferry as recipe

    store = Store(f"{root}/ttl-7d", workers=2, scratch_folder=f"{root}/work")
    ferry = small_ferry()
    build(store, recipe.roster(ferry, DAY, reachable=True))
    nodes = recipe.nodes(ferry.line(DAY, reachable=True))
    end = max(index for index, node in enumerate(nodes) if node.stage.name == last_stage)
    for node in nodes[: end + 1]:
        if end_of_it == "kill" and node.stage.name == last_stage:
            with mock.patch("lineage.shards._attempts", killed_at_the_first_of(shards._attempts)):
                build(store, node)
        else:
            build(store, node)


def killed_at_the_first_of(attempts):
    def killed(*given: object) -> Iterator[tuple[str, object]]:
        for ended in attempts(*given):
            os.killpg(0, signal.SIGKILL)
            yield ended

    return killed


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    main(*sys.argv[1:])
