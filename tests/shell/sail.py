"""A process of its own that sails the small ferry up to a stage, without Dagster: `python sail.py ROOT STAGE`, to be killed.

The graph is imported inside `main`: worker processes import this file again as their main module.
"""

import logging
import sys


def main(root: str, last_stage: str) -> None:
    from small_lines import DAY, small_ferry

    from lineage.plan import build
    from lineage.store import Store
    from recipes import ferry as recipe

    store = Store(f"{root}/ttl-7d", workers=2, scratch_folder=f"{root}/work")
    ferry = small_ferry()
    build(store, recipe.roster(ferry, DAY, reachable=True))
    nodes = recipe.nodes(ferry.line(DAY, reachable=True))
    end = max(index for index, node in enumerate(nodes) if node.stage.name == last_stage)
    for node in nodes[: end + 1]:
        build(store, node)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    main(*sys.argv[1:])
