"""SPEC, the flags that override its keys, and other options that commands share."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ..findings import printable
from ..job.schema import frameworks, launch_targets
from ..secrets import find, mask
from ..text.wording import listed
from .printing import FORM

Command = TypeVar("Command", bound=Callable[..., Any])

MOST_PLANS = 100  #: that are listed; each is explained against all others
STDOUT = "-"  #: standard output, where a command writes one file
DEFAULT_SPEC = "dsgen.yaml"  #: what is read in the working directory when no SPEC is given
MOST_POINTS = 200  #: of one sweep

#: The commands in the order of a job's life, and their modules.
COMMANDS: Mapping[str, str] = {
    **{name: name for name in ("init", "generate", "plan", "submit", "tune", "sweep")},
    "report": "sweep",
    "estimate": "plan",
    "validate": "validate",
    "calibrate": "tune",
    **dict.fromkeys(("rules", "catalog", "schema", "completion"), "catalog"),
}

#: What a job is for, and the keys that this decides.
FINE_TUNING = "fine-tuning"
PURPOSES: Mapping[str, Mapping[str, Any]] = {
    "pretraining": {},
    FINE_TUNING: {"framework": "huggingface"},
    "lora": {"framework": "huggingface", "training.lora": {"rank": 16}},
}

#: The dotted path of the key that a flag overrides, by the name of its parameter.
FLAGS: Mapping[str, str] = {
    **{name: name for name in ("gpus", "nodes", "model", "cluster", "framework", "calibration")},
    "target": "launch.target",
    **{name: f"training.{name}" for name in ("global_batch", "sequence_length")},
}


class Request(NamedTuple):
    """The job that the command line asks for."""

    spec: str | None
    overrides: Mapping[str, object]  #: values by dotted path
    flags: Mapping[str, str]  #: the flags that gave them, as written, by dotted path
    #: asks for the same job; it is for generated files, so without folders and possible secrets
    command: str


def form_option(*forms: str) -> Callable[[Command], Command]:
    """`--format`, which a command receives as `form`; the first of the forms is the default."""
    choice = click.Choice(forms)

    def keep(context: click.Context, _: click.Parameter, value: str) -> str:
        context.find_root().meta[FORM] = value
        return value

    return click.option(
        "--format",
        "form",
        type=choice,
        default=forms[0],
        show_default=True,
        callback=keep,
        help="Output format.",
    )


def top_option(default: int, text: str) -> Callable[[Command], Command]:
    """`--top`, the number of plans that are shown."""
    return click.option(
        "--top", type=click.IntRange(1, MOST_PLANS), default=default, show_default=True, help=text
    )


def given(name: str) -> bool:
    """Return whether an option of the running command stands on the command line."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _folder(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value == STDOUT:
        raise click.BadParameter("the files go to a folder; `-`, standard output, is none")
    return value


def folder_option(text: str) -> Callable[[Command], Command]:
    """`--output` of commands that write several files."""
    return click.option("-o", "--output", metavar="DIR", callback=_folder, help=text)


output_option = folder_option("Folder for the files.  [default: NAME-Ngpus]")
bold_option = click.option(
    "--bold",
    is_flag=True,
    help="Choose the fastest layout that fits.",
)
explain_option = click.option(
    "--explain",
    is_flag=True,
    help="Also show memory as bars, the reasons for the layout, and the factors "
    "of the training time.",
)


def set_option(text: str) -> Callable[[Command], Command]:
    """`--set PATH=VALUE`, which a command receives as `assignments`."""
    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="PATH=VALUE",
        callback=_read_assignments,
        help=text,
    )


def job_options(command: Command) -> Command:
    """Give a command the argument SPEC and the override flags, which it receives as `request`.

    SPEC may be `-`: standard input.
    """
    return job_flags(click.argument("spec", required=False, metavar="[SPEC]")(command))


def job_flags(command: Command) -> Command:
    """Give a command the override flags: with its parameter `spec` they become `request`."""

    @functools.wraps(command)
    def collected(**parameters: Any) -> Any:
        spec = parameters.pop("spec")
        flags = {name: parameters.pop(name) for name in FLAGS}
        assignments = parameters.pop("assignments")
        return command(request=_request(spec, flags, assignments), **parameters)

    for decorate in reversed(_FLAG_OPTIONS):
        collected = decorate(collected)
    return collected  # type: ignore[return-value]  # the signature is click's to know


