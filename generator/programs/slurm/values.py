"""Values of Slurm's options, read as sbatch 22.05.8 reads them. What it refuses is None here."""

from __future__ import annotations

import math
import re
from typing import Final

from ...dataclass import dataclass
from ...job.quantities import slurm_seconds
from ...numerals import is_whole, whole

# Numbers have up to 12 digits: more is no number that anybody means, and int() of Python refuses
# thousands.
_NUMBER: Final = re.compile(r"\s*\+?(\d{1,12})\s*", re.ASCII)
_MEMORY: Final = re.compile(r"\s*\+?(\d{1,12})(?:([kmgt])b?)?", re.ASCII | re.IGNORECASE)
_NODES: Final = re.compile(r"\s*\+?(\d{1,12})(k?)(m?)\s*", re.ASCII | re.IGNORECASE)
_GRES: Final = re.compile(
    r"(?:gres:)?([A-Za-z][\w.-]*)(?::([A-Za-z][\w.+-]*|\d+[kmgtp]?|"
    r"\d[\w.+-]*(?=:\d)))?(?::(\d+[kmgtp]?))?",
    re.ASCII | re.IGNORECASE,
)
_COUNT: Final = re.compile(r"(\d{1,12})([kmgtp]?)", re.ASCII | re.IGNORECASE)
_SIGNAL: Final = re.compile(r"([rb]{0,2}):?([a-z0-9+]+)(?:@\s*\+?(\d+))?", re.ASCII | re.IGNORECASE)
_MIB: Final = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
#: Slurm's names, and Linux' numbers of signals. Source: src/common/proc_args.c, signals_mapping @
#: slurm-22-05-8-1
SIGNALS: Final = (
    *("HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2", "URG", "CONT", "STOP"),
    *("TSTP", "TTIN", "TTOU", "XCPU"),
)
MOST_SIGNAL_SECONDS: Final = 65_535  # sixteen bits: src/common/proc_args.c:1151


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal that `--signal` asks for."""

    name: str  #: such as USR1
    to_batch: bool  #: `B:`: to the batch shell, else to the steps' tasks
    seconds: int  #: before the time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """One item of `--gres`."""

    name: str
    type: str | None
    count: int


def number(text: str) -> int | None:
    """An integer written in digits; None for anything else."""
    match = _NUMBER.fullmatch(text)
    return whole(match[1]) if match else None


def seconds(text: str) -> float | None:
    """A time limit in seconds; infinity where it is unlimited."""
    return math.inf if text.upper() in ("-1", "INFINITE", "UNLIMITED") else slurm_seconds(text)


def mebibytes(text: str) -> float | None:
    """Memory in MiB; a number without unit is MiB."""
    match = _MEMORY.fullmatch(text)
    return whole(match[1]) * _MIB[(match[2] or "m").lower()] if match else None


def node_range(text: str) -> tuple[int, int] | None:
    """The least and most nodes of `4` or `4-8`; None where sbatch refuses it."""
    first, dash, last = text.partition("-")
    least = 1 if dash and not first.strip() else _nodes(first)
    most = _nodes(last) if dash else least
    return (
        None if least is None or most is None or (most and most < least) else (least, most or least)
    )


def _nodes(text: str) -> int | None:
    match = _NODES.fullmatch(text)
    return (
        whole(match[1]) * (1024 if match[2] else 1) * (1024 * 1024 if match[3] else 1)
        if match
        else None
    )


#: GPUs that are called by a number have one of this size: 1080, 3090.
_LEAST_TYPE: Final = 100


def gres_list(text: str) -> tuple[Gres, ...] | None:
    """The items of `--gres`; None where one of them has no form that sbatch takes.

    `none` is an empty list.
    """
    if text.lower() in ("none", "help"):
        return ()
    items: list[Gres] = []
    for part in text.split(","):
        match = _GRES.fullmatch(part.split("(")[0])
        if match is None:
            return None
        name, middle, last = match.groups()
        typed = count_of(middle) if middle is not None and last is not None else None
        # A type may be a number, such as 3090; where it looks like a count, the two are exchanged.
        if last is not None and (count_of(last) is None or (typed or _LEAST_TYPE) < _LEAST_TYPE):
            return None
        count = count_of(last if last is not None else middle or "1")
        kind = middle if last is not None or count is None else None
        items.append(Gres(name=name, type=kind, count=1 if count is None else count))
    return tuple(items)


def gpus_of(text: str) -> list[Gres]:
    """The items of `--gres` that are GPUs."""
    return [item for item in gres_list(text) or () if item.name == "gpu"]


def count_of(text: str) -> int | None:
    """A count with an optional unit, as in `gpu:8`; None for anything else."""
    match = _COUNT.fullmatch(text)
    return whole(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ") if match else None


def gpus(text: str) -> tuple[str | None, int] | None:
    """Type and count of `8` and `a100:8`, as --gpus and its kin take them; lists are summed up."""
    kind: str | None = None
    total = 0
    for part in text.split(","):
        name, colon, last = part.rpartition(":")
        count = count_of(last)
        if count is None or (colon and (not name or ":" in name)):
            return None
        kind = name or kind
        total += count
    return kind, total


def signal_of(text: str) -> Signal | None:
    """Return what `[R][B]:SIGNAL[@SECONDS]` asks for; 60 seconds where none are said."""
    match = _SIGNAL.fullmatch(text)
    if match is None:
        return None
    flags, name = match[1].lower(), match[2].upper()
    if ":" not in text and flags:  # `BUS` is no flag and a name
        flags, name = ("", (match[1] + match[2]).upper())
    name = name.removeprefix("SIG")
    before = 60 if match[3] is None else number(match[3])
    is_signal = name in SIGNALS or (is_whole(name) and 0 < whole(name) <= 64)
    if not is_signal or before is None or before > MOST_SIGNAL_SECONDS:
        return None
    return Signal(name=name, to_batch="b" in flags, seconds=before)
