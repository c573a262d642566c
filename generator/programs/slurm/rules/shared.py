"""Rules on what jobs and concurrent launch lines share: ports, logs, folders, checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Location, Severity, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import deepspeed_0_19_8, slurm_manual
from ....submission.launches import Call, Launch
from ....submission.repository import program_of, program_text, texts_of
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....submission.world import FLAGS, world_of
from ....text.around import folders_above, is_left_out, is_there, text_around
from ....text.options import Argument
from ....text.shell.background import in_background
from ....text.shell.reader import read_script
from ....text.shell.records import Command, ShellScript, Word
from ....text.text import Text
from ...launching.folders import folders_to_save
from ...launching.launcher_call import ON_EVERY_NODE, Port, accelerate_config, fixed_port
from ...launching.own_options import parses_classes, valued_options
from ..request import Request
from ..subjects import blocks
from ..submit_line import submitting_folders

_TOP: Final = lazy_pattern(r"(?:\.\./)*[^/]*")  # of a folder, as far as one mkdir makes it
#: Patterns of a file's name that sbatch or a task fills in. Source: sbatch(1), filename pattern.
_OF_THE_JOB: Final = lazy_pattern(r"%[0-9]*[AaJjNnst]")
#: Words of a comment that says that a folder has to be there.
_FOLDER: Final = lazy_pattern(r"\b(?:mkdir|folder|directory)\b")
_SCRIPTS: Final = ("*.sh", "*.bash", "*/*.sh")
#: Files that say or do what comes before a job; an image's definition has a text for its users.
_SETS_UP: Final = ("README*", "*.md", "*.rst", "Makefile", "*.def", "*.sh", "*.bash")
_JOBS: Final = ("*.sh", "*.bash", "*.sbatch", "*.slurm")
_FAILED_JOB: Final = slurm_manual(
    "seen in a real job: state FAILED, exit code 0:53, and no line of the script run"
)


@submissions.rule("SLM020", WARNING, "launcher", _FAILED_JOB, reads=("launch script",))
def log_folder_exists(submission: Submission) -> Violations:
    """The folder of the job's log exists before the job starts.
    Prevents: A job that fails at once, without a log that says why. A note where a comment, a
    README or a script that sets up makes it, or .gitignore names it: its owner has it.
    Fix: run mkdir -p for the folder before sbatch"""
    for request in blocks(submission):
        seen, path = set[str](), request.shell.text.path
        for log in request.texts("--output", "--error"):
            folder = _folder_of(log.value)
            exists = submission.files.has_folder(folder, path)
            if not folder.strip("./") or folder in seen or exists or _is_elsewhere(log.value, path):
                continue
            seen.add(folder)
            given = set(map(_folder_of, request.given_values(log.name)))
            is_replaced = bool(given) and folder not in given
            is_made = _made_before(folder, path) or _made_by_writer(folder, log)
            if not (is_replaced or is_made or _is_where_submitted(folder, path)):
                yield _missing_log_folder(request, log, folder)


def _is_elsewhere(log: str, script: str) -> bool:
    """Whether a log's path leaves the project, wherever in it the job is submitted."""
    if log.startswith(("/", "~")):
        return True
    levels = len(list(folders_above(script)))
    return 0 < levels <= PurePosixPath(os.path.normpath(log)).parts.count("..")


def _folder_of(log: str) -> str:
    """The folder of a log's path; empty for a file's name alone."""
    return log.rpartition("/")[0].removeprefix("./")


def _missing_log_folder(request: Request, log: Argument[str], folder: str) -> Violation:
    path = request.shell.text.path
    made = _folders_made(request.shell)
    late = any(f"/{word.value}".rstrip("/").endswith(f"/{folder}") for word in made)
    tail = "the script's mkdir comes too late" if late else "sbatch doesn't create it"
    message = (
        f"{log.command} {log.name} is in the folder {folder}: without it the job fails at its "
        f"start, with no log; {tail}"
    )
    top = _TOP.match(folder)[0]  # type: ignore[index]  # it always matches
    is_left_to_git = any(is_left_out(place.replace("../", ""), path) for place in (top, folder))
    is_of_site = request.has("--chdir")
    own_lines = request.shell.text.lines
    is_told = (
        _has_remark(log, own_lines)
        or _is_told(folder, own_lines)
        or any(
            _is_told(folder, text.splitlines())
            for text in texts_of(Path(path).parent, _JOBS, folder)
        )
    )
    may_exist = is_told or is_of_site or is_left_to_git or _is_set_up(folder, path)
    return log.bad_value(message, _how_to_make(folder, top), severity=NOTE if may_exist else None)


