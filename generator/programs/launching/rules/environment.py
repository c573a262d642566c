"""Rules on environment variables of training programs and of NCCL, wherever a submission sets
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from ....catalog.names import closest, most_like
from ....dataclass import dataclass
from ....findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import (
    azureml_examples,
    deepspeed_0_19_8,
    derived,
    listed,
    ml_engineering,
    nccl,
)
from ....submission.launches import Call, Launch
from ....submission.script import LaunchScript
from ....submission.subjects import launches, scripts, subject, submissions
from ....submission.submission import Submission
from ....submission.world import world_of
from ....text.around import folders_above, is_there
from ....text.document import Kind
from ....text.hostfile import EnvironmentFile
from ....text.shell.records import SHELLS, Assignment, Command, ShellScript, Word
from ....text.slips import is_mistyped, is_slip
from ..environment import OF_LAUNCHERS, OF_NCCL, provided, texts_with_variables
from ..launcher_call import LauncherCall
from ..settings import Setting as OfLaunch
from ..settings import settings_of
from ..subjects import commands, deepspeed_calls

#: Assignments with spaces in one script, which stops at the first. A file with more is no script:
#: of 230 public repositories two scripts have one, notes nine.
_MOST_SLIPS: Final = 3
_VARIABLES: Final = tuple(sorted(OF_NCCL["variables"]))
_DEBUG: Final = ("VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE")
_SUBSYSTEMS: Final = (
    "INIT",
    "COLL",
    "P2P",
    "SHM",
    "NET",
    "GRAPH",
    "TUNING",
    "ENV",
    "ALLOC",
    "ALLOC_HOST",
    "CALL",
    "DESTROY",
    "PROXY",
    "NVLS",
    "BOOTSTRAP",
    "REG",
    "PROFILE",
    "RAS",
    "ALL",
)
#: Values by which nobody asks for messages: a name that is none of the subsystems leaves none.
_NO_SUBSYSTEM: Final = frozenset({"off", "none", "no", "false", "0"})
#: Set where the nodes are joined by EFA: NCCL then goes through a plug-in. Source: aws/aws-ofi-nccl
#: README.md
_OF_EFA: Final = frozenset(
    {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "OFI_NCCL_PROTOCOL", "FI_EFA_FORK_SAFE"}
)
#: Likeness of names of which one is taken for a slip of the other; plug-ins have names of their
#: own.
_SLIP: Final = 0.88
_READS: Final[tuple[Kind, ...]] = ("launch script", "AzureML job", "environment file")
_OLD_NAMES: Final = ("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING")
#: What joins the GPUs of a node, by the variable that switches it off.
_FAST_PATHS: Final = {"NCCL_P2P_DISABLE": "NVLink and PCIe", "NCCL_SHM_DISABLE": "shared memory"}
_TORCH: Final = (
    "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, TORCH_NCCL_* @ 2.13.0"
)
_EXAMPLE: Final = azureml_examples("cli/jobs/single-step/gpu_perf/gpu_perf_job.yml:22")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One variable with its value."""

    name: str
    value: str | None  #: None where it can't be known
    where: Location  #: of the name
    where_value: Location


def settings(
    submission: Submission, wanted: Callable[[str], bool], *, with_azureml: bool = True
) -> Iterator[Setting]:
    """Return the environment variables of a `wanted` name that the submission sets.

    They are in the order of its documents. A variable that stays in a script's shell isn't among
    them: no program gets it.
    """
    for script in submission.shell_texts:
        shell = script.shell
        # Asked before places are looked up: long scripts have many other variables.
        assignments = [assignment for assignment in shell.assignments if wanted(assignment.name)]
        leaving = _leaving_the_shell(shell, assignments)
        for assignment in assignments:
            if assignment.name in leaving:
                yield Setting(
                    name=assignment.name,
                    value=assignment.value,
                    where=shell.locate(assignment),
                    where_value=shell.locate(assignment.value_offset),
                )
    if with_azureml:
        for job in submission.of_kind("AzureML job"):
            for name, at, value in job.entries("environment_variables"):
                if isinstance(name, str) and wanted(name):
                    is_plain = isinstance(value, (str, int)) and not isinstance(value, bool)
                    text = str(value) if is_plain and "${{" not in str(value) else None
                    yield Setting(
                        name=name, value=text, where=job.locate_key(at), where_value=job.locate(at)
                    )
    for file in submission.of(EnvironmentFile):
        for line, where in file.lines:
            name, equals, value = line.partition("=")
            if equals and name.isidentifier() and wanted(name):
                yield Setting(name=name, value=value.rstrip(), where=where, where_value=where)


