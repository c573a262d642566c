"""The walk through a config: problems of its keys and their values, each under its rule's id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ....findings import Violation, Violations, printable
from ....text.wording import escape
from ..config import Config
from ..schema import Section, as_hjson
from .keys import removed, slips_read_later, unknown_key, written_twice
from .placeholders import bare_placeholders, filled_in, leftover
from .subjects import FILL, Place, Problem, shown
from .values import of_mapping, of_model

#: Unknown keys in one section; more tell nothing new, and each costs a search for what was meant.
_MOST_UNKNOWN: Final = 50
_MOST_SHOWN: Final = 80  #: characters of a placeholder


def problems_of(config: Config, rule_id: str) -> Violations:
    """Yield what is wrong with a config's keys and values by one rule.

    The walk finds the problems of all rules. It is made once, and they are kept with the config.
    """
    attributes = vars(config)
    if "_problems" not in attributes:
        problems = [*_of_text(config)]
        readable, top = _readable(config), config.schema.section("")
        data = readable.json.data if readable is not None else None
        if readable is not None and top is not None and isinstance(data, dict):
            of_values = (*_of_section(readable, data, top), *slips_read_later(readable))
            left_out = frozenset() if readable is config else _lines_to_fill(config)
            problems += (each for each in of_values if each[1].where.line not in left_out)

        by_rule = defaultdict[str, list[Violation]](list)
        for broken_rule, violation in problems:
            by_rule[broken_rule].append(violation)
        attributes["_problems"] = dict(by_rule)

    by_id: Mapping[str, list[Violation]] = attributes["_problems"]
    return iter(by_id.get(rule_id, ()))


def _readable(config: Config) -> Config | None:
    """The config whose values are judged: of a template, with numbers in place of placeholders.

    None where even that can't be read.
    """
    return config if config.json.broken is None else _with_numbers(config)


def _of_text(config: Config) -> Iterator[Problem]:
    """The problems of a config as a whole: a placeholder that stops its reader, or no object."""
    placeholder, top = leftover(config), config.schema.section("")
    if placeholder is not None:
        text = printable(placeholder.text)[:_MOST_SHOWN]
        message = f"unfilled placeholder `{text}`: the config can't be read"
        where = config.json.lines.locate(placeholder.offset)
        yield "PARSE015", Violation(where, message, FILL)

    data = config.json.data
    if config.json.broken is None and top is not None and not isinstance(data, dict):
        place = Place(config=config, section=top, pointer="", value=data)
        message = f"the config must be an object, not {shown(data)}"
        hint = 'write an object such as {"train_batch_size": 256}'
        yield place.problem("PARSE011", message, hint)


def _with_numbers(config: Config) -> Config | None:
    """The config with numbers in place of its placeholders; None where it still can't be read."""
    filled = filled_in(config)
    return replace(config, json=filled) if filled is not None and filled.broken is None else None


def _lines_to_fill(config: Config) -> frozenset[int | None]:
    """The lines with placeholders, of which nothing is known."""
    placeholders = bare_placeholders(config)
    return frozenset(config.json.lines.locate(each.offset).line for each in placeholders)


def _of_section(
    config: Config, data: Mapping[str, Any], section: Section, pointer: str = ""
) -> Iterator[Problem]:
    """The problems of a section and of those in it; `pointer` is the section's."""
    places = dict[str, Place]()
    unknown_keys = 0
    for name, value in data.items():
        at = f"{pointer}/{escape(name)}"
        key = section.keys.get(name)
        place = Place(config=config, section=section, pointer=at, value=as_hjson(value))
        places[name] = place
        if key is None:
            problem = unknown_key(place, name) if unknown_keys < _MOST_UNKNOWN else None
            if problem is not None:
                unknown_keys += 1
                yield problem
            continue

        # Of `bf16` and `bfloat16` DeepSpeed reads one.
        if at == "/bfloat16" and config.bf16 != at:
            continue

        problem = of_model(place, key) if section.kind == "model" else of_mapping(place, key)
        if problem is not None:
            yield problem
            continue

        problem = removed(place, name)
        if problem is not None:
            yield problem
        inner = None if key.type.section is None else config.schema.section(key.type.section)
        if isinstance(place.value, dict) and inner is not None:
            yield from _of_section(config, place.value, inner, at)

    if section.kind == "model":
        yield from written_twice(places, section)
