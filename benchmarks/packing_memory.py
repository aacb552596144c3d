"""Memory of packing 10^8 documents, and what the plan says of them: `python benchmarks/packing_memory.py [DOCUMENTS]`.

Lengths are log-normal (mean about 420 tokens, one in 50 above the 2,048 of a sequence), in shards of a million, each a map of
its own as in a token cache. Beside it, what one array of all ends takes, which is what was made before. Pages of the maps count
as resident while the kernel keeps them, so anonymous memory is reported too: only that must be found.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from process_use import peak_mib

from lineage.order.document_ends import DocumentEnds
from lineage.order.packing import Packed, Packing, write_plan

SHARD, SEQ_LEN = 1_000_000, 2048
CHECKED = 1000


class Watched(DocumentEnds):
    """Notes the anonymous memory at every window."""

    most_mib = 0.0

    def __getitem__(self, window: slice) -> np.ndarray:
        Watched.most_mib = max(Watched.most_mib, anonymous_mib())
        return super().__getitem__(window)


def anonymous_mib() -> float:
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]) / 1024


def written(folder: Path, documents: int) -> tuple[list[np.ndarray], list[int]]:
    """Maps of each shard's ends, and the first token of each shard."""
    maps, bases = [], [0]
    for number, first in enumerate(range(0, documents, SHARD)):
        rng = np.random.default_rng(number)
        lengths = np.maximum(1, rng.lognormal(5.5, 1.05, min(SHARD, documents - first)).astype(np.int64))
        path = folder / f"{number}.ends"
        np.cumsum(lengths).tofile(path)
        maps.append(np.asarray(np.memmap(path, "<i8", mode="r")))
        bases.append(bases[-1] + int(lengths.sum()))
    return maps, bases


def main(documents: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maps, bases = written(folder, documents)
        whole = DocumentEnds.of(maps, bases)
        ends = Watched(whole.shards, whole.bases, whole.firsts)
        before = anonymous_mib()
        packed = write_plan(folder / "plan", ends, Packing(SEQ_LEN))
        print(f"{documents:,} documents, {bases[-1]:,} tokens in {len(maps)} shards: {packed}")
        print(f"padding {packed.padding / (packed.sequences * SEQ_LEN):.2%}")
        print(f"anonymous memory: {before:.0f} MiB before, at most {Watched.most_mib:.0f} MiB at a window", end="")
        print(f"; one array of all ends is {documents * 8 / 2**20:.0f} MiB; peak with mapped pages {peak_mib():.0f} MiB")
        plan = Packed.open(folder / "plan")
        sequences = np.linspace(0, plan.count - 1, CHECKED).astype(np.int64)
        which, starts, lengths = plan.pieces(sequences)
        assert np.bincount(which, lengths).max() <= SEQ_LEN and packed.num_tokens == bases[-1]
        held = whole.at_or_before(starts)
        assert (whole.at_or_before(starts + lengths - 1) == held).all(), "a piece lies in two documents"
        print(f"{CHECKED} sequences: {len(starts)} pieces, each of one document, none above {SEQ_LEN} tokens")


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**8)
