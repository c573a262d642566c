"""From a plan to the files of the job, as values: nothing is written here."""

from __future__ import annotations

import json

from .frameworks import program_for
from .frameworks.program import RenderedFile
from .launchers import DEFAULT_COMMAND, launch_files
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
