"""The options that a module adds to parsers by `add_argument`, as its calls are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from .program_modules import Module, name_of, texts_among

#: The method that adds an option: a module whose text lacks it needs no parsing.
ADDS: Final = "add_argument"
#: Names with which a parser has options that no call of `add_argument` writes out, or other
#: prefixes than `-`. Source: Python 3.12, argparse.py
ELSEWHERE: Final = frozenset({"add_subparsers", "prefix_chars"})
#: An action that makes an option `--no-NAME` of each `--NAME`.
BOTH_WAYS: Final = "BooleanOptionalAction"


def takes_over(parser_call: ast.Call) -> bool:
    """Whether a parser may have the options of others: by `parents`, which `**more` may hold."""
    return any(keyword.arg in ("parents", None) for keyword in parser_call.keywords)


class AddedOption(NamedTuple):
    """An option as one call adds it."""

    call: ast.Call
    names: tuple[str, ...]  #: those that are written out
    has_other_names: bool  #: whether others may be made as the program runs
    settings: Mapping[str | None, ast.expr]  #: the arguments by name; None: `**more`


def added_options(module: Module) -> Iterator[AddedOption]:
    """The options that a module adds to parsers, groups of them among these."""
    for call in module.calls:
        if name_of(call.func) == ADDS:
            names = texts_among(call.args)
            yield AddedOption(
                call=call,
                names=names,
                has_other_names=not names or len(names) < len(call.args),
                settings={keyword.arg: keyword.value for keyword in call.keywords},
            )


def called_with_parser(module: Module) -> set[str]:
    """The functions that are called with a parser, which may add options to it."""
    return {
        name_of(call.func)
        for call in module.calls
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
        if name_of(value) in module.parsers or "parser" in name_of(value).lower()
    }
