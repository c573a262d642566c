"""A plugin of mypy: `int()` and `float()` read no text, and nothing whose type isn't known;
`numerals.py` does.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, ProperType, Type, UnionType, get_proper_type

_CONVERSIONS = ("builtins.int", "builtins.float")
_READS = ("builtins.str", "builtins.bytes", "builtins.bytearray", "builtins.object")


class _Numbers(Plugin):
    """The plugin."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return what looks at a call of `int` or `float`."""
        return _judged if fullname in _CONVERSIONS else None


def _judged(context: FunctionContext) -> Type:
    for types in context.arg_types[:1]:
        for of_argument in types:
            if not context.api.path.endswith("generator/numerals.py") and _may_be_text(
                get_proper_type(of_argument)
            ):
                shown = str(of_argument)
                context.api.fail(
                    f"int() or float() of {shown}: read it with generator/numerals.py",
                    context.context,
                )
    return context.default_return_type


def _may_be_text(of: ProperType) -> bool:
    if isinstance(of, UnionType):
        return any(_may_be_text(get_proper_type(part)) for part in of.items)
    if isinstance(of, Instance):
        return any(base.fullname in _READS[:3] for base in of.type.mro) or (
            of.type.fullname == _READS[3]
        )
    return False


def plugin(_: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return _Numbers
