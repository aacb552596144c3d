"""Whole-document packing: a document that fits into a sequence lies whole in one, and the space that documents leave is
padding.

The plan is made once, when a mixture is frozen, one window of documents at a time: best fit decreasing, vectorized over
pieces of equal length. So memory does not grow with the documents. The plan is a file, 12 bytes a document. Reading
sequence `i` takes two slices of it; the way back, from a document to its sequences, reads only that document's window.
"""

import bisect
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np

from lineage.order.document_ends import DocumentEnds

FOLDER = "packing"
FILES = ("starts", "lengths", "firsts", "windows")
type Overlong = Literal["cut", "truncate", "drop", "refuse"]
OVERLONG: tuple[Overlong, ...] = ("cut", "truncate", "drop", "refuse")


@dataclass(frozen=True)
class Packing:
    """How documents are packed. A document longer than a sequence is cut into full sequences and a rest, truncated to
    its first `seq_len` tokens, dropped (both are counted), or refused.
    """

    seq_len: int
    overlong: Overlong = "cut"
    max_documents: int | None = None
    """Most documents in one sequence; Levanter allows 64. None: as many as fit."""
    window: int = 1 << 16
    """Documents that are packed together, next to each other in the cache. A larger window leaves less padding, and the
    documents of a sequence are further apart.
    """

    def __post_init__(self) -> None:
        if self.seq_len < 2:
            raise ValueError(f"packing.seq_len is {self.seq_len}; it must be at least 2")
        if self.overlong not in OVERLONG:
            raise ValueError(f"packing.overlong is {self.overlong!r}; allowed: {', '.join(OVERLONG)}")
        if self.max_documents is not None and self.max_documents < 1:
            raise ValueError(f"packing.max_documents is {self.max_documents}; it must be at least 1, or None")
        if self.window < 1:
            raise ValueError(f"packing.window is {self.window}; it must be at least 1")


@dataclass(frozen=True)
class PackingStatistics:
    """What became of a component's documents and tokens: `num_tokens` of the cache are packed, the others dropped."""

    sequences: int
    pieces: int
    num_tokens: int
    padding: int
    """Positions of sequences that hold no token."""
    documents_cut: int
    documents_dropped: int
    tokens_dropped: int


def plan_files(component: int) -> list[str]:
    """Return the paths of a plan in a mixture, by the number of its component."""
    return [f"{FOLDER}/{component:03d}/{name}" for name in FILES]


def write_plan(folder: Path, ends: np.ndarray | DocumentEnds, packing: Packing) -> PackingStatistics:
    """Write the plan for documents with given ends (int64 [documents], read one window at a time); return what it
    holds.

    Raises: ValueError for a document that is too long, if the config refuses such.
    """
    folder.mkdir(parents=True)
    totals = np.zeros(len(fields(PackingStatistics)), np.int64)
    windows = [(0, 0, 0)]  # First token, piece and sequence.
    files = [(folder / name).open("wb") for name in FILES[:3]]
    try:
        for starts, lengths in _windows(ends, packing.window):
            pieces, sizes, cut, gone, lost = _cut(starts, lengths, packing)
            order, firsts = _arranged(pieces, best_fit(sizes, packing.seq_len, packing.max_documents))
            arrays = pieces[order].astype("<i8"), sizes[order].astype("<i4"), (firsts + windows[-1][1]).astype("<i8")
            for file, array in zip(files, arrays, strict=True):
                array.tofile(file)
            kept = int(sizes.sum())
            totals += (firsts.size, pieces.size, kept, firsts.size * packing.seq_len - kept, cut, gone, lost)
            last = int(starts[-1] + lengths[-1])
            windows.append((last, windows[-1][1] + pieces.size, windows[-1][2] + firsts.size))
        np.array([windows[-1][1]], "<i8").tofile(files[2])
    finally:
        for file in files:
            file.close()
    np.array(windows, "<i8").tofile(folder / "windows")
    return PackingStatistics(*totals.tolist())


