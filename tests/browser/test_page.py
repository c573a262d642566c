"""The page that runs dsgen in a browser: built, opened as a local file in Chromium, and compared
with the program.
"""

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
BROKEN = (
    '{"train_batch_size": 32,\n "train_micro_batch_size_per_gpu": 3, '
    '"gradient_accumulation_steps": 2}'
)
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
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))

    def settled(self) -> str:
        """Wait for the answer to what was entered; what the page then says of itself."""
        self.page.wait_for_selector(
            "body[data-state=ready], body[data-state=broken]", timeout=120_000
        )
        return self.text("state")

    def enter(self, text: str, mode: str) -> None:
        self.page.click(f"button[data-mode={mode}]")
        self.settled()
        self.page.evaluate(_TYPE, text)
        assert self.settled().startswith("Answered")

    def view(self, name: str) -> None:
        """Open a view of the job, and wait for what it shows."""
        self.page.click("button[data-mode=plan]")
        self.settled()
        self.page.click(f"[data-tab={name}]")
        self.settled()

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
        found.page.goto(made.as_uri(), wait_until="commit")
        yield found


REPORT = "#report"
NARROW = {"width": 390, "height": 844}


def test_shows_an_answer_before_it_is_loaded(page: Page) -> None:
    """On opening, the page says the built-in job's answer, then shows its report and how far dsgen
    has loaded.
    """
    plan = json.loads((ROOT / "tests/golden/gpt3-175b-azure/plan.json").read_text(encoding="utf-8"))
    assert f": {plan['layout']['data']} replicas" in page.text(
        "of"
    ) and " GPU-hours, $" in page.text("of")
    page.page.wait_for_selector("body[data-shown]")
    page.page.frame_locator(REPORT).locator("#plan .tiles").wait_for()
    assert (
        page.text("state").startswith("Loading: ") and page.page.locator("#progress").is_visible()
    )
    assert page.settled() == "Ready" and not page.page.locator("#progress").is_visible()
    carried = page.files()
    page.view("files")
    page.enter(page.page.input_value("#text") + "# The same job.\n", "plan")
    assert carried and page.files() == carried


def test_models_and_machines_are_chosen_from_lists(page: Page) -> None:
    """An example replaces the spec; a model, a machine or a number of GPUs replaces its line, and
    is planned.
    """
    page.page.click("[data-tab=report]")
    page.page.select_option("#example", "mixtral-8x7b")
    assert page.settled().startswith("Answered")
    assert (page.page.input_value("#model"), page.page.input_value("#gpus")) == (
        "mixtral-8x7b",
        "64",
    )
    page.page.fill("#gpus", "128")
    page.page.press("#gpus", "Enter")
    page.page.select_option("#cluster", "nvidia/dgx-h100")
    assert page.settled().startswith("Answered")
    assert "gpus: 128\n" in page.page.input_value("#text")
    assert "128 × h100" in page.page.frame_locator(REPORT).locator("header p").inner_text()


def test_keys_of_sections_are_chosen_too(page: Page) -> None:
    """Framework, target, sequence and batch are read from the spec, in blocks and in braces, and
    written where they stand.
    """
    page.page.click("[data-tab=plan]")
    page.page.select_option("#example", "llama-3-8b-lora")
    assert page.settled().startswith("Answered")
    shown = [page.page.input_value(f"#{name}") for name in ("framework", "target", "sequence")]
    assert shown == ["huggingface", "shell", "4096"]
    page.page.fill("#sequence", "2048")
    page.page.press("#sequence", "Enter")
    assert page.settled().startswith("Answered")
    page.page.fill("#batch", "128")
    page.page.press("#batch", "Enter")
    page.page.select_option("#target", "slurm")
    assert page.settled().startswith("Answered")
    text = page.page.input_value("#text")
    assert "sequence_length: 2048" in text and "global_batch: 128" in text
    assert "target: slurm" in text and "shell" not in text.replace("#", "\n#").split("\n#")[0]


