"""``--long``: also the tests that take minutes and have a smaller representative in the suite (``nox -s eta``)."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long(reason): takes a minute or more, and a smaller one runs in its place")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is not None:
            # Skipped, as the suite has to stay under 30 minutes on 2 cores; pytest lists the reasons.
            item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]}: nox -s eta"))
