"""What a class's name means in a Python module: the last that binds it, as Python has it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from .program_modules import bound_name, imported_from


class Binding(NamedTuple):
    """A statement that gives a name its meaning."""

    always: bool  #: whether it runs in any case: it is in no branch, function or class
    defined: ast.ClassDef | None = None  #: the class that it defines
    module: str = ""  #: else the module that it imports from, with dots in front if relative
    name: str = ""  #: the name in that module
    is_star: bool = False  #: whether it imports all names, perhaps not this one


def bindings(
    written: ast.expr, statements: Iterable[ast.stmt], top: Collection[ast.stmt]
) -> list[Binding]:
    """The statements that may bind a name or the first part of a dotted one, in their order.

    Those before the last that surely binds it aren't among them. `top` has the statements of the
    module itself.
    """
    dotted = ast.unparse(written)
    found = list[Binding]()
    top_ids = {id(statement) for statement in top}
    for statement in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
        for binding in _bound_by(statement, dotted, always=id(statement) in top_ids):
            if binding.always and not binding.is_star:
                found.clear()
            found.append(binding)
    return found


def _bound_by(statement: ast.stmt, dotted: str, always: bool) -> Iterator[Binding]:
    """How a statement binds a name."""
    first, _, rest = dotted.partition(".")
    if isinstance(statement, ast.ClassDef):
        if statement.name == dotted:
            yield Binding(always, defined=statement)
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            if rest and bound_name(alias) == first:
                # `import a.b as c` makes c.d of a.b.d, and `import a.b` leaves a.b.d as it is.
                full = f"{alias.name}.{rest}" if alias.asname else dotted
                module, _, name = full.rpartition(".")
                yield Binding(always, module=module, name=name)
    elif isinstance(statement, ast.ImportFrom):
        origin = imported_from(statement)
        for alias in statement.names:
            if alias.name == "*" and not rest:
                yield Binding(always, module=origin, name=dotted, is_star=True)
            elif bound_name(alias) == first:
                if not rest:
                    yield Binding(always, module=origin, name=alias.name)
                    continue
                # `from a import b` makes b.c of a.b.c; of `from . import b` it is .b.c.
                between = "" if origin.endswith(".") else "."
                module, _, name = f"{origin}{between}{alias.name}.{rest}".rpartition(".")
                yield Binding(always, module=module, name=name)
    elif isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == first for target in statement.targets
    ):
        yield Binding(always)  # to what isn't read
