"""Write the site: only pages whose content changed. Delete pages of what no longer exists.

    index.html, wrong.html, unreadable.html     the home page; what went wrong; what could not be read
    run/ checkpoint/ source/ ...                a page for each, by kind; `kind/` and `month/` are indexes
    style.css, script.js, search.js             the same for all pages
    .site.json                                  page -> digest of what it shows

The index names the pages that are about to change before the first is written. So a build after a kill makes these again.
"""

import io
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files

import polars as pl

from lineage.artifact.store import Artifact, Store
from lineage.storage.digests import text_digest
from lineage.storage.root import Storage
from lineage.strangers import json_object, naming
from operations.ledger.ledger import Ledger
from operations.site.artifact_pages import artifact_page
from operations.site.content import Curve, Note, Page, Section, mapped
from operations.site.group_pages import run_page, runs_of, sweep_page, sweeps_of
from operations.site.html import SCRIPT, SEARCH, STYLE, page_html, search_index
from operations.site.kind_sections import METRICS
from operations.site.list_pages import list_pages
from operations.site.names import PAGE_PATH, Names, as_date, kind_of
from operations.site.pictures import curve_svg
from operations.site.store_reader import Place, Row, World, read_world
from operations.site.veil import veil_of

log = logging.getLogger(__name__)

INDEX = ".site.json"
VERSION = "site/2"
"""Raise it if pages of equal content look different: all of them are written again."""
PENDING = ""
METRICS_BYTES = 64_000_000


@dataclass(frozen=True)
class Written:
    """What a build did: pages in all, written and deleted; records that could not be read."""

    pages: int
    written: int
    deleted: int
    unreadable: Mapping[str, str]


def build_site(into: str, stores: Sequence[Store], ledger: Ledger, campaigns: Mapping[str, Row] | None = None) -> Written:
    """Bring the site in a folder or at a URL up to date. It depends on the stores, and on `campaigns` if that is given."""
    world = read_world(stores, ledger, campaigns)
    pages, world = pages_of(world)
    site = Storage(into)
    before = _read_index(site)
    now = {page.path: text_digest(f"{VERSION} {page!r}") for page in pages}
    texts = {STYLE: _own(STYLE), SCRIPT: _own(SCRIPT), SEARCH: search_index(pages)}
    now |= {path: text_digest(text) for path, text in texts.items()}
    present = site.files.listing("", None).keys()
    changed = [path for path, digest in now.items() if before.get(path) != digest or path not in present]
    gone = sorted(path for path in before.keys() - now.keys() if PAGE_PATH.fullmatch(path))
    if changed or gone:
        _save_index(site, before | dict.fromkeys([*changed, *gone], PENDING))
    by_path = {page.path: page for page in pages}
    draw = partial(_curve, {place: one.artifact for place, one in world.artifacts.items()})
    for path in changed:
        unread: list[Curve] = []
        text = texts[path] if path in texts else page_html(by_path[path], partial(draw, unread))
        site.replace(path, text.encode())
        if unread:
            now[path] = PENDING
    for path in gone:
        site.delete(path)
    if changed or gone:
        _save_index(site, now)
    return Written(len(pages), sum(path in by_path for path in changed), len(gone), world.unreadable)


def pages_of(world: World) -> tuple[list[Page], World]:
    """Return every page after the veil, and the world with the records that could not be shown added to `unreadable`."""
    veil = veil_of(world.people)
    names = Names(world, veil)
    pages: list[Page] = []
    unreadable = dict(world.unreadable)
    for place, one in world.artifacts.items():
        try:
            with naming(f"{place[0]}: {place[1]}"):
                pages.append(artifact_page(world, names, place))
        except (ValueError, OSError) as error:
            unreadable[f"{place[0]}: {place[1]}"] = str(error)
            note = Note("This record could not be shown; see the page of what could not be read.", warning=True)
            created = as_date(one.artifact.manifest.created)
            pages.append(
                Page(names.paths[place], kind_of(one), one.artifact.name, created, "", (Section("In short", (note,)),))
            )
    pages += [run_page(world, names, run, of) for run, of in runs_of(world).items()]
    pages += [sweep_page(world, names, sweep, of) for sweep, of in sweeps_of(world).items()]
    world = replace(world, unreadable=unreadable)
    shown = [mapped(page, veil) for page in pages]
    return [*shown, *(mapped(page, veil) for page in list_pages(world, names, shown))], world


def _curve(artifacts: Mapping[Place, Artifact], unread: list[Curve], curve: Curve) -> str | None:
    """Draw a learning curve; a file that cannot be read is added to `unread`, and its page is made again by the next build."""
    artifact = artifacts[curve.store, curve.address]
    try:
        with naming(f"{artifact.name}: {METRICS}"):
            size = next(entry.bytes for entry in artifact.manifest.files if entry.path == METRICS)
            if size > METRICS_BYTES:
                raise ValueError(f"{artifact.name}: {METRICS} has {size} bytes; at most {METRICS_BYTES} are read")
            artifact.verify(only=[METRICS])
            table = pl.read_parquet(io.BytesIO(artifact.read_range(METRICS, 0, size)), columns=["step", "loss_nats"])
            rows = [(int(step), float(loss)) for step, loss in table.drop_nulls().iter_rows() if math.isfinite(loss)]
            if not rows:
                raise ValueError(f"{artifact.name}: {METRICS} has no row with a finite loss")
    except (ValueError, OSError) as error:
        log.warning("no learning curve: %s", error)
        unread.append(curve)
        return None
    steps, losses = zip(*sorted(rows), strict=True)
    label = f"Learning curve: loss {losses[0]:.3f} at step {steps[0]}, {losses[-1]:.3f} at step {steps[-1]}"
    return curve_svg(steps, losses, label)


def _read_index(site: Storage) -> dict[str, str]:
    """Return page -> digest. If the index cannot be read, every page is written again."""
    text = site.read_text(INDEX)
    if text is None:
        return {}
    try:
        record = json_object(text, site.uri(INDEX))
    except ValueError as error:
        log.warning("the index beside the site cannot be read, so every page is written again: %s", error)
        return {}
    return {path: digest for path, digest in record.items() if isinstance(digest, str)}


def _save_index(site: Storage, index: Mapping[str, str]) -> None:
    site.replace(INDEX, (json.dumps(dict(sorted(index.items())), indent=0) + "\n").encode())


def _own(name: str) -> str:
    return files("operations.site").joinpath(name).read_text(encoding="utf-8")