def _leaving_the_shell(shell: ShellScript, assignments: Iterable[Assignment]) -> frozenset[str]:
    """The variables that a script exports, or hands on by their names: `echo "env.NAME=$NAME"`.

    Those are named elsewhere than where the script sets and expands them.
    """
    names = {assignment.name for assignment in assignments}
    exported = {assignment.name for assignment in assignments if assignment.exported}
    if names <= exported:
        return frozenset(names)
    content = shell.text.content
    inside = Counter((*_ANY_EXPANSION.findall(content), *_ASSIGNED.findall(content)))
    named = Counter(_WORD.findall(content))
    return frozenset(name for name in names if name in exported or named[name] > inside[name])


def settings_with_values(
    submission: Submission, *names: str, with_azureml: bool = True
) -> Iterator[tuple[Setting, str]]:
    """The settings of these variables whose value is known, each with its value."""
    for setting in settings(submission, names.__contains__, with_azureml=with_azureml):
        if setting.value is not None:
            yield setting, setting.value


@subject("launch script", "AzureML job", "environment file")
def nccl_settings(submission: Submission) -> Iterator[Setting]:
    """Variables that begin with NCCL_, wherever they are set."""
    return settings(submission, lambda name: name.startswith("NCCL_"))


#: Variables without which training goes another way, so that one that stays in the script's shell
#: is a slip. Not CUDA_LAUNCH_BLOCKING: training is better off without it.
_FOR_TRAINING: Final = lazy_pattern(
    r"(?:NCCL|TORCH_NCCL|PYTORCH|WANDB|TOKENIZERS|UCX|NVTE|TRITON|HF_(?:HUB|DATASETS))_[A-Z0-9_]+"
    r"|HF_(?:HOME|TOKEN|ENDPOINT)|TRANSFORMERS_(?:CACHE|OFFLINE)|DS_ACCELERATOR"
    r"|CUDA_(?:VISIBLE_DEVICES|DEVICE_MAX_CONNECTIONS|DEVICE_ORDER)"
    r"|OMP_NUM_THREADS|LD_LIBRARY_PATH"
)
#: Variables that DeepSpeed's launcher sends to the nodes. Source: runner.py:37,
#: cuda_accelerator.py:412 @ 0.19.8
_SENT: Final = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
#: Variables that training reads on every node; others may be for the script alone.
_READ: Final = lazy_pattern(
    r"(?:WANDB|HF|TRANSFORMERS|HUGGINGFACE|TORCH|PYTORCH|CUDA|CUBLAS|NVTE|OMP|MKL|TOKENIZERS|DS"
    r"|DEEPSPEED|TRITON|GLOO|FI|LD|XLA|TE|FLASH|NVIDIA)_\w+"
)
#: Variables of bash (bash(1), Shell Variables), of a login (environ(7)), and of schedulers, MPI and
#: clusters, Slurm's among them. Sources: sbatch(1), OUTPUT ENVIRONMENT VARIABLES; the docs of each
#: other one
_GIVEN_TO_JOBS: Final = lazy_pattern(
    r"(?:BASH|COMP|SLURM|SLURMD|PBS|LSB|COBALT|FLUX|OMPI|PMI|PALS|AZ|AZUREML|SKYPILOT|KUBERNETES"
    r"|PET|SM|VC|MLP|CUDA|CONDA|HF|XDG|LC)_"
    r"|(?:BASH|BASHPID|COLUMNS|COPROC|DIRSTACK|EPOCHREALTIME|EPOCHSECONDS|EUID|FUNCNAME|GROUPS|HOME"
    r"|HOSTNAME|HOSTTYPE|IFS|LANG|LINENO|LINES|LOGNAME|MACHTYPE|MAIL|MAPFILE|OLDPWD|OPTARG|OPTIND"
    r"|OSTYPE|PATH|PIPESTATUS|PPID|PWD|RANDOM|REPLY|SCRATCH|SECONDS|SHELL|SHELLOPTS|SHLVL|SRANDOM"
    r"|TERM|TMPDIR|UID|USER|VIRTUAL_ENV|WORK)$"
)
#: These and the variables of process groups, which other schedulers set, and Slurm does not.
_GIVEN_ELSEWHERE: Final = lazy_pattern(
    _GIVEN_TO_JOBS.pattern
    + r"|(?:MASTER_ADDR|MASTER_PORT|(?:LOCAL_)?(?:WORLD_SIZE|RANK)|NODE_RANK|NNODES|NUM_NODES)$"
)
_LONG: Final = 6  # letters of a name of which few others are a slip
_EXPANDED: Final = lazy_pattern(r"\$\{?(\w+)")
#: A variable without a default.
_PLAIN: Final = lazy_pattern(r"(?<!\\)\$(?:([A-Za-z_]\w+)|\{([A-Za-z_]\w+)\})")
#: A word that is a command's output: `$(cat .env)`. Not of conda's or mamba's hooks.
_SUBSTITUTED: Final = lazy_pattern(r'"?(?:\$\(|`)(?!.*(?:conda|mamba)\b)')
_WORD: Final = lazy_pattern(r"\w+")
_QUOTED: Final = lazy_pattern(r"'[^']*'")
#: `$NAME`, `${NAME...`; and `NAME=` at the beginning of a command, or made local.
_ANY_EXPANSION: Final = lazy_pattern(r"\$\{?[#!]?([A-Za-z_]\w*)")
_ASSIGNED: Final = lazy_pattern(
    r"(?:^|[;)]|\b(?:then|do|else|local)\b)[ \t]*([A-Za-z_]\w*)\+?=", re.MULTILINE
)
#: An assignment to what is no name: `MODEL-DIR=/data`, `2ND=x`.
_BAD_NAME: Final = lazy_pattern(r"(?![A-Za-z_]\w*\+?=)(\w[\w-]*)=(?!=)")
#: Values of `--device` and `--backend` by which ranks need no GPU, also behind an equals sign.
_ON_CPUS: Final = frozenset(
    value for name in ("cpu", "gloo") for value in (name, f"--device={name}", f"--backend={name}")
)
#: Variables of CANN and torch_npu: HCCL_CONNECT_TIMEOUT, ASCEND_RT_VISIBLE_DEVICES.
_ASCEND: Final = lazy_pattern(r"(?<![\w$#])(?:HCCL|ASCEND)_[A-Z]\w*=")
_BLOCKING: Final = derived("CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING")
_EXPORTS: Final = deepspeed_0_19_8(
    "launcher/runner.py:37 and 598, main; accelerator/cuda_accelerator.py:412"
)


