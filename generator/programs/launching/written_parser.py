"""The parser of argparse that a program itself makes: its options, and how it reads their names.

Words that it doesn't know may go elsewhere (`parse_known_args`): its own options are read as they
are in every parser of argparse.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ...dataclass import dataclass
from ...text.around import until_next_check
from .added_options import (
    BOTH_WAYS,
    ELSEWHERE,
    AddedOption,
    added_options,
    called_with_parser,
    takes_over,
)
from .program_modules import (
    Module,
    assignments,
    is_for_main,
    module_of,
    name_of,
    texts_among,
)

#: Names with which there are options that aren't written out.
_OPEN: Final = frozenset({*ELSEWHERE, BOTH_WAYS})
#: Methods after which a list or mapping may hold more than where it is set.
_GROWS: Final = frozenset({"append", "extend", "update", "setdefault", "add", "insert"})
#: Functions of a list or mapping whose result has the same texts: `choices=sorted(MODELS)`.
_WRAPS: Final = frozenset({"sorted", "list", "tuple", "set"})


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
    module = module_of(program)
    if "ArgumentParser(" not in module.text:  # which needs no parsing then
        return None
    parser_calls = [call for call in module.calls if name_of(call.func) == "ArgumentParser"]
    if len(parser_calls) != 1 or not module.names.isdisjoint(_OPEN):
        return None
    (parser_call,) = parser_calls
    own_functions = {node.name for node in module.every(ast.FunctionDef)}
    if takes_over(parser_call) or not called_with_parser(module) <= own_functions:
        return None
    tables = dict(_tables(module))
    on_condition = {id(node) for node in _run_on_condition(module)}
    options = list[WrittenOption]()
    for added in added_options(module):
        if added.has_other_names or None in added.settings:
            return None
        options.append(_option(added, tables, always=id(added.call) not in on_condition))
    if not _is_off(parser_call, "add_help"):
        options.append(WrittenOption(names=("-h", "--help"), takes_value=False))
    return WrittenParser(
        options=tuple(options),
        abbreviates=not _is_off(parser_call, "allow_abbrev"),
        passes_over="parse_known_args" in module.names,
    )


def _is_off(call: ast.Call, name: str) -> bool:
    """Whether a call gives False to an argument by name."""
    values = (keyword.value for keyword in call.keywords if keyword.arg == name)
    return any(isinstance(value, ast.Constant) and value.value is False for value in values)


def _run_on_condition(module: Module) -> Iterator[ast.AST]:
    """What runs only where a condition holds, other than that the file is the program."""
    branching: list[ast.stmt] = module.every(ast.Try, ast.For, ast.While, ast.If)
    for statement in branching:
        if not is_for_main(statement):
            yield from ast.walk(statement)


def _option(
    added: AddedOption, tables: Mapping[str, tuple[str, ...]], *, always: bool
) -> WrittenOption:
    """What is known of an option that a call adds."""
    settings = added.settings
    choices, kind = settings.get("choices"), settings.get("type")
    is_text = kind is None or name_of(kind) == "str"  # else the choices are of what it makes
    return WrittenOption(
        names=added.names,
        takes_value=settings.keys().isdisjoint({"action", "nargs"}),
        always=always,
        choices=_choices(choices, tables) if choices is not None and is_text else None,
    )


def _choices(node: ast.expr, tables: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """The values that `choices` allows: written out, or those of a list or mapping by its name."""
    if isinstance(node, ast.Name):
        return tables.get(node.id)
    if not isinstance(node, ast.Call):
        return _all_texts(node)
    if name_of(node.func) in _WRAPS and len(node.args) == 1:
        return _choices(node.args[0], tables)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return _choices(node.func.value, tables)
    return None


def _all_texts(node: ast.expr | None) -> tuple[str, ...] | None:
    """The texts of a list, or the keys of a mapping, where all are written out."""
    if isinstance(node, ast.Dict):
        parts = [key for key in node.keys if key is not None]  # None: `**others`
        is_whole = len(parts) == len(node.keys)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        parts, is_whole = node.elts, True
    else:
        return None
    texts = texts_among(parts)
    return texts if is_whole and len(texts) == len(parts) else None


def _tables(module: Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lists and mappings of texts that a program has by a name, each of which is set once."""
    changed = {
        *(name_of(node.value) for node in module.every(ast.Attribute) if node.attr in _GROWS),
        *(name_of(node.target) for node in module.every(ast.AugAssign)),
        *(
            name_of(node.value)
            for node in module.every(ast.Subscript)
            if not isinstance(node.ctx, ast.Load)
        ),
    }
    values_by_name = defaultdict[str, list[ast.expr | None]](list)
    for target, value in assignments(module.every(ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        values_by_name[name_of(target)].append(value)
    for name, values in values_by_name.items():
        texts = _all_texts(values[0])
        if len(values) == 1 and texts is not None and name not in changed:
            yield name, texts
