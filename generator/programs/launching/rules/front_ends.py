"""What has to hold of the counts and settings of a front end's launch: the table's identities.

An identity says how two counts have to relate, or which settings exclude each other. It names the
rule that reports it, by what happens where it is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Location, Severity, Violation, Violations
from ....numerals import python_float
from ....patterns import lazy_pattern
from ....rules.violations import derived, did_you_mean, listed
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....text.shell.records import Word
from ....text.slips import is_slip
from ...pins import numbers
from ...python_around import release_for
from ..front_end_config import FrontEndConfig
from ..front_end_copy import Copy, copy_has_option
from ..settings import Counted, Setting, Settings, settings_of

_IN_THE_TABLE: Final = derived("each identity in front_ends.json has the line that asserts it")
_OF_PARSERS: Final = derived("options of its releases, as scripts/front_end_options.py reads them")
#: What a count has to be, in the words of a message.
_FAILS: Final = {
    "multiple of": "is no multiple of",
    "less or a multiple of": "is no multiple of",
    "at least": "is less than",
    "equal to": "is not",
}
#: The exception that a text of the table names: `a ValueError at the start`.
_EXCEPTION: Final = lazy_pattern(r"\ban? (\w+Error)\b")
#: Choices that a condition asks for, as they are in Python.
_CHOICES: Final = lazy_pattern(r"!?(?!(?:true|false)\b)[A-Za-z_]\w*(?:\|[A-Za-z_]\w*)*")
#: The sign by which a check in Python asks how counts relate.
_COMPARED_BY: Final = {
    "multiple of": "%",
    "less or a multiple of": "%",
    "at least": "<",
    "equal to": "==",
}
_RAY: Final = "ray"  # short name of the GPUs with which Ray is started
_MOST_TRIED: Final = 512  # values around a setting's that a hint looks through: a bound on time
_SEVERITIES: Final[Mapping[str, Severity]] = {"warning": WARNING}


@subject("launch script", "AzureML job", "front end config")
def front_end_launches(submission: Submission) -> Iterator[Settings]:
    """Every launch of a front end and every file of one, as its settings."""
    files = [config.launch for config in submission.of(FrontEndConfig)]
    for launch in (*submission.launches, *files):
        settings = settings_of(launch)
        if settings is not None:
            yield settings


@front_end_launches.rule("FRONT002", WARNING, "training", _IN_THE_TABLE)
def samples_fill_the_steps(settings: Settings) -> Violations:
    """The samples of an iteration are a whole number of optimizer steps.
    Prevents: No error: the samples that are left are not trained on.
    Fix: make prompts × samples a multiple of the global batch
    """
    yield from _broken(settings, "FRONT002")


@front_end_launches.rule("FRONT003", WARNING, "training", _IN_THE_TABLE)
def longest_sample_fits_the_budget(settings: Settings) -> Violations:
    """The tokens that a rank trains on at once hold the longest sample.
    Prevents: No error at first: a sample that long stops the run, or runs out of memory. A note
    where the engine's own limit keeps samples shorter.
    Fix: raise the budget, or cut sequences over more ranks
    """
    yield from _broken(settings, "FRONT003")


@front_end_launches.rule("FRONT004", ERROR, "init", _IN_THE_TABLE)
def counts_start(settings: Settings) -> Violations:
    """The counts of a launch fit one another, as its program checks before it trains.
    Prevents: AssertionError, ValueError. A note where the repository's copy of the program has no
    such check.
    Fix: use counts that divide or equal one another, as the message says
    """
    yield from _broken(settings, "FRONT004")


@front_end_launches.rule("FRONT005", ERROR, "training", _IN_THE_TABLE)
def counts_make_a_step(settings: Settings) -> Violations:
    """The counts of a launch fit one another, as its program checks at the first update.
    Prevents: AssertionError, after a whole rollout. A note where the repository's copy of the
    program has no such check.
    Fix: use counts that divide one another, as the message says
    """
    yield from _broken(settings, "FRONT005")


@front_end_launches.rule("FRONT006", WARNING, "silent", _IN_THE_TABLE)
def engines_use_every_gpu(settings: Settings) -> Violations:
    """The GPUs of the rollout are a whole number of engines.
    Prevents: No error: the GPUs that are left stay idle.
    Fix: use as many GPUs as whole engines have
    """
    yield from _broken(settings, "FRONT006")


@front_end_launches.rule("FRONT007", ERROR, "init", _IN_THE_TABLE)
def settings_go_together(settings: Settings) -> Violations:
    """The settings of a launch are ones that its program takes together.
    Prevents: AssertionError, ValueError. A note where the repository's copy of the program has no
    such check.
    Fix: remove one of them, or add what it needs
    """
    yield from _broken(settings, "FRONT007")


@front_end_launches.rule("FRONT008", ERROR, "parse", _OF_PARSERS)
def options_are_the_programs(settings: Settings) -> Violations:
    """Every option is one that the program's parser has, and still has in the release that runs.
    Prevents: error: unrecognized arguments; ValueError: remaining_argv. A warning where nothing
    names a release.
    Fix: spell the option as the parser has it
    """
    front_end = settings.front_end
    for name, word in settings.options():
        where = settings.launch.script.locate(word)
        if name in front_end.gone:
            yield from _gone_option(settings, name, where)
        if "." in name and not name.startswith("-"):
            is_asked = not settings.hides  # keys of a config that may be another's
        else:
            is_asked = not front_end.engine and bool(front_end.options)
        if is_asked:
            yield from _misspelt_option(settings, name, where)
    yield from _of_other_releases(settings)


def _gone_option(settings: Settings, name: str, where: Location) -> Violations:
    """A violation where the release that runs surely no longer has an option."""
    gone = settings.front_end.gone[name]
    release = release_for(settings.front_end.program, where.path, [settings.launch])
    first_without = numbers(gone["before"])
    is_gone = release.certain(lambda version: version >= first_without)
    if is_gone and not _is_of_copy(settings, name):
        message = f"{release} has no option {name}"
        severity = None if release.where else WARNING
        yield Violation(where, message, f"use {gone['instead']}", severity=severity)


def _misspelt_option(settings: Settings, name: str, where: Location) -> Violations:
    """A violation for a slip of an option or key; what is like none may be a fork's."""
    front_end = settings.front_end
    is_file = front_end.in_file and not settings.launch.calls
    is_key = is_file or not name.startswith("-")
    # argparse takes the beginning of an option for it, and no reader of keys does.
    is_in_table = name in front_end.options if is_key else front_end.has_like(name)
    if is_in_table or settings.is_key_of_copy(name) is True:
        return
    meant = front_end.near(name)
    if meant is None or settings.is_key_of_copy(meant) is False or _is_of_copy(settings, name):
        return
    present = {option for option, _ in settings.options()}
    if is_file:  # whose keys have no hyphens in front
        name, meant = name.removeprefix("--"), meant.removeprefix("--")
        present = {option.removeprefix("--") for option in present}
    yield Violation(where, front_end.says_of(name), did_you_mean(meant, present))


