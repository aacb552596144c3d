"""The edits of `benchmarks/edits.py` are of the code as it stands: ten of them had gone stale unseen by 2026-11-23."""

from pathlib import Path

from benchmarks.edits import copy_checkout, restore, write_bucket
from benchmarks.edits_table import edits


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
