"""Folders made to do harm: `dsgen` answers each soon, keeps to the folder, and prints no secret.

`python -m benchmarks.hostile [--inputs N]` makes folders of files of every kind, in a grammar of their own: odd names,
links within and out of the folder, named pipes, sockets and devices, secrets, long lines, deep nesting. A command reads
each in a forked worker. Failures are: a traceback, more than a second of processor time for every 100 kB (and one to
begin with), a file opened, made or moved outside of the folder, and a secret in what is printed or written. Files are
watched by Python's audit events and by comparing what lies beside the folder; with `--strace`, by system calls as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import string
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.fuzz import STATUSES, STOP_S, answers
from dsgen.cli import main as dsgen
from tests.secrets.samples import VARIABLES

_S_PER_100_KB: Final = 1.0
_BEGIN_S: Final = 1.0  #: imports, which a worker makes once
_KNOWN: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("hostile_words.json").read_text()
)
#: Secrets whose names or forms show them wherever they are.
_SECRETS: Final = tuple(
    (name, value) for name, value in VARIABLES.items() if len(value) > 8 and "\n" not in value
)


@dataclass(slots=True)
class Folder:
    """A folder and the command that reads it."""

    arguments: tuple[str, ...]
    rng: random.Random
    canaries: set[str] = field(default_factory=set)
    bytes: int = 0

    def secret(self) -> tuple[str, str]:
        """A name and its secret, which nothing may show."""
        name, value = self.rng.choice(_SECRETS)
        if self.rng.random() < 0.3:
            name, value = (
                "HF_TOKEN",
                "hf_" + "".join(self.rng.choices(string.ascii_letters + string.digits, k=34)),
            )
        self.canaries.add(value)
        return name, value


def folder_of(seed: int, number: int) -> Folder:
    """A folder by its number."""
    rng = random.Random(f"hostile/{seed}/{number}")
    return Folder(arguments=tuple(rng.choice(_KNOWN["commands"]).split()), rng=rng)


def _json(made: Folder, keys: list[str], depth: int) -> Any:
    rng = made.rng
    if depth <= 0 or rng.random() < 0.25:
        text = rng.choice(_KNOWN["values"])
        return rng.choice(
            (
                text,
                rng.randrange(-2, 10**6),
                rng.random() * 10 ** rng.randrange(-9, 12),
                True,
                None,
                text,
            )
        )
    if rng.random() < 0.12:
        return [_json(made, keys, depth - 1) for _ in range(rng.randrange(4))]
    found = {rng.choice(keys): _json(made, keys, depth - 1) for _ in range(rng.randrange(1, 7))}
    if rng.random() < 0.15:
        name, value = made.secret()
        found[rng.choice((name, name.lower()))] = value
    return found


def _nested(made: Folder) -> str:
    opening, closing = made.rng.choice((("[", "]"), ('{"a":', "}"), ("{a: ", "}"), ("- ", "")))
    count = made.rng.randrange(10, 60_000)
    return opening * count + made.rng.choice(("1", "")) + closing * made.rng.choice((0, count))


def _yaml(made: Folder, keys: list[str], depth: int, indent: str = "") -> str:
    rng, lines = made.rng, list[str]()
    for _ in range(rng.randrange(1, 8)):
        key = rng.choice(keys)
        if depth and rng.random() < 0.4:
            lines.append(f"{indent}{key}:\n{_yaml(made, keys, depth - 1, indent + '  ')}")
        elif rng.random() < 0.1:
            name, value = made.secret()
            lines.append(f"{indent}{name}: {json.dumps(value)}")
        elif rng.random() < 0.1:
            lines.append(
                f"{indent}{key}: |\n{indent}  {_shell(made, 3).replace(chr(10), chr(10) + indent + '  ')}"
            )
        else:
            lines.append(f"{indent}{key}: {rng.choice(_KNOWN['values'])}")
    return "\n".join(lines)


def _shell(made: Folder, count: int) -> str:
    rng, lines = made.rng, ["#!/bin/bash"] if made.rng.random() < 0.7 else []
    for _ in range(count):
        if rng.random() < 0.15:
            name, value = made.secret()
            quoted = json.dumps(value)
            form = rng.choice(
                (
                    "export {0}={1}",
                    "{0}={1} srun train.py",
                    "deepspeed train.py --{2} {1}",
                    "echo ${0}",
                )
            )
            option = name.lower().replace("_", "-")
            lines.append(
                form.format(name, quoted, option)
                if rng.random() < 0.8
                else f"--config '{{\"api_key\": {quoted}}}'"
            )
        else:
            lines.append(" ".join(rng.choices(_KNOWN["words"], k=rng.randrange(1, 8))))
    return "\n".join(lines)


def _content(made: Folder, name: str) -> str:
    """Text of the kind that a name promises, or of another."""
    rng = made.rng
    keys = rng.choice([_KNOWN[name] for name in ("deepspeed", "spec", "yaml", "plan")])
    makers: tuple[Callable[[], str], ...] = (
        lambda: json.dumps(
            _json(made, keys, 4), indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5
        ),
        lambda: _yaml(made, keys, 3),
        lambda: _shell(made, rng.randrange(1, 30)),
        lambda: _nested(made),
        lambda: "".join(rng.choices(string.printable + "é\u2028\x00\x85", k=rng.randrange(3000))),
        lambda: (
            f"{rng.choice(_KNOWN['names'])} slots={rng.choice(_KNOWN['values'])}\n"
            * rng.randrange(50)
        ),
    )
    kind = 0 if name.endswith(".json") else 1 if name.endswith((".yaml", ".yml")) else 2
    text = makers[kind]() if rng.random() < 0.8 else rng.choice(makers)()
    if rng.random() < 0.06:  # long
        piece = rng.choice(
            (
                text,
                rng.choice(_KNOWN["words"]),
                rng.choice(_KNOWN["values"]),
                "{'loss': 1, ",
                "key=",
                "a,",
                " ",
                "\\",
                "'",
            )
        )
        text += (piece or "x") * (rng.randrange(300_000) // max(len(piece), 1))
    return text


def lay_out(made: Folder, folder: Path) -> None:
    """Make the folder `named` with files, and `elsewhere` with what must not be read."""
    rng, named, elsewhere = made.rng, folder / "named", folder / "elsewhere"
    for place in (named, elsewhere):
        place.mkdir()
    canary = "Elsewhere" + "".join(rng.choices(string.ascii_letters + string.digits, k=20))
    made.canaries.add(canary)
    outside = json.dumps(
        {"train_batch_size": 8, "zero_optimisation": {"stage": canary}, "model_type": canary}
    )
    for name in ("t.json", "train.py", "env.sh", "plan.json", "config.json"):
        (elsewhere / name).write_text(outside)
    places = [named]
    for _ in range(rng.randrange(1, 9)):
        name = (
            rng.choice(_KNOWN["odd_names"]) if rng.random() < 0.15 else rng.choice(_KNOWN["names"])
        )
        place = rng.choice(places) / name
        with suppress(OSError, ValueError, UnicodeEncodeError):
            if "." not in name and name not in ("hostfile", "~"):
                place.mkdir()
                places.append(place)
            elif rng.random() < 0.25:
                _special(made, place, folder)
            else:
                content = _content(made, name).encode(errors="surrogatepass")
                _write_new(place, content)
                made.bytes += len(content)


def _write_new(place: Path, content: bytes) -> None:
    """Write a file where nothing is yet: never through a link, or into a pipe, that was made before."""
    with os.fdopen(
        os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb"
    ) as file:
        file.write(content)


def _special(made: Folder, place: Path, folder: Path) -> None:
    """A link, a named pipe, a socket or a device."""
    rng = made.rng
    # None leads to the machine's own files: what dsgen would do wrong must harm this folder's neighbour alone.
    targets = (
        "../elsewhere/t.json",
        str(folder / "elsewhere/config.json"),
        "../elsewhere/plan.json",
        "..",
        ".",
    )
    match rng.randrange(6):
        case 0 | 1 | 2:
            place.symlink_to(
                rng.choice(
                    (*targets, "nowhere", place.name, "../../elsewhere", *_KNOWN["names"][:9])
                )
            )
        case 3:
            os.mkfifo(place)
        case 4:
            with chdir(place.parent), socket.socket(socket.AF_UNIX) as made_socket:
                made_socket.bind(place.name)
        case _:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))


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
    {
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.symlink",
        "os.link",
        "os.truncate",
    }
)
_inside: list[
    str
] = []  #: the folder of the input that is answered, and where the file leads that is named
_left: list[str] = []  #: what was opened, made or moved outside


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _inside and event in _EVENTS:
        for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
            if isinstance(path, str | bytes | os.PathLike):
                place = os.path.realpath(os.fsdecode(path))
                if not place.startswith((*_inside, *_ALLOWED)):
                    _left.append(f"{event} {place}")


_MARK: Final = "/hostile"  #: no file: the calls between two of its names, as strace shows them, are one folder's
_CALL: Final = re.compile(
    r"\d+ +(\w+)\((?:AT_FDCWD<[^>]*>, )?(.*)\) += (?:\d+(?:<(.*)>)?|-1 ENOENT.*)$"
)
#: Calls that only look at names; what `open` calls lead to is shown with their result.
_LOOKS: Final = frozenset(
    {
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
    }
)


def _mark(*inside: str) -> None:
    with suppress(OSError):
        Path("\n".join((_MARK, *inside))).stat()


def left_by(trace: Iterator[str]) -> Iterator[str]:
    """Calls in strace's lines that opened or changed something outside of the folder that was answered at that time."""
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
                # A file's project is below the folder that the command runs in, whose names may be listed.
                if path != inside[0] and not path.startswith((*inside[1:], *_ALLOWED, *_LIBRARIES)):
                    yield line.strip()


