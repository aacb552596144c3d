"""The home page, an index for each kind and month, what went wrong, and what could not be read."""

from collections.abc import Mapping, Sequence

from operations.site.artifact_pages import listing
from operations.site.content import Block, Cell, Facts, Link, Note, Page, Section, Table
from operations.site.names import KINDS, Names, as_time, shown
from operations.site.store_reader import World

HOME, WRONG, UNREADABLE = "index.html", "wrong.html", "unreadable.html"
NEWEST = 40
ONLY_IN_DAGSTER = ("campaigns",)
"""Pass rates of ferries and canaries for the home page. Only Dagster's database has them."""


def list_pages(world: World, names: Names, pages: Sequence[Page]) -> list[Page]:
    """Return the pages that link to the others."""
    rank = {kind: len(KINDS) - place for place, kind in enumerate(KINDS)}
    newest = sorted(pages, key=lambda page: (page.date, rank.get(page.kind, 0), page.title, page.path), reverse=True)
    months = sorted({page.date[:7] for page in pages if page.date}, reverse=True)
    return [
        _home(world, newest, months),
        _wrong(world, names),
        _unreadable(world),
        *(_index(f"kind/{kind}.html", title, [page for page in newest if page.kind == kind]) for kind, title in KINDS.items()),
        *(_index(f"month/{m}.html", f"Made in {m}", [page for page in newest if page.date.startswith(m)]) for m in months),
    ]


def _home(world: World, newest: Sequence[Page], months: Sequence[str]) -> Page:
    counts: dict[str, int] = {}
    for page in newest:
        counts[page.kind] = counts.get(page.kind, 0) + 1
    kinds = tuple((Link(title, f"kind/{kind}.html"), f"{counts.get(kind, 0):,}") for kind, title in KINDS.items())
    wrong = sum(1 for one in world.artifacts.values() if one.verdicts)
    facts: tuple[tuple[str, Cell], ...] = (
        ("artifacts with a standing verdict", Link(f"{wrong:,}", WRONG)),
        ("open incidents", Link(f"{sum(not one.closed for one in world.incidents):,}", WRONG)),
        ("records that could not be read", Link(f"{len(world.unreadable):,}", UNREADABLE)),
    )
    by_month = tuple((Link(month, f"month/{month}.html"),) for month in months)
    recent = tuple((Link(page.title, page.path), page.kind, page.date) for page in newest[:NEWEST])
    sections = [
        Section("What is here", (Table("Pages by kind", ("kind", "pages"), kinds, (1,)), Facts(facts))),
        Section("Ferries and canaries", _campaigns(world.campaigns)),
        Section("Newest", (Table("Newest pages", ("page", "kind", "made"), recent),) if recent else (Note("Nothing yet."),)),
        Section("By month", (Table("Months", ("month",), by_month),) if by_month else (Note("Nothing yet."),)),
    ]
    return Page(HOME, "index", "The lab", "", "", tuple(sections))


def _campaigns(campaigns: Mapping[str, Mapping[str, object]] | None) -> tuple[Block, ...]:
    if campaigns is None:
        return (Note("Pass rates are not here: only Dagster's database has them."),)
    rows = [(name, shown(one["runs"]), shown(one["passed"])) for name, one in campaigns.items()]
    return tuple(listing("Runs that ended", ("campaign", "runs", "passed"), rows, (1, 2)))


def _index(path: str, title: str, pages: Sequence[Page]) -> Page:
    rows = tuple((Link(page.title, page.path), page.kind, page.date or "no date", page.summary) for page in pages)
    blocks: tuple[Block, ...] = (Table(title, ("page", "kind", "made", "about"), rows),) if rows else (Note("Nothing yet."),)
    return Page(path, "index", title, "", "", (Section(f"{len(pages):,} pages", blocks),))


def _wrong(world: World, names: Names) -> Page:
    verdicts = [
        (
            names.of_name(row["name"], row["data_version"]),
            f"{row['verdict'].name} ({row['verdict'].kind})",
            "in force" if row["verdict"].standing else "lifted",
            as_time(row["verdict"].when),
            row["verdict"].why,
        )
        for row in reversed(world.verdicts)
    ]
    waivers = [
        (
            shown(row["problem"]),
            shown(row["artifact"]),
            shown(row["target"]),
            shown(row["expires"]),
            shown(row["refused"] or row["why"]),
        )
        for row in world.waivers
    ]
    incidents = [
        (
            one.finding.kind.replace("_", " "),
            one.finding.subject,
            one.finding.summary,
            as_time(one.opened),
            as_time(one.closed) or "open",
        )
        for one in world.incidents
    ]
    failures = [
        (shown(row["name"]), shown(row["state"]), as_time(shown(row["started"])), shown(row["dollars"]), shown(row["why"]))
        for row in world.failures
    ]
    columns = ("artifact", "verdict", "state", "recorded", "why")
    sections = (
        Section("Verdicts", tuple(listing("Verdicts", columns, verdicts))),
        Section("Waivers", tuple(listing("Waivers", ("problem", "of", "allowed for", "expires", "why"), waivers))),
        Section("Incidents", tuple(listing("Incidents", ("kind", "subject", "what", "opened", "closed"), incidents))),
        Section("Failed attempts", tuple(listing("Failed attempts", ("name", "state", "started", "dollars", "why"), failures))),
    )
    return Page(WRONG, "index", "What went wrong", "", "", sections)


def _unreadable(world: World) -> Page:
    rows: list[tuple[str, ...]] = [(what, why) for what, why in sorted(world.unreadable.items())]
    section = Section("Records", tuple(listing("Records that could not be read", ("record", "why"), rows)))
    return Page(UNREADABLE, "index", "What could not be read", "", "", (section,))
