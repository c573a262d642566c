"""A DeepSpeed config against the tables of keys, section by section; and the rules that report what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from ....facts.hjson.edits import rename_key, replace_value
from ....facts.hjson.text import JsonText
from ....facts.pins import deepspeed_of
from ....findings import Edit, Severity, Version, Violation, Violations, When, printable
from ....job.pointer import escape
from ....rule import Rule
from ...rule import subject
from ...submission import Submission
from ..config import Config
from ..schema import Deprecation, Key, Section
from .problem import Fix, Place, Problem, as_hjson
from .templates import FILL, leftover
from .unknown import unknown_keys
from .values import shown
from .wrong_value import of_mapping, of_model


def reported(
    id: str, severity: Severity, when: When, source: str, *, since: Version = ()
) -> Callable[[Callable[[], None]], Rule]:
    """Make a rule that reports the problems found under its id; the function below only documents it."""

    @subject("DeepSpeed config")
    def violations(submission: Submission) -> Violations:
        for config in submission.configs:
            for problem in problems_of(config):
                if problem.rule == id:
                    yield _as_sure(problem, severity, config)

    def made(requirement: Callable[[], None]) -> Rule:
        @wraps(requirement)
        def check(violation: Violation) -> Violations:
            yield violation

        return violations.rule(id, severity, when, source, since=since)(check)

    return made


def _as_sure(problem: Problem, severity: Severity, config: Config) -> Violation:
    """An error by this release is a warning where the repository asks for an older one, or a fork.

    It is a note where that one is known to accept what is written.
    """
    violation, until = problem.violation, problem.until
    is_error = (violation.severity or severity) is Severity.ERROR
    release = deepspeed_of(config.path) if is_error or until else None
    if release is None or (release.version is not None and release.version >= config.version):
        return violation
    accepted = until is not None and release.version is not None and release.version <= until
    if not (is_error or accepted):
        return violation
    message = f"{violation.message}; the repository asks for DeepSpeed {release}"
    return replace(violation, message=message, severity=Severity.NOTE if accepted else Severity.WARNING)


def problems_of(config: Config) -> tuple[Problem, ...]:
    """Every problem of a config's keys and their values; found once, and kept with the config."""
    kept = vars(config)
    if "_problems" not in kept:
        kept["_problems"] = tuple(_problems(config))
    found: tuple[Problem, ...] = kept["_problems"]
    return found


def _problems(config: Config) -> Iterator[Problem]:
    data, top = config.json.data, config.schema.section("")
    left = leftover(config)
    if left is not None:
        message = f"unfilled placeholder `{printable(left[1])[:80]}`: the config can't be read"
        yield Problem(rule="PARSE015", violation=Violation(config.json.lines.locate(left[0]), message, FILL))
    if config.json.broken is not None or top is None:
        return
    if isinstance(data, dict):
        yield from _of_section(config, "", data, top)
    else:
        place = Place(config=config, section=top, pointer="", value=data)
        message = f"the config must be an object, not {shown(data)}"
        yield place.problem("PARSE011", message, 'write an object such as {"train_batch_size": 256}')


def _of_section(config: Config, pointer: str, data: Mapping[str, Any], section: Section) -> Iterator[Problem]:
    places = {
        name: Place(config=config, section=section, pointer=f"{pointer}/{escape(name)}", value=as_hjson(value))
        for name, value in data.items()
    }
    yield from unknown_keys({name: place for name, place in places.items() if name not in section.keys}, section)
    for name, place in places.items():
        key = section.keys.get(name)
        if key is None or (place.pointer == "/bfloat16" and config.bf16 != place.pointer):
            continue
        problem = of_model(place, key) if section.kind == "model" else of_mapping(place, key)
        inner = config.schema.section(key.type.section or "")
        if problem is not None:
            yield problem
        elif isinstance(place.value, dict) and key.type.section is not None and inner is not None:
            yield from _of_section(config, place.pointer, place.value, inner)
    if section.kind == "model":
        yield from _written_twice(places, section)


def _written_twice(places: Mapping[str, Place], section: Section) -> Iterator[Problem]:
    """Keys by their field's name and their alias, and deprecated keys, alone or with what replaces them."""
    written = {name: place for name, place in places.items() if place.value != "auto"}
    for key in {section.keys[name].name: section.keys[name] for name in places if name in section.keys}.values():
        place = written.get(key.name)
        if place is None:
            continue
        if key.alias is not None and key.alias in written:
            message = f"`{key.name}` and `{key.alias}` are the same key: DeepSpeed refuses both together"
            fix = place.removal if place.value == written[key.alias].value else None
            yield place.problem("PARSE012", message, f"keep `{key.alias}`", at_key=True, fix=fix)
        if key.deprecated is not None:
            yield _deprecated(place, key, key.deprecated, section, written)


def _deprecated(
    place: Place, key: Key, replaced: Deprecation, section: Section, written: Mapping[str, Place]
) -> Problem:
    new = section.keys.get(replaced.by)
    names = {replaced.by} if new is None else {new.name, new.written}
    instead = replaced.by if new is None else new.written
    if replaced.moved and names & set(written):
        message = f"the deprecated `{key.name}` is written together with `{instead}`, which replaces it"
        return place.problem("PARSE013", message, f"remove `{key.name}`", at_key=True, fix=place.removal)
    rule = "ZERO003" if key.name.startswith("cpu_offload") else "ZERO004"
    message = f"`{key.name}` is deprecated: DeepSpeed reads it as `{instead}` and logs a warning"
    if not replaced.moved:
        message = f"`{key.name}` is deprecated and has no effect"
    hint, fix = _replacement(place, key.name, instead)
    return place.problem(rule, message, hint, at_key=True, fix=fix)


def _replacement(place: Place, name: str, instead: str) -> tuple[str, Fix]:
    """What to write in place of a deprecated key, and the fix that writes it."""
    if name == "cpu_offload_use_pin_memory":
        return 'write "pin_memory" in "offload_optimizer" and "offload_param"', place.removal
    if not name.startswith("cpu_offload"):
        return f'write "{instead}": {place.shown}', partial(rename_key, pointer=place.pointer, name=instead)
    device = "cpu" if place.value else "none"
    fix = partial(_rewritten, pointer=place.pointer, name=instead, value={"device": "cpu"})
    return f'write "{instead}": {{"device": "{device}"}}', fix if place.value else place.removal


def _rewritten(doc: JsonText, pointer: str, name: str, value: object) -> tuple[Edit, ...]:
    """Edits that replace a key and its value."""
    key_edits, value_edits = rename_key(doc, pointer, name), replace_value(doc, pointer, value)
    return (*key_edits, *value_edits) if key_edits and value_edits else ()
