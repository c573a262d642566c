"""The files of a plan, or of short trials of plans, as values; nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .job.arguments import without
from .job.needs import bindings, binds
from .job.records import Output
from .programs.frameworks import program_for
from .programs.launchers import DEFAULT_COMMAND, LAUNCHERS, launch_files
from .programs.launching.by_hand import files_by_hand
from .programs.launching.front_ends import front_end_of
from .programs.program import RenderedFile, content_hash, count_folder, trial_folder
from .search.plan import Plan

if TYPE_CHECKING:
    from .search.elastic import Elastic

_STARTING_S: Final = 900  # containers, imports, the first collectives: assumed
# times the slow end of the estimate, for the first steps and kernels that are compiled: assumed
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
    made = (
        (*program.files, *launch_files(plan, program, command))
        if front_end is None
        else files_by_hand(plan, program, front_end, command)
    )
    files = sorted(made, key=lambda file: file.path)
    hashes = {file.path: content_hash(file.text.encode()) for file in files}
    document = {**plan.to_dict(), "file_hashes": hashes}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    marked = RenderedFile(path="plan.json", text=f"{text}\n")
    return tuple(sorted((*files, marked), key=lambda file: file.path))


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
    return (
        *launcher.pick(elastic.plans, largest, command),
        *sorted(inner, key=lambda file: file.path),
    )


def trial(plan: Plan, steps: int) -> Plan:
    """The plan as a short run of `steps` steps, which neither saves nor loads a checkpoint."""
    job, training = plan.job, plan.job.training
    limit_s = 60 * -(-int(_STARTING_S + _SLACK * steps * plan.uncertainty.step_time.high) // 60)
    limit_of_job = job.launch.time_limit_s
    for_whole_runs = LAUNCHERS[job.launch.target].for_whole_runs
    # before the folders of checkpoints go, whose names the script's arguments may have
    bound = bindings(job)
    kept = {key: value for key, value in job.launch.options.items() if key not in for_whole_runs}
    saving = {
        name
        for key, names in job.framework.options.items()
        if key.startswith("output.")
        for name in names
    }
    launch = replace(
        job.launch,
        arguments=(*without(job.launch.arguments, saving), *job.framework.saves_nothing),
        time_limit_s=limit_s if limit_of_job is None else min(limit_s, limit_of_job),
        options={
            **kept,
            **({"inputs": bound.inputs, "outputs": bound.outputs} if binds(job) else {}),
        },
    )
    tokens = float(steps * training.tokens_per_step)
    short = replace(training, duration_steps=steps, duration_tokens=tokens, batch_ramp=None)
    return replace(plan, job=replace(job, training=short, output=Output(), launch=launch))


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
    return tuple(sorted(files, key=lambda file: file.path))
