"""Progress bars of long work, on standard error so that a command's output stays its own."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import track as rich_track

from lineage.messages import Progress

TITLE_CHARS = 44


def track[T](items: Iterable[T], title: str, total: int, *, min_total: int = 2) -> Iterator[T]:
    """The items, with a bar while they are consumed, and messages to whoever launched this process.

    No bar for work of fewer than `min_total` pieces.
    """
    label = f"{title:<{TITLE_CHARS}}"
    shown = rich_track(items, description=label, total=total, console=Console(stderr=True), disable=total < min_total)
    told = Progress(title, total)
    for done, item in enumerate(shown):
        told.at(done)
        yield item
    told.at(total)
