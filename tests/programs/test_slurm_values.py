"""Slurm's notations of times, memory, nodes, resources and signals, as sbatch 22.05.8 read them
when it was asked.
"""

from __future__ import annotations

import math

import pytest

from dsgen.programs.slurm import values as values
from dsgen.programs.slurm.values import Gres, Signal
from dsgen.units import clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 3600),
        ("00:60", 60),
        ("24:00", 24 * 60),
        ("24:00:00", 86_400),
        ("1-0", 86_400),
        ("1-2:30", 86_400 + 2 * 3600 + 30 * 60),
        ("1-25:61:61", 86_400 + 25 * 3600 + 61 * 60 + 61),
        ("infinite", math.inf),
        ("-1", math.inf),
        ("24h", None),
        ("1d", None),
        ("", None),
        ("2:3:4:5", None),
        ("1.5", None),
        ("٢", None),
        ("9" * 5000, None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    """One number is minutes, two are minutes and seconds, three begin with hours, and days stand
    before a dash.
    """
    assert values.seconds(text) == seconds


@pytest.mark.parametrize("seconds", [0, 59, 3600, 86_399, 86_400, 10_000_000])
def test_a_clock_is_read_back(seconds: int) -> None:
    """The form that hints recommend means the seconds that it was made from."""
    assert values.seconds(clock(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("64", 64),
        ("64G", 65_536),
        ("64gb", 65_536),
        ("2T", 2 * 1024**2),
        ("1024K", 1),
        ("0", 0),
        ("64GBs", None),
        ("64GiB", None),
    ]
    + [(text, None) for text in ("1.5G", "64B", "1P", "all", "", "-1", "64 GB")],
)
def test_memory(text: str, mebibytes: float | None) -> None:
    """Whole numbers of MiB, or with K, M, G or T, each with or without a B."""
    assert values.mebibytes(text) == mebibytes


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("4", (4, 4)),
        ("4-8", (4, 8)),
        ("1k", (1024, 1024)),
        ("+2", (2, 2)),
        ("-4", (1, 4)),
        ("8-4", None),
        ("4-", None),
    ]
    + [(text, None) for text in ("two", "2,4", "2x", "", "１")],
)
def test_nodes(text: str, span: tuple[int, int] | None) -> None:
    """A number, or a range from few to many."""
    assert values.node_range(text) == span


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("gpu:8", (Gres(name="gpu", type=None, count=8),)),
        ("gpu", (Gres(name="gpu", type=None, count=1),)),
        ("gpu:a100:4", (Gres(name="gpu", type="a100", count=4),)),
        ("gpu:a100", (Gres(name="gpu", type="a100", count=1),)),
        (
            "gres:gpu:2,nvme:1",
            (Gres(name="gpu", type=None, count=2), Gres(name="nvme", type=None, count=1)),
        ),
        ("none", ()),
    ]
    + [(text, None) for text in ("gpu:8:a100", "gpu=8", "8", "gpu:", "gpu:1.5", "gpu:-1", "")],
)
def test_generic_resources(text: str, items: tuple[Gres, ...] | None) -> None:
    """NAME, NAME:COUNT, NAME:TYPE or NAME:TYPE:COUNT, separated by commas."""
    assert values.gres_list(text) == items


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("USR1", Signal(name="USR1", to_batch=False, seconds=60)),
        ("B:USR1@300", Signal(name="USR1", to_batch=True, seconds=300)),
        ("BR:sigterm@5", Signal(name="TERM", to_batch=True, seconds=5)),
        ("10@65535", Signal(name="10", to_batch=False, seconds=65_535)),
    ]
    + [
        (text, None)
        for text in ("USR9@300", "USR1@5m", "USR1@65536", "X:USR1@60", "@60", "USR1:60", "")
    ],
)
def test_signals(text: str, signal: Signal | None) -> None:
    """A signal by name or number, to the batch shell with B:, so many seconds before the limit."""
    assert values.signal_of(text) == signal
