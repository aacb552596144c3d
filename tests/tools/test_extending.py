"""The patches of docs/design/extending.md change no more files than the table allows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "docs" / "design" / "extending"
REPEATED = ("docs/data/catalogue.md",)
"""Files that a command writes from the declarations."""
BARS = {"optimizer": 3, "stage": 3, "task": 2, "source": 1, "run": 1, "sweep": 1}


def files_of(patch: str) -> tuple[set[str], set[str]]:
    """Files that a patch creates, and files that it changes."""
    created, changed = set(), set()
    for part in re.split(r"^diff --git ", patch, flags=re.MULTILINE)[1:]:
        name = part.split()[1].removeprefix("b/")
        (created if "\nnew file mode " in part else changed).add(name)
    return created, changed


def test_every_kind_has_its_patch() -> None:
    assert {path.stem for path in PATCHES.glob("*.patch")} == set(BARS)


@pytest.mark.parametrize("kind", sorted(BARS))
def test_an_addition_changes_no_more_files_than_the_bar(kind: str) -> None:
    created, changed = files_of((PATCHES / f"{kind}.patch").read_text())
    assert len(changed - set(REPEATED)) <= BARS[kind]
    assert len(created) <= 2, "its code and its test"


@pytest.mark.parametrize("kind", sorted(BARS))
def test_the_page_names_the_files_that_exist(kind: str) -> None:
    row = next(line for line in (PATCHES.parent / "extending.md").read_text().split("\n") if f"`{kind}.patch` |" in line)
    _, changed = files_of((PATCHES / f"{kind}.patch").read_text())
    for name in changed - set(REPEATED):
        assert (ROOT / name).is_file()
        assert f"`{name}`" in row
