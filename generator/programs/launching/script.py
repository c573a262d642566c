"""Shell text that starts a job, and a command's options with their places: of an `#SBATCH` block, srun or torchrun."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field
from posixpath import basename
from typing import ClassVar, Final, Generic, TypeVar

from ...dataclass import dataclass
from ...facts.document import Kind, YamlDocument
from ...facts.places import Reader
from ...findings import Edit, Location, Severity, Violation
from ..lookup import end_alike
from ..shell.records import ShellScript, Word
from .launch_line import Launch, Option, Options, launches, sbatch_options

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument(Generic[T]):
    """An option that is given, with its value as its program reads it."""

    value: T
    name: str  #: as messages write it, such as `--nodes`
    command: str  #: that it is given to, as messages write it, such as `#SBATCH` or `torchrun`
    option: Option
    shell: ShellScript = field(repr=False)

    def __str__(self) -> str:
        """The option as one writes it: `#SBATCH --nodes=4`."""
        words = f"{self.command} {self.name}"
        return words if self.text is None else f"{words}={self.text}"

    @property
    def text(self) -> str | None:
        """The value as it is written; None where it has none, or it can't be known."""
        return _text(self.option)

    @property
    def where(self) -> Location:
        """The place of the option."""
        return self.shell.locate(self.option.written)

    @property
    def where_value(self) -> Location:
        """The place of the value, else of the option."""
        return self.shell.locate(self.option.values[0] if self.option.values else self.option.written)

    def bad_value(
        self, message: str, hint: str | None, severity: Severity | None = None, edits: tuple[Edit, ...] = ()
    ) -> Violation:
        """A violation at the value."""
        return Violation(self.where_value, message, hint, severity=severity, edits=edits)

    def bad_option(self, message: str, hint: str) -> Violation:
        """A violation at the option."""
        return Violation(self.where, message, hint)


@dataclass(frozen=True, kw_only=True)
class CommandLine(Reader):
    """A command's options."""

    shell: ShellScript = field(repr=False)
    options: Options
    program: str  #: such as sbatch, srun, torchrun

    @property
    def command(self) -> str:
        """Its name in messages."""
        return self.program

    def name_of(self, option: Option) -> str:
        """An option's name in messages."""
        return option.written.raw.partition("=")[0]

    def has(self, *names: str) -> bool:
        """Return whether one of the options is given."""
        return any(self.options.has(name) for name in names)

    def value(self, name: str, default: object = None) -> object:
        """The text of an option; `default` where it isn't given, has none or can't be known."""
        text = self.options.text(name)
        return default if text is None else text

    def locate(self, name: str) -> Location:
        """The place of an option's value, else of the option, else of the script."""
        found = self.argument(name)
        return found.where_value if found else self.shell.locate(0)

    def view(self, option: Option, value: V) -> Argument[V]:
        """One of the options, with its value as the program reads it."""
        return Argument(value=value, name=self.name_of(option), command=self.command, option=option, shell=self.shell)

    def argument(self, *names: str) -> Argument[str | None] | None:
        """The first of these options that is given; where it is given more than once, the last of them."""
        option = next((self.options.get(name) for name in names if self.options.has(name)), None)
        return self.view(option, _text(option)) if option is not None else None

    def read(self, name: str, reader: Callable[[str], V | None]) -> Argument[V] | None:
        """An option with what `reader` makes of its text; None where it isn't given, or can't be known or read."""
        option = self.options.get(name)
        text = _text(option) if option is not None else None
        value = reader(text) if text is not None else None
        return None if option is None or value is None else self.view(option, value)

    def text(self, name: str) -> Argument[str] | None:
        """An option whose value is known."""
        return self.read(name, str)

    def integer(self, name: str) -> Argument[int] | None:
        """An option whose value is an integer."""
        number = self.options.integer(name)
        return self.read(name, lambda _: number)


def _text(option: Option) -> str | None:
    return option.values[0].value if option.values else None


_IN_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?/(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchScript:
    """A shell script that starts a job: its `#SBATCH` block, variables and command lines."""

    document_kind: ClassVar[Kind] = "launch script"

    shell: ShellScript
    launches: tuple[Launch, ...]
    sbatch: Options  #: of the `#SBATCH` block, as far as sbatch reads it

    @classmethod
    def of(cls, shell: ShellScript) -> LaunchScript:
        """A script with what it launches."""
        return cls(shell=shell, launches=launches(shell), sbatch=sbatch_options(shell))

    @property
    def path(self) -> str:
        """The path as the user named it."""
        return self.shell.text.path

    @property
    def beside_launches(self) -> Iterator[Word]:
        """The words of the commands that start no training program, which may write or change what they name."""
        started = {call.word.offset for launch in self.launches for call in launch.calls}
        started |= {launch.program.offset for launch in self.launches if launch.program is not None}
        for command in self.shell.commands:
            if started.isdisjoint(word.offset for word in command.words):
                yield from command.words[1:]

    def makes(self, path: str, raw: str = "") -> bool:
        """Return whether a command writes or changes a file, or gets a text that names it: `python - <<EOF`.

        `$DIR/copy/a.json` is another file than `raw`, where that is `$DIR/a.json`.
        """
        words = (*self.shell.written, *self.shell.edited)
        own = _IN_VARIABLE.match(raw.replace('"', ""))
        others = (_IN_VARIABLE.match(word.raw.replace('"', "")) for word in words)
        apart = (own and other and own[1] == other[1] and own[2] != other[2] for other in others)
        written = (word.path for word, elsewhere in zip(words, apart, strict=True) if not elsewhere)
        given = (text.content for text in self.shell.heredocs if text.target is None)
        return any(end_alike(each, path) for each in written if each) or any(basename(path) in text for text in given)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDocument(YamlDocument):
    """YAML with a command that a service or a controller starts on its nodes, read as a shell script."""

    document_kind: ClassVar[Kind]
    #: Whether the paths of the command are those of an image or a volume, so that names alone tell files.
    in_image: ClassVar[bool] = False

    script: LaunchScript | None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The training programs that the command starts."""
        return self.script.launches if self.script is not None else ()

    def runs(self, *programs: str) -> bool:
        """Return whether the command calls one of these programs."""
        return any(call.program in programs for launch in self.launches for call in launch.calls)

    @property
    def start_folder(self) -> str | None:
        """The folder in which the command starts, from that of the file; None where nothing says it."""
        return None

    def input_file(self, name: str) -> tuple[str, Location] | None:
        """The local file that `${{inputs.NAME}}` stands for in the command, and its place."""
        return None
