"""SLURM_ variables: which of them are set, and which shell expands them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, Violation, Violations
from ....rules.sources import ml_engineering, slurm_manual
from ...shell.script import Assignment, Command, ShellScript, Word
from ...subjects import blocks, steps
from ..request import Request, Step

_OWN_NUMBERS: Final = re.compile(r"(?<!\\)\$\{?(SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b")
_USES: Final = re.compile(r"(?<!\\)\$(?:(SLURM_[A-Z_]+)|\{(SLURM_[A-Z_]+)\})")
#: Variables that Slurm sets only with certain options; seen in real jobs of Slurm 22.05.8.
SET_BY: Final = {
    "SLURM_CPUS_PER_TASK": ("--cpus-per-task",),
    "SLURM_CPUS_PER_GPU": ("--cpus-per-gpu",),
    "SLURM_GPUS": ("--gpus",),
    "SLURM_GPUS_PER_NODE": ("--gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("--gpus-per-task",),
    "SLURM_NTASKS": ("--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-tres"),
    "SLURM_NPROCS": ("--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-tres"),
    "SLURM_NTASKS_PER_NODE": ("--ntasks-per-node",),
    "SLURM_MEM_PER_NODE": ("--mem",),
    "SLURM_MEM_PER_CPU": ("--mem-per-cpu",),
    "SLURM_ARRAY_TASK_ID": ("--array",),
    "SLURM_ARRAY_JOB_ID": ("--array",),
}
#: A launcher's options for the node's rank, and for the rendezvous that reads it.
_RANKS: Final = (("torchrun", "--node-rank", "--rdzv-backend"), ("accelerate", "--machine_rank", "--rdzv_backend"))
_INSTEAD: Final = {
    "SLURM_GPUS_PER_NODE": "SLURM_GPUS_ON_NODE, or #SBATCH --gpus-per-node in place of --gres",
    "SLURM_GPUS": "SLURM_GPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK": "SLURM_CPUS_ON_NODE",
    "SLURM_NTASKS": "SLURM_JOB_NUM_NODES, or add #SBATCH --ntasks-per-node",
    "SLURM_NPROCS": "SLURM_JOB_NUM_NODES, or add #SBATCH --ntasks-per-node",
}
#: Options in which a script asks for the same in another way, so that nobody adds the variable's own on sbatch's line.
_GPUS: Final = ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--tres-per-task")
_MEMORY: Final = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
_ASKED: Final = {
    "SLURM_GPUS": _GPUS,
    "SLURM_GPUS_PER_NODE": _GPUS,
    "SLURM_GPUS_PER_TASK": _GPUS,
    "SLURM_CPUS_PER_TASK": ("--cpus-per-gpu",),
    "SLURM_CPUS_PER_GPU": ("--cpus-per-task",),
    "SLURM_NTASKS": ("--nodes",),
    "SLURM_NPROCS": ("--nodes",),
    "SLURM_NTASKS_PER_NODE": ("--ntasks",),
    "SLURM_MEM_PER_NODE": _MEMORY,
    "SLURM_MEM_PER_CPU": _MEMORY,
}
_ASKING: Final = frozenset({"[", "test", "[[", "echo", "printf", ":"})
_OUTPUT: Final = "sbatch(1), OUTPUT ENVIRONMENT VARIABLES"


@steps.rule("SLM009", ERROR, "init", ml_engineering("orchestration/slurm/users.md:696"))
def own_numbers_are_read_on_the_node(step: Step) -> Violations:
    """$SLURM_PROCID, $SLURM_NODEID and $SLURM_LOCALID are expanded by the tasks' own shells.

    Prevents: Every node takes itself for node 0, and the rendezvous hangs.
    Fix: put the text of bash -c in single quotes"""
    if step.nodes == 1 and step.tasks in (None, 1):
        return
    seen = set[int]()
    for name, offset, place in _early_numbers(step):
        if offset not in seen and (name != "SLURM_NODEID" or step.nodes != 1):
            seen.add(offset)
            message = f"${name} is expanded {place}, where it is 0: every task gets 0"
            hint = f"write srun bash -c '... ${name} ...', in single quotes"
            yield Violation(step.launch.script.locate(offset), message, hint)


def _early_numbers(step: Step) -> Iterator[tuple[str, int, str]]:
    """The numbers that the batch script's shell expands: their names, offsets, and where that is."""
    shell = step.launch.script
    last, unread = step.launch.calls[-1].command, _unread_ranks(step)
    if last.shell is None or not last.single_quoted:
        command = shell.commands[last.inside] if last.inside is not None else last
        for word in command.words:
            found = _OWN_NUMBERS.finditer(word.raw) if not word.raw.startswith("'") else ()
            match = next((m for m in found if not _within(word.offset + m.start(), unread)), None)
            if match:
                yield match[1], word.offset + match.start(), "by the batch script before srun starts the tasks"
    for assignment in shell.assignments:
        if not assignment.exported or assignment.raw.startswith("'") or assignment.offset >= last.offset:
            continue
        found = _OWN_NUMBERS.finditer(assignment.raw)
        match = next((m for m in found if not _within(assignment.value_offset + m.start(), unread)), None)
        inner = _command_of(shell, assignment) if match else None
        if match and (inner is None or inner.shell is None):
            if _gives_ranks(step) and not _is_used(shell, assignment.name, unread):
                continue
            yield match[1], assignment.value_offset + match.start(), f"in the batch script, for {assignment.name}"


