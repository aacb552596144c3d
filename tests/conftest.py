"""Which tests share a pytest worker: those of one file, and all that ask for the sailed ferry, so that it sails once."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        shares_the_ferry = "sailed" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("ferry" if shares_the_ferry else item.path.name))
