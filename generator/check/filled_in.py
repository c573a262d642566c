"""Scripts that other files of the project, or the script that writes them, fill in by `sed` or
`envsubst` before they are run.

What these replace isn't known: `sed "s/##NODES##/$n/g" job.sh > today.sh; sbatch today.sh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path
from posixpath import basename
from typing import Final, NamedTuple

from ..numerals import is_whole, read_whole
from ..patterns import lazy_pattern
from ..text.around import folders_above, matching, text_around, until_next_check
from ..text.lookup import end_alike
from ..text.shell.tokens import HOLE
from ..text.shell.values import Piece
from ..text.text import Text

#: Files that may fill in a script, and their folder from the one that they work in.
_FILLING: Final = ("*.sh", "*.bash", "*.sbatch", "*.slurm", "*.py", "Makefile", "*.mk", "*.y*ml")
_WORKFLOWS: Final = (".github/workflows/*.y*ml", ".gitlab-ci.yml")
_MOST_FILES: Final = 64  # of a folder, for each pattern
_CALL: Final = lazy_pattern(r"(?<![\w./-])(sed|envsubst)[ \t]")
_MOST_LETTERS: Final = 2_000  # of a call
_CONTINUED: Final = lazy_pattern(r"\\[ \t]*\n[ \t]*")
_RUNS: Final = lazy_pattern(rf"{HOLE}+|[^{HOLE}]+")
#: The beginning of a substitution, with the sign between its parts.
_BEGINS: Final = lazy_pattern(r"(?<![\w.-])s([/|#,@:!%~+])")
_FLAGS: Final = lazy_pattern(r"[gpIiMm]*")
_IN_PLACE: Final = lazy_pattern(r"(?<![\w-])(?:-[nErsz]*i|--in-place)")
_EXTENDED: Final = lazy_pattern(r"(?<![\w-])(?:-[nisz]*[Er]|--regexp-extended)")
_ENDS: Final = lazy_pattern(r"[;&|)`]|(?<!2)>")
#: Where the text goes that a call writes: to a file, or to what runs or keeps it.
_GOES_ON: Final = lazy_pattern(r">[ \t]*[^&\s]|\|[ \t]*(?:sbatch|bash|sh|tee|sed|envsubst)\b")
_VARIABLE: Final = lazy_pattern(r"\$(?:\w+|\{[^{}]*\}|\([^()]*\))")
_OF_DIRECTIVE: Final = lazy_pattern(r"[ \t]*#SBATCH[ \t]+")
_MOST_LINE: Final = 500  # characters: what a pattern with several `.*` goes through
#: Steps of all patterns in a script, for a bound on their time: 2 s where every one is needed.
_MOST_STEPS: Final = 300_000_000
#: What stands for one thing in a pattern: a letter, with a backslash or not, or a class of them.
_TOKEN: Final = lazy_pattern(r"\\.|\[\^?\]?(?:\[:[a-z]+:\]|[^\]\[]|\[(?!:)){1,60}\]|.")
_REPEATS: Final = ("*", "+", "?")
_MOST_REPEATS: Final = 2  # in a pattern: of four a line of 500 letters may take minutes
_CLASSES: Final = {"space": r"\s", "blank": r" \t", "digit": "0-9", "alpha": "a-zA-Z"} | {
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
}


class _Substitution(NamedTuple):
    """What a call puts in the place of what a pattern matches."""

    pattern: re.Pattern[str]
    replacement: str  #: as sed reads it
    is_everywhere: bool  #: on a line, not only the first time
    in_directives: bool = False  #: whether it counts in `#SBATCH` lines only

    def steps(self, line: str) -> int:
        """How many steps the pattern may take in a line: each repetition may begin anywhere."""
        repeats = sum(map(self.pattern.pattern.count, _REPEATS))
        steps: int = len(line) ** (repeats + 1)
        return steps


class _Call(NamedTuple):
    """A call that fills in files."""

    operands: tuple[str, ...]
    substitutions: tuple[_Substitution, ...]


class _Filling(NamedTuple):
    """A substitution in some lines of a script."""

    lines: range
    substitution: _Substitution


def pieces_filled_in(text: Text) -> tuple[Piece, ...]:
    """The pieces of a script of which files fill some in, which are unknown.

    There are none where no file fills any in.
    """
    fillings = [*_filled_in_by_others(text), *_filled_in_here(text.content)]
    if not fillings:
        return ()
    lines, steps = list[str](), 0
    for number, line in enumerate(text.content.split("\n")):
        substitutions = [each.substitution for each in fillings if number in each.lines]
        steps += sum(substitution.steps(line[:_MOST_LINE]) for substitution in substitutions)
        lines.append(_with_holes(line, substitutions) if steps < _MOST_STEPS else line)
    runs = tuple(_RUNS.finditer("\n".join(lines)))
    if len(runs) == 1:
        return ()
    return tuple(
        Piece(None if run[0].startswith(HOLE) else run[0], run.start(), run.end()) for run in runs
    )


def _filled_in_by_others(text: Text) -> Iterator[_Filling]:
    """What the files of a script's folders replace in it."""
    path, every_line = Path(text.path), range(text.content.count("\n") + 1)
    for folder in folders_above(path):
        for call in _calls_in(folder):
            if any(_is_meant(operand, path, folder) for operand in call.operands):
                yield from (_Filling(every_line, each) for each in call.substitutions)


