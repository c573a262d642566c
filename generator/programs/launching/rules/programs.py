"""Launch lines against the training program's own parser, where the repository has all of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from ....catalog.names import most_like
from ....facts.around import folders_above
from ....findings import ERROR, Violation, Violations
from ....rules.violations import derived, transformers
from ...lookup import is_slip
from ...shell.records import Word
from ...subjects import launches
from ...trainer.training_arguments import gone_arguments, known_arguments
from ..launch_line import Launch
from ..own_options import own_options, slips
from ..program_options import find_programs, options_beside, program_of, program_path, programs_in

#: Fields of Seq2SeqTrainingArguments of its own. Source: src/transformers/training_args_seq2seq.py @ 5.23
_OF_SEQUENCES: Final = ("sortish_sampler", "predict_with_generate", "generation_max_length", "generation_num_beams")

_ALIKE: Final = 0.8  # of names of which one may be the other with a slip or two, as in `check.kinds`

_OF_A_USER: Final = 3  # parts of a path such as `/home/me`; `/workspace` may hold anything
_MOST_BESIDE: Final = 300  #: programs of a folder whose names may be meant


@lru_cache(maxsize=1)
def _classes() -> tuple[tuple[str, frozenset[str]], ...]:
    """The fields of the classes of transformers that parsers make options of; those of older releases too."""
    fields = frozenset({*known_arguments(), *gone_arguments(), "local_rank", "generation_config"})
    return ("TrainingArguments", fields), ("Seq2SeqTrainingArguments", fields | {*_OF_SEQUENCES})


@launches.rule("LNCH043", ERROR, "launcher", derived("Python: can't open file: No such file or directory"))
def program_is_there(launch: Launch) -> Violations:
    """The program that a line starts is not a letter off one that is there.
    Prevents: python: can't open file 'trian.py': [Errno 2] No such file or directory
    Fix: correct the program's path"""
    program, holder = program_path(launch), launch.script.text.path
    if launch.program is None or not program or not program.endswith(".py") or program_of(launch):
        return
    name, above = PurePath(program), list(folders_above(holder))
    places = [(folder / program).parent for folder in above]
    if name.is_absolute() or launch.program.value is None:  # another machine's: its folder may be here
        places += [
            *(folder / name.parent.name for folder in above),
            *(one for one in above if one.name == name.parent.name),
        ]
    beside = (path for place in places for path in programs_in(place, Path(holder).parent)[:_MOST_BESIDE])
    near = next((path.name for path in beside if is_slip(name.name, path.name)), None)
    near = (near and str(name.with_name(near))) or _by_folder(name, holder)
    if near is not None:
        message = f"the program {program} is not there"
        yield Violation(launch.script.locate(launch.program), message, f"did you mean {near}?")


def _by_folder(program: PurePath, holder: str) -> str | None:
    """The path of a program that is there, where one folder's name in `program` is a slip of its own."""
    above = [] if program.is_absolute() else list(folders_above(holder))
    up = next((number for number, part in enumerate(program.parts) if part != ".."), 0)
    parts = program.parts[up:]
    for number, name in enumerate(parts[:-1]):
        pattern = str(PurePath(*parts[:number], "*", *parts[number + 1 :]))
        for folder in (Path(os.path.normpath(one.joinpath(*program.parts[:up]))) for one in above):
            for path in programs_in(folder, folder, pattern)[:_MOST_BESIDE]:
                other = path.relative_to(folder)
                if is_slip(name, other.parts[number]):
                    return str(PurePath(*program.parts[:up], other))
    return None


def _passed_over(launch: Launch, found: Path, words: Mapping[Word, str]) -> Violations:
    """Options that are one of the program's own with a slip, where its parser may leave those alone that it lacks."""
    trainers = dict(_classes())["Seq2SeqTrainingArguments"]
    if options_beside(found).parser is not None:  # Megatron's, which other rules judge
        return
    near = slips(found, [name for name in words.values() if name.lstrip("-").replace("-", "_") not in trainers])
    for word, name in words.items():
        if name in near:
            message = f"{program_path(launch)} has no option {name}: it stops, or passes over it"
            yield Violation(launch.script.locate(word), message, f"did you mean {near[name]}?")


def _moves_away(launch: Launch) -> bool:
    """Return whether the script goes to a folder within an unknown one, as `$HERE/tasks/$NAME`, or to that of another
    project, as `/home/me/projects/other`: programs there may have the same names."""
    moves = [one.words[1] for one in launch.script.commands if len(one.words) == 2 and one.words[0].value == "cd"]
    if any(len(move.parts) > 2 and move.parts[0] is None and move.parts[-1] is None for move in moves):
        return True
    above = [folder.name for folder in folders_above(launch.script.text.path)]
    paths = (PurePath(move.value or "").parts for move in moves if (move.value or "").startswith("/"))
    return any(len(path) > _OF_A_USER and not any(map(one.endswith, path)) for path in paths for one in above[-1:])


@launches.rule("LNCH042", ERROR, "parse", transformers("src/transformers/hf_argparser.py:338") + "; Python's argparse")
def options_are_the_programs(launch: Launch) -> Violations:
    """Every option after the training program is one that its own parser has, where the repository has all of that.
    Prevents: error: unrecognized arguments: --saving_strategy steps; or: Some specified arguments are not used by the
    HfArgumentParser.
    Fix: correct the option's name"""
    program, found = program_path(launch), program_of(launch)
    if found is None or _moves_away(launch):
        return
    read = [own_options(one, _classes()) for one in find_programs(program, launch.script.text.path)]
    known = [options for options in read if options is not None]
    options = (
        frozenset[str]().union(*known) if len(known) == len(read) else None
    )  # which of them is started isn't known
    words = {word: word.prefix.partition("=")[0] for word in launch.arguments if word.prefix.startswith("--")}
    if options is None:
        yield from _passed_over(launch, found, words)
        return
    unknown = {name for name in words.values() if name not in options}
    unknown = {name for name in unknown if not any(one.startswith(name) for one in options)}
    wrong = {word: name for word, name in words.items() if name in unknown}
    meant = {name: most_like(name, tuple(sorted(options)), _ALIKE) for name in wrong.values()}
    if 2 * sum(not meant[name] for name in wrong.values()) >= len(words):  # another program of the same name
        return
    for word, name in wrong.items():
        if meant[name]:
            message, hint = f"{program} has no option {name}", f"did you mean {meant[name]}?"
            yield Violation(launch.script.locate(word), message, hint)
    others = {name: word for word, name in reversed(wrong.items()) if not meant[name]}
    if others:
        names = tuple(reversed(others))
        message = f"{program} has no option{'s' if len(names) > 1 else ''} {', '.join(names)}"
        hint = "remove it" if len(names) == 1 else "remove them"
        yield Violation(launch.script.locate(others[names[0]]), message, hint)