def _is_of_copy(settings: Settings, name: str) -> bool:
    """Whether the Python of the repository's copy of the front end makes an option."""
    return copy_has_option(settings.launch.script.text.path, settings.front_end, name)


@front_end_launches.rule("FRONT010", ERROR, "init", _IN_THE_TABLE)
def values_are_taken(settings: Settings) -> Violations:
    """A value is within the bounds of its setting, and no slip of one of its choices.
    Prevents: ValueError, AssertionError, KeyError
    Fix: use a value that the program takes
    """
    for short, entry in settings.front_end.settings.items():
        takes = entry.get("takes")
        setting = settings.get(short) if takes else None
        if takes is None or setting is None or setting.where is None:
            continue
        text = setting.text.strip("'\"")
        number, most = python_float(text), takes.get("up_to")
        if most is not None and number is not None and not 0 < number <= most:
            message = f"{setting} is not above 0 and at most {most}: {takes['then']}"
            hint = f"use {setting.name}{setting.sign}{takes['such_as']}"
            yield Violation(setting.where, message, hint)
        meant = _meant_choice(text, takes.get("of", ()))
        if meant is not None and not (settings.copy and settings.copy.has_word(text)):
            message = f"{setting} is none that {settings.front_end.name} has: {takes['then']}"
            yield Violation(setting.where, message, f"did you mean {meant}?")