def test_lines_of_the_text_are_numbered(page: Page) -> None:
    """Beside the text is the number of each line, which scrolls with it."""
    lines = page.page.input_value("#text").split("\n")
    assert page.text("numbers").split("\n") == [str(n) for n in range(1, len(lines) + 1)]
    scrolled = """() => {
        const [text, numbers] = ["text", "numbers"].map((id) => document.getElementById(id));
        text.scrollTop = 40;
        text.dispatchEvent(new Event("scroll"));
        return [text.scrollTop, numbers.scrollTop];
    }"""
    at_text, at_numbers = page.page.evaluate(scrolled)
    assert at_text == at_numbers


def test_it_asks_for_nothing_but_itself(page: Page) -> None:
    """The page is the only thing that is asked for: its worker and its parts are in it."""
    assert [each for each in page.requests if not each.startswith(("data:", "blob:"))] == [
        page.page.url
    ]


def test_fits_a_phone(page: Page) -> None:
    """On 390 pixels nothing is wider than the screen, nor a plan; the spec and the report have it
    in turn.
    """
    page.page.set_viewport_size(NARROW)  # type: ignore[arg-type]  # a size
    for tab, shown, hidden in (("text", "#text", REPORT), ("report", REPORT, "#text")):
        page.page.click(f"[data-tab={tab}]")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert page.page.locator(shown).is_visible() and not page.page.locator(hidden).is_visible()
        assert (page.page.locator(shown).bounding_box() or {})["height"] > NARROW["height"] / 2
        for button in page.page.locator("nav button:visible").all():
            box = button.bounding_box()
            assert box and box["x"] + box["width"] <= NARROW["width"]
    page.page.click("[data-tab=plan]")
    page.settled()
    assert page.page.evaluate(
        "(plan => plan.scrollWidth <= plan.clientWidth)(document.getElementById('plan'))"
    )
    page.page.set_viewport_size({"width": 1400, "height": 900})


def written(spec: str, folder: Path) -> dict[str, str]:
    """What the installed program writes for a spec."""
    folder.mkdir()
    (folder / "dsgen.yaml").write_text(spec, encoding="utf-8")
    command = [sys.executable, "-m", "dsgen", "generate", "dsgen.yaml", "-o", "out"]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return {file.name: file.read_text(encoding="utf-8") for file in (folder / "out").iterdir()}


def test_writes_the_files_of_the_program(page: Page, tmp_path: Path) -> None:
    """Of the built-in job and of jobs for two other frameworks, the page shows the program's files
    byte for byte.
    """
    page.view("files")
    default = (ROOT / "generator/cli/default_job.yaml").read_text(encoding="utf-8")
    page.enter(default, "plan")
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
    """A spec that can't be planned shows its findings instead of a plan, and a corrected one the
    plan again.
    """
    page.view("plan")
    page.enter("name: x\nmodle: gpt3-175b\n", "plan")
    assert "did you mean `model`" in page.page.locator("#findings").inner_text()
    assert not page.page.locator("#plan").is_visible()
    page.enter((ROOT / "generator/cli/default_job.yaml").read_text(encoding="utf-8"), "plan")
    plan = json.loads((ROOT / "tests/golden/gpt3-175b-azure/plan.json").read_text(encoding="utf-8"))
    assert f"{plan['layout']['data']} replicas" in page.page.locator("#plan").inner_text()


def test_says_why_nothing_fits(page: Page) -> None:
    """Of a job that doesn't fit, the page shows why in place of the report."""
    page.view("report")
    spec = (ROOT / "generator/cli/default_job.yaml").read_text(encoding="utf-8")
    page.enter(spec.replace("gpus: 1024", "gpus: 8"), "plan")
    assert "MEM001" in page.page.locator("#plan").inner_text()


def test_draws_the_report(page: Page) -> None:
    """The report is that of the job that is planned, and nothing on the page says that a file was
    written.
    """
    page.enter((ROOT / "examples/llama-2-13b-offload.yaml").read_text(encoding="utf-8"), "plan")
    page.view("report")
    page.page.frame_locator(REPORT).locator("h1", has_text="llama-2-13b-offload").wait_for(
        timeout=120_000
    )
    for view in ("plan", "findings", "files"):
        page.view(view)
    assert "written" not in page.text("plan") + page.text("of") + page.text("state") + page.text(
        "findings"
    )


def test_says_nothing_on_the_console(page: Page) -> None:
    """After all that, the browser's console has no warning and no error."""
    assert page.console == []