def _how_to_make(folder: str, top: str) -> str:
    """How to have a folder before the job starts; none can be made that has the job's number."""
    match = _OF_THE_JOB.search(folder)
    if match:
        return f"leave {match[0]} to the file's name: nobody can make the folder before sbatch"
    is_plain = folder == top and re.fullmatch(r"[\w./-]+", folder)
    return f"run mkdir -p {folder if is_plain else 'for the whole folder'} before sbatch"


def _is_told(folder: str, lines: Sequence[str]) -> bool:
    """Return whether a comment tells to make a folder, or that it has to be there."""
    comment = re.compile(rf"#(?!SBATCH\b).*(?<![\w./-]){re.escape(folder)}(?!/?[\w.%-])")
    matches = filter(None, map(comment.search, lines))
    return any(_FOLDER.search(match.string, match.start()) for match in matches)


def _has_remark(log: Argument[str], lines: Sequence[str]) -> bool:
    """Whether the directive of a log says itself, behind its value, that a folder has to be there.

    Such a remark may call the folder by another name.
    """
    line = log.where.line or 0
    directive = lines[line - 1] if 0 < line <= len(lines) else ""
    return bool(_FOLDER.search(directive.partition(log.value)[2].partition("#")[2]))


def _made_before(folder: str, script: str) -> bool:
    """Return whether another script makes a folder before it submits `script`."""
    mkdir = rf"\bmkdir\b[^\n]*(?<![\w.-]){re.escape(folder)}(?![\w.-])"
    mkdir_before_sbatch = re.compile(rf"{mkdir}[\s\S]*^[^#\n]*\bsbatch\b", re.MULTILINE)
    name = PurePosixPath(script).name
    own = text_around(Path(script), Path(script).parent)
    return any(
        # What the job itself makes comes too late, unless it is made before it submits itself.
        mkdir_before_sbatch.search(text) or (text != own and _makes(folder, _shell(text)))
        for above in folders_above(script)
        for text in texts_of(above, _SCRIPTS, "sbatch")
        if "mkdir" in text and name in text
    )


def _made_by_writer(folder: str, log: Argument[str]) -> bool:
    """Return whether the script that writes a job from a here-document makes the job's folder."""
    job = log.shell.heredoc_at(log.option.written.offset)
    if job is None:
        return False
    folders = (word for word in _folders_made(log.shell) if word.offset not in job.span)
    return any(map(_pattern_of(folder).fullmatch, map(_path_of, folders)))


def _is_where_submitted(folder: str, script: str) -> bool:
    """Return whether a folder is in each one from which scripts of others submit `script`."""
    starts = submitting_folders(script)
    return bool(starts) and all(is_there(start / folder) for start in starts)


def _shell(content: str) -> ShellScript:
    """A text as a script."""
    return read_script(Text(path="", content=content, lines=content.splitlines()))


def _makes(folder: str, shell: ShellScript) -> bool:
    """Return whether a script makes a folder, by a name of which variables may be a part."""
    return any(map(_pattern_of(folder).fullmatch, map(_path_of, _folders_made(shell))))


def _folders_made(shell: ShellScript) -> Iterator[Word]:
    """The words that name the folders which a script makes."""
    for command in shell.commands:
        if command.words[0].value == "mkdir":
            yield from command.words[1:]


def _pattern_of(folder: str) -> re.Pattern[str]:
    """A pattern of the paths that may be a folder of a log; the job fills in its %j."""
    return re.compile(rf"(?:.*/)?{re.sub('%[a-zA-Z]', '[^/]+', re.escape(folder))}/?", re.DOTALL)


def _path_of(word: Word) -> str:
    """A path with a question mark for each variable."""
    return "".join(part or "?" for part in word.parts)


def _is_set_up(folder: str, script: str) -> bool:
    """Return whether prose or a script that is no job makes a folder, around a job's script."""
    mkdir = re.compile(
        rf"^[^#\n]*\bmkdir\b[^\n]*(?<![\w.-]){re.escape(folder)}(?![\w.-])", re.MULTILINE
    )
    return any(
        "#SBATCH" not in text and mkdir.search(text)
        for above in folders_above(script)
        for text in texts_of(above, _SETS_UP, "mkdir")
    )