def _meant_choice(text: str, choices: Sequence[str]) -> str | None:
    """The choice of which a text is a slip.

    A text with a letter that the choice lacks may be a fork's: `arpo` beside `grpo`.
    """
    if text in choices:
        return None
    slips = (choice for choice in choices if is_slip(text, choice) and set(text) <= set(choice))
    return next(slips, None)


def _of_other_releases(settings: Settings) -> Violations:
    """A violation for each option of another release than most others are of."""
    if not settings.front_end.by_release:
        return
    entries = [entry["names"] for entry in settings.front_end.settings.values()]
    renamed = [names for names in entries if len(names) > 1]
    # The options by the place of their name among the names of its setting: its release.
    by_release: dict[int, list[_Renamed]] = {}
    for name, word in settings.options():
        for names in renamed:
            if name in names:
                by_release.setdefault(names.index(name), []).append(_Renamed(name, word, names))
    if len(by_release) < 2:
        return

    usual = max(by_release, key=lambda release: len(by_release[release]))
    usual_option = by_release[usual][0]
    for release, options in by_release.items():
        if release == usual:
            continue
        for option in options:
            message = f"{option.name} and {usual_option.name} are options of different releases"
            where = settings.launch.script.locate(option.word)
            yield Violation(where, message, f"use {option.names[usual]}")


class _Renamed(NamedTuple):
    """An option that a launch writes, of a setting that releases call by several names."""

    name: str
    word: Word
    names: Sequence[str]


def _broken(settings: Settings, rule: str) -> Violations:
    """A violation for each identity of a rule that surely doesn't hold; one for each place."""
    first_at = dict[Location, Violation]()
    for identity in settings.front_end.identities:
        if identity["rule"] == rule and _calls(settings, identity.get("in", "")):
            for violation in _in_its_releases(settings, identity):
                first_at.setdefault(violation.where, violation)
    yield from first_at.values()


def _calls(settings: Settings, function: str) -> bool:
    """Whether the program calls a function with checks; True where they are in none.

    The table knows it of the front end's own programs, else the copy of it that runs does.
    """
    if not function:
        return True
    word = settings.launch.program
    program = "" if word is None else (word.parts[-1] or "").removesuffix(".py").replace("/", ".")
    known = settings.front_end.called[function]
    if any(program and f".{module}".endswith(f".{program}") for module in known):
        return True
    return settings.copy is not None and settings.copy.program_calls(function)


def _in_its_releases(settings: Settings, identity: Mapping[str, Any]) -> Violations:
    """The violations of an identity, unless the release that runs doesn't check it yet.

    Of one that only newer releases check they are warnings, where nothing names a release.
    """
    violations = _in_every_branch(settings, identity)
    if settings.copy is not None and settings.front_end.files_of(identity):
        violations = _in_copy(settings, settings.copy, identity, violations)
    if "since" not in identity:
        yield from violations
        return

    program, first = settings.front_end.program, numbers(identity["since"])
    release = release_for(program, settings.place.path, [settings.launch])
    if release.certain(lambda version: version >= first):
        from_then_on = f" from {settings.front_end.name} {identity['since']} on"
        for violation in violations:
            severity = violation.severity if release.where else WARNING
            message = f"{violation.message}{from_then_on}"
            yield replace(violation, message=message, severity=severity)


def _in_copy(
    settings: Settings, copy: Copy, identity: Mapping[str, Any], violations: Violations
) -> Violations:
    """The violations of an identity, as far as the copy of the program that runs asks it.

    They are as in the table where its Python has the check, or it is of the table's release; of a
    check that isn't in the copy they are notes, as where the launch has options that only the copy
    has. Where the copy lacks a key that is set, that is what is wrong.
    """
    shorts = [short for short in _shorts_of(settings, identity) if short != "program"]
    for violation in violations:  # the copy is read only where there is any
        if any(settings.lacks_key(short) for short in shorts):
            return
        exceptions = _exceptions_in(copy, settings, identity)
        then: str = identity["then"]
        if exceptions:
            message = violation.message.replace(then, _raising(then, exceptions))
            yield replace(violation, message=message)
        elif copy.is_of(numbers(identity["since"]) if "since" in identity else None):
            yield violation
        else:
            is_check = _EXCEPTION.search(then) is not None
            severity = NOTE if is_check or _has_options_of(settings, copy) else WARNING
            message = f"{violation.message} in {copy.front_end.name}'s own release; "
            message += (
                f"no such check is found in {copy.shown}"
                if is_check
                else f"{copy.shown} may differ"
            )
            yield replace(violation, message=message, severity=severity)


