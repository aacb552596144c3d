"""Our test server and our store against an independent GCS server (`make image-test`)."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_gcs import fake_gcs_server, guarded_gcs_server
from gcs_conformance import rules
from google.cloud.storage import Client

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.storage.leases import HeldError, lease
from lineage.storage.root import Storage
from lineage.writing.write import writing

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SPEC = ArtifactSpec(("tests", "written"), None, "tests.plain", "1", {})
BIG = 9 << 20
"""More bytes than fit into one request."""


LISTINGS = {"list: pages with a delimiter", "list: glob by name"}
"""Rules that the guard does not add: a page may be one longer than requested, and globs are ignored."""


@pytest.fixture(scope="module", params=[fake_gcs_server, guarded_gcs_server], ids=["alone", "guarded"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", running)
        yield running


@pytest.fixture
def store(url: str, tmp_path: Path) -> Store:
    name = uuid.uuid4().hex
    Client().create_bucket(name)
    return Store(f"gs://{name}/lab", scratch_folder=str(tmp_path))


@pytest.mark.parametrize("url", [fake_gcs_server], indirect=True, ids=["alone"])
def test_what_both_servers_answer_is_the_same(url: str) -> None:
    """For each rule that it keeps, its answer equals our server's (ours keeps all); the rules that it breaks are printed."""
    all_rules = list(rules(url))
    broken = [rule.name for rule in all_rules if not rule.is_kept]
    print(f"fake-gcs-server breaks {len(broken)} of {len(all_rules)} rules: {', '.join(broken)}")
    kept = {rule.name for rule in all_rules if rule.is_kept}
    assert {"multipart: create", "multipart: create what exists", "multipart: swap, stale generation", "read: a range"} <= kept
    assert {"read: what is not there", "list: delimiter", "list: pages", "multipart: what is read"} <= kept


@pytest.mark.parametrize("url", [guarded_gcs_server], indirect=True, ids=["guarded"])
def test_behind_the_guard_it_keeps_the_rules(url: str) -> None:
    assert {rule.name for rule in rules(url) if not rule.is_kept} == LISTINGS


def test_an_artifact_is_written_found_and_read(store: Store, tmp_path: Path) -> None:
    with writing(store, SPEC) as out:
        (out.folder / "sub").mkdir()
        (out.folder / "sub" / "small").write_bytes(b"x" * 1000)
        (out.folder / "big").write_bytes(b"0123456789abcdef" * (BIG // 16))
    artifact = Store(store.root, scratch_folder=str(tmp_path / "reader")).find(SPEC)
    assert artifact is not None
    artifact.verify()
    assert store.storage.folders(SPEC.address) == [artifact.manifest.data_folder, "signatures"]
    assert store.storage.files.read_range(f"{SPEC.address}/{artifact.manifest.data_folder}/big", 16, 20) == b"0123"
    assert [a.spec for a in store.artifacts("tests")] == [SPEC]
    store.delete(artifact)
    assert store.find(SPEC) is None
    assert store.storage.sizes("tests") == {}


def test_of_many_creators_one_wins(store: Store) -> None:
    storage = Storage(store.root)
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: storage.create("a/x", str(number)), range(8)))
    assert won.count(True) == 1
    assert storage.read_text("a/x") == str(won.index(True))


@pytest.mark.parametrize("url", [guarded_gcs_server], indirect=True, ids=["guarded"])
def test_a_lease_has_one_holder_and_is_released(store: Store) -> None:
    with lease(store.storage, "a", "first") as held:
        with pytest.raises(HeldError, match="first"), lease(store.storage, "a", "second"):
            pass
        held.renew()
        held.check()
    with lease(store.storage, "a", "second"):
        pass
