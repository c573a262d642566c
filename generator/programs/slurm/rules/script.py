"""Rules on addresses, signals, files, containers and SLURM_ variables in batch scripts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import ml_engineering, slurm_manual
from ....submission.own_folder import path_from_script
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.around import is_there
from ....text.shell.records import Assignment, Command, ShellScript, Word
from ...deepspeed.submission import configs_of
from ...launching.launch_line import LAUNCHERS
from ...launching.launcher_call import ADDRESSES, OWN_NAME
from ...launching.own_options import trained_by
from ...launching.ranks_read import asks_slurm
from ..request import GPU_OPTIONS, Request, Step
from ..subjects import blocks, requests, steps
from ..values import signal_of

#: Variables that scripts call the master's address.
_OF_ADDRESS: Final = ("MASTER_ADDR", "MASTER_ADDRESS", "HEAD_NODE_IP", "head_node_ip", "MASTER_IP")
#: The job's list of nodes, as the whole of a value.
_NODE_LIST: Final = lazy_pattern(r"[\"']?\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']?")
#: Commands that print the node's own address, which is one in most clusters, and all of them.
_OWN_ADDRESS: Final = lazy_pattern(r"hostname\s+(?:-i|--ip-address)\b")
_ALL_ADDRESSES: Final = lazy_pattern(r"hostname\s+(?:-I|--all-ip-addresses)\b")
#: Commands by which a script takes one of several addresses.
_CHOOSES: Final = lazy_pattern(r"\b(?:head|tail|awk|cut|getent|grep|sed|tr|python3?)\b")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_PYXIS: Final = (
    "NVIDIA/pyxis args.c:384 and 394, add_mount; pyxis_slurmstepd.c, "
    "enroot_container_create @ 10751994"
)


@blocks.rule("SLM008", ERROR, "init", ml_engineering("orchestration/slurm/users.md:256"))
def address_is_that_of_one_node(request: Request) -> Violations:
    """MASTER_ADDR names one node, the same for all, by a name under which the others reach it.
    Prevents: The rendezvous hangs: no node reaches the master, or each node waits for itself.
    Fix: set MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p) in the batch
    shell
    """
    if request.nodes is None or request.nodes < 2:
        return
    options = [
        call.options.get(name)
        for launch in request.launches
        for call in launch.calls
        for name in ADDRESSES
    ]
    words = (word for option in options if option is not None for word in option.values)
    on_launch_lines = {name for word in words for name in word.variables}
    for assignment in request.shell.assignments:
        name = assignment.name
        is_on_line = name in on_launch_lines
        is_address = is_on_line or name in _OF_ADDRESS
        if not is_address or assignment.only_exports:
            continue
        fault = _fault_of_address(request.shell, assignment, request.nodes, is_on_line)
        if fault is not None:
            text, severity = fault
            hint = f'write {name}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
            where = request.shell.locate(assignment.value_offset)
            yield Violation(where, f"{name}={assignment.raw} {text}", hint, severity=severity)


def _fault_of_address(
    shell: ShellScript, assignment: Assignment, nodes: int, is_on_line: bool
) -> tuple[str, Severity] | None:
    """What is wrong with an address; None where nothing is.

    A note where it may work, a warning where it may be several. `is_on_line` says that a launcher
    is given the variable.
    """
    raw, command = assignment.raw, _command_of(shell, assignment)
    # In a branch it is perhaps for one machine, or for one task.
    is_guarded = assignment.guarded
    if assignment.value in _LOOPBACK:
        is_set_later = any(
            later.name == assignment.name
            and later.offset > assignment.offset
            and not later.only_exports
            for later in shell.assignments
        )
        severity = NOTE if is_set_later or is_guarded else ERROR
        return f"is another machine on each of {nodes} nodes", severity

    in_tasks = command is not None and command.shell is not None
    if command is not None and (command.shell or "").startswith('"'):
        # The batch shell expands what has no backslash before it.
        in_tasks, raw = "\\" in raw, raw.replace("\\", "")
    if OWN_NAME.fullmatch(raw) and in_tasks:
        text = f"is set in the tasks of {nodes} nodes: each takes itself for the master"
        return text, NOTE if is_guarded else ERROR
    if _NODE_LIST.fullmatch(raw):
        text = f"is the list of all {nodes} nodes, such as n[1-{nodes}], and not the name of a host"
        return text, ERROR
    chooses = _CHOOSES.search(raw)
    if _ALL_ADDRESSES.search(raw) and not chooses:
        text = "is every address of the node, and a node has several"
        if is_on_line and not re.search(r"\bsrun\b", raw):
            return f"{text}; a launcher accepts one", WARNING
        return text, NOTE
    if _OWN_ADDRESS.search(raw) and not chooses:
        return "may be several addresses, or one that the others can't reach", NOTE
    if OWN_NAME.fullmatch(raw) and "-s" not in raw:
        return "is the node's own name for itself, under which the others may not reach it", NOTE
    return None


@blocks.rule(
    "SLM012",
    WARNING,
    "silent",
    slurm_manual("sbatch(1), --signal: B: the batch shell, else the steps"),
)
def signal_has_a_handler(request: Request) -> Violations:
    """A signal to the batch shell (B:) has a trap there, and a trap in the batch shell gets its
    signal.
    Prevents: No checkpoint before the time limit.
    Fix: write --signal=B:USR1@300 and trap ... USR1 in the batch script
    """
    shell = request.shell
    runs_others = any(
        command.words[0].value in ("exec", "source", ".") for command in shell.commands
    )
    if shell.unterminated is not None:
        return
    for argument in request.texts("--signal"):
        signal = signal_of(argument.value)
        if signal is None:
            continue
        outside = _trapped(shell, signal.name, inner=False)
        if signal.to_batch and not outside and not runs_others:
            hint = f"add trap 'HANDLER' {signal.name}, with the step in the background and wait"
            yield argument.bad_value(
                f"{argument} ends the batch shell, which has no trap for {signal.name}", hint
            )
        elif not signal.to_batch and outside and not _trapped(shell, signal.name, inner=True):
            message = (
                f"{argument} goes to the tasks of srun, and the script traps "
                f"{signal.name} in the batch shell"
            )
            yield argument.bad_value(message, f"write --signal=B:{signal.name}@{signal.seconds}")


def _trapped(shell: ShellScript, name: str, *, inner: bool) -> bool:
    """Whether a shell of the script has a trap for a signal; true where that can't be known."""
    for command in shell.commands:
        if not command.words or command.words[0].value != "trap":
            continue
        values = [word.value for word in command.words[1:]]
        if None in values:
            return True
        signals = {value.upper() for value in values if value is not None}
        is_inner = command.shell is not None
        if is_inner == inner and not signals.isdisjoint({name, f"SIG{name}"}):
            return True
    return False


