"""Rules on the options that a launch line gives its program, by the program's own parser.

They judge programs of which the repository has the whole parser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise, takewhile
from pathlib import Path, PurePath
from typing import Final

from ...catalog.names import most_like
from ...findings import ERROR, NOTE, Location, Violation, Violations
from ...patterns import lazy_pattern
from ...programs.launching.fire_options import FireOptions, fire_options
from ...programs.launching.own_options import (
    field_takes_value,
    lacks_word,
    own_options,
    parses_classes,
    slips,
    valued_options,
)
from ...programs.launching.written_parser import written_parser
from ...programs.megatron.parser import options_beside
from ...programs.trainer.training_arguments import (
    from_launch,
    gone_arguments,
    known_arguments,
    trl_classes,
)
from ...rules.violations import did_you_mean, transformers
from ...submission.launches import Launch
from ...submission.repository import files_started, program_path
from ...submission.subjects import launches
from ...text.around import folders_above, text_around
from ...text.shell.records import Word
from ...text.wording import listed

#: Fields that Seq2SeqTrainingArguments adds to TrainingArguments. Source:
#: src/transformers/training_args_seq2seq.py @ 5.23
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
    """The classes of transformers and TRL whose fields parsers take as options, with these fields.

    Fields of older releases are among them.
    """
    fields = frozenset({*known_arguments(), *gone_arguments(), "local_rank", "generation_config"})
    of_sequences = fields | {*_OF_SEQUENCES}
    return (
        ("transformers.TrainingArguments", fields),
        ("transformers.Seq2SeqTrainingArguments", of_sequences),
        *(
            (f"trl.{name}", own | fields if on_trainer else own)
            for name, own, on_trainer in trl_classes()
        ),
    )


def _likely_slips(launch: Launch, program: Path, names: Mapping[Word, str]) -> Violations:
    """Options that are probably slips of the program's own; `names` has them by their words.

    The parser isn't known as a whole, and may pass over options that it lacks. So the others
    aren't told.
    """
    if options_beside(program).parser is not None:  # Megatron's, which other rules judge
        return
    of_trainer = dict(_fields_by_class())["transformers.Seq2SeqTrainingArguments"]
    others = [
        name for name in names.values() if name.lstrip("-").replace("-", "_") not in of_trainer
    ]
    meant = slips(program, others)
    for word, name in names.items():
        if name in meant:
            message = f"{program_path(launch)} has no option {name}: it stops, or passes over it"
            hint = did_you_mean(meant[name], names.values())
            yield Violation(launch.script.locate(word), message, hint)


def _moves_away(launch: Launch) -> bool:
    """Whether the script changes to an unknown folder, whose programs may have the same names."""
    folders = [
        command.words[1]
        for command in launch.script.commands
        if len(command.words) == 2 and command.words[0].value == "cd"
    ]
    return any(_is_within_unknown(folder) or _is_elsewhere(folder, launch) for folder in folders)


def _is_within_unknown(folder: Word) -> bool:
    """Whether both ends of a folder's path are unknown, as those of `$HERE/tasks/$NAME`."""
    return len(folder.parts) > 2 and folder.parts[0] is None and folder.parts[-1] is None


def _is_elsewhere(folder: Word, launch: Launch) -> bool:
    """Whether a folder is of another project than the script, as `/home/me/projects/other`.

    A copy of the script's own project has the project's name in its path.
    """
    path = PurePath(folder.value or "")
    above = list(folders_above(launch.script.text.path))
    if not path.is_absolute() or len(path.parts) <= _PARTS_OF_A_HOME or not above:
        return False
    project = above[-1].name
    return not any(project.endswith(part) for part in path.parts)


