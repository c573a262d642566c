"""Batch scripts to ask about: hand-written ones, and seeded mutations of any."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Final

_HEAD: Final = "#!/bin/bash\n"
_BODY: Final = "\nset -e\nsrun --kill-on-bad-exit=1 python tool.py\n"

#: Of the forms that people write: long and short options, GPUs by node, by task, by job and as a
#: resource.
BASES: Final = tuple(
    _HEAD + "".join(f"#SBATCH {line}\n" for line in lines) + _BODY
    for lines in (
        (
            "--job-name=pretrain",
            "--nodes=4",
            "--ntasks-per-node=8",
            "--gpus-per-node=8",
            "--cpus-per-task=12",
            "--time=1-00:00:00",
        ),
        ("-J finetune", "-N 2", "-n 16", "-c 8", "--gres=gpu:8", "-t 12:00:00", "-o %x-%j.out"),
        (
            "--nodes=1",
            "--ntasks=1",
            "--gres=gpu:4",
            "--mem=256G",
            "--time=02:00:00",
            "--output=%x.out # the log",
        ),
        (
            "--nodes=2",
            "--gpus=16",
            "--ntasks-per-node=1",
            "--cpus-per-gpu=12",
            "--mem=0",
            "--exclusive",
        ),
        (
            "--nodes=2",
            "--ntasks-per-node=8",
            "--gpus-per-task=1",
            "--mem-per-gpu=100G",
            "--time=30",
        ),
        (
            '--job-name="a name"',
            "--nodes=8",
            "--gpus-per-node=8",
            "--signal=B:USR1@120",
            "--time=04:00:00",
            "--requeue",
        ),
        (
            "--array=0-3%2",
            "--nodes=1",
            "--gpus-per-node=8",
            "--mail-type=END,FAIL",
            "--open-mode=append",
        ),
    )
)

_TIMES: Final = (
    "24h",
    "60",
    "00:60",
    "24:00",
    "1-0",
    "1-25:61:61",
    "2:3:4:5",
    "1d",
    "UNLIMITED",
    "0",
    "12:00 PM",
    "1.5",
    "",
    "-1",
    "1:xx",
)
_MEMORIES: Final = (
    "64GBs",
    "64GB",
    "64Gi",
    "64",
    "1.5T",
    "0",
    "4P",
    "64 GB",
    "all",
    "16T",
    "100000G",
    "64g",
    "-1",
    "800G",
)
_GRES: Final = (
    "gpu:9",
    "gpus:8",
    "gpu=8",
    "gpu:8:a100",
    "gpu",
    "gpu:0",
    "8",
    "gpu:eight:8",
    "gpu:-1",
    "GPU:8",
    "gpu:1.5",
    "gpu:2",
)
_NODES: Final = ("0", "two", "4-8", "8-4", "2,4", "100000", "1-", "2x", "$NODES", "1", "2", "+2")
_COUNTS: Final = ("0", "-1", "x", "8.5", "1000", "1", "2", "500", "3")
_GPUS: Final = ("0", "9", "eight", "gpu:8", "all", "1000", "1", "8", "4", "a100:4", "-1")
_SIGNALS: Final = (
    "USR1",
    "USR9@60",
    "B:TERM@60",
    "USR1@5m",
    "USR1@70000",
    "@60",
    "SIGUSR1@300",
    "10@5",
    "B:USR1:60",
    "R:USR2@9",
)
_MAILS: Final = ("END", "FINISH", "end,fali", "ALL", "ERROR", "TIME_LIMIT_80", "NONE")
_ARRAYS: Final = ("0-3", "3-0", "a", "0..3", "1,3,5", "0-15%4", "1-7:2", "-1", "0-")
_OTHERS: Final = {
    "--partition": ("gpu", "main", "<your-partition>", "gpu,main"),
    "--constraint": ("a100", "h100&nvlink"),
    "--reservation": ("maintenance",),
    "--nodelist": ("n1", "node[01-02]", "n[1-2]"),
    "--account": ("project", ""),
    "--qos": ("high",),
    "--dependency": ("afterok:1", "after", "singleton", "afterok:"),
    "--distribution": ("block", "blocks", "plane=8", "cyclic:block"),
    "--exclusive": ("user", "yes", "true", "mcs"),
    "--open-mode": ("append", "w", "truncate"),
    "--hint": ("nomultithread", "fast"),
    "--kill-on-invalid-dep": ("yes", "1"),
    "--wait-all-nodes": ("1", "2"),
    "--gpu-bind": ("closest", "near", "single:1", "none"),
    "--switches": ("1", "x", "1@24:00:00"),
    "--time-min": ("10", "9-00:00:00", "1h"),
    "--ntasks-per-gpu": ("1", "0"),
    "--gpus-per-socket": ("4",),
    "--threads-per-core": ("1", "one"),
    "--profile": ("all", "cpu"),
    "--licenses": ("matlab",),
    "--tmp": ("10Gi", "100G"),
    "--container-image": ("nvcr.io#nvidia/pytorch:25.01-py3",),
    "--kill-on-bad-exit": ("1",),
    "--mpi": ("pmix",),
    "--walltime": ("10",),
    "--queue": ("gpu",),
    "--requeue": ("1",),
    "--comment": ('"one', '"a # b"', "#none"),
    "--nice": ("5",),
}  # fmt: skip
_VALUES: Final = {
    "--time": _TIMES,
    "--mem": _MEMORIES,
    "--mem-per-cpu": ("4G", "64GBs", "1.5G"),
    "--mem-per-gpu": ("100G", "2T", "10Gi"),
    "--gres": _GRES,
    "--nodes": _NODES,
    "--ntasks": _COUNTS,
    "--ntasks-per-node": _COUNTS,
    "--cpus-per-task": _COUNTS,
    "--cpus-per-gpu": ("0", "12", "100", "x"),
    "--gpus": _GPUS,
    "--gpus-per-node": _GPUS,
    "--gpus-per-task": _GPUS,
    "--signal": _SIGNALS,
    "--mail-type": _MAILS,
    "--array": _ARRAYS,
    **_OTHERS,
}
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz-"
_OPTION: Final = re.compile(r"^#SBATCH (--?[a-zA-Z-]+)(.*)$")
_SHORT: Final = {
    "--nodes": "-N",
    "--ntasks": "-n",
    "--cpus-per-task": "-c",
    "--time": "-t",
    "--gpus": "-G",
    "--partition": "-p",
}


def _directives(lines: list[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if line.startswith("#SBATCH ")]


def _other_value(lines: list[str], rng: random.Random) -> str:
    """Another value for an option that is there."""
    found = [
        (i, m[1]) for i in _directives(lines) if (m := _OPTION.match(lines[i])) and m[1] in _VALUES
    ]
    if not found:
        return _one_more(lines, rng)
    index, name = rng.choice(found)
    lines[index] = f"#SBATCH {name}={rng.choice(_VALUES[name])}"
    return lines[index]


def _one_more(lines: list[str], rng: random.Random) -> str:
    """An option more."""
    name = rng.choice(sorted(_VALUES))
    value = rng.choice(_VALUES[name])
    written = (
        f"{_SHORT[name]} {value}"
        if name in _SHORT and value and rng.random() < 0.3
        else f"{name}={value}"
    )
    at = rng.choice([*_directives(lines), _directives(lines)[-1] + 1])
    lines.insert(at, f"#SBATCH {written}")
    return lines[at]


def _misspelt(lines: list[str], rng: random.Random) -> str:
    """A letter of an option's name is lost, doubled, swapped or another one."""
    found = [
        (i, m)
        for i in _directives(lines)
        if (m := _OPTION.match(lines[i])) and m[1].startswith("--")
    ]
    if not found:
        return _one_more(lines, rng)
    index, match = rng.choice(found)
    name = list(match[1])
    at = rng.randrange(2, len(name))
    how = rng.randrange(4)
    if how == 0:
        del name[at]
    elif how == 1:
        name.insert(at, name[at])
    elif how == 2 and at + 1 < len(name):
        name[at], name[at + 1] = name[at + 1], name[at]
    else:
        name[at] = rng.choice(_LETTERS)
    lines[index] = f"#SBATCH {''.join(name)}{match[2]}"
    return lines[index]


