"""The copy of a front end that a repository carries: what it sets by default, and what it checks.

It may be of another release than the table, or changed. What it checks is read from its `assert`
and `raise` statements: the names that the condition of each depends on.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Version
from ...job.releases import NEWEST
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...text.around import (
    files_below,
    folders_above,
    is_readable,
    matching,
    text_around,
    until_next_check,
)
from ..releases import parsed, release_of
from .front_ends import FrontEnd
from .hydra_config import Defaults, defaults_of
from .program_modules import (
    DEFINITIONS,
    FUNCTIONS,
    as_field,
    assignments,
    modules_from,
    name_of,
)

_MOST_FILES: Final = 2_000  # of a copy; verl has 400
_DOTTED: Final = lazy_pattern(r"[A-Za-z_][\w.]*")  # a key in a text
_PATH: Final = lazy_pattern(r"(?<![\w/])\w[\w/]*\.py\b")  # of a source
_TURNS_OFF: Final = lazy_pattern(r"\A(?:no|disable)_")
_STOPS: Final = lazy_pattern(r"\b(?:assert|raise)\b")
#: Signs of what a condition compares, as they stand among its names.
_SIGNS: Final[Mapping[type[ast.AST], str]] = {
    ast.Mod: "%",
    ast.Lt: "<",
    ast.LtE: "<",
    ast.Gt: "<",
    ast.GtE: "<",
    ast.Eq: "==",
    ast.NotEq: "==",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A front end's package within a repository."""

    front_end: FrontEnd
    folder: Path  #: the package's own
    program: Path | None  #: the module that a launch starts, where it is in the package

    @property
    def shown(self) -> str:
        """Its folder, as messages name it."""
        path = os.path.relpath(self.folder)
        return f"{self.folder.name if path.startswith('..') else path}/"

    def is_of(self, first: Version | None) -> bool:
        """Whether it is surely of a release or a newer one, of the table's by default."""
        program = self.front_end.program
        release = release_of(program, str(self.folder / "__init__.py")) if program else None
        if release is None or not release.is_known:
            return False  # a copy that doesn't say its release
        least = first or NEWEST[program]
        return release.certain(lambda version: version >= least)

    def defaults(self, name: str, chosen: Mapping[str, str]) -> Defaults | None:
        """The values of its config, or of that of another name, for the options of groups that a
        launch chooses.
        """
        return None if self.program is None else defaults_of(self.program, name, chosen)

    def program_calls(self, function: str) -> bool:
        """Whether the program that is started calls a function, or a module does that it imports.

        A module that may be started by itself calls it for itself.
        """
        return self.program is not None and _calls(self.program, function)

    def has_word(self, text: str) -> bool:
        """Whether its Python has a text in quotes, as the name of a choice."""
        return quotes(self.folder, text)

    def has_option(self, name: str) -> bool:
        """Whether its Python makes an option: the field of a class, or one of argparse."""
        return _declares(self.folder, as_field(name))

    def raises(self, names: Iterable[frozenset[str]], first: Iterable[str] = ()) -> frozenset[str]:
        """The exceptions of its checks that depend on one name of each set; empty: it has none.

        The files `first` are looked through first, by paths such as `verl/utils/config.py`.
        """
        return _raises(self.folder, tuple(names), tuple(first))


def copy_of(launch: Launch, front_end: FrontEnd) -> Copy | None:
    """The copy of a front end that a launch starts, as far as its folder tells; None: none."""
    package = front_end.package
    if not package:
        return None
    module = (launch.program.value or "") if launch.program and launch.starts_module else ""
    is_in_package = module.startswith(f"{package}.")
    sign = f"{module.replace('.', '/')}.py" if is_in_package else f"{package}/__init__.py"
    root = _root_of(Path(launch.script.text.path).parent, sign, str(Path.cwd()))
    if root is None:
        return None
    program = root / sign if is_in_package else None
    return Copy(front_end=front_end, folder=root / package, program=program)


def copy_has_option(path: str, front_end: FrontEnd, name: str) -> bool:
    """Whether the copy of a front end that a file's repository carries makes an option."""
    copy = _copy_beside(path, front_end)
    return copy is not None and copy.has_option(name)


def _copy_beside(path: str, front_end: FrontEnd) -> Copy | None:
    """The copy of a front end that a file's repository carries; None without one."""
    package = front_end.package or _package_of_source(front_end)
    sign = f"{package}/__init__.py"
    root = _root_of(Path(path).parent, sign, str(Path.cwd())) if package else None
    if root is None:
        return None
    return Copy(front_end=front_end, folder=root / package, program=None)


def _package_of_source(front_end: FrontEnd) -> str:
    """The package whose file a front end was first read from; empty where it is in none."""
    for match in _PATH.finditer(front_end.source):
        path: str = match[0]
        package, _, within = path.removeprefix("src/").partition("/")
        if within:
            return package
    return ""


@until_next_check(512)
def _root_of(holder: Path, sign: str, _working_folder: str) -> Path | None:
    """The nearest folder above files that has a file, or that has one folder which does: a package
    is installed from there, or found where Python is started there.
    """
    for folder in folders_above(holder / "_"):
        if is_readable(folder / sign, folder):
            return folder
        below = list(islice(matching(f"*/{sign}", folder, folder), 2))
        if len(below) == 1:
            return folder / below[0].relative_to(folder).parts[0]
    return None