def _has_options_of(settings: Settings, copy: Copy) -> bool:
    """Whether a launch has options that only the copy has, which may change what it does."""
    names = (name for name, _ in settings.options() if name not in copy.front_end.options)
    return any(map(copy.has_option, names))


def _exceptions_in(copy: Copy, settings: Settings, identity: Mapping[str, Any]) -> frozenset[str]:
    """The exceptions of the checks of a copy that are of the settings of an identity.

    Those of the machine have other names where they are checked.
    """
    front_end = settings.front_end
    files = front_end.files_of(identity)
    named = [frozenset([name]) for name in identity.get("named", "").split()]
    exceptions = copy.raises(named, files) if named else frozenset[str]()
    if exceptions:
        return exceptions

    counts = f"{identity.get('count', '')} {identity.get('of', '')}".split()
    shorts = [*counts, *(() if counts else identity["where"])]
    machine = {*settings.shorts_in("GPUs", "processes"), _RAY}
    names = [
        frozenset(name.rpartition(".")[2].lstrip("-").replace("-", "_") for name in entry["names"])
        for short, entry in front_end.settings.items()
        if short in shorts and short not in machine
    ]
    if not names:
        return frozenset()
    if counts:
        names.append(frozenset([_COMPARED_BY[identity["is"]]]))
    elif len(names) == 1:
        names += (
            frozenset(wanted.lstrip("!").split("|"))
            for wanted in identity["where"].values()
            if _CHOICES.fullmatch(wanted)
        )
    return copy.raises(names, files)


def _raising(then: str, exceptions: frozenset[str]) -> str:
    """What happens, with the exception that a copy raises in the place of the table's."""
    own = _EXCEPTION.search(then)
    if own is None or own[1] in exceptions:
        return then
    (name, *others) = sorted(exceptions)
    article = "an" if name[0] in "AEIOU" else "a"
    return _EXCEPTION.sub("an exception" if others else f"{article} {name}", then, count=1)


def _shorts_of(settings: Settings, identity: Mapping[str, Any]) -> Sequence[str]:
    """The short names of all settings that an identity asks for."""
    counts = (identity.get("count", ""), identity.get("of", ""), identity.get("at", ""))
    return [*settings.shorts_in(*counts), *identity.get("where", {})]


def _in_every_branch(settings: Settings, identity: Mapping[str, Any]) -> Violations:
    """The violations of an identity that doesn't hold, whatever branches the script takes.

    An identity that asks whether a setting is absent is silent where a key may be a slip of its
    name: the slip is reported.
    """
    conditions = identity.get("where", {})
    absent = [short for short, sign in conditions.items() if sign == "-"]
    if absent and _are_misspelt(settings, absent):
        return
    shorts = _shorts_of(settings, identity)
    violations_by = _of_counts if "count" in identity else _of_settings
    of_first_variant: list[Violation] = []
    variants = [*settings.variants(short for short in shorts if short != "program")]
    if "else" in identity and len(variants) == 1:
        return  # the engine's own rule, which knows no branches, says it
    for variant in variants:
        if not variant.meets(conditions):
            return
        violations = list(violations_by(variant, identity))
        if not violations:
            return
        of_first_variant = of_first_variant or violations
    yield from of_first_variant


def _are_misspelt(settings: Settings, shorts: Iterable[str]) -> bool:
    """Return whether a key that the program lacks is a slip of a setting's name."""
    front_end = settings.front_end
    names = {name for short in shorts for name in front_end.settings[short]["names"]}
    written = (name for name, _ in settings.options() if "." in name and name[0] != "-")
    unknown = [name for name in written if name not in front_end.options]
    return not settings.hides and any(front_end.near(name) in names for name in unknown)


