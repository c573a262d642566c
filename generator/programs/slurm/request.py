"""Requests to Slurm, as it reads them, in `#SBATCH` blocks and in calls of its commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from ...dataclass import dataclass
from ...findings import Edit, Location
from ...patterns import lazy_pattern
from ...places import is_placeholder
from ...submission.launches import Launch
from ...submission.script import LaunchScript
from ...text.options import Argument, CommandLine, Option, Options, Table
from ...text.shell.records import Directive, ShellScript, Word
from ..launching.tables import TABLES
from .submit_line import given_when_submitted
from .values import gpu_items, gpu_type_and_count, node_range, number, seconds

V = TypeVar("V")

#: Options that ask for GPUs.
GPU_OPTIONS: Final = (
    "--gpus",
    "--gpus-per-node",
    "--gpus-per-task",
    "--gpus-per-socket",
    "--gres",
    "--tres-per-task",
)


@dataclass(frozen=True, kw_only=True)
class Request(CommandLine):
    """Options of one `#SBATCH` block, or of one call."""

    block: LaunchScript | None = None  #: the script whose `#SBATCH` block it is

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return "#SBATCH" if self.block else self.program

    def name_of(self, option: Option) -> str:
        """An option's name in messages: in full, also where its letter is written."""
        return option.name

    @property
    def table(self) -> Table:
        """The options that the program has."""
        return TABLES[self.program]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launch lines of the script whose block it is."""
        return self.block.launches if self.block else ()

    def edit(self, word: Word, replacement: str | None) -> tuple[Edit, ...]:
        """The edit that replaces a word; none for a command inside another document."""
        if self.block is None or replacement is None:
            return ()
        end = word.offset + len(word.raw)
        return (
            Edit(path=self.shell.text.path, start=word.offset, end=end, replacement=replacement),
        )

    def valued(self, *names: str) -> Iterator[Argument[str]]:
        """The options of these names whose values are known, or all without names.

        In a block the value may hold shell variables: Slurm takes them as they stand.
        """
        for option in self.options.entries:
            value = option.values[0].value if option.known and option.values else None
            if value is not None and (not names or option.name in names):
                yield self.view(option, value)

    @cached_property
    def is_form(self) -> bool:
        """Whether several options of a block are left blank, for its user to fill in."""
        return self.block is not None and sum(_is_blank(each.value) for each in self.valued()) > 1

    def texts(self, *names: str, last: bool = False) -> Iterator[Argument[str]]:
        """The options of these names as sbatch gets them, without variables and placeholders.

        Variables and placeholders have rules of their own.

        With `last`, an option that is given again later is left out: Slurm reads some values only
        when all are there.
        """
        for argument in self.valued(*names):
            is_open = is_placeholder(argument.value) or argument.option.written in self.left_open
            is_open = is_open or (_is_blank(argument.value) and self.is_form)
            is_replaced = last and self.options.get(argument.option.name) is not argument.option
            has_variable = "$" in argument.value or "`" in argument.value
            if not (has_variable or is_open or is_replaced):
                yield argument

    @property
    def asks_for_gpus(self) -> bool:
        """Whether it asks for GPUs, or for whole nodes, or for something that isn't known."""
        return self.has(*GPU_OPTIONS, "--exclusive") or self.opaque or bool(self.options.unknown)

    @cached_property
    def given_when_submitted(self) -> frozenset[str]:
        """The options of a `#SBATCH` block that the project gives to sbatch on its command line."""
        return frozenset(self._given)

    def given_values(self, name: str) -> frozenset[str]:
        """The values that the project gives to sbatch for an option on its command line."""
        return frozenset(self._given.get(name, ()))

    @cached_property
    def _given(self) -> dict[str, set[str]]:
        """The values of these options, by name."""
        values_by_option: dict[str, set[str]] = {}
        if self.block:
            for name, value in given_when_submitted(self.shell.text):
                values_by_option.setdefault(name, set()).add(value)
        return values_by_option

    def read(self, name: str, reader: Callable[[str], V | None]) -> Argument[V] | None:
        """The last option of a name that can be read; none where it isn't what the job gets.

        What is given to sbatch on its command line counts instead of a line of the script.
        """
        argument = super().read(name, reader)
        if argument is None or self.block is None:
            return argument
        other_values = self.given_values(name) - {argument.option.text or ""}
        return None if other_values else argument

    def has(self, *names: str) -> bool:
        return super().has(*names) or any(name in self._given for name in names)

    @cached_property
    def left_open(self) -> frozenset[Word]:
        """Words of `#SBATCH` lines with a long placeholder: `--gres=[number of GPUs]`, or of a form
        whose lines name what belongs there: `--chdir=directory path`.
        """
        lines = self.shell.directives if self.block else ()
        to_fill = [line for line in lines if is_placeholder(_text_of(line))]
        if names_kinds(self.shell):
            to_fill += filter(_names_a_kind, lines)
        return frozenset(word for line in to_fill for word in line.words)

    def count(self, name: str) -> Argument[int] | None:
        """An option that counts tasks or cores."""
        return self.read(name, number)

    def gpus(self, name: str = "--gpus") -> Argument[int] | None:
        """An option that counts GPUs, with or without their type: --gpus, --gpus-per-task."""
        return self.read(name, _gpu_count)

    def seconds(self, name: str) -> float | None:
        """A time limit; infinity where it is unlimited."""
        argument = self.read(name, seconds)
        return argument.value if argument else None

    @cached_property
    def node_range(self) -> tuple[int, int] | None:
        """The least and most nodes asked for."""
        argument = self.read("--nodes", node_range)
        return argument.value if argument else None

    @property
    def nodes(self) -> int | None:
        """The nodes asked for; None where none are, or a range."""
        least, most = self.node_range or (None, None)
        return most if least == most else None

    @property
    def most_nodes(self) -> int | None:
        """The nodes asked for, of a range the most; None where none are."""
        return self.node_range[1] if self.node_range else None

    @cached_property
    def tasks_per_node(self) -> int | None:
        """Tasks on each node by --ntasks over nodes, else --ntasks-per-node, else 1."""
        each, tasks = self.count("--ntasks-per-node"), self.count("--ntasks")
        if tasks is not None and self.nodes:
            return tasks.value // self.nodes if tasks.value % self.nodes == 0 else None
        if each is not None or self.has("--ntasks-per-node"):
            return each.value if each else None
        by_gpus = self.has(
            "--gpus-per-task", "--ntasks-per-gpu", "--ntasks-per-tres", "--ntasks-per-socket"
        )
        return None if by_gpus or self.has("--ntasks") else 1

    @cached_property
    def gpus_per_node(self) -> Argument[int] | None:
        """The option that says the GPUs of a node: --gres before --gpus-per-node, as in Slurm."""
        return self.read("--gres", _gpus_of_items) or self.gpus("--gpus-per-node")

    @cached_property
    def share_of_a_node(self) -> Argument[int] | None:
        """--gpus and a node's even share of it; None with GPUs per node or per task."""
        if self.gpus_per_node or self.has("--gpus-per-task"):
            return None
        total = self.gpus()
        nodes = self.nodes if self.has("--nodes") else 1
        if not total or not nodes or total.value % nodes:
            return None
        return self.view(total.option, total.value // nodes)

    @cached_property
    def gpus_of_tasks(self) -> Argument[int] | None:
        """--gpus-per-task with the GPUs of all tasks of a node."""
        each, tasks = self.gpus("--gpus-per-task"), self.count("--ntasks-per-node")
        return self.view(each.option, each.value * tasks.value) if each and tasks else None


#: A line of a form that names the kind of its value: `--output=filepath`.
_OF_A_KIND: Final = lazy_pattern(
    r"--?[A-Za-z][\w-]{0,40}[= ]\s{0,9}(?:(?:the|a|your)[ _-])?"
    r"(?:(?:file|path|dir(?:ectory)?|folder|name|address|e-?mail)[ _-]?){1,4}",
    re.IGNORECASE,
)


def names_kinds(shell: ShellScript) -> bool:
    """Return whether several `#SBATCH` lines of a script name the kind of a value in its place."""
    return sum(map(_names_a_kind, shell.directives)) > 1


def _names_a_kind(line: Directive) -> bool:
    return _OF_A_KIND.fullmatch(_text_of(line)) is not None


def _text_of(line: Directive) -> str:
    """What stands in a `#SBATCH` line."""
    return " ".join(each.raw for each in line.words)


def _is_blank(value: str) -> bool:
    """Return whether a value is left blank, or its last part: `gpu:`."""
    return not value or value.endswith((":", "="))


def _gpu_count(text: str) -> int | None:
    """The GPUs of a value with or without their type: 4 of `a100:4`."""
    type_and_count = gpu_type_and_count(text)
    return None if type_and_count is None else type_and_count[1]


def _gpus_of_items(text: str) -> int | None:
    """The GPUs of all items of a `--gres`; None where none of them is a GPU."""
    items = gpu_items(text)
    return sum(item.count for item in items) if items else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A launch through srun in a batch script, with the nodes and tasks that it gets."""

    block: Request
    launch: Launch
    srun: Request
    where: Location  #: of the word srun
    nodes: int | None
    tasks: int | None  #: on each node; None where it can't be known
    where_tasks: Location | None  #: of the option that says so

    @property
    def starts_python(self) -> bool:
        """Return whether srun starts the training program itself, by python."""
        return self.launch.launcher is None and any(
            call.program == "python" for call in self.launch.calls
        )

    @property
    def variables(self) -> set[str]:
        """The variables that the script sets anywhere, or the line gets."""
        return {assignment.name for assignment in self.launch.script.assignments} | set(
            self.launch.environment
        )


def steps_of(block: Request) -> Iterator[Step]:
    """The steps of a batch script.

    A step that joins another job has an empty block, as nothing is known of that job.
    """
    for launch in block.launches:
        srun = launch.call("srun")
        if srun is None:
            continue
        request = Request(shell=launch.script, options=srun.options, program="srun")

        # A known --jobid is another job's; $SLURM_JOB_ID is not known, and this job's.
        is_elsewhere = request.options.text("--jobid") is not None
        job = replace(block, options=Options()) if is_elsewhere else block

        nodes: int | None = 1
        if request.has("--nodes"):
            nodes = request.nodes
        elif is_elsewhere or job.has("--nodes"):
            nodes = job.nodes
        in_all = None if request.opaque else request.count("--ntasks")
        if in_all is not None and in_all.value < (nodes or 2):
            nodes = in_all.value  # srun takes no more nodes than it has tasks
        tasks, where_tasks = _tasks(request, job, nodes)
        yield Step(
            block=job,
            launch=launch,
            srun=request,
            where=srun.where,
            nodes=nodes,
            tasks=tasks,
            where_tasks=where_tasks,
        )


def _tasks(step: Request, job: Request, nodes: int | None) -> tuple[int | None, Location | None]:
    """Tasks on each node of a step.

    srun takes the job's number of tasks, and then its own --ntasks-per-node doesn't count.
    """
    if step.opaque or step.has("--ntasks-per-gpu", "--gpus-per-task", "--multi-prog"):
        return None, None

    in_all = step.argument("--ntasks")
    if in_all is not None:
        total = step.count("--ntasks")
        if total is None or not nodes or total.value % nodes:
            return None, in_all.where
        return total.value // nodes, in_all.where

    of_step = step.argument("--ntasks-per-node")
    if of_step is not None and not job.has("--ntasks", "--ntasks-per-node"):
        each = step.count("--ntasks-per-node")
        return (each.value if each else None), of_step.where

    # On other nodes than the job's, its tasks are divided anew.
    if step.has("--nodes") and step.nodes != job.nodes:
        return None, None
    of_job = job.argument("--ntasks-per-node")
    return job.tasks_per_node, of_job.where if of_job else None