@launches.rule("LNCH048", ERROR, "parse", "Python's argparse: an option's value comes next")
def options_have_their_values(launch: Launch) -> Violations:
    """An option that the program's parser, or a class of it, gives a value has one behind it.
    Prevents: error: argument --model_name_or_path: expected one argument; or True for a number,
    from fire. A note where the value is a variable that the script leaves empty, for its user to
    fill in.
    Fix: write the value
    """
    yield from _values_behind_blanks(launch)
    program = next(iter(files_started(launch)), None)
    if program is None:
        return
    text = text_around(program, program.parent)
    has_classes, fired = "HfArgumentParser" in text, fire_options(program)
    for word, following in pairwise(launch.arguments):
        option = word.value or ""
        are_options = option.startswith("--") and following.prefix.startswith("--")
        name = option.removeprefix("--").replace("-", "_")
        if not are_options or not name.isidentifier():
            continue
        # Each field of a class is an option; one of these types takes a value.
        typed_field = rf"^[ \t]+{name}[ \t]*:[ \t]*(?:Optional\[)?(?:str|int|float)\b"
        is_field = has_classes and re.search(typed_field, text, re.M) is not None
        if not is_field and name not in known_arguments():  # which another rule judges
            is_field = parses_classes(program) and field_takes_value(program, name)
        # The modules are parsed only where one of them has the name at all.
        is_field = is_field or (fired is not None and fired.needs_value(option))
        if is_field or (not lacks_word(program, name) and option in valued_options(program)):
            where = launch.script.locate(word)
            between = launch.script.text_between(word.offset + len(word.raw), following.offset)
            variable = _VARIABLE.fullmatch(between)
            if variable:
                message = f"{option} gets nothing: {variable[1]} is empty"
                yield Violation(where, message, f"set {variable[2]}", severity=NOTE)
                continue
            message = f"{option} has no value: {following.prefix} is another option"
            yield Violation(where, message, f"write a value behind {option}")


def _values_behind_blanks(launch: Launch) -> Violations:
    """Options that end in an equals sign, behind which a blank parts the value off."""
    for word, following in pairwise(launch.arguments):
        is_empty = word.value is not None and re.fullmatch(r"--[\w.-]+=", word.raw) is not None
        if is_empty and re.fullmatch(r"[\w./$][\w./:${}-]*", following.raw):
            message = f"{word.raw} has no value: a blank parts {following.raw} from it"
            yield Violation(launch.script.locate(word), message, f"write {word.raw}{following.raw}")


@launches.rule(
    "LNCH042",
    ERROR,
    "parse",
    transformers("src/transformers/hf_argparser.py:338")
    + "; Python's argparse; fire 0.7.1, core.py:816",
)
def options_are_the_programs(launch: Launch) -> Violations:
    """Every option after the training program is one that its own parser has, where the repository
    has all of that.
    Prevents: error: unrecognized arguments: --saving_strategy steps; or: Some specified arguments
    are not used by the HfArgumentParser; or: ambiguous option; or, of fire: Could not consume arg.
    Fix: correct the option's name
    """
    programs, path = files_started(launch), program_path(launch)
    if not programs or _moves_away(launch):
        return
    # Behind `--` alone argparse takes words as they are.
    arguments = takewhile(lambda word: word.value != "--", launch.arguments)
    names = {
        word: word.prefix.partition("=")[0] for word in arguments if word.prefix.startswith("--")
    }
    fired = fire_options(programs[0]) if len(programs) == 1 else None
    if fired is not None:
        yield from _refused_by_fire(launch, fired, names)
        return
    options = _options_of_all(programs)
    if options is None:
        yield from _likely_slips(launch, programs[0], names)
        return

    # argparse accepts the beginning of an option for the option, where the parser lets it.
    parser = written_parser(programs[0]) if len(programs) == 1 else None
    is_exact = parser is not None and not parser.abbreviates
    told = _told_as_slips(launch)
    wrong = {
        word: name
        for word, name in names.items()
        if launch.script.locate(word) not in told
        and name not in options
        and not _is_a_value(word)
        and (
            (is_exact and word.value is not None)
            or not any(option.startswith(name) for option in options)
        )
    }
    for word, name in names.items():
        confused = parser.confused(name) if parser is not None and word.value is not None else ()
        if confused:
            message = f"{name} is short for {listed(option.names[0] for option in confused)}"
            yield Violation(launch.script.locate(word), message, "write the whole name")
    meant = {name: _meant_by(name, options) for name in wrong.values()}
    strange = {word: name for word, name in wrong.items() if not meant[name]}
    # Where most options are strange, another program of the same name is started.
    if 2 * len(strange) >= len(names):
        return
    for word, name in wrong.items():
        if likely := meant[name]:
            message = f"{path} has no option {name}"
            hint = _meant_of(name, likely, options, names.values())
            yield Violation(launch.script.locate(word), message, hint)
    if strange:
        strange_names = tuple(dict.fromkeys(strange.values()))
        is_one = len(strange_names) == 1
        message = f"{path} has no option{'' if is_one else 's'} {', '.join(strange_names)}"
        hint = _named_longer(strange_names[0], options) if is_one else "remove them"
        yield Violation(launch.script.locate(next(iter(strange))), message, hint)


