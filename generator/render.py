"""From a plan to the files of the job, as values: nothing is written here."""

from __future__ import annotations

import json
from dataclasses import replace

from .programs.frameworks import program_for
from .programs.launcher import count_folder
from .programs.launchers import DEFAULT_COMMAND, LAUNCHERS, launch_files
from .programs.program import RenderedFile
from .search.elastic import Elastic
from .search.plan import Plan


def render(plan: Plan, *, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """Every file of `plan`, sorted by path: configuration, launch files, `arguments.txt` and `plan.json`.

    The same plan and command give the same bytes. `command` is quoted in the files' headers.
    """
    program = program_for(plan)
    document = json.dumps(plan.to_dict(), indent=2, ensure_ascii=False)
    files = (
        *program.files,
        *launch_files(plan, program, command),
        RenderedFile(path="plan.json", text=f"{document}\n"),
    )
    return tuple(sorted(files, key=lambda file: file.path))


def render_counts(elastic: Elastic, *, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The files of each plan, in a folder for its count of GPUs, and the launch file that picks one.

    Raises `ValueError` for a target whose jobs have one number of nodes.
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
    return (*launcher.pick(elastic.plans, largest, command), *sorted(inner, key=lambda file: file.path))