def _request(
    spec: str | None, flags: Mapping[str, Any], assignments: tuple[tuple[str, str], ...]
) -> Request:
    values = {name: value for name, value in flags.items() if value is not None}
    if {"gpus", "nodes"} <= set(values):
        raise click.UsageError("use --gpus or --nodes, not both")
    if "cluster" in values and not {"gpus", "nodes"} & values.keys():
        from ..catalog.names import machines_of  # here, to save start-up time

        machines = machines_of(values["cluster"])
        if machines and machines.nodes:  # `--cluster 16x8xh100`
            values["nodes"] = machines.nodes

    overrides: dict[str, object] = {}
    as_written: dict[str, str] = {}
    arguments = ["dsgen"] if spec is None else ["dsgen", _without_folders(spec)]
    for name, value in values.items():
        overrides[FLAGS[name]] = value
        as_written[FLAGS[name]] = mask(f"{_flag(name)} {value}")
        arguments += [_flag(name), _without_folders(mask(str(value)))]
    for path, text in assignments:
        overrides[path] = text
        as_written[path] = f"--set {assignment_text(path, text)}"
        arguments += ["--set", assignment_text(path, text)]
    command = printable(shlex.join(arguments))
    return Request(spec=spec, overrides=overrides, flags=as_written, command=command)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def assignment_text(path: str, text: str) -> str:
    """`PATH=VALUE` as it may be shown and written: what may be a secret is left out."""
    has_variables = path == "launch" or path.startswith("launch.environment")
    if has_variables or find(text.replace("\\", "")):
        return f"{path}=..."
    return mask(f"{path}={text}")


def _without_folders(value: str) -> str:
    """A value without the folders of an absolute path, which are of this machine."""
    return Path(value).name if Path(value).is_absolute() else value


def _read_assignments(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Each `PATH=VALUE` as path and text, which the spec's reader parses as YAML."""
    assignments = list[tuple[str, str]]()
    for value in values:
        path, equals, text = value.partition("=")
        if not equals or not path.strip():
            raise click.BadParameter(f"{value!r} is not PATH=VALUE, such as layout.tensor=8")
        assignments.append((path.strip(), text))
    return tuple(assignments)


class _Number(click.IntRange):
    """A number. A length such as `1k` passes: the spec's reader says how to write it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..job.quantities import length_of  # here, to save start-up time

        return value if length_of(str(value)) else super().convert(value, param, ctx)


class _Counts(_Number):
    """A number, a range such as `960..1024` or `960..1024:32`, or a list, for the spec's reader."""

    name = "integer, range or list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        several = isinstance(value, str) and (".." in value or "," in value)
        return value if several else super().convert(value, param, ctx)


class _Length(click.IntRange):
    """A number of tokens: `8192`, `8k`."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..job.quantities import length_of  # here, to save start-up time

        return super().convert(length_of(str(value)) or value, param, ctx)


_FLAG_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--gpus",
        type=_Counts(min=1),
        help="Number of GPUs; a range (960..1024) or list (64,128): a plan for each.",
    ),
    click.option("--nodes", type=_Counts(min=1), help="Number of nodes, instead of --gpus."),
    click.option("--model", metavar="NAME|PATH", help="Preset, Hub id, or path of a config.json."),
    click.option(
        "--cluster", metavar="NAME", help="Node type, or counted GPUs: 4xa10g, 16x8xh100."
    ),
    click.option("--framework", metavar="NAME", help=f"{listed(frameworks())}."),
    click.option(
        "--calibration", metavar="FILE", help="Calibration file, written by `dsgen calibrate`."
    ),
    click.option("--target", metavar="NAME", help=f"{listed(launch_targets())}."),
    click.option("--global-batch", type=_Number(min=1), help="Sequences per optimizer step."),
    click.option(
        "--sequence-length", type=_Length(min=1), help="Tokens per sequence, such as 8192 or 8k."
    ),
    set_option("Set any key of the spec, such as layout.tensor=8; VALUE is YAML. Repeatable."),
)