def _shortened(lines: list[str], rng: random.Random) -> str:
    """An option's name is cut."""
    found = [(i, m) for i in _directives(lines) if (m := _OPTION.match(lines[i])) and len(m[1]) > 5]
    if not found:
        return _one_more(lines, rng)
    index, match = rng.choice(found)
    lines[index] = f"#SBATCH {match[1][: rng.randrange(4, len(match[1]))]}{match[2]}"
    return lines[index]


def _without(lines: list[str], rng: random.Random) -> str:
    """A line is left out."""
    found = _directives(lines)
    if len(found) < 2:
        return _one_more(lines, rng)
    return "without " + lines.pop(rng.choice(found))


def _statement(lines: list[str], rng: random.Random) -> str:
    """A command before a directive."""
    at = rng.choice(_directives(lines))
    lines.insert(at, rng.choice(("set -e", "module load cuda", "NODES=4", ":", "echo start")))
    return f"{lines[at]} before {lines[at + 1]}"


def _as_text(lines: list[str], rng: random.Random) -> str:
    """The file or a line of another form."""
    at = rng.choice(_directives(lines))
    how = rng.randrange(8)
    if how == 0:
        lines[0] = ""
    elif how == 1:
        lines[:] = [line + "\r" for line in lines]
    elif how == 2:
        lines[at] += " and more"
    elif how == 3:
        lines[at] = lines[at].replace("--", "–", 1)
    elif how == 4:
        lines[at] = lines[at].replace("#SBATCH", "# SBATCH")
    elif how == 5:
        lines[at] = lines[at].replace("#SBATCH ", "#SBATCH")
    elif how == 6:
        lines[at] = lines[at].replace("#SBATCH ", "#SBATCH: ")
    else:
        lines[at] = re.sub(r"(--[\w-]+)=", r"\1 = ", lines[at])
    return lines[at]


_KINDS: Final[tuple[tuple[Callable[[list[str], random.Random], str], int], ...]] = (
    (_other_value, 8),
    (_one_more, 6),
    (_misspelt, 4),
    (_shortened, 2),
    (_without, 1),
    (_statement, 1),
    (_as_text, 2),
)


def mutations(script: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """`count` scripts that differ from `script` in one to three places, each with what was done."""
    rng = random.Random(seed)
    kinds, weights = zip(*_KINDS, strict=True)
    for _ in range(count):
        lines, told = script.split("\n"), list[str]()
        for kind in rng.choices(kinds, weights, k=rng.choice((1, 1, 1, 2, 3))):
            if _directives(lines):
                told.append(kind(lines, rng))
        yield "; ".join(told), "\n".join(lines)