@submissions.rule("ENV004", WARNING, "silent", _BLOCKING, reads=("launch script",))
def kernels_are_not_waited_for(submission: Submission) -> Violations:
    """CUDA_LAUNCH_BLOCKING is off in training.
    Prevents: Training at a fraction of its speed. A note in a script or job that calls itself
    `debug`.
    Fix: remove it"""
    meant = {script.path for script in submission.scripts if script.is_for_debugging}
    # AML015 judges the variables of AzureML jobs.
    for setting, value in settings_with_values(
        submission, "CUDA_LAUNCH_BLOCKING", with_azureml=False
    ):
        # Ascend's runtime doesn't read it.
        if value == "1" and not _is_for_ascend(submission, setting.where.path):
            message = (
                "CUDA_LAUNCH_BLOCKING=1 waits for every kernel: much slower, and "
                "meant for debugging"
            )
            severity = NOTE if setting.where.path in meant else None
            yield Violation(setting.where, message, "remove it", severity=severity)


def _is_for_ascend(submission: Submission, path: str) -> bool:
    """Whether a file sets what the runtime of Ascend NPUs reads, and CUDA doesn't."""
    text = submission.texts.get(path)
    return text is not None and _ASCEND.search(text.content) is not None


@commands.rule(
    "ENV001", NOTE, "silent", derived("bash(1), ENVIRONMENT: only exported variables are passed on")
)
def variables_are_exported(script: LaunchScript) -> Violations:
    """A variable that the training program reads is exported; so is one that another shell of the
    script expands.
    Prevents: The setting has no effect, or the option no value. A note, as the environment may have
    exported it before.
    Fix: export it
    """
    shell, content = script.shell, script.shell.text.content
    if (
        not script.launches
        or shell.unterminated is not None
        or "set -a" in content
        or "allexport" in content
    ):
        return
    exported = {assignment.name for assignment in shell.assignments if assignment.exported}
    exported |= {name for launch in script.launches for name in launch.environment}
    used_by_shells = {
        name for launch in script.launches for name in _expanded_by_another_shell(launch)
    }
    first_launch = script.launches[0].calls[0].command
    for assignment in shell.assignments:
        name = assignment.name
        is_late = assignment.offset > first_launch.offset
        if is_late or assignment.exported or name in exported:
            continue
        # What the script itself expands is asked last: few variables get so far.
        is_for_training = _FOR_TRAINING.fullmatch(name) and name not in _EXPANDED.findall(content)
        if name in used_by_shells or is_for_training:
            reader = "`bash -c`" if name in used_by_shells else "the training program"
            message = (
                f"{name} is set without export: {reader} doesn't get it, "
                "if nothing exported it before"
            )
            yield Violation(shell.locate(assignment), message, f"export {name}={assignment.raw}")