@submissions.rule(
    "SLM014", NOTE, "training", ml_engineering("debug/pytorch.md:818"), reads=("launch script",)
)
def offload_has_the_memory(submission: Submission) -> Violations:
    """A job that offloads states to the node's memory asks for memory.
    Prevents: exit code -9, or an oom_kill event: the site's default memory is a small share of the
    node's.
    Fix: add #SBATCH --mem=0 or --exclusive
    """
    offloads = (
        f"{config.path} offloads {states}"
        for config in configs_of(submission)
        for states in ("optimizer", "param")
        if config.text(f"/zero_optimization/offload_{states}/device") == "cpu"
    )
    offloaded = next(offloads, None)
    if not offloaded:
        return
    for request in blocks(submission):
        if not request.has("--mem", "--mem-per-cpu", "--mem-per-gpu", "--exclusive"):
            message = (
                f"{offloaded} to the node's memory, and the script asks for none: Slurm's "
                "default limit holds"
            )
            where = request.shell.locate(request.shell.directives[0])
            hint = "add #SBATCH --mem=0: all of the node's"
            yield Violation(where, message, hint)


#: The folder of the script that runs, in a word: `$(dirname "$0")`, `${BASH_SOURCE[0]%/*}`.
_SELF: Final = r"\$(?:0(?![\w])|\{0\}|\{?BASH_SOURCE\b)"
_OWN_FOLDER: Final = lazy_pattern(
    rf"\bdirname\b.{{0,80}}?{_SELF}|\$\{{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}}"
)
#: What a script has that finds its folder in another way too.
_KNOWS_BETTER: Final = lazy_pattern(r"SLURM_SUBMIT_DIR|\bscontrol\s+show\s+job\b|:?[-=]\$\(dirname")
#: Words by which a script tells that sbatch starts it.
_OF_SBATCH: Final = lazy_pattern(r"\bsbatch\s|\$\{?SLURM_")
#: Commands that change the folder of a script.
_MOVES: Final = frozenset({"cd", "pushd", "popd"})
#: Commands that need no file of the folder to exist: they print, test, make or remove.
_ONLY_SPEAKS: Final = frozenset({"echo", "printf", "[", "[[", "test", ":", "mkdir", "rm", "cat"})