def _command_of(shell: ShellScript, assignment: Assignment) -> Command | None:
    """The command that an assignment is part of, or that follows it."""
    return shell.commands[assignment.command_index] if assignment.command_index < len(shell.commands) else None


def _within(offset: int, words: list[Word]) -> bool:
    return any(word.offset <= offset < word.offset + len(word.raw) for word in words)


def _is_used(shell: ShellScript, name: str, unread: list[Word]) -> bool:
    """Whether a script expands a variable for more than to show it, and in other words than those that are unread."""
    commands = (command for command in shell.commands if command.words and command.words[0].value not in _ASKING)
    words = (word for command in commands for word in command.words if not _within(word.offset, unread))
    uses = re.compile(rf"\$\{{?{re.escape(name)}\b")
    return any(name in word.variables for word in words) or any(uses.search(one.raw) for one in shell.assignments)


def _gives_ranks(step: Step) -> bool:
    """Whether a launcher asks its rendezvous for the ranks of nodes, whatever it is told."""
    calls = ((step.launch.call(program), rendezvous) for program, _, rendezvous in _RANKS)
    return any(call is not None and call.options.text(name) not in (None, "static") for call, name in calls)


def _unread_ranks(step: Step) -> list[Word]:
    """The words of the node's rank that a launcher ignores: it reads them with the static rendezvous only."""
    for program, rank, _ in _RANKS:
        call = step.launch.call(program)
        if call is not None:
            option = call.options.get(rank)
            return [] if option is None or not _gives_ranks(step) else [option.written, *option.values]
    return []


@blocks.rule("SLM058", ERROR, "launcher", slurm_manual(f"{_OUTPUT}: set if the option is; seen in real jobs"))
def variables_are_those_that_slurm_sets(request: Request) -> Violations:
    """A SLURM_ variable that the script uses is one that Slurm sets for its options.

    Prevents: An empty word on the launch line: --nproc-per-node without a value. An error where the script asks for the
    same in another way; a note where sbatch's command line may give the option.
    Fix: give the option, or use a variable that is always set"""
    seen = {assignment.name for assignment in request.shell.assignments}
    for name, offset in _used(request.shell):
        options = SET_BY.get(name)
        if options is None or request.has(*options) or name in seen:
            continue
        seen.add(name)
        asked = request.has(*_ASKED.get(name, ()))
        state = "is" if asked else "may be"
        message = f"${name} {state} empty: Slurm sets it only for {' or '.join(options[:2])}, which isn't given"
        hint = f"use ${_INSTEAD[name]}" if name in _INSTEAD else f"add #SBATCH {options[0]}"
        yield Violation(request.shell.locate(offset), message, hint, severity=ERROR if asked else NOTE)


def _used(shell: ShellScript) -> Iterator[tuple[str, int]]:
    """Variables that are used without a default, in the batch script's own shell."""
    texts: list[tuple[str, int]] = []
    for command in shell.commands:
        own = command.shell is None and not command.guarded
        if own and command.words and command.words[0].value not in _ASKING:
            texts += ((word.raw, word.offset) for word in command.words)
    for assignment in shell.assignments:
        inner = _command_of(shell, assignment)
        if inner is None or (inner.shell is None and not inner.guarded):
            texts.append((assignment.raw, assignment.value_offset))
    for raw, offset in texts:
        for match in _USES.finditer(raw) if not raw.startswith("'") else ():
            yield match[1] or match[2], offset + match.start()


@blocks.rule("SLM019", ERROR, "launcher", slurm_manual(f"{_OUTPUT}: the option's value as given"))
def gpu_counts_are_numbers(request: Request) -> Violations:
    """$SLURM_GPUS_PER_NODE is a number where one is needed: --gpus-per-node has no type.

    Prevents: invalid literal for int(): 'a100:4'.
    Fix: use SLURM_GPUS_ON_NODE"""
    text = request.options.text("--gpus-per-node") or ""
    for name, offset in _used(request.shell) if ":" in text else ():
        if name == "SLURM_GPUS_PER_NODE":
            message = f"$SLURM_GPUS_PER_NODE is {text}, as in --gpus-per-node, and not a number"
            yield Violation(request.shell.locate(offset), message, "use $SLURM_GPUS_ON_NODE")