def _expanded_by_another_shell(launch: Launch) -> Iterator[str]:
    """Return the variables that another shell expands and nothing sets there.

    They are in a text in single quotes that srun or the script hands to that shell.
    """
    for command in (call.command for call in launch.calls if call.command.single_quoted):
        outer = launch.script.commands[command.inside or 0]
        if outer.words[0].value != "srun" and outer.words[0].value not in SHELLS:
            continue
        set_there = {
            assignment.name
            for assignment in launch.script.assignments
            if assignment.inside == outer.index
        }
        # This shell itself expands what is beside the text in single quotes, and what the text has
        # between quotes of its own.
        text = command.shell or ""
        beside = [word.raw for word in outer.words if word.raw != text]
        read_here = (_QUOTED.sub("", text), *beside)
        named_here = {name for part in read_here for name in _WORD.findall(part)}
        expanded = {name for word in command.words for name in _EXPANDED.findall(word.raw)}
        yield from expanded - set_there - named_here


@commands.rule("ENV002", ERROR, "launcher", derived("bash(1), PARAMETERS: name=[value]"))
def assignments_have_no_spaces(script: LaunchScript) -> Violations:
    """An assignment has no spaces around its equals sign, and a name of letters, digits and
    underscores.
    Prevents: export: `=': not a valid identifier; MODEL-DIR=/data: command not found; the variable
    is empty. A warning where the job does without.
    Fix: remove the spaces; write the name with underscores
    """
    spaced, content = list[Violation](), script.shell.text.content
    for command in script.shell.commands:
        exports = bool(command.words) and command.words[0].value == "export"
        yield from _bad_names(script.shell, command, exports=exports)
        words = command.words[1:] if exports else command.words
        if len(words) < 2 or words[1].value != "=" or len(command.words) < 3:
            continue
        name, value = words[0].value or "None", words[2].raw if len(words) > 2 else ""
        is_used = name.isidentifier() and name in _EXPANDED.findall(content)
        if exports or is_used or re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            message = (
                f"{name} = {value}: bash accepts no spaces around the equals "
                "sign, so nothing is set"
            )
            severity = ERROR if exports or _is_needed(name, script.shell) else WARNING
            where, hint = script.shell.locate(command), f"export {name}={value}"
            spaced.append(Violation(where, message, hint, severity=severity))
    if len(spaced) <= _MOST_SLIPS:
        yield from spaced


#: Commands without which a job goes on: they print, test, or make folders.
_BESIDE_THE_JOB: Final = frozenset({"echo", "printf", "[", "[[", "test", ":", "mkdir", "ls"})


def _is_needed(name: str, shell: ShellScript) -> bool:
    """Whether a command that does the job's work, or another variable, has a variable's value."""
    if any(name in _EXPANDED.findall(assignment.raw) for assignment in shell.assignments):
        return True
    users = (
        command.words[0].value
        for command in shell.commands
        if any(name in _EXPANDED.findall(word.raw) for word in command.words)
    )
    return any(user not in _BESIDE_THE_JOB for user in users)


def _bad_names(shell: ShellScript, command: Command, *, exports: bool) -> Violations:
    """The assignments of a command to names that no variable can have."""
    for word in command.words[1:] if exports else command.words[:1]:
        match = _BAD_NAME.match(word.raw)
        if match and (exports or word.offset == command.offset):
            name = match[1]
            message = (
                f"{name} is no name of a variable: bash takes the assignment for a "
                "command, and sets nothing"
            )
            valid_name = re.sub(r"\W", "_", name)
            yield Violation(shell.locate(word), message, f"write {valid_name}=...")


