"""The public site of a store with many artifacts: seconds to build it, and to build it again after one new artifact.

    PYTHONPATH=. .venv/bin/python benchmarks/site_scale.py --artifacts 2000

The bars (issue 31): 2,000 pages in 60 s, an incremental build in 5 s, no broken link. The artifacts are those of
`lineage_scale.py`, whose pages have a lineage picture and no learning curve.
"""

import argparse
import datetime
import html.parser
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lineage_scale import timed, write_manifests

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.writing.write import writing
from operations.ledger.ledger import open_ledger
from operations.site.build import Written, build_site
from recipes.prices import price_table


class Links(html.parser.HTMLParser):
    """The addresses that a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def broken_links(site: Path) -> list[str]:
    """Return `page -> address` of each link inside the site that leads to no file of it."""
    broken = []
    for page in sorted(site.rglob("*.html")):
        links = Links()
        links.feed(page.read_text())
        for address in links.found:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            if not (page.parent / unquote(parts.path)).is_file():
                broken.append(f"{page.relative_to(site)} -> {address}")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=2_000)
    parser.add_argument("--inputs", type=int, default=3)
    options = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    with tempfile.TemporaryDirectory(prefix="site-bench-") as folder:
        root, site = Path(folder) / "lab", Path(folder) / "site"
        root.mkdir()
        write_manifests(root, options.artifacts, options.inputs)
        store, prices = Store(str(root)), price_table()

        def build() -> Written:
            return build_site(str(site), [store], open_ledger([store], prices, today))

        print(timed("built from nothing, with the ledger", build))
        print(timed("built again, nothing new", build))
        for number in range(3):
            with writing(store, ArtifactSpec(("bench", "new"), f"p{number}", "bench.stage", "1", {})):
                pass
            print(timed("built after one new artifact", build))
        print(f"{len(broken_links(site))} broken links in {sum(1 for _ in site.rglob('*.html')):,} pages")


if __name__ == "__main__":
    main()