def _of_settings(settings: Settings, identity: Mapping[str, Any]) -> Violations:
    """A violation by settings that are as the identity's conditions say.

    None by defaults alone: nothing says that they are meant.
    """
    conditions = identity["where"]
    asked = [settings.get(short) for short in conditions if short != "program"]
    if "-" not in conditions.values() and asked and not any(each and each.where for each in asked):
        return
    setting = settings.get(identity["at"]) if identity["at"] else None
    where = setting.where if setting and setting.where else settings.place
    subject = ""
    if setting:
        is_flag = setting.text == "true"
        subject = f"{setting.name} " if is_flag else f"{setting} "
    message = f"{subject}{identity['says']}: {identity['then']}"
    severity = _SEVERITIES.get(identity.get("severity", ""))
    yield Violation(where, message, identity.get("hint"), severity=severity)


def _of_counts(settings: Settings, identity: Mapping[str, Any]) -> Violations:
    """A violation by two counts that aren't as they have to be to each other."""
    left, right = settings.count(identity["count"]), settings.count(identity["of"])
    if left is None or right is None or _holds(identity["is"], left.value, right.value):
        return
    written = _written_in(settings, identity, left, right)
    if not written:
        return  # defaults alone: nothing says that they are meant

    setting = _setting_at(settings, identity, written)
    message = f"{left.text} {_FAILS[identity['is']]} {right.text}: {identity['then']}"
    hint = identity.get("hint") or _hint(
        settings, identity, written, setting, left.value, right.value
    )
    severity = _SEVERITIES.get(identity.get("severity", ""))
    if _is_bounded(settings, identity, left):
        severity = NOTE
    machine_hint = _machine_hint(settings, identity)
    if machine_hint:
        hint = f"{machine_hint}, or {hint.removeprefix('use ')}" if hint else machine_hint
    yield Violation(setting.where or settings.place, message, hint, severity=severity)


def _is_bounded(settings: Settings, identity: Mapping[str, Any], left: Counted) -> bool:
    """Whether another setting keeps what comes below the count of the right side."""
    bound = settings.count(identity["bound"]) if "bound" in identity else None
    return bound is not None and _holds(identity["is"], left.value, bound.value)


def _written_in(
    settings: Settings, identity: Mapping[str, Any], left: Counted, right: Counted
) -> tuple[Setting, ...]:
    """The settings that an identity's counts are made of, those first that are likelier wrong."""
    written = tuple(dict.fromkeys((*left.settings, *right.settings)))
    factors = identity["of"].split()
    divisors = [
        setting
        for setting in right.settings
        if _short_name(settings, setting) in factors and _machine_rank(settings, setting) == 0
    ]
    if identity["is"].endswith("multiple of") and len(divisors) == 1:
        written = (*divisors, *written)  # the least change is that of the size that has to divide
    return _machine_last(settings, dict.fromkeys(written))


def _holds(relation: str, left: int, right: int) -> bool:
    """Whether two counts relate as they have to; the relations are the keys of `_FAILS`."""
    if relation.endswith("multiple of"):
        return not left % right or (relation.startswith("less") and left < right)
    return left >= right if relation == "at least" else left == right


def _machine_last(settings: Settings, written: Iterable[Setting]) -> tuple[Setting, ...]:
    """Settings in the order in which to change them: a run's own before those of the machine.

    Counts of nodes and GPUs are harder to change, and the GPUs that Ray has come last.
    """
    return tuple(sorted(written, key=lambda setting: _machine_rank(settings, setting)))


def _machine_rank(settings: Settings, setting: Setting) -> int:
    """2 for the GPUs that Ray has, 1 for other counts of the machine, 0 for a run's own setting."""
    short = _short_name(settings, setting)
    return 2 if short == _RAY else int(short in settings.shorts_in("GPUs", "processes"))


def _setting_at(
    settings: Settings, identity: Mapping[str, Any], written: tuple[Setting, ...]
) -> Setting:
    """The setting that the table says to point at, else the first of those that are written."""
    wanted = settings.get(identity["at"]) if "at" in identity else None
    return wanted if wanted in written and wanted is not None else written[0]


