"""Rules on the options of the program that a launch line starts, by the program's own parser.

They are checked where the repository has all of that parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise, takewhile
from pathlib import Path, PurePath
from typing import Final

from ...catalog.names import most_like
from ...findings import ERROR, NOTE, Violation, Violations
from ...patterns import lazy_pattern
from ...programs.launching.own_options import lacks_word, own_options, slips, valued_options
from ...programs.megatron.parser import options_beside
from ...programs.trainer.training_arguments import gone_arguments, known_arguments
from ...rules.violations import transformers
from ...submission.launches import Launch
from ...submission.repository import find_programs, program_of, program_path, program_text
from ...submission.subjects import launches
from ...text.around import folders_above
from ...text.shell.records import Word

#: Fields of Seq2SeqTrainingArguments of its own. Source: src/transformers/training_args_seq2seq.py
#: @ 5.23
_OF_SEQUENCES: Final = (
    "sortish_sampler",
    "predict_with_generate",
    "generation_max_length",
    "generation_num_beams",
)
#: How alike an option must be to be meant, by `most_like`: one letter in five differs.
_ALIKE: Final = 0.8
#: A variable between two words, as on two lines of a command.
_VARIABLE: Final = lazy_pattern(r"[\s\\]{1,200}(\$\{?(\w{1,100})\}?)[\s\\]{1,200}")
_PARTS_OF_A_HOME: Final = 3  # of a path such as `/home/me`; `/workspace` may hold anything


@lru_cache(maxsize=1)
def _fields_by_class() -> tuple[tuple[str, frozenset[str]], ...]:
    """The classes of transformers that parsers make options of, with their fields, those of older
    releases too.
    """
    fields = frozenset({*known_arguments(), *gone_arguments(), "local_rank", "generation_config"})
    return ("TrainingArguments", fields), ("Seq2SeqTrainingArguments", fields | {*_OF_SEQUENCES})


def _passed_over(launch: Launch, found: Path, words: Mapping[Word, str]) -> Violations:
    """Options that are probably slips of the program's own.

    Its parser may leave alone options that it lacks, so only likely slips are told.
    """
    if options_beside(found).parser is not None:  # Megatron's, which other rules judge
        return
    of_trainer = dict(_fields_by_class())["Seq2SeqTrainingArguments"]
    others = [
        name for name in words.values() if name.lstrip("-").replace("-", "_") not in of_trainer
    ]
    near = slips(found, others)
    for word, name in words.items():
        if name in near:
            message = f"{program_path(launch)} has no option {name}: it stops, or passes over it"
            yield Violation(launch.script.locate(word), message, f"did you mean {near[name]}?")


def _moves_away(launch: Launch) -> bool:
    """Whether the script changes to a folder of which the programs aren't known, and may have the
    same names.
    """
    folders = [
        command.words[1]
        for command in launch.script.commands
        if len(command.words) == 2 and command.words[0].value == "cd"
    ]
    return any(_is_within_unknown(folder) or _is_elsewhere(folder, launch) for folder in folders)


def _is_within_unknown(folder: Word) -> bool:
    """Whether neither a folder nor what it is within is known, as `$HERE/tasks/$NAME`."""
    return len(folder.parts) > 2 and folder.parts[0] is None and folder.parts[-1] is None


def _is_elsewhere(folder: Word, launch: Launch) -> bool:
    """Whether a folder is of another project than the script, as `/home/me/projects/other`."""
    path = PurePath(folder.value or "")
    above = list(folders_above(launch.script.text.path))
    if not path.is_absolute() or len(path.parts) <= _PARTS_OF_A_HOME or not above:
        return False
    project = above[-1].name
    return not any(map(project.endswith, path.parts))


@launches.rule("LNCH048", ERROR, "parse", "Python's argparse: an option's value comes next")
def options_have_their_values(launch: Launch) -> Violations:
    """An option that the program's parser, or a class of it, gives a value has one behind it.
    Prevents: error: argument --model_name_or_path: expected one argument. A note where the value is
    a variable that the script leaves empty, for its user to fill in.
    Fix: write the value
    """
    text, found = program_text(launch), program_of(launch)
    if text is None or found is None:
        return
    by_classes = "HfArgumentParser" in text
    for word, following in pairwise(launch.arguments):
        option = word.value or ""
        are_options = option.startswith("--") and following.prefix.startswith("--")
        name = option.removeprefix("--")
        if not are_options or not name.isidentifier():
            continue
        typed_field = rf"^[ \t]+{name}[ \t]*:[ \t]*(?:Optional\[)?(?:str|int|float)\b"
        is_field = by_classes and re.search(typed_field, text, re.M)
        # The modules are parsed only where one of them has the name at all.
        if is_field or (not lacks_word(found, name) and option in valued_options(found)):
            where = launch.script.locate(word)
            content = launch.script.text.content
            between = content[word.offset + len(word.raw) : following.offset]
            if variable := _VARIABLE.fullmatch(between):
                message = f"--{name} gets nothing: {variable[1]} is empty"
                yield Violation(where, message, f"set {variable[2]}", severity=NOTE)
                continue
            message = f"--{name} has no value: {following.prefix} is another option"
            yield Violation(where, message, f"write a value behind --{name}")


@launches.rule(
    "LNCH042",
    ERROR,
    "parse",
    transformers("src/transformers/hf_argparser.py:338") + "; Python's argparse",
)
def options_are_the_programs(launch: Launch) -> Violations:
    """Every option after the training program is one that its own parser has, where the repository
    has all of that.
    Prevents: error: unrecognized arguments: --saving_strategy steps; or: Some specified arguments
    are not used by the HfArgumentParser.
    Fix: correct the option's name
    """
    program, found = program_path(launch), program_of(launch)
    if found is None or _moves_away(launch):
        return
    # Behind `--` alone argparse takes words as they are.
    arguments = takewhile(lambda word: word.value != "--", launch.arguments)
    words = {
        word: word.prefix.partition("=")[0] for word in arguments if word.prefix.startswith("--")
    }
    options = _options_of_all(find_programs(program, launch.script.text.path))
    if options is None:
        yield from _passed_over(launch, found, words)
        return

    # argparse takes the beginning of an option for it
    wrong = {
        word: name
        for word, name in words.items()
        if not any(option.startswith(name) for option in options)
    }
    meant = {name: most_like(name, tuple(sorted(options)), _ALIKE) for name in wrong.values()}
    strange = {word: name for word, name in wrong.items() if not meant[name]}
    is_another_program = 2 * len(strange) >= len(words)  # of the same name
    if is_another_program:
        return
    for word, name in wrong.items():
        if meant[name]:
            message, hint = f"{program} has no option {name}", f"did you mean {meant[name]}?"
            yield Violation(launch.script.locate(word), message, hint)
    if strange:
        names = tuple(dict.fromkeys(strange.values()))
        message = f"{program} has no option{'s' if len(names) > 1 else ''} {', '.join(names)}"
        hint = "remove it" if len(names) == 1 else "remove them"
        yield Violation(launch.script.locate(next(iter(strange))), message, hint)


def _options_of_all(programs: Iterable[Path]) -> frozenset[str] | None:
    """The options of all programs of a name, as which of them is started isn't known; None where
    those of one can't be read.
    """
    options: set[str] = set()
    for program in programs:
        declared = own_options(program, _fields_by_class())
        if declared is None:
            return None
        options |= declared
    return frozenset(options)
