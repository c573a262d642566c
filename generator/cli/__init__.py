"""The command line: the only place that prints, prompts or exits.

Command modules import the rest when they run, to save start-up time.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem
from click_default_group import DefaultGroup

from ..version import __version__
from .faults import debug_option, told_of
from .options import COMMANDS
from .printing import FORM, ExitStatus, echo
from .refusals import asks_for_json, shown_errors
from .streams import guarded


class _OnDemand(Mapping[str, click.Command]):
    """The commands by name; the module of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f".{COMMANDS[name]}", __package__), name)
        if not any("--debug" in parameter.opts for parameter in command.params):
            command.params.append(debug_option())
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(DefaultGroup):  # type: ignore[misc]  # click_default_group has no types
    """The commands. What they print passes the filter of `streams`, usage errors and help too."""

    def main(self, *args: Any, **extra: Any) -> Any:
        with guarded():
            return super().main(*args, **extra)

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> click.Context:
        in_json = asks_for_json(args)
        with shown_errors(in_json=in_json):
            context: click.Context = super().make_context(info_name, args, *more, **extra)
        if in_json:  # known before the command reads its options, of which another may be wrong
            context.meta[FORM] = "json"
        return context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:  # a shell completes: any command may still be meant
            return click.Group.parse_args(self, ctx, args)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands; and options of the default command, as that needn't be named."""
        items: list[CompletionItem] = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            default = self.get_command(ctx, self.default_cmd_name)
            if default is not None:
                context = click.Context(default, parent=ctx)
                items += default.shell_complete(context, incomplete)
        return items

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)  # in the order of a job's life, not of the alphabet

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] == "help" and not os.path.lexists("help"):
            if len(args) == 1:
                echo(ctx.get_help())
                ctx.exit()
            args = [args[1], "--help"]
        elif args[0] not in COMMANDS and len(args) > 1 and not args[0].startswith("-"):
            from .loading import suggest_command  # here, to save start-up time

            suggest_command(args[0])
            # Two words, and the first is no file: `dsgen chek run.sh`.
            if not args[1].startswith("-") and not os.path.lexists(args[0]):
                raise click.UsageError(
                    f"no such command or file: {args[0]!r}; `dsgen --help` lists the commands"
                )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with shown_errors(), told_of(ctx):
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    commands=_OnDemand(),
    default="generate",
    default_if_no_args=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 ok, 1 findings, 2 usage, 3 infeasible, 4 would overwrite, "
    "5 a fault of dsgen, "
    "141 nothing reads the pipe.",
)
@click.version_option(__version__, prog_name="dsgen")
def commands() -> None:
    """Plan, check and write the files of a large training run.

    `dsgen --gpus 1024` plans a job and writes the files that launch it: it is short for `dsgen
    generate --gpus 1024`.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the program and exit with a status of `ExitStatus`."""
    # Imports leave little to collect, and looking for it takes a tenth of a short command.
    gc.set_threshold(100_000)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Unicode gets question marks, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with guarded():
        try:
            try:
                commands.main(args=arguments, prog_name="dsgen")
            finally:
                sys.stdout.flush()
        except OSError as problem:  # a full disk behind standard output, for one
            echo(f"dsgen: error: {problem.strerror or problem}", err=True)
            # discard the rest of the buffer
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitStatus.FINDINGS)


def _open_closed_streams() -> None:
    """Give standard streams that were closed (`<&-`) a descriptor again.

    Reading standard input and writing standard output fail then; errors go nowhere. Without it, the
    next file that is opened would get the stream's number, and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        mode = "w" if number else "r"
        stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


#: Variables that this process has beside the user's.
ADDED: dict[str, str] = {}


def run() -> None:
    """Run `main`, and end the process without freeing its memory.

    Freeing takes a tenth of a short command's time. So do OpenBLAS's threads, which come with
    numpy, one a core, and wait busily; nothing here multiplies matrices.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        ADDED["OPENBLAS_NUM_THREADS"] = "1"
    os.environ |= ADDED
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):  # a message, which Python prints
            raise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed; `main` has said so where it matters
                stream.flush()
        os._exit(end.code or 0)