def _hint(
    settings: Settings,
    identity: Mapping[str, Any],
    written: Iterable[Setting],
    pointed_at: Setting,
    left: int,
    right: int,
) -> str | None:
    """A hint with the values nearest to the written one with which the identity holds.

    It is for the first setting that has any: the one that is pointed at, then others, those of the
    machine last.
    """
    is_for_one_value = identity["is"] in ("at least", "equal to")
    for setting in _machine_last(settings, dict.fromkeys((pointed_at, *written))):
        short, number = _short_name(settings, setting), setting.number or 1
        around = (number + sign * step for step in range(1, _MOST_TRIED) for sign in (-1, 1))
        candidates: Iterable[int] = around
        if is_for_one_value:
            # First as much more or less of it as the other side has, which may lie far off.
            scaled = (-(-number * right // left), number * right // left, number * left // right)
            candidates = dict.fromkeys((*scaled, *around))
        passing = (
            value for value in candidates if value > 0 and _passes(settings, identity, short, value)
        )
        values = sorted(islice(passing, 1 if is_for_one_value else 2))
        if values:
            more = " or more" if identity["is"] == "at least" and values[0] > number else ""
            return f"use {setting.name}{setting.sign}{listed(values)}{more}"
    return None


def _machine_hint(settings: Settings, identity: Mapping[str, Any]) -> str | None:
    """The GPUs of a node with which this identity holds, and every other that they break.

    Only where these are at several settings: one slip is likelier than many.
    """
    setting = settings.get("per_node") if "per_node" in settings.front_end.settings else None
    if setting is None or setting.where is None or setting.number is None:
        return None
    broken = [
        other
        for other in settings.front_end.identities
        if "count" in other and _is_broken(settings, other) and _is_of_per_node(settings, other)
    ]
    places = {_place_of(settings, other) for other in broken}
    if identity not in broken or len(places) < 2:
        return None

    around = (setting.number + sign * step for step in range(1, 9) for sign in (-1, 1))
    mends_all = (
        value
        for value in around
        if value > 0 and all(_passes(settings, other, "per_node", value) for other in broken)
    )
    values = sorted(islice(mends_all, 2))
    return f"use {setting.name}{setting.sign}{listed(values)}" if values else None


def _is_of_per_node(settings: Settings, identity: Mapping[str, Any]) -> bool:
    """Whether an identity compares the GPUs of a node with anything but those that Ray has."""
    shorts = set(settings.shorts_in(identity["count"], identity["of"]))
    return "per_node" in shorts and _RAY not in shorts


def _place_of(settings: Settings, identity: Mapping[str, Any]) -> str:
    """The name of the setting at which a broken identity is told."""
    left, right = settings.count(identity["count"]), settings.count(identity["of"])
    written = _written_in(settings, identity, left, right) if left and right else ()
    return _setting_at(settings, identity, written).name if written else ""


def _short_name(settings: Settings, setting: Setting) -> str:
    entries = settings.front_end.settings.items()
    return next(short for short, entry in entries if setting.name in entry["names"])


def _passes(settings: Settings, identity: Mapping[str, Any], short: str, value: int) -> bool:
    """Whether the identity holds with that value, and every other one that holds without it."""
    changed = settings.having({short: Setting(name=short, text=str(value))})
    left, right = changed.count(identity["count"]), changed.count(identity["of"])
    relation = identity["is"].removeprefix("less or a ")
    if left is None or right is None or not _holds(relation, left.value, right.value):
        return False
    others = (other for other in settings.front_end.identities if "count" in other)
    return not any(
        _is_broken(changed, other) and not _is_broken(settings, other)
        for other in others
        if short in settings.shorts_in(other["count"], other["of"])
    )


def _is_broken(settings: Settings, identity: Mapping[str, Any]) -> bool:
    left, right = settings.count(identity["count"]), settings.count(identity["of"])
    if left is None or right is None or not settings.meets(identity.get("where", {})):
        return False
    return not _holds(identity["is"], left.value, right.value)