def best_fit(sizes: np.ndarray, capacity: int, max_pieces: int | None = None) -> np.ndarray:
    """Return the bin of every piece, int64 [pieces], by best fit decreasing: the longest piece first (the earlier of
    equal ones), each into the bin with the least sufficient room (the lowest number of equal ones), else into a new
    bin.

    Equal lengths are handled together, and bins with equal contents are kept as one range, so the work grows with the
    number of different lengths: 65,536 documents take some 30 ms.
    """
    limit = capacity if max_pieces is None else max_pieces
    values, counts = np.unique(sizes, return_counts=True)
    rooms: list[int] = []
    """Rooms that some open bin has, ascending."""
    open_bins: dict[int, list[tuple[int, int, int]]] = {}
    """Room -> heap of (first bin, end, pieces in each)."""
    placed: list[tuple[int, int, int]] = []
    """(first bin, end, pieces of the current length in each), longest length first."""
    num_bins = 0

    def put(room: int, first: int, end: int, pieces: int) -> None:
        if room and first < end and pieces < limit:
            if room not in open_bins:
                bisect.insort(rooms, room)
                open_bins[room] = []
            heapq.heappush(open_bins[room], (first, end, pieces))

    for size, count in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while count:
            where = bisect.bisect_left(rooms, size)
            if where < len(rooms):
                room = rooms[where]
                first, end, pieces = heapq.heappop(open_bins[room])
                if not open_bins[room]:
                    del open_bins[room], rooms[where]
            else:
                room, pieces, first = capacity, 0, num_bins
                end = num_bins = first + -(-count // min(capacity // size, limit))
            each = min(room // size, limit - pieces)
            full = min(count // each, end - first)
            rest = min(count - full * each, each) if first + full < end else 0
            placed.append((first, first + full, each))
            put(room - each * size, first, first + full, pieces + each)
            after = first + full
            if rest:
                placed.append((after, after + 1, rest))
                put(room - rest * size, after, after + 1, pieces + rest)
                after += 1
            put(room, after, end, pieces)
            count -= full * each + rest
    bins = np.zeros(sizes.size, np.int64)
    slots = [np.repeat(np.arange(first, end), each) for first, end, each in placed]
    bins[np.argsort(-sizes, kind="stable")] = np.concatenate([np.zeros(0, np.int64), *slots])
    return bins


@dataclass(frozen=True)
class Packed:
    """The sequences of a plan (`lineage.order.sequences.Sequences`)."""

    starts: np.ndarray
    """int64 [pieces]: first token of each piece in the cache, sequence by sequence."""
    lengths: np.ndarray
    """int32 [pieces]."""
    firsts: np.ndarray
    """int64 [sequences + 1]: first piece of each sequence."""
    windows: np.ndarray
    """int64 [windows + 1, 3]: first token, piece and sequence of each window."""

    @staticmethod
    def open(folder: Path) -> "Packed":
        """Map a plan."""
        starts, lengths, firsts = (
            _mapped(folder / n, d) for n, d in (("starts", "<i8"), ("lengths", "<i4"), ("firsts", "<i8"))
        )
        return Packed(starts, lengths, firsts, np.fromfile(folder / "windows", "<i8").reshape(-1, 3))

    @property
    def count(self) -> int:
        return self.firsts.size - 1

    @property
    def is_packed(self) -> bool:
        return True

    def pieces(self, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = np.asarray(sequences, np.int64)
        firsts = self.firsts[values]
        counts = self.firsts[values + 1] - firsts
        which = np.repeat(np.arange(values.size), counts)
        piece = firsts[which] + np.arange(which.size) - (np.cumsum(counts) - counts)[which]
        return which, self.starts[piece], self.lengths[piece].astype(np.int64)

    def holding(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        window = np.searchsorted(self.windows[1:, 0], spans[:, 0], side="right")
        windows = [np.zeros((3, 0), np.int64)]
        for number in np.unique(window[spans[:, 0] < spans[:, 1]]).tolist():
            document = np.flatnonzero((window == number) & (spans[:, 0] < spans[:, 1]))
            windows.append(self._in_window(number, document, spans[document]))
        document, sequence, tokens = np.concatenate(windows, axis=1)
        order = np.lexsort((sequence, document))
        return document[order], sequence[order], tokens[order]

    def _in_window(self, number: int, document: np.ndarray, spans: np.ndarray) -> np.ndarray:
        _, low, first = self.windows[number]
        _, high, end = self.windows[number + 1]
        starts, firsts = self.starts[low:high], self.firsts[first : end + 1]
        order = np.argsort(starts)
        edges = np.searchsorted(starts[order], spans)
        counts = edges[:, 1] - edges[:, 0]
        which = np.repeat(np.arange(len(spans)), counts)
        rank = np.repeat(edges[:, 0] - (np.cumsum(counts) - counts), counts) + np.arange(which.size)
        piece = order[rank] + low
        sequence = first + np.searchsorted(firsts, piece, side="right") - 1
        return np.stack([document[which], sequence, self.lengths[piece]])


def _windows(ends: np.ndarray | DocumentEnds, window: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (starts, lengths) of the documents of each window."""
    for first in range(0, ends.size, window):
        edges = np.concatenate([ends[first - 1 : first] if first else np.zeros(1, np.int64), ends[first : first + window]])
        yield edges[:-1], np.diff(edges)


def _cut(starts: np.ndarray, lengths: np.ndarray, packing: Packing) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Return (starts, lengths) of the pieces, and how many documents were cut, documents dropped, tokens dropped."""
    size, long = packing.seq_len, lengths > packing.seq_len
    if packing.overlong == "refuse" and long.any():
        at = int(np.flatnonzero(long)[0])
        raise ValueError(
            f"packing: the document at token {starts[at]} has {lengths[at]} tokens, more than packing.seq_len {size}; set "
            "packing.overlong to cut, truncate or drop"
        )
    if packing.overlong == "cut":
        counts = -(-lengths // size)
        which = np.repeat(np.arange(starts.size), counts)
        within = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return starts[which] + within * size, np.minimum(lengths[which] - within * size, size), int(long.sum()), 0, 0
    keep = (lengths > 0) & ~long if packing.overlong == "drop" else lengths > 0
    sizes = np.minimum(lengths[keep], size)
    lost = int(lengths.sum() - sizes.sum())
    num_long = int(long.sum())
    cut, gone = (0, num_long) if packing.overlong == "drop" else (num_long, 0)
    return starts[keep], sizes, cut, gone, lost


def _arranged(starts: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (order of the pieces, first piece of each sequence). Pieces of a sequence, and sequences by their first
    piece, keep the order of the cache, so that neighbours are no more alike than documents of the source are.
    """
    by_bin = np.lexsort((starts, bins))
    edges = np.flatnonzero(np.diff(bins[by_bin], prepend=-1))
    counts = np.diff(edges, append=bins.size)
    rank = np.argsort(starts[by_bin[edges]])
    firsts = np.cumsum(counts[rank]) - counts[rank]
    within = np.arange(bins.size) - np.repeat(firsts, counts[rank])
    return by_bin[np.repeat(edges[rank], counts[rank]) + within], firsts


def _mapped(path: Path, dtype: str) -> np.ndarray:
    return np.asarray(np.memmap(path, dtype, mode="r")) if path.stat().st_size else np.zeros(0, dtype)
