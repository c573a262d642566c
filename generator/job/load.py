"""From a job spec in any form to a `Job`, or to everything that is wrong with it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

from ..dataclass import dataclass
from ..findings import Finding, InvalidJob, Location, Severity, in_file_order, printable, without
from ..numerals import is_whole
from ..patterns import lazy_pattern
from ..secrets import find, holds, likeness, patterns
from ..text.conflicts import conflicts_in
from ..text.source import Source, escape, parse
from ..text.text import CONTROL, Text, UnreadableText, read_path, read_stream
from ..text.wording import dotted, kind_in_words, show, walk
from ..text.yaml_core import STRICT
from . import codes
from .overrides import apply_overrides, plain_source, with_renamed_keys
from .quantities import written_out
from .records import Frameworks, Job
from .resolve import resolve
from .resolve_names import check_model_keys
from .schema import answer_with
from .schema_check import check_schema, misspelt_keys

#: Where an empty value means something; elsewhere `key:` without a value is the same as no key.
_KEPT_EMPTY: Final = frozenset({"model", "environment", "tags", "deepspeed_config"})

SpecSource = str | os.PathLike[str] | TextIO | Mapping[str, object]


def load_with_findings(
    source: SpecSource,
    frameworks: Frameworks,
    *,
    overrides: Mapping[str, object] | None = None,
    may_read: Callable[[Path, Path], bool] | None = None,
) -> tuple[Job, tuple[Finding, ...]]:
    """The job of a spec, and the warnings that didn't stop it, in file order.

    The spec is a path, an open text stream, or its keys.

    `overrides` maps dotted paths (`gpus`, `layout.zero_stage`) to values that go over the spec's;
    text is read as YAML. Raises `InvalidJob`, and nothing else for bad input, with every finding at
    once. `may_read` is as in `Source`.
    """
    try:
        read = _read(source)
        if not read.complete:  # what would be missing may come later in the text
            raise InvalidJob(read.findings)
        if not isinstance(read.data, dict):
            raise InvalidJob([*read.findings, _no_mapping(read)])
        if (answer := answer_with(read.data)) is not None:
            raise InvalidJob([_no_spec(read, answer)])
        changed = apply_overrides(read, overrides or {})
    except UnreadableText as problem:
        raise InvalidJob([problem.finding]) from None
    bare = replace(changed, data=_without_empty(changed.data), may_read=may_read)
    tidy = written_out(bare, frameworks)
    secrets = spec_secrets(tidy)
    job, findings = _check(tidy, secrets, frameworks)
    values = tuple(secret.value for secret in secrets)
    findings = without(values, findings)
    if job is not None:
        return job, in_file_order(findings)

    # With misspelt keys under their names more may be found: it is said beside the rest.
    meant, further = _meant(bare, misspelt_keys(tidy), secrets, frameworks)
    said = {_identity(finding) for finding in findings}
    new = (finding for finding in further if _identity(finding) not in said)
    raise InvalidJob((*findings, *without(values, new)), meant=meant)


def _read(source: SpecSource) -> Source:
    """The spec as data with places. Raises `UnreadableText`."""
    if isinstance(source, Mapping):
        return plain_source(source)
    if isinstance(source, (str, os.PathLike)):
        return _parsed(read_path(source))
    return _parsed(read_stream(source))


def _parsed(text: Text) -> Source:
    """A text as data. Raises `InvalidJob` where a merge conflict is left in it."""
    lines = conflicts_in(text.content)
    if lines:
        message, hint = "a merge conflict is left in the spec", "keep one side"
        raise InvalidJob([codes.SYNTAX.at(text.locate(line, 0), message, hint) for line in lines])
    return parse(text)


def _no_mapping(read: Source) -> Finding:
    """What is wrong with a spec that is empty, or no mapping."""
    where = read.locations.get("", Location(path=read.path, line=1, column=1))
    if read.data is None:
        return codes.MISSING_KEY.at(where, "the job spec is empty", STRICT.empty_hint)
    message = f"a job spec is a mapping of keys to values; this is {kind_in_words(read.data)}"
    hint = "write `model: gpt3-175b` and so on, one key a line"
    return codes.WRONG_TYPE.at(where, message, hint)


def _no_spec(read: Source, answer: str) -> Finding:
    """What is wrong with a document that dsgen answered with, in the place of a spec."""
    where = Location(path=read.path)  # all of it, and no line of it more than another
    message = f"this is an answer of dsgen's (`dsgen schema {answer}`), not a job spec"
    hint = "name the job spec that it was made from, or give the command the same flags"
    return codes.WRONG_TYPE.at(where, message, hint)


def _identity(finding: Finding) -> tuple[str, int | None, int | None]:
    """What two findings of the same fault have in common."""
    return finding.rule, finding.where.line, finding.where.column


def _meant(
    source: Source,
    names: Mapping[str, str],
    secrets: tuple[SpecSecret, ...],
    frameworks: Frameworks,
) -> tuple[Job | None, tuple[Finding, ...]]:
    """The job of a spec with its misspelt keys under their names, and what is found in it.

    There is no job where a misspelt key may stand for several keys or for none, or where its value
    doesn't fit: a default would take its place, and findings on that aren't the user's.
    """
    if not names or not all(names.values()):
        return None, ()
    renamed = written_out(with_renamed_keys(source, names), frameworks)
    job, findings = _check(renamed, secrets, frameworks)
    return job, findings if job is not None else ()


def _check(
    source: Source, secrets: tuple[SpecSecret, ...], frameworks: Frameworks
) -> tuple[Job | None, tuple[Finding, ...]]:
    """The job, if nothing is wrong with it, and every finding."""
    textual = (*source.findings, *check_text(source), *check_secrets(source, secrets))
    misspelt = tuple(check_model_keys(source))
    reported = {
        finding.where.pointer
        for finding in textual
        if finding.where.pointer
        and finding.severity is Severity.ERROR
        and finding.rule != codes.DUPLICATE_KEY.id
    }
    violations, meant = check_schema(source)
    shape = tuple(finding for finding in violations if finding.where.pointer not in reported)
    errors = [finding for finding in (*textual, *shape) if finding.severity is Severity.ERROR]
    broken = (*(finding.where.pointer for finding in errors), *meant)
    job, unresolved = resolve(source, broken, frameworks)
    if misspelt:
        # The model is another than the one meant: what its config holds beyond it says nothing.
        others = (finding for finding in unresolved if finding.rule != codes.LEFT_OUT.id)
        return None, (*textual, *misspelt, *shape, *others)
    return (None if errors else job), (*textual, *shape, *unresolved)


def _without_empty(data: object) -> object:
    """`data` without the keys that have no value, down to the spec's own mappings."""
    if not isinstance(data, dict):
        return data
    return {
        key: value if key in _KEPT_EMPTY else _without_empty(value)
        for key, value in data.items()
        if value is not None
    }


