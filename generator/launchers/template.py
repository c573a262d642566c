"""The one Jinja environment: undefined names fail, and every value is shell-quoted unless it is `Raw`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined

from .quoting import shell_word


def _source(name: str) -> str:
    return (files("dsgen.templates") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        finalize=shell_word,
        autoescape=False,
        comment_start_string="{##",  # bash has {# in ${#array[@]}
        comment_end_string="##}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def fill(name: str, **values: object) -> str:
    """The text of template `name` with `values` in it."""
    return _environment().get_template(name).render(**values)
