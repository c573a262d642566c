"""Finds where a word of a shell script ends: past its quotes, brackets and nested commands. Nothing recurs."""

from __future__ import annotations

import re
from typing import Final

from ...facts.placeholders import IN_WORDS

COMMENT_TEXT: Final = re.compile(r"#[^\n]*")
_ANSI: Final = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
#: By what is open, the characters that mean nothing there. What is open is named by the character that closes it;
#: `"}` is a `${` inside double quotes, where a single quote is a plain character.
_RUN: Final = {
    "": re.compile(r"[^\s\\\"'$`|&;()<>]+"),
    '"': re.compile(r'[^"\\$`]+'),
    ")": re.compile(r"[^'\"\\$`()#]+"),
    "}": re.compile(r"[^'\"\\$`}]+"),
    '"}': re.compile(r"[^\"\\$`}]+"),
    "`": re.compile(r"[^`\\]+"),
}
_LONGEST_TEMPLATE: Final = 500  # characters between `${{` and `}}`

# Texts with nothing nested in them, which one match passes over. No two alternatives begin with the same character, so
# there is one way to match a text: these never go back and forth.
_BRACES: Final = r"\$\{[^\"'\\$`{}]*\}"
_ARITHMETIC: Final = r"\$\(\([^()'\"\\$`#]*\)\)"
_OLD_ARITHMETIC: Final = r"\$\[(?:[^\[\]'\"\\$`\n]|\$\w)*\]"
_NESTED: Final = f"{_BRACES}|{_ARITHMETIC}|{_OLD_ARITHMETIC}"
_IN_QUOTES: Final = rf'[^"\\$`]*(?:(?:\\.|\$(?![({{\[])|{_NESTED})[^"\\$`]*)*'
#: The most of a word that is easily passed over; it may go on.
EASY: Final = rf"""(?s:(?:[^\s\\"'$`|&;()<>]+|"{_IN_QUOTES}"|'[^']*'|\$(?![({{\['"])|{_NESTED})+)"""
_OLD: Final = re.compile(_OLD_ARITHMETIC)
EASY_EXPANSION: Final = re.compile(_NESTED)
EASY_QUOTED: Final = re.compile(f'(?s:"{_IN_QUOTES}")')
_EASY_WORD: Final = re.compile(rf"{EASY}(?=([\s;&|()])?)")


def word_end(text: str, position: int) -> tuple[int, bool]:
    """Where the word that begins at `position` ends, and whether everything in it is closed."""
    easy = _EASY_WORD.match(text, position)
    return (easy.end(), True) if easy and easy.lastindex else scan(text, position)


def scan(text: str, position: int, closers: tuple[str, ...] = ()) -> tuple[int, bool]:
    """Where the word that begins at `position` ends, and whether everything in it is closed.

    With `closers` (innermost last) the position is inside these, and the end is past the last one's close.
    """
    size, stack = len(text), list(closers)
    while position < size:
        context = stack[-1] if stack else ""
        run = _RUN[context].match(text, position)
        if run:
            position = run.end()
            continue
        character = text[position]
        if context and character == context[-1]:
            stack.pop()
            position += 1
            if closers and not stack:
                return position, True
        elif character == "\\":
            position += 2
        elif character == "$" or (character in "<>" and text.startswith("(", position + 1)):
            position = _dollar(text, position, stack, context)
        elif character == "'" and context != '"':
            close = text.find("'", position + 1)
            position = size + 1 if close < 0 else close + 1
        elif character in '"`':
            stack.append(character)
            position += 1
        elif not context and character == "<" and (placeholder := IN_WORDS.match(text, position)):
            position = placeholder.end()
        elif not context:
            return position, True
        elif context == ")" and character == "#" and text[position - 1] in " \t\n;":
            comment = COMMENT_TEXT.match(text, position)
            position = comment.end() if comment else position + 1
        else:
            if context == ")" and character == "(":
                stack.append(")")
            position += 1
    return min(position, size), position <= size and not stack


def _dollar(text: str, position: int, stack: list[str], context: str) -> int:
    """What begins with a dollar sign, or `<(`: opens a bracket on the stack, or is passed over."""
    following = text[position + 1 : position + 2]
    quoted = context in ('"', '"}')
    if following == "(":
        stack.append(")")
    elif following == "{":
        is_template = text.startswith("${{", position)
        close = text.find("}}", position, position + _LONGEST_TEMPLATE) if is_template else -1
        if close >= 0:
            return close + 2
        stack.append('"}' if quoted else "}")
    elif old := _OLD.match(text, position):
        return old.end()
    elif following == "'" and not quoted:
        match = _ANSI.match(text, position + 2)
        return match.end() if match else len(text) + 1
    elif following == '"' and context != '"':
        stack.append('"')
    else:
        return position + 1
    return position + 2