#: Variables in which the jobs of an array differ.
_OF_EACH_JOB: Final = ("SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURM_JOBID")
#: An agent of a sweep, which a server gives other settings each time.
_ASKS_FOR_WORK: Final = lazy_pattern(r"^[^#\n]*\bwandb[ \t]+agent\b|\bwandb\.agent\(", re.MULTILINE)
#: GPUs of a usual node. Where nothing says how many there are, a job that asks for fewer may share
#: its node.
_USUAL_GPUS: Final = 8
_PORT: Final = deepspeed_0_19_8("launcher/runner.py:98: the default is 29500")


@blocks.rule(
    "SLM022", WARNING, "training", slurm_manual("sbatch(1), --array, and filename pattern")
)
def tasks_of_an_array_differ(request: Request) -> Violations:
    """The jobs of an array have their own logs, checkpoints, ports and work.
    Prevents: Jobs that write the same checkpoint folder and log at the same time. A note where the
    program may choose each job's work itself.
    Fix: put %A_%a into the paths"""
    for array in request.texts("--array", last=True):
        # One after the other, it is a chain of jobs that goes on.
        if array.value.endswith("%1") or re.fullmatch(r"[0-9]+", array.value):
            continue
        texts = (request.shell.text.content, *map(program_text, request.launches))
        known = [text for text in texts if text is not None]
        may_differ = any(name in text for name in _OF_EACH_JOB for text in known)
        if not may_differ and not any(map(_ASKS_FOR_WORK.search, known)):
            message = (
                f"{array}, but nothing in the script depends on SLURM_ARRAY_TASK_ID: "
                "all jobs do the same"
            )
            hint = (
                "choose the work by $SLURM_ARRAY_TASK_ID, and give each job its "
                "own checkpoint folder"
            )
            # The program may draw its work at random, or take it from a queue.
            yield array.bad_value(message, hint, severity=NOTE)
        for log in request.texts("--output", "--error"):
            if not re.search(r"%[0-9]*[aAjJ]", log.value) and log.value != "/dev/null":
                yield log.bad_value(
                    f"{log} is one file for all jobs of the array", f"write {log.name}=%x-%A_%a.out"
                )
        for launch in request.launches:
            # Without a launcher it may work on a piece of data, and name its outputs by that.
            if launch.launcher and not launch.calls[0].command.guarded:
                yield from _shared(request, array, launch)


def _shared(request: Request, array: Argument[str], launch: Launch) -> Violations:
    """Folders and a port that are literal in a launch line, and so the same in every job."""
    for name, word, value in folders_to_save(launch):
        message = f"{name} {value} is one folder for all jobs of {array}"
        hint = f'write {name} "{value.rstrip("/")}/$SLURM_ARRAY_TASK_ID"'
        # Results of each job may have names of their own.
        are_results = "out" in name and not launch.makes_steps
        severity = NOTE if are_results else None
        yield Violation(launch.script.locate(word), message, hint, severity=severity)
    port = None if request.has("--exclusive") else fixed_port(launch)
    if port is not None:
        message = f"{port.text}, for all jobs of {array}, which may run on one node"
        sum_by_job = f"$(({port.number} + SLURM_ARRAY_TASK_ID))"
        yield Violation(port.where, message, f"write {port.instead(sum_by_job)}")


@submissions.rule("LNCH022", WARNING, "training", _PORT, reads=("launch script",))
def ports_differ_on_a_shared_node(submission: Submission) -> Violations:
    """Two jobs on one node have different ports, and so have two launch lines that run at the same
    time.
    Prevents: RuntimeError: Address already in use. An error for two lines of one script.
    Fix: derive the port from the job's number
    """
    for block in blocks(submission):
        free_gpus = _free_gpus(submission, block)
        if free_gpus is None:
            continue
        gpus, severity = free_gpus
        for port in filter(None, (_port_of(submission, launch) for launch in block.launches)):
            message = f"{port.text}, and other users' jobs may run on {gpus}"
            hint = f"write {port.instead('$((20000 + SLURM_JOB_ID % 10000))')}"
            yield Violation(port.where, message, hint, severity=severity)
    for script in submission.shell_texts:
        yield from _side_by_side(submission, script.launches)


