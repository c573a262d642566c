"""Commands that end too early: the lines below them that were meant for them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from ...text.shell.records import Assignment, Command, ShellScript
from ...text.text import Text

#: A long option, or what hydra's programs accept: `trainer.nodes=2`, `+model.fp8=true`.
_ARGUMENT: Final = lazy_pattern(r"--[A-Za-z][\w-]*|\+{0,2}[A-Za-z]\w*(?:\.\w[\w-]*)+=")
#: An array's words, those of a variable, or a short option; and what follows the last word of a
#: command whose line lacks a backslash.
_FURTHER_IN: Final = lazy_pattern(r'(?:"?\$\{?\w+(?:\[[@*]\])?\}?"?|-[A-Za-z])(?:\s|\Z)')
#: Words of a command that are variables, up to its end: those that they stand for are elsewhere.
_VARIABLES_BEHIND: Final = lazy_pattern(
    r'(?:(?:[ \t]|\\\n)+"?\$(?:\w+|\{\w+[^\s{}]*\})"?(?=\s|\Z))*'
)
_OPTION: Final = lazy_pattern(r"--[A-Za-z]")
_COMMENT_THAT_GOES_ON: Final = lazy_pattern(r"[ \t]*#[^\n]*\\(?=\n|\Z)")
_BELOW_A_LINE: Final = lazy_pattern(rf"\n{_COMMENT_THAT_GOES_ON.pattern}")
#: What is no command's name: an option, data, a program that isn't begun with `./`, a number, the
#: script's own arguments.
_NO_COMMAND: Final = lazy_pattern(
    r"(?:-[A-Za-z][\w=-]*|\w[\w./-]*\.(?:py|ya?ml|jsonl?|txt|csv)|[0-9][0-9.e+-]*"
    r"|\"?\$(?:[@*]|\{[@*]\})\"?)(?=\s|\Z)"
)
#: The variable that a command begins with: `"${TORCHRUN[@]}"`.
_FIRST_VARIABLE: Final = lazy_pattern(r"[\"']?\$\{?(\w+)")
#: The last word of a command that ends in a backslash which escapes a blank, or the end of a line
#: as on DOS.
_ESCAPED_BLANK: Final = lazy_pattern(r"(?:.*[^\\])?\\[ \t\r]", re.DOTALL)
_KEY: Final = lazy_pattern(r"\w+=")
_MOST_LINE: Final = 10_000  # characters before an option that are looked at: a bound on time


class CutOff(NamedTuple):
    """A line that was meant for the command above it."""

    above: int  #: the index of that command
    offset: int
    name: str  #: the line's first word
    is_apart: bool = False  #: whether an empty line is between them
    sets: bool = False  #: whether it sets a variable of the shell, and runs nothing


def cut_commands(shell: ShellScript, launches: Container[int]) -> frozenset[int]:
    """The indices of those of the commands `launches` that end before what was meant for them."""
    ending_in_blank = (
        command.index
        for command in shell.commands
        if command.index in launches
        and command.words
        and _ESCAPED_BLANK.fullmatch(command.words[-1].raw)
    )
    below = (cut_off.above for cut_off in lines_cut_off(shell, launches) if not cut_off.is_apart)
    return frozenset((*ending_in_blank, *below))


def lines_cut_off(shell: ShellScript, launches: Container[int]) -> Iterator[CutOff]:
    """The lines that were meant for the command above them; of several below one, the first.

    Below the commands `launches` more is taken for such a line. A file that begins with an option
    is a list of options, and no script.
    """
    first_words = (command.words[0].raw for command in shell.commands if command.words)
    if _ARGUMENT.match(next(first_words, "")):
        return

    begins_with_array = _begin_with_array(shell)
    told_at = -1  # the index of the last command that is cut off
    told_of = set[int]()
    for above, command in pairwise(shell.commands):
        if command.offset in begins_with_array:
            continue
        cut_off = _cut_off(shell, above, command, is_below_launch=above.index in launches)
        if cut_off is None:
            continue
        if told_at != above.index:
            told_of.add(above.index)
            yield cut_off
        told_at = command.index
    yield from (each for each in _keys_cut_off(shell, launches) if each.above not in told_of)


def _cut_off(
    shell: ShellScript, above: Command, command: Command, *, is_below_launch: bool
) -> CutOff | None:
    """A command as a line that was meant for the command above it; None where it wasn't."""
    content, at = _content_at(shell, command.offset)
    begins_here = bool(command.words) and command.words[0].offset == command.offset
    option = _ARGUMENT.match(content, at) if begins_here else _variable_of_options(shell, command)
    if option is None and not is_below_launch:
        return None
    is_in_text = any(
        word.offset <= command.offset < word.offset + len(word.raw) for word in above.words
    )
    if is_in_text or command.offset <= above.offset:
        # The first command of a text: `bash -c "` with `$PYTHON train.py` below; or a function's.
        return None

    # A command within a line isn't cut off; below a backslash with blanks behind it the backslash
    # is what is wrong.
    line_above, indent = _line_above(content, at)
    if line_above is None or indent.strip() or re.search(r"\\[ \t]+$", line_above):
        return None

    meant = option
    if option is None and not _has_keyword_between(shell, above, command.offset):
        is_further_in = bool(line_above.strip()) and _is_further_in(shell, above, indent)
        meant = _argument_below(content, at, line_above) if is_further_in else None
    if meant is None:
        return None
    name = meant[0].strip().rstrip("=")
    return CutOff(above.index, command.offset, name, not line_above.strip())


