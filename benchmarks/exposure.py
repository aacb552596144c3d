"""Which steps of a 1.07T-token cooldown saw a million flagged documents: the geometry of the 32B recipe's Mantis cooldown.

    PYTHONPATH=. .venv/bin/python benchmarks/exposure.py --documents 1000000

The mixture's shares are those of Marin 32B (docs/references.md#marin-32b), the sizes those of the catalogue's
sources (or what their share of the run reads, where it names none). Documents are random spans, spread over the components by
size. No token is read: the order is inverted from sizes, seeds and weights alone, so the caches here have lengths and no
bytes. A sample is checked forward, index by index. The bar is 60 s on one core and 2 GB.
"""

import argparse
import resource
import time
from dataclasses import dataclass

import numpy as np
import polars as pl

from lineage.order.apportion import OrderPhase
from lineage.order.batches import BatchSchedule
from lineage.order.exposure import span_exposures
from lineage.order.order import DataOrder
from lineage.order.sequences import Chunked

SEQ_LEN, BATCH_SIZE, NUM_STEPS, BLOCK_SIZE = 4096, 8192, 32_000, 2048
CHECKED = 200
COMPONENTS: dict[str, tuple[float, float | None]] = {
    "nemotron_cc/medium": (21.49, 3380.0),
    "nemotron_cc/hq_synth": (17.29, 2720.0),
    "nemotron_cc/medium_low": (9.79, 1540.0),
    "nemotron_cc/hq_actual": (5.81, 913.5),
    "nemotron_cc/medium_high": (5.24, 824.7),
    "nemotron_cc/low_actual": (4.46, 701.2),
    "nemotron_cc/low_synth": (3.99, 627.7),
    "megamath/web": (5.57, 263.9),
    "arxiv_markdownified": (4.54, None),
    "megamath/text_code_block": (4.24, 50.3),
    "dolmino/pes2o": (4.54, 58.6),
    "megamath/web_pro": (1.27, 15.1),
    "megamath/translated_code": (0.61, 7.2),
    "megamath/qa": (0.59, 7.0),
    "finemath-3-plus": (2.66, 34.0),
    "dolmino/flan": (2.66, 17.0),
    "stackexchange_custom": (1.34, None),
    "dolmino/stackexchange": (1.34, 1.26),
    "starcoderdata": (1.59, 250.0),
    "proofpile_2": (0.35, 55.0),
    "wikipedia_markdown": (0.29, None),
    "dolmino/wiki": (0.29, 3.7),
    "medu_science_qa": (0.09, None),
}
"""Share of the cooldown in per cent, and size in billions of tokens."""


@dataclass(frozen=True)
class Lengths:
    """Of a token cache, the one thing that the order asks."""

    num_tokens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    options = parser.parse_args()
    order = cooldown()
    batches = BatchSchedule.of(BATCH_SIZE)
    random = np.random.default_rng(0)
    sizes = np.array([cache.num_tokens for cache in order.caches], float)
    counts = random.multinomial(options.documents, sizes / sizes.sum())
    started = time.perf_counter()
    read, seen = [], 0
    for name, cache, count in zip(order.names, order.caches, counts.tolist(), strict=True):
        starts = random.integers(0, cache.num_tokens - 2_000, count)
        spans = np.stack([starts, starts + random.integers(50, 2_000, count)], axis=1)
        exposures = span_exposures(order, name, spans, batches=batches, num_steps=NUM_STEPS)
        read.append(exposures.with_columns(component=pl.lit(name)))
        seen += exposures["document"].n_unique()
    seconds = time.perf_counter() - started
    reads = pl.concat(read)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{NUM_STEPS * BATCH_SIZE * SEQ_LEN / 1e12:.3f} T tokens, {len(COMPONENTS)} components, {options.documents:,} documents"
    )
    print(f"{seen:,} of them were read, {reads.height:,} reads: {seconds:.1f} s, peak {peak:.2f} GiB (bars 60 s, 2 GB)")
    check_forward(order, reads, batches)


def cooldown() -> DataOrder:
    """The data order of the cooldown, over caches that have nothing but their lengths."""
    weights = np.array([share for share, _ in COMPONENTS.values()])
    whole = NUM_STEPS * BATCH_SIZE * SEQ_LEN
    lengths = [int(size * 1e9) if size is not None else int(share / 100 * whole) for share, size in COMPONENTS.values()]
    caches = tuple(Lengths(length) for length in lengths)
    phases = (OrderPhase(0, weights / weights.sum()),)
    sequences = tuple(Chunked(SEQ_LEN, length) for length in lengths)
    return DataOrder(tuple(COMPONENTS), caches, sequences, SEQ_LEN, BLOCK_SIZE, "splitmix", 5, phases)  # pyrefly: ignore


def check_forward(order: DataOrder, reads: pl.DataFrame, batches: BatchSchedule) -> None:
    """Raises: AssertionError when a reported read is not what the order gives at that place."""
    sample = reads.sample(min(CHECKED, reads.height), seed=0)
    for component, sequence, step, row in sample.select("component", "sequence", "step", "row").iter_rows():
        located = order.sequence_at(batches.first(step) + row)
        assert located == (component, sequence), f"step {step}, row {row}: {located}, not {(component, sequence)}"
    print(f"{sample.height} of the reads checked forward: the batch's row is that sequence")


if __name__ == "__main__":
    main()
