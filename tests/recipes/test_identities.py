"""What every declared artifact is made by and from, against a reviewed file: an unwanted change remakes everything below it.

An address follows from key, partition, stage, version, config and inputs. Here each asset key has one digest of all that, over
its partitions, so a record can be renamed or split freely as long as the file stays. `python tests/recipes/test_identities.py`
writes it; docs/log.md says why when it changes.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from datakit.sources.source import InstalledPython, Source
from lineage.build.nodes import Node, ancestors_first
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from marin_assets.declared_table import tabled
from recipes import ferry as recipe
from recipes.canary import canary_run
from recipes.lab import declarations
from recipes.runs import checkpoint
from recipes.smoke import smoke_ferry

GOLDEN = Path(__file__).with_name("identities.golden.json")
DAY = "2026-11-20"


def identities() -> dict[str, dict[str, str]]:
    """Group -> asset key -> digest of every partition's identity."""
    table, _ = tabled(declarations())
    made = [asset.node(name) for asset in table if asset.node for name in asset.partitions() or [None]]
    canaries = [
        checkpoint(run, run.spec.num_steps) for run in (canary_run(each.hardware, DAY) for each in declarations().canaries)
    ]
    ferry = smoke_ferry()
    online, offline = (
        [recipe.roster(ferry, DAY, reachable=reachable), *recipe.nodes(ferry.run(DAY, reachable=reachable))]
        for reachable in (True, False)
    )
    return {"canonical": by_key([*made, *canaries]), "ferry online": by_key(online), "ferry offline": by_key(offline)}


def by_key(nodes: Iterable[Node]) -> dict[str, str]:
    digests: dict[int, str] = {}
    members = defaultdict(set)

    def digest(node: Node) -> str:
        if id(node) not in digests:
            inputs = {
                name: [digest(each) for each in (value if isinstance(value, tuple) else (value,))]
                for name, value in node.inputs.items()
            }
            identity = [list(node.key), node.partition, node.stage.name, node.stage.version, config_of(node), inputs]
            digests[id(node)] = identity_digest(identity)
        return digests[id(node)]

    kept = ancestors_first(list(nodes))
    for node in kept:
        members["/".join(node.key)].add((node.partition or "", digest(node)))
    return {key: identity_digest(sorted(list(pair) for pair in of_key))[:16] for key, of_key in sorted(members.items())}


def config_of(node: Node) -> object:
    """The config, without the listing of the Python that happens to be installed."""
    if isinstance(node.config, Source) and isinstance(node.config.loader, InstalledPython):
        return node.config.name
    return to_jsonable(node.config)


def test_every_declared_identity_is_the_reviewed_one() -> None:
    assert identities() == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(identities(), indent=1) + "\n")
