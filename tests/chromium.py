"""A headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.needs import program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: root needs --no-sandbox; the others keep the browser from asking its maker for anything.
_QUIET = ("no-sandbox", "disable-background-networking", "disable-component-update", "disable-sync")


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser; its pages see nothing of one another."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program("chromium"), args=[f"--{option}" for option in _QUIET]
        )
        yield started
        started.close()
