"""What azure-ai-ml 1.35.2 loads as a command job: its marshmallow schemas, of which azureml_schema.json has the fields.

Source: azure-ai-ml azure/ai/ml/_schema/job/command_job.py, parameterized_command.py, base_job.py, distribution.py,
job_resource_configuration.py, input_output_entry.py, services.py, identity.py, and _schema/assets/environment.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, cast

from ...facts.shapes import (
    ANY,
    INTEGER,
    NULLABLE_TEXT,
    TEXT,
    Entries,
    Fields,
    Items,
    Leaf,
    Shape,
    Switch,
    choice,
    shape_of,
)

DISTRIBUTIONS: Final = ("pytorch", "mpi", "tensorflow", "ray")
INPUT_MODES: Final = ("download", "ro_mount", "direct")
TABLE_MODES: Final = (*INPUT_MODES, "eval_mount", "eval_download")
OUTPUT_MODES: Final = ("mount", "upload", "rw_mount", "direct")
DATA_TYPES: Final = ("uri_file", "uri_folder")
MODEL_TYPES: Final = ("custom_model", "mlflow_model", "triton_model")
SERVICE_TYPES: Final = ("jupyter_lab", "ssh", "tensor_board", "vs_code")
IDENTITIES: Final = ("managed", "managed_identity", "aml_token", "user_identity")

#: Before the path of a YAML file that is loaded for a mapping. Source: azure-ai-ml _schema/core/schema.py:94 @ 1.35.2
FILE_PREFIX: Final = "file:"
_BOOL_WORDS: Final = frozenset(["t", "true", "on", "y", "yes", "1", "f", "false", "off", "n", "no", "0"])
_ARM_ID: Final = re.compile(
    r"/?subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.MachineLearningServices/workspaces/[^/]+"
    r"/[^/]+/[^/]+/versions/[^/]+"
)
_REGISTRY_ID: Final = re.compile(r"azureml://registries/[^/]+/[^/]+/[^/]+/versions/[^/]+")


def _type_of(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind.lower() if isinstance(kind, str) else kind


def _snake(text: str) -> str:
    text = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", text).lower()


def _is_flag(value: object) -> bool:
    return value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOL_WORDS)


def _is_literal(value: object) -> bool:
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    return isinstance(value, (str, bytes, int))


FLAG: Final = Leaf(fits=_is_flag, expected="true or false")
LITERAL: Final = Leaf(fits=_is_literal, expected="text, a number, true or false, or a mapping with type and path")
ALL_NODES: Final = Leaf(fits=lambda value: value == "all", expected="all, or no key", choices=("all",))


def _distribution(value: object) -> Fields:
    kind = _type_of(value)
    return Fields(known=_OF_DISTRIBUTION.get(str(kind), DISTRIBUTION_KEYS), required=("type",))


def _input(value: object) -> Shape:
    if not isinstance(value, dict):
        return LITERAL
    if "value" in value:
        return Fields(known={"value": LITERAL})
    common: dict[str, Shape] = {"path": TEXT, "datastore": TEXT}
    match _type_of(value):
        case "mltable":
            return Fields(known={**common, "type": ANY, "mode": choice(*TABLE_MODES), "path_on_compute": TEXT})
        case kind if kind in MODEL_TYPES:
            return Fields(known={**common, "type": ANY, "mode": choice(*INPUT_MODES)})
        case kind:
            modes = TABLE_MODES if kind is None and "type" not in value else INPUT_MODES
            types = choice(*DATA_TYPES, "mltable", *MODEL_TYPES)
            return Fields(known={**common, "type": types, "mode": choice(*modes), "path_on_compute": TEXT})


def _service(value: object) -> Fields:
    known: dict[str, Shape] = {
        "type": TEXT,
        "port": INTEGER,
        "nodes": ALL_NODES,
        "properties": Entries(text_keys=False),
    }
    kind = _type_of(value)
    untyped = isinstance(value, dict) and "type" not in value
    if kind == "tensor_board" or (untyped and "ssh_public_keys" not in value):  # type: ignore[operator]
        known["log_dir"] = TEXT
    if kind == "ssh" or (untyped and "log_dir" not in value):  # type: ignore[operator]
        known["ssh_public_keys"] = TEXT
    return Fields(known=known, ignored=frozenset({"endpoint", "status", "error_message", "$schema"}))


def _identity(value: object) -> Fields:
    kind = Leaf(
        fits=lambda value: isinstance(value, str) and _snake(value) in IDENTITIES,
        expected="one of " + ", ".join(IDENTITIES),
        choices=IDENTITIES,
    )
    stated = value.get("type") if isinstance(value, dict) else None
    managed = not isinstance(stated, str) or _snake(stated) in IDENTITIES[:2]
    ids: dict[str, Shape] = {"client_id": TEXT, "object_id": TEXT, "msi_resource_id": TEXT} if managed else {}
    return Fields(known={"type": kind, **ids}, required=("type",))


def environment_fits(value: object) -> bool:
    """Whether text names an environment of the workspace or a registry, or its file, as azure-ai-ml parses it."""
    if isinstance(value, str) and value.startswith(FILE_PREFIX):  # AML022 asks whether it is there
        return True
    if not isinstance(value, str) or not value.startswith("azureml:"):
        return False
    if value.startswith("azureml://registries/"):
        return True
    name = value.removeprefix("azureml:")
    if not name:  # the loader accepts it, the service doesn't
        return True
    if _ARM_ID.match(name) or _REGISTRY_ID.match(name):
        return True
    return "/" not in name or name.startswith("/")


ENVIRONMENT_NAME: Final = Leaf(fits=environment_fits, expected="azureml:NAME:VERSION or azureml:NAME@latest")
ENVIRONMENT_ID: Final = Leaf(
    fits=lambda value: isinstance(value, str) and value.startswith("azureml:"),
    expected="an id that starts with azureml:",
)
#: The shapes that azureml_schema.json names.
_NAMED: Final[dict[str, Shape]] = {
    "text": TEXT,
    "text or null": NULLABLE_TEXT,
    "integer": INTEGER,
    "any": ANY,
    "flag": FLAG,
    "version": Leaf(fits=lambda value: isinstance(value, (str, int, float)), expected="a version, as text"),
    "command": Leaf(fits=lambda value: value == "command", expected="command", choices=("command",)),
    "environment id": ENVIRONMENT_ID,
    "environment": Switch(choose=lambda value: _ENVIRONMENT if isinstance(value, dict) else ENVIRONMENT_NAME),
    "text or list": Switch(choose=lambda value: Items(each=TEXT) if isinstance(value, list) else TEXT),
    "distribution": Switch(choose=_distribution),
    "input": Switch(choose=_input),
    "service": Switch(choose=_service),
    "identity": Switch(choose=_identity),
}
_SHAPES: Final[Mapping[str, Any]] = json.loads(
    files(__package__).joinpath("azureml_schema.json").read_text(encoding="utf-8")
)
_ENVIRONMENT: Final[Shape] = shape_of(_SHAPES["environment"], _NAMED)
_OF_DISTRIBUTION: Final = {
    kind: {key: shape_of(shape, _NAMED) for key, shape in _SHAPES[kind].items()} for kind in DISTRIBUTIONS
}
DISTRIBUTION_KEYS: Final = {key: shape for fields in _OF_DISTRIBUTION.values() for key, shape in fields.items()}
COMMAND_JOB: Final = cast(Fields, shape_of(_SHAPES["command job"], _NAMED))
