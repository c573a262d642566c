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
from typing import Final

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
    last = word.parts[-1] if word is not None and word.parts else None
    return last.lstrip("/") if word is not None and word.value is None and last else last


def program_of(launch: Launch | None) -> Path | None:
    """The Python file that a launch line starts, where it is there."""
    programs = (
        find_programs(program_path(launch), launch.script.text.path) if launch is not None else ()
    )
    return next(iter(programs), None)


def program_text(launch: Launch) -> str | None:
    """The text of the Python file that a launch line starts; None where it isn't there."""
    path = program_of(launch)
    return text_around(path, path.parent) if path is not None else None


def prepares_no_loader(text: str) -> bool:
    """Return whether a program surely hands no loader to accelerate's `prepare`: it names none at
    all, and each argument is a plain name.
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
    plain = all(isinstance(word, ast.Name) for call in calls for word in call.args)
    named = any(call.keywords for call in calls)
    return bool(calls) and plain and not named and _LOADER.search(text) is None


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
    named, made = _names_in(project)
    name, folder = PurePath(path).name, Path(path).absolute().parent.name
    alike = (
        home in ("", folder)
        for home, first, last in made
        if name.startswith(first) and name.endswith(last)
    )
    return not named.get(name, set()).isdisjoint(("", folder)) or any(alike)


@until_next_check(16)
def _names_in(project: Path) -> tuple[Mapping[str, set[str]], frozenset[tuple[str, str, str]]]:
    """Return the names of configs in code and commands of a project, with the folders before them.

    The folder is "" where there is none, or it is one on another machine. Of names that variables
    make, the beginnings and ends are returned, with the folder where little else is known.
    """
    names, left = set[str](), _MOST_BYTES
    below = files_below(project, {name for name, ignored in ignored_in(project).items() if ignored})
    for place in islice(
        (place for place in below if place.name.endswith(_PROSE + _CODE)), _MOST_NAMING
    ):
        text = text_around(place, project, left)
        prose = place.suffix in _PROSE or place.name.startswith("test")
        left = max(left - len(text), 0)
        for match in _SUFFIX.finditer(text):
            line = text[max(match.start() - _MOST_BEFORE, 0) : match.start()].rpartition("\n")[2][
                ::-1
            ]
            path = _PATH.match(line)[0]  # type: ignore[index]
            before = line[len(path) :][::-1]
            if _OF_OPTION.search(before) or not (prose or _IN_COMMENT.search(before)):
                names.add(path[::-1] + match[0])
    named, made = defaultdict[str, set[str]](set), set[tuple[str, str, str]]()
    for folder, _, name in (path.rpartition("/") for path in names):
        home = folder.rpartition("/")[2].strip(".")
        home = "" if _VARIABLE.search(home) else home
        named[name].add("" if folder.startswith("/") else home)
        parts = _VARIABLE.split(name)
        enough = len((parts[0] + parts[-1]).rpartition(".")[0]) >= _ENOUGH_LETTERS
        if len(parts) > 1 and (enough or home):
            made.add(("" if enough else home, parts[0], parts[-1]))
    return named, frozenset(made)


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
        return _found(program, holder, os.getcwd())  # noqa: PTH109 - a text is a faster key
    return ()


@until_next_check(1024)
def _found(program: str, holder: str, _: str) -> tuple[Path, ...]:
    folder = Path(holder).parent
    name, above = program, folders_above(folder / PurePath(program).name)
    if program.startswith("/"):
        path = PurePath(program)
        name = path.name
        above = (
            base for base in above if base == folder.absolute() or base.name == path.parent.name
        )
    return tuple(place for place in (base / name for base in above) if is_readable(place, folder))


@until_next_check(1024)
def programs_in(place: Path, folder: Path, pattern: str = "*.py") -> list[Path]:
    """Return the Python files of a place in the project of `folder`, in order.

    There are none where it may not be read.
    """
    return list(matching(pattern, place, folder))


def python_beside(program: Path, *more: Path) -> list[Path]:
    """Return the Python files around a program, at most `MOST_FILES`.

    They are those of its own folder, those it imports from the folders above, and `more`.
    """
    folder, above = program.parent, tuple(folders_above(program))
    text = text_around(program, folder)
    names = {base: frozenset(names_in(str(base), str(folder))) for base in above}
    imported = []
    for module in dict.fromkeys(_IMPORT.findall(text)):
        # One look at a folder is less than one for each file that may be there.
        first, path = module.partition(".")[0], module.replace(".", "/")
        homes = (base for base in above if not names[base].isdisjoint((first, f"{first}.py")))
        places = (
            base / path_end for base in homes for path_end in (f"{path}.py", f"{path}/__init__.py")
        )
        imported.append(next((place for place in places if is_readable(place, folder)), None))

    files = [*programs_in(folder, folder)[:MOST_FILES], *filter(None, imported), *more]
    return list(islice(dict.fromkeys(files), MOST_FILES))


@until_next_check(64)
def strings_beside(program: Path) -> frozenset[str]:
    """The strings in a program, and in the Python that it imports and that lies beside it."""
    return frozenset[str]().union(*map(strings_in, python_beside(program)))


@until_next_check(1024)
def strings_in(path: Path) -> frozenset[str]:
    """The strings in a file, which many programs may import."""
    return frozenset(STRING.findall(text_around(path, path.parent)))
