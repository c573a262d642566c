"""The repository around a file.

It has the programs that launch lines start, and Python and prose that speak of a config.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from ..patterns import lazy_pattern
from ..text.around import (
    files_below,
    folders_above,
    ignored_in,
    is_readable,
    matching,
    names_in,
    text_around,
    until_next_check,
)
from .launches import Launch

_LOADER: Final = lazy_pattern(r"load(?:er)?s?\b|iter(?:ator)?s?\b|batch", re.IGNORECASE)
_IMPORT: Final = lazy_pattern(r"^[ \t]*(?:from|import)\s+([A-Za-z_][\w.]*)", re.MULTILINE)
STRING: Final = lazy_pattern(r"""["']([^"'\\\s]{1,80})["']""")
#: Of a folder; of 3,630 folders with Python in 230 public repositories 99.9 % have no more.
MOST_FILES: Final = 60

#: Files that may name a config; in prose and comments an option has to be before it.
_PROSE: Final = (".md", ".rst", ".txt")
_CODE: Final = (
    ".py",
    ".sh",
    ".bash",
    ".sbatch",
    ".slurm",
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".ipynb",
    "Makefile",
)
_MOST_NAMING: Final = 2_000  # such files, and their bytes in all that are read: bounds on time
_MOST_BYTES: Final = 8_000_000
_ENOUGH_LETTERS: Final = 3  # of a name of which variables make a part
_SUFFIX: Final = lazy_pattern(r"\.(?:h?json|ya?ml)\b")  # looked for first: paths begin anywhere
_PATH: Final = lazy_pattern(r"[\w.${}/-]*")  # in letters from the last to the first
#: What is before the path on its line.
_OF_OPTION: Final = lazy_pattern(r"(?<![\w.-])[\w.]*-[\w.-]+[= ][\"']?$")
_IN_COMMENT: Final = lazy_pattern(r"(?<!\S)#")
_MOST_BEFORE: Final = 200  # characters of a line before a path
_VARIABLE: Final = lazy_pattern(r"\$?\{\w*\}|\$\w+")


def program_path(launch: Launch | None) -> str | None:
    """Return the training script's path from the folder that it is run from.

    Where a variable names a folder, the path is from that one.
    """
    word = launch.program if launch is not None else None
    if word is None or not word.parts:
        return None
    last = word.parts[-1]
    return last.lstrip("/") if last and word.value is None else last


def program_of(launch: Launch | None) -> Path | None:
    """The Python file that a launch line starts, where it is there."""
    if launch is None:
        return None
    programs = find_programs(program_path(launch), launch.script.text.path)
    return next(iter(programs), None)


def files_started(launch: Launch) -> tuple[Path, ...]:
    """Return the Python files that a launch line may start, the nearest first.

    Those of a module are of the packages here, from the folder of the script or one above.
    """
    path = program_path(launch)
    if path is not None and launch.starts_module and "/" not in path:
        path = f"{path.replace('.', '/')}.py"
    return find_programs(path, launch.script.text.path)


def program_text(launch: Launch) -> str | None:
    """The text of the Python file that a launch line starts; None where it isn't there."""
    path = program_of(launch)
    return text_around(path, path.parent) if path is not None else None


