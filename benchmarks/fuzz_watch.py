"""Which files a command opens, makes or moves outside of the folders that it was given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_ALLOWED: Final = tuple(
    {
        str(Path(path).resolve())
        for path in (sys.prefix, sys.base_prefix, Path(__file__).parents[1], *sys.path)
        if path
    }
    | {"/dev/null", "/usr/share/zoneinfo", "/proc/self/fd", "/proc/cpuinfo", "/sys/devices"}
)
_LIBRARIES: Final = ("/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/usr/lib/", "/lib/")
_EVENTS: Final = frozenset(
    [
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.symlink",
        "os.link",
        "os.truncate",
    ]
)
#: Calls that only look at names; what `open` calls lead to is shown with their result.
_LOOKS: Final = frozenset(
    [
        "newfstatat",
        "stat",
        "lstat",
        "statx",
        "access",
        "faccessat2",
        "readlink",
        "readlinkat",
        "getcwd",
        "chdir",
    ]
)
#: no file: the calls between two of its names, as strace shows them, are one folder's
_MARK: Final = "/fuzzed"
_CALL: Final = re.compile(
    r"\d+ +(\w+)\((?:AT_FDCWD<[^>]*>, )?(.*)\) += (?:\d+(?:<(.*)>)?|-1 ENOENT.*)$"
)

#: the folders of the input that is answered, and where the file leads that is named
_inside: list[str] = []
_left: list[str] = []  #: what was opened, made or moved outside


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _inside and event in _EVENTS:
        for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
            if isinstance(path, str | bytes | os.PathLike):
                place = os.path.realpath(os.fsdecode(path))
                if not place.startswith((*_inside, *_ALLOWED)):
                    _left.append(f"{event} {place}")


def start() -> None:
    """Watch this process from now on, by Python's audit events."""
    sys.addaudithook(_watch)


@contextmanager
def watched(working: Path, inside: Sequence[str]) -> Iterator[list[str]]:
    """Give what is opened or changed outside of `inside`, by a command that runs in `working`;
    nothing counts where that is empty.
    """
    _left.clear()
    _inside[:] = inside
    if inside:
        _mark(str(working), *inside)
    try:
        yield _left
    finally:
        _inside.clear()
        if inside:
            _mark()


def _mark(*inside: str) -> None:
    with suppress(OSError):
        Path("\n".join((_MARK, *inside))).stat()


def left_by(trace: Iterator[str]) -> Iterator[str]:
    """Calls in strace's lines that opened or changed something outside of the folder that was
    answered at that time.
    """
    inside: list[str] = []
    for line in trace:
        call = _CALL.match(line)
        if call is None:
            continue
        name, given, result = call.groups()
        texts = re.findall(r'"((?:[^"\\]|\\.)*)"', given)
        if texts and texts[0].startswith(_MARK):
            inside = texts[0].split("\\n")[1:]
        elif inside and name not in _LOOKS and "ENOENT" not in line:
            paths = (
                [result or ""]
                if name.startswith("open")
                else texts[-1:]
                if name.startswith("sym")
                else texts
            )
            for path in (os.path.normpath(Path(inside[0], path)) for path in paths):
                # A file's project is below the folder that the command runs in, whose names may be
                # listed.
                if path != inside[0] and not path.startswith((*inside[1:], *_ALLOWED, *_LIBRARIES)):
                    yield line.strip()


def strace(seed: int, first: int, count: int) -> int:
    """Answer folders number `first` to `count` under strace; prints what it finds, and returns how
    many that is.
    """
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name, "trace")
        calls = ("strace", "-f", "-y", "-s4096", "-etrace=%file,connect", "-esignal=none")
        flags = (f"--seed={seed}", f"--first={first}", f"--inputs={count}", "--kind=folders")
        fuzz = (sys.executable, "-m", "benchmarks.fuzz", *flags)
        done = subprocess.run((*calls, f"-o{trace}", *fuzz), check=False)
        with trace.open(errors="replace") as lines:
            marks = sum(f'"{_MARK}\\n' in line for line in lines)
            lines.seek(0)
            outside = list(left_by(lines))
    print(f"strace of {marks:,} folders: {len(outside)} calls outside", *outside[:20], sep="\n")
    return len(outside) + done.returncode
