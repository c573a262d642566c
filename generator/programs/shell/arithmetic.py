"""Arithmetic of the shell, where every number in it is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_MOST_CHARACTERS: Final = 200
_WIDTH: Final = 2**63  # bash counts in 64 bits; what leaves them is called unknown
_TOKEN: Final = re.compile(r"\s*(?:(\d+(?![\w#]))|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<<|>>|[-+*/%()]))")
_LEVEL: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "**": 4}


class _Unknown(Exception):
    """The value can't be known."""


def evaluate(text: str, value_of: Callable[[str], str | None]) -> int | None:
    """The value of an arithmetic expression, None where it can't be known. `value_of` gives a variable's text."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        parser = _Parser(text, value_of)
        result = parser.expression(0)
    except _Unknown:
        return None
    return None if parser.tokens else result


class _Parser:
    """Precedence climbing over a short text, so its recursion is short as well."""

    def __init__(self, text: str, value_of: Callable[[str], str | None]) -> None:
        self.tokens: list[str | int] = []  #: last first
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise _Unknown
            number, name, operator = match.groups()
            self.tokens.append(operator or _integer(number or value_of(name)))
            position = match.end()
        self.tokens.reverse()

    def expression(self, level: int) -> int:
        left = self._operand()
        while self.tokens:
            operator = self.tokens[-1]
            here = _LEVEL.get(operator) if isinstance(operator, str) else None
            if here is None or here < level:
                break
            self.tokens.pop()
            left = _apply(str(operator), left, self.expression(here if operator == "**" else here + 1))
        return left

    def _operand(self) -> int:
        token = self.tokens.pop() if self.tokens else ""
        if isinstance(token, int):
            return token
        if token in ("-", "+"):
            operand = self.expression(5)
            return -operand if token == "-" else operand
        if token != "(":
            raise _Unknown
        inner = self.expression(0)
        if not self.tokens or self.tokens.pop() != ")":
            raise _Unknown
        return inner


def _integer(text: str | None) -> int:
    """A number as bash reads it: a leading 0 means base 8."""
    if text is None or not re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text.strip()):
        raise _Unknown
    return int(text)


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise _Unknown
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # towards zero, as in C
        result = quotient if operator == "/" else left - right * quotient
    elif operator == "**":
        if not 0 <= right < 64 or abs(left) > 2**32:
            raise _Unknown
        result = left**right
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[operator]
    if not -_WIDTH <= result < _WIDTH:
        raise _Unknown
    return result
