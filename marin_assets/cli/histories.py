"""The command `marin histories`: the declared runs of the retrospectives, phase by phase, and their mixes."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lineage.config import to_jsonable
from marin_assets.cli.console import print_table
from marin_assets.cli.options import AS_JSON
from recipes import marin_history
from recipes.marin_history import History


def histories(
    name: Annotated[str | None, typer.Argument(help="One of them, with every share: marin_8b, marin_32b_bison, ...")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show the declared runs of the retrospectives: phases, steps, tokens that add up, mixes."""
    print_histories(name, as_json=as_json, console=Console())


def print_histories(name: str | None, *, as_json: bool, console: Console) -> None:
    """Print phases with steps, tokens and the largest shares; for one history every share. Raises: ValueError for an unknown
    name.
    """
    every = {history.name: history for history in marin_history.histories()}
    if name is not None and name not in every:
        raise ValueError(f"no history {name!r} is declared; there are: {', '.join(every)}")
    chosen = list(every.values()) if name is None else [every[name]]
    if as_json:
        print(json.dumps([to_jsonable(history) | {"num_tokens": history.num_tokens} for history in chosen], indent=1))
        return
    for history in chosen:
        _print_phases(history, console)
        if name is not None:
            _print_mixes(history, console)


def _print_phases(history: History, console: Console) -> None:
    title = f"{history.name}: {history.num_tokens / 1e12:.3f} T tokens (stated: {history.stated_tokens / 1e12:.3f})"
    table = Table("phase", "steps", "sequences a step", "T tokens", "mix", "", title=title)
    for phase in history.phases:
        changes = [p.batch_size for p in history.batches.phases if phase.start_step < p.start_step < phase.end_step]
        sizes = dict.fromkeys([history.batches.size(phase.start_step), *changes])
        top = ", ".join(f"{dataset} {share:g} %" for dataset, share in sorted(phase.mix, key=lambda part: -part[1])[:3])
        table.add_row(
            phase.name,
            f"{'' if phase.exact_steps else 'about '}{phase.start_step:,} to {phase.end_step:,}",
            ", ".join(f"{size:,}" for size in sizes),
            f"{history.tokens(phase) / 1e12:.3f}",
            f"{top}; {len(phase.mix)} in all",
            phase.note,
        )
    print_table(table, console)


def _print_mixes(history: History, console: Console) -> None:
    table = Table("dataset", *(phase.name for phase in history.phases), title="shares in per cent, and billions of tokens")
    datasets = dict.fromkeys(name for phase in history.phases for name, _ in phase.mix)
    for dataset in datasets:
        cells = []
        for phase in history.phases:
            share, total = dict(phase.mix).get(dataset), sum(part for _, part in phase.mix)
            cells.append("" if share is None else f"{share:g} ({share / total * history.tokens(phase) / 1e9:,.0f})")
        table.add_row(dataset, *cells)
    print_table(table, console)
