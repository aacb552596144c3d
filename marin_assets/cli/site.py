"""`marin site`: the lab's public site, as static pages in a folder or a bucket (`operations.site`)."""

from typing import Annotated

import typer

from marin_assets.cli.console import print_json
from marin_assets.cli.options import AS_JSON, ROOT
from marin_assets.cli.query import ledger_of
from marin_assets.cli.show_lineage import stores_of
from operations.site.build import build_site


def site(
    into: Annotated[str, typer.Option(help="The site's folder, or gs://BUCKET/FOLDER.")] = "site",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Write the lab's public site; only pages whose content changed are written again."""
    written = build_site(into, stores_of(root), ledger_of(root))
    for what, why in sorted(written.unreadable.items()):
        typer.echo(f"not readable: {what}: {why}", err=True)
    if as_json:
        counts = {"pages": written.pages, "written": written.written, "deleted": written.deleted}
        print_json({"into": into, **counts, "unreadable": dict(written.unreadable)})
        return
    print(f"{into}: {written.pages:,} pages, {written.written:,} written, {written.deleted:,} deleted")
