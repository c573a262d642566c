"""Rules on whether the programs and scripts are there that launch lines and scripts start.

A repository may lack a file that is there where the job runs. So a missing file is an error only
where one with a similar name is there, and less where other things tell that it should be there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path, PurePath
from posixpath import dirname
from typing import Final

from ...findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ...patterns import lazy_pattern
from ...places import is_left_open
from ...programs.launching.launch_line import runs_in_container
from ...programs.slurm.request import names_kinds
from ...rules.violations import derived
from ...submission.launches import Launch
from ...submission.own_folder import path_from_script
from ...submission.repository import (
    names_of_programs,
    program_of,
    program_path,
    programs_in,
    texts_of,
)
from ...submission.script import LaunchScript
from ...submission.subjects import launches, scripts
from ...submission.submission import PLAN
from ...text.around import (
    files_below,
    folders_above,
    folders_from,
    is_before_writing,
    is_ignored,
    is_there,
    names_in,
    until_next_check,
)
from ...text.options import basename
from ...text.shell.follow import called, sourced
from ...text.shell.records import Command, Word
from ...text.slips import slips_among
from .files_brought import (
    bringing_files,
    bringing_programs,
    names_made,
    programs_among,
    programs_named,
)

_MOST_PROGRAMS: Final = 512  #: of which answers are kept: a folder's scripts start the same ones
_MOST_NAMES: Final = 300  #: programs of a folder whose names may be meant
_MOST_FILES: Final = 20_000  #: of a project that are searched for a program; one of code has fewer
_MOST_PARTS: Final = 32  #: of a program's path, each of which may be the slip
_WORD: Final = lazy_pattern(r"[^\W_]+")  #: of a program's name
_SCRIPTS: Final = ("*.sh", "*.sbatch", "*.slurm")
#: A program on a line, without a folder.
_BARE_PROGRAM: Final = lazy_pattern(r"(?<![^\s])(\w[\w-]{0,80}\.py)(?!\S)")
_TESTS: Final = ("[", "[[", "test")  #: commands that ask whether a file is there
_BATCH_SCRIPTS: Final = (".sh", ".sbatch", ".slurm", ".job", ".bash")


@launches.rule(
    "LNCH043", ERROR, "launcher", derived("Python: can't open file: No such file or directory")
)
def program_is_there(launch: Launch) -> Violations:
    """The program that a line starts is not a letter off one that is there.
    Prevents: python: can't open file 'trian.py': [Errno 2] No such file or directory. A note where
    its folder has other programs and none of a like name; a warning where no folder of the project
    has it, the script, or one beside it, names another file that is there, the path leads into the
    script's folder or two folders down, or the script changes to its folder.
    Fix: correct the program's path"""
    program, word = program_path(launch), launch.program
    if word is None or not program:
        return
    if launch.starts_module:
        yield from _module_is_there(launch, program)
    if not program.endswith(".py") or program_of(launch) or is_left_open(program):
        return
    if _asks_for(program, launch):
        return

    path = PurePath(program)
    where = launch.script.locate(word)
    near = _like_named(path, launch) or _by_folder(program, dirname(launch.script.text.path))
    if near is not None:
        yield Violation(where, f"the program {program} is not there", f"did you mean {near}?")
        return
    if word.value is None:
        return
    folder = _moved_to(launch)
    if folder is not None:
        if programs_in((folder / path).parent, folder):
            message = f"the program {program} is not there, where the script changes to"
            yield Violation(where, message, _CORRECT, severity=WARNING)
    elif not _may_be_from_elsewhere(path, launch):
        yield from _judge_by_surroundings(path, launch, where)


def _asks_for(program: str, launch: Launch) -> bool:
    """Whether a condition of the script asks whether the program is there: `[ -f train.py ]`."""
    return any(
        command.words[0].value in _TESTS and any(word.value == program for word in command.words)
        for command in launch.script.commands
    )


_CORRECT: Final = "correct the path, or add the program"


