"""Rules on single Megatron options: they are known, of their type, not missing, and given once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Final

from ....catalog.names import most_like
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....numerals import python_float
from ....places import is_number_to_fill
from ....rules.violations import did_you_mean, megatron_deepspeed, megatron_lm
from ...launching.front_end_copy import copy_has_option
from ..arguments import MOST_STRAYS
from ..options import PROJECTS, REMOVED, GivenOption, Stray, forks, option_table
from ..run import MICRO, MegatronRun
from ..table import REQUIRED, SIZES, equivalents, said_by
from .rule import (
    at,
    lm_arguments,
    lm_parsed,
    lm_runs,
    lm_started,
    mds_arguments,
    mds_parsed,
    mds_runs,
    mds_started,
)

#: Options that bring the shape from elsewhere: a checkpoint, a file.
_SHAPE_FROM: Final = (
    "--use-checkpoint-args",
    "--yaml-cfg",
    "--heterogeneous-layers-config-path",
    "--hybrid-layer-pattern",
    "--use-dataset-only",
    "--retro-workdir",
    "--retro-project-dir",
)
#: Tokens that stand for masked spans. megatron/data/t5_dataset.py:55 of Megatron-DeepSpeed @
#: 4efb479d asserts that there are some.
_SENTINELS: Final = "--vocab-extra-ids"
_POSITIONS: Final = "--max-position-embeddings"
_SLIP: Final = 0.8  # likeness of a value and a choice of which one is taken for the other


@lm_arguments.rule("MLM047", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS024", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def options_are_known(run: MegatronRun) -> Violations:
    """Every option is one that the parser has: it accepts no abbreviations and refuses unknown
    ones.
    Prevents: error: unrecognized arguments, on every rank after the queue. A note where a fork may
    have it.
    Fix: spell the option as the parser has it
    """
    unknown = [stray for stray in run.strays if stray.is_option]
    unknown += _in_branches(run)
    if run.fork:
        yield _of_fork(run, unknown)
        return
    if len(unknown) > MOST_STRAYS:
        message = (
            f"{len(unknown):,} options are unknown; from here on they are not compared "
            "with the known ones"
        )
        hint = "give the training program its own options only"
        yield Violation(unknown[MOST_STRAYS].where, message, hint)
    for option in run.given:
        if run.beside.lacks(option.written):
            near = run.beside.near(option.written)
            hint = did_you_mean(near, _given(run)) if near else "remove it"
            message = f"unknown option {option.written} in {run.beside.parser}"
            severity = _certainty(run, option.written, foreign=False)
            yield Violation(option.where, message, hint, severity=severity)
    for stray in unknown[:MOST_STRAYS]:
        yield from _of_unknown(run, stray)


def _in_branches(run: MegatronRun) -> Iterator[Stray]:
    """The unknown options that only some branches of a front end's script give."""
    front_end, launch = run.front_end, run.launch
    if front_end is None or launch is None or front_end.explicit_flags or front_end.becomes:
        return
    for word in launch.arguments:
        for text in word.perhaps if word.value is None else ():
            name = (text or "").partition("=")[0]
            is_option = name.startswith("--") and len(name) > 2
            if is_option and not (run.table.has(name) or front_end.may_have(name)):
                # The word stands for all of a branch: the option is where its name is written.
                content = launch.script.text.content
                is_once = content.count(name) == 1
                where = launch.script.locate(content.index(name) if is_once else word)
                yield Stray(word=name, where=where)


def _of_fork(run: MegatronRun, unknown: Sequence[Stray]) -> Violation:
    """Name what shows that the arguments are a fork's, as one note: unknown options, choices that
    the project's parser lacks, and options that it removed.
    """
    strays = [(stray.word, stray.where) for stray in unknown]
    signs = [*strays] if run.is_own_program else []
    signs += [
        (f"{option.written} {option.text}", option.where)
        for option in run.given
        if option.problem and option.is_choice
    ]
    signs += [(name, run.locate(name)) for name in REMOVED if run.has(name)]
    where_by_sign = dict(signs or strays)
    first, *others = where_by_sign
    more = f" and {len(others)} more are" if others else " is"
    message = (
        f"{first}{more} of {run.fork}, which is judged by the options it shares with "
        f"{PROJECTS[run.flavour].name}"
    )
    return Violation(where_by_sign[first], message, severity=NOTE)


