"""What all tests share: how they are spread over workers, what their child processes compile, what no property is judged by."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from gcs_server import GcsServer, gcs_server
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# No property is judged by the time that an example took, nor by the time that making examples took: the machine may be slow
# or may stand still. A failure prints the line (`@reproduce_failure`) that replays it.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def compilations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """JAX jobs that tests start find what an earlier job of this worker compiled: a third of their time.

    One folder a worker, because JAX writes an entry in place and another process may read half of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compilations")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
        yield


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A GCS-protocol server on loopback, and the environment that points Google's clients at it."""
    with gcs_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.hookimpl(optionalhook=True)  # also without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """Tests of a file stay together, and all of tests/shell do, so that their ferry sails once."""
    from xdist.scheduler import LoadFileScheduling

    class OneFerry(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/shell" if nodeid.startswith("tests/shell/") else super()._split_scope(nodeid)

    return OneFerry(config, log)
