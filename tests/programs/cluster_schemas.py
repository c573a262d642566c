"""The schemas of Kubernetes jobs and SkyPilot tasks, as jsonschema validates by them."""

from __future__ import annotations

from functools import cache

from jsonschema import Draft202012Validator

from dsgen.facts.shapes import read_schemas


@cache
def validator(program: str, kind: str) -> Draft202012Validator:
    """The validator of a kind."""
    return Draft202012Validator({"$defs": read_schemas(program), "$ref": f"#/$defs/{kind}"})