def _of_unknown(run: MegatronRun, stray: Stray) -> Violations:
    """A violation for an option that the parser doesn't have, unless others may have added it."""
    parser = run.beside.parser
    other_flavour = next(flavour for flavour in PROJECTS if flavour != run.flavour)
    is_foreign = option_table(other_flavour).has(stray.word)
    severity = _certainty(run, stray.word, foreign=is_foreign)
    if severity is None or (parser is None and run.beside.copy_has(stray.word)):
        return

    if is_foreign:
        near = equivalents().get(stray.word)
    else:
        near = run.table.near(stray.word) or run.beside.near(stray.word)
    if run.front_end is not None:
        near = run.front_end.near(stray.word) or near
        message = run.front_end.says_of(stray.word)
    else:
        itself = "" if severity == ERROR or parser else " itself"
        message = f"unknown option {stray.word} in {parser or PROJECTS[run.flavour].name}{itself}"
        message += f": it is one of {PROJECTS[other_flavour].name}" if is_foreign else ""
    hint = "remove it" if is_foreign or parser else "remove it, unless the script is a fork's"
    if near:
        hint = did_you_mean(near, _given(run))
    yield Violation(stray.where, message, hint, severity=severity)


def _given(run: MegatronRun) -> frozenset[str]:
    """The options that are given, as they are written."""
    return frozenset(option.written for option in run.given)


def _certainty(run: MegatronRun, name: str, *, foreign: bool) -> Severity | None:
    """How certain it is that the program refuses an option, as a severity; None where the program
    of others may have added it. `foreign` says that the other Megatron has the option.
    """
    is_misspelt = run.table.near(name, slip=True) is not None
    if run.front_end is not None:  # forks add options, and slips of known ones have no effect
        if copy_has_option(run.path, run.front_end, name):
            return None
        return ERROR if is_misspelt or run.front_end.near(name) else None
    is_misspelt = is_misspelt or (run.beside.is_checked and run.beside.near(name) is not None)
    if run.beside.parser is not None and (run.is_own_program or is_misspelt):
        is_here = run.launch is not None and run.launch.starts_program_here
        return ERROR if is_here or is_misspelt else WARNING
    if not run.is_own_program:
        return NOTE if is_misspelt and not foreign else None
    if run.beside.judged is not None:  # a parser that others add to
        return NOTE
    if is_misspelt or (foreign and equivalents().get(name)):
        return ERROR
    return WARNING if foreign else NOTE