@scripts.rule(
    "ENV005",
    NOTE,
    "launcher",
    derived("bash(1), EXPANSION: a variable that is unset expands to nothing"),
)
def variables_are_set(script: LaunchScript) -> Violations:
    """A variable that a launch line names is set in the script, or comes from where it is started.
    Prevents: An option without its value, which takes the next one for it. A note, as the
    environment may have it.
    Fix: set it; or write ${NAME:?}, which stops where it is unset
    """
    shell = script.shell
    if any(map(_sets_others, shell.commands)):
        return
    # Without any assignment all of them are for whoever starts it to set, but those in small
    # letters, which are a script's own. Source: POSIX, Base Definitions, 8.1
    begin_commands = {command.words[0].value for command in shell.commands if command.words}
    unset_words = {
        name: word
        for name, word in _unset(script).items()
        if _meant(name, shell) is None
        and (shell.assignments or (name.islower() and name not in begin_commands))
    }
    if unset_words:
        names = ", ".join(unset_words)
        message = (
            f"the script doesn't set {names}: unless the environment does, the line gets "
            "nothing in its place"
        )
        yield Violation(
            shell.locate(next(iter(unset_words.values()))),
            message,
            "set it in the script, or write ${NAME:?}",
        )


def _unset(script: LaunchScript) -> dict[str, Word]:
    """The variables of launch lines that the script doesn't set, and that nothing is known to give;
    each with the first word that has it.
    """
    shell = script.shell
    if shell.unterminated is not None:
        return {}
    words = (
        word for launch in script.launches for call in launch.calls for word in call.command.words
    )
    given_to_job = _GIVEN_TO_JOBS if shell.directives else _GIVEN_ELSEWHERE
    unset_words = dict[str, Word]()
    for word in words:
        variables = {name for name in word.variables if name.isidentifier()}
        for name in _EXPANDED.findall(word.raw) if variables else ():
            if name not in variables or name in unset_words:
                continue
            is_set = name in shell.history or name in shell.set_inside
            if not is_set and not given_to_job.match(name):
                unset_words[name] = word
    if unset_words:
        for name in provided(shell):
            unset_words.pop(name, None)
    return unset_words


@scripts.rule(
    "ENV006",
    ERROR,
    "launcher",
    derived("bash(1), EXPANSION: a variable that is unset expands to nothing"),
)
def variables_have_no_slip(script: LaunchScript) -> Violations:
    """A variable that a script names is spelled as where it is set: in the script, or by what
    starts its ranks.
    Prevents: An option without its value, which takes the next one for it. A warning where the name
    of a launch line is another word than the script's own, as the environment may have both.
    Fix: write the name as it is set
    """
    shell = script.shell
    unset_words = _unset(script)
    for name, word in unset_words.items():
        meant = _meant(name, shell)
        if meant is not None:
            is_mistake = is_mistyped(name, meant) and _is_named_once(name, shell)
            # `$PART_$NUMBER` in the name of a file: what reads the file may well do the same.
            is_joined = name == f"{meant}_"
            is_certain = meant in OF_LAUNCHERS or is_mistake or _is_unused(meant, shell)
            setter = "" if meant in OF_LAUNCHERS else f", and the script sets {meant}"
            yield Violation(
                shell.locate(word),
                f"nothing sets {name}{setter}: the line gets nothing in its place",
                f"did you mean {meant}?",
                severity=NOTE if is_joined else ERROR if is_certain else WARNING,
            )
    for name, meant, offset in _mistyped(script, unset_words):
        message = f"nothing sets {name}, and the script sets {meant}: here is nothing in its place"
        yield Violation(shell.locate(offset), message, f"did you mean {meant}?")


def misspelt_uses(script: LaunchScript) -> frozenset[str]:
    """The names in launch lines that are slips of what a script sets, or the other way round."""
    names = _unset(script)
    return frozenset(name for name in names if _meant(name, script.shell) is not None)


