"""The daily asset appends to the log that the policy names, and says so where there is none."""

from pathlib import Path

import dagster as dg
import pytest
from published_store import small_lab

from lineage.private_files import KEY_FOLDER
from lineage.signing.keys import local_key
from lineage.signing.log import read_log
from lineage.signing.policy import POLICY, read_policy
from lineage.storage.root import Storage
from marin_assets.transparency import transparency_log_asset
from resources.lab import LabResource


def test_the_log_grows_by_what_the_stores_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FOLDER, str(tmp_path / "keys"))
    key = local_key(tmp_path / "keys")
    small_lab(tmp_path / "root" / "artifacts")
    asset, resources = transparency_log_asset(), {"lab": LabResource(root=str(tmp_path / "root"))}
    assert dg.materialize([asset], resources=resources).success  # no policy, no log
    policy = tmp_path / "lab.yaml"
    policy.write_text(f"keys: {{ada: {{public: {key.public.text}, may: [publish]}}}}\nlog: {tmp_path / 'log'}\n")
    monkeypatch.setenv(POLICY, str(policy))
    result = dg.materialize([asset], resources=resources)
    view = read_log(Storage(str(tmp_path / "log" / "artifacts")), read_policy(policy))
    metadata = result.asset_materializations_for_node("operations__transparency_log")[0].metadata
    assert metadata["artifacts_root"].value == view.head.root and metadata["artifacts_entries"].value == len(view.entries) == 6