def prepares_no_loader(text: str) -> bool:
    """Return whether a program surely hands no loader to accelerate's `prepare`.

    It names none at all, and each argument is a plain name.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "prepare"
    ]
    are_names = all(isinstance(argument, ast.Name) for call in calls for argument in call.args)
    has_keywords = any(call.keywords for call in calls)
    return bool(calls) and are_names and not has_keywords and _LOADER.search(text) is None


def sets_key(pointer: str, holder: str) -> bool:
    """Return whether Python near the config `holder` sets the key, and names its block.

    It sets it as `config["key"] = …`.
    """
    block, _, key = pointer.rpartition("/")
    beside = rf"""\A(?=[\s\S]*["']{block.rpartition("/")[2]}["'])[\s\S]*?""" if block else ""
    return _near(beside + r"""\[["']{}["']\]\s*=(?!=)""", key, holder)


def reads_key(key: str, holder: str) -> bool:
    """Return whether Python near the config `holder` looks the key up in a mapping."""
    return _near(r"""(?:\[|\b(?:get|pop)\()\s*["']{}["']""", key, holder)


def declares_field(name: str, holder: str) -> bool:
    """Return whether a class in Python near the file `holder` has the field itself."""
    return _near(r"^[ \t]+{}[ \t]*:[^=\n()]+=", name, holder)


def _near(pattern: str, word: str, holder: str) -> bool:
    """Return whether Python near a file has the pattern, in which `{}` is the word.

    Near is in or just below a folder above the file.
    """
    compiled = re.compile(pattern.replace("{}", re.escape(word)), re.MULTILINE)
    return any(
        has_text(folder, compiled, ("*.py", "*/*.py"), word) for folder in folders_above(holder)
    )


def has_programs(holder: str) -> bool:
    """Return whether there is Python near the file `holder`, which may complete a config.

    Near is in or just below a folder above the file.
    """
    return any(
        has_text(folder, re.compile(""), ("*.py", "*/*.py")) for folder in folders_above(holder)
    )


def is_named_in_project(path: str) -> bool:
    """Return whether a project names a config.

    Its code has the name, or a comment or prose has it after an option.
    """
    *_, project = (Path(path).parent, *folders_above(path))
    names = _names_in(project)
    name, folder = PurePath(path).name, Path(path).absolute().parent.name
    if not names.folders.get(name, set()).isdisjoint(("", folder)):
        return True
    return any(
        made.folder in ("", folder) and name.startswith(made.first) and name.endswith(made.last)
        for made in names.made
    )


class _MadeName(NamedTuple):
    """A name of which a variable makes a part."""

    folder: str  #: before it; "": in any, as enough letters are known
    first: str  #: before the first variable
    last: str  #: behind the last variable


class _Names(NamedTuple):
    """The names of configs that a project has in its code and commands."""

    #: by name, those before it; "": none, or one on another machine
    folders: Mapping[str, set[str]]
    made: frozenset[_MadeName]


@until_next_check(16)
def _names_in(project: Path) -> _Names:
    """Return the names of configs in code and commands of a project."""
    folders, made = defaultdict[str, set[str]](set), set[_MadeName]()
    for path in _paths_in(project):
        folder, _, name = path.rpartition("/")
        last_folder = folder.rpartition("/")[2].strip(".")
        last_folder = "" if _VARIABLE.search(last_folder) else last_folder
        folders[name].add("" if folder.startswith("/") else last_folder)
        parts = _VARIABLE.split(name)
        stem = (parts[0] + parts[-1]).rpartition(".")[0]
        has_enough = len(stem) >= _ENOUGH_LETTERS
        if len(parts) > 1 and (has_enough or last_folder):
            made.add(_MadeName("" if has_enough else last_folder, parts[0], parts[-1]))
    return _Names(folders, frozenset(made))


def _paths_in(project: Path) -> set[str]:
    """The paths of JSON and YAML in code of a project, and behind options in its prose."""
    paths, bytes_left = set[str](), _MOST_BYTES
    ignored = {name for name, is_ignored in ignored_in(project).items() if is_ignored}
    below = files_below(project, ignored)
    naming = (place for place in below if place.name.endswith(_PROSE + _CODE))
    for place in islice(naming, _MOST_NAMING):
        text = text_around(place, project, bytes_left)
        bytes_left = max(bytes_left - len(text), 0)
        is_prose = place.suffix in _PROSE or place.name.startswith("test")
        for match in _SUFFIX.finditer(text):
            start = match.start()
            line = text[max(start - _MOST_BEFORE, 0) : start].rpartition("\n")[2]
            letters = len(_PATH.match(line[::-1])[0])  # type: ignore[index]
            begin = len(line) - letters
            before, path = line[:begin], line[begin:]
            if _OF_OPTION.search(before) or not (is_prose or _IN_COMMENT.search(before)):
                paths.add(path + match[0])
    return paths


@until_next_check(512)
def has_text(
    folder: Path, pattern: re.Pattern[str], names: tuple[str, ...], word: str = ""
) -> bool:
    """Return whether a pattern is in one of the folder's files of these names.

    What matches it has the `word`.
    """
    return any(map(pattern.search, texts_of(folder, names, word)))


def texts_of(folder: Path, names: tuple[str, ...], word: str) -> Iterator[str]:
    """The texts of the folder's files of these names that have the `word`."""
    files = (path for name in names for path in _files_in(folder, name))
    return (text for text in (text_around(path, folder) for path in files) if word in text)


@until_next_check(512)
def _files_in(folder: Path, pattern: str) -> tuple[Path, ...]:
    """The first `MOST_FILES` of a folder that fit a pattern; many words are looked for in them."""
    return tuple(islice(matching(pattern, folder, folder), MOST_FILES))


def find_programs(program: str | None, holder: str) -> tuple[Path, ...]:
    """Return the Python files that a path may mean, the nearest first.

    The path is from the folder of what starts it, or from one above. An absolute path is of another
    machine: files of its name count that are beside, or in a folder of the same name as there.
    """
    if program and program.endswith(".py"):
        return _programs_from(program, holder, os.getcwd())  # noqa: PTH109 - text is a faster key
    return ()


@until_next_check(1024)
def _programs_from(program: str, holder: str, _working_folder: str) -> tuple[Path, ...]:
    """The files of `find_programs`, as they are from this working folder."""
    folder = Path(holder).parent
    path = PurePath(program)
    bases = folders_above(folder / path.name)
    if program.startswith("/"):
        places = [
            base / path.name
            for base in bases
            if base == folder.absolute() or base.name == path.parent.name
        ]
    else:
        places = [base / program for base in bases]
    return tuple(place for place in places if is_readable(place, folder))


@until_next_check(1024)
def programs_in(place: Path, folder: Path, pattern: str = "*.py") -> list[Path]:
    """Return the Python files of a place in the project of `folder`, in order.

    There are none where it may not be read.
    """
    return list(matching(pattern, place, folder))


@until_next_check(1024)
def names_of_programs(place: Path, folder: Path, pattern: str = "*.py") -> tuple[str, ...]:
    """The names of the files that `programs_in` returns."""
    return tuple(path.name for path in programs_in(place, folder, pattern))


def python_beside(program: Path, *more: Path) -> list[Path]:
    """Return the Python files around a program, at most `MOST_FILES`.

    They are those of its own folder, those it imports from the folders above, and `more`.
    """
    around = [*programs_in(program.parent, program.parent)[:MOST_FILES], *imported_by(program)]
    return list(islice(dict.fromkeys((*around, *more)), MOST_FILES))


def imported_by(program: Path) -> list[Path]:
    """The Python files that a program imports from the folders above it."""
    folder, above = program.parent, tuple(folders_above(program))
    text = text_around(program, folder)
    names = {base: frozenset(names_in(str(base), str(folder))) for base in above}
    imported: list[Path] = []
    for module in dict.fromkeys(_IMPORT.findall(text)):
        # One look at a folder is less than one for each file that may be there.
        first, path = module.partition(".")[0], module.replace(".", "/")
        homes = (base for base in above if not names[base].isdisjoint((first, f"{first}.py")))
        files = (f"{path}.py", f"{path}/__init__.py")
        places = (base / file for base in homes for file in files)
        imported += islice((place for place in places if is_readable(place, folder)), 1)
    return imported


@until_next_check(64)
def strings_beside(program: Path) -> frozenset[str]:
    """The strings in a program, and in the Python that it imports and that lies beside it."""
    return frozenset[str]().union(*map(strings_in, python_beside(program)))


@until_next_check(1024)
def strings_in(path: Path) -> frozenset[str]:
    """The strings in a file, which many programs may import."""
    return frozenset(STRING.findall(text_around(path, path.parent)))
