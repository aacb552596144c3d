"""Commands on the pages of `docs/` and in messages of the code: they exist, with the options that are written there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer._click import Command, Context
from typer._click.exceptions import BadOptionUsage, ClickException, MissingParameter, NoArgsIsHelpError
from typer.core import TyperGroup
from typer.main import get_command

from marin_assets.cli.app import app
from marin_assets.cli.table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
FILLED_IN = "filled-in"
NOT_OF_TODAY = ("log.md", "CHANGELOG.md")
"""Pages on what was: their commands may be gone."""
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name not in NOT_OF_TODAY and "data" not in page.parts[-2:-1]
]
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(?:\./)?marin ([^`]+)`")
LINE = re.compile(r"^(?:\$ )?\./marin (.+)$", re.M)
MAKE = re.compile(r"(?:^(?:\$ )?|`)make ([a-z][\w-]*)", re.M)


def in_blocks(page: Path) -> list[str]:
    """Return the commands of a page that a reader pastes, without comments and what follows a pipe."""
    lines = [line for block in BLOCK.findall(page.read_text()) for line in LINE.findall(block)]
    return [re.split(r"\s+#\s|\s*[|;]\s|\s&&\s", line)[0] for line in lines]


def in_sentences(page: Path) -> list[str]:
    """Return the commands that the sentences of a page name. They may lack what the reader has to give."""
    return [" ".join(found.split()) for found in INLINE.findall(BLOCK.sub("", page.read_text()))]


def in_messages() -> Iterator[tuple[str, str]]:
    """Yield the commands that texts of the code name, with their file; what is filled in is `FILLED_IN`."""
    for package in ("datakit", "evals", "lineage", "marin_assets", "operations", "recipes", "resources", "serving", "trainer"):
        for path in sorted((ROOT / package).rglob("*.py")):
            joined = re.sub(r'"\s*\n\s*f?"', "", path.read_text())  # one text in several pieces
            for found in INLINE.findall(joined):
                yield path.relative_to(ROOT).as_posix(), filled_in(found)


def filled_in(text: str) -> str:
    """Return a piece of an f-string with its fields filled in, the inner ones first, and without quotes cut in half."""
    while (filled := re.sub(r"\{[^{}]*\}", FILLED_IN, text)) != text:
        text = filled
    return text if len(re.findall(r"[\"']", text)) % 2 == 0 else re.sub(r"[\\'\"]", "", text)


def fault(line: str, *, is_whole: bool) -> str | None:
    """Return what the command line says to a command, without running it; None if it takes it."""
    line = re.sub(r"\[(--[^\]]*)\]", r"\1", line.partition(" > ")[0].replace("...", "x"))  # [--option] may be given
    arguments = [part for part in shlex.split(line) if not re.fullmatch(r"\[[A-Z]+\]", part)]
    if "--cluster" in arguments:
        at = arguments.index("--cluster")
        arguments = arguments[:at] + arguments[at + 2 :]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    with Context(group) as context:
        return _fault(group, arguments, context, is_whole=is_whole)


def _fault(group: TyperGroup, arguments: list[str], context: Context, *, is_whole: bool) -> str | None:
    name, *rest = arguments or ["-h"]
    if name in ("-h", "--help", "COMMAND", FILLED_IN):
        return None
    command: Command | None = group.get_command(context, name)
    if command is None:
        return f"there is no command {name}"
    if isinstance(command, TyperGroup):
        return _fault(command, rest, context, is_whole=is_whole) if rest else None
    given = [part for part in rest if part not in ("-h", "--help", "--debug")]
    try:
        command.make_context(name, given, parent=context)
    except (MissingParameter, BadOptionUsage, NoArgsIsHelpError) as error:
        return str(error) if is_whole and given == rest else None
    except ClickException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_one(page: Path) -> None:
    found = [(line, fault(line, is_whole=True)) for line in in_blocks(page)]
    found += [(line, fault(line, is_whole=False)) for line in in_sentences(page)]
    assert [(line, why) for line, why in found if why] == []


def test_every_make_target_of_a_page_exists() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        code = BLOCK.findall(page.read_text()) + re.findall(r"`make [^`]+`", page.read_text())
        named = {name for text in code for name in MAKE.findall(text)}
        assert named <= targets, (page.name, named - targets)


def test_every_remedy_that_a_message_names_is_a_command() -> None:
    found = [(place, line, fault(line, is_whole=False)) for place, line in in_messages()]
    assert len(found) > 40
    assert [each for each in found if each[2]] == []


def test_a_command_that_is_none_is_found() -> None:
    assert fault("gaet x", is_whole=True) and fault("list --rot x", is_whole=False) and fault("show", is_whole=True)
    assert fault("purge aprove x", is_whole=True) and not fault("show", is_whole=False) and not fault("list", is_whole=True)


ANSWERS_OTHERWISE = {
    "serve": "it serves until it is stopped",
    "ui": "it serves until it is stopped",
    "metrics": "it serves Prometheus until it is stopped",
    "spec": "its answer is JSON",
    "heldout": "its answer is lines of JSON",
    "storage lifecycle": "its answer is JSON",
}


def test_every_answer_can_be_json() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    lacking = set()
    with Context(group) as context:
        for name in COMMANDS:
            command = group.get_command(context, name)
            of_group = isinstance(command, TyperGroup)
            parts = (
                [(f"{name} {sub}", command.get_command(context, sub)) for sub in command.list_commands(context)]
                if of_group
                else []
            )
            for path, each in parts or [(name, command)]:
                assert each is not None
                if not any("--json" in parameter.opts for parameter in each.params):
                    lacking.add(path)
    assert lacking == set(ANSWERS_OTHERWISE)
