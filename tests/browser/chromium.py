"""A headless Chromium that asks nothing of the network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.needs import program

_QUIET = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)


@contextmanager
def chromium(width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A browser with a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for option in (*_QUIET, f"window-size={width},{height}", f"user-data-dir={profile}"):
            options.add_argument(f"--{option}")
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()