@lm_parsed.rule("MLM049", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_parsed.rule("MDS026", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def words_belong_to_options(run: MegatronRun) -> Violations:
    """Every word is an option or a value of one; flags have no values.
    Prevents: error: unrecognized arguments
    Fix: remove the word, or the space within a value"""
    strays = [stray for stray in run.strays if not stray.is_option]
    for (after, _), group in groupby(strays, key=lambda stray: (stray.after, stray.where.line)):
        of_line = list(group)
        words = list(dict.fromkeys(repr(stray.word) for stray in of_line))
        are_several = len(words) > 1
        message = f"{', '.join(words)} {'belong' if are_several else 'belongs'} to no option"
        option = run.table.get(after) if after else None
        if option is not None and option.kind == "flag":
            why = f": {after} accepts no value"
        else:
            why = f", or quote the value that {'they are' if are_several else 'it is'} part of"
        hint = f"remove {'them' if are_several else 'it'}{why}"
        # Words in capitals, such as MODEL, stand for values that are filled in later.
        are_to_fill = all(stray.word.isalpha() and stray.word.isupper() for stray in of_line)
        yield Violation(of_line[0].where, message, hint, severity=NOTE if are_to_fill else None)


@lm_parsed.rule("MLM048", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_parsed.rule("MDS025", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def values_are_of_their_type(run: MegatronRun) -> Violations:
    """Every value is of its option's type and one of its choices.
    Prevents: error: argument ...: invalid value, or invalid choice. A note where forks add choices.
    Fix: give a value of the option's type"""
    for option in run.given:
        if option.problem is None:
            continue
        row = run.table.get(option.name)
        hint = _hint_of_value(option.text, row.choices if row else ())
        is_extended = run.is_anothers or (option.name in _extended_by_forks() and hint is None)
        may_be_choice = option.is_choice and is_extended and run.beside.parser is None
        is_to_fill = not option.is_choice and is_number_to_fill(option.text, option.name)
        message = f"{option.written} {option.problem}"
        if not option.problem.startswith("has no"):
            message = f"{option.written} {option.text}".rstrip() + f": {message}"
        severity = NOTE if may_be_choice or is_to_fill else None
        yield Violation(option.where, message, hint, severity=severity)


@cache
def _extended_by_forks() -> frozenset[str]:
    """The options to which forks add choices."""
    return frozenset({"--position-embedding-type"}.union(*(f["choices"] for f in forks().values())))


def _hint_of_value(text: str, choices: tuple[object, ...]) -> str | None:
    """A hint with the choice that was meant, or with a whole number in plain digits."""
    in_other_case = [choice for choice in choices if str(choice).lower() == text.lower()]
    meant = in_other_case[0] if in_other_case else most_like(text, tuple(map(str, choices)), _SLIP)
    if meant:
        return f"write {meant}"
    number = python_float(text.replace("_", "").replace(",", ""))
    is_whole = number is not None and abs(number) < 1e15 and number == round(number)
    return f"write {round(number)}" if number is not None and is_whole else None


@lm_arguments.rule("MLM050", NOTE, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS027", NOTE, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def options_are_given_once(run: MegatronRun) -> Violations:
    """An option is given once: of several values, the last silently overrides the others.
    Prevents: No error: argparse keeps the last value.
    Fix: give the option once"""
    first_by_name: dict[str, GivenOption] = {}
    for option in run.given:
        before = first_by_name.setdefault(option.name, option)
        is_shortened = "..." in before.text + option.text
        if before.text != option.text and not is_shortened:
            message = (
                f"{option.written} {option.text} overrides {before.written} "
                f"{before.text}, given before it"
            )
            yield Violation(option.where, message, f"keep one of the two {option.name}")


@lm_runs.rule("MLM051", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_runs.rule("MDS028", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def sizes_are_positive(run: MegatronRun) -> Violations:
    """Sizes and batches are at least 1.
    Prevents: ZeroDivisionError, or an assertion
    Fix: use 1 or more"""
    for name in SIZES:
        value = run.integer(name)
        if value is not None and value < 1:
            yield at(run, name, f"{name} {value} is less than 1", f"use {name} 1")


@lm_started.rule("MLM034", ERROR, "init", megatron_lm("training/arguments.py:591-601"))
def removed_options_are_gone(run: MegatronRun) -> Violations:
    """Removed options are not given: the parser accepts them, and the run stops at start.
    Prevents: AssertionError: ... argument is no longer valid
    Fix: use the option that replaced it"""
    yield from _removed(run)
    name = "--checkpoint-activations"
    if run.has(name) and run.beside.parser is None:  # else of another version, which may have it
        hint = (
            "use --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        )
        yield at(run, name, f"{name} is no longer valid: Megatron-LM prints so and exits", hint)


def _removed(run: MegatronRun) -> Violations:
    """Return options that the parser still knows and then refuses.

    A parser of an older version may take them.
    """
    for name, now in REMOVED.items():
        if run.has(name) and run.beside.refuses_removed:
            yield at(run, name, f"{name} is no longer valid", f"use {now} instead")


@mds_started.rule("MDS007", ERROR, "init", megatron_deepspeed("megatron/arguments.py:126-164"))
def micro_batch_is_given(run: MegatronRun) -> Violations:
    """--micro-batch-size is given, and no removed option.
    Prevents: AssertionError
    Fix: add --micro-batch-size"""
    yield from _removed(run)
    yield from _missing(run, MICRO)


def _missing(run: MegatronRun, name: str) -> Violations:
    """A violation where an option without a default is surely not given, nor one that says it."""
    others = (other for other, options in said_by().items() if name in options)
    beside = run.beside
    # A fork may set the option itself, or have none of that name.
    is_forks = name.lstrip("-").replace("-", "_") in beside.left_out or beside.lacks(name)
    is_asked_for = (run.is_own_program or beside.is_checked) and not is_forks
    if is_asked_for and run.lacks_all(name, *others, *_SHAPE_FROM):
        yield at(run, "", f"{name} is not given, and has no default", f"add {name} N")


@lm_started.rule("MLM052", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_started.rule("MDS029", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def sizes_are_given(run: MegatronRun) -> Violations:
    """The model's shape, the sequence length and the micro-batch have no defaults.
    Prevents: AssertionError: ... argument is None
    Fix: add the option"""
    for name in (*REQUIRED, MICRO) if run.is_lm else REQUIRED:
        # Forks have other positions, and then don't ask for the number of them.
        asks_for_positions = (
            run.beside.parser is None or _POSITIONS[2:].replace("-", "_") in run.beside.required
        )
        if name != _POSITIONS or asks_for_positions:
            yield from _missing(run, name)
    if not run.is_lm and run.program == "pretrain_t5.py":
        yield from _missing_sentinels(run)


def _missing_sentinels(run: MegatronRun) -> Violations:
    """T5 with a vocabulary of word pieces, and no tokens for masked spans."""
    kind = run.value("--tokenizer-type", "BertWordPieceLowerCase")
    has_word_pieces = kind in ("BertWordPieceLowerCase", "BertWordPieceCase")
    if has_word_pieces and run.lacks(_SENTINELS):
        message = (
            f"{_SENTINELS} is not given: a vocabulary of word pieces has no tokens that "
            "stand for masked spans"
        )
        yield at(run, "", message, f"add {_SENTINELS} 100")


def _not_of_release(run: MegatronRun) -> Violations:
    """Options, and choices of options, that the release which is named lacks."""
    table, release = run.table, run.release
    index = table.index(release.version)
    for name, value in run.values.items():
        option = table.get(name)
        if option is None:
            continue
        if not option.is_in(index):
            places, shown = option.versions, name
        elif str(value) in option.choices_in and not option.has_choice(value, index):
            places, shown = option.choices_in[str(value)], f"{name} {value}"
        else:
            continue
        # A checkout may be on its way to the next release, or changed.
        if run.beside.copy_has(name, None if shown == name else value):
            continue

        newer = [place for place in places if place > index]
        nearest, word = (min(newer), "first") if newer else (max(places), "last")
        message = f"{shown} is not in {release}: of the versions looked at, "
        message += f"{table.versions[nearest]} is the {word} with it"
        yield at(run, name, message, f"remove {shown}, or use that version")


@lm_started.rule(
    "MLM053",
    WARNING,
    "parse",
    "NVIDIA/Megatron-LM megatron/training/arguments.py @ core_v0.8.0 to d98e8a64",
)
def options_are_of_one_version(run: MegatronRun) -> Violations:
    """All options are of one version of Megatron-LM: the one that the repository names, else any.
    Prevents: error: unrecognized arguments. A copy of Megatron in the repository decides by the
    options that it has itself.
    Fix: use the options of one version"""
    table, release = run.table, run.release
    if run.front_end is not None and run.front_end.becomes:
        return  # its keys stand for fields, and no parser of Megatron-LM reads them
    if run.beside.parser is None and release.where and release.exact:
        yield from _not_of_release(run)
        return
    rows = {name: table.get(name) for name in run.values}
    versions_by_name = {name: row.versions for name, row in rows.items() if row and row.versions}
    every = set(range(len(table.versions)))
    with_all_options = every.intersection(*versions_by_name.values())
    if run.beside.parser is not None or with_all_options:
        return
    if all(map(run.beside.copy_has, versions_by_name)):
        return
    old = min(versions_by_name, key=lambda name: versions_by_name[name][-1])
    new = max(versions_by_name, key=lambda name: versions_by_name[name][0])
    last, first = versions_by_name[old][-1], versions_by_name[new][0]
    if first - last > 1:  # between neighbours lie releases that may have both
        message = (
            f"{new} came after {old} was removed: of the versions looked at, "
            f"{table.versions[last]} is the last"
        )
        message += f" with {old}, {table.versions[first]} the first with {new}"
        yield at(run, old, message, f"remove {old} or {new}")
