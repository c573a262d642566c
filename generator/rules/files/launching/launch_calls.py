"""What the rules of launchers share: which nodes a launch is for, and how a call is located."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from ....documents.hostfile import Hostfile
from ....documents.shell.launch_line import Call, Launch, Option
from ....documents.submission import Submission
from ....findings import Location
from ..slurm.requests import blocks, nodes_of

#: Calls that start the rest of the line on every node.
ON_EVERY_NODE = frozenset({"srun", "mpirun", "pdsh", "ssh"})


def calls_of(submission: Submission, *programs: str) -> Iterator[tuple[Launch, Call]]:
    """Every call of these programs, with its launch."""
    for launch in submission.launches:
        for call in launch.calls:
            if call.program in programs:
                yield launch, call


def at(launch: Launch, thing: Option | Call) -> Location:
    """The place of an option or of the program's name."""
    return launch.script.locate(thing.written if isinstance(thing, Option) else thing.word)


def at_value(launch: Launch, option: Option) -> Location:
    """The place of an option's value."""
    return launch.script.locate(option.values[0] if option.values else option.written)


def said(call: Call, name: str) -> str:
    """An option as it is written: `torchrun --nnodes=4`."""
    option, text = call.options.get(name), call.options.text(name)
    written = option.written.raw.partition("=")[0] if option else name
    return f"{call.program} {written}" if text is None else f"{call.program} {written}={text}"


def nodes_of_launch(submission: Submission, launch: Launch) -> int | None:
    """The nodes of the script that a launch stands in, by its #SBATCH block; None where it has none."""
    for block in blocks(submission):
        if block.shell is launch.script:
            return nodes_of(block) if block.has("--nodes") else None
    return None


def hostfile_of(submission: Submission, call: Call) -> Hostfile | None:
    """The hostfile that a call names, where it is one of the submission's documents."""
    text = call.options.text("--hostfile")
    if text is None:
        return None
    names = [hostfile for hostfile in submission.hostfiles if PurePath(hostfile.text.path).name == PurePath(text).name]
    return names[0] if len(names) == 1 else None
