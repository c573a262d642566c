"""The page in a real Chromium, opened from a file: what is drawn, what is said, and what can be
done with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dsgen
from dsgen.estimate.layout_words import in_words
from dsgen.search.plan import Plan, SearchResult
from dsgen.units import GIB, seconds
from tests.chromium import chromium
from tests.cli.running import run
from tests.needs import needs_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.integration, needs_chromium]

SPEC = Path(__file__).parents[2] / "examples" / "gpt3-175b-azure.yaml"
CHARTS = ("step-chart", "plans-chart", "sweep-chart", "sweep-cost-chart")
WIDTHS = (400, 900, 1600)
#: Distinct colours of a chart, sampled.
COLOURS = """id => {
    const found = new Set();
    for (const canvas of document.querySelectorAll(`#${id} canvas`)) {
        const copy = new OffscreenCanvas(canvas.width, canvas.height)
            .getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 404)
            if (data[i + 3] > 200) found.add([data[i], data[i + 1], data[i + 2]].join());
    }
    return found.size;
}"""
#: The boxes of the names of plans in their chart: text, left, top, right, bottom.
LABELS = """() => {
    const chart = echarts.getInstanceByDom(document.getElementById("plans-chart"));
    const named = /^([AB] ?)?(chosen|fastest|roomy|least memory|simplest)?$/;
    const texts = chart.getZr().storage.getDisplayList(true).filter((item) => item.style?.text);
    return texts.filter((item) => named.test(item.style.text)).map((item) => {
        const box = item.getBoundingRect().clone();
        box.applyTransform(item.getComputedTransform() ?? [1, 0, 0, 1, 0, 0]);
        return [item.style.text, box.x, box.y, box.x + box.width, box.y + box.height];
    });
}"""
#: The numbers inside the bars of memory that can be seen, with the width of each and of its part.
INSIDE = """() => [...document.querySelectorAll(".track b")].map((number) => {
    const [own, part] = [number, number.parentElement].map((each) => each.getBoundingClientRect());
    return [number.textContent, own.top < part.bottom - 1, own.width, part.width];
})"""
#: Where a point of a chart is on the screen.
PLACE = """([id, series, x, y]) => {
    const host = document.getElementById(id);
    host.scrollIntoView({ block: "center", behavior: "instant" });
    const chart = echarts.getInstanceByDom(host);
    const [left, top] = chart.convertToPixel({ seriesIndex: series }, [x, y]);
    const box = host.getBoundingClientRect();
    return [box.left + left, box.top + top];
}"""


#: Where the points of all plans are drawn.
POINTS = """() => {
    const chart = echarts.getInstanceByDom(document.getElementById("plans-chart"));
    return plans.layout.map((_, number) => chart.convertToPixel({ seriesIndex: 0 },
        [plans.required_bytes[number] / GIB, plans.rate[number]]));
}"""


@dataclass
class Opened:
    """The page, and what it complained of or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def put(self, chart: str, series: int, x: float, y: float) -> None:
        """Move the mouse to a point of a chart."""
        left, top = self.page.evaluate(PLACE, [chart, series, x, y])
        self.page.mouse.move(left - 3, top - 3)
        self.page.mouse.move(left, top)

    def data(self) -> Any:
        """What the charts draw."""
        return self.page.evaluate("report")


@pytest.fixture(scope="module")
def answer() -> SearchResult:
    """The plans that the report is about."""
    found = dsgen.search(dsgen.load_job(SPEC))
    assert isinstance(found, SearchResult)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this module."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the 1,024-GPU job."""
    target = tmp_path_factory.mktemp("report") / "report.html"
    assert run("report", str(SPEC), "-o", str(target)).exit_code == 0
    return target


@pytest.fixture
def opened(browser: Browser, written: Path) -> Iterator[Opened]:
    """The report, freshly opened; at the end it has not complained, and asked for no file but
    itself.
    """
    window = {"width": 1200, "height": 900}
    found = Opened(browser.new_page(viewport=window, color_scheme="light", reduced_motion="reduce"))
    found.page.on(
        "console", lambda message: found.complaints.append(f"{message.type}: {message.text}")
    )
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda request: found.complaints.append(request.url))
    found.page.goto(written.as_uri())
    found.page.wait_for_selector("html[data-drawn]")
    yield found
    found.page.close()
    assert found.complaints == [written.as_uri()]


def place_of(opened: Opened, plan: Plan) -> tuple[int, float, float]:
    """A plan's number in the page, and where it is drawn."""
    number = opened.data()["plans"]["layout"].index(in_words(plan.layout))
    return (
        number,
        float(plan.memory.required_bytes) / GIB,
        float(plan.throughput.tokens_per_s_per_gpu),
    )