def _port_of(submission: Submission, launch: Launch) -> Port | None:
    """The port of a launch line, with accelerate's config that the line names."""
    accelerate = launch.call("accelerate")
    if accelerate is None or not accelerate.has("--config_file"):
        return fixed_port(launch)
    return fixed_port(launch, accelerate_config(submission, launch))


def _free_gpus(submission: Submission, block: Request) -> tuple[str, Severity] | None:
    """The GPUs of its nodes that a job leaves to others, where it leaves any."""
    asked, cluster = block.gpus_per_node, submission.cluster
    claims = world_of(submission).claims_on("GPUs per node")
    by_flag = next((claim.value for claim in claims if claim.where.path == FLAGS), None)
    gpus = cluster.accelerators_per_node if cluster else by_flag
    if asked is None or block.has("--exclusive") or not 0 < asked.value < (gpus or _USUAL_GPUS):
        return None
    if gpus:
        return f"the {gpus - asked.value} other GPUs", WARNING
    return "the node's other GPUs, if it has more", NOTE


def _side_by_side(submission: Submission, launches: tuple[Launch, ...]) -> Violations:
    """Launch lines that take a port of which one above still makes use, in the background."""
    running: list[Port] = []
    for last, launch in zip((None, *launches), launches, strict=False):
        port, command = _port_of(submission, launch), launch.calls[0].command
        if last is not None:
            since_last = slice(last.calls[0].command.index, command.index)
            if any(map(_waits, last.script.commands[since_last])):
                running = []
        is_elsewhere = any(
            call.program in (*ON_EVERY_NODE, "sbatch") or _has_its_own_ports(call)
            for call in launch.calls
        )
        if port is None or is_elsewhere or command.guarded or command.shell is not None:
            continue
        if port.call.has("--hostfile") or port.call.options.integer("--num_processes") == 1:
            continue
        on_same_port = (
            other
            for other in running
            if other.number == port.number and not _are_nodes_of_one(other.call, port.call)
        )
        before = next(on_same_port, None)
        if before is not None:
            line = before.call.where.line
            message = f"{port.text}, and so does line {line}, which still runs in the background"
            hint = f"write {port.instead(str(port.number + 1))}, another for each"
            yield Violation(port.where, message, hint, severity=ERROR)
        if in_background(launch.script, command):
            running.append(port)


def _waits(command: Command) -> bool:
    """Whether a command waits for others, or ends them: `tail --pid=$! -f /dev/null`, too."""
    words = [word.prefix for word in command.words]
    if words and words[0] in ("wait", "sleep", "kill", "exit", "return"):
        return True
    return any(word.startswith("--pid=") for word in words)


def _are_nodes_of_one(first: Call, second: Call) -> bool:
    """Whether two lines start the nodes of one job, which meet at one port."""
    names = ("--node-rank", "--node_rank", "--machine_rank")

    def rank_of(call: Call) -> int | None:
        ranks = (call.options.integer(name) for name in names)
        return next((rank for rank in ranks if rank is not None), None)

    ranks = rank_of(first), rank_of(second)
    return None not in ranks and ranks[0] != ranks[1]


def _has_its_own_ports(call: Call) -> bool:
    """Whether a container has a network of its own, as docker's have by default."""
    words = {word.value for word in call.command.words}
    return call.program in ("docker", "podman") and words.isdisjoint(
        {"host", "--network=host", "--net=host"}
    )


#: Options by which training programs go on from a checkpoint, and words of programs that look for
#: one by themselves.
_RESUMES: Final = lazy_pattern(
    r"--(?:\w+[.-])*(?:resume|load(?![_-]best)|restore|auto[_-]?resume|ckpt|checkpoint|continue)",
    re.IGNORECASE,
)
_LOOKS: Final = lazy_pattern(
    r"resume|restore|get_last_checkpoint|load_checkpoint|latest", re.IGNORECASE
)
#: An option of a program's own that names the checkpoint to begin with.
_STARTS_FROM: Final = lazy_pattern(
    r"--(?:[\w-]{1,40}[_-])?(?:resume|restore)(?:[_-][\w-]{1,40})?"
    r"|--(?:prev|previous|last|init|load|from|start)[_-](?:ckpt|checkpoint)(?:[_-][\w-]{1,40})?",
    re.IGNORECASE,
)
#: Options for the folder to which a program saves.
_SAVES: Final = lazy_pattern(
    r"--(?:save|output[_-]dir|save[_-]\w+|checkpoint[_-]dir|ckpt[_-]dir)\b", re.IGNORECASE
)
#: Options that only Megatron has for the length of a run.
_MEGATRON_LENGTH: Final = lazy_pattern(r"--train-(?:iters|samples|tokens)\b")
_REQUEUE: Final = slurm_manual(
    "sbatch(1), --requeue; scontrol(1), requeue: the batch script starts from its beginning"
)


