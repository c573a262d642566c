"""What is printed fits the terminal, in words that are whole and colours that are readable on any
background.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import dsgen
from dsgen.cli.answers import MemoryBars, answer_lines, counts_report, explained, obstacle, report
from dsgen.cli.asked_text import comparisons
from dsgen.cli.findings_text import finding_text
from dsgen.cli.known_rules import rules_table
from dsgen.cli.printing import PALETTE
from dsgen.cli.sweep_text import sweep_report
from dsgen.cli.tables import Lines, Part, Table, asides, lines_of, numbers, whole, words
from dsgen.estimate.layout import Layout, Modules, Offload, Recompute
from dsgen.estimate.layout_words import differing
from dsgen.findings import Finding, Location, Severity
from dsgen.search import Infeasible, Plan, SearchResult
from dsgen.search.compare import Comparison
from dsgen.search.elastic import Elastic
from dsgen.search.summary import further
from dsgen.search.sweep import Axis, Point, Sweep
from tests.examples import FOLDER, NAMES
from tests.jobs import job
from tests.workers import HANGS_S

GOLDEN = Path(__file__).parent.parent / "golden"
# behind which a remark or a row may come that is in the wide table itself
_UNMARKED = str.maketrans("", "", ",;")
SGR = re.compile(r"\x1b\[([\d;]*)m")


@cache
def plan_of(name: str) -> Plan:
    """The plan of an example's golden files, estimated again: no search."""
    layout = json.loads((GOLDEN / name / "plan.json").read_text())["layout"]
    job = dsgen.load_job(
        FOLDER / f"{name}.yaml", overrides={f"layout.{key}": value for key, value in layout.items()}
    )
    return dsgen.estimate(job)


def parts_of(name: str) -> Iterator[Part]:
    """All that is printed about the plan of an example, beside the plans of all others."""
    plan, others = plan_of(name), tuple(plan_of(other) for other in NAMES if other != name)
    answer = SearchResult(
        job=plan.job,
        plans=(plan, *others),
        named={"chosen": plan, "fastest": others[0], "roomy": others[1]},
        why=dict.fromkeys(("chosen", "fastest", "roomy"), "fastest of 100,000 layouts that fit"),
        considered=10**7,
        feasible=10**5,
        rejected_by={"MDS004": 128_880, "NODE001": 57_456},
        search_s=1.0,
    )
    yield from (
        *report(answer, 10, details=[*further(plan)]),
        answer_lines(plan),
        MemoryBars(plan),
        *explained(plan),
    )
    question = Comparison(
        asked={"tensor": 8}, ours=plan, theirs=others[0], findings=(), overruled=(), kept=()
    )
    yield from comparisons(plan, [question])
    yield from counts_report(Elastic(answer=answer, plans=answer.plans, left_out={}))
    points = [
        Point(values={"gpus": each.job.gpus}, plan=each)
        for each in sorted(answer.plans, key=lambda p: p.job.gpus)
    ]
    yield from sweep_report(
        Sweep(axes=(Axis(path="gpus", values=(8, 4096)),), points=tuple(points))
    )


def shown(parts: Iterator[Part], columns: int) -> str:
    """What the parts look like on a terminal of so many columns, without colours."""
    return SGR.sub("", coloured(parts, columns))


def coloured(parts: Iterator[Part], columns: int) -> str:
    """The same with colours."""
    return "".join(f"{line}\n" for line in lines_of(parts, columns))


def test_lines_fit_and_words_are_whole() -> None:
    """Of every example, no line is longer than the terminal, and every word is one of those on a
    wide terminal.
    """
    for name in NAMES:
        parts = [*parts_of(name)]
        wide = set(shown(iter(parts), 400).translate(_UNMARKED).split())
        for columns in (60, 80, 100):
            lines = shown(iter(parts), columns).splitlines()
            assert [line for line in lines if len(line.rstrip()) > columns] == []
            narrow = {
                word
                for line in lines
                for word in line.translate(_UNMARKED).split()
                if not set(word) & set("█▏▎▍▌▋▊▉·│|*+-…")
            }
            assert narrow - wide == set()


def test_columns_go_before_words_are_broken() -> None:
    """Without room, the least important columns go; without room for the rest, rows become lines
    with names.
    """
    table = Table(whole("plan"), words("layout", least=10), numbers("step"), numbers("MFU", drop=1))
    table.add_row("least memory", "DP16 TP4 PP16", "22.1 s", "47.3%")
    assert "MFU" in shown(iter([table]), 50)
    narrower = shown(iter([table]), 36)
    assert "MFU" not in narrower
    assert "22.1 s" in narrower
    assert shown(iter([table]), 24).split("\n")[2].split() == ["step", "22.1", "s"]


def test_cells_are_cut_between_words() -> None:
    """A cell without room ends at a word; one word alone is cut where the room ends."""
    table = Table(whole("plan"), asides("differs in"))
    table.add_row("fastest", "no recompute, extrapolated")
    assert shown(iter([table]), 23).split("\n")[1].rstrip() == "fastest  no recompute…"
    assert shown(iter([table]), 18).split("\n")[1].rstrip() == "fastest  no…"