def _variable_of_options(shell: ShellScript, command: Command) -> re.Match[str] | None:
    """The variable that a command begins with, where its value begins with an option."""
    first = command.words[0].value if command.words else None
    if not _OPTION.match(first or ""):
        return None
    content, at = _content_at(shell, command.offset)
    variable = _FIRST_VARIABLE.match(content, at)
    is_its_word = variable is not None and any(
        assignment.name == variable[1] and _first_word(assignment) == first
        for assignment in shell.assignments
    )
    return _FURTHER_IN.match(content, at) if is_its_word else None


def _first_word(assignment: Assignment) -> str | None:
    """The first word of a variable's value, as far as it is known."""
    if assignment.words is not None:
        return assignment.words[0].value if assignment.words else None
    return next(iter(((assignment.parts or ("",))[0] or "").split()), None)


def _keys_cut_off(shell: ShellScript, launches: Container[int]) -> Iterator[CutOff]:
    """Keys of a launch, such as `max_turns=10`, that a comment above them makes variables."""
    if not any(map(_has_comment_that_goes_on, shell.texts)):
        return  # as in most scripts
    of_commands = {
        assignment.offset for command in shell.commands for assignment in command.environment
    }
    told_at = -1
    for assignment in shell.assignments:
        if assignment.exported or assignment.offset in of_commands:
            continue
        content, at = _content_at(shell, assignment.offset)
        key = _KEY.match(content, at)
        line_above, indent = _line_above(content, at)
        if key is None or indent.strip() or not _COMMENT_THAT_GOES_ON.match(line_above or ""):
            continue
        before = (
            command
            for command in reversed(shell.commands[: assignment.command_index])
            if command.offset < assignment.offset
        )
        above = next(before, None)
        if above is None or above.index not in launches or above.index == told_at:
            continue
        if _is_further_in(shell, above, indent) and not _has_keyword_between(
            shell, above, assignment.offset
        ):
            told_at = above.index
            yield CutOff(above.index, assignment.offset, key[0].rstrip("="), sets=True)


def _has_comment_that_goes_on(text: Text) -> bool:
    is_first = _COMMENT_THAT_GOES_ON.match(text.content) is not None
    return is_first or _BELOW_A_LINE.search(text.content) is not None


def _begin_with_array(shell: ShellScript) -> frozenset[int]:
    """Offsets of commands such as `"${TORCHRUN[@]}"`, where the array begins with a program."""
    programs = {
        assignment.name
        for assignment in shell.assignments
        if assignment.words
        and assignment.words[0].raw  # of `NAME+=` what is before may not be known
        and not assignment.words[0].raw.lstrip("\"'").startswith(("-", "$"))
    }
    # Where the elements of the array are known, they are the words of the command.
    names = (
        (command.offset, _FIRST_VARIABLE.match(*_content_at(shell, command.offset)))
        for command in shell.commands
        if command.words
    )
    return frozenset(offset for offset, name in names if name is not None and name[1] in programs)


def _content_at(shell: ShellScript, offset: int) -> tuple[str, int]:
    """The text that an offset is in, its own or that of a file which it calls; and where in it."""
    text, base = shell.text_at(offset)
    return text.content, offset - base


def _line_above(content: str, at: int) -> tuple[str | None, str]:
    """The line above a place, None without one; and what precedes the place on its own."""
    before = content[max(0, at - _MOST_LINE) : at]
    above, line_end, indent = before.rpartition("\n")
    return (above.rpartition("\n")[2] if line_end else None), indent


def _has_keyword_between(shell: ShellScript, above: Command, offset: int) -> bool:
    """Whether a word such as `done` or `else` is on the lines between a command and an offset."""
    content, at = _content_at(shell, offset)
    base = offset - at
    ends = (word.offset + len(word.raw) for word in above.words)
    end = max(max(ends, default=above.offset) - base, 0)
    variables = _VARIABLES_BEHIND.match(content, end, at)
    lines = content[variables.end() if variables else end : at].split("\n")
    return any(not line.lstrip().startswith("#") and line.strip(" \t\\") for line in lines)


def _is_further_in(shell: ShellScript, launch: Command, indent: str) -> bool:
    """Whether a line is indented further than a launch above it."""
    return len(indent) >= (shell.locate(launch.offset).column or 0)


def _argument_below(content: str, at: int, line_above: str) -> re.Match[str] | None:
    """The first word of a line without `--` that was meant for the launch right above it."""
    below_comment = _COMMENT_THAT_GOES_ON.match(line_above)
    value = _NO_COMMAND.match(content, at) if below_comment else None
    return value or _FURTHER_IN.match(content, at)
