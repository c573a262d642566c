"""How many breaks of Kubernetes' objects `dsgen validate` finds: `python -m benchmarks.pod_breaks
ROOT [--number 30] [--seed 0] [--show]`.

ROOT has checkouts of official examples, whose objects work. Types of machines, devices, replicas,
slots and hosts are broken in them, as many as `--number` drawn at random; a break is drawn only
where another line of the file contradicts it, or where Kubernetes refuses it. `found` is an error
in the file that is new, at the line or naming one of the two numbers.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsgen import validate
from dsgen.numerals import whole

#: Objects whose pods start one training together.
KIND: Final = re.compile(
    r"^kind: *\"?(?:PyTorchJob|TrainJob|MPIJob|JobSet|HyperPodPyTorchJob|Job)\"? *$", re.MULTILINE
)
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_JOB: Final = re.compile(r"^kind: *Job *$", re.MULTILINE)
_GPU_LIMIT: Final = re.compile(
    r"limits:\n(?:[ ]+\S+: \S+\n)*?[ ]+\"?nvidia\.com/gpu\"?: *\"?([0-9]+)\"?"
)
_MACHINE: Final = re.compile(r"instance-type\"?: *\"?((?:ml\.)?(?:p4d|p4de|p5|p5e|p5en|g5)\.\w+)")
_EFA: Final = re.compile(r"vpc\.amazonaws\.com/efa\"?: *\"?([0-9]+)")
_EACH: Final = re.compile(r"--nproc[_-]per[_-]node[= ]\"?([0-9]+)")
_NODES: Final = re.compile(r"--nnodes[= ]\"?([0-9]+)\b(?!:)")
_SLOTS: Final = re.compile(r"slotsPerWorker: *([0-9]+)")
_RANKS: Final = re.compile(r"-np?(?:\n[ ]+-)? *\"?([0-9]+)\"?")
_REPLICAS: Final = re.compile(r"Worker:\n[ ]+replicas: *([0-9]+)")
_MASTERS: Final = re.compile(r"Master:\n[ ]+replicas: *(1)\b")
_PODS: Final = re.compile(r"\bparallelism: *([0-9]+)")
_HOST: Final = re.compile(r"name: MASTER_ADDR\n[ ]+value: *\"?([\w-]+-0-0\.[\w-]+)")
#: What only ranks of several pods together are told; else each pod may train alone.
_TOGETHER: Final = re.compile(r"--nnodes[= ]\"?(?!1\b)|\b(?:WORLD_SIZE|NNODES|RANK)\b")
_PROCESSES: Final = re.compile(r"nprocPerNode: *\"?([0-9]+)\"?")


@dataclass(frozen=True)
class Break:
    """A file as it is broken, and where."""

    kind: str
    path: Path
    text: str
    line: int
    value: str


#: A value to change, what to write, and what has to be beside it.
@dataclass(frozen=True)
class Slip:
    """A way to break a file."""

    kind: str
    value: re.Pattern[str]  #: whose first group is changed
    written: Callable[[str], str]
    beside: re.Pattern[str]  #: what contradicts it


def _more(text: str) -> str:
    return str(whole(text) + 1)


def _less(text: str) -> str:
    return str(whole(text) - 1)


def _twice(text: str) -> str:
    return str(2 * whole(text))


SLIPS: Final = (
    Slip("a machine with one GPU", _MACHINE, lambda text: _small(text), _GPU_LIMIT),
    Slip("more GPUs than a machine has", _GPU_LIMIT, lambda _: "16", _MACHINE),
    Slip("half a GPU", _GPU_LIMIT, lambda _: "0.5", KIND),
    Slip("more interfaces than a machine has", _EFA, lambda _: "64", _MACHINE),
    Slip("fewer GPUs than processes", _GPU_LIMIT, lambda text: str(whole(text) - 1), _EACH),
    Slip("more processes than GPUs", _EACH, _twice, _GPU_LIMIT),
    Slip("processes of the controller", _PROCESSES, _twice, _GPU_LIMIT),
    Slip("slots", _SLOTS, _less, _RANKS),
    Slip("ranks of mpirun", _RANKS, _more, _SLOTS),
    Slip("workers of mpirun", _REPLICAS, _less, _RANKS),
    Slip("workers of torchrun", _REPLICAS, _more, _NODES),
    Slip("nodes of torchrun", _NODES, _more, _REPLICAS),
    Slip("pods of torchrun", _PODS, _more, _NODES),
    Slip("two masters", _MASTERS, lambda _: "2", KIND),
    Slip("a host that is none", _HOST, lambda text: text.replace("-0-0", "-0-1-0"), KIND),
    Slip("a host of another service", _HOST, lambda text: f"{text}s", KIND),
    Slip("this host", _HOST, lambda _: "localhost", _TOGETHER),
)


def _small(machine: str) -> str:
    """A type of machine that has one GPU."""
    return "ml.g5.xlarge" if machine.startswith("ml.") else "g5.xlarge"


def breaks_of(path: Path) -> Iterator[Break]:
    """Every break of a file that something in it contradicts."""
    text = path.read_text(encoding="utf-8", errors="replace")
    # A Job that isn't Indexed starts no training of several pods.
    is_alone = bool(_JOB.search(text)) and "completionMode: Indexed" not in text
    is_open = "{{" in text or "elasticPolicy" in text
    # Of the same length, so that places stay.
    plain = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    if not KIND.search(text) or is_alone or is_open or text.count("\nkind:") > 1:
        return
    for slip in SLIPS:
        match = slip.value.search(plain)
        if match is None or not slip.beside.search(plain):
            continue
        if slip.value in (_SLOTS, _RANKS, _REPLICAS) and "oversubscribe" in plain:
            continue  # mpirun starts more ranks than there are slots
        if slip.kind in ("fewer GPUs than processes", "a machine with one GPU") and match[1] == "1":
            continue
        if slip.value is _PODS and "completions:" in text:
            continue  # of which as many run at once as are to be completed
        if slip.kind == "a machine with one GPU" and _GPU_LIMIT.search(text)[1] == "1":  # type: ignore[index]
            continue
        if slip.written is _less and match[1] in ("0", "1"):
            continue
        start, end = match.span(1)
        value = slip.written(match[1])
        line = text.count("\n", 0, start) + 1
        yield Break(slip.kind, path, f"{text[:start]}{value}{text[end:]}", line, value)


def is_found(broken: Break, text: str, folder: Path) -> tuple[bool, str]:
    """Return whether a new error is at the break or names its value, and what is said."""
    told = set[tuple[str, str]]()
    for content in (text, broken.text):
        path = folder / "job.yaml"
        path.write_text(content, encoding="utf-8")
        errors = [one for one in validate(path) if one.severity.value == "error"]
        if content is text:
            told = {(one.rule, one.message) for one in errors}
    new = [one for one in errors if (one.rule, one.message) not in told]
    right = any(
        one.where.line == broken.line or re.search(rf"\b{re.escape(broken.value)}\b", one.message)
        for one in new
    )
    return right, "; ".join(f"{one.rule}:{one.where.line}" for one in new) or "nothing"


def main() -> int:
    """Break objects and print what is found of each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pod_breaks")
    parser.add_argument("root", type=Path)
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)

    # The same number of each kind, as far as there are as many; no text is broken twice alike.
    by_kind = defaultdict[str, dict[str, Break]](dict)
    for path in sorted((*asked.root.rglob("*.yaml"), *asked.root.rglob("*.yaml-template"))):
        for broken in breaks_of(path) if path.is_file() else ():
            by_kind[broken.kind].setdefault(broken.text, broken)
    drawn = list[Break]()
    left = {kind: draw.sample(list(all_.values()), len(all_)) for kind, all_ in by_kind.items()}
    while len(drawn) < asked.number and any(left.values()):
        drawn += [breaks.pop() for breaks in left.values() if breaks]

    found, of_kind = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for broken in drawn[: asked.number]:
            text = broken.path.read_text(encoding="utf-8", errors="replace")
            right, said = is_found(broken, text, Path(name))
            of_kind[broken.kind] += 1
            found[broken.kind] += right
            if asked.show and not right:
                print(f"{broken.path.relative_to(asked.root)}:{broken.line} {broken.kind}: {said}")
    for kind in of_kind:
        print(f"| {kind} | {found[kind]} | {of_kind[kind]} |")
    print(f"| all | {found.total()} | {of_kind.total()} |")
    return int(found.total() < 0.9 * of_kind.total())


if __name__ == "__main__":
    sys.exit(main())
