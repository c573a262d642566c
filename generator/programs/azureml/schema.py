"""The conversions of azure-ai-ml 1.35.2 for what schema.json has: marshmallow's, and those of fields of its own."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from ...facts.shapes import Reader, has_type, read_schemas

DISTRIBUTIONS: Final = ("pytorch", "mpi", "tensorflow", "ray")
_MODELS: Final = ("custom_model", "mlflow_model", "triton_model")
SERVICE_TYPES: Final = ("jupyter_lab", "ssh", "tensor_board", "vs_code")
_IDENTITIES: Final = ("managed", "managed_identity", "aml_token", "user_identity")

#: Before the path of a YAML file that is loaded for a mapping. Source: azure-ai-ml _schema/core/schema.py:94 @ 1.35.2
FILE_PREFIX: Final = "file:"
_BOOL_WORDS: Final = frozenset(["t", "true", "on", "y", "yes", "1", "f", "false", "off", "n", "no", "0"])
_ARM_ID: Final = re.compile(
    r"/?subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.MachineLearningServices/workspaces/[^/]+"
    r"/[^/]+/[^/]+/versions/[^/]+"
)
_REGISTRY_ID: Final = re.compile(r"azureml://registries/[^/]+/[^/]+/[^/]+/versions/[^/]+")


def _accepts(value: object, types: Collection[str]) -> bool:
    """Return whether marshmallow takes a value: an integer is what int() converts, but for true and false."""
    if "string" in types:
        return isinstance(value, (str, bytes))
    if "boolean" in types:
        return value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOL_WORDS)
    if "integer" not in types:
        return has_type(value, types)
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, str) and len(value) <= 100:
        try:
            int(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int) and not isinstance(value, bool)


def environment_fits(value: object) -> bool:
    """Return whether text names an environment of the workspace or a registry, or its file, to azure-ai-ml."""
    if isinstance(value, str) and value.startswith(FILE_PREFIX):  # AML022 asks whether it is there
        return True
    if not isinstance(value, str) or not value.startswith("azureml:"):
        return False
    name = value.removeprefix("azureml:")  # the loader accepts an empty one, the service doesn't
    known = value.startswith("azureml://registries/") or _ARM_ID.match(name) or _REGISTRY_ID.match(name)
    return bool(known) or "/" not in name or name.startswith("/")


def _is_literal(value: object) -> bool:
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    return isinstance(value, (str, bytes, int))


def _snake(text: str) -> str:
    text = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", text).lower()


def _type_of(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind.lower() if isinstance(kind, str) else kind


def _input(value: Any) -> str:
    if not isinstance(value, dict):
        return "literal"
    if "value" in value:
        return "input of a value"
    kind = _type_of(value)
    known = {"mltable": "table", **dict.fromkeys(_MODELS, "model")}.get(str(kind))
    return known or ("untyped data" if "type" not in value else "data")


def _service(value: Any) -> str:
    keys = {"log_dir", "ssh_public_keys"} & set(value) if isinstance(value, dict) and "type" not in value else None
    if keys is not None:
        of_keys = {(): "untyped service", ("log_dir",): "tensor_board", ("ssh_public_keys",): "ssh"}
        return of_keys.get(tuple(keys), "service")
    kind = _type_of(value)
    return str(kind) if kind in ("ssh", "tensor_board") else "service"


def _identity(value: Any) -> str:
    stated = value.get("type") if isinstance(value, dict) else None
    managed = not isinstance(stated, str) or _snake(stated) in _IDENTITIES[:2]
    return "managed identity" if managed else "other identity"


def _distribution(value: Any) -> str:
    kind = {"mpi": "pytorch"}.get(str(_type_of(value)), _type_of(value))
    return f"{kind} distribution" if kind in DISTRIBUTIONS else "any distribution"


READER: Final = Reader(
    accepts=_accepts,
    forms={
        "version": lambda value: isinstance(value, (str, int, float)),
        "literal": _is_literal,
        "environment": environment_fits,
        "environment id": lambda value: isinstance(value, str) and value.startswith("azureml:"),
        "identity": lambda value: isinstance(value, str) and _snake(value) in _IDENTITIES,
    },
    chosen={
        "environment": lambda value: "environment" if isinstance(value, dict) else "environment name",
        "text or list": lambda value: "list of text" if isinstance(value, list) else "text",
        "distribution": _distribution,
        "input": _input,
        "service": _service,
        "identity": _identity,
    },
    takes_null=False,
    lists_keys=True,
)


def section_of(key: str) -> str | None:
    """The section of a job that has a key."""
    schemas = read_schemas("azureml")
    for name, schema in schemas["command job"]["properties"].items():
        section = schemas["any distribution"] if name == "distribution" else schema
        if key in section.get("properties", ()):
            return str(name)
    return None