def _judge_by_surroundings(program: PurePath, launch: Launch, where: Location) -> Violations:
    """Judge a missing program without a like name: a warning where it should be here, or a note."""
    if names_kinds(launch.script):
        return  # a form, whose user names the program too
    hint = _CORRECT
    holders_folder = dirname(launch.script.text.path)
    near = _of_like_words(str(program), holders_folder)
    if near is not None:
        hint = f"did you mean {near}? Else add the program"
    if _others_start_here(program, launch):
        message = f"the program {program} is not there; those of the scripts beside this one are"
        yield Violation(where, message, hint, severity=WARNING)
        return

    starts = _folders(str(program), holders_folder)
    starts_here = _names_a_file(launch, starts) or _is_known_start(program, launch, starts)
    is_bare_name = len(program.parts) == 1
    if not starts:
        return  # another project's, as its folder is
    # The program of a plan may be where the plan runs alone: Megatron's own is in its checkout.
    plan = Path(launch.script.text.path).parent / PLAN
    is_planned = is_before_writing() or is_there(plan)
    is_gone = is_bare_name and not is_planned and _is_nowhere(program.name, launch)
    if starts_here or not is_bare_name:
        message = f"the program {program} is not there, and its folder is"
        # Two folders of a program's path are no chance.
        is_sure = starts_here or len(program.parts) > 2
        yield Violation(where, message, hint, severity=WARNING if is_sure else NOTE)
    else:
        message = f"the program {program} is not there{', nor anywhere here' if is_gone else ''}"
        yield Violation(where, message, hint, severity=WARNING if is_gone else NOTE)


def _is_nowhere(name: str, launch: Launch) -> bool:
    """Whether no file of a name is in the whole project, nor may be in a submodule."""
    above = list(folders_above(launch.script.text.path))
    if not above or is_there(above[-1] / ".gitmodules"):
        return False
    names = _names_below(above[-1])
    return len(names) < _MOST_FILES and name not in names


@until_next_check(4)
def _names_below(folder: Path) -> tuple[str, ...]:
    """The names of the first files below a folder."""
    return tuple(path.name for path in islice(files_below(folder), _MOST_FILES))


def _is_known_start(program: PurePath, launch: Launch, folders: Iterable[Path]) -> bool:
    """Whether a script is meant to start in one of these folders.

    The program's path leads from there into the script's own folder; or another program is there
    that the script names, or of a path with a folder one that a script beside it names.
    """
    shell = launch.script
    own = {Path(text.path).absolute().parent for text in shell.texts}
    has_folder = len(program.parts) > 1
    others = set(programs_named(shell))
    if has_folder:
        others.update(path for folder in own for path in _named_beside(folder) if "/" in path)
    others.discard(str(program))
    return any(
        (has_folder and Path(os.path.normpath((folder / program).parent.absolute())) in own)
        or any(is_there(folder / other) for other in sorted(others)[:_MOST_NAMES])
        for folder in folders
    )


@until_next_check(16)
def _named_beside(folder: Path) -> frozenset[str]:
    """The programs that the scripts of a folder name, by a name or a relative path."""
    texts = texts_of(folder, _SCRIPTS, ".py")
    return frozenset(path for text in texts for path in programs_among(text))


def _like_named(program: PurePath, launch: Launch) -> str | None:
    """The path of a program in the same folder whose name is a slip away from this one's."""
    is_elsewhere = program.is_absolute() or launch.program is None or launch.program.value is None
    return _slip_of(str(program), dirname(launch.script.text.path), is_elsewhere=is_elsewhere)


@until_next_check(_MOST_PROGRAMS)
def _slip_of(path: str, holders_folder: str, *, is_elsewhere: bool) -> str | None:
    """As `_like_named`, of a program that a script in a folder starts."""
    program, project = PurePath(path), Path(holders_folder)
    above = list(folders_from(holders_folder))
    folders = [(folder / program).parent for folder in above]
    # A path of another machine: its folder may be here, by its name alone.
    if is_elsewhere:
        name = program.parent.name
        folders += [folder / name for folder in above]
        folders += [folder for folder in above if folder.name == name]
    for folder in folders:
        names = names_of_programs(folder, project)[:_MOST_NAMES]
        near = next(slips_among(program.name, names), None)
        if near is not None:
            return str(program.with_name(near))
    return None


@until_next_check(_MOST_PROGRAMS)
def _of_like_words(path: str, holders_folder: str) -> str | None:
    """The one program of the folder whose name has all words of this one's, or lacks some."""
    program, project = PurePath(path), Path(holders_folder)
    words = _words_of(program.name)
    for folder in folders_from(holders_folder):
        names = names_of_programs((folder / program).parent, project)[:_MOST_NAMES]
        like = [name for name in names if _have_like_words(words, _words_of(name))]
        if names:
            return str(program.with_name(like[0])) if len(like) == 1 else None
    return None


