"""The filter on all output: no text acts on a terminal or commands a CI runner.

`guarded` puts it in front of standard output and error while a command runs, so nothing that prints
goes around it: answers in every format, errors, help, prompts, progress and other libraries'
warnings. What is escaped gets the escape of a JSON string, which leaves a JSON document's values as
they are.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from ..findings import HIDDEN
from ..patterns import lazy_pattern

#: The exit status of a program that SIGPIPE ended, as shells report it: 128 and the signal's
#: number.
READER_GONE: Final = 141

#: What a terminal or a log viewer obeys, but for line ends, tabs and the styles of
#: `printing.style`.
_CONTROL: Final = lazy_pattern(rf"\x1b\[[0-9;]*m|\r\n|(?![\n\t]){HIDDEN.pattern}")

# Runners compare by rules of a language, which pass over marks and formats: so do these patterns.
_BLANK: Final = r"[^\w\x21-\x7e\n]"  # what no one sees, blanks too
_MARK: Final = r"[^\w\x20-\x7e\n]"
_LETTER: Final = r"[^\x20-\x2f:-@\[-^`{-\x7e\n]"  # of a command's area, and marks

#: The beginning of a command, with the character that is escaped.
#:
#: - GitHub Actions: `::name` at the beginning of a line, after blanks; `##[name` anywhere in a
#:   line. **Source**: actions/runner, src/Runner.Common/ActionCommand.cs, TryParseV2 and TryParse.
#: - Azure Pipelines: `##vso[` anywhere in a line, and a warning for `##vso` alone; `##[group]` and
#:   its like. **Source**: microsoft/azure-pipelines-agent,
#:   src/Agent.Worker/WorkerCommandManager.cs; learn.microsoft.com, Logging commands.
#: - TeamCity: `##teamcity[` anywhere in a line. **Source**: jetbrains.com/help/teamcity, Service
#:   messages.
#: - GitLab: sections begin with a control sequence and a carriage return. **Source**:
#:   gitlab.org/gitlab, lib/gitlab/regex.rb, build_trace_section_regex.
_COMMAND: Final = lazy_pattern(
    rf"^{_BLANK}*(?P<colon>:){_BLANK}*:|#{_MARK}*(?P<hash>#)(?:(?i:vso)|{_LETTER}*\[)", re.MULTILINE
)
_LEADING: Final = lazy_pattern(rf"^{_BLANK}+")
_REMEMBERED: Final = 200  # characters of a line that isn't finished

#: The beginning of a command that dsgen means: an annotation (`--format github` and `azure`).
_MEANT: Final = lazy_pattern(r"::(?:error|warning|notice) |##vso\[task\.logissue ")


def harmless(text: str, line: str = "") -> str:
    """`text` as it may be printed after `line`, the start of the same line.

    What commands a terminal or a runner is escaped.
    """
    text = _CONTROL.sub(lambda match: match[0] if len(match[0]) > 1 else _escape(match[0]), text)
    whole, printed = line + text, len(line)
    if whole.isascii() and "::" not in whole and "##" not in whole:  # as nearly all text
        return text

    parts, position = list[str](), printed
    for match in _COMMAND.finditer(whole):
        if match.end() > printed:
            at = match.start(match.lastgroup or 0)
            at = at if at >= printed else match.end() - 1  # a command that came in pieces
            parts += [whole[position:at], _escape(whole[at])]
            position = at + 1
    return "".join((*parts, whole[position:]))


def _escape(char: str) -> str:
    """The escape of a character in a JSON string, also of one that needs none."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


class Guarded:
    """A text stream that prints what is `harmless`.

    It has no `buffer`, which would lead around it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""  # what the line that isn't finished holds

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str | bytes) -> int:
        """Print text. Ends the program with `READER_GONE` where nobody reads any more."""
        shown = text if isinstance(text, str) else text.decode()  # click completes words in bytes
        self._print(harmless(shown, self._line))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """The same for several texts."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Pass on what was printed."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._end()

    def redraw(self, text: str) -> None:
        """Print a text over the line, as a line of progress is."""
        self._print(f"\r{harmless(text)}")
        self.flush()

    def commands(self, lines: Iterable[str]) -> None:
        """Print lines that may begin with a command dsgen means; the rest of each is filtered."""
        shown = list[str]()
        for line in lines:
            meant = _MEANT.match(line)
            head = meant[0] if meant else ""
            shown.append(f"{head}{harmless(line[len(head) :], head)}\n")
        self._print("".join(shown))

    def _print(self, text: str) -> None:
        line = _LEADING.sub("", (self._line + text).rpartition("\n")[2])
        # A longer line keeps its end, and a sign that this isn't its beginning.
        self._line = line if len(line) <= _REMEMBERED else f".{line[-_REMEMBERED:]}"
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._end()

    def _end(self) -> None:
        """End as SIGPIPE ends programs: what `| head` drops is neither an error nor a finding."""
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())  # for what is still in the stream's buffer
            os.close(null)
        sys.exit(READER_GONE)


@contextmanager
def guarded() -> Iterator[None]:
    """Standard output and error print only what is `harmless` meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guard, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _guard(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, Guarded) else Guarded(stream)


def print_commands(lines: Iterable[str]) -> None:
    """Print annotations for a CI runner, one a line, on standard output."""
    _guard(sys.stdout).commands(lines)


def redraw(text: str) -> None:
    """Print a line of progress over the former one, on standard error."""
    _guard(sys.stderr).redraw(text)
