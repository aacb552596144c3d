"""A killed object-store server: its answers persist across a restart."""

from pathlib import Path

import pytest
from gcs_conformance import rules
from gcs_process import BucketProcess

from lineage.storage.root import Storage


def test_objects_outlive_a_server_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BucketProcess(tmp_path / "objects") as server:
        assert [rule.name for rule in rules(server.url) if not rule.is_kept] == []
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        storage = Storage(f"{server.bucket('kept-by-files')}/root")
        assert storage.create("a/manifest.json", "first")
        before = storage.stamps("manifest.json")
        server.kill()
        server.start()
        assert storage.read_text("a/manifest.json") == "first"
        assert storage.stamps("manifest.json") == before, "generations too"
        assert not storage.create("a/manifest.json", "second")
        server.kill()
        server.start()
        storage.delete("a")
        assert storage.create("a/manifest.json", "third")
        assert storage.stamps("manifest.json") != before, "no generation is given twice"