def _mistyped(script: LaunchScript, known: Container[str]) -> Iterator[tuple[str, str, int]]:
    """Variables of other lines that nothing sets and that are mistyped: with those that are meant,
    and where they are.
    """
    shell = script.shell
    if shell.unterminated is not None or not script.launches:
        return
    own = {one.name for one in shell.assignments if len(one.name) >= _LONG}
    set_again = _set_again(shell)
    told = set[str]()
    for raw, offset in texts_with_variables(shell) if own else ():
        for match in _PLAIN.finditer(raw):
            name = match[1] or match[2]
            is_set = name in shell.history or name in shell.set_inside or name in own
            if is_set or name in told or name in known or len(name) < _LONG:
                continue
            told.add(name)
            at = offset + match.start()
            itself = set_again.get(at) or set_again.get(at - 1) or ""  # behind a quote
            # Other names on purpose are `NODE=$NODES`, and `COMPILE=$_COMPILE`.
            is_parted = name.replace("_", "") == itself.replace("_", "")
            is_itself = name[-1] == itself[-1:] and not is_parted and is_slip(name, itself)
            meant = next((other for other in own if is_mistyped(name, other)), None)
            if meant is None and is_itself:
                meant = itself
            if meant is not None and _is_named_once(name, shell):
                yield name, meant, at


def _set_again(shell: ShellScript) -> dict[int, str]:
    """The variables that are set above too, as by `export X=$X`, by the place of their value."""
    set_above, again = set[str](), dict[int, str]()
    for assignment in shell.assignments:
        if assignment.name in set_above:
            again[assignment.value_offset] = assignment.name
        set_above.add(assignment.name)
    return again


def _is_named_once(name: str, shell: ShellScript) -> bool:
    """Whether a script, with those that it calls, names a variable in one place alone."""
    return sum(len(re.findall(rf"\b{name}\b", text.content)) for text in shell.texts) == 1


def _is_unused(name: str, shell: ShellScript) -> bool:
    """Whether nothing expands a variable that a script sets for itself."""
    if any(assignment.exported for assignment in shell.assignments if assignment.name == name):
        return False
    expansion = re.compile(rf"\$(?:{name}\b|\{{#?!?{name}\b)|\(\([^()\n]*\b{name}\b")
    return not any(expansion.search(text.content) for text in shell.texts)


def _meant(name: str, shell: ShellScript) -> str | None:
    """The variable of which a name is a slip: one of the launchers', or of the script's own."""
    assigned = (assignment.name for assignment in shell.assignments)
    long_names = (other for other in assigned if len(other) >= _LONG)
    with_single_underscores = name.replace("__", "_")
    for other in (*OF_LAUNCHERS, *long_names):
        if other != name and (is_slip(name, other) or other == with_single_underscores):
            return other
    return None


def _sets_others(command: Command) -> bool:
    """Return whether a command sets variables that can't be known.

    Examples are `source .env` and `export $(cat .env)`.
    """
    first, *words = command.run
    if first.value not in ("eval", "export", "declare"):
        return first.value in ("source", ".")
    # conda's hook sets variables of its own alone.
    return any(_SUBSTITUTED.match(word.raw) for word in words)


@launches.rule("ENV003", ERROR, "init", derived("each rank takes the GPU of its LOCAL_RANK"))
def devices_are_as_many_as_ranks(launch: Launch) -> Violations:
    """CUDA_VISIBLE_DEVICES has a GPU for each of the node's ranks.
    Prevents: CUDA error: invalid device ordinal; two ranks on one GPU. A warning where
    accelerate's own configuration, of the user, or a file that isn't here, may name more machines.
    Fix: show as many GPUs as there are ranks
    """
    visible = launch.environment.get("CUDA_VISIBLE_DEVICES")
    torchrun, accelerate = launch.call("torchrun"), launch.call("accelerate")
    severity = ERROR
    option = "--nproc-per-node"
    ranks = torchrun.options.integer(option) if torchrun else None
    if accelerate is not None and not accelerate.has("--cpu"):
        is_on_one = accelerate.options.integer("--num_machines") == 1
        has_config = accelerate.has("--config_file") and not _is_config_gone(launch, accelerate)
        if is_on_one or not (accelerate.has("--num_machines") or has_config):
            option = "--num_processes"
            ranks = accelerate.options.integer(option)
            severity = ERROR if is_on_one else WARNING
    variable = _ranks_by_variable(launch)
    if variable is not None and ranks is None:
        ranks, option = variable.number, variable.name
    if visible is None or visible.value is None or ranks is None:
        return
    if any(word.parts and word.parts[-1] in _ON_CPUS for word in launch.arguments):
        return
    where = launch.script.locate(visible.value_offset)
    if _is_before_step(launch, where):
        return  # Slurm sets it anew for the tasks of a step
    devices = [part for part in visible.value.split(",") if part.strip()]
    if devices and ranks > len(devices):
        message = f"CUDA_VISIBLE_DEVICES={visible.value} shows {len(devices)} GPUs to {ranks} ranks"
        hint = f"write {option}={len(devices)}, or show {ranks} GPUs"
        yield Violation(where, message, hint, severity=severity)


