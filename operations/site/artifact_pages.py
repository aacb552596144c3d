"""The page of one artifact: what it is, what it was made from, what was made from it, and sections of its kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from operations.secrets import HIDDEN_SECRET
from operations.site.content import Block, Box, Cell, Facts, Graph, Note, Page, Section, Table
from operations.site.kind_sections import SECTIONS_OF_KIND
from operations.site.names import TRAINED, Names, as_bytes, as_date, as_time, kind_of, mapping, run_of, shown, sweep_of
from operations.site.store_reader import Place, SiteArtifact, World
from operations.site.veil import is_secret_name

BOXES = 36
"""Ancestors in a lineage picture; the nearest are shown."""
LISTED = 300
SETTINGS = 80


def artifact_page(world: World, names: Names, place: Place) -> Page:
    """Return the page of an artifact. The page of a withheld artifact has only the reason and its place in the lineage."""
    one = world.artifacts[place]
    manifest, kind = one.artifact.manifest, kind_of(one)
    sections = [Section("In short", tuple(_short(world, names, one)))]
    if not one.withheld:
        for title, blocks in SECTIONS_OF_KIND.get(kind, _no_sections)(world, names, one):
            sections.append(Section(title, tuple(blocks)))
    sections.append(Section("Lineage", tuple(_lineage(world, names, place))))
    if not one.withheld:
        sections.append(Section("How it was made", tuple(_making(manifest.spec.config, manifest.statistics))))
    summary = f"{manifest.spec.stage}, {as_date(manifest.created)}"
    return Page(names.paths[place], kind, names.artifact(place).text, as_date(manifest.created), summary, tuple(sections))


def _no_sections(world: World, names: Names, one: SiteArtifact) -> Iterator[tuple[str, list[Block]]]:
    yield from ()


def _short(world: World, names: Names, one: SiteArtifact) -> Iterator[Block]:
    manifest, spec = one.artifact.manifest, one.artifact.spec
    if one.withheld:
        yield Note(one.withheld, warning=True)
    for verdict in one.verdicts:
        why = "" if one.withheld else f": {verdict.why}"
        yield Note(f"Verdict {verdict.name} ({verdict.kind}) of {as_time(verdict.when)}{why}", warning=True)
    ancestors = world.ancestors(one.place)
    for place in ancestors:
        if world.artifacts[place].withheld:
            yield Note(f"It was made from {world.artifacts[place].artifact.name}, which is withheld.", warning=True)
    rows: list[tuple[str, Cell]] = [("kind", kind_of(one))]
    if spec.stage in TRAINED:
        rows.append(("run", names.run(run_of(one))))
    if (sweep := sweep_of(one)) is not None:
        rows.append(("sweep", names.sweep(sweep)))
    rows += [
        ("made", as_time(manifest.created)),
        ("stage", f"{spec.stage}, version {spec.stage_version}"),
        ("store", one.place[0]),
        ("data version", manifest.data_version),
    ]
    yield Facts(tuple(rows))
    if not one.withheld:
        yield Facts(tuple(_cost_rows(world, one)))


def _cost_rows(world: World, one: SiteArtifact) -> Iterator[tuple[str, Cell]]:
    manifest = one.artifact.manifest
    yield "size", f"{as_bytes(sum(entry.bytes for entry in manifest.files))} in {len(manifest.files):,} files"
    yield "time", f"{shown(manifest.resources.wall_seconds)} s, CPU {shown(manifest.resources.cpu_seconds)} s"
    yield "peak memory", as_bytes(manifest.resources.peak_rss_bytes)
    cost = world.costs.get(one.place)
    if cost is not None:
        yield (
            "cost of all attempts",
            shown(cost["dollars"]) if cost["dollars"] is not None else f"not known: {cost['unpriced']}",
        )
        yield "attempts", f"{shown(cost['attempts'])}, of which {shown(cost['failed_attempts'])} failed"
    if manifest.omitted:
        yield "shards left out by a waiver", f"{len(manifest.omitted)}"


def _lineage(world: World, names: Names, place: Place) -> Iterator[Block]:
    one = world.artifacts[place]
    yield lineage_graph(world, names, [place])
    inputs = [(name, names.artifact(parent)) for name, parent in world.parents(place)]
    listed = {parent for _, parent in world.parents(place)}
    gone = [(ref.name, ref.address) for ref in one.artifact.spec.inputs if (place[0], ref.address) not in listed]
    yield from listing(
        "Made from", ("input", "artifact"), inputs + [(name, f"{what} (not here any more)") for name, what in gone]
    )
    children = [(world.artifacts[child].artifact.spec.stage, names.artifact(child)) for child in world.children.get(place, ())]
    yield from listing("Used by", ("stage", "artifact"), children)


def listing(
    caption: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], numbers: tuple[int, ...] = ()
) -> Iterator[Block]:
    """Yield a table of at most LISTED rows, and a note about the rest."""
    if rows:
        yield Table(caption, columns, tuple(rows[:LISTED]), numbers)
    else:
        yield Note(f"{caption}: nothing.")
    if len(rows) > LISTED:
        yield Note(f"{caption}: {len(rows) - LISTED:,} more, which are not listed here.")


def lineage_graph(world: World, names: Names, of: list[Place]) -> Graph:
    """Return the artifacts, their nearest ancestors, and the edges between all of them."""
    places: dict[Place, None] = dict.fromkeys(of)
    for place in of:
        places.update(dict.fromkeys(world.ancestors(place, BOXES)))
    drawn = list(places)[: max(BOXES, len(of))]
    index = {place: i for i, place in enumerate(drawn)}
    edges = {(index[parent], index[child]): None for child in drawn for _, parent in world.parents(child) if parent in index}
    specs = [(place, world.artifacts[place].artifact.spec) for place in drawn]
    boxes = tuple(Box(names.artifact(place), spec.stage, spec.stage.split(".")[0]) for place, spec in specs)
    return Graph(boxes, tuple(edges))


def _making(config: object, statistics: Mapping[str, Any]) -> Iterator[Block]:
    settings = list(flat(config))
    counts = list(flat(statistics))
    if counts:
        yield Table("Counts", ("name", "value"), tuple(counts[:SETTINGS]), (1,))
    if settings:
        yield Table("Settings", ("name", "value"), tuple(settings[:SETTINGS]))
    if len(settings) > SETTINGS:
        yield Note(f"{len(settings) - SETTINGS:,} more settings are in the manifest.")


def flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of nested mappings; a list is one value. The value of a field with the name of a secret is hidden."""
    for name, inner in mapping(value).items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping) and inner:
            yield from flat(inner, f"{path}.")
        else:
            text = shown(inner)
            yield path, HIDDEN_SECRET if is_secret_name(str(name)) else text if len(text) <= 400 else f"{text[:400]} …"
