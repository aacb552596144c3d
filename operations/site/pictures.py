"""Pictures as SVG: learning curves and lineage. They take their colours from the page, so they follow its theme."""

import html
import math
from collections.abc import Mapping, Sequence

from operations.site.content import Graph

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 56, 40, 12, 12
POINTS = 400
BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, MARGIN = 230, 44, 276, 56, 8
LABEL_CHARS = 28
"""What fits into a box: 13 px letters take about 7.4 px each."""
SWEEPS = 4


def curve_svg(steps: Sequence[int], losses: Sequence[float], label: str) -> str:
    """Return the loss by step. Each point is the mean of equally many steps if there are more than POINTS."""
    xs, ys = _thinned(steps, losses)
    low, high = min(ys), max(ys)
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-9 else (low, high)
    first, last = xs[0], max(xs[-1], xs[0] + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        return across, TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(label)}">']
    for tick in _ticks(low, high):
        y = at(first, tick)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in _ticks(first, last):
        x = at(tick, low)[0]
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,.0f}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">step; loss in nats a token</text>')
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(x, y) for x, y in zip(xs, ys, strict=True)))
    return "".join([*parts, f'<polyline class="line" points="{points}"/></svg>'])


def _thinned(steps: Sequence[int], losses: Sequence[float]) -> tuple[list[float], list[float]]:
    size = max(1, math.ceil(len(steps) / POINTS))
    parts = [slice(start, start + size) for start in range(0, len(steps), size)]
    return (
        [sum(steps[part]) / len(steps[part]) for part in parts],
        [sum(losses[part]) / len(losses[part]) for part in parts],
    )


def _ticks(low: float, high: float) -> list[float]:
    """At most six round numbers between two bounds."""
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def lineage_svg(graph: Graph, up: str) -> str:
    """Return the graph with inputs at the left. `up` leads from the page to the site's root. Each box is a link."""
    columns = _columns(graph)
    rows = _rows(graph, columns)
    height = MARGIN * 2 + ROW * max(sum(1 for c in columns if c == column) for column in set(columns))
    width = MARGIN * 2 + COLUMN * max(columns) + BOX_WIDTH
    corners = [(MARGIN + COLUMN * column, MARGIN + ROW * row) for column, row in zip(columns, rows, strict=True)]
    parts = [f'<svg class="lineage" width="{width}" height="{height}" viewBox="0 0 {width} {height}">']
    for start, end in graph.edges:
        x1, y1 = corners[start][0] + BOX_WIDTH, corners[start][1] + BOX_HEIGHT / 2
        x2, y2 = corners[end][0], corners[end][1] + BOX_HEIGHT / 2
        bend = (x1 + x2) / 2
        parts.append(f'<path class="edge" d="M{x1:.0f},{y1:.0f} C{bend:.0f},{y1:.0f} {bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"/>')
    for box, (x, y) in zip(graph.boxes, corners, strict=True):
        key, _, rest = box.name.text.partition("[")  # the second line has the partition, so the first shows more of the key
        partition, after = rest.partition("]")[::2]
        name = html.escape(box.name.text)
        second = html.escape(_end(", ".join(filter(None, (f"{partition}{after}", box.stage)))))
        family = box.family if box.family in ("datakit", "lineage", "trainer", "evals", "science") else "other"
        parts.append(
            f'<a href="{html.escape(up + box.name.target)}" aria-label="{name}"><title>{name}</title>'
            f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
            f'<rect class="{family}" x="{x:.0f}" y="{y:.0f}" width="5" height="{BOX_HEIGHT}"/>'
            f'<text x="{x + 13:.0f}" y="{y + 19:.0f}">{html.escape(_end(key))}</text>'
            f'<text class="tick" x="{x + 13:.0f}" y="{y + 36:.0f}">{second}</text></a>'
        )
    return "".join([*parts, "</svg>"])


def _end(text: str) -> str:
    """Return the end of a long name, because the end distinguishes artifacts."""
    return text if len(text) <= LABEL_CHARS else f"…{text[1 - LABEL_CHARS :]}"


def _columns(graph: Graph) -> list[int]:
    """Return the length of the longest path from an artifact without inputs."""
    columns = [0] * len(graph.boxes)
    for _ in graph.boxes:  # a path is at most as long as the number of boxes, so a cycle in bad records ends too
        changed = False
        for start, end in graph.edges:
            if columns[end] <= columns[start] < len(graph.boxes):
                columns[end], changed = columns[start] + 1, True
        if not changed:
            break
    return columns


def _rows(graph: Graph, columns: Sequence[int]) -> list[float]:
    """Return the rows that keep edges short: one column after another is sorted by the mean row of its neighbours."""
    near: Mapping[int, list[int]] = {i: [] for i in range(len(columns))}
    for start, end in graph.edges:
        near[start].append(end)
        near[end].append(start)
    members = [[i for i, column in enumerate(columns) if column == c] for c in range(max(columns) + 1)]
    members = [of for of in members if of]
    tallest = max(len(of) for of in members)
    row: dict[int, float] = {}
    for _ in range(SWEEPS + 1):
        for of in members:
            wish = {i: sum(row.get(n, 0.0) for n in near[i]) / len(near[i]) if near[i] else 0.0 for i in of}
            of.sort(key=lambda i: wish[i])
            row |= {i: place + (tallest - len(of)) / 2 for place, i in enumerate(of)}
    return [row[i] for i in range(len(columns))]