@submissions.rule(
    "SLM077",
    ERROR,
    "launcher",
    slurm_manual("slurm.conf(5), SlurmdSpoolDir: it holds batch job scripts"),
    reads=("launch script",),
)
def files_beside_the_script_are_found(submission: Submission) -> Violations:
    """A batch script takes no file from its own folder ($0, $BASH_SOURCE): slurmd runs a copy.
    Prevents: /var/spool/slurmd/job123/env.sh: No such file or directory. A warning where nothing
    tells that sbatch starts the script.
    Fix: use $SLURM_SUBMIT_DIR, or an absolute path
    """
    for request in blocks(submission):
        shell, path = request.shell, request.shell.text.path
        found = (
            (word, name) for word, name in _beside(shell) if submission.files.exists(name, path)
        )
        file_beside = next(chain(found, _started_in_own_folder(request)), None)
        if file_beside is None:
            continue
        word, name = file_beside
        content = "\n".join(line for line in shell.text.lines if not line.startswith("#SBATCH"))
        if _KNOWS_BETTER.search(content) or _is_filled_in_by_writer(shell):
            continue
        message = (
            f"{name} is looked for in the script's folder: sbatch copies the script to the spool "
            "folder of slurmd, where it isn't"
        )
        is_submitted = path.endswith((".sbatch", ".slurm")) or _OF_SBATCH.search(content)
        severity = ERROR if is_submitted else WARNING
        hint = "use $SLURM_SUBMIT_DIR, or an absolute path"
        yield Violation(shell.locate(word), message, hint, severity=severity)


def _is_filled_in_by_writer(shell: ShellScript) -> bool:
    """Whether a script writes the job, and fills in its own folder."""
    directive = next(iter(shell.directives), None)
    job = shell.heredoc_at(directive.offset) if directive is not None else None
    return job is not None and not (job.literal and job.complete)


def _beside(shell: ShellScript) -> Iterator[tuple[Word, str]]:
    """The words that name a file by the folder of the script, each with that file's path."""
    content = shell.text.content
    own_folder = _variables_of_own_folder(shell)
    for command in shell.commands:
        if command.guarded or command.inside is not None or command.offset >= len(content):
            continue
        if not command.words or command.words[0].value in _ONLY_SPEAKS:
            continue
        for word in command.words:
            if not own_folder.isdisjoint(word.variables) or _OWN_FOLDER.search(word.raw):
                name = (word.path or "").rpartition("=")[2]  # of `--option=$DIR/file`, too
                if word.value is None and "." in name.rpartition("/")[2]:
                    yield word, name


def _started_in_own_folder(request: Request) -> Iterator[tuple[Word, str]]:
    """The programs that a script starts in its own folder, to which it changes, with their paths.

    In the job `cd "$(dirname "$0")"` leads to the spool folder, where they aren't.
    """
    shell = request.shell
    moves = [each for each in shell.commands if each.words and each.words[0].value in _MOVES]
    for launch in request.launches:
        first, program = launch.calls[0].command, launch.program
        move = next((each for each in reversed(moves) if each.index < first.index), None)
        if move is None or program is None or not program.value or len(move.words) != 2:
            continue
        if program.value.startswith("/"):
            continue  # the same file wherever the script is
        folder = path_from_script(move.words[1].raw, shell)
        is_certain = not move.guarded and move.inside is None and first.inside is None
        if folder is not None and is_certain and is_there(folder / program.value):
            yield program, program.value


def _variables_of_own_folder(shell: ShellScript) -> set[str]:
    """The variables that surely hold the script's folder: set once, and in no branch."""
    content = shell.text.content
    times_set = Counter(assignment.name for assignment in shell.assignments)
    names = set[str]()
    for assignment in shell.assignments:
        line_start = content.rfind("\n", 0, assignment.offset) + 1
        begins_line = content[line_start : assignment.offset] in ("", "export ", "readonly ")
        is_only = times_set[assignment.name] == 1 and assignment.inside is None
        if begins_line and is_only and _OWN_FOLDER.search(assignment.raw):
            names.add(assignment.name)
    return names