@until_next_check(512)
def _raises(
    package: Path, names: tuple[frozenset[str], ...], first: tuple[str, ...]
) -> frozenset[str]:
    """The exceptions of the checks of a package that depend on one name of each set.

    Those of the first file that has any are all.
    """
    files = dict.fromkeys((*(package.parent / path for path in first), *_files_of(package)))
    words = [each for each in names if each.isdisjoint(_SIGNS.values())]
    for path in files:
        text = text_around(path, package)
        may_check = all(any(name in text for name in each) for each in words)
        if not may_check or not _STOPS.search(text):
            continue
        exceptions = {
            check.exception
            for check in _checks_in(path, package)
            if not any(each.isdisjoint(check.names) for each in names)
            and (not check.function or _is_called(package, check.function))
        }
        if exceptions:
            return frozenset(exceptions)
    return frozenset()


@until_next_check(64)
def _calls(program: Path, function: str) -> bool:
    """Whether a program calls a function, as `Copy.program_calls` has it."""
    call = re.compile(rf"(?<!def )(?<!\w){re.escape(function)}\(")
    return any(
        call.search(module.text)
        for module in islice(modules_from(program), _MOST_FILES)
        if module.path == program or "__main__" not in module.text
    )


@until_next_check(256)
def _is_called(package: Path, function: str) -> bool:
    """Whether a Python file of a package names a function, other than to define it or in a comment.

    Python calls those with two underscores itself.
    """
    if function.startswith("__"):
        return True
    named = re.compile(rf"^(?![ \t]*(?:async )?def )[^#\n]*\b{re.escape(function)}\b", re.MULTILINE)
    texts = (text_around(path, package) for path in _files_of(package))
    return any(function in text and named.search(text) for text in texts)


@until_next_check(64)
def _files_of(package: Path) -> tuple[Path, ...]:
    """The Python files of a package."""
    files = (path for path in files_below(package) if path.suffix == ".py")
    return tuple(islice(files, _MOST_FILES))


@until_next_check(64)
def quotes(package: Path, text: str) -> bool:
    """Whether a Python file of a package has a text in quotes."""
    quoted = re.compile(rf"[\"']{re.escape(text)}[\"']")
    return any(quoted.search(text_around(path, package)) for path in _files_of(package))


def adds_option(package: Path, option: str) -> bool:
    """Whether a package may make an option: of a field too, which a switch turns off."""
    name = as_field(option)
    return any(_declares(package, each) for each in {name, _TURNS_OFF.sub("", name)})


@until_next_check(256)
def _declares(package: Path, name: str) -> bool:
    """Whether a Python file of a package has a field of a name, or an option in quotes."""
    dashed = re.escape(name).replace("_", "[_-]")
    declared = re.compile(rf"^[ ]{{4}}{re.escape(name)}[ ]?:|[\"']--{dashed}[\"']", re.MULTILINE)
    words = (name, name.replace("_", "-"))
    texts = (text_around(path, package) for path in _files_of(package))
    return any(any(word in text for word in words) and declared.search(text) for text in texts)


class _Check(NamedTuple):
    """A statement that stops the program."""

    exception: str
    #: what the conditions that lead to it depend on, and their signs
    names: frozenset[str]
    function: str  #: that has it; empty in the module itself, or where a decorator may call it


@until_next_check(256)
def _checks_in(path: Path, package: Path) -> tuple[_Check, ...]:
    """The checks of a file."""
    tree = parsed(text_around(path, package))
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    return tuple(check for part in (tree, *functions) for check in _checks_of(part, _made_in(part)))


def _checks_of(
    part: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef,
    made: Mapping[str, Collection[str]],
) -> Iterator[_Check]:
    """The checks of a module or function itself, not of functions in it."""
    function = "" if isinstance(part, ast.Module) or part.decorator_list else part.name
    pending: list[tuple[ast.stmt, frozenset[str]]] = [
        (statement, frozenset()) for statement in part.body
    ]
    while pending:
        statement, outer = pending.pop()
        if isinstance(statement, ast.Assert):
            names = outer | _names_in(statement.test)
            yield _Check("AssertionError", _made_of(names, made), function)
        elif isinstance(statement, ast.Raise) and statement.exc is not None:
            exception = statement.exc
            called = exception.func if isinstance(exception, ast.Call) else exception
            names = outer | _names_in(exception)
            name = ast.unparse(called).rpartition(".")[2]
            yield _Check(name, _made_of(names, made), function)
        elif not isinstance(statement, DEFINITIONS):
            inner = outer
            if isinstance(statement, (ast.If, ast.While)):
                inner |= _names_in(statement.test)
            pending += ((child, inner) for child in _statements_in(statement))


def _statements_in(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements right within another one."""
    for block in ("body", "orelse", "finalbody"):
        yield from getattr(statement, block, ())
    for handler in getattr(statement, "handlers", ()):
        yield from handler.body


def _made_in(part: ast.AST) -> Mapping[str, Collection[str]]:
    """What each variable or attribute that a function sets is made of, by its name."""
    made = defaultdict[str, set[str]](set)
    for target, value in assignments(ast.walk(part)):
        if value is None:
            continue
        names = _names_in(value)
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, (ast.Name, ast.Attribute)):
                made[name_of(each)] |= names
    return made


def _made_of(names: Iterable[str], made: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Names, and those that they are made of in turn."""
    known, pending = set[str](), list(names)
    while pending:
        name = pending.pop()
        if name not in known:
            known.add(name)
            pending += made.get(name, ())
    return frozenset(known)


def _names_in(expression: ast.expr) -> frozenset[str]:
    """The names, attributes and keys in an expression, and the signs of what it compares."""
    names = set[str]()
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _DOTTED.fullmatch(node.value):
                names.update(node.value.split("."))
        elif type(node) in _SIGNS:
            names.add(_SIGNS[type(node)])
    return frozenset(names)
