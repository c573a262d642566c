"""The classes of which a program's parser makes options: which they are, and what they inherit."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from pathlib import Path
from sys import stdlib_module_names
from typing import Final, NamedTuple

from ...text.around import folders_above, is_readable, until_next_check
from ..releases import COPIES
from .class_names import Binding, bindings
from .program_modules import (
    Module,
    annotated_fields,
    files_imported,
    first_modules,
    module_of,
    name_of,
)

#: How many imports, and bases, are followed to a class.
_MOST_STEPS: Final = 12
#: Parsers that make options of classes, and read files by them.
_OF_CLASSES: Final = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
#: Gives other names to the option that a field makes. Source: transformers 5.23, hf_argparser.py,
#: HfArg.
ALIASES: Final = "aliases"


class Found(NamedTuple):
    """A class in the repository."""

    module: Module
    node: ast.ClassDef


class Outside(NamedTuple):
    """A class of a package that isn't in the repository."""

    package: str
    name: str


Class = Found | Outside


def class_meant(
    program: Path, module: Module, written: ast.expr, within: ast.ClassDef | None = None
) -> Class | None:
    """The class that an expression in a module of a program names; None where that isn't sure.

    `within` is a class that has it as a base.
    """
    possible = _possible(program, module, written, within, _MOST_STEPS)
    return possible.pop() if len(possible) == 1 else None


def _possible(
    program: Path, module: Module, written: ast.expr, within: ast.ClassDef | None, steps: int
) -> set[Class | None]:
    """The classes that a name may mean, None one that isn't known; empty: it isn't bound here."""
    if not steps or not isinstance(written, (ast.Name, ast.Attribute)):
        return {None}
    statements: list[ast.stmt] = [
        *module.every(ast.ClassDef, ast.Assign),
        *module.every(ast.Import, ast.ImportFrom),
    ]
    if within is not None:
        statements = [each for each in statements if each.lineno < within.lineno]
    possible = set[Class | None]()
    for binding in bindings(written, statements, module.top):
        found: set[Class | None] = {None}
        if binding.defined is not None:
            found = {Found(module, binding.defined)}
        elif binding.module:
            found = _imported(program, module, binding, steps - 1)
        if found:
            possible = found if binding.always else possible | found
    return possible


def _imported(program: Path, module: Module, binding: Binding, steps: int) -> set[Class | None]:
    """The classes that an imported name may mean."""
    name = f"{binding.module}__init__" if binding.module.endswith(".") else binding.module
    files = files_imported(program, module, name)
    package = name.partition(".")[0]
    if not files:
        is_harmless = binding.is_star and package in stdlib_module_names
        return set() if is_harmless else {Outside(package, binding.name)}
    possible = set[Class | None]()
    for file in files:
        found = _possible(program, module_of(file), ast.Name(binding.name), None, steps)
        possible |= found or (set() if binding.is_star else {None})
    return possible


def fields_of(
    program: Path, meant: Class, outside: Mapping[str, frozenset[str]], steps: int = _MOST_STEPS
) -> frozenset[str] | None:
    """The fields of a class, with those of its bases; None where one of them isn't known.

    `outside` has the fields of classes of packages, by `transformers.TrainingArguments`.
    """
    if isinstance(meant, Outside):
        known = outside.get(f"{meant.package}.{meant.name}")
        if known is None:
            return None
        copies = (base / COPIES[meant.package][0] for base in folders_above(program))
        # a copy may have other fields
        return None if any(is_readable(copy, program.parent) for copy in copies) else known
    module, node = meant
    if not steps or ALIASES in module.text:
        return None
    fields = set(annotated_fields(node))
    for base in node.bases:
        if name_of(base) == "object":
            continue
        of_base = class_meant(program, module, base, node)
        known = of_base and fields_of(program, of_base, outside, steps - 1)
        if known is None:
            return None
        fields |= known
    return frozenset(fields)


def handed_over(module: Module, parser_call: ast.Call) -> list[ast.expr]:
    """The classes that a call hands to a parser, as they are written; empty where that isn't seen.

    They are in its first argument, or in a variable there that is set once.
    """
    keywords = (each.value for each in parser_call.keywords if each.arg == "dataclass_types")
    for written in (*parser_call.args[:1], *keywords):
        values = [
            node.value
            for node in module.every(ast.Assign)
            if isinstance(written, ast.Name) and written.id in map(name_of, node.targets)
        ]
        value = values[0] if len(values) == 1 else written
        return list(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else [value]
    return []


@until_next_check(256)
def parses_a(program: Path, names: tuple[str, ...]) -> bool | None:
    """Whether a program's parser takes a class of one of these names, or one that inherits from it.

    None where no parser of classes is seen.
    """
    for module in first_modules(program):
        if not any(name in module.text for name in _OF_CLASSES):
            continue
        handed = [
            node
            for call in module.calls
            if name_of(call.func) in _OF_CLASSES
            for node in handed_over(module, call)
        ]
        if handed:
            return any(_is_a(program, module, node, None, names, _MOST_STEPS) for node in handed)
    return None


def _is_a(
    program: Path,
    module: Module,
    written: ast.expr,
    within: ast.ClassDef | None,
    names: Collection[str],
    steps: int,
) -> bool:
    """Whether a class is one of those of other packages, by name, or inherits from one."""
    meant = class_meant(program, module, written, within)
    if meant is None or not steps:
        return name_of(written) in names
    if isinstance(meant, Outside):
        return meant.name in names
    home, node = meant
    return any(_is_a(program, home, base, node, names, steps - 1) for base in node.bases)
