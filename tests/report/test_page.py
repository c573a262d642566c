"""The page as a file: its bytes, what it may load, and strings that mean harm."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dsgen
from dsgen.report.page import report_page
from dsgen.search.search import search_with_estimates
from tests.cli.running import run
from tests.jobs import SMALL

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}&amp;<!--"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        """Note a script's text."""
        if self.found and self.found[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data


def page_of(**changed: object) -> str:
    """The report of the small job."""
    answer, found = search_with_estimates(dsgen.load_job({**SMALL, **changed}), top=3)
    assert isinstance(answer, dsgen.SearchResult)
    return report_page(answer, found)


def test_the_same_job_gives_the_same_bytes() -> None:
    """Two reports of one job are equal."""
    assert page_of() == page_of()


def test_nothing_is_loaded_from_elsewhere() -> None:
    """No element names a resource, the page's policy forbids all, and only its own scripts may
    run.
    """
    elements = Elements(page := page_of())
    assert [
        tag
        for tag, attributes in elements.found
        if "src" in attributes or tag in ("link", "iframe", "base")
    ] == []
    assert all(str(a["href"]).startswith("#") for _, a in elements.found if "href" in a)
    policy = next(
        str(a["content"])
        for _, a in elements.found
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    allowed = re.findall("'sha256-([^']+)'", policy)
    _, *code = elements.scripts
    assert [b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code] == allowed
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert len(page) < 3e6


def test_hostile_strings_come_out_as_data() -> None:
    """A job name that would end the script or begin an element leaves the page's elements as they
    are.
    """
    plain, hostile = Elements(page_of()), Elements(page := page_of(name=HOSTILE))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert "<script>alert" not in page and "<img src=x" not in page
    document = json.loads(hostile.scripts[0])
    assert document.keys() == json.loads(plain.scripts[0]).keys()


def test_what_was_ruled_out_is_complete() -> None:
    """Every rule of the answer is in the page with its count and its requirement."""
    answer, found = search_with_estimates(dsgen.load_job(SMALL), top=3)
    page = report_page(answer, found)
    for rule, number in answer.rejected_by.items():
        assert re.search(rf"{rule}</th><td>{number:,}</td>.*?<td class=\"text\">[A-Z]", page), rule


def test_counts_add_up() -> None:
    """What was ruled out and what fits is what was tried; what fits and its variants is what was
    drawn.
    """
    answer, found = search_with_estimates(dsgen.load_job(SMALL), top=3)
    page = report_page(answer, found)
    said = re.search(r"<p>Of ([\d,]+) layouts, ([\d,]+) were .*? and ([\d,]+) fit\.(.*?)</p>", page)
    assert said
    tried, out, fit = (int(number.replace(",", "")) for number in said.groups()[:3])
    assert tried == out + fit and out == sum(answer.rejected_by.values())
    numbers = {
        word: int(n.replace(",", ""))
        for n, word in re.findall(r"([\d,]+) (variants|plans)", said[4])
    }
    assert numbers.get("plans", fit) == fit + numbers.get("variants", 0) == len(found.layouts)


def test_the_job_is_on_the_page(tmp_path: Path) -> None:
    """The page has the command and the spec as it was written, with asterisks for a secret."""
    secret = "hf_" + "AbCdEfGhIj" * 3 + "KlMn"
    spec = tmp_path / "job.yaml"
    text = f"# export HF_TOKEN={secret}\n{json.dumps(SMALL)}\n"
    spec.write_text(text)
    result = run(
        "report", str(spec), "-o", str(tmp_path / "a.html"), "--no-sweep", "--global-batch", "64"
    )
    assert result.exit_code == 0, result.output
    page = (tmp_path / "a.html").read_text()
    assert "# export HF_TOKEN=*" in page and secret not in page and "*" * len(secret) in page
    assert "dsgen report job.yaml" in page and "--global-batch 64" in page


def test_a_job_of_flags_has_no_spec_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built-in job's spec, of another model, isn't shown as the job's; its values are written
    as a spec has them.
    """
    monkeypatch.chdir(tmp_path)
    flags = ("--model", "llama-3.2-1b", "--cluster", "nvidia/dgx-h100", "--gpus", "8")
    result = run(
        *("report", *flags, "--framework", "megatron-lm", "-o", "a.html", "--no-sweep"),
        *("--global-batch", "64", "--sequence-length", "4096"),
    )
    assert result.exit_code == 0, result.output
    page = Path("a.html").read_text()
    assert "--model llama-3.2-1b" in page and "from this spec" not in page
    assert ">True<" not in page and ">False<" not in page
    assert '<th scope="row">sync_each_batch</th><td>false</td>' in page


def test_the_command_writes_once(tmp_path: Path) -> None:
    """`dsgen report` writes a file, leaves an equal one, and refuses to overwrite another without
    --force.
    """
    target = tmp_path / "page.html"
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(SMALL))
    command = ("report", str(spec), "-o", str(target), "--no-sweep")
    assert run(*command).exit_code == 0
    first = target.read_bytes()
    assert "unchanged" in run(*command).output
    target.write_text("mine")
    refused = run(*command)
    assert (refused.exit_code, target.read_text()) == (4, "mine")
    assert run(*command, "--force").exit_code == 0
    assert target.read_bytes() == first


def test_a_sweep_that_is_asked_for_is_shown(tmp_path: Path) -> None:
    """With --sweep the page has a row for each value, and the rule where there is no plan."""
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(SMALL))
    result = run("report", str(spec), "-o", str(tmp_path / "a.html"), "--sweep", "gpus=16,32,40")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "a.html").read_text()
    assert 'id="sweep-chart"' in page
    points = json.loads(Elements(page).scripts[0])["sweep"]["points"]
    assert [point["values"] for point in points] == [[16], [32], [40]]


@pytest.mark.parametrize("price", [80, None])
def test_the_table_of_a_sweep_has_prices_where_they_are_known(
    tmp_path: Path, price: int | None
) -> None:
    """A cluster with a price gives each row of the sweep's table the price of the run; one without
    gives no such column.
    """
    training = {**SMALL["training"], "duration": {"tokens": 1e9}}
    cluster = {
        "accelerator": "h100",
        "accelerators_per_node": 8,
        "network_gbits_per_s_per_node": 3200,
        "price_per_node_hour": price,
    }
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps({**SMALL, "training": training, "cluster": cluster}))
    result = run("report", str(spec), "-o", str(tmp_path / "a.html"), "--sweep", "gpus=16,32")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "a.html").read_text()
    points = json.loads(Elements(page).scripts[0])["sweep"]["points"]
    table = page[page.index('id="sweep-title"') :]
    table = table[: table.index("</table>")]
    assert ('<th scope="col">price</th>' in table) == (price is not None)
    last = re.findall(r"<td>([^<]*)</td></tr>", table)
    assert len(last) == 2
    if price is not None:
        assert last == [f"{point['wall_cost']:,.0f}" for point in points]


def test_truths_are_swept_as_such(tmp_path: Path) -> None:
    """Values of a switch are shown as true and false, not as numbers."""
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps(SMALL))
    sweep = "layout.sequence_parallel=true,false"
    result = run("report", str(spec), "-o", str(tmp_path / "a.html"), "--sweep", sweep)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "a.html").read_text()
    rows = re.findall(r'<th scope="row">(true|false|True|False|0|1)</th><td class="text"', page)
    assert rows[:2] == ["false", "true"]


def test_a_job_without_a_plan_has_no_report(tmp_path: Path) -> None:
    """Where nothing fits the command says so with status 3, and writes nothing."""
    spec = tmp_path / "job.json"
    spec.write_text(
        json.dumps({**SMALL, "layout": {"tensor": 16, "pipeline": 1, "zero_stage": 0}, "gpus": 8})
    )
    result = run("report", str(spec), "-o", str(tmp_path / "a.html"))
    assert result.exit_code in (1, 3) and not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    "name", ["gpt3-175b-azure", "llama-2-13b-offload", "mixtral-8x7b", "llama-3-8b-lora"]
)
def test_examples_have_reports(name: str, tmp_path: Path) -> None:
    """Dense models, offload, experts and adapters: each has a report under 3 MB."""
    spec = Path(__file__).parents[2] / "examples" / f"{name}.yaml"
    target = tmp_path / "a.html"
    assert run("report", str(spec), "-o", str(target), "--no-sweep").exit_code == 0
    assert 1e6 < target.stat().st_size < 3e6


def test_the_page_says_what_a_screen_says_beside_the_plan(tmp_path: Path) -> None:
    """What would make the plan faster is on the page as on the screen of `plan`, and so is what has
    to be in the environment of its run.
    """
    spec = ["--model", "qwen3-30b-a3b", "--gpus", "64", "--cluster", "dgx-h100"]
    spec += ["--framework", "megatron-lm", "--set", "layout.expert=32"]
    spec += ["--set", "layout.recompute=full", "--set", "training.dispatcher=deepep"]
    screen = run("plan", *spec).stdout
    assert run("report", *spec, "-o", str(tmp_path / "page.html")).exit_code == 0
    page = unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    faster = re.search(r"^Faster +(set \S+: \S+)", screen, re.MULTILINE)
    assert faster, screen
    assert f"<dt>Faster</dt><dd>{faster[1]}" in page
    estimated = run("estimate", *spec).stdout
    for text in (screen, page, estimated):
        assert "DeepEP has to be in the environment of the run" in " ".join(text.split())
