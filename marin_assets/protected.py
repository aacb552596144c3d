"""What the lab declares in a store, as roots that a purge keeps (`operations.storage.protect`)."""

import datetime

from lineage.artifact.store import Store
from lineage.build.nodes import find_all
from marin_assets.declared_table import tabled
from recipes.lab import Declarations

CANARY_DAYS = 30
"""Canaries of this many days are kept, because bands and medians are computed from them."""


def declared_artifacts(store: Store, declared: Declarations, now: datetime.datetime) -> dict[str, str]:
    """Return address -> why of the artifacts of all declared nodes, and of recent canaries.

    Raises: ValueError if a declaration is broken, because it is unknown which artifacts it needs.
    """
    table, sound = tabled(declared)
    if sound.broken:
        raise ValueError(f"{len(sound.broken)} declarations are broken; mend them before a purge. The first: {sound.broken[0]}")
    nodes, why = [], dict[str, str]()
    for template in table:
        if template.node is None:
            key = "/".join(template.example.key)
            why |= {a.spec.address: f"{key} is declared" for a in store.artifacts(*template.example.key)}
            continue
        partitions = template.partitions() if template.partitions_def is not None else [None]
        nodes += [template.node(None if partition is None else str(partition)) for partition in partitions]
    pairs = zip(nodes, find_all(store, nodes), strict=True)
    why |= {artifact.spec.address: f"{node.name} is declared" for node, artifact in pairs if artifact is not None}
    oldest = (now - datetime.timedelta(days=CANARY_DAYS)).isoformat()
    why |= {a.spec.address: "a recent canary" for a in store.artifacts("canary") if a.manifest.created >= oldest}
    return why
