"""Shell text that starts a job, with what it launches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
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
    pieces = tuple(pieces)
    ends = tuple(accumulate(len(content) for content, _ in pieces))
    whole_content = "".join(content for content, _ in pieces)
    place = partial(_place_in_pieces, pieces, ends)
    return launch_script(read_command_text(whole_content, place, text.path))


def _place_in_pieces(pieces: Sequence[Piece], ends: Sequence[int], offset: int) -> Location:
    """The place of a character of joined pieces, which end at these offsets."""
    number = min(bisect_right(ends, offset), len(pieces) - 1)
    content, where = pieces[number]
    return where(min(offset - (ends[number] - len(content)), len(content)))
