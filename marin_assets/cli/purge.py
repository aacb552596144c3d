"""The command `marin purge`: plan, approve, run, restore, settle; pins (docs/recipes/free_storage.md)."""

import dataclasses
import datetime
import getpass
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from marin_assets.cli.console import print_json
from marin_assets.cli.listing import size
from marin_assets.cli.options import ARTIFACT, AS_JSON, ONE_ROOT
from marin_assets.cli.show_lineage import stores_of
from operations.storage import pins
from operations.storage import plan as plans
from operations.storage import purge as purges
from recipes.prices import price_table

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Free storage without losing what something needs.")
DIGEST = typer.Argument(help="Digest of the plan, as `marin purge plan` prints it.")
SHOWN = 20


@app.command()
def plan(
    under: Annotated[str, typer.Option(help="Only below this key, e.g. runs/tiny.")] = "",
    young_days: Annotated[float, typer.Option(min=0, help="Keep what is younger.")] = plans.YOUNG_DAYS,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Plan a purge: what goes, its bytes and dollars, and what protects the rest. Nothing is taken away."""
    store, now = _store(root), _now()
    price = price_table().at("STANDARD" if "://" in store.root else "local", "gib_month", now.date().isoformat())
    purge_plan = plans.make_plan(store, _declared(store, now), price, now, under=under, young_days=young_days)
    digest = plans.save_plan(store, purge_plan)
    if as_json:
        print_json({"plan": digest, **dataclasses.asdict(purge_plan)})
        return
    console = Console()
    for each in purge_plan.goes[:SHOWN]:
        console.print(f"{size(each.bytes):>10}  {escape(each.address)}", soft_wrap=True, highlight=False)
    if len(purge_plan.goes) > SHOWN:
        console.print(f"and {len(purge_plan.goes) - SHOWN} more: --json has all")
    dollars = f"${purge_plan.dollars_a_month} a month" if purge_plan.dollars_a_month else "an unknown price"
    console.print(f"{len(purge_plan.goes)} artifacts go, {size(purge_plan.bytes)}, {dollars}; {len(purge_plan.kept)} are kept")
    console.print(f"plan {digest}; `./marin purge approve {digest}` approves it", soft_wrap=True, highlight=False)


@app.command()
def why(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Print what protects an artifact from a purge."""
    store, now = _store(root), _now()
    target = locate([store], artifact)
    kept = plans.make_plan(store, _declared(store, now), None, now).kept
    protects = kept.get(target.spec.address)
    _answer(protects or "nothing protects it", {"artifact": target.name, "protected_by": protects}, as_json=as_json)


@app.command()
def approve(
    digest: Annotated[str, DIGEST], as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ONE_ROOT] = None
) -> None:
    """Approve a plan by its digest, as a person who has read it."""
    who = getpass.getuser()
    plans.approve(_store(root), digest, who, _now())
    message = f"plan {digest} is approved by {who}; `./marin purge run {digest}` carries it out today"
    _answer(message, {"plan": digest, "approved_by": who}, as_json=as_json)


@app.command()
def run(
    digest: Annotated[str, DIGEST], as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ONE_ROOT] = None
) -> None:
    """Carry out an approved plan: manifests go to the trash, data stays for three days."""
    store, now = _store(root), _now()
    done = purges.purge(store, digest, _declared(store, now), now)
    left = [f"left: {address}: {reason}" for address, reason in done.left.items()]
    end = f"{len(done.taken)} artifacts are in the trash; `./marin purge settle {digest}` in {purges.SOFT_DAYS} days"
    _answer("\n".join([*left, end]), {"plan": digest, "taken": list(done.taken), "left": dict(done.left)}, as_json=as_json)


@app.command()
def restore(
    digest: Annotated[str, DIGEST],
    address: Annotated[str, typer.Argument(help="Address of the artifact; all of the plan by default.")] = "",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Put an artifact back from the trash, with its ancestors."""
    store, restored = _store(root), []
    for each in [address] if address else purges.trashed(store, digest):
        if address or each in purges.trashed(store, digest):
            restored += purges.restore(store, digest, each)
    _answer("\n".join(f"restored: {each}" for each in restored), {"plan": digest, "restored": restored}, as_json=as_json)


@app.command()
def settle(
    digest: Annotated[str, DIGEST], as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ONE_ROOT] = None
) -> None:
    """Delete the data of a plan whose three days are over."""
    gone = purges.settle(_store(root), digest, _now())
    _answer(f"{len(gone)} artifacts are deleted", {"plan": digest, "deleted": list(gone)}, as_json=as_json)


@app.command()
def pin(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    reason: Annotated[str, typer.Option("--why", help="Why it is kept.")],
    until: Annotated[str, typer.Option(help="Last day, YYYY-MM-DD.")],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Keep an artifact and all that it was made from, until a day."""
    store = _store(root)
    target = locate([store], artifact)
    name = pins.add_pin(store, pins.Pin(target.spec.address, getpass.getuser(), reason, until))
    message = f"pin {name} keeps {target.name} until {until}"
    _answer(message, {"pin": name, "artifact": target.name, "until": until}, as_json=as_json)


@app.command()
def unpin(
    name: Annotated[str, typer.Argument(help="Id of the pin.")],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Remove a pin."""
    pins.remove_pin(_store(root), name)
    _answer(f"pin {name} is removed", {"pin": name, "removed": True}, as_json=as_json)


def _answer(text: str, record: dict[str, object], *, as_json: bool) -> None:
    """Print an answer for a person, or the same facts as JSON."""
    if as_json:
        print_json(record)
    elif text:
        print(text)


def _store(root: str | None) -> Store:
    """Return the named root, or the canonical store: ferries have their own expiry."""
    return stores_of(root)[0]


def _declared(store: Store, now: datetime.datetime) -> dict[str, str]:
    from marin_assets.protected import declared_artifacts
    from recipes.lab import declarations

    return declared_artifacts(store, declarations(), now)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
