"""The catalogue as a Markdown table, which `./marin sources` prints; `docs/data/catalogue.md` holds a copy.

The table holds only what is the same on every machine, so not the listing of the installed Python.
"""

from collections.abc import Mapping

from datakit.sources.source import (
    DebianFiles,
    FolderFiles,
    Format,
    HttpFiles,
    HttpListing,
    HubFiles,
    InstalledPython,
    Loader,
    PypiFiles,
    Records,
    RepositoryFiles,
    Revision,
    Source,
    SyntheticFiles,
    Unverified,
)

HEADER = """# The source catalogue

`./marin sources > docs/data/catalogue.md` writes this page from `recipes/sources.py` and `recipes/sources_*.py`.

"unverified" means that nobody here has checked it:

- a pin: nobody has compared it with the origin, and the loaders refuse it;
- a licence: nobody has read it at the origin, and runs with permissive sources only leave the source out;
- tokens: neither a reference document nor a measurement of ours gives a number.

Numbers in millions are measurements of ours; the page of the source, in this folder, names the vocabulary.
`swe_zero_1k` counts completions alone.

| source | domain | from | pin | format | licence | tokens, rough | card |
|---|---|---|---|---|---|---|---|
"""


def markdown(sources: Mapping[str, Source]) -> str:
    """Write the page: one row a source, in name order."""
    rows = (_row(sources[name]) for name in sorted(sources))
    return HEADER + "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in rows)


def _row(source: Source) -> tuple[str, ...]:
    place, pin = _origin(source.loader)
    return (
        source.name + ("" if source.trainable else " (never trained on)"),
        source.domain,
        place,
        pin,
        _format(source.format),
        _verified(source.licence),
        _tokens(source.rough_tokens_billion),
        source.card,
    )


def _tokens(billion: float | None) -> str:
    if billion is None:
        return "unverified"
    return f"{billion:g} B" if billion >= 0.1 else f"{1000 * billion:g} M"


def _origin(loader: Loader) -> tuple[str, str]:
    """Return the origin of a source and its pin."""
    match loader:
        case PypiFiles(pin, _):
            return f"pypi: {pin.package} {pin.version}", f"sha256 {pin.sha256[:12]}"
        case DebianFiles(package, version, _, sha256, _):
            return f"Debian: {package} {version}", f"sha256 {sha256[:12]}"
        case InstalledPython(content, _, _):
            return f"the running Python: {content}", "listing of this machine"
        case RepositoryFiles(globs, _):
            return f"this repository: {_globs(globs)}", "listing"
        case HubFiles(repository, revision, globs, _):
            pin = f"commit {revision.sha}" if isinstance(revision, Revision) else _verified(revision)
            return f"hub: {repository}: {_globs(globs)}", pin
        case HttpFiles(files):
            return ", ".join(file.url for file in files), ", ".join(_verified(file.sha256) for file in files)
        case HttpListing(listing, _, globs, _):
            return f"{listing.url}: {_globs(globs)}", _verified(listing.sha256)
        case FolderFiles(url, globs, listing, _):
            return f"{url}: {_globs(globs)}", _verified(listing)
        case SyntheticFiles(name):
            return f"the synthetic set {name}", "artifact"


def _globs(globs: tuple[str, ...]) -> str:
    return ", ".join(f"`{glob}`" for glob in globs)


def _format(format: Format | Records) -> str:
    if not isinstance(format, Records):
        return format
    return f"{format.container}, text in `{format.text}`" + (", id in " + f"`{format.id}`" if format.id else "")


def _verified(value: str | Unverified) -> str:
    if not isinstance(value, Unverified):
        return value
    return f"unverified: {value.claim}" if value.claim else "unverified"
