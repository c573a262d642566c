"""Rules on `launch.slurm` of a job spec: how a run goes on in further jobs, and what the user adds
to the batch script.
"""

from __future__ import annotations

import difflib
from typing import Final

from ....findings import ERROR, Violations
from ....job.records import Job
from ....rules.planned import jobs
from ....rules.violations import derived, slurm_manual, violation

_WHERE: Final = "/launch/slurm"


def _number(job: Job, key: str) -> int | None:
    value = job.launch.options.get(key)
    return value if isinstance(value, int) else None


@jobs.rule("SLM016", ERROR, "submit", derived("sbatch(1): the node configuration is not available"))
def node_has_the_cores(job: Job) -> Violations:
    """A task requests at most the cores of its node.
    Prevents: sbatch refuses the job, or it waits forever: the requested node configuration is not
    available.
    Fix: set launch.slurm.cpus_per_task to at most a node's cores, or leave it out
    """
    asked, cores = _number(job, "cpus_per_task"), job.cluster.cpu_cores
    if asked is not None and cores is not None and asked > cores:
        message = f"cpus_per_task: {asked} is more than the {cores} cores of {job.cluster.name}"
        hint = f"use cpus_per_task: {cores}, or leave it out"
        yield violation(job, f"/launch/{job.launch.target}/cpus_per_task", message, hint)


@jobs.rule(
    "SLM030",
    ERROR,
    "silent",
    derived("sbatch(1), --signal: sent so many seconds before the time limit"),
)
def signal_comes_during_the_run(job: Job) -> Violations:
    """The signal before the time limit comes after the job's start.
    Prevents: No error: the job saves, stops or queues again as soon as it has started.
    Fix: set launch.slurm.signal_seconds well below launch.time_limit"""
    before_s, limit_s = _number(job, "signal_seconds"), job.launch.time_limit_s
    if before_s and limit_s is not None and before_s >= limit_s:
        message = (
            f"signal_seconds: {before_s} is not less than the time limit of {limit_s} s: it "
            "is sent at the start"
        )
        hint = f"use signal_seconds: {max(1, limit_s // 10)}, or a longer time_limit"
        yield violation(job, f"/launch/{job.launch.target}/signal_seconds", message, hint)


@jobs.rule(
    "SLM072",
    ERROR,
    "silent",
    derived("attempts are compared by the newest checkpoint in output.checkpoints"),
)
def runs_go_on_from_checkpoints(job: Job) -> Violations:
    """A run that goes on in further jobs has a folder of checkpoints and resumes from it.
    Prevents: No error: each job begins at step 0, and nothing tells that none gets further.
    Fix: set output.checkpoints, and leave output.resume at true; or set launch.slurm.continue to
    none
    """
    way, output = job.launch.options.get("continue", "none"), job.output
    if way == "none":
        return
    if output.checkpoints is None:
        fault, hint = "output.checkpoints is not set", "set output.checkpoints"
    elif not output.resume:
        fault, hint = "output.resume is false", "use resume: true, or continue: none"
    else:
        return
    message = f"continue: {way}, but {fault}: every job would begin at step 0"
    yield violation(job, f"{_WHERE}/continue", message, hint)


@jobs.rule("SLM073", ERROR, "submit", slurm_manual("sbatch(1), OPTIONS"))
def directives_are_options_of_sbatch(job: Job) -> Violations:
    """Options in launch.slurm.directives are those of sbatch that no other key writes.
    Prevents: sbatch: unrecognized option; or two lines of which the last counts, against the plan.
    Fix: use the long name of an option of sbatch, and the key of the spec where there is one"""
    directives = job.launch.options.get("directives", {})
    if not directives:
        return
    from ...launching.tables import TABLES  # here, to save start-up time: few jobs have these keys
    from ..write import PLANNED, WRITTEN

    options = TABLES["sbatch"].options
    for name, value in directives.items():
        where, option = f"{_WHERE}/directives/{name}", options.get(f"--{name}")
        if name in WRITTEN or name in PLANNED:
            key = PLANNED.get(name) or f"launch.slurm.{WRITTEN[name]}"
            yield violation(job, where, f"--{name} is written from {key}", f"use {key}")
        elif option is None:
            near = difflib.get_close_matches(f"--{name}", options, n=1)
            hint = f"write {near[0].lstrip('-')}" if near else "use a long name of sbatch(1)"
            yield violation(job, where, f"sbatch has no option --{name}", hint)
        elif option.values and isinstance(value, bool):
            message = f"--{name} takes a value, and {str(value).lower()} is none"
            yield violation(job, where, message, "give its value")
        elif not option.values and not option.optional and not isinstance(value, bool):
            message = f"--{name} takes no value, and {value!r} is given"
            yield violation(job, where, message, "use true")


@jobs.rule("SLM074", ERROR, "silent", derived("the tasks of an array run this script side by side"))
def arrays_share_no_checkpoints(job: Job) -> Violations:
    """The tasks of an array that save run one after another, as they save to the same folder.
    Prevents: Checkpoints of several runs over one another.
    Fix: end launch.slurm.array with %1, or leave out output.checkpoints"""
    array = job.launch.options.get("array")
    if array is None or job.output.checkpoints is None:
        return
    has_several_tasks = "-" in array or "," in array
    if has_several_tasks and not array.endswith("%1"):
        message = (
            f"array: {array} runs several tasks at once, and each saves to {job.output.checkpoints}"
        )
        hint = f"use array: {array.partition('%')[0]}%1, or leave out output.checkpoints"
        yield violation(job, f"{_WHERE}/array", message, hint)


@jobs.rule(
    "SLM075",
    ERROR,
    "submit",
    derived("bash(1): a quote that nothing closes takes in the lines below"),
)
def setup_commands_are_whole(job: Job) -> Violations:
    """Each command of launch.slurm.setup closes the quotes and brackets that it opens.
    Prevents: A script that bash cannot read, or whose next lines are part of a text.
    Fix: close it, or keep commands of several lines in a script and source that"""
    commands = job.launch.options.get("setup", ())
    if not isinstance(commands, (list, tuple)) or not commands:
        return
    from ....text.shell.tokens import Tokens

    for index, command in enumerate(commands):
        opened_at = Tokens(f"{command}\n").unterminated
        if opened_at is not None:
            message = (
                f"`{command[opened_at:]}` opens a quote or bracket that nothing "
                "closes in this command"
            )
            hint = "close it, or source a script that has it"
            yield violation(job, f"{_WHERE}/setup/{index}", message, hint)


@jobs.rule(
    "SLM076",
    ERROR,
    "launcher",
    derived("apptainer(1), --bind src[:dest[:opts]]: opts are ro or rw"),
)
def mounts_have_flags_of_the_runtime(job: Job) -> Violations:
    """A mount of apptainer is read-only, or for reading and writing; pyxis has more flags.
    Prevents: FATAL: while parsing bind path: not a valid bind option.
    Fix: use ro or rw"""
    if job.launch.options.get("container_runtime") != "apptainer":
        return
    for index, mount in enumerate(job.launch.options.get("container_mounts", ())):
        flags = mount.split(":")[2:]
        if flags not in ([], ["ro"], ["rw"]):
            where = f"{_WHERE}/container_mounts/{index}"
            message = f"apptainer mounts with ro or rw, and this mount has {flags[0]}"
            yield violation(job, where, message, "use ro, rw, or no flags")