_CONTROL: Final = lazy_pattern(f"{CONTROL.pattern}|\x85")
_LINE_BREAK: Final = lazy_pattern("[\t\n\r\u2028\u2029]")
_ARGUMENTS: Final = "/launch/arguments/"
_ENVIRONMENT: Final = "/launch/environment/"
_MODEL: Final = "/model/"  # keys of a config.json, whose tokens are words of a vocabulary


def check_text(source: Source) -> Iterator[Finding]:
    """A finding for every text and number that can't be used, whatever its key.

    Names of variables are among these texts.
    """
    for pointer, value in walk("", source.data):
        # A config.json has limits that are infinite; only the keys that are read have to be finite.
        infinite = isinstance(value, float) and not math.isfinite(value)
        if infinite and not pointer.startswith(_MODEL):
            message = f"`{dotted(pointer)}` is {value}; expected a finite number"
            yield codes.WRONG_VALUE.at(
                source.locate(pointer), message, "write a number, or remove the key"
            )
        elif isinstance(value, str):
            yield from _text(source, pointer, value)
        elif isinstance(value, Mapping):
            for key in value:
                if _CONTROL.search(key):
                    where = source.locate_key(f"{pointer}/{escape(key)}")
                    message = f"the key {show(key)} has a control character"
                    yield codes.FORBIDDEN_CHARACTER.at(where, message, "remove it")
    environment = source.value("/launch/environment")
    if not isinstance(environment, dict):
        return
    for name in environment:
        if not (name.isascii() and name.isidentifier()):  # no shell can set it
            where = source.locate_key(f"{_ENVIRONMENT}{escape(name)}")
            plain = re.sub(r"[^A-Za-z0-9_]", "_", name) or "NAME"
            example = f"_{plain}" if is_whole(plain[0]) else plain
            hint = f"use letters, digits and underscores, such as {example}"
            yield codes.ENVIRONMENT_NAME.at(
                where, f"invalid name of an environment variable: {show(name)}", hint
            )


