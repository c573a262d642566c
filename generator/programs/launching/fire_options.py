"""The options of a program that hands a function to fire, which makes one of each parameter.

Words that the function doesn't take are refused after it has run: `Could not consume arg`. Source:
fire 0.7.1, core.py (_ParseKeywordArgs).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from ...dataclass import dataclass
from ...text.around import until_next_check
from .program_modules import (
    DEFINITIONS,
    Module,
    as_field,
    bound_name,
    files_imported,
    imported_from,
    module_of,
    name_of,
)

#: What fire answers anywhere.
_HELP: Final = "help"
#: Imports that are followed to the function.
_MOST_STEPS: Final = 3
#: Types of parameters whose value isn't a switch.
_VALUES: Final = frozenset({"str", "int", "float"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FireOptions:
    """The parameters of the function that fire calls."""

    names: tuple[str, ...]
    valued: frozenset[str]  #: those that `True` can't be meant for

    def takes(self, option: str) -> bool:
        """Whether an option is a parameter, by its name, its first letter, or `no` before it."""
        name = as_field(option)
        if len(name) == 1:  # ambiguous where several begin so, which isn't judged here
            return any(each.startswith(name) for each in self.names)
        return name == _HELP or name in self.names or name.removeprefix("no") in self.names

    def needs_value(self, option: str) -> bool:
        return as_field(option) in self.valued


@until_next_check(64)
def fire_options(program: Path) -> FireOptions | None:
    """The options by the only function that a program hands to fire; None where there may be
    others.
    """
    module = module_of(program)
    if "fire" not in module.text:  # which needs no parsing then
        return None
    calls = [call for call in module.calls if name_of(call.func) == "Fire"]
    if len(calls) != 1 or module.origin(calls[0].func) != "fire":
        return None
    (call,) = calls
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], ast.Name):
        return None
    function = _function(program, module, call.args[0].id, _MOST_STEPS)
    if function is None or function.decorator_list:
        return None
    parameters = function.args
    if parameters.vararg is not None or parameters.kwarg is not None:
        return None
    return FireOptions(
        names=tuple(each.arg for each in _named(parameters)),
        valued=frozenset(_valued(parameters)),
    )


def _named(parameters: ast.arguments) -> list[ast.arg]:
    return [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]


def _valued(parameters: ast.arguments) -> list[str]:
    """The parameters of which neither the type nor the default can stand for a switch."""
    placed = [*parameters.posonlyargs, *parameters.args]
    absent: list[ast.expr | None] = [None] * (len(placed) - len(parameters.defaults))
    defaults = [*absent, *parameters.defaults, *parameters.kw_defaults]
    return [
        parameter.arg
        for parameter, default in zip(_named(parameters), defaults, strict=True)
        if parameter.annotation is not None
        and name_of(parameter.annotation) in _VALUES
        and not (isinstance(default, ast.Constant) and default.value in (None, 0, 1))
    ]


def _function(program: Path, module: Module, name: str, steps: int) -> ast.FunctionDef | None:
    """The function of a module that a name means there; None where that isn't sure."""
    bound = [node for node in module.top if name in _names_bound(node)]
    # One within a branch may be another.
    elsewhere = [node for node in module.every(ast.Name) if node.id == name and _is_set(node)]
    if len(bound) != 1 or elsewhere or not steps:
        return None
    (statement,) = bound
    if isinstance(statement, ast.FunctionDef):
        return statement
    if not isinstance(statement, ast.ImportFrom):
        return None
    original = next(each.name for each in statement.names if bound_name(each) == name)
    files = files_imported(program, module, imported_from(statement))
    if len(files) != 1:
        return None
    return _function(program, module_of(files.pop()), original, steps - 1)


def _names_bound(statement: ast.stmt) -> set[str]:
    """The names to which a definition or an import, perhaps within a branch, gives a meaning."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    names = set[str]()
    for node in ast.walk(statement):
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(map(bound_name, node.names))
    return names


def _is_set(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
