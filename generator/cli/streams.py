"""The filter on all output: no printed text controls a terminal or commands a CI runner.

`guarded` puts the filter in front of standard output and error while a command runs. So it sees all
that is printed: answers in every format, errors, help, prompts, progress, and the warnings of other
libraries. Characters are escaped as in a JSON string, so a JSON document keeps its values.
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

#: Control characters, but for line ends and tabs. Styles and CRLF match as a whole, and stay.
_CONTROL: Final = lazy_pattern(rf"\x1b\[[0-9;]*m|\r\n|(?![\n\t]){HIDDEN.pattern}")

# Runners compare text by the rules of a language, which ignore combining marks and format
# characters. So these patterns allow them between the characters of a command.
_BLANK: Final = r"[^\w\x21-\x7e\n]"  # blanks, and what is invisible
_MARK: Final = r"[^\w\x20-\x7e\n]"  # what is invisible, without blanks
_LETTER: Final = r"[^\x20-\x2f:-@\[-^`{-\x7e\n]"  # letters of a command's name, and marks

#: The beginning of a command. The named group is the character that is escaped, so that a runner no
#: longer takes the text for a command.
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
#: Blanks before a command, which still begins its line: dropped, so that they don't use up what is
#: remembered.
_LEADING: Final = lazy_pattern(rf"^{_BLANK}+")

#: Characters that are remembered of an unfinished line: a command may be printed in pieces.
_REMEMBERED: Final = 200

#: The beginning of the annotations that dsgen itself prints (`--format github` and `azure`).
_ANNOTATION: Final = lazy_pattern(r"::(?:error|warning|notice) |##vso\[task\.logissue ")


def harmless(text: str, line: str = "") -> str:
    """`text` with escapes, so that it controls nothing when it is printed after `line`.

    `line` is what is printed already of the same line.
    """

    def escaped(match: re.Match[str]) -> str:
        is_style_or_line_end = len(match[0]) > 1
        return match[0] if is_style_or_line_end else _escape(match[0])

    text = _CONTROL.sub(escaped, text)
    whole, printed = line + text, len(line)
    if whole.isascii() and "::" not in whole and "##" not in whole:
        # No command begins without these: nearly all text ends here.
        return text

    parts, position = list[str](), printed
    for match in _COMMAND.finditer(whole):
        if match.end() <= printed:
            continue
        at = match.start(match.lastgroup or 0)
        if at < printed:
            # The command came in pieces: its first character is printed already.
            at = match.end() - 1
        parts += [whole[position:at], _escape(whole[at])]
        position = at + 1
    return "".join((*parts, whole[position:]))


def _escape(char: str) -> str:
    """A character as JSON escapes it in a string, whether it has to or not."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


class Guarded:
    """A text stream whose text is made `harmless` before it is printed.

    It has no `buffer`, by which bytes would pass unfiltered.
    """

    def __init__(self, stream: TextIO) -> None:
        self.reader_gone = False  #: whether output goes nowhere, as nobody reads it any more
        self._stream = stream
        self._line = ""  # the text of the unfinished line

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str | bytes) -> int:
        """Print text; it goes nowhere where nobody reads the output any more."""
        # click prints the completions of words as bytes.
        shown = text if isinstance(text, str) else text.decode()
        self._print(harmless(shown, self._line))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Print several texts, without anything between them."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Pass on what was printed."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def redraw(self, text: str) -> None:
        """Print a text over the current line, as progress is shown."""
        self._print(f"\r{harmless(text)}")
        self.flush()

    def commands(self, lines: Iterable[str]) -> None:
        """Print lines that may begin with one of dsgen's annotations; the rest is filtered."""
        shown = list[str]()
        for line in lines:
            annotation = _ANNOTATION.match(line)
            head = annotation[0] if annotation else ""
            shown.append(f"{head}{harmless(line[len(head) :], head)}\n")
        self._print("".join(shown))

    def _print(self, text: str) -> None:
        line = _LEADING.sub("", (self._line + text).rpartition("\n")[2])
        # Of a longer line the end is kept, behind a dot, so that it isn't taken for a line's start.
        self._line = line if len(line) <= _REMEMBERED else f".{line[-_REMEMBERED:]}"
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        """Drop this and all later output: a command still writes its files, whoever reads."""
        self.reader_gone = True
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            # What is still in the stream's buffer goes nowhere when Python flushes it at its end.
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextmanager
def guarded() -> Iterator[None]:
    """Filter standard output and standard error while the body runs.

    Where the reader of one is gone (`| head`), the command still runs to its end and writes its
    files; then it ends with `READER_GONE` in place of 0, as if by SIGPIPE.
    """
    before = sys.stdout, sys.stderr
    during = sys.stdout, sys.stderr = _guard(sys.stdout), _guard(sys.stderr)
    try:
        yield
    except SystemExit as ended:
        if ended.code or not _unread(during):
            raise
    finally:
        sys.stdout, sys.stderr = before
    if _unread(during):
        sys.exit(READER_GONE)


def _unread(streams: Iterable[Any]) -> bool:
    return any(isinstance(stream, Guarded) and stream.reader_gone for stream in streams)


def _guard(stream: Any) -> Any:
    """The stream behind the filter; unchanged where it has one, or where there is no stream."""
    return stream if stream is None or isinstance(stream, Guarded) else Guarded(stream)


def print_commands(lines: Iterable[str]) -> None:
    """Print annotations for a CI runner, one a line, on standard output."""
    _guard(sys.stdout).commands(lines)


def redraw(text: str) -> None:
    """Print a line of progress over the former one, on standard error."""
    _guard(sys.stderr).redraw(text)