@requests.rule("SLM021", ERROR, "launcher", _PYXIS)
def mounts_are_pairs(request: Request) -> Violations:
    """A mount of pyxis is SOURCE:TARGET[:FLAGS], or one path for both; an image that is a file is
    written as a path.
    Prevents: pyxis: --container-mounts: invalid format; pyxis: failed to import docker image.
    Fix: write SOURCE:TARGET[:FLAGS], separated by commas
    """
    for image in request.texts("--container-image"):
        is_file = image.value.endswith((".sqsh", ".sqfs", ".squashfs"))
        if is_file and not image.value.startswith((".", "/")):
            message = f"{image}: without ./ pyxis takes it for an image of a registry"
            yield image.bad_value(message, f"write --container-image=./{image.value}")
    for mounts in request.texts("--container-mounts"):
        for part in mounts.value.split(","):
            fields = part.split(":")
            has_empty = "" in fields[:2]
            if has_empty or len(fields) > 3:
                # A variable that is set to nothing is for users to fill in.
                has_variable = "$" in mounts.option.written.raw + mounts.option.values[0].raw
                severity = NOTE if has_empty and has_variable else ERROR
                message = f"{mounts}: {part!r} is not SOURCE:TARGET[:FLAGS]"
                hint = "write a pair, such as /data:/data"
                yield mounts.bad_value(message, hint, severity=severity)


#: A number of a task or a node, which differs in each of them.
_OWN_NUMBERS: Final = lazy_pattern(r"(?<!\\)\$\{?(SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b")
#: A variable of Slurm's without a default.
_USES: Final = lazy_pattern(r"(?<!\\)\$(?:(SLURM_[A-Z_]+)|\{(SLURM_[A-Z_]+)\})")
_TASKS: Final = ("SLURM_NTASKS", "SLURM_NPROCS")
#: Variables that Slurm sets only with certain options; seen in real jobs of Slurm 22.05.8.
SET_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "SLURM_CPUS_PER_TASK": ("--cpus-per-task",),
    "SLURM_CPUS_PER_GPU": ("--cpus-per-gpu",),
    "SLURM_GPUS": ("--gpus",),
    "SLURM_GPUS_PER_NODE": ("--gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("--gpus-per-task",),
    **dict.fromkeys(
        _TASKS, ("--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-tres")
    ),
    "SLURM_NTASKS_PER_NODE": ("--ntasks-per-node",),
    "SLURM_MEM_PER_NODE": ("--mem",),
    "SLURM_MEM_PER_CPU": ("--mem-per-cpu",),
    **dict.fromkeys(("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID"), ("--array",)),
}
#: A launcher's option for the rendezvous; any but the static one gives the nodes their ranks,
#: whatever they are told.
_RENDEZVOUS: Final = (("torchrun", "--rdzv-backend"), ("accelerate", "--rdzv_backend"))
#: What launchers set for each process. Source:
#: torch/distributed/elastic/agent/server/local_elastic_agent.py (_start_workers);
#: deepspeed/launcher/launch.py (main).
_RANKS_OF_PROCESSES: Final = ("RANK", "LOCAL_RANK")
#: An empty value of it counts as none: seen with libgomp 12.2, which warns and takes all cores.
_THREADS: Final = "OMP_NUM_THREADS"
#: What a script can use in the place of a variable that is not set.
_INSTEAD: Final = {
    "SLURM_GPUS_PER_NODE": "SLURM_GPUS_ON_NODE, or #SBATCH --gpus-per-node in place of --gres",
    "SLURM_GPUS": "SLURM_GPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK": "SLURM_CPUS_ON_NODE",
    **dict.fromkeys(_TASKS, "SLURM_JOB_NUM_NODES, or add #SBATCH --ntasks-per-node"),
}
_MEMORY: Final = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
#: Options in which a script asks for the same in another way, so that nobody adds the variable's
#: own on sbatch's line.
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"), GPU_OPTIONS),
    **dict.fromkeys(("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"), _MEMORY),
    **dict.fromkeys(_TASKS, ("--nodes",)),
    "SLURM_CPUS_PER_TASK": ("--cpus-per-gpu",),
    "SLURM_CPUS_PER_GPU": ("--cpus-per-task",),
    "SLURM_NTASKS_PER_NODE": ("--ntasks",),
}
#: What ends the text around a variable.
_BREAKS: Final = lazy_pattern(r"[\s\"'=]")
#: Letters or a path around a number, which is a part of a name then.
_NAMES_SOMETHING: Final = lazy_pattern(r"[A-Za-z/]")
#: Commands that print or test a variable, which may be empty.
_ASKING: Final = frozenset({"[", "test", "[[", "echo", "printf", ":"})
_OUTPUT: Final = "sbatch(1), OUTPUT ENVIRONMENT VARIABLES"


