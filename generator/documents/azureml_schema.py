"""What azure-ai-ml 1.35.2 loads as a command job: its marshmallow schemas as a table.

Source: azure-ai-ml azure/ai/ml/_schema/job/command_job.py, parameterized_command.py, base_job.py, distribution.py,
job_resource_configuration.py, input_output_entry.py, services.py, identity.py, and _schema/assets/environment.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .shapes import ANY, INTEGER, NULLABLE_TEXT, TEXT, Entries, Fields, Items, Leaf, Shape, Switch, choice

DISTRIBUTIONS: Final = ("pytorch", "mpi", "tensorflow", "ray")
INPUT_MODES: Final = ("download", "ro_mount", "direct")
TABLE_MODES: Final = (*INPUT_MODES, "eval_mount", "eval_download")
OUTPUT_MODES: Final = ("mount", "upload", "rw_mount", "direct")
DATA_TYPES: Final = ("uri_file", "uri_folder")
MODEL_TYPES: Final = ("custom_model", "mlflow_model", "triton_model")
SERVICE_TYPES: Final = ("jupyter_lab", "ssh", "tensor_board", "vs_code")
IDENTITIES: Final = ("managed", "managed_identity", "aml_token", "user_identity")

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
VERSION: Final = Leaf(fits=lambda value: isinstance(value, (str, int, float)), expected="a version, as text")

_PROCESSES: Final[Mapping[str, Shape]] = {"type": choice(*DISTRIBUTIONS), "process_count_per_instance": INTEGER}
_DISTRIBUTION_FIELDS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "pytorch": _PROCESSES,
    "mpi": _PROCESSES,
    "tensorflow": {"type": choice(*DISTRIBUTIONS), "parameter_server_count": INTEGER, "worker_count": INTEGER},
    "ray": {
        "type": choice(*DISTRIBUTIONS),
        "include_dashboard": FLAG,
        **dict.fromkeys(("port", "dashboard_port"), INTEGER),
        **dict.fromkeys(("address", "head_node_additional_args", "worker_node_additional_args"), TEXT),
    },
}


def _distribution(value: object) -> Fields:
    kind = _type_of(value)
    known = _DISTRIBUTION_FIELDS.get(kind) if isinstance(kind, str) else None
    return Fields(known=known or DISTRIBUTION_KEYS, required=("type",))


DISTRIBUTION_KEYS: Final[Mapping[str, Shape]] = {
    **_DISTRIBUTION_FIELDS["tensorflow"],
    **_DISTRIBUTION_FIELDS["ray"],
    **_PROCESSES,
}


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
    """Whether text names an environment of the workspace or a registry, as azure-ai-ml parses it."""
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


_TAGS: Final = Entries(values=NULLABLE_TEXT)
ENVIRONMENT_NAME: Final = Leaf(fits=environment_fits, expected="azureml:NAME:VERSION or azureml:NAME@latest")
ENVIRONMENT_ID: Final = Leaf(
    fits=lambda value: isinstance(value, str) and value.startswith("azureml:"),
    expected="an id that starts with azureml:",
)
_ROUTE: Final = Fields(known={"port": INTEGER, "path": TEXT}, required=("port", "path"))
_ROUTES: Final = ("liveness_route", "scoring_route", "readiness_route")
_ENVIRONMENT: Final = Fields(
    known={
        "image": TEXT,
        "conda_file": ANY,
        "build": Fields(known={"path": TEXT, "dockerfile_path": TEXT}),
        "inference_config": Fields(known=dict.fromkeys(_ROUTES, _ROUTE), required=_ROUTES),
        "os_type": choice("linux", "windows"),
        **dict.fromkeys(("datastore", "description"), TEXT),
        **dict.fromkeys(("tags", "properties"), _TAGS),
        "auto_delete_setting": ANY,
        "id": ENVIRONMENT_ID,
    },
    ignored=frozenset({"$schema", "creation_context", "latest_version", "intellectual_property"}),
)
_NAMED_ENVIRONMENT: Final = Fields(
    known=_ENVIRONMENT.known, ignored=_ENVIRONMENT.ignored | {"name", "version"}, nullable=False
)


def _environment(value: object) -> Shape:
    return _NAMED_ENVIRONMENT if isinstance(value, dict) else ENVIRONMENT_NAME


def _docker_args(value: object) -> Shape:
    return Items(each=TEXT) if isinstance(value, list) else TEXT


COMMAND_JOB: Final = Fields(
    known={
        "type": Leaf(fits=lambda value: value == "command", expected="command", choices=("command",)),
        **dict.fromkeys(("name", "display_name", "experiment_name", "description", "parent_job_name"), TEXT),
        **dict.fromkeys(("command", "code", "compute"), TEXT),
        **dict.fromkeys(("tags", "properties"), _TAGS),
        "environment": Switch(choose=_environment),
        "environment_variables": Entries(text_keys=False),
        "resources": Fields(
            known={
                **dict.fromkeys(("instance_count", "max_instance_count"), INTEGER),
                **dict.fromkeys(("instance_type", "shm_size"), TEXT),
                "properties": Entries(),
                "locations": Items(each=TEXT),
                "docker_args": Switch(choose=_docker_args),
            }
        ),
        "distribution": Switch(choose=_distribution),
        "limits": Fields(known={"timeout": INTEGER}),
        "inputs": Entries(values=Switch(choose=_input)),
        "outputs": Entries(
            values=Fields(
                known={
                    "name": TEXT,
                    "version": VERSION,
                    "mode": choice(*OUTPUT_MODES),
                    "type": choice(*DATA_TYPES, "mltable", *MODEL_TYPES),
                    "path": TEXT,
                },
                ignored=frozenset({"$schema"}),
                nullable=True,
            )
        ),
        "services": Entries(values=Switch(choose=_service)),
        "identity": Switch(choose=_identity),
        "queue_settings": Fields(
            known={
                "job_tier": choice("spot", "basic", "standard", "premium", "null"),
                "priority": choice("low", "medium", "high"),
            }
        ),
    },
    required=("command", "environment"),
    ignored=frozenset({"$schema", "creation_context", "id", "status", "log_files", "parameters"}),
)
