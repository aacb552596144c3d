"""Look at the lab's site in a real browser: axe-core, widths, the keyboard, the search. Exits with 1 if something is wrong.

    .venv/bin/python -m pip install --target /tmp/axe axe-playwright-python==0.1.8
    PYTHONPATH=.:/tmp/axe .venv/bin/python tools/look_at_site.py .marin/site [--each 1] [--pictures FOLDER]

It opens the lists and `--each` pages of every kind at 1,300 pixels in light and at 390 pixels in dark. axe-core must find no
violation, no page may be wider than its window, the first stops of the tabulator must be the links and fields in the order of
the page, and the search must find each page. Needs a Chromium on PATH (Debian: `apt-get install chromium`).
"""

import argparse
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from screenshots import FLAGS

VIEWS = ((1300, 900, "light"), (390, 844, "dark"))
LISTS = ("index.html", "wrong.html", "unreadable.html")
MOST_STOPS = 40
"""Stops of the tabulator that are looked at on a page."""
FOCUSABLE = """[...document.querySelectorAll('a[href], input, button, select, summary, [tabindex="0"]')]
               .filter(one => one.getClientRects().length > 0)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--each", type=int, default=1, help="pages of each kind")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page in each view")
    options = parser.parse_args()
    browser_path, axe = shutil.which("chromium"), axe_script()
    if browser_path is None:
        raise SystemExit("no chromium on PATH; install it (Debian: apt-get install chromium) and run this again")
    pages, faults = chosen(options.site, options.each), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for width, height, scheme in VIEWS:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=True)
            page = context.new_page()
            for name in pages:
                page.goto((options.site / name).resolve().as_uri())
                if options.pictures is not None:
                    page.screenshot(path=options.pictures / f"{name.replace('/', '_')}-{width}.png", full_page=True)
                found = [f"{name}, {width} px, {scheme}: {fault}" for fault in seen(page, axe)]
                print("\n".join(found) or f"{name}, {width} px, {scheme}: sound", flush=True)
                faults += found
            context.close()
        unfound = list(searched(browser.new_page(), options.site, pages))
        print("\n".join(unfound) or "the search finds each of them")
        browser.close()
    faults += unfound
    print(f"{len(pages)} pages in {len(VIEWS)} views: {len(faults)} faults")
    sys.exit(bool(faults))


def axe_script() -> Path:
    """Return the file of axe-core in the package `axe_playwright_python`. Raises: SystemExit if it is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        raise SystemExit("axe-core is missing; `python -m pip install --target /tmp/axe axe-playwright-python==0.1.8`")
    return next(Path(found.origin).parent.rglob("axe*.js"))


def chosen(site: Path, each: int) -> list[str]:
    """Return the lists and some pages of every kind, relative to the site."""
    kinds = sorted(folder for folder in site.iterdir() if folder.is_dir())
    return [*LISTS, *(page.relative_to(site).as_posix() for kind in kinds for page in sorted(kind.glob("*.html"))[:each])]


def seen(page: Page, axe: Path) -> Iterator[str]:
    """Yield what is wrong with the open page."""
    page.add_script_tag(path=axe)
    for violation in page.evaluate("axe.run()")["violations"]:
        yield f"{violation['id']} ({violation['impact']}) at {len(violation['nodes'])} places: {violation['help']}"
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        yield "it is wider than its window"
    wanted = page.evaluate(f"{FOCUSABLE}.length")
    reached = []
    for _ in range(min(wanted, MOST_STOPS)):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"{FOCUSABLE}.indexOf(document.activeElement)"))
    if reached != list(range(len(reached))):
        yield f"the tabulator does not go through its {wanted} links and fields in order: {reached[:20]}"


def searched(page: Page, site: Path, pages: list[str]) -> Iterator[str]:
    """Yield each title that the search on the home page does not find."""
    for name in pages[len(LISTS) :]:
        page.goto((site / name).resolve().as_uri())
        title = page.inner_text("h1").split(",")[0]
        page.goto((site / "index.html").resolve().as_uri())
        page.fill("input[type=search]", title)
        try:
            page.wait_for_selector("#results a", timeout=5_000)
        except PlaywrightTimeout:
            yield f"the search does not find {title!r} ({name})"


if __name__ == "__main__":
    main()
