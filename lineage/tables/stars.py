"""Connected components of the edges of one range.

Apart from `ranges.py`, because scipy takes longer to import than most workers work (`tests/datakit/test_worker_imports.py`).
"""

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from lineage.tables.ranges import edges


def stars(table: pa.Table) -> pa.Table:
    """Return one edge from the smallest number of each connected component to every other, sorted by member."""
    ends = np.stack([table["root"].to_numpy(), table["member"].to_numpy()], axis=1)
    nodes, compact = np.unique(ends, return_inverse=True)
    if not nodes.size:
        return edges(nodes, nodes)
    compact = compact.reshape(-1, 2)
    graph = coo_array((np.ones(len(compact), np.int8), (compact[:, 0], compact[:, 1])), shape=(nodes.size, nodes.size))
    _, labels = connected_components(graph, directed=False)
    _, firsts = np.unique(labels, return_index=True)
    roots = nodes[firsts][labels]
    hangs = roots != nodes
    return edges(roots[hangs], nodes[hangs])