def _is_a_value(word: Word) -> bool:
    """Whether argparse takes a word for a value, though it begins as an option: it has a blank.

    Source: CPython's argparse, _parse_optional, of what is no option of the parser.
    """
    return " " in (word.prefix if word.value is None else word.value)


def _refused_by_fire(launch: Launch, fired: FireOptions, names: Mapping[Word, str]) -> Violations:
    """Options that aren't parameters of the function that fire calls; `names` has all by their
    words.
    """
    strange = {
        word: name
        for word, name in names.items()
        if not fired.takes(name) and (word.value is not None or "=" in word.prefix)
    }
    if 2 * len(strange) >= len(names) > 1:  # another program of the same name is started
        return
    for word, name in strange.items():
        message = f"{program_path(launch)} has no option {name}: fire stops at it after the run"
        meant = most_like(
            name.replace("-", "_"), tuple(f"__{each}" for each in fired.names), _ALIKE
        )
        hint = did_you_mean(f"--{meant[2:]}", names.values()) if meant else "remove it"
        yield Violation(launch.script.locate(word), message, hint)


def reads_options(launch: Launch) -> bool:
    """Return whether options of a launch are compared with all that its program's parser has."""
    programs = files_started(launch)
    return bool(programs) and not _moves_away(launch) and _options_of_all(programs) is not None


def _meant_by(name: str, options: frozenset[str]) -> str | None:
    """The option that is spelt like a name, or the only one that begins so."""
    begun = [option for option in options if option.startswith(name)]
    return begun[0] if len(begun) == 1 else most_like(name, tuple(sorted(options)), _ALIKE)


def _meant_of(name: str, likely: str, options: Iterable[str], present: Collection[str]) -> str:
    """The hint on an option that is spelt like another one.

    Where that and others have only a word more, such as `eval` or `train`, each of them may be
    meant that isn't `present`.
    """
    longer = _with_a_word_more(name, options)
    unwritten = [option for option in longer if option not in present]
    if likely not in longer or not unwritten:
        return did_you_mean(likely, present)
    return f"did you mean {listed(unwritten)}?"


def _named_longer(name: str, options: Iterable[str]) -> str:
    """The hint on an option of which the program has one with a word more: `--use_fp16`."""
    longer = _with_a_word_more(name, options)
    return f"remove it, or write {longer[0]}" if len(longer) == 1 else "remove it"


def _with_a_word_more(name: str, options: Iterable[str]) -> list[str]:
    """The options that have all words of a name in their order, and one more."""
    words = re.split("[-_]", name.lstrip("-"))
    longer = dict[tuple[str, ...], str]()
    # Of two spellings of one option, that with the signs of the name.
    for option in sorted(options, key=lambda option: ("-" in name[2:]) == ("_" in option)):
        others = re.split("[-_]", option.lstrip("-"))
        left = iter(others)
        if len(others) == len(words) + 1 and all(word in left for word in words):
            longer.setdefault(tuple(others), option)
    return sorted(longer.values())


def _told_as_slips(launch: Launch) -> set[Location]:
    """The places of options that another rule takes for slips of TrainingArguments' names."""
    arguments = from_launch(launch)
    if arguments is None:
        return set()
    from ...programs.trainer.rules.arguments import slips_of_names  # here, to save start-up time

    return {slip.where for slip in slips_of_names(arguments)}


def _options_of_all(programs: Iterable[Path]) -> frozenset[str] | None:
    """The options of all programs of one name together: which of them is started isn't known.

    None where the options of one can't be read.
    """
    options: set[str] = set()
    for program in programs:
        declared = own_options(program, _fields_by_class())
        if declared is None:
            return None
        options |= declared
    return frozenset(options)
