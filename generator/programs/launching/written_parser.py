"""The parser of argparse that a program itself makes: its options, and how it reads their names.

Words that it doesn't know may go elsewhere (`parse_known_args`): its own options are read as they
are in every parser of argparse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...dataclass import dataclass
from ...text.around import text_around, until_next_check
from ..releases import parsed

#: Methods, arguments and classes with which there are options that aren't written out.
_OPEN: Final = frozenset({"add_subparsers", "parents", "prefix_chars", "BooleanOptionalAction"})
_ADDS: Final = "add_argument"
_GROWS: Final = frozenset({"append", "extend", "update", "setdefault", "add", "insert"})
_WRAPS: Final = frozenset({"sorted", "list", "tuple", "set"})  #: what choices may be put through


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOption:
    """An option as a program adds it."""

    names: tuple[str, ...]
    takes_value: bool  #: whether one value comes next
    choices: tuple[str, ...] | None = None  #: None: any, or not known
    always: bool = True  #: whether it is added whatever a condition says


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenParser:
    """A program's only parser, of which all options are written out."""

    options: tuple[WrittenOption, ...]
    abbreviates: bool  #: whether an unambiguous beginning of a long name will do
    passes_over: bool  #: whether words that it doesn't know are left to others

    def meant_by(self, name: str) -> tuple[WrittenOption, ...]:
        """The options that a name stands for: none, one, or several where it is ambiguous."""
        exact = tuple(option for option in self.options if name in option.names)
        if exact or not self.abbreviates or not name.startswith("--") or len(name) < 3:
            return exact
        return tuple(
            option for option in self.options if any(each.startswith(name) for each in option.names)
        )

    def confused(self, name: str) -> tuple[WrittenOption, ...]:
        """The options of which argparse can't tell one by a beginning; none where it can."""
        meant = tuple(option for option in self.meant_by(name) if option.always)
        return meant if len(meant) > 1 else ()


@until_next_check(64)
def written_parser(program: Path) -> WrittenParser | None:
    """The parser that a program makes; None where it makes none or several, or where options of it
    aren't written out.
    """
    text = text_around(program, program.parent)
    if "ArgumentParser(" not in text:
        return None
    tree = parsed(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {name for node in ast.walk(tree) for name in _names_of(node)}
    parsers = [call for call in calls if _name(call.func) == "ArgumentParser"]
    if len(parsers) != 1 or not names.isdisjoint(_OPEN):
        return None
    tables = dict(_tables(tree))
    on_condition = {id(call) for call in _calls_on_condition(tree)}
    options = [
        _option(call, tables, always=id(call) not in on_condition)
        for call in calls
        if _name(call.func) == _ADDS
    ]
    known = tuple(option for option in options if option is not None)
    if len(known) < len(options):
        return None
    helps = WrittenOption(names=("-h", "--help"), takes_value=False)
    abbreviates = _keyword(parsers[0], "allow_abbrev")
    adds_help = _keyword(parsers[0], "add_help")
    return WrittenParser(
        options=known if _is_false(adds_help) else (*known, helps),
        abbreviates=not _is_false(abbreviates),
        passes_over="parse_known_args" in names,
    )


def _names_of(node: ast.AST) -> Iterator[str]:
    """The names that a part of a program has itself."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return next(_names_of(node), "")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of an argument that is given by name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _calls_on_condition(tree: ast.Module) -> Iterator[ast.AST]:
    """What is called only where a condition holds, other than that the file is the program."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Try, ast.For, ast.While)):
            yield from ast.walk(node)
        elif isinstance(node, ast.If):
            is_main = any(_name(part) == "__name__" for part in _parts_of(node.test))
            yield from () if is_main else ast.walk(node)


def _parts_of(node: ast.expr) -> Iterator[ast.expr]:
    return (part for part in ast.walk(node) if isinstance(part, ast.expr))


def _option(
    call: ast.Call, tables: dict[str, tuple[str, ...]], *, always: bool
) -> WrittenOption | None:
    """The option that a call adds; None where its names aren't written out."""
    names = _texts(call.args)
    if not names or len(names) < len(call.args) or any(each.arg is None for each in call.keywords):
        return None
    takes_value = _keyword(call, "action") is None and _keyword(call, "nargs") is None
    choices, kind = _keyword(call, "choices"), _keyword(call, "type")
    is_text = kind is None or _name(kind) == "str"  # else the choices are of what it makes
    return WrittenOption(
        names=names,
        takes_value=takes_value,
        always=always,
        choices=_choices(choices, tables) if choices is not None and is_text else None,
    )


def _texts(nodes: list[ast.expr]) -> tuple[str, ...]:
    """Those of some parts of a program that are texts written out."""
    return tuple(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _all_texts(node: ast.expr | None) -> tuple[str, ...] | None:
    """The texts of a list, or the keys of a mapping, where all are written out."""
    if isinstance(node, ast.Dict):
        parts = [key for key in node.keys if key is not None]
        is_whole = len(parts) == len(node.keys)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        parts, is_whole = node.elts, True
    else:
        return None
    texts = _texts(parts)
    return texts if is_whole and len(texts) == len(parts) else None


def _tables(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lists and mappings of texts that a program has by a name, each of which is set once."""
    grown = {
        _name(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _GROWS
    }
    places = dict[str, list[tuple[str, ...] | None]]()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = [node.target]
        for target in targets:
            base = target.value if isinstance(target, ast.Subscript) else target
            value = getattr(node, "value", None) if base is target else None
            places.setdefault(_name(base), []).append(_all_texts(value))
    for name, values in places.items():
        if len(values) == 1 and values[0] is not None and name not in grown:
            yield name, values[0]


def _choices(node: ast.expr, tables: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """The values that `choices` allows: written out, or those of a list or mapping by its name."""
    if isinstance(node, ast.Call):
        if _name(node.func) in _WRAPS and len(node.args) == 1:
            return _choices(node.args[0], tables)
        is_of_keys = isinstance(node.func, ast.Attribute) and node.func.attr == "keys"
        return _choices(node.func.value, tables) if is_of_keys else None  # type: ignore[attr-defined]
    if isinstance(node, ast.Name):
        return tables.get(node.id)
    return _all_texts(node)