def _filled_in_here(content: str) -> Iterator[_Filling]:
    """What a script replaces in the files that it writes from here-documents."""
    for call in _calls(content) if "<<" in content else ():
        for operand in call.operands:
            lines = _lines_written_to(operand, content)
            yield from (_Filling(lines, each) for each in call.substitutions)


def _lines_written_to(operand: str, content: str) -> range:
    """The lines of the first here-document that goes to a file, as it is written there."""
    to_file = rf">[ \t]*[\"']?{re.escape(operand)}[\"']?(?=\s)"
    begins = rf"^(?=[^#\n]{{0,300}}{to_file})[^#\n]{{0,300}}<<-?[ \t]*[\"']?(\w+)[^\n]*\n"
    begin = re.search(begins, content, re.MULTILINE)
    if begin is None:
        return range(0)
    end = re.compile(rf"^\t*{begin[1]}$", re.MULTILINE).search(content, begin.end())
    stop = end.start() if end else len(content)
    return range(content.count("\n", 0, begin.end()), content.count("\n", 0, stop))


def _is_meant(operand: str, path: Path, folder: Path) -> bool:
    """Return whether a call names a script, from the folder that the call is in."""
    if basename(operand) != path.name:
        return False
    if path.absolute().parent == folder:
        return True
    known = _VARIABLE.split(operand)[-1]
    return "/" in operand and end_alike(known, str(path.absolute()))


@until_next_check(256)
def _calls_in(folder: Path) -> tuple[_Call, ...]:
    """The calls that fill in files, in the files of a folder."""
    paths = (
        path
        for pattern in (*_FILLING, *_WORKFLOWS)
        for path in islice(matching(pattern, folder, folder), _MOST_FILES)
    )
    texts = (text_around(path, folder) for path in paths)
    return tuple(call for text in texts for call in _calls(text))


def _calls(text: str) -> Iterator[_Call]:
    """The calls of a text that fill in files."""
    for match in _CALL.finditer(text):
        rest = _CONTINUED.sub(" ", text[match.end() : match.end() + _MOST_LETTERS])
        line = rest.partition("\n")[0].replace('\\"', '"')
        call = _of_sed(line) if match[1] == "sed" else _of_envsubst(line)
        if call is not None and call.operands and call.substitutions:
            yield call


def _of_envsubst(line: str) -> _Call | None:
    """A call of envsubst; a script's own variables are left as they are."""
    operands, end = _operands(line, 0)
    if not _GOES_ON.match(line, end):
        return None
    pattern = re.compile(r"\$(?:\w+|\{\w+\})")
    return _Call(operands, (_Substitution(pattern, HOLE, True, in_directives=True),))


def _of_sed(line: str) -> _Call | None:
    """A call of sed, where it changes a file or its text goes on to one."""
    substitutions, position = list[tuple[str, str, str]](), 0
    while match := _BEGINS.search(line, position):
        gap = line[position : match.start()]
        parts = _parts(line, match.end(), match[1])
        if parts is None or (substitutions and (">" in gap or "|" in gap or "sed " in gap)):
            break
        pattern, replacement, position = parts
        flags = _FLAGS.match(line, position)
        position = flags.end() if flags else position
        substitutions.append((pattern, replacement, flags[0] if flags else ""))
    operands, end = _operands(line, position)
    options = line[:end]
    if not (_IN_PLACE.search(options) or _GOES_ON.match(line, end)):
        return None
    is_extended = _EXTENDED.search(options) is not None
    read = (
        _Substitution(compiled, replacement, "g" in flags)
        for pattern, replacement, flags in substitutions
        if (compiled := _as_python(pattern, is_extended=is_extended)) is not None
    )
    return _Call(operands, tuple(read))