@steps.rule("SLM009", ERROR, "init", ml_engineering("orchestration/slurm/users.md:696"))
def own_numbers_are_read_on_the_node(step: Step) -> Violations:
    """$SLURM_PROCID, $SLURM_NODEID and $SLURM_LOCALID are expanded by the tasks' own shells.
    Prevents: Every node takes itself for node 0, and the rendezvous hangs. A note where the number
    is a part of a name, of a folder or a file, say, where the program asks Slurm for its rank, or
    srun sets the variable anew.
    Fix: put the text of bash -c in single quotes"""
    calls = ((step.launch.call(program), option) for program, option in _RENDEZVOUS)
    are_ranked = any(
        call is not None and call.options.text(option) not in (None, "static")
        for call, option in calls
    )
    if are_ranked or (step.nodes == 1 and step.tasks in (None, 1)):
        return
    seen = set[int]()
    for number in _early_numbers(step):
        if number.offset in seen or (number.name == "SLURM_NODEID" and step.nodes == 1):
            continue
        seen.add(number.offset)
        unread = _is_unread(number, step)
        message = f"${number.name} is expanded {number.place}, where it is 0: "
        message += unread or "every task gets 0"
        hint = f"write srun bash -c '... ${number.name} ...', in single quotes"
        is_harmless = unread or _NAMES_SOMETHING.search(number.around)
        where = step.launch.script.locate(number.offset)
        yield Violation(where, message, hint, severity=NOTE if is_harmless else ERROR)


def _is_unread(number: _EarlyNumber, step: Step) -> str:
    """Why no task reads an expanded number; an empty text where one may."""
    if number.variable == "CUDA_VISIBLE_DEVICES":
        # Source: slurm.schedmd.com/gres.html, GPU Management: set for each job step.
        has_gpus = step.block.has(*GPU_OPTIONS) or step.srun.has(*GPU_OPTIONS)
        return "srun sets it anew for its tasks" if has_gpus else ""
    is_given = any(number.variable in word.variables for word in step.launch.arguments)
    if not number.variable.endswith("RANK") or is_given:
        return ""
    # Lightning asks Slurm too. Source: lightning_fabric/plugins/environments/slurm.py @ 2.5.5.
    is_lightning = "lightning" in (trained_by(step.launch) or ())
    asks = is_lightning or asks_slurm(step.launch, number.name)
    return "the program asks Slurm itself" if asks else ""


class _EarlyNumber(NamedTuple):
    """A number of a task that the batch script's shell expands, before there are tasks."""

    name: str  #: of its variable
    offset: int
    place: str  #: in words
    variable: str  #: that the batch script gives the number to; empty: none
    around: str  #: what is written around the variable without a blank


def _early_numbers(step: Step) -> Iterator[_EarlyNumber]:
    """The numbers that the batch script's shell expands in the step's line and its environment."""
    shell, last = step.launch.script, step.launch.calls[-1].command
    srun = step.launch.call("srun")
    # The tasks' own shells expand what is in the text or script that srun starts.
    for word in srun.command.words if srun is not None else ():
        place = "by the batch script before srun starts the tasks"
        yield from _early_number(word.raw, word.offset, place)
    shells = _shells_before(step)
    for assignment in shell.assignments:
        reaches_launch = (
            assignment.exported and assignment.offset < last.offset and assignment.inside in shells
        )
        if not reaches_launch:
            continue
        place = f"in the batch script, for {assignment.name}"
        number = _early_number(assignment.raw, assignment.value_offset, place, assignment.name)
        numbers = list(number)
        if numbers and assignment.name not in _ranks_set_again(step):
            yield from numbers


def _early_number(raw: str, offset: int, place: str, variable: str = "") -> Iterator[_EarlyNumber]:
    """The first number in a text that isn't in single quotes."""
    match = None if raw.startswith("'") else _OWN_NUMBERS.search(raw)
    if match:
        yield _EarlyNumber(match[1], offset + match.start(), place, variable, _around(raw, match))


