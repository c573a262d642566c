"""What starts Python of the repository without naming a file: its package's own commands, and the
texts of `python -c`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from ...patterns import lazy_pattern
from ...submission.launches import OF_STEPS
from ...submission.script import LaunchScript
from ...text.around import folders_above, is_readable, text_around, until_next_check
from ...text.shell.records import Word
from ..releases import parsed
from .program_modules import bound_name, file_of, module_of, name_of
from .tables import program_name

#: Where a package declares its commands: tables of pyproject.toml, and a key of setuptools'.
#: Source: PyPA's specification of entry points; Poetry's manual, `tool.poetry.scripts`
_TABLES: Final = lazy_pattern(
    r"^\[(?:project|tool\.poetry)\.scripts\][^\n]*\n((?:(?!\[)[^\n]*(?:\n|\Z))*)", re.MULTILINE
)
_CONSOLE_SCRIPTS: Final = lazy_pattern(r"\bconsole_scripts\b[\"']?\s*[:=]([^\]\[]*(?:\[[^\]]*)?)")
#: `train = "package.cli:main"`, also in one pair of quotes.
_ENTRY: Final = lazy_pattern(r"[\"']?([\w.-]{1,80})[\"']?\s*=\s*[\"']?([\w.]{1,200}):\w")
#: Folders of a project in which its packages are.
_HOMES: Final = ("", "src", "lib", "python")
#: What a program does that trains: a pass backward, or a trainer of a library that makes it.
_TRAINS: Final = lazy_pattern(r"\.backward\(|\b\w*Trainer\(|\.fit\(")


def file_of_command(name: str, holder: str) -> str | None:
    """The Python file that a command of the repository's own package runs, from a folder above the
    file `holder`; None for other commands, and where the file isn't here.
    """
    if "/" in name:
        return None
    for folder in folders_above(holder):
        module = _commands_in(folder).get(name)
        if module is not None:
            return next(_files_of(module, folder), None)
    return None


@until_next_check(64)
def _commands_in(folder: Path) -> dict[str, str]:
    """The commands that a folder's package declares, with the module of each."""
    declared = list[str]()
    text = text_around(folder / "pyproject.toml", folder)
    declared += _TABLES.findall(text) if ".scripts]" in text else ()
    for name in ("setup.py", "setup.cfg"):
        text = text_around(folder / name, folder)
        declared += _CONSOLE_SCRIPTS.findall(text) if "console_scripts" in text else ()
    return dict(_ENTRY.findall("\n".join(declared)))


def _files_of(module: str, folder: Path) -> Iterator[str]:
    """The file of a module of a package in a folder, as a path from there."""
    for home in _HOMES:
        for end in (".py", "/__init__.py"):
            path = Path(home, f"{module.replace('.', '/')}{end}")
            if is_readable(folder / path, folder):
                yield path.as_posix()


def file_of_code(code: str, holder: str) -> str | None:
    """The Python file of the repository that a text of `python -c` runs to train.

    The text calls what it imports from there, and leaves the words behind it to that. The path is
    from a folder above the file `holder`.
    """
    if "import" not in code or "argv" in code:
        return None
    path = _file_called(code, Path(holder).absolute().parent)
    if path is None or not _trains(path):
        return None
    above = (folder for folder in folders_above(holder) if path.is_relative_to(folder))
    return next((path.relative_to(folder).as_posix() for folder in above), None)


def program_trains(path: str, holder: str) -> bool:
    """Return whether a Python file, from a folder above the file `holder`, trains."""
    files = (folder / path for folder in folders_above(holder))
    return any(is_readable(file, file.parent) and _trains(file) for file in files)


def has_command(words: Sequence[Word]) -> bool:
    """Return whether a program is given a command of its own: `train` in `tool train --lr 1e-4`."""
    return len(words) > 1 and not words[1].raw.startswith("-")


def not_followed(script: LaunchScript) -> Iterator[tuple[Word, str]]:
    """The words of a script that start training in a way that isn't followed, each with a reason.

    They are texts of `python -c` that train by themselves, and commands of the repository's package
    with commands of their own and options of training.
    """
    followed = {call.command.index for launch in script.launches for call in launch.calls}
    for command in script.shell.commands:
        words = command.run
        if command.index in followed or len(words) < 2:
            continue
        is_python = any(program_name(word) == "python" for word in words)
        for before, word in pairwise(words if is_python else ()):
            if before.value == "-c" and trains_by_itself(word.value or ""):
                yield word, "the text that `python -c` runs trains, and is not read"
        name = words[0].value or ""
        path = file_of_command(name, script.path) if has_command(words) else None
        options = {word.raw.partition("=")[0].replace("_", "-") for word in words if path}
        if path and not options.isdisjoint(OF_STEPS) and program_trains(path, script.path):
            yield words[0], f"what {name} {words[1].raw} starts is not followed"


def trains_by_itself(code: str) -> bool:
    """Return whether a text of `python -c` is a program that trains.

    Passes backward without a step of an optimizer warm a GPU up, or measure it.
    """
    signs = {match[0] for match in _TRAINS.finditer(code)}
    return ".step(" in code if signs == {".backward("} else bool(signs)


@until_next_check(256)
def _file_called(code: str, folder: Path) -> Path | None:
    """The file from which a text imports what it calls last."""
    tree = parsed(code)
    files = dict[str, Path]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            of_module = getattr(node, "module", None)
            for alias in node.names:
                path = file_of(of_module or alias.name, folder)
                member = file_of(f"{of_module}.{alias.name}", folder) if of_module else None
                if member or path:
                    files[bound_name(alias)] = member or path  # type: ignore[assignment]
    called = [_first_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return next((files[name] for name in reversed(called) if name in files), None)


def _first_name(node: ast.expr) -> str:
    """The first part of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return name_of(node)


@until_next_check(64)
def _trains(path: Path) -> bool:
    """Whether a module, or one of the repository that it imports itself, trains.

    What those import in turn is a library, of which many a tool takes a part.
    """
    modules = (module_of(each) for each in (path, *module_of(path).imported))
    return any(_TRAINS.search(module.text) is not None for module in modules)
