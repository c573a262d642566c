"""The page that runs dsgen in a browser: built, opened as a local file in Chromium, and compared with the program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chromium import chromium
from tests.needs import builds_checkout, needs_chromium, needs_npm

if TYPE_CHECKING:
    from playwright import sync_api

ROOT = Path(__file__).parent.parent.parent
BROKEN = '{"train_batch_size": 32,\n "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}'
_FILES = """() => [...document.querySelectorAll("[data-file]")].map(
    (file) => [file.dataset.file, file.querySelector("pre").textContent])"""
_TYPE = """(text) => {
    const area = document.getElementById("text");
    area.value = text;
    area.dispatchEvent(new InputEvent("input", {inputType: "insertFromPaste"}));
    document.body.dataset.state = "typed";
}"""
pytestmark = [pytest.mark.integration, needs_chromium, needs_npm, builds_checkout]


class Page:
    """The page in a browser that is running, and what it wrote on the console."""

    def __init__(self, page: sync_api.Page) -> None:
        self.page = page
        self.console: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))

    def settled(self) -> str:
        """Wait for the answer to what was entered; what the page then says of itself."""
        self.page.wait_for_selector("body[data-state=ready], body[data-state=broken]", timeout=120_000)
        return self.text("state")

    def enter(self, text: str, mode: str) -> None:
        self.page.click(f"[data-mode={mode}]")
        self.settled()
        self.page.evaluate(_TYPE, text)
        assert self.settled().startswith("Answered")

    def text(self, name: str) -> str:
        return self.page.text_content(f"#{name}") or ""

    def files(self) -> dict[str, str]:
        """Names and contents of the files on the right."""
        return dict(self.page.evaluate(_FILES))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, built from this checkout, with the built-in job planned."""
    made = tmp_path_factory.mktemp("page") / "browser.html"
    parts = Path(sys.prefix) / "browser"  # what `make browser` keeps, too
    command = [sys.executable, "-m", "scripts.browser.build", str(made), str(parts)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    with chromium() as browser:
        found = Page(browser.new_page(viewport={"width": 1400, "height": 900}))
        found.page.goto(made.as_uri())
        assert found.settled().startswith("Answered")
        yield found


def written(spec: str, folder: Path) -> dict[str, str]:
    """What the installed program writes for a spec."""
    folder.mkdir()
    (folder / "dsgen.yaml").write_text(spec, encoding="utf-8")
    command = [sys.executable, "-m", "dsgen", "generate", "dsgen.yaml", "-o", "out"]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return {f"out/{file.name}": file.read_text(encoding="utf-8") for file in (folder / "out").iterdir()}


def test_writes_the_files_of_the_program(page: Page, tmp_path: Path) -> None:
    """Of the built-in job and of jobs for two other frameworks, the page shows the program's files byte for byte."""
    default = (ROOT / "generator/cli/default_job.yaml").read_text(encoding="utf-8")
    assert page.files() == written(default, tmp_path / "default")
    for name in ("llama-2-13b-offload", "mixtral-8x7b"):
        spec = (ROOT / f"examples/{name}.yaml").read_text(encoding="utf-8")
        page.enter(spec, "plan")
        assert page.files() == written(spec, tmp_path / name)


def test_says_what_is_wrong_with_a_pasted_config(page: Page, tmp_path: Path) -> None:
    """A config that is pasted in gets the findings of `dsgen validate`, with their lines."""
    (tmp_path / "ds_config.json").write_text(BROKEN, encoding="utf-8")
    command = [sys.executable, "-m", "dsgen", "validate", "ds_config.json", "--format", "json"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    page.enter(BROKEN, "check")
    findings = json.loads(answer.stdout)["findings"]
    assert any(finding["rule"] == "BATCH001" for finding in findings)
    told = page.text("findings")
    for finding in findings:
        where = f"{finding['line']}:{finding['column']} {finding['severity']} {finding['rule']}"
        assert f"{where} {finding['message']}{finding['hint']}" in told


def test_shows_what_is_wrong_with_a_spec(page: Page) -> None:
    """A spec that can't be planned shows its findings instead of a plan, and a corrected one the plan again."""
    page.enter("name: x\nmodle: gpt3-175b\n", "plan")
    assert "did you mean `model`" in page.text("findings")
    page.enter((ROOT / "generator/cli/default_job.yaml").read_text(encoding="utf-8"), "plan")
    assert "1,024 GPUs" in page.text("plan")


def test_draws_the_report(page: Page) -> None:
    """The report of the job that is planned is drawn when its tab is opened."""
    page.page.click("[data-view=report]")
    page.page.frame_locator("#report").get_by_text("Why this one").wait_for(timeout=120_000)


def test_says_nothing_on_the_console(page: Page) -> None:
    """After all that, the browser's console has no warning and no error."""
    assert page.console == []
