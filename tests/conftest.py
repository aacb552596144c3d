"""Which tests share a pytest worker: those of one file, and all of tests/shell, so that their ferry sails once."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(optionalhook=True)  # also without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    from xdist.scheduler import LoadFileScheduling

    class OneFerry(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/shell" if nodeid.startswith("tests/shell/") else super()._split_scope(nodeid)

    return OneFerry(config, log)
