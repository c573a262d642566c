"""Units as plain factors to SI, and quantities as text.

`80 * GIB` is bytes, `400 * GBIT_PER_S` bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence

from .numerals import significant

MIB = 2**20
GIB = 2**30
KB = 10**3
GB = 10**9
GB_PER_S = 1e9
GBIT_PER_S = 1e9 / 8
TFLOPS = 1e12
DAY, HOUR, MINUTE = 86400, 3600, 60  #: in seconds

_SCALES = ((1e15, "quadrillion"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def long_time(duration_s: float) -> str:
    """The length of a run: `32.1 days`, `5.2 hours`, `12 minutes`."""
    if duration_s >= 2 * DAY:
        return f"{duration_s / DAY:,.1f} days"
    if duration_s >= 2 * HOUR:
        return f"{duration_s / HOUR:.1f} hours"
    if duration_s >= 2 * MINUTE:
        return f"{duration_s / MINUTE:.0f} minutes"
    return f"{duration_s:.0f} s"


#: Units of a column of times, with the longest time from which each is used.
_COLUMN_UNITS = (
    (DAY, "days", 2 * DAY),
    (HOUR, "hours", 2 * HOUR),
    (MINUTE, "minutes", 2 * MINUTE),
    (1, "s", 1),
)


def time_unit(durations_s: Sequence[float], *, steps: bool = False) -> tuple[float, str]:
    """The unit that suits all of these times, as seconds and name; of steps at most seconds."""
    units = _COLUMN_UNITS[-1:] if steps else _COLUMN_UNITS
    longest, shortest = max(durations_s, default=0.0), min(durations_s, default=0.0)
    for size, name, least in units:
        if longest >= least and shortest >= 0.1 * size:
            return size, name
    return 1e-3, "ms"


def three_digits(value: float) -> str:
    """A number with three digits, two behind the point at most, or all before it: `14.0`."""
    if value >= 99.95:  # which rounds to three digits without a point
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 9.995 else f"{value:,.2f}"


def same_unit(durations_s: Sequence[float], *, steps: bool = False) -> list[str]:
    """Times in one unit, with three digits: `22.1 s`, `1,037 s`; for steps at most seconds."""
    size, name = time_unit(durations_s, steps=steps)
    return [f"{three_digits(duration / size)} {name}" for duration in durations_s]


def clock(duration: float) -> str:
    """Seconds as `D-HH:MM:SS`, the only unambiguous form to Slurm; others have other forms."""
    minutes, second = divmod(int(duration), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal; small sizes have two."""
    value = float(size_bytes) / GIB
    return f"{value:.2f}" if 0 < value < 0.95 else f"{value:,.1f}"


def gib_apart(size_bytes: float, limit_bytes: float) -> tuple[str, str]:
    """A size and its limit in GiB, with as many decimals as show which is larger.

    They are `38.03` and `38.00` where `gib` says `38.0` of both.
    """
    texts = gib(size_bytes), gib(limit_bytes)
    for decimals in (2, 3):
        if texts[0] != texts[1]:
            break
        texts = f"{size_bytes / GIB:,.{decimals}f}", f"{limit_bytes / GIB:,.{decimals}f}"
    return texts


def count(number: float) -> str:
    """A large count with three digits and a scale: `175 B`, `3.15 M`."""
    for factor, letter in _SCALES:
        if significant(number, 3) >= factor:  # 999.9 million is rounded to 1.00 B
            value = significant(number, 3) / factor
            decimals = max(0, 3 - len(str(int(value))))
            return f"{value:.{decimals}f} {letter}"
    return f"{number:,.0f}"


def gpu_hours(hours: float) -> str:
    """GPU-hours without decimals; fewer than ten with two digits."""
    return f"{hours:,.0f}" if hours >= 9.5 else f"{hours:.2g}"


def seconds(duration_s: float) -> str:
    """A short time: `18.2 s`, `350 ms`."""
    if duration_s >= 1000:
        return long_time(duration_s)
    if duration_s >= 1:
        return f"{three_digits(duration_s)} s"
    return f"{three_digits(duration_s * 1e3)} ms"