def _ranks_set_again(step: Step) -> tuple[str, ...]:
    """The ranks that a launcher sets for each of its processes, where no command reads another."""
    if not any(call.program in LAUNCHERS for call in step.launch.calls):
        return ()
    raws = [word.raw for command in step.launch.script.commands for word in command.words]
    return tuple(
        name
        for name in _RANKS_OF_PROCESSES
        if not any(re.search(rf"\$\{{?{name}\b", raw) for raw in raws)
    )


def _shells_before(step: Step) -> set[int | None]:
    """The shells that srun inherits from: the batch script's, and those of the scripts around it.

    Each by the command that starts it; None is the batch script's own.
    """
    srun = step.launch.call("srun")
    around = srun.command.inside if srun is not None else None
    shells: set[int | None] = {None}
    while around is not None and around not in shells:
        shells.add(around)
        around = step.launch.script.commands[around].inside
    return shells


def _around(raw: str, match: re.Match[str]) -> str:
    """What is written directly before and behind a variable, up to a blank, a quote or `=`."""
    before = _BREAKS.split(raw[: match.start()])[-1]
    return before + _BREAKS.split(raw[match.end() :].removeprefix("}"))[0]


def _command_of(shell: ShellScript, assignment: Assignment) -> Command | None:
    """The command that an assignment is part of, or that follows it."""
    if assignment.command_index < len(shell.commands):
        return shell.commands[assignment.command_index]
    return None


@blocks.rule(
    "SLM058", ERROR, "launcher", slurm_manual(f"{_OUTPUT}: set if the option is; seen in real jobs")
)
def variables_are_those_that_slurm_sets(request: Request) -> Violations:
    """A SLURM_ variable that the script uses is one that Slurm sets for its options.
    Prevents: An empty word on the launch line: --nproc-per-node without a value. An error where the
    script asks for the same in another way, but for a count of threads, which may be empty; a note
    where sbatch's command line may give the option.
    Fix: give the option, or use a variable that is always set
    """
    set_or_seen = {assignment.name for assignment in request.shell.assignments}
    of_threads = [
        range(assignment.value_offset, assignment.value_offset + len(assignment.raw))
        for assignment in request.shell.assignments
        if assignment.name == _THREADS
    ]
    for name, offset in _used(request.shell):
        options = SET_BY.get(name)
        if options is None or request.has(*options) or name in set_or_seen:
            continue
        set_or_seen.add(name)
        if request.given_when_submitted.intersection(options):
            continue
        state, severity = "may be", NOTE
        if request.has(*_ASKED.get(name, ())):
            state, severity = "is", ERROR
            if any(offset in span for span in of_threads):
                severity = WARNING
        message = (
            f"${name} {state} empty: Slurm sets it only for "
            f"{' or '.join(options[:2])}, which isn't given"
        )
        hint = f"use ${_INSTEAD[name]}" if name in _INSTEAD else f"add #SBATCH {options[0]}"
        yield Violation(request.shell.locate(offset), message, hint, severity=severity)


def _used(shell: ShellScript) -> Iterator[tuple[str, int]]:
    """Variables that are used without a default, in the batch script's own shell."""
    texts: list[tuple[str, int]] = []
    for command in shell.commands:
        is_plain = command.shell is None and not command.guarded
        if is_plain and command.words and command.words[0].value not in _ASKING:
            texts += ((word.raw, word.offset) for word in command.words if "$" in word.raw)
    for assignment in shell.assignments:
        inner = _command_of(shell, assignment)
        is_own = inner is None or inner.shell is None
        if is_own and not assignment.guarded:
            texts.append((assignment.raw, assignment.value_offset))
    for raw, offset in texts:
        if not raw.startswith("'"):
            for match in _USES.finditer(raw):
                yield match[1] or match[2], offset + match.start()


@blocks.rule("SLM019", ERROR, "launcher", slurm_manual(f"{_OUTPUT}: the option's value as given"))
def gpu_counts_are_numbers(request: Request) -> Violations:
    """$SLURM_GPUS_PER_NODE is a number where one is needed: --gpus-per-node has no type.
    Prevents: invalid literal for int(): 'a100:4'.
    Fix: use SLURM_GPUS_ON_NODE"""
    text = request.options.text("--gpus-per-node") or ""
    if ":" not in text:
        return
    for name, offset in _used(request.shell):
        if name == "SLURM_GPUS_PER_NODE":
            message = f"$SLURM_GPUS_PER_NODE is {text}, as in --gpus-per-node, and not a number"
            yield Violation(request.shell.locate(offset), message, "use $SLURM_GPUS_ON_NODE")