def _parts(line: str, start: int, sign: str) -> tuple[str, str, int] | None:
    """The pattern and the replacement of a substitution, and where these end."""
    parts, begin, position = list[str](), start, start
    while position < len(line) and len(parts) < 2:
        if line[position] == "\\":
            position += 1
        elif line[position] == sign:
            parts.append(line[begin:position])
            begin = position + 1
        position += 1
    return (parts[0], parts[1], begin) if len(parts) == 2 else None


def _operands(line: str, start: int) -> tuple[tuple[str, ...], int]:
    """The words behind a place up to the end of the command, and where that is."""
    end = _ENDS.search(line, start)
    stop = end.start() if end else len(line)
    words = line[start:stop].replace(",", " ").split()
    return tuple(word.strip("\"'<[]") for word in words), stop


def _as_python(pattern: str, *, is_extended: bool) -> re.Pattern[str] | None:
    """A pattern of sed; None where a variable makes it, or it may take long."""
    python, repeats = list[str](), 0
    tokens: list[str] = _TOKEN.findall(pattern)
    for number, token in enumerate(tokens):
        is_anchor = (token == "^" and not number) or (token == "$" and number == len(tokens) - 1)
        part = token if is_anchor else _part_as_python(token, is_extended=is_extended)
        if part in _REPEATS:
            repeats += 1
            if not python or python[-1] in (*_REPEATS, "^", "(", "|", ")"):
                return None
        if part is None or repeats > _MOST_REPEATS:
            return None
        python.append(part)
    try:
        return re.compile("".join(python))
    except re.error:
        return None


def _part_as_python(token: str, *, is_extended: bool) -> str | None:
    """A part of a pattern of sed: in the basic ones `\\(` groups, in the extended ones `(`."""
    letter, is_escaped = token[-1], token[0] == "\\"
    if token[0] == "[":
        return f"[{_of_class(token[1:-1])}]" if len(token) > 1 else None
    if letter in "(){}|+?":
        if is_extended == is_escaped:
            return re.escape(letter)
        return None if letter in "{}" else letter
    if is_escaped:
        is_back = is_whole(letter)
        return token if letter in "wWsSbBnt" else None if is_back else re.escape(letter)
    if token in ".*":
        return token
    return None if token in "$`" else re.escape(token)


def _of_class(content: str) -> str:
    """What is between the brackets of a class of characters."""
    for name, letters in _CLASSES.items():
        content = content.replace(f"[:{name}:]", letters)
    return content.replace("[", r"\[")


def _with_holes(line: str, substitutions: Sequence[_Substitution]) -> str:
    """A line of a script with holes of the same length as what is replaced."""
    if len(line) > _MOST_LINE:
        return line
    begin = _OF_DIRECTIVE.match(line)
    holes = list[tuple[int, int]]()
    for substitution in substitutions:
        if substitution.in_directives and begin is None:
            continue
        matches = substitution.pattern.finditer(line)
        for match in matches if substitution.is_everywhere else islice(matches, 1):
            start, end = _hole(match, _replaced_by(match, substitution.replacement))
            holes.append((max(start, begin.end() if begin else 0), end))
    for start, end in holes:
        if start < end and not line[start:end].isspace():
            line = line[:start] + HOLE * (end - start) + line[end:]
    return line


def _hole(match: re.Match[str], instead: str) -> tuple[int, int]:
    """The part of a match that isn't as in the text that comes in its place."""
    text: str = match[0]
    same = _same_at_start(text, instead)
    same_end = _same_at_start(text[same:][::-1], instead[same:][::-1])
    kept = text[:same] + text[len(text) - same_end :]
    if any((text.count(quote) - kept.count(quote)) % 2 for quote in "\"'"):
        return match.span()  # else one of two quotes would be left
    return match.start() + same, match.end() - same_end


def _same_at_start(text: str, other: str) -> int:
    """How many letters two texts have in common at their start."""
    pairs = zip(text, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _replaced_by(match: re.Match[str], replacement: str) -> str:
    """The text that comes in the place of a match, with holes for variables."""
    text, position = "", 0
    replacement = _VARIABLE.sub(HOLE, replacement)
    while position < len(replacement):
        letter = replacement[position]
        position += 1
        if letter == "&":
            text += match[0]
        elif letter == "\\" and position < len(replacement):
            letter = replacement[position]
            position += 1
            groups = (match[0], *match.groups(""))
            number = read_whole(letter)
            text += letter if number is None or number >= len(groups) else groups[number]
        else:
            text += letter
    return text
