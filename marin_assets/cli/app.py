"""The console script `marin`: reads the command's name, imports its module (`table.py` says which), and reports errors.

No command's module is imported for help, completion of names, or another command: Dagster and JAX cost seconds. Worker
processes import this file again as their main module, so it imports little.
"""

import difflib
import gc
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer
from typer._click import Command as ClickCommand
from typer._click import Context, HelpFormatter
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer._click.shell_completion import CompletionItem
from typer.core import TyperGroup
from typer.main import get_command

from lineage.project import LAB, PREFIX, lab_folder
from marin_assets.cli.errors import report
from marin_assets.cli.table import COMMANDS, GROUPS, Group

SHOWN = ("datakit", "evals", "lineage", "marin_assets", "serving", "trainer")
"""Packages whose progress the terminal shows; of libraries it shows warnings."""

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130
COLLECT_AFTER = 100_000
"""New objects between two collections of garbage. With Python's 700, `marin status` took .15 s longer (2.0 s)."""
CLUSTER = "--cluster"


class LazyGroup(TyperGroup):
    """Commands of the table, each imported when it is named; a failure of any is one line."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].place.partition(":")
        command = getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
        if not isinstance(command, typer.Typer):
            single = typer.Typer(add_completion=False, context_settings=HELP_OPTIONS)
            single.command(cmd_name)(command)
            command = single
        return get_command(command)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Complete a name from the table. The base class would import every command to ask it for its help."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in COMMANDS if name.startswith(incomplete))
        return [CompletionItem(name, help=COMMANDS[name].summary) for name in names]

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, ClickCommand | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=2)
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise ClickException(f"there is no command {args[0]!r}; {meant}`marin -h` lists them all")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write(help_text())

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        gc.set_threshold(COLLECT_AFTER)
        arguments = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in arguments
        arguments = [each for each in arguments if each != "--debug"]
        try:
            if not complete_var or complete_var not in os.environ:
                arguments = with_cluster(arguments)
            code = super().main(arguments, "marin", complete_var, False, windows_expand_args, **extra)
        except NoArgsIsHelpError as error:
            if error.format_message():  # the help of a group of commands was printed while the error was made
                print(error.format_message())
            code = 0
        except ClickException as error:
            if not standalone_mode:
                raise
            code = _refused(error)
        except typer.Abort:
            code = INTERRUPTED
        except Exception as error:
            if debug or not standalone_mode:
                raise
            report(error)
            code = 1
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def with_cluster(arguments: list[str]) -> list[str]:
    """Set the environment variables of `--cluster NAME`, which every command takes, and return the other arguments.

    Raises: ValueError without a name, or for one that `lab.yaml` does not have.
    """
    at = next((i for i, each in enumerate(arguments) if each.partition("=")[0] == CLUSTER), None)
    if at is None:
        return arguments
    _, has_value, name = arguments[at].partition("=")
    after = at + 1 if has_value else at + 2
    name = name if has_value else "".join(arguments[at + 1 : after])
    if not name or name.startswith("-"):
        raise ValueError(f"{CLUSTER} needs the name of a cluster of lab.yaml, such as {CLUSTER} tpu")
    from resources.named_clusters import chosen, named_cluster

    choice = chosen(name, named_cluster(name, lab_folder()), os.environ)
    os.environ.update(choice.variables)
    for line in choice.kept:
        print(f"marin: {line}", file=sys.stderr)
    return [*arguments[:at], *arguments[after:]]


def _refused(error: ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None and context.parent is not None else "marin COMMAND"
    where = "" if "marin -h" in error.format_message() else f"; `{path} -h` explains it"
    print(f"marin: {error.format_message().removeprefix('Invalid value: ').rstrip('.')}{where}", file=sys.stderr)
    return 1


def help_text() -> str:
    """Every command in its group: one line each for the first group, names alone for the others."""
    lines = ["Usage: marin COMMAND [OPTIONS]", "", "An open language-model lab as one Dagster asset graph.", ""]
    first, *others = GROUPS
    lines += [f"{first.title}:", *(f"  {command.name:<12}{command.summary}" for command in first.commands), ""]
    width = max(len(group.title) for group in others) + 2
    for group in others:
        lines += _wrapped(group, width)
    lines += ["", "`marin COMMAND -h` explains one command, `marin help` has a line for each.", ""]
    lines += ["With any command: --cluster NAME (lab.yaml), --debug; --install-completion.", ""]
    return "\n".join(lines)


def _wrapped(group: Group, width: int) -> list[str]:
    lines, current = [], f"{group.title:<{width}}"
    for command in group.commands:
        if len(current) + len(command.name) + 1 > 78:
            lines.append(current.rstrip())
            current = " " * width
        current += f"{command.name} "
    return [*lines, current.rstrip()]


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, context_settings=HELP_OPTIONS)


@app.callback()
def set_up_logging() -> None:
    """An open language-model lab as one Dagster asset graph."""
    if PREFIX:  # `./marin` of a checkout names the folder; jobs and daemons, which run elsewhere, inherit it here
        os.environ.setdefault(LAB, str(lab_folder()))
        os.environ.setdefault("DAGSTER_HOME", str(lab_folder()))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for package in (*SHOWN, *(f"{PREFIX}{name}" for name in SHOWN)):  # some modules log under the name of their package
        logging.getLogger(package).setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is currently in beta")  # of Dagster, named in docs/dependencies.md


if __name__ == "__main__":
    app()