def column(opened: Opened, caption: str, number: int) -> dict[str, str]:
    """A column of a ledger of the comparison, by cause."""
    rows = opened.page.locator(f"#comparison table:has(caption:text-is('{caption}')) tbody tr")
    cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    return {each[0]: each[number] for each in cells}


def shown_s(text: str) -> float:
    """Seconds of a text such as `577 ms`."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


def shows(plan: Plan, times: dict[str, str], sizes: dict[str, str]) -> None:
    """Check that the texts are the plan's own numbers, as many digits as are shown."""
    for cause, text in times.items():
        name = "total" if cause == "step" else cause
        assert math.isclose(
            shown_s(text), float(getattr(plan.step_time, f"{name}_s")), rel_tol=6e-3
        ), cause
    names = {"optimizer states": "optimizer", "logits and loss": "output"}
    for part, text in sizes.items():
        bytes_ = float(getattr(plan.memory, f"{names.get(part, part)}_bytes"))
        assert float(text.removesuffix(" GiB")) == pytest.approx(bytes_ / GIB, abs=0.051), part
    assert {"step", "compute"} <= times.keys() and {"required", "activations"} <= sizes.keys()


def test_charts_are_drawn_at_every_width_light_and_dark(opened: Opened, tmp_path: Path) -> None:
    """At 400, 900 and 1600 px, light and dark, every chart has its colours, and nothing is wider
    than the window.
    """
    grounds = set()
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # of a literal
        for width in WIDTHS:
            opened.page.set_viewport_size({"width": width, "height": 900})
            opened.page.wait_for_timeout(100)
            picture = opened.page.screenshot(
                full_page=True, path=tmp_path / f"{scheme}-{width}.png"
            )
            assert len(picture) > 100_000
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
            assert min(opened.page.evaluate(COLOURS, chart) for chart in CHARTS) >= 5
        grounds.add(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(255, 255, 255)", "rgb(18, 22, 28)"}


def test_a_phone_shows_every_plan_whole(opened: Opened) -> None:
    """At 390 px the table of plans is no wider than the screen: figures in a row, the dimensions in
    words below.
    """
    opened.page.set_viewport_size({"width": 390, "height": 844})
    assert opened.page.evaluate(
        "(table => table.scrollWidth <= table.clientWidth)(document.querySelector('.rows'))"
    )
    assert "DP\xa0" in opened.page.locator(".rows .phone").first.inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_plans_do_not_overlap(opened: Opened, width: int) -> None:
    """No name of a plan covers another or a point, or leaves the chart."""
    opened.page.set_viewport_size({"width": width, "height": 900})
    opened.page.wait_for_timeout(100)
    boxes = opened.page.evaluate(LABELS)
    right = opened.page.evaluate("document.getElementById('plans-chart').clientWidth")
    points = opened.page.evaluate(POINTS)
    assert len(points) > 100
    assert len(boxes) == sum(
        not name.isdecimal() for name in opened.data()["plans"]["names"].values()
    )
    for number, (_, *box) in enumerate(boxes):
        assert box[0] >= 0 and box[1] >= 0 and box[2] <= right
        inside = [(x, y) for x, y in points if box[0] < x < box[2] and box[1] < y < box[3]]
        assert width < 900 or not inside, (boxes[number], inside)
        for _, *other in boxes[:number]:
            assert (
                box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
            ), boxes


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_of_memory_say_their_size_where_there_is_room(opened: Opened, width: int) -> None:
    """A part of a bar has its GiB inside if they fit, and none that is cut off."""
    opened.page.set_viewport_size({"width": width, "height": 900})
    inside = opened.page.evaluate(INSIDE)
    assert len(inside) > 8 and any(seen for _, seen, _, _ in inside)
    assert all(own <= part if seen else own > part - 2 for _, seen, own, part in inside), inside


def test_the_button_changes_the_theme(opened: Opened) -> None:
    """The button goes to dark and back, and says what it does next."""
    button = opened.page.locator("#theme")
    for theme, text in (("dark", "Light"), ("light", "Dark")):
        button.click()
        assert opened.page.evaluate("document.documentElement.dataset.theme") == theme
        assert button.inner_text() == text


def test_hovering_a_plan_says_its_numbers(opened: Opened, answer: SearchResult) -> None:
    """Over the point of the chosen plan its layout, its step and its memory are shown."""
    best = answer.plans[0]
    _, x, y = place_of(opened, best)
    opened.put("plans-chart", 0, x, y)
    text = opened.page.locator("#plans-chart .tip").inner_text()
    assert in_words(best.layout) in text and "chosen" in text
    assert seconds(float(best.step_time.total_s)) in text.replace("\n", " ")
    assert f"{float(best.memory.required_bytes) / GIB:.1f} GiB" in text


def test_two_plans_are_compared_by_cause(opened: Opened, answer: SearchResult) -> None:
    """Two clicks put two plans side by side, each with the seconds and bytes of its own ledgers."""
    opened.page.locator("#plans-chart").press("Escape")
    one, other = answer.plans[1], answer.named["fastest"]
    for plan in (one, other):
        _, x, y = place_of(opened, plan)
        opened.put("plans-chart", 0, x, y)
        opened.page.mouse.down()
        opened.page.mouse.up()
    layouts = opened.page.locator("#comparison .pair code").all_inner_texts()
    assert layouts == [in_words(one.layout), in_words(other.layout)]
    for number, plan in ((1, one), (2, other)):
        shows(plan, column(opened, "Step time", number), column(opened, "Memory", number))
    less = 100 * (1 - float(other.step_time.total_s) / float(one.step_time.total_s))
    assert f"B takes {less:.1f} % less time" in opened.page.locator("#comparison").inner_text()


def test_plans_are_selected_by_keyboard(opened: Opened, answer: SearchResult) -> None:
    """Tab reaches the chart; arrows walk along the front and are read out; Enter selects, Escape
    clears.
    """
    opened.page.locator("#plans-reset").focus()
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.id") == "plans-chart"
    assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.page.keyboard.press("Escape")
    data = opened.data()["plans"]
    for key in ("ArrowRight", "Enter", "ArrowRight", "ArrowRight", "Enter"):
        opened.page.keyboard.press(key)
    chosen = [data["layout"][number] for number in (data["front"][0], data["front"][2])]
    assert opened.page.locator("#comparison .pair code").all_inner_texts() == chosen
    assert chosen[1] in opened.page.locator("#plans-said").inner_text()
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("#comparison .pair").count() == 0


def test_the_table_selects_too(opened: Opened) -> None:
    """The table behind the chart has every plan of the front, and its buttons select."""
    opened.page.locator("#front summary").click()
    buttons = opened.page.locator("#front-table button")
    data = opened.data()["plans"]
    assert buttons.count() == len({*data["front"], *map(int, data["names"])})
    opened.page.locator("#plans-chart").press("Escape")
    buttons.nth(0).click()
    buttons.nth(3).press("Enter")
    assert [buttons.nth(index).inner_text() for index in (0, 3)] == ["A", "B"]
    assert opened.page.locator("#comparison table").count() == 2


def test_the_measure_can_be_changed(opened: Opened, answer: SearchResult) -> None:
    """With step time on the axis, the point of a plan is at its seconds."""
    opened.page.locator('input[name="measure"][value="step"]').check()
    fastest = answer.named["fastest"]
    _, x, _ = place_of(opened, fastest)
    opened.put("plans-chart", 0, x, float(fastest.step_time.total_s))
    assert in_words(fastest.layout) in opened.page.locator("#plans-chart .tip").inner_text()


def test_the_timeline_is_read_by_mouse_and_keyboard(opened: Opened) -> None:
    """A pass says its stage, its micro-batch and its parts; arrow keys go from pass to pass and
    from stage to stage.
    """
    step = opened.data()["step"]
    row = step["rows"][2]
    middle = (row["start"][20] + row["end"][20]) / 2
    opened.put("step-chart", 1, middle, 2)
    tip = opened.page.locator("#step-chart .tip").inner_text()
    backward, _, micro = row["pass"][20]
    assert f"stage 3: micro-batch {micro + 1} {'backward' if backward else 'forward'}" in tip
    chart = opened.page.locator("#step-chart")
    for key, said in (
        ("ArrowRight", "stage 1: micro-batch 1 forward"),
        ("ArrowRight", "stage 1: micro-batch 2 forward"),
        ("ArrowDown", "stage 2: micro-batch"),
    ):
        chart.press(key)
        assert opened.page.locator("#step-said").inner_text().startswith(said)


def test_it_prints_light_and_without_controls(opened: Opened) -> None:
    """On paper the page is light whatever the screen is, has no controls, and its charts are
    drawn.
    """
    opened.page.emulate_media(color_scheme="dark")
    opened.page.emulate_media(color_scheme="dark", media="print")
    opened.page.wait_for_selector("html[data-theme=light]")
    assert (
        not opened.page.locator("nav").is_visible()
        and not opened.page.locator("#theme").is_visible()
    )
    assert min(opened.page.evaluate(COLOURS, chart) for chart in CHARTS) >= 5
    assert len(opened.page.pdf(format="A4")) > 100_000


def test_every_part_has_a_name(opened: Opened) -> None:
    """Charts and sections have accessible names, and each chart's section has a table."""
    for chart in CHARTS:
        assert opened.page.locator(f"#{chart}").get_attribute("aria-label")
        assert opened.page.locator(f"section:has(#{chart}) table").count() >= 1
    assert opened.page.evaluate(
        "[...document.querySelectorAll('section')].every(s => "
        "s.ariaLabelledByElements[0].textContent)"
    )