def strace(seed: int, first: int, count: int) -> int:
    """Answer folders number `first` to `count` under strace; prints what it finds, and returns how many that is."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name, "trace")
        watched = (
            "strace",
            "-f",
            "-y",
            "-s4096",
            "-etrace=%file,connect",
            "-esignal=none",
            f"-o{trace}",
        )
        flags = (f"--seed={seed}", f"--first={first}", f"--inputs={count}")
        done = subprocess.run(
            (*watched, sys.executable, "-m", "benchmarks.hostile", *flags), check=False
        )
        with trace.open(errors="replace") as lines:
            marks = sum(f'"{_MARK}\\n' in line for line in lines)
            lines.seek(0)
            found = list(left_by(lines))
    print(f"strace of {marks:,} folders: {len(found)} calls outside", *found[:20], sep="\n")
    return len(found) + done.returncode


def _beside(folder: Path) -> list[tuple[str, int, int]]:
    """What lies beside the folder that is named, with sizes and times."""
    paths = (*folder.iterdir(), *(folder / "elsewhere").iterdir())
    return sorted(
        (str(path), path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in paths
        if path.name[0] != "." and path.name != "named"
    )


def answer_to(made: Folder, folder: Path) -> dict[str, Any]:
    """What the program makes of one folder."""
    lay_out(made, folder)
    rng, named = made.rng, folder / "named"
    chosen = rng.choice(
        sorted(os.fspath(path.relative_to(named)) for path in named.rglob("*") if not path.is_dir())
        or [""]
    )
    within = (
        "{d}" not in " ".join(made.arguments) or rng.random() < 0.5
    )  # a file's project is below where it is named
    start, parts = (
        (named, {"d": ".", "f": chosen})
        if within
        else (folder, {"d": "named", "f": f"named/{chosen}"})
    )
    words = [word.format(**parts) for word in made.arguments]
    leads = os.path.realpath(named / chosen)
    if leads.startswith(str(folder / "elsewhere")):  # what is named by itself may be shown
        made.canaries.clear()
    status, trace, text, before = None, "", "", time.process_time()
    output = (folder / ".output").open("w+", encoding="utf-8", errors="surrogateescape")
    signal.setitimer(signal.ITIMER_PROF, STOP_S)
    _left.clear()
    beside = _beside(folder)
    try:
        with chdir(start), redirect_stdout(output), redirect_stderr(output):
            _inside[:] = [str(named.resolve()), leads]
            _mark(str(start), *_inside)
            dsgen(words)
    except SystemExit as end:
        status = end.code or 0
        trace = "" if status in STATUSES else f"status {status}"
    except BaseException:
        trace = traceback.format_exc()
    finally:
        _inside.clear()
        _mark()
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - before
    output.seek(0)
    text = output.read()
    output.close()
    written = [
        path
        for path in named.rglob("*")
        if path.name in ("new.yaml",) and path.is_file() and not path.is_symlink()
    ]
    text += "".join(path.read_text(errors="replace") for path in written)
    shown = [canary for canary in made.canaries if canary in text]
    trace = trace or (f"shows {shown}: {text[:1500]}" if shown else "")
    trace = trace or ("changed what lies beside" if _beside(folder) != beside else "")
    trace = trace or (f"outside: {sorted(set(_left))[:5]}" if _left else "")
    trace = trace or (f"{took:.1f} s" if took > _BEGIN_S + _S_PER_100_KB * made.bytes / 1e5 else "")
    return {
        "origin": " ".join(words),
        "status": status,
        "cpu_s": took,
        "mib": 0.0,
        "trace": trace[-3000:],
        "rules": [],
    }


def hostile(seed: int, first: int, count: int) -> Iterator[dict[str, Any]]:
    """The answers to folders number `first` to `count`."""
    sys.addaudithook(_watch)
    yield from answers(lambda number: folder_of(seed, number), answer_to, first, count)


def main() -> None:
    """Print what came of the folders; exit with 1 when any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--strace", action="store_true", help="watch system calls as well")
    parser.add_argument(
        "--keep", type=Path, help="only make folder number FIRST here, and print its command"
    )
    arguments = parser.parse_args()
    if arguments.keep:
        shutil.rmtree(arguments.keep, ignore_errors=True)
        arguments.keep.mkdir()
        made = folder_of(arguments.seed, arguments.first)
        lay_out(made, arguments.keep)
        print(*made.arguments)
        return
    if arguments.strace:
        sys.exit(bool(strace(arguments.seed, arguments.first, arguments.inputs)))
    count, failed, cpu_s = 0, 0, 0.0
    for answer in hostile(arguments.seed, arguments.first, arguments.inputs):
        count, cpu_s = count + 1, cpu_s + answer["cpu_s"]
        if answer["trace"]:
            failed += 1
            print(json.dumps(answer), flush=True)
    print(
        f"{count:,} folders (seed {arguments.seed}): {failed} failures; {cpu_s:.0f} s of processor time"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
