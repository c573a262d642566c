"""Readers for the values of Slurm's options, as sbatch 22.05.8 reads them.

Each reader returns None for a value that sbatch refuses.
"""

from __future__ import annotations

import math
import re
from typing import Final

from ...dataclass import dataclass
from ...job.quantities import slurm_seconds
from ...numerals import is_whole, whole
from ...patterns import lazy_pattern

# At most 12 digits in each pattern: no real request has more, and Python's int() raises beyond
# 4,300.
_NUMBER: Final = lazy_pattern(r"\s*\+?(\d{1,12})\s*", re.ASCII)
#: `64G`, `64GB`, `64000`.
_MEMORY: Final = lazy_pattern(r"\s*\+?(\d{1,12})(?:([kmgt])b?)?", re.ASCII | re.IGNORECASE)
#: `4`, `2k`.
_NODES: Final = lazy_pattern(r"\s*\+?(\d{1,12})(k?)(m?)\s*", re.ASCII | re.IGNORECASE)
#: `gpu`, `gpu:8`, `gpu:a100` or `gpu:a100:8`, also behind `gres:`.
_GRES: Final = lazy_pattern(
    r"(?:gres:)?([A-Za-z][\w.-]*)(?::([A-Za-z][\w.+-]*|\d+[kmgtp]?|"
    r"\d[\w.+-]*(?=:\d)))?(?::(\d+[kmgtp]?))?",
    re.ASCII | re.IGNORECASE,
)
#: `8`, `1k`.
_COUNT: Final = lazy_pattern(r"(\d{1,12})([kmgtp]?)", re.ASCII | re.IGNORECASE)
#: `USR1`, `USR1@120` or `B:USR1@120`.
_SIGNAL: Final = lazy_pattern(
    r"([rb]{0,2}):?([a-z0-9+]+)(?:@\s*\+?(\d+))?", re.ASCII | re.IGNORECASE
)
_MIB_PER_UNIT: Final = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}

#: The signals that `--signal` knows by name. Source: src/common/proc_args.c, signals_mapping @
#: slurm-22-05-8-1
SIGNALS: Final = (
    "HUP",
    "INT",
    "QUIT",
    "ABRT",
    "KILL",
    "ALRM",
    "TERM",
    "USR1",
    "USR2",
    "URG",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
    "XCPU",
)

#: Linux numbers its signals from 1 to 64. Source: signal(7)
_LAST_SIGNAL: Final = 64

#: The warning time is stored in 16 bits. Source: src/common/proc_args.c:1151 @ slurm-22-05-8-1
MOST_SIGNAL_SECONDS: Final = 65_535

#: The warning time where `--signal` states none. Source: sbatch(1), `--signal`
_DEFAULT_SIGNAL_SECONDS: Final = 60

#: A GPU type that is a bare number (1080, 3090) is at least this; a smaller number is a count.
_LEAST_NUMERIC_TYPE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal that `--signal` asks for."""

    name: str  #: such as USR1
    to_batch: bool  #: with `B:` the batch shell gets it, otherwise the tasks of the steps
    seconds: int  #: how long before the time limit it is sent


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
    """A time limit in seconds; infinity for an unlimited one."""
    return math.inf if text.upper() in ("-1", "INFINITE", "UNLIMITED") else slurm_seconds(text)


def mebibytes(text: str) -> float | None:
    """An amount of memory in MiB; a number without a unit counts MiB."""
    match = _MEMORY.fullmatch(text)
    return whole(match[1]) * _MIB_PER_UNIT[(match[2] or "m").lower()] if match else None


def node_range(text: str) -> tuple[int, int] | None:
    """The smallest and largest number of nodes in `4`, `4-8` or `-8`."""
    first, dash, last = text.partition("-")
    least = 1 if dash and not first.strip() else _node_count(first)
    most = _node_count(last) if dash else least
    if least is None or most is None:
        return None

    # A maximum of 0 counts as none given.
    most = most or least
    return None if most < least else (least, most)


def _node_count(text: str) -> int | None:
    """A number of nodes; `k` and `m` multiply by 1,024 and by 1,024 squared."""
    match = _NODES.fullmatch(text)
    if match is None:
        return None
    digits, kilo, mega = match.groups()
    return whole(digits) * (1024 if kilo else 1) * (1024**2 if mega else 1)


def gres_list(text: str) -> tuple[Gres, ...] | None:
    """The items of `--gres`; empty for `none` and `help`."""
    if text.lower() in ("none", "help"):
        return ()
    items: list[Gres] = []
    for part in text.split(","):
        match = _GRES.fullmatch(part.split("(")[0])
        if match is None:
            return None
        name, middle, last = match.groups()

        # `name:type:count`. A number below 100 in the place of the type was meant as the count.
        if last is not None:
            count = count_of(last)
            number_as_type = count_of(middle) if middle is not None else None
            is_meant_as_count = 0 < (number_as_type or 0) < _LEAST_NUMERIC_TYPE
            if count is None or is_meant_as_count:
                return None
            items.append(Gres(name=name, type=middle, count=count))
            continue

        # `name`, `name:count` or `name:type`.
        count = count_of(middle or "1")
        if count is None:
            items.append(Gres(name=name, type=middle, count=1))
        else:
            items.append(Gres(name=name, type=None, count=count))
    return tuple(items)


def gpu_items(text: str) -> list[Gres]:
    """The items of `--gres` that are GPUs; none for a value that sbatch refuses."""
    return [item for item in gres_list(text) or () if item.name == "gpu"]


def count_of(text: str) -> int | None:
    """A count with an optional unit (powers of 1,024), as the 8 in `gpu:8`."""
    match = _COUNT.fullmatch(text)
    if match is None:
        return None
    power_of_1024 = " kmgtp".index(match[2].lower() or " ")
    return whole(match[1]) << 10 * power_of_1024


def gpu_type_and_count(text: str) -> tuple[str | None, int] | None:
    """The type and count in `8`, `a100:8` or `a100:4,h100:4`, as --gpus and its kin take them.

    A list gives the sum of its counts, and its last type.
    """
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
    """The signal that `[R][B]:SIGNAL[@SECONDS]` asks for."""
    match = _SIGNAL.fullmatch(text)
    if match is None:
        return None
    flags, name = match[1].lower(), match[2].upper()
    if ":" not in text and flags:
        # Without a colon there are no flags: the B of `BUS` belongs to the name.
        flags, name = "", (match[1] + match[2]).upper()
    name = name.removeprefix("SIG")

    warning = _DEFAULT_SIGNAL_SECONDS if match[3] is None else number(match[3])
    is_signal = name in SIGNALS or (is_whole(name) and 0 < whole(name) <= _LAST_SIGNAL)
    if not is_signal or warning is None or warning > MOST_SIGNAL_SECONDS:
        return None
    return Signal(name=name, to_batch="b" in flags, seconds=warning)