def _is_before_step(launch: Launch, where: Location) -> bool:
    """Tell whether a place is before the srun that starts a launch, in the same script."""
    srun = launch.call("srun")
    return (
        srun is not None
        and srun.where.path == where.path
        and (where.line or 0, where.column or 0) < (srun.where.line or 0, srun.where.column or 0)
    )


def _is_config_gone(launch: Launch, started: Call) -> bool:
    """Whether the config that a call of accelerate names isn't there."""
    path = started.options.text("--config_file")
    folders = folders_above(launch.script.text.path)
    return path is not None and not any(is_there(folder / path) for folder in folders)


def _ranks_by_variable(launch: Launch) -> OfLaunch | None:
    """The ranks of a node that a front end starts by a variable of its launch: NPROC_PER_NODE."""
    settings = settings_of(launch)
    if settings is None or "per_node" not in settings.front_end.settings:
        return None
    setting = settings.get("per_node")
    return setting if setting is not None and setting.name.isupper() and setting.where else None


@deepspeed_calls.rule("LNCH010", WARNING, "silent", _EXPORTS)
def variables_reach_the_nodes(call: LauncherCall) -> Violations:
    """A variable that training reads is one that deepspeed sends to the other nodes.
    Prevents: Nodes that train with other settings than the first. A note where a job may do
    without.
    Fix: put it into ~/.deepspeed_env, or use srun, which exports everything
    """
    if not call.has("--hostfile") or call.has("--no_ssh") or call.nodes == 1:
        return
    files = call.submission.of(EnvironmentFile)
    sent = {line.partition("=")[0] for file in files for line, _ in file.lines}
    # launch.py, which the launcher runs on every node, sets this one anew.
    sent.add("CUDA_VISIBLE_DEVICES")
    for name, assignment in call.launch.environment.items():
        if name in sent or name.startswith(_SENT) or not _READ.fullmatch(name):
            continue
        message = (
            f"{name} is not sent to the other nodes: deepspeed sends only "
            f"{', '.join(_SENT)} variables"
        )
        hint = f"write {name}=VALUE into ~/.deepspeed_env"
        # Megatron's tensor parallelism stops without this one; without others a job may well do.
        is_needed = name == "CUDA_DEVICE_MAX_CONNECTIONS"
        stops = is_needed and call.submission.has("Megatron arguments")
        severity = WARNING if stops else NOTE
        yield Violation(call.shell.locate(assignment), message, hint, severity=severity)


@submissions.rule(
    "NCCL001", ERROR, "init", ml_engineering("network/debug/README.md:125"), reads=_READS
)
def interface_reaches_the_nodes(submission: Submission) -> Violations:
    """NCCL_SOCKET_IFNAME names a network interface that joins the nodes.
    Prevents: Bootstrap : no socket interface found; or a hang.
    Fix: write the cluster's interface"""
    for setting, value in settings_with_values(
        submission, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
    ):
        names = {name.strip() for name in value.lstrip("=").split(",")}
        if not value or value.startswith("^") or not names <= {"lo", "docker0", ""}:
            continue
        nodes = world_of(submission).nodes
        if nodes != 1:
            message = f"{setting.name}={value} joins no two nodes"
            hint = (
                "write the cluster's interface, such as eth0 or ib0, or "
                "^lo,docker for all but these"
            )
            yield Violation(setting.where_value, message, hint, severity=ERROR if nodes else NOTE)


@submissions.rule("NCCL002", WARNING, "silent", _EXAMPLE, reads=_READS)
def infiniband_is_used(submission: Submission) -> Violations:
    """NCCL_IB_DISABLE is not set where the nodes are joined by InfiniBand.
    Prevents: Gradients at a tenth of the network's speed. A note where the machines aren't known.
    Fix: remove it"""
    disabling = [
        setting
        for setting, value in settings_with_values(submission, "NCCL_IB_DISABLE")
        if value == "1"
    ]
    if not disabling:
        return
    cluster, nodes = submission.cluster, world_of(submission).nodes
    if nodes is not None and nodes <= 1:
        return
    if cluster and cluster.network.lower() not in ("infiniband", "roce"):
        return
    tail = ", also where there is InfiniBand"
    if cluster:
        tail = f", and {cluster.name} has {cluster.network}"
    message = f"NCCL_IB_DISABLE=1 sends everything between nodes over TCP{tail}"
    severity = WARNING if cluster else NOTE
    on_efa = {setting.where.path for setting in settings(submission, _OF_EFA.__contains__)}
    for setting in disabling:
        if setting.where.path not in on_efa:
            yield Violation(setting.where, message, "remove it", severity=severity)


