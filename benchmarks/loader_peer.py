"""Levanter's datasets in their own environment: a shuffled mixture of token caches, asked for batches; prints one line of JSON.

    PYTHON benchmarks/loader_peer.py ROOT TOKENS_PER_COMPONENT COMPONENTS SEQ_LEN BATCH STEPS

Caches are written once by Levanter's own writer. Measured is `MixtureDataset.get_batch` of consecutive indices and stacking the
rows to int32, in CPU time of the process; the DataLoader's placement on devices is left out, in Levanter's favour.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from levanter.data.mixture import MixtureDataset
from levanter.data.text.datasets import TokenSeqDataset
from levanter.store.cache import SerialCacheWriter, TreeCache

EXEMPLAR = {"input_ids": np.zeros(1, np.int32)}


def cache(folder: Path, num_tokens: int, seed: int) -> TreeCache:
    """Random tokens in log-normal documents, written if they are not there."""
    if not (folder / "shard_ledger.json").exists():
        random = np.random.default_rng(seed)
        lengths = random.lognormal(6, 1.1, num_tokens // 500).astype(np.int64) + 1
        lengths = lengths[np.cumsum(lengths) <= num_tokens]
        with SerialCacheWriter(str(folder), EXEMPLAR) as writer:
            for first in range(0, lengths.size, 4096):
                documents = [random.integers(0, 50_000, n, dtype=np.int32) for n in lengths[first : first + 4096].tolist()]
                writer.write_batch([{"input_ids": tokens} for tokens in documents])
    return TreeCache.load(str(folder), EXEMPLAR)


async def measure(mixture: MixtureDataset, batch: int, steps: int) -> float:
    """CPU seconds of all batches after the first."""
    await mixture.get_batch(list(range(batch)))
    started = time.process_time()
    for step in range(1, steps + 1):
        rows = await mixture.get_batch(list(range(step * batch, (step + 1) * batch)))
        np.stack([row["input_ids"] for row in rows]).astype(np.int32)
    return time.process_time() - started


def main() -> None:
    root, (num_tokens, components, seq_len, batch, steps) = Path(sys.argv[1]), map(int, sys.argv[2:7])
    caches = {f"c{n}": cache(root / f"levanter-{num_tokens}-{n}", num_tokens, n) for n in range(components)}
    datasets = {
        name: TokenSeqDataset(token_cache, seq_len).shuffle(jax.random.PRNGKey(1)) for name, token_cache in caches.items()
    }
    weights = {name: 1.0 + number for number, name in enumerate(datasets)}
    mixture = MixtureDataset(datasets, weights, block_size=2048, key=jax.random.PRNGKey(0))
    seconds = asyncio.run(measure(mixture, batch, steps))
    print(json.dumps({"tokens_per_cpu_second": steps * batch * seq_len / seconds}))


if __name__ == "__main__":
    main()
