"""Inputs for `benchmarks.fuzz`: folders made to do harm.

Files of every kind, in a grammar of their own, with odd names, links within and out of the folder,
named pipes, sockets, devices, files that can't be read or have no end, folders named like files,
secrets, long lines and deep nesting.
"""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import string
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .fuzz_inputs import PIECES, SECRETS, Laid

_KNOWN: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("fuzz_words.json").read_text()
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
        name, value = self.rng.choice(SECRETS)
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
        text = rng.choice(_KNOWN["values"]) if rng.random() < 0.8 else rng.choice(PIECES)
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
                f"{indent}{key}: |\n{indent}  "
                f"{_shell(made, 3).replace(chr(10), chr(10) + indent + '  ')}"
            )
        else:
            value = rng.choice(_KNOWN["values"]) if rng.random() < 0.8 else rng.choice(PIECES)
            lines.append(f"{indent}{key}: {value}")
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
            words = rng.choices(_KNOWN["words"], k=rng.randrange(1, 8))
            lines.append(" ".join([*words, rng.choice(PIECES)] if rng.random() < 0.2 else words))
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


def _lay_out(made: Folder, folder: Path) -> None:
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
    """Write a file where nothing is yet: never through a link, or into a pipe, that was made
    before.
    """
    with os.fdopen(
        os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb"
    ) as file:
        file.write(content)


def _special(made: Folder, place: Path, folder: Path) -> None:
    """A link, a named pipe, a socket, a device, or a file or folder that is not what its name
    says.
    """
    rng = made.rng
    # None leads to the machine's own files: what dsgen would do wrong must harm this folder's
    # neighbour alone.
    targets = (
        "../elsewhere/t.json",
        str(folder / "elsewhere/config.json"),
        "../elsewhere/plan.json",
        "..",
        ".",
    )
    match rng.randrange(10):
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
        case 5:  # two links that lead to one another
            other = place.with_name(f"{place.name}.{place.suffix}")
            other.symlink_to(place.name)
            place.symlink_to(other.name)
        case 6:  # a folder named like a file
            place.mkdir()
            _write_new(place / place.name, b"{}")
        case 7:  # a file of a terabyte, none of it written
            _write_new(place, b'{"train_batch_size": 8}\n')
            os.truncate(place, rng.choice((2**31, 2**40)))
        case 8:  # for root it is as any other
            _write_new(place, b"train_batch_size: 8\n")
            place.chmod(0)
        case _:
            major_minor = rng.choice(((1, 3), (1, 5), (1, 9)))  # null, zero, urandom
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(*major_minor))


def _beside(folder: Path) -> list[tuple[str, int, int]]:
    """What lies beside the folder that is named, with sizes and times."""
    paths = (*folder.iterdir(), *(folder / "elsewhere").iterdir())
    return sorted(
        (str(path), path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in paths
        if path.name[0] != "." and path.name != "named"
    )


def lay_out(seed: int, number: int, folder: Path) -> Laid:
    """Make the folder of a number in `folder`, with its command."""
    made = folder_of(seed, number)
    _lay_out(made, folder)
    rng, named = made.rng, folder / "named"
    files = sorted(
        os.fspath(path.relative_to(named)) for path in named.rglob("*") if not path.is_dir()
    )
    chosen = rng.choice(files or [""])

    # A file's project is the folder that the command runs in, and what is below it.
    within = "{f}" in " ".join(made.arguments) or rng.random() < 0.5
    start, parts = (
        (named, {"d": ".", "f": chosen})
        if within
        else (folder, {"d": "named", "f": f"named/{chosen}"})
    )
    words = [word.format(v=rng.choice(_KNOWN["values"]), **parts) for word in made.arguments]
    # A file that is named by itself may be read and shown, and a spec is named by its usual name.
    leads = [os.path.realpath(path) for path in (named / chosen, start / "dsgen.yaml")]
    if any(path.startswith(str(folder / "elsewhere")) for path in leads):
        made.canaries.clear()
    return Laid(
        origin="folder",
        start=start,
        arguments=tuple(words),
        bytes=made.bytes,
        secrets=frozenset(made.canaries),
        inside=(str(named.resolve()), *leads),
        beside=lambda: _beside(folder),
    )
