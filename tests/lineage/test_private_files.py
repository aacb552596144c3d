"""What a process reads back as its own was written by its user: a folder below the shared temporary one, and a secret."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lineage.artifact.store import Store
from lineage.private_files import MACHINE_SECRET, machine_secret, private_scratch


def test_scratch_of_a_bucket_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Store("gs://somewhere").scratch
    assert scratch.parent == tmp_path and stat.S_IMODE(scratch.stat().st_mode) == 0o700
    (scratch / "fetched").mkdir()
    assert Store("gs://somewhere").scratch == scratch and (scratch / "fetched").is_dir()


def everybody_may_write(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def the_group_may_write(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)


def a_link(folder: Path) -> None:
    folder.with_name("elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.with_name("elsewhere"))


def a_link_to_nothing(folder: Path) -> None:
    folder.symlink_to(folder.with_name("nothing"))


def a_file(folder: Path) -> None:
    folder.write_text("x")


def of_another_user(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize(
    "prepare",
    [
        everybody_may_write,
        the_group_may_write,
        a_link,
        a_link_to_nothing,
        a_file,
        pytest.param(of_another_user, marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")),
    ],
)
def test_a_folder_that_somebody_else_prepared_is_refused(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    """Else another user of the machine decides what a bucket's files hold, and which of them were verified."""
    prepare(tmp_path / f"marin-scratch-{os.getuid()}")
    with pytest.raises(ValueError, match="only this user may write"):
        private_scratch(tmp_path)


def test_the_secret_of_a_machine_is_private_and_stays(tmp_path: Path) -> None:
    secret = machine_secret(tmp_path / "keys")
    machine_secret.cache_clear()
    assert secret is not None and len(secret) == 32 and machine_secret(tmp_path / "keys") == secret
    assert stat.S_IMODE((tmp_path / "keys" / MACHINE_SECRET).stat().st_mode) == 0o600
    assert machine_secret(tmp_path / "others") != secret
