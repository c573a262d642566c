"""The Python modules of a program: what they import from the repository, and what names in them
mean.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar

from ...patterns import lazy_pattern
from ...text.around import is_readable, names_in, text_around, until_next_check
from ..releases import parsed

#: The folders above a module in which those that it imports are looked for.
_MOST_ABOVE: Final = 6
#: Classes whose objects read a program's options.
PARSERS: Final = frozenset({"ArgumentParser", "HfArgumentParser", "TrlParser"})
#: Methods that make a part of a parser, to which options are added as well.
GROUPS: Final = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
#: `from a.b import c`, or `import a.b as c, d`, of which the names are before `as` and between
#: commas.
_IMPORTS: Final = lazy_pattern(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b[ \t(]*([^\n#;)]*)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_FIRST: Final = r"(?:^|,)\s*([\w.]+)"
#: An option's name as argparse and its kin are given it, or a field of a class; `-` is written as
#: `_`.
_DECLARES: Final = lazy_pattern(r"""["']__(\w+)["']|^[ ]{4}(\w+)\s*:\s*[A-Za-z"']""", re.MULTILINE)

#: The modules of a program that are searched for its parser, or for a class of its arguments; of
#: 486 public programs 479 have it in these.
_MOST_WITH_PARSERS: Final = 12
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Statements whose bodies don't run where they stand.
DEFINITIONS: Final = (*FUNCTIONS, ast.ClassDef)
_IS_MAIN: Final = "__name__ == '__main__'"

Node = TypeVar("Node", bound=ast.AST)


class Module:
    """A Python file: its calls, its classes, and the files in the repository that it imports.

    It is parsed when it is first asked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = text_around(path, path.parent)

    @cached_property
    def plain_text(self) -> str:
        """Its text with `-` written as `_`, as many programs that import it ask for it."""
        return self.text.replace("-", "_")

    @cached_property
    def declared(self) -> frozenset[str]:
        """The options and fields that it declares, `-` written as `_`."""
        return frozenset(option or field for option, field in _DECLARES.findall(self.plain_text))

    def every(self, *kinds: type[Node]) -> list[Node]:
        by_kind = _nodes_of(self.text)
        return [node for kind in kinds for node in by_kind.get(kind, ())]

    @property
    def top(self) -> list[ast.stmt]:
        """The statements of the module itself."""
        return [statement for tree in self.every(ast.Module) for statement in tree.body]

    @property
    def calls(self) -> list[ast.Call]:
        return self.every(ast.Call)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.every(ast.ClassDef)}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of variables, attributes and arguments that occur in it."""
        arguments = (keyword.arg for keyword in self.every(ast.keyword) if keyword.arg)
        return frozenset({*map(name_of, self.every(ast.Attribute, ast.Name)), *arguments})

    @cached_property
    def imported(self) -> tuple[Path, ...]:
        """The files of the modules that are imported by name, where they are in the repository."""
        names = list[str]()
        for origin, members, several in _IMPORTS.findall(self.text):
            names += [
                f"{origin.rstrip('.')}.{member}"
                for member in re.findall(_FIRST, members)
                if origin.strip(".")
            ]
            names += [origin] if origin else re.findall(_FIRST, several)
        folder = self.path.parent
        files = (file_of(name, folder) for name in dict.fromkeys(names))
        return tuple(filter(None, files))

    def origin(self, node: ast.expr) -> str | None:
        """The package that a name is imported from; None where that isn't seen."""
        while isinstance(node, ast.Attribute):
            node = node.value
        origins = self._origins.get(name_of(node), ())
        return next(iter(origins)) if len(origins) == 1 else None

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The packages that names are imported from."""
        packages = defaultdict[str, set[str]](set)
        for node in self.every(ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                packages[bound_name(alias)].add(package)
        for from_node in self.every(ast.ImportFrom):
            package = (from_node.module or "").partition(".")[0]
            for alias in from_node.names:
                packages[bound_name(alias)].add(package)
        return packages

    @cached_property
    def parsers(self) -> frozenset[str]:
        """The names of variables and attributes that hold a parser, or a group of one.

        They are assigned from a parser's class, or from a function that returns such a variable.
        """
        assigned = [
            (name_of(target), name_of(node.value.func))
            for node in self.every(ast.Assign)
            if isinstance(node.value, ast.Call)
            for target in node.targets
        ]
        made_here = {name for name, maker in assigned if maker in PARSERS | GROUPS}

        returned = [
            node.lineno
            for node in self.every(ast.Return)
            if node.value and name_of(node.value) in made_here
        ]
        functions = self.every(ast.FunctionDef) if returned else []
        makers = {
            function.name
            for function in functions
            if any(function.lineno <= line <= (function.end_lineno or 0) for line in returned)
        }
        made_by_function = {name for name, maker in assigned if maker in makers}
        return frozenset((made_here | made_by_function) - {""})


module_of = until_next_check(256)(Module)


# By the text: a repository may have the same file in many folders.
@until_next_check(256)
def _nodes_of(text: str) -> Mapping[type[ast.AST], list[Any]]:
    """All that is in a Python file by kind, from outside in; only the empty module where it can't
    be parsed.
    """
    by_kind = defaultdict[type[ast.AST], list[Any]](list)
    nodes: list[ast.AST] = [parsed(text)]
    for node in nodes:  # which grow; twice as fast as `ast.walk`, in the same order
        by_kind[type(node)].append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
    return by_kind


@until_next_check(4096)
def file_of(name: str, folder: Path) -> Path | None:
    """The file of a module that one in a folder imports, from there or from a few folders above."""
    bare = name.lstrip(".")
    if not bare:
        return None
    dots = len(name) - len(bare)
    homes = _homes(folder)
    if dots:  # relative: `.module` is in this folder, `..module` in the one above
        homes = homes[dots - 1 : dots]

    # One look at a folder is less than one for each file that may be there.
    first = bare.partition(".")[0]
    places = (
        home / f"{bare.replace('.', '/')}{end}"
        for home, names in homes
        if first in names or f"{first}.py" in names
        for end in (".py", "/__init__.py")
    )
    return next((place for place in places if is_readable(place, folder)), None)


@until_next_check(256)
def _homes(folder: Path) -> tuple[tuple[Path, frozenset[str]], ...]:
    """A folder and a few above it, with the names in each."""
    above = (folder, *islice(folder.parents, _MOST_ABOVE))
    return tuple((home, frozenset(names_in(str(home), str(folder)))) for home in above)


def modules_from(first: Path) -> Iterator[Module]:
    """A program, and then what it imports from the repository."""
    waiting, seen = [first], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            module = module_of(path)
            yield module
            waiting += module.imported


def first_modules(program: Path) -> Iterator[Module]:
    """A program and the first modules that it imports, where its parser is looked for."""
    return islice(modules_from(program), _MOST_WITH_PARSERS)


def files_imported(program: Path, module: Module, name: str) -> set[Path]:
    """The files in the repository that a module of a program may import by a name.

    Python looks beside the program first, whichever of its modules imports.
    """
    folders = (module.path.parent, program.parent)
    return set(filter(None, (file_of(name, folder) for folder in folders)))


def imported_from(statement: ast.ImportFrom) -> str:
    """The module whose names a statement imports, with dots in front if relative."""
    return "." * statement.level + (statement.module or "")


def bound_name(alias: ast.alias) -> str:
    """The name to which an import gives a meaning: `a` for `import a.b`."""
    return alias.asname or alias.name.partition(".")[0]


def is_for_main(statement: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a statement is the condition under which a program's own part runs."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == _IS_MAIN


def annotated_fields(node: ast.ClassDef) -> dict[str, ast.expr]:
    """The types of a class's own fields by name, as `dataclass` finds them."""
    return {
        part.target.id: part.annotation
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets that nodes assign to, with what is assigned; None: `x: int` alone."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            yield node.target, node.value


def texts_among(nodes: Iterable[ast.expr]) -> tuple[str, ...]:
    """Those of some expressions that are texts written out."""
    return tuple(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def as_field(option: str) -> str:
    """The field that parsers make of an option's name: `max_steps` of `--max-steps`."""
    return option.lstrip("-").replace("-", "_")


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
