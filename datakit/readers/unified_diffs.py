"""Unified diffs of two texts, as `diff -u` and git write them, in bounded time.

Python's difflib alone takes quadratic time, minutes for a file of 20,000 lines. As in patience diff, lines that occur
once in both texts are matched first, and difflib compares what is between them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

CONTEXT_LINES = 3
MAX_COMPARED_LINES = 1_000
"""Lines between two matches that are compared with each other; of more, all are removed and all are added."""

NO_LINE_END = "\\ No newline at end of file\n"

type Matches = list[tuple[int, int]]
"""Lines that are equal: their numbers in the old and in the new text, both ascending."""


class _Found(SequenceMatcher[str]):
    """difflib's hunks over matches that were found otherwise."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, "", "")
        self.found = list(_opcodes(_matches(old, new), len(old), len(new)))

    def get_opcodes(self) -> list[tuple[str, int, int, int, int]]:  # type: ignore[override]
        return self.found


def unified_hunks(old: str, new: str) -> str:
    """Return the hunks that make `new` of `old`, with three lines around each change; "" if they are equal."""
    before, after = _lines(old), _lines(new)
    out = list[str]()
    for group in _Found(before, after).get_grouped_opcodes(CONTEXT_LINES):
        out.append(f"@@ -{_range(group[0][1], group[-1][2])} +{_range(group[0][3], group[-1][4])} @@\n")
        for tag, old_start, old_stop, new_start, new_stop in group:
            if tag == "equal":
                out += (_marked(" ", line) for line in before[old_start:old_stop])
            else:
                out += (_marked("-", line) for line in before[old_start:old_stop])
                out += (_marked("+", line) for line in after[new_start:new_stop])
    return "".join(out)


def _lines(text: str) -> list[str]:
    """Cut at line feeds only, as git does: `splitlines` cuts at eight other characters."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{NO_LINE_END}"


def _range(start: int, stop: int) -> str:
    """Write lines as git does: from 1, and an empty range by the line before it."""
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


def _opcodes(matches: Matches, old_count: int, new_count: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield runs of equal and of changed lines, as difflib names them."""
    old_at = new_at = old_from = new_from = 0
    for old, new in [*matches, (old_count, new_count)]:
        if (old, new) == (old_at, new_at) and old < old_count and new < new_count:
            old_at, new_at = old + 1, new + 1
            continue
        if old_at > old_from:
            yield "equal", old_from, old_at, new_from, new_at
        if old > old_at or new > new_at:
            tag = "replace" if old > old_at and new > new_at else "delete" if old > old_at else "insert"
            yield tag, old_at, old, new_at, new
        old_from, new_from, old_at, new_at = old, new, old + 1, new + 1


def _matches(old: Sequence[str], new: Sequence[str]) -> Matches:
    """Match what both texts begin and end with, then lines that are unique, then what difflib finds between these."""
    head, tail = _ends(old, new)
    old_stop, new_stop = len(old) - tail, len(new) - tail
    anchors = _unique_matches(old[head:old_stop], new[head:new_stop])
    matches = [(line, line) for line in range(head)]
    old_at, new_at = head, head
    for old_anchor, new_anchor in [*((o + head, n + head) for o, n in anchors), (old_stop, new_stop)]:
        if old_at < old_anchor and new_at < new_anchor:
            between = _compared(old[old_at:old_anchor], new[new_at:new_anchor])
            matches += ((old_at + o, new_at + n) for o, n in between)
        if old_anchor < old_stop:
            matches.append((old_anchor, new_anchor))
        old_at, new_at = old_anchor + 1, new_anchor + 1
    return matches + [(old_stop + line, new_stop + line) for line in range(tail)]


def _ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines are equal at the beginning, and of the others at the end."""
    head, tail, shorter = 0, 0, min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _unique_matches(old: Sequence[str], new: Sequence[str]) -> Matches:
    """Return the longest ascending choice of lines that occur once in both texts."""
    old_counts, new_counts = Counter(old), Counter(new)
    places = {line: number for number, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(number, places[line]) for number, line in enumerate(old) if old_counts[line] == 1 and line in places]
    ends, heads, before = (
        list[int](),
        list[int](),
        list[int](),
    )  # By length: lowest last line, its pair; each pair's predecessor.
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(heads[length - 1] if length else -1)
        ends[length : length + 1], heads[length : length + 1] = [place], [index]
    chosen, index = list[tuple[int, int]](), heads[-1] if heads else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _compared(old: Sequence[str], new: Sequence[str]) -> Matches:
    """Match lines by difflib, or only the ends if too much is between them."""
    head, tail = _ends(old, new)
    old_stop, new_stop = len(old) - tail, len(new) - tail
    ends = [(line, line) for line in range(head)], [(old_stop + line, new_stop + line) for line in range(tail)]
    if max(old_stop, new_stop) - head > MAX_COMPARED_LINES:
        return ends[0] + ends[1]
    blocks = SequenceMatcher(None, old[head:old_stop], new[head:new_stop]).get_matching_blocks()
    return ends[0] + [(head + block.a + i, head + block.b + i) for block in blocks for i in range(block.size)] + ends[1]
