"""Every edit of `benchmarks/edits.py` applies to the current code."""

from pathlib import Path

import pytest

from benchmarks.edits import copy_checkout, restore, write_bucket
from benchmarks.edits_code import edits

pytestmark = pytest.mark.slow


def test_every_edit_applies_to_this_checkout(tmp_path: Path) -> None:
    write_bucket(tmp_path / "region-a")
    checkout = copy_checkout(tmp_path / "checkout", tmp_path / "region-a")
    before = {path: path.read_bytes() for path in checkout.rglob("*.[pm][yd]")}
    stale = []
    for edit in edits():
        try:
            for operation in edit.operations:
                operation(checkout)
        except ValueError as error:  # names the file and the text that is not there
            stale.append(f"{edit.name}: {error}")
        restore(checkout, before)
    assert not stale, "\n".join(stale)