def test_rows_differ_in_plain_words() -> None:
    """A plan without what the chosen one has says so as one would say it; modules without recompute
    say nothing.
    """
    full = Layout(data=8, sequence_parallel=True, zero_hpz=8, offload=Offload.OPTIMIZER)
    two = Layout(
        data=8,
        zero_hpz=4,
        recompute=Recompute.SELECTIVE,
        recompute_modules=Modules.MOE_ACT | Modules.LAYERNORM,
    )
    assert differing(full, two) == ("sequence parallel", "ZeRO++ over 8 GPUs", "offload: optimizer")
    assert differing(two, full) == (
        *("no sequence parallel", "ZeRO++ over 4 GPUs", "no offload"),
        "recompute of moe_act+layernorm",
    )


def test_paths_are_not_broken() -> None:
    """Text wraps between words; a path longer than the terminal stays in one piece, to be
    copied.
    """
    path = f"/home/{'x' * 90}/launch.sbatch"
    assert f" {path}\n" in shown(iter([Lines([("Next", f"sbatch {path}")])]), 60)
    assert path in shown(iter([f"{path}: error: file exists with other contents"]), 60)


def codes(text: str) -> set[str]:
    """The styles that a text sets."""
    return {style for style in SGR.findall(text) if style not in ("", "0")}


ALLOWED = {"1", *(f"{bold}38;5;{colour}" for colour in PALETTE for bold in ("", "1;"))}


def test_colours_are_of_the_palette() -> None:
    """On a terminal with colours, everything about a plan is bold, plain, or of a colour of the
    palette.
    """
    used = set().union(*(codes(coloured(parts_of(name), 80)) for name in NAMES[:4]))
    assert len(used) > 4
    assert used - ALLOWED == set()
    assert codes(coloured(iter([rules_table([])]), 80)) - ALLOWED == set()


def luminance(colour: int) -> float:
    """The relative luminance of one of the 256 colours. **Source**: WCAG 2.2, relative luminance;
    xterm's palette.
    """
    steps = (0, 95, 135, 175, 215, 255)
    cube = colour - 16
    levels = (
        (steps[cube // 36], steps[cube // 6 % 6], steps[cube % 6])
        if colour < 232
        else (8 + 10 * (colour - 232),) * 3
    )
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
        for x in (level / 255 for level in levels)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", sorted(PALETTE))
def test_colours_are_readable_on_any_background(colour: int) -> None:
    """Every colour has a contrast of at least 3.5 with white and with black; fixed ones, that no
    theme changes.
    """
    assert colour >= 16
    assert min(1.05 / (luminance(colour) + 0.05), (luminance(colour) + 0.05) / 0.05) > 3.5


@pytest.mark.parametrize("severity", Severity)
def test_findings_are_of_the_palette_and_plain_without_colour(
    severity: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The severity is a word, coloured from the palette; with NO_COLOR it is the word alone."""
    finding = Finding(
        rule="X001",
        severity=severity,
        where=Location(path="job.yaml"),
        message="3 is not 4",
        hint="",
    )
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert {
        int(style.rpartition(";")[2]) for style in codes(finding_text(finding, colour=True)) - {"1"}
    } <= PALETTE
    monkeypatch.setenv("NO_COLOR", "1")
    assert finding_text(finding, colour=True) == finding_text(finding)


SLOW = """\
import sys
from threading import Event
from dsgen.cli import printing as progress
progress._EVERY_S = 0.5
shown = Event()
redraw = progress.redraw
progress.redraw = lambda text: (redraw(text), shown.set())
with progress.working("planning", sys.argv[1]) as tell:
    tell("3 done")
    shown.wait(float(sys.argv[2]))
print("answer")
"""


def on_terminal(form: str, longest_s: float) -> str:
    """What a terminal gets from a command that ends when a line is shown, or when it took so
    long.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, form, str(longest_s)], stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        read = b""
        with suppress(OSError):  # when the other end is closed
            while part := os.read(ours, 65536):
                read += part
        process.wait()
    os.close(ours)
    return read.decode()


def test_progress_is_shown_and_gone() -> None:
    """What takes long says so on a terminal, and leaves nothing; nothing in pipes, and for other
    programs.
    """
    *said, wiped, answer = (
        on_terminal("text", HANGS_S).removeprefix("\r").removesuffix("\r\n").split("\r")
    )
    assert said
    assert all(re.fullmatch(r"planning, 3 done, \d+ s", line) for line in said)
    assert (wiped, answer) == (" " * len(said[-1]), "answer")
    assert on_terminal("json", 0.7) == "answer\r\n"
    piped = subprocess.run(
        [sys.executable, "-c", SLOW, "text", "0.7"], capture_output=True, text=True, check=True
    )
    assert (piped.stdout, piped.stderr) == ("answer\n", "")


def test_one_step_of_one_sequence_is_not_several() -> None:
    """A run of one step with one sequence is counted in the singular."""
    plan = dsgen.estimate(
        job(
            model="gpt2",
            gpus=1,
            training__global_batch=1,
            training__sequence_length=1024,
            training__duration={"steps": 1},
        )
    )
    assert "in 1 step of 1 sequence, goodput" in dict(further(plan))["Length"]


def test_changes_that_are_as_fast_have_no_sign() -> None:
    """Of changes that make a job fit, those as fast as the fastest are not printed as -0%."""
    texts = list[str]()
    for gpus in (3, 5, 7):
        answer = dsgen.search(
            job(framework="deepspeed", model="llama-3.2-1b", gpus=gpus, training__global_batch=32)
        )
        assert isinstance(answer, Infeasible) and len(answer.suggestions) > 1
        texts.append(shown(iter(obstacle(answer)), 80))
    assert any(" 0%" in text for text in texts)
    assert not any("-0%" in text for text in texts)
