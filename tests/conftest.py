"""What every test shares: options, and a closing word on what could not be tested here."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.needs import MISSING, REQUIRE_ALL

# What tests import and collect is kept, so that looking for garbage in it is in vain.
gc.set_threshold(100_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to start where a component is missing and all are required; widths are nobody's
    terminal's.
    """
    os.environ.pop("COLUMNS", None)  # which pytest-xdist sets, too
    if REQUIRE_ALL and MISSING:
        missing = "; ".join(f"{component}: {reason}" for component, reason in MISSING.items())
        raise pytest.UsageError(f"DSGEN_REQUIRE_ALL is set, but {missing}")


# The examples are the same every time, whatever an earlier run found; `make fuzz` searches with new
# ones. No example has a deadline: the machine may be busy, or slow.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")

# Hypothesis mixes constants into what it draws, of the project's modules that happen to be imported
# in this process.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites the expected files instead of comparing with them."""
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden and expected outputs"
    )


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a module in one process: they share what they load, and the integration
    tests what they start. The longest come first.
    """
    kinds, groups = list[bool](), list[str]()
    for item in items:
        is_unit = item.get_closest_marker("integration") is None
        given = item.get_closest_marker("xdist_group")
        module = item.nodeid.partition("::")[0]
        group = str(given.args[0]) if given else f"{'unit' if is_unit else 'integration'} {module}"
        if given is None:
            item.add_marker(pytest.mark.xdist_group(group))
        kinds.append(is_unit)
        groups.append(group)

    sizes = Counter(groups)
    ranks = [
        ("long_runs" not in item.nodeid, is_unit, -sizes[group])
        for item, is_unit, group in zip(items, kinds, groups, strict=True)
    ]
    items[:] = [items[place] for place in sorted(range(len(items)), key=ranks.__getitem__)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, for tests that are marked `builds_checkout`."""
    root = Path(__file__).parent.parent
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(folder), str(root)]
    subprocess.run(command, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


_FOLDERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder of the test's own.

    Pytest's own fixture lists all folders of earlier tests to find the next number.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}_{next(_FOLDERS)}", numbered=False)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why."""
    if MISSING:
        terminalreporter.section("not tested on this machine")
        for component, reason in MISSING.items():
            terminalreporter.line(f"{component}: {reason}")