@blocks.rule("SLM071", WARNING, "silent", _REQUEUE)
def requeued_jobs_go_on(request: Request) -> Violations:
    """A job that is requeued goes on from its last checkpoint.
    Prevents: Training starts anew each time, over the checkpoints of before. A note where the
    program may find them. Megatron's --finetune is at step 0 on every start, whatever was saved.
    Fix: pass --resume_from_checkpoint, or --load with the folder of --save
    """
    place = _place_of_requeue(request)
    if place is None:
        return
    for launch in request.launches:
        words = [*(word for call in launch.calls for word in call.options.rest), *launch.arguments]
        texts = [word.raw for word in words]
        perhaps = [text for word in words for text in _texts_of_variables(word, launch)]
        # Megatron's: the folder of the checkpoints
        saves = any(text.partition("=")[0] == "--save" for text in texts)
        if "--finetune" in texts and saves and any(map(_MEGATRON_LENGTH.match, texts)):
            message = (
                "Slurm starts the script again from its beginning, and --finetune is "
                "at step 0 each time"
            )
            hint = (
                "take --finetune out; --pretrained-checkpoint (Megatron-LM) loads weights on "
                "the first start alone"
            )
            yield Violation(place, message, hint)
            return
        resumes = any(map(_RESUMES.match, (*texts, *perhaps)))
        if resumes or not any(map(_SAVES.match, texts)):
            continue
        looks_itself = any(map(_LOOKS.search, (*launch.environment, program_text(launch) or "")))
        if looks_itself:
            continue
        message = (
            "Slurm starts the script again from its beginning, and nothing on the launch "
            "line resumes training"
        )
        severity = WARNING if _starts_anew(launch, texts, saves) else NOTE
        yield Violation(place, message, _how_to_resume(launch), severity=severity)
        return


def _texts_of_variables(word: Word, launch: Launch) -> Iterator[str]:
    """The texts that a word with variables may be, in one branch of the script or another."""
    yield from filter(None, word.perhaps)
    for assignment in launch.script.assignments if word.variables else ():
        if assignment.name in word.variables:
            yield from assignment.raw.strip("\"'()").split()


def _how_to_resume(launch: Launch) -> str:
    """How the program of a launch can go on from a checkpoint, by an option that it has."""
    program = program_of(launch)
    if program is None or parses_classes(program) or program.name.startswith("pretrain_"):
        return "pass --resume_from_checkpoint, or --load with the folder of --save"
    options = sorted(filter(_STARTS_FROM.fullmatch, valued_options(program)))
    if options:
        return f"pass {options[0]}, if that goes on from a checkpoint"
    return "let the program load the last checkpoint that it finds"


def _place_of_requeue(request: Request) -> Location | None:
    """Where a script asks to be queued again: by an option, or by `scontrol requeue`."""
    option = request.argument("--requeue")
    if option is not None:
        return option.where
    commands = (
        command
        for command in request.shell.commands
        if [word.value for word in command.words[:2]] == ["scontrol", "requeue"]
    )
    return next(map(request.shell.locate, commands), None)


def _starts_anew(launch: Launch, texts: list[str], saves: bool) -> bool:
    """Whether the program surely looks for no checkpoint: by its text, its kind or its options."""
    are_words_known = all(
        word.value is not None or word.prefix.startswith("-") for word in launch.arguments
    )
    if not are_words_known:
        return False
    # The caller has looked for signs in a program's text.
    if "--overwrite_output_dir" in texts or program_text(launch) is not None:
        return True
    name = PurePosixPath(launch.program.value or "").name if launch.program is not None else ""
    is_megatron = name.startswith("pretrain_") or any(map(_MEGATRON_LENGTH.match, texts))
    return is_megatron and saves
