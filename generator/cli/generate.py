"""`dsgen generate`: plan a job, write its files, and tell how to start it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from ..patterns import lazy_pattern
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

    from ..job.records import Job
    from ..search.summary import Line
    from ..write import Change
    from .loading import Prepared

#: An option about adapters, or a file of options. It begins where a word does, so that each word is
#: read once.
_ADAPTS: Final = lazy_pattern(
    r"(?<!\S)(?:(?!--)\S)*--\S*(?:lora|peft|adapter)|--config", re.IGNORECASE
)

#: The one setting with a default on which the plan itself depends.
_PLANNED_DEFAULT: Final = "sequence_length"
#: Settings whose defaults differ between pretraining and fine-tuning.
_OF_THE_KIND: Final = frozenset({"learning_rate", "weight_decay"})


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@output_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes, write nothing.")
@top_option(2, "Best plans to show, after those with a name; left out: no more than fit a screen.")
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
    from .loading import prepared
    from .writing import OVERWRITE, changes_in, print_diff, write_files

    made = prepared(request, form, top, bold, output)
    folder = made.folder
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
        missing = made.answer.plans[0].missing
        if missing:
            echo(not_ready(missing), err=True)
        print_json(_document(made, changes, explain=explain, show_diff=show_diff))
    else:
        _print_plan(made, changes, top, bold=bold, explain=explain)


def _document(
    made: Prepared, changes: Sequence[Change], *, explain: bool, show_diff: bool
) -> dict[str, object]:
    """The plan as JSON, with what became of its files."""
    from ..write import diff  # here, to save start-up time

    best = made.answer.plans[0]
    document: dict[str, object] = {**best.to_dict()}
    if made.elastic:
        document["elastic"] = made.elastic.to_dict()
    if explain:
        from .asked_text import factor_rows

        document |= {"rejected_by": made.answer.rejected_by, "factors": factor_rows(best)}
    files = []
    for change in changes:
        file = {"path": str(change.path), "action": change.action.value}
        if show_diff:
            file["diff"] = diff([change])
        files.append(file)
    return {**document, "files": files}


def _print_plan(
    made: Prepared, changes: Sequence[Change], top: int, *, bold: bool, explain: bool
) -> None:
    """Print the plan, its files, and the next command or what the job lacks; then other plans."""
    from ..programs.launching.front_ends import front_end_of  # here, to save start-up time
    from ..search.suggestions import faster_nearby
    from ..search.summary import further
    from .answers import explained, instead, nearby, report, sharding
    from .tables import print_parts

    best = made.answer.plans[0]
    rows = [*_files(changes, made.folder), *_next_steps(made)]
    more = explained(best, made.answer) if explain else ()
    faster: tuple[Line, ...] = ()
    others: tuple[Line, ...] = ()
    if not made.elastic:
        rows += _defaults(best.job)
        faster = (*nearby(best, faster_nearby(best)), *sharding(best))
        # A front end starts the engines that it has.
        others = instead(best, bold=bold) if front_end_of(best.job) is None else ()
    print_parts(
        *report(
            made.answer, top, *faster, *rows, *others, details=[*further(best)], counts=made.elastic
        ),
        *more,
    )


def _files(changes: Sequence[Change], folder: Path) -> Iterator[tuple[str, str]]:
    """A row for each kind of change: `Files  out: launch.sbatch (created)`."""
    from .writing import ACTIONS  # here, to save start-up time

    heading = "Files"
    for action, word in ACTIONS.items():
        alike = [change for change in changes if change.action.value == action]
        if alike:
            names = _listed([change.path.relative_to(folder) for change in alike])
            yield heading, f"{folder}: {names} ({word})"
            heading = ""


def _defaults(job: Job) -> Iterator[tuple[str, str]]:
    """Settings in the files that nobody chose, and that change what the model learns."""
    from ..programs.launching.front_ends import front_end_of
    from ..rules.job.data import filled_in  # here, to save start-up time

    defaults = filled_in(job)
    if front_end_of(job) is not None:
        # Its own launch has the other settings, or defaults for them.
        defaults = {key: value for key, value in defaults.items() if key == _PLANNED_DEFAULT}
    if defaults:
        values = ", ".join(f"{key} {value}" for key, value in defaults.items())
        yield "Unset", f"training: {values}{_kind_of_defaults(job, defaults)}"


def _kind_of_defaults(job: Job, names: Collection[str]) -> str:
    """For which kind of training the defaults are, where some differ and the framework has both."""
    from ..job.arguments import is_fine_tuning  # here, to save start-up time

    if _OF_THE_KIND.isdisjoint(names) or not job.framework.adapters:
        return ""
    if is_fine_tuning(job.training.start, job.launch.arguments):
        return "; as for fine-tuning"
    return "; as for pretraining: no lora, weights or --model_name_or_path"


def _next_steps(made: Prepared) -> Iterator[tuple[str, str]]:
    """What the job lacks to be started, or else the command, and what to do before it."""
    from ..job.needs import not_ready  # here, to save start-up time
    from ..programs.launchers import LAUNCHERS
    from ..programs.launching.front_ends import SETTINGS, front_end_of
    from .answers import needs_outside

    best = made.answer.plans[0]
    front_end = front_end_of(best.job)
    if front_end is not None:
        settings = made.folder / SETTINGS
        yield "Next", f"{front_end.unwritten}: set the values of {settings} in it by hand."
        return

    launch = best.job.launch
    launcher = LAUNCHERS[launch.target]
    needed = [*needs_outside(best)]
    if best.missing:
        yield "Next", "; ".join((not_ready(best.missing), *needed))
        return
    notes = [
        *launcher.lost(best),
        *_adapters(made),
        *needed,
        launcher.before(launch, made.folder),
    ]
    yield "Next", " ".join(notes)
    yield "", launcher.command(made.folder)


def _adapters(made: Prepared) -> Iterator[str]:
    """A note for LoRA where none of the files makes the adapters."""
    from ..estimate.adapters import text_modules

    job = made.answer.plans[0].job
    lora = job.training.lora
    makes = job.framework.recipes or any(_ADAPTS.search(file.text) for file in made.files)
    if lora is not None and not makes:
        targets = text_modules(job) or ", ".join(lora.modules)
        values = f"r={lora.rank}, lora_alpha={lora.alpha}, target_modules={targets}"
        yield (
            f"{job.launch.script} gets no option for LoRA: it has to make the adapters as "
            f"arguments.txt has them ({values}), or read them from options of its own in "
            "launch.arguments."
        )


def _listed(paths: Sequence[Path]) -> str:
    """Paths in one line; folders with the same files are named together.

    An example: `launch.sbatch, 64gpus/, 32gpus/ with job.yaml`.
    """
    folders: dict[tuple[str, ...], list[str]] = {}
    for parent in dict.fromkeys(path.parent for path in paths):
        names = tuple(path.name for path in paths if path.parent == parent)
        folders.setdefault(names, []).append(parent.as_posix())

    parts = []
    for names, parents in folders.items():
        files = ", ".join(names)
        if parents != ["."]:
            files = f"{', '.join(f'{parent}/' for parent in parents)} with {files}"
        parts.append(files)
    return ", ".join(parts)
