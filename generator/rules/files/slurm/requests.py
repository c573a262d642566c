"""What a script asks of Slurm: its `#SBATCH` block, and its calls of sbatch, salloc and srun."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....documents.document import LaunchScript
from ....documents.shell.launch_line import Option, Options
from ....documents.shell.launcher_options import TABLES, Table
from ....documents.shell.script import ShellScript, Word
from ....documents.submission import Submission
from ....documents.world import gpu_count
from ....findings import Edit, Location
from ...rule import subject
from .values import gpus as gpu_words
from .values import gres_list, node_range, number

#: Likeness of names of which one is taken for a slip of the other; plug-ins of a site add options of their own.
_SLIP: Final = 0.75
_SHORT_SLIP: Final = 0.6  # of names of up to five letters, of which one makes more
_SHORT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of one `#SBATCH` block or call."""

    shell: ShellScript
    options: Options
    program: str  #: sbatch | salloc | srun
    block: LaunchScript | None = None  #: the script whose `#SBATCH` block it is

    @property
    def table(self) -> Table:
        """The options that the program has."""
        return TABLES[self.program]

    def at(self, option: Option) -> Location:
        """The place of an option."""
        return self.shell.locate(option.written)

    def at_value(self, option: Option) -> Location:
        """The place of an option's value, else of the option."""
        return self.shell.locate(option.values[0] if option.values else option.written)

    def said(self, option: Option) -> str:
        """The option as one writes it: `#SBATCH --nodes=4`."""
        value = option.values[0].value if option.values else None
        words = option.name if value is None else f"{option.name}={value}"
        return f"#SBATCH {words}" if self.block else f"{self.program} {words}"

    def mend(self, word: Word, replacement: str) -> tuple[Edit, ...]:
        """The edit that puts `replacement` in a word's place; none in a command within another document."""
        if self.block is None:
            return ()
        end = word.offset + len(word.raw)
        return (Edit(path=self.shell.text.path, start=word.offset, end=end, replacement=replacement),)

    def values(self, *names: str) -> Iterator[tuple[Option, str]]:
        """Every option of these names whose value is known."""
        for option in self.options.entries:
            if option.name in names and option.known and option.values and option.values[0].value is not None:
                yield option, option.values[0].value

    def has(self, *names: str) -> bool:
        """Whether one of the options is given."""
        return any(self.options.has(name) for name in names)


def is_heterogeneous(script: LaunchScript) -> bool:
    """Whether the block is of several components, each with its own options."""
    return any(
        word.value is not None and word.value.lower() in ("hetjob", "packjob")
        for directive in script.shell.directives
        for word in directive.words[:1]
    )


@subject("launch script")
def blocks(submission: Submission) -> Iterator[Request]:
    """The `#SBATCH` blocks, of one component each."""
    for script in submission.scripts:
        if script.shell.directives and not is_heterogeneous(script):
            yield Request(shell=script.shell, options=script.sbatch, program="sbatch", block=script)


@subject("launch script")
def requests(submission: Submission) -> Iterator[Request]:
    """The blocks, and every call of a Slurm command that starts a program."""
    yield from blocks(submission)
    told: set[int] = set()
    for launch in submission.launches:
        for call in launch.calls:
            if call.program in ("sbatch", "salloc", "srun") and id(call) not in told:
                told.add(id(call))
                yield Request(shell=launch.script, options=call.options, program=call.program)


def nodes_of(request: Request) -> int | None:
    """The nodes asked for; None where none are, or a range."""
    text = request.options.text("--nodes")
    span = node_range(text) if text is not None else None
    return span[0] if span and span[0] == span[1] else None


def most_nodes(request: Request) -> int | None:
    """The nodes asked for, of a range the most; None where none are."""
    text = request.options.text("--nodes")
    span = node_range(text) if text is not None else None
    return span[1] if span else None


def count(request: Request, name: str) -> int | None:
    """The value of an option that counts; None where it isn't given or can't be known."""
    text = request.options.text(name)
    return number(text) if text is not None else None


def tasks_per_node(request: Request) -> int | None:
    """Tasks on each node as far as the options tell: --ntasks-per-node, else --ntasks over the nodes, else 1."""
    each = count(request, "--ntasks-per-node")
    if each is not None or request.has("--ntasks-per-node"):
        return each
    tasks, nodes = count(request, "--ntasks"), nodes_of(request)
    if tasks is not None and nodes:
        return tasks // nodes if tasks % nodes == 0 else None
    by_gpus = request.has("--gpus-per-task", "--ntasks-per-gpu", "--ntasks-per-tres", "--ntasks-per-socket")
    return None if by_gpus or request.has("--ntasks") else 1


def gpus_per_node(request: Request) -> tuple[Option, int] | None:
    """The option that says how many GPUs a node gives, and how many that are."""
    for name in ("--gres", "--gpus-per-node"):  # where both are given, Slurm takes --gres
        option, text = request.options.get(name), request.options.text(name)
        if option is None or text is None:
            continue
        if name == "--gres":
            found = [item.count for item in gres_list(text) or () if item.name == "gpu"]
            number_of = sum(found) if found else None
        else:
            typed = gpu_words(text)
            number_of = typed[1] if typed else gpu_count(text, gres=False)
        if number_of is not None:
            return option, number_of
    return None


def did_you_mean(name: str, table: Table) -> str | None:
    """The option that a misspelt one is for."""
    stem = name.lstrip("-").lower().replace("_", "-")
    long = {known.lstrip("-"): known for known in table.options if known.startswith("--")}
    if stem in long:
        return long[stem]
    near = difflib.get_close_matches(stem, long, n=1, cutoff=_SHORT_SLIP if len(stem) <= _SHORT else _SLIP)
    return long[near[0]] if near else None
