"""Every compiled pattern of the package, and the ways in which it is used."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    from re import _parser as parser  # type: ignore[attr-defined]  # it has no stub
except ImportError:  # Python 3.10
    import sre_parse as parser  # type: ignore[no-redef,unused-ignore]

import dsgen
from dsgen.patterns import LazyPattern
from dsgen.secrets import patterns as secret_patterns

_WAYS = "match|fullmatch|search|subn|sub|finditer|findall|split"
_USE = re.compile(rf"\b(\w+)(?:\[[^\]\[\n]*\])?\.({_WAYS})\b")
_LOOP = re.compile(r"\bfor ([\w, ]+) in (\w+)\b")
_FLAGS_AT = {"compile": 1, "sub": 4, "subn": 4, "split": 3}  #: the argument of `re`'s functions
_DEEPEST = 6  #: containers and objects around a pattern


@dataclass
class Use:
    """A pattern of the package: where it is, and `match`, `fullmatch` or `finditer`."""

    name: str
    ways: set[str] = field(default_factory=set)


def _way(function: str) -> str:
    """What takes a function's time: all that search look at every place of a text."""
    return function if function in ("match", "fullmatch") else "finditer"


@cache
def all_patterns() -> dict[re.Pattern[Any], Use]:
    """The patterns in modules, classes and containers, and those written within functions.

    A pattern that a function makes of its arguments isn't among them.
    """
    uses: dict[re.Pattern[Any], Use] = {}
    for info in pkgutil.walk_packages(dsgen.__path__, "dsgen."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        ways: dict[str, set[str]] = {}
        for holder, function in _USE.findall(source):
            ways.setdefault(holder, set()).add(_way(function))
        for targets, container in _LOOP.findall(source):
            for name in re.findall(r"\w+", targets):
                ways.setdefault(container, set()).update(ways.get(name, ()))

        for holder, pattern in _held(module):
            uses.setdefault(pattern, Use(f"{info.name}.{holder}")).ways.update(ways.get(holder, ()))
        if "re." in source:
            for line, holder, function, pattern in _written(module, source):
                way = ways.get(holder, set()) if function == "compile" else {_way(function)}
                uses.setdefault(pattern, Use(f"{info.name}:{line}")).ways.update(way)

    for form in secret_patterns()["forms"]:
        uses.setdefault(re.compile(form["pattern"]), Use(f"secrets.json: {form['what']}"))
    for use in uses.values():
        use.ways = use.ways or {"finditer"}
    return uses


def _held(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns that a module's names lead to, each with the last name on the way."""
    seen = set[int]()
    waiting = [(name, value, 0) for name, value in vars(module).items()]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, LazyPattern):
            value = value.compiled
        if isinstance(value, re.Pattern):
            yield name, value
        if isinstance(value, str | bytes | int | float) or id(value) in seen or depth > _DEEPEST:
            continue
        seen.add(id(value))

        home = value.__module__ if isinstance(value, type) else type(value).__module__
        inner: list[tuple[str, Any]] = []
        if isinstance(value, dict):
            inner = [(name, part) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = [(name, part) for part in value]
        elif home.startswith("dsgen"):
            slots = getattr(type(value), "__slots__", ())
            inner = [(slot, getattr(value, slot, None)) for slot in slots]
            inner += list(getattr(value, "__dict__", {}).items())
        waiting += [(key, part, depth + 1) for key, part in inner]


def _written(module: ModuleType, source: str) -> Iterator[tuple[int, str, str, re.Pattern[Any]]]:
    """The calls of `re`: line, the name that is given to the result, function, pattern."""
    tree = ast.parse(source)
    names: dict[ast.AST | None, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names[node.value] = getattr(target, "id", "")

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=function)):
                if function not in ("compile", *_WAYS.split("|")):
                    continue
                at = _FLAGS_AT.get(function, 2)
                flags = [*node.args[at : at + 1]]
                flags += [word.value for word in node.keywords if word.arg == "flags"]
                try:
                    pattern = re.compile(*(_value(part, module) for part in [node.args[0], *flags]))
                except NameError:  # made of a function's arguments
                    continue
                yield node.lineno, names.get(node, ""), function, pattern


def _value(expression: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(expression), module.__name__, "eval"), {**vars(module)})


def literals(pattern: re.Pattern[Any]) -> set[str]:
    """The texts that a pattern has letter by letter, and the single letters of its sets."""
    texts = set[str]()
    waiting: list[Any] = [parser.parse(pattern.pattern, pattern.flags)]
    while waiting:
        run = ""
        for code, value in [*waiting.pop(), (None, None)]:
            if str(code) == "LITERAL":
                run += chr(value)
                continue
            texts.add(run)
            run = ""
            waiting += [part for part in _parts(value) if isinstance(part, parser.SubPattern)]
            if str(code) == "IN":
                texts |= {chr(letter) for kind, letter in value if str(kind) == "LITERAL"}
    return texts - {""}


def _parts(value: Any) -> Iterator[Any]:
    """A value of a parsed pattern, with what is in its tuples and lists."""
    yield value
    if isinstance(value, tuple | list):
        for part in value:
            yield from _parts(part)
