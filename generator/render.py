"""The files of a plan, or of short trials of plans, as values; nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .job.arguments import without
from .job.needs import bindings, binds
from .job.records import Job, JobLaunch, Output
from .programs.frameworks import program_for
from .programs.launchers import DEFAULT_COMMAND, LAUNCHERS, launch_files
from .programs.launching.by_hand import files_by_hand
from .programs.launching.front_ends import front_end_of
from .programs.program import RenderedFile, content_hash, count_folder, trial_folder
from .search.plan import Plan
from .units import MINUTE

if TYPE_CHECKING:
    from .search.elastic import Elastic

_STARTING_S: Final = 900  # containers, imports, the first collectives: assumed
#: Times the slow end of the estimate, for the first steps and kernels that are compiled: assumed.
_SLACK: Final = 3


def render(plan: Plan, *, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The files of `plan`, sorted by path.

    These are the configuration, launch files, `arguments.txt` and `plan.json`. The own launch of a
    front end isn't written: in the place of launch files and arguments are its settings.

    The same plan and command give the same bytes. `command` is quoted in the files' headers. Local
    paths of `launch.azureml` stand as in the spec, and so hold for files in its folder.
    """
    program = program_for(plan)
    front_end = front_end_of(plan.job)
    if front_end is None:
        files = [*program.files, *launch_files(plan, program, command)]
    else:
        files = [*files_by_hand(plan, program, front_end, command)]
    files.sort(key=_path_of)
    hashes = {file.path: content_hash(file.text.encode()) for file in files}
    document = {**plan.to_dict(), "file_hashes": hashes}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    plan_file = RenderedFile(path="plan.json", text=f"{text}\n")
    return tuple(sorted((*files, plan_file), key=_path_of))


def render_counts(elastic: Elastic, *, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The files of each plan, in a folder for its count, and the launch file that picks one.

    May raise `ValueError`.
    """
    launcher = LAUNCHERS[elastic.plans[0].job.launch.target]
    if launcher.pick is None:
        raise ValueError(f"jobs of {launcher.name} have one number of nodes")
    rendered = [render(plan, command=command) for plan in elastic.plans]
    (largest,) = (file for file in rendered[0] if file.path == launcher.file)
    inner = [
        replace(file, path=f"{count_folder(plan.job.gpus)}/{file.path}")
        for plan, files in zip(elastic.plans, rendered, strict=True)
        for file in files
    ]
    return (*launcher.pick(elastic.plans, largest, command), *sorted(inner, key=_path_of))


def trial(plan: Plan, steps: int) -> Plan:
    """The plan as a short run of `steps` steps, which neither saves nor loads a checkpoint."""
    training = plan.job.training
    tokens = float(steps * training.tokens_per_step)
    short = replace(training, duration_steps=steps, duration_tokens=tokens, batch_ramp=None)
    limit_s = int(_STARTING_S + _SLACK * steps * plan.uncertainty.step_time.high)
    launch = _launch_of_trial(plan.job, MINUTE * -(-limit_s // MINUTE))
    return replace(plan, job=replace(plan.job, training=short, output=Output(), launch=launch))


def _launch_of_trial(job: Job, limit_s: int) -> JobLaunch:
    """The launch of a job for a run of at most so many seconds, which saves nothing."""
    for_whole_runs = LAUNCHERS[job.launch.target].for_whole_runs
    options = {key: value for key, value in job.launch.options.items() if key not in for_whole_runs}
    # The job still has the folders of checkpoints here, whose names its arguments may have.
    bound = bindings(job)
    if binds(job):
        options |= {"inputs": bound.inputs, "outputs": bound.outputs}

    of_output = (names for key, names in job.framework.options.items() if key.startswith("output."))
    saving = {name for names in of_output for name in names}
    limit_of_job = job.launch.time_limit_s
    return replace(
        job.launch,
        arguments=(*without(job.launch.arguments, saving), *job.framework.saves_nothing),
        time_limit_s=limit_s if limit_of_job is None else min(limit_s, limit_of_job),
        options=options,
    )


def trial_files(plans: Sequence[Plan], steps: int, command: str) -> tuple[RenderedFile, ...]:
    """A folder of files for each plan, and the file that starts them all.

    Raises `LookupError` for a target that can't start several runs.
    """
    launcher = LAUNCHERS[plans[0].job.launch.target]
    if launcher.trials is None:
        raise LookupError(launcher.name)
    short = [trial(plan, steps) for plan in plans]
    files = [launcher.trials(short, [program_for(plan) for plan in short], command)]
    for number, plan in enumerate(short, start=1):
        files += [
            replace(file, path=f"{trial_folder(number)}/{file.path}")
            for file in render(plan, command=command)
            if launcher.trials_start_files or file.path != launcher.file
        ]
    return tuple(sorted(files, key=_path_of))


def _path_of(file: RenderedFile) -> str:
    return file.path
