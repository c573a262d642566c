"""Scripts that a script calls or sources: which words name one, and the file that is meant.

Files are read within the script's project alone, and within bounds of size, number and depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from posixpath import basename, dirname, isabs, join, normpath
from typing import Final

from ...patterns import lazy_pattern
from ..around import folders_above, is_readable, text_around, until_next_check
from ..conflicts import one_side
from ..text import Text, UnreadableText, text_of
from .records import SHELLS, Word
from .values import Piece

#: Programs that run what follows on their line, here or elsewhere, once or often.
_RUNNERS: Final = frozenset(
    {"srun", "mpirun", "mpiexec", "singularity", "apptainer", "docker", "podman", "enroot", "ray"}
    | {"exec", "nohup", "setsid", "time", "timeout", "env", "command", "sudo", "numactl", "nice"}
)
_SOURCES: Final = frozenset({"source", "."})
#: Programs whose last word is a text for a shell elsewhere: their options with a value, and how
#: many words are before the text. Source: ssh(1) of OpenSSH 9.2, pdsh(1) 2.34.
_REMOTE: Final = {"ssh": ("bcDEeFIiJLlmOopQRSWw", 1), "pdsh": ("wxgXRfltun", 0)}
#: Programs with an option before such a text.
_TEXT_OPTIONS: Final = {"su": "-c", "runuser": "-c", "gcloud": "--command"}
#: The beginning of a text that starts a shell with a text of its own, and programs that print one.
_SHELL_LINE: Final = lazy_pattern(r"\s{0,100}(?:/(?:usr/)?bin/)?(?:ba|z)?sh\s+-[a-z]{0,3}c\s")
_PRINTS: Final = frozenset({"echo", "printf", "cat", "grep", "sed", "awk", "git"})
#: Commands of tmux that take one, tmux(1) 3.4.
_OF_TMUX: Final = frozenset(
    {"new-session", "new", "new-window", "neww", "split-window", "splitw", "respawn-pane"}
    | {"respawn-window", "send-keys", "send"}
)
#: Programs that start what follows where the script's variables aren't.
_ELSEWHERE: Final = frozenset(
    {"ssh", "pdsh", "kubectl", "oc", "docker", "podman", "nerdctl", "gcloud"}
)
_ENDS: Final = (".sh", ".bash", ".sbatch", ".slurm", ".env", ".conf")
_MOST_BYTES: Final = 100_000  # of a file that is followed
_MOST_FILES: Final = 20  # that a script may call and source, in all


class Followed:
    """The files that one script calls and sources, behind its own text."""

    def __init__(self, text: Text) -> None:
        self._path = text.path
        self.texts: list[tuple[int, Text]] = []  #: of files, with the offset at which each begins
        self.content = text.content  #: the script's own text, and all of theirs behind it
        self._chain = [text.path]  # the files that are being read, each called by the one before
        #: texts that the script itself writes to files, by their names as it writes them
        self.made: dict[str, tuple[Piece, ...]] = {}
        self.has_job = False  #: whether it hands a job's script to sbatch

    def open(self, word: Word) -> tuple[int, Text] | None:
        """The file that a word names, with its offset; None where there is none, or too much."""
        name = word.path
        if not self._path or not name or len(self.texts) >= _MOST_FILES:
            return None
        path = self._find(name, known=word.value is not None)
        if path is None or path in self._chain:
            return None
        text = _read(path, dirname(self._path))
        if text is None:
            return None
        base = len(self.content) + 1
        self.content += f"\n{text.content}"
        self.texts.append((base, text))
        self._chain.append(path)
        return base, text

    def close(self) -> None:
        """Ends the file that was opened last and is still open."""
        self._chain.pop()

    def _find(self, name: str, *, known: bool) -> str | None:
        """The path of a file by its name: from the folders of the scripts, or one above them."""
        holders = list(dict.fromkeys((self._chain[-1], self._path)))
        folders = [dirname(holder) for holder in holders]
        for holder in holders:
            above = len(list(folders_above(holder)))
            folders += [join(dirname(holder), *[".."] * up) for up in range(1, above)]

        tails = [name] if known else [name, basename(name)]
        if isabs(name):  # a container's: of `/root/slime/scripts/models/a.sh`, scripts/models/a.sh
            parts = PurePosixPath(name).parts
            tails = [join(*parts[start:]) for start in range(1, len(parts) - 1)]
        for tail in tails:
            for folder in folders:
                path = normpath(join(folder, tail))
                if is_readable(path, dirname(self._path)):
                    return path
        return None


@until_next_check(256)
def _read(path: str, folder: str) -> Text | None:
    """The text of a file that scripts of a folder call or source; None where it is none."""
    content = text_around(Path(path), Path(folder), _MOST_BYTES)
    try:
        return text_of(one_side(content), path, Path(dirname(path)))
    except UnreadableText:
        return None


def sourced(words: Sequence[Word]) -> Word | None:
    """The word of a command that names a file which is read into its own shell."""
    return words[1] if len(words) > 1 and words[0].value in _SOURCES else None


def called(words: Sequence[Word]) -> int | None:
    """The index of the word that names a script which a command runs: `srun bash train.sh a b`."""
    first = basename(words[0].value or words[0].prefix or "")
    if first not in _RUNNERS and first not in SHELLS:
        return 0 if _is_script(words[0]) else None

    for index, word in enumerate(words):
        if _is_shell(word):
            return _script_after(words, index + 1)
        before = words[index - 1].prefix if index else ""
        if index and _is_script(word) and not before.startswith("-"):
            return index
    return None


def runs_elsewhere(words: Sequence[Word]) -> bool:
    """Return whether a command starts another where its shell's variables aren't."""
    return basename(words[0].value or words[0].prefix or "") in _ELSEWHERE


def remote_text(words: Sequence[Word]) -> int | None:
    """The index of the word with a text that a program hands to a shell: `ssh HOST TEXT`."""
    program = basename(words[0].value or words[0].prefix or "")
    if program in _REMOTE:
        return _last_text(words, *_REMOTE[program])
    if program == "tmux":
        if not any(word.value in _OF_TMUX for word in words[1:4]):
            return None
        return next((at for at, word in enumerate(words) if at > 1 and _has_words(word)), None)
    option = _TEXT_OPTIONS.get(program)
    if option is not None:
        for index, word in enumerate(words[1:], 1):
            if word.value == option and index + 1 < len(words):
                return index + 1
            if option.startswith("--") and word.prefix.startswith(f"{option}="):
                return index
    if program in _PRINTS:
        return None
    # A line for a shell is one to whichever program it is given: `submit -c "bash -c '...'"`.
    return next(
        (at for at, word in enumerate(words) if at and _SHELL_LINE.match(word.prefix)), None
    )


def remote_prefix(word: Word) -> int:
    """How many characters of the word that `remote_text` finds are before the text."""
    for option in _TEXT_OPTIONS.values():
        if word.prefix.startswith(f"{option}="):
            return len(option) + 1
    return 0


def _last_text(words: Sequence[Word], valued: str, operands: int) -> int | None:
    """The index of a text that is the last word; `valued` are the letters of options with a value.

    So many operands come before it.
    """
    index, count = 1, len(words)
    while index < count and words[index].prefix.startswith("-"):
        option = words[index].prefix
        index += 2 if len(option) == 2 and option[1] in valued else 1
    text = index + operands
    return text if text == count - 1 and _has_words(words[text]) else None


def _has_words(word: Word) -> bool:
    """Return whether a word is a text of several words."""
    return len((word.value or word.raw).split(maxsplit=1)) > 1


def stdin_shell(words: Sequence[Word]) -> int | None:
    """The index of the program that reads a script from its input: a shell, sbatch or ssh."""
    first = basename(words[0].value or words[0].prefix or "")
    if first in ("sbatch", "ssh"):
        names_one = any(_is_script(word) for word in words[1:]) or "--wrap" in str(words)
        return None if names_one else 0
    starts = first in _RUNNERS or first in SHELLS or first in _ELSEWHERE
    if not starts and words[0].value is not None:
        return None
    for index, word in enumerate(words):
        if _is_shell(word):
            options = [each.value or "" for each in words[index + 1 :]]
            reads = "-s" in options or all(option.startswith("-") for option in options)
            is_text = any("c" in option for option in options if not option.startswith("--"))
            return index if reads and not is_text else None
    return None


def _script_after(words: Sequence[Word], start: int) -> int | None:
    """The index of the first word behind a shell's own options; None where it reads a text."""
    for index in range(start, len(words)):
        value = words[index].value or ""
        if not value.startswith("-"):
            return index if _is_script(words[index]) else None
        if "c" in value.lstrip("-") and not value.startswith("--"):
            return None
    return None


def _is_shell(word: Word) -> bool:
    # The end is asked first: all of their names end so, and few other words.
    return (word.value or "").endswith("sh") and basename(word.value or "") in SHELLS


def _is_script(word: Word) -> bool:
    return (word.path or "").endswith(_ENDS)
