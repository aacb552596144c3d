"""`marin site`: the lab's public site, as static pages in a folder or a bucket (`operations.site`)."""

from typing import Annotated

import typer

from marin_assets.cli.options import ROOT
from marin_assets.cli.query import ledger_of
from marin_assets.cli.show_lineage import stores_of
from operations.site.build import build_site


def site(
    into: Annotated[str, typer.Option(help="The site's folder, or gs://BUCKET/FOLDER.")] = "site",
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Write the lab's public site; only pages whose content changed are written again."""
    written = build_site(into, stores_of(root), ledger_of(root))
    for what, why in sorted(written.unreadable.items()):
        typer.echo(f"not readable: {what}: {why}", err=True)
    print(f"{into}: {written.pages:,} pages, {written.written:,} written, {written.deleted:,} deleted")
