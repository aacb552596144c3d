"""Progress bars of long work, on standard error so that a command's output stays its own."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import track as rich_track

TITLE_CHARS = 44


def track[T](items: Iterable[T], title: str, total: int, *, min_total: int = 2) -> Iterable[T]:
    """The items, with a bar while they are consumed; none for work of fewer than `min_total` pieces."""
    label = f"{title:<{TITLE_CHARS}}"
    return rich_track(items, description=label, total=total, console=Console(stderr=True), disable=total < min_total)
