"""Progress bars of long work, on standard error so that they do not mix with a command's output."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import track as rich_track

from lineage.messages import Progress

TITLE_CHARS = 44


def track[T](items: Iterable[T], title: str, total: int, *, min_total: int = 2) -> Iterator[T]:
    """Yield the items, with a progress bar and messages to the launcher of this process.

    Work of fewer than `min_total` items has no bar.
    """
    label = f"{title:<{TITLE_CHARS}}"
    # A bar that is disabled costs a console and a thread all the same.
    shown = items if total < min_total else rich_track(items, label, total, console=Console(stderr=True))
    progress = Progress(title, total)
    for done, item in enumerate(shown):
        progress.at(done)
        yield item
    progress.at(total)
