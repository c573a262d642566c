"""`--compare KEY=VALUE,KEY=VALUE` as layout keys, and what is wrong with it as a usage error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

#: Commas between keys, not those of a list: `recompute_modules=[core_attn, mlp],tensor=8`.
_OUTSIDE_LISTS = re.compile(r",(?![^\[]*\])")

Asked = Mapping[str, Any]


def read_asked(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Asked, ...]:
    """Each text as layout keys with values as the job spec writes them; `null` leaves open what the spec pins."""
    return tuple(_keys(text) for text in texts)


def _keys(text: str) -> Asked:
    from ..job.overrides import parse_value  # here, to save start-up time
    from ..job.plain import plain_source
    from ..job.resolve import pinned_value
    from ..job.schema_check import check_schema, load_schema

    known = load_schema()["$defs"]["layout"]["properties"]
    asked: dict[str, object] = {}
    for part in _OUTSIDE_LISTS.split(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = key.removeprefix("layout.")
        if not equals or not value:
            raise click.BadParameter(f"{part.strip()!r} is not KEY=VALUE, such as tensor=8")
        if key in asked:
            raise click.BadParameter(f"{key} is set twice in {text!r}")
        asked[key] = parse_value(value)
    closed = {key: value for key, value in asked.items() if value is not None or key not in known}
    problems = [f for f in check_schema(plain_source({"layout": closed})) if f.where.pointer.startswith("/layout")]
    if problems:
        raise click.BadParameter("; ".join(f"{f.message}; {f.hint}" if f.hint else f.message for f in problems))
    return {key: pinned_value(value) for key, value in asked.items()}
