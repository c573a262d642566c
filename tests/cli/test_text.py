"""Numbers, layouts and findings as a person reads them."""

from __future__ import annotations

import pytest

from dsgen.cli.findings_text import finding_text
from dsgen.cli.tables import file_name
from dsgen.estimate.uncertainty import Band, gib_with_band, percent, seconds_with_band, sized
from dsgen.findings import Finding, Location, Severity
from dsgen.units import GIB, count, gib, gpu_hours, long_time, seconds
from tests.cli.running import run


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (gib(0), "0.0"),
        (sized(2.44e12), "2.44 TB"),
        (sized(2.12e15), "2.12 PB"),
        (gib(0.32 * GIB), "0.32"),
        (gib(79.2 * GIB), "79.2"),
        (gib(2048 * GIB), "2,048.0"),
        (count(512), "512"),
        (count(3_145_728), "3.15 M"),
        (count(174.6e9), "175 B"),
        (count(999_885_952), "1.00 B"),
        (count(14.8e12), "14.8 T"),
        (seconds(0.0123), "12.3 ms"),
        (seconds(18.24), "18.2 s"),
        (seconds(4000), "67 minutes"),
        (long_time(45), "45 s"),
        (long_time(5.2 * 3600), "5.2 hours"),
        (long_time(20.3 * 86400), "20.3 days"),
        (percent(0.5668), "56.7%"),
        (gpu_hours(0.189), "0.19"),
        (gpu_hours(653_055.2), "653,055"),
    ],
)
def test_numbers(written: str, expected: str) -> None:
    """Quantities keep about three digits, and a unit that fits their size."""
    assert written == expected


@pytest.mark.parametrize(
    "hostile", ["../../etc/passwd", "$(rm -rf ~)", "a/b", "..", "", "x" * 500, "-rf", "a\nb"]
)
def test_folder_names_are_one_plain_part(hostile: str) -> None:
    """Whatever the job is called, its folder's name is one part of a path that no shell reads as
    anything else.
    """
    name = file_name(hostile)
    assert name
    assert len(name) <= 80
    assert not name.startswith(("-", "."))
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def found(**where: object) -> Finding:
    """A finding somewhere in job.yaml."""
    location = Location(path="job.yaml", **where)  # type: ignore[arg-type]
    return Finding(
        rule="X001", severity=Severity.ERROR, where=location, message="3 is not 4", hint="x: 4"
    )


def test_finding_with_everything() -> None:
    """A finding has its place, severity, message and id, then the line with a caret under the
    column, then the hint.
    """
    text = finding_text(found(line=2, column=4, excerpt="x: 3"))
    assert text == "job.yaml:2:4: error: 3 is not 4 [X001]\n  x: 3\n     ^\nhint: x: 4"


def test_finding_of_a_whole_file() -> None:
    """A finding without a line has neither line number nor caret."""
    assert finding_text(found()) == "job.yaml: error: 3 is not 4 [X001]\nhint: x: 4"


def test_findings_cannot_write_to_the_terminal() -> None:
    """Control characters of a hostile file are not passed on, and the caret stays under its
    column.
    """
    text = finding_text(found(line=1, column=7, excerpt="\x1b[31m\tx: 3"))
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[1] == "  \\x1b[31m x: 3"
    assert lines[1].index("x: 3") == lines[2].index("^")


def test_a_band_is_in_the_unit_of_its_estimate() -> None:
    """Both ends are printed in the unit of the number they are around, with three digits."""
    assert seconds_with_band(18.2, Band(low=16.94, high=20.06)) == "18.2 s (16.9-20.1)"
    assert seconds_with_band(0.35, Band(low=0.3, high=1.2)) == "350 ms (300-1,200)"
    assert seconds_with_band(7200.0, Band(low=6000.0, high=9000.0)) == "2.0 hours (1.67-2.50)"
    assert gib_with_band(52 * GIB, Band(low=50 * GIB, high=54 * GIB)) == "52.0 GiB (50.0-54.0)"


def test_findings_of_one_cause_share_line_and_hint() -> None:
    """A tensor size that divides nothing has one block of lines, with one hint whose values pass
    every rule.
    """
    job = [
        "--framework",
        "megatron-lm",
        "--model",
        "llama-3.1-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "128",
    ]
    told = run(
        "plan", *job, "--global-batch", "128", "--set", "layout.tensor=3"
    ).stderr.splitlines()
    errors = [line[-7:-1] for line in told if ": error: " in line]
    assert errors == ["MLM001", "MLM004", "MLM005", "MLM006"]
    assert [line for line in told if line.startswith("hint: ")] == [
        "hint: use tensor: 1, 2, 4 or 8"
    ]


def test_a_hint_never_repeats_what_is_written() -> None:
    """For a mapping that is written as one value the hint has its first key, and isn't that
    value.
    """
    for key, hint in (
        ("training.lora=true", "lora: {rank: 16}"),
        ("launch=slurm", "launch: {target: slurm}"),
    ):
        told = run("plan", "--set", key).stderr
        assert f"write its keys, as in `{hint}`" in told
