"""Pictures for the README from a real browser: the lineage graph, a ferry run, its report, its audit, the lab's site on a
desk and on a phone.

    .venv/bin/python tools/screenshots.py docs/pictures

Needs a Chromium on PATH (Debian: `apt-get install chromium`) and a lab in which a ferry has run. Starts its own webserver on
loopback and stops it by its process id.
"""

import datetime
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from playwright.sync_api import Browser, Page, sync_playwright

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from lineage.project import CODE as REPOSITORY
from marin_assets.outcomes import outcomes
from operations.ledger.ledger import open_ledger
from operations.site.build import build_site
from recipes import ferry as recipe
from recipes.prices import price_table
from recipes.smoke import smoke_ferry
from resources.lab import lab_from_environment

PORT = 3911
START_SECONDS = 90
# Without these a headless browser contacts its maker's hosts at every start (docs/references.md#environment-traps).
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("no chromium on PATH; install it (Debian: apt-get install chromium) and run this again")
    with dg.DagsterInstance.get() as instance:
        run = next(o for o in outcomes(instance, "ferry") if o.status == "passed")
    resource = lab_from_environment()
    lab = resource.lab()
    line = recipe.rostered_run(smoke_ferry(), lab.ferry_store, run.day)
    report, audit = (resolve(lab.ferry_store, node(line)) for node in (recipe.report, recipe.final_audit))
    with webserver(REPOSITORY / "workspace.yaml") as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1800, "height": 1000})
        shoot(page, f"{base}/asset-groups", target / "lineage_groups.png", 8)
        shoot(page, f"{base}/runs/{run.run_id}", target / "ferry_run.png", 8)
        shoot(page, report.files("report.html")[0].as_uri(), target / "report.png", 2)
        shoot(page, audit.files("audit.html")[0].as_uri(), target / "audit.png", 2)
        trained = resolve(lab.ferry_store, recipe.final_checkpoint(line))
        shoot_site(browser, [lab.store, lab.ferry_store], trained, target)
        browser.close()


def shoot_site(browser: Browser, stores: Sequence[Store], checkpoint: Artifact, target: Path) -> None:
    """Build the lab's site and take pictures of the page of a checkpoint, as a desk and as a phone show it."""
    ledger = open_ledger(stores, price_table(), datetime.datetime.now(datetime.UTC).date())
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        build_site(folder, stores, ledger)
        pages = (Path(folder) / "checkpoint").glob("*.html")
        shown = next(page for page in pages if checkpoint.data_version in page.read_text())
        for name, width, height in (("site_checkpoint", 1300, 1400), ("site_phone", 390, 844)):
            page = browser.new_page(viewport={"width": width, "height": height})
            shoot(page, shown.as_uri(), target / f"{name}.png", 1)


def shoot(page: Page, url: str, path: Path, settle_seconds: float) -> None:
    """Open a page, wait until it has drawn (the UI polls, so the network is never idle), and save a picture."""
    page.goto(url)
    page.wait_for_timeout(settle_seconds * 1000)
    page.screenshot(path=path)
    sys.stderr.write(f"{path}\n")


@contextmanager
def webserver(workspace: Path) -> Iterator[str]:
    """The Dagster UI without its daemon, on loopback, until the block ends."""
    command = [sys.executable, "-m", "dagster_webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(PORT)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{PORT}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"{base}/server_info"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the webserver did not answer on {base} within {START_SECONDS} s")
            time.sleep(0.5)
        yield base
    finally:
        process.terminate()
        process.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures"))