def _have_like_words(words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one name has all words of the other, and the last of them is the same."""
    some, more = sorted((set(words), set(others)), key=len)
    return some < more and words[-1:] == others[-1:]


def _words_of(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name.removesuffix(".py").lower()))


@until_next_check(_MOST_PROGRAMS)
def _folders(path: str, holders_folder: str) -> list[Path]:
    """The folders from which a program's relative path leads into a folder with programs."""
    program, project = PurePath(path), Path(holders_folder)
    if program.is_absolute():
        return []
    return [
        folder
        for folder in folders_from(holders_folder)
        if programs_in((folder / program).parent, project)
    ]


def _names_a_file(launch: Launch, folders: Iterable[Path]) -> bool:
    """Whether an argument is the path of a file from one of these folders.

    Then the line starts in that folder.
    """
    values = ((word.value or "").rpartition("=")[2] for word in launch.arguments)
    paths = (PurePath(value) for value in values if "." in value)
    relative = [path for path in paths if path.suffix and not path.is_absolute()]
    return any(is_there(folder / path) for folder in folders for path in relative[:_MOST_PARTS])


def _others_start_here(program: PurePath, launch: Launch) -> bool:
    """Whether the other scripts beside this one start programs of their folder by name alone.

    Then a program that this one names alone should be there, too.
    """
    if len(program.parts) > 1:
        return False
    content = launch.script.text.content
    folder = Path(launch.script.text.path).parent
    return any(text != content for text in _starting_here(folder))


@until_next_check(16)
def _starting_here(folder: Path) -> tuple[str, ...]:
    """The texts of a folder's scripts that name a program which is there, without a folder."""
    return tuple(
        text
        for text in texts_of(folder, _SCRIPTS, ".py")
        if any(is_there(folder / name) for name in set(_BARE_PROGRAM.findall(text)))
    )


def _moved_to(launch: Launch) -> Path | None:
    """The folder that a script changes to at once: one above its own, by `cd ..`, or by its path.

    None where it doesn't, or goes elsewhere, or a command brings files.
    """
    shell = launch.script
    brings = bringing_programs(shell)
    if len(brings) != 1 or brings[0].words[0].value != "cd" or len(brings[0].words) != 2:
        return None
    word = brings[0].words[1]
    by_own_path = path_from_script(word.raw, shell)
    holder = Path(shell.text.path)
    if by_own_path is None:
        up = PurePath(word.value or "")
        if not up.parts or set(up.parts) != {".."}:
            return None
        by_own_path = Path(os.path.normpath(holder.absolute().parent / up))
    return by_own_path if by_own_path in folders_above(holder) else None


def _may_be_from_elsewhere(program: PurePath, launch: Launch) -> bool:
    """Whether a program may be there for the run, and not in the project.

    It is an image's, the script makes it or brings files, or git ignores it.
    """
    script = launch.script
    in_image = script.place is not None or runs_in_container(launch)
    is_made = program.name in names_made(script) or bool(bringing_programs(script))
    return in_image or is_made or is_ignored(program, script.text.path)


def _module_is_there(launch: Launch, module: str) -> Violations:
    """Judge the last name of a module whose package lies in a folder above the script."""
    *packages, name = module.split(".")
    holder, package = launch.script.text.path, PurePath(*packages)
    if launch.program is None or launch.program.value is None or not package.parts:
        return
    for folder in folders_above(holder):
        modules = [path.stem for path in programs_in(folder / package, Path(holder).parent)]
        if not modules:
            continue
        if name not in modules and not is_there(folder / package / name):
            near = next(slips_among(name, modules[:_MOST_NAMES]), None)
            if near is not None:
                hint = f"did you mean {'.'.join((*package.parts, near))}?"
                message = f"the module {module} is not there"
                yield Violation(launch.script.locate(launch.program), message, hint)
        return


@scripts.rule(
    "LNCH050", ERROR, "launcher", derived("bash, sbatch: FILE: No such file or directory")
)
def called_scripts_are_there(script: LaunchScript) -> Violations:
    """A script that another calls, sources or submits is not a letter off one that is there.
    Prevents: bash: trian.sh: No such file or directory; sbatch: error: Unable to open file. Where
    none is like it, a warning if the script's own programs are there, a note if it is sourced or in
    a branch.
    Fix: correct the script's path"""
    shell = script.shell
    brings_files = bool(bringing_files(shell))
    if not script.launches and brings_files:
        return  # what prepares a machine calls what it brings there
    words = [(command, _script_of(command)) for command in shell.commands]
    named = [(command, word) for command, word in words if word is not None]
    made = names_made(shell) if named else frozenset[str]()
    has_home = bool(named) and _home_of(script) is not None
    for command, word in named:
        called_path = PurePath((word.path or "").lstrip("/"))
        is_named = called_path.suffix and not is_left_open(str(called_path))
        if not is_named or called_path.name in made:
            continue
        where = shell.locate(word)
        is_of_another_machine = word.value != str(called_path)
        names = _scripts_beside(called_path, where.path, anywhere=is_of_another_machine)
        near = next(slips_among(called_path.name, names[:_MOST_NAMES]), None)
        message = f"the script {word.path} is not there"
        if near is not None and called_path.name not in names:
            yield Violation(where, message, f"did you mean {called_path.with_name(near)}?")
        elif word.value and _is_missing(PurePath(word.value), shell.text.path):
            hint = "correct the path, or add the script"
            if has_home:
                # What a branch calls may be for those who have it.
                severity = NOTE if command.guarded else WARNING
                yield Violation(where, message, hint, severity=severity)
            elif not brings_files and not command.guarded and sourced(command.run):
                yield Violation(where, message, hint, severity=NOTE)


def _home_of(script: LaunchScript) -> Path | None:
    """The folder in which a script starts, with all files that are there then.

    It is the only one from which programs of its launches are there. None where it is unknown, or a
    command brings other files.
    """
    if bringing_files(script.shell):
        return None
    programs = [
        PurePath(launch.program.value)
        for launch in script.launches
        if launch.program is not None and launch.program.value and not launch.starts_module
    ]
    relative = [program for program in programs if program.suffix and not program.is_absolute()]
    homes = [
        folder
        for folder in folders_above(script.shell.text.path)
        if any(is_there(folder / program) for program in relative)
    ]
    return homes[0] if len(homes) == 1 else None


def _is_missing(path: PurePath, holder: str) -> bool:
    """Whether a relative path leads nowhere from the folders above the file that has it.

    A file that git ignores may be on the machine of whoever runs it.
    """
    folders = folders_above(holder)
    is_nowhere = not path.is_absolute() and not any(is_there(folder / path) for folder in folders)
    return is_nowhere and not is_ignored(path, holder)


def _scripts_beside(script: PurePath, holder: str, *, anywhere: bool) -> list[str]:
    """The names of the scripts that lie beside a script, from any folder above the `holder`.

    With `anywhere`, the path may be another machine's: folders with the name of its folder count.
    """
    above = list(folders_above(holder))
    folders = [(folder / script).parent for folder in above]
    if anywhere:
        folders += [folder / script.parent.name for folder in above]
    project, pattern = Path(holder).parent, f"*{script.suffix}"
    return [name for folder in folders for name in names_of_programs(folder, project, pattern)]


def _script_of(command: Command) -> Word | None:
    """The word that names a script which a command runs, reads or submits."""
    words = command.run
    if not words:
        return None
    if basename(words[0]) == "sbatch":
        for word in words[1:]:
            if not word.raw.startswith("-") and (word.path or "").endswith(_BATCH_SCRIPTS):
                return word
        return None
    source = sourced(words)
    if source is not None:
        return source
    index = called(words)
    return words[index] if index is not None else None


@until_next_check(_MOST_PROGRAMS)
def _by_folder(path: str, holders_folder: str) -> str | None:
    """The path of a program from which this one's differs by a slip in the name of a folder."""
    program = PurePath(path)
    if program.is_absolute():
        return None
    # `../../tools/train.py` is looked for from the folder that the dots lead to.
    dots = next((number for number, part in enumerate(program.parts) if part != ".."), 0)
    up, parts = program.parts[:dots], program.parts[dots:]
    if len(parts) > _MOST_PARTS:
        return None
    above = folders_from(holders_folder)
    folders = [Path(os.path.normpath(folder.joinpath(*up))) for folder in above]
    for number, name in enumerate(parts[:-1]):
        before, below = parts[:number], parts[number + 1 :]
        for folder in folders:
            for other in slips_among(name, names_in(str(folder.joinpath(*before)), str(folder))):
                meant = PurePath(*before, other, *below)
                if programs_in(folder, folder, str(meant)):
                    return str(PurePath(*up, meant))
    return None
