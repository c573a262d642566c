"""`dsgen generate`: plan, render, write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from .options import (
    Request,
    bold_option,
    explain_option,
    form_option,
    job_options,
    output_option,
    top_option,
)
from .printing import echo, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from ..search.summary import Line
    from ..write import Change
    from .loading import Prepared

#: An option about adapters, or a file of options; from a word's beginning, so that it is read once.
_ADAPTS: Final = re.compile(
    r"(?<!\S)(?:(?!--)\S)*--\S*(?:lora|peft|adapter)|--config", re.IGNORECASE
)


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@output_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes, write nothing.")
@top_option(2, "Best plans to show; left out: no more than fit a screen.")
@bold_option
@explain_option
@form_option("text", "json")
def generate(
    request: Request,
    output: str | None,
    force: bool,
    show_diff: bool,
    top: int,
    bold: bool,
    explain: bool,
    form: str,
) -> None:
    """Plan the job in SPEC, and write the files that launch it.

    SPEC defaults to dsgen.yaml in this folder, else to a built-in example: GPT-3 175B on Azure ND
    A100 v4.
    """
    from ..job.needs import not_ready  # here, to save start-up time
    from ..write import diff
    from .loading import prepared
    from .writing import OVERWRITE, changes_in, print_diff, write_files

    made = prepared(request, form, top, bold, output)
    best, folder = made.answer.plans[0], made.folder
    if show_diff and form != "json":
        print_diff(made.files, folder)
        return
    if show_diff:
        changes = changes_in(made.files, folder)
    else:
        changes = write_files(
            made.files, folder, force=force, hint=f"use --diff to see the changes, or {OVERWRITE}"
        )
    if form == "json":
        if best.missing:
            echo(not_ready(best.missing), err=True)
        written = [
            {
                "path": str(change.path),
                "action": change.action.value,
                **({"diff": diff([change])} if show_diff else {}),
            }
            for change in changes
        ]
        more: dict[str, object] = {"elastic": made.elastic.to_dict()} if made.elastic else {}
        if explain:
            from .asked_text import factor_rows

            more |= {"rejected_by": made.answer.rejected_by, "factors": factor_rows(best)}
        print_json({**best.to_dict(), **more, "files": written})
    else:
        _print(made, changes, top, bold=bold, explain=explain)


def _print(
    made: Prepared, changes: Sequence[Change], top: int, *, bold: bool, explain: bool
) -> None:
    """Print the plan, its files, and the next command or what the job lacks; then other plans."""
    from ..job.needs import gated, not_ready  # here, to save start-up time
    from ..programs.launchers import LAUNCHERS
    from ..programs.launching.blockers import blockers
    from ..search.suggestions import faster_nearby
    from ..search.summary import further
    from .answers import explained, instead, nearby, report, sharding
    from .tables import print_parts
    from .writing import ACTIONS

    best, folder = made.answer.plans[0], made.folder
    launch = best.job.launch
    launcher = LAUNCHERS[launch.target]
    named = [
        f"{folder}: {names} ({word})"
        for action, word in ACTIONS.items()
        if (
            names := _listed(
                [
                    change.path.relative_to(folder)
                    for change in changes
                    if change.action.value == action
                ]
            )
        )
    ]
    rows = [*zip(("Files", *("" for _ in named[1:])), named, strict=True)]
    model = gated(best.job)
    token = (
        [f"{model} is gated: accept its terms on the Hub, and {launcher.token}."] if model else []
    )
    lora = best.job.training.lora
    adapters: list[str] = []  # a note where no file makes the adapters
    makes = best.job.framework.recipes or any(_ADAPTS.search(file.text) for file in made.files)
    if lora is not None and not makes:
        values = f"r={lora.rank}, lora_alpha={lora.alpha}, target_modules={', '.join(lora.modules)}"
        adapters = [
            f"{launch.script} gets no option for LoRA: it has to make the adapters as "
            "arguments.txt has them "
            f"({values}), or read them from options of its own in launch.arguments."
        ]
    packages = best.job.model.kernels
    kernels = (
        [f"Install {' and '.join(packages)} in the environment of the run, or nothing fits."]
        if packages
        else []
    )
    needed = [*kernels, *blockers(best.job), *token]
    if best.missing:
        rows.append(("Next", "; ".join((not_ready(best.missing), *needed))))
    else:
        notes = [*launcher.lost(best.job), *adapters, *needed, launcher.before(launch, folder)]
        rows += [("Next", " ".join(notes)), ("", launcher.command(folder))]
    more = explained(best, made.answer.rejected_by) if explain else ()
    faster: tuple[Line, ...] = ()
    others: tuple[Line, ...] = ()
    if not made.elastic:
        faster = (*nearby(best, faster_nearby(best)), *sharding(best))
        others = instead(best, bold=bold)
    print_parts(
        *report(
            made.answer, top, *faster, *rows, *others, details=[*further(best)], counts=made.elastic
        ),
        *more,
    )


def _listed(paths: Sequence[Path]) -> str:
    """Paths in one line; folders with the same files are named together.

    An example: `launch.sbatch, 64gpus/ and 32gpus/ with job.yaml`.
    """
    folders: dict[tuple[str, ...], list[str]] = {}
    for parent in dict.fromkeys(path.parent for path in paths):
        names = tuple(path.name for path in paths if path.parent == parent)
        folders.setdefault(names, []).append(parent.as_posix())
    return ", ".join(
        ", ".join(names)
        if parents == ["."]
        else f"{', '.join(f'{parent}/' for parent in parents)} with {', '.join(names)}"
        for names, parents in folders.items()
    )
