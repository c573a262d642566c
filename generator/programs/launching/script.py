"""Shell text that starts a job, with what it launches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from ...findings import Location
from ...submission.script import LaunchScript, Piece
from ...text.options import Options
from ...text.shell.reader import read_command_text
from ...text.shell.records import ShellScript
from ...text.text import Text
from .launch_line import launches
from .tables import TABLES, read_options


def sbatch_options(script: ShellScript) -> Options:
    """The options of the `#SBATCH` lines that sbatch reads."""
    words = [
        word for directive in script.directives if not directive.ignored for word in directive.words
    ]
    return read_options(TABLES["sbatch"], words, everywhere=True)


def launch_script(shell: ShellScript) -> LaunchScript:
    """A script with what it launches."""
    return LaunchScript(shell=shell, launches=launches(shell), directives=sbatch_options(shell))


def script_of(pieces: Iterable[Piece], text: Text) -> LaunchScript:
    """A script of pieces of text that each have places of their own."""
    pieces = list(pieces)
    ends = list(accumulate(len(content) for content, _ in pieces))

    def place(offset: int) -> Location:
        for (content, where), end in zip(pieces, ends, strict=True):
            if offset < end:
                return where(offset - (end - len(content)))
        last_content, where_in_last = pieces[-1]
        return where_in_last(len(last_content))

    whole_content = "".join(content for content, _ in pieces)
    return launch_script(read_command_text(whole_content, place, text.path))