@submissions.rule("NCCL003", NOTE, "init", _TORCH, reads=_READS)
def names_are_todays(submission: Submission) -> Violations:
    """Variables of PyTorch's process group have their current names: TORCH_NCCL_...
    Prevents: A deprecation warning from every rank; later no effect at all.
    Fix: put TORCH_ before the name"""

    def is_renamed(name: str) -> bool:
        return name.removeprefix("TORCH_").removeprefix("NCCL_") in _OLD_NAMES

    renamed = list(settings(submission, is_renamed))
    names = {setting.name for setting in renamed}
    for setting in renamed:
        if f"TORCH_{setting.name}" not in names and setting.name.startswith("NCCL_"):
            message = (
                f"{setting.name} is PyTorch's old name of TORCH_{setting.name}: it "
                "warns, or has no effect"
            )
            yield Violation(setting.where, message, f"use TORCH_{setting.name}")


@nccl_settings.rule("NCCL004", WARNING, "silent", nccl("src/debug.cc:48 to 77"))
def subsystems_exist(setting: Setting) -> Violations:
    """NCCL_DEBUG_SUBSYS lists subsystems of NCCL.
    Prevents: The messages one asked for are not printed.
    Fix: use subsystems that NCCL has"""
    if setting.name != "NCCL_DEBUG_SUBSYS" or not setting.value:
        return
    if setting.value.lower() in _NO_SUBSYSTEM:
        return
    for name in map(str.strip, setting.value.lstrip("^").split(",")):
        if name and name.upper() not in _SUBSYSTEMS:
            near = closest(name, [subsystem.lower() for subsystem in _SUBSYSTEMS])
            message = (
                f"NCCL_DEBUG_SUBSYS={setting.value}: {name} is not a subsystem of "
                "NCCL, so it is ignored"
            )
            hint = f"did you mean {near.upper()}?" if near else "use subsystems such as INIT,NET"
            yield Violation(setting.where_value, message, hint)


@nccl_settings.rule("NCCL005", WARNING, "silent", nccl("src/debug.cc:48 to 77"))
def debug_level_exists(setting: Setting) -> Violations:
    """NCCL_DEBUG is a level that NCCL has.
    Prevents: No messages at all.
    Fix: use WARN or INFO"""
    # a file of variables may have the quotes; empty: no messages on purpose
    level = (setting.value or "").strip("\"'")
    if setting.name == "NCCL_DEBUG" and level and level.upper() not in _DEBUG:
        message = f"NCCL_DEBUG={setting.value} is not a level of NCCL's: it prints nothing"
        yield Violation(setting.where_value, message, f"use {listed(_DEBUG[:3])}")


@nccl_settings.rule("NCCL006", WARNING, "silent", nccl("src/**/*.cc, NCCL_PARAM and ncclGetEnv"))
def variables_of_nccl_exist(setting: Setting) -> Violations:
    """A variable that begins with NCCL_ is one that NCCL reads.
    Prevents: A setting without effect.
    Fix: correct the name"""
    name = setting.name
    gone = OF_NCCL["gone"].get(name)
    if gone is not None:
        message = f"NCCL has no variable {name} since {gone['release']}, so it is ignored"
        yield Violation(setting.where, message, f"remove it; NCCL has {gone['instead']}")
        return
    near = None if name in _VARIABLES else most_like(name, _VARIABLES, _SLIP)
    if near:
        yield Violation(
            setting.where, f"NCCL has no variable {name}, so it is ignored", f"did you mean {near}?"
        )


@nccl_settings.rule("NCCL007", NOTE, "silent", nccl("src/transport/p2p.cc and shm.cc"))
def fast_paths_are_on(setting: Setting) -> Violations:
    """Peer-to-peer and shared memory of NCCL are not switched off.
    Prevents: Training at a fraction of its speed. A note, as some machines need it.
    Fix: remove it"""
    path = _FAST_PATHS.get(setting.name)
    if path and setting.value == "1":
        message = f"{setting.name}=1 keeps NCCL from {path} within a node: slower, and meant for "
        yield Violation(setting.where, f"{message}debugging", "remove it")
