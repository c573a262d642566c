"""The report's page: how large it is, and how soon it is drawn: `python -m benchmarks.report`.

Each page is opened from a file in Debian's Chromium, five times in new tabs of 1,280 × 900 pixels.
Needs playwright.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from click.testing import CliRunner
from playwright.sync_api import Browser, sync_playwright

from dsgen.cli import commands

EXAMPLES = Path(__file__).parent.parent / "examples"
JOBS = ("gpt3-175b-azure", "llama-3.1-405b-h100", "deepseek-v3", "megatron-1t", "mixtral-8x7b")
RUNS = 5
DRAWN = "performance.getEntriesByName('drawn')[0].startTime"


def drawn_ms(browser: Browser, page: Path) -> tuple[float, float]:
    """Milliseconds from the navigation until everything is drawn, and those that the page's thread
    worked.
    """
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn]")
    found = float(tab.evaluate(DRAWN))
    metrics = {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }
    tab.close()
    return found, 1e3 * metrics["TaskDuration"]


def main() -> None:
    """Print a row for each job."""
    print(
        "| job | written in | size | points shown | drawn, median of 5 | slowest | processor time |"
    )
    print("|---" * 7 + "|")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for job in JOBS:
            page, start = Path(folder) / f"{job}.html", time.perf_counter()
            CliRunner().invoke(
                commands,
                ["report", str(EXAMPLES / f"{job}.yaml"), "-o", str(page)],
                catch_exceptions=False,
            )
            took = time.perf_counter() - start
            times, worked = zip(*(drawn_ms(browser, page) for _ in range(RUNS)), strict=True)
            tab = browser.new_page()
            tab.goto(page.as_uri())
            shown, of = tab.evaluate("[report.plans.shown, report.plans.estimated]")
            tab.close()
            print(
                f"| {job} | {took:.1f} s | {page.stat().st_size / 1e6:.2f} MB | "
                f"{shown:,} of {of:,} "
                f"| {statistics.median(times):.0f} ms | {max(times):.0f} ms | "
                f"{statistics.median(worked):.0f} ms |"
            )
        browser.close()


if __name__ == "__main__":
    main()