def _text(source: Source, pointer: str, value: str) -> Iterator[Finding]:
    control = _CONTROL.search(value)
    if control:
        message = f"`{dotted(pointer)}` has the control character U+{ord(control.group()):04X}"
        yield codes.FORBIDDEN_CHARACTER.at(source.locate(pointer), message, "remove it")
    elif "\r" in value and pointer.startswith("/launch/"):
        message = f"`{dotted(pointer)}` has a carriage return, with which sbatch refuses a script"
        yield codes.FORBIDDEN_CHARACTER.at(
            source.locate(pointer), message, "end lines with a line feed alone"
        )
    elif _LINE_BREAK.search(value) and not pointer.startswith((_ARGUMENTS, _ENVIRONMENT, _MODEL)):
        message = f"`{dotted(pointer)}` has a line break or tab; expected one line of text"
        yield codes.FORBIDDEN_CHARACTER.at(source.locate(pointer), message, "write it on one line")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSecret:
    """A secret in a spec."""

    pointer: str
    value: str
    name: str  #: of the variable, option or key
    what: str  #: the beginning of a message: its name, never its value
    in_key: bool = False  #: whether a key holds it


def spec_secrets(source: Source) -> tuple[SpecSecret, ...]:
    """Every secret in a spec, one for each value."""
    by_pointer: dict[str, SpecSecret] = {}
    for secret in sorted(
        (*_of_options(source), *_of_values(source)), key=lambda secret: secret.in_key
    ):
        by_pointer.setdefault(secret.pointer, secret)
    return tuple(by_pointer.values())


def check_secrets(source: Source, secrets: tuple[SpecSecret, ...]) -> Iterator[Finding]:
    """An error for each: files are shared, committed and kept with the job."""
    if not secrets:
        return
    known = patterns()
    target = str(source.value("/launch/target", known["usual_target"]))
    way_of_target = known["ways"].get(target) or known["ways"]["other"]
    for secret in secrets:
        is_variable = secret.pointer.startswith(_ENVIRONMENT)
        locate = source.locate_key if secret.in_key or is_variable else source.locate
        name = secret.name if is_variable else secret.name.strip("-").replace("-", "_").upper()
        hint = f"remove it; {way_of_target.format(name=name or 'TOKEN')}"
        other_way = known["alternatives"].get(name) if "a file" in way_of_target else None
        if other_way:
            hint += f"; {other_way}"
        message = f"{printable(secret.what)}: it would be in files that are shared and kept"
        yield codes.SECRET.at(locate(secret.pointer), message, hint)


def _of_options(source: Source) -> Iterator[SpecSecret]:
    """Arguments of options whose names are secrets': `--hf-token X`, `--api_key=X`, `api_key=X`."""
    arguments = source.value("/launch/arguments")
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        at, follows = index, words[index + 1] if index + 1 < len(words) else ""
        is_option = not equals and word.startswith("-") and " " not in word
        if is_option and not follows.startswith("--"):
            at, value = index + 1, follows
        if " " not in option and value and holds(option.strip("-+"), value):
            what = f"`launch.arguments[{at}]`, the value of `{option}`, is a secret"
            yield SpecSecret(pointer=f"{_ARGUMENTS}{at}", value=value, name=option, what=what)
            continue

        # In `-u me:pw` the option makes a secret of the word that follows it.
        with_option = find(f"{word} {follows}")
        if any(secret.start > len(word) for secret in with_option) and not find(follows):
            what = f"`launch.arguments[{index + 1}]`, which follows an option, is a secret"
            yield SpecSecret(pointer=f"{_ARGUMENTS}{index + 1}", value=follows, name="", what=what)


def _of_values(source: Source) -> Iterator[SpecSecret]:
    """Values of keys with a secret's name, texts with a secret, and secrets as keys."""
    for pointer, value in walk("", source.data):
        if isinstance(value, Mapping):
            for key in value:
                for secret in find(key):
                    called = secret.what or f"the secret `{secret.name}`"
                    what = f"a key of `{dotted(pointer)}` has {called}"
                    place = f"{pointer}/{escape(key)}"
                    yield SpecSecret(
                        pointer=place, value=secret.value_in(key), name="", what=what, in_key=True
                    )
        if value is None or isinstance(value, (bool, dict, list)):
            continue
        text = value if isinstance(value, str) else source.texts.get(pointer, str(value))
        parts = pointer.split("/")
        while len(parts) > 1 and is_whole(parts[-1]):  # an item has the name of its list
            parts.pop()
        name = parts[-1].replace("~1", "/").replace("~0", "~")
        variable = pointer.startswith(_ENVIRONMENT)
        if not pointer.startswith((_ARGUMENTS, _MODEL)) and holds(name, text, variable=variable):
            place = f"`{name}`" if variable else f"`{dotted(pointer)}`"
            yield SpecSecret(pointer=pointer, value=text, name=name, what=f"{place} is a secret")
            continue
        for secret in find(text):
            called = secret.what or f"the secret `{secret.name}`"
            label = secret.name or (name if likeness(name) else "")
            what = f"`{dotted(pointer)}` has {called}"
            yield SpecSecret(pointer=pointer, value=secret.value_in(text), name=label, what=what)
