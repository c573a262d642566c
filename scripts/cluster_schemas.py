"""Write what Kubernetes jobs and SkyPilot tasks may have: `python scripts/cluster_schemas.py
MIRRORS WHEEL`.

MIRRORS has the git directories of kubeflow/trainer and kubernetes-sigs/jobset as `OWNER+NAME/repo`,
whose custom resource definitions are read at the releases named here; WHEEL is SkyPilot's, whose
`sky/utils/schemas.py` is run. All are under the Apache License 2.0. Descriptions are left out, and
what comes more than once is written once.
"""

from __future__ import annotations
import __future__

import ast
import enum
import json
import subprocess
import sys
import types
import zipfile
from collections import Counter
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parent.parent / "generator" / "programs"
#: Repository, releases from the newest on, and file of each kind. What any of them has is known.
CRDS: Final = {
    "PyTorchJob": (
        "kubeflow/trainer",
        "v1.9.4 v1.7.0",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "TrainJob": (
        "kubeflow/trainer",
        "v2.3.0 v2.2.1 v2.1.0 v2.0.0",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
    ),
    "JobSet": (
        "kubernetes-sigs/jobset",
        "v0.12.0 v0.11.1 v0.9.1 v0.7.3",
        "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    ),
}
#: What a webhook fills in before the schema is asked: jobset pkg/webhooks/jobset_webhook.go
#: (Default) @ v0.12.0.
_FILLED_IN: Final = {"JobSet": ("failurePolicy", "rules", "name")}
_KEPT: Final = (
    "type",
    "enum",
    "required",
    "maxLength",
    "maxItems",
    "minimum",
    "maximum",
    "minLength",
    "minItems",
)
_LEAST: Final = 60  # characters of what is worth a name of its own
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: What SkyPilot's schemas import, and the classes of it that they use; none: its constants and
#: functions.
_IMPORTED: Final = {
    "sky.skylet.constants": (),
    "sky.skylet.autostop_lib": ("AutostopWaitFor",),
    "sky.utils.kubernetes_enums": (
        "KubernetesAutoscalerType",
        "KubernetesNetworkingMode",
        "KubernetesPortMode",
        "KubernetesRdmaMode",
        "KubernetesServiceType",
    ),
    "sky.data.storage": ("StoreType", "StorageMode", "FileMountType"),
    "sky.utils.volume": ("VolumeType", "VolumeAccessMode"),
}


def crd(repository: str, revision: str, path: str, mirrors: Path) -> Any:
    """The schema of a resource definition's only version, as it is published."""
    folder = mirrors / repository.replace("/", "+") / "repo"
    command = ["git", "-C", str(folder), "show", f"{revision}:{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def reduced(schema: Any) -> Any:
    """A schema without descriptions and status; an object has no keys but its own, as the API
    server's check has it.
    """
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    kept = {key: schema[key] for key in _KEPT if key in schema}
    fields = schema.get("properties", {})
    kept["required"] = [
        key for key in schema.get("required", ()) if "default" not in fields.get(key, {})
    ]
    if not kept["required"]:
        del kept["required"]
    if "properties" in schema:
        kept["properties"] = {key: reduced(value) for key, value in schema["properties"].items()}
        kept["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = reduced(schema[key])
    return kept


def united(new: Any, old: Any) -> Any:
    """Return what two releases of a schema have together; required is what both require."""
    if not (isinstance(new, dict) and isinstance(old, dict)) or not new or not old:
        return {} if {} in (new, old) else new
    types = [name for part in (new, old) for name in _types(part)]
    made = (
        {**old, **new, "type": new.get("type")}
        if _types(new) == _types(old)
        else {"type": sorted(set(types))}
    )
    for key in ("properties", "items", "additionalProperties"):
        if key in made and isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
            made[key] = (
                _united_fields(new[key], old[key])
                if key == "properties"
                else united(new[key], old[key])
            )
    made["required"] = [key for key in new.get("required", ()) if key in old.get("required", ())]
    made["enum"] = [
        *new.get("enum", ()),
        *(value for value in old.get("enum", ()) if value not in new.get("enum", ())),
    ]
    return {key: value for key, value in made.items() if value not in (None, [])}


def _united_fields(new: Any, old: Any) -> Any:
    both = {key: united(new[key], old[key]) for key in new if key in old}
    return {**old, **new, **both}


def _types(schema: Any) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


class Names:
    """The parts of schemas that come more than once, each with a name."""

    def __init__(self, schemas: Any) -> None:
        self._times: Counter[str] = Counter()
        self.definitions: dict[str, Any] = {}
        self._named: dict[str, str] = {}
        self._count(schemas)

    def _count(self, part: Any) -> None:
        if isinstance(part, dict):
            text = json.dumps(part, sort_keys=True)
            if ("properties" in part or "items" in part) and len(text) > _LEAST:
                self._times[text] += 1
                if self._times[text] > 1:
                    return
            for value in part.values():
                self._count(value)

    def shared(self, part: Any, key: str, *, top: bool = False) -> Any:
        """A part with references in place of what is named; `key` is what it is found under."""
        if not isinstance(part, dict):
            return part
        text = json.dumps(part, sort_keys=True)
        if top or self._times[text] < 2:
            return {
                name: self.shared(value, key if name == "items" else name)
                for name, value in part.items()
            }
        if text not in self._named:
            taken = sum(name.rstrip("0123456789") == key for name in self._named.values())
            self._named[text] = f"{key}{taken or ''}"
            self.definitions[self._named[text]] = self.shared(part, key, top=True)
        return {"$ref": f"#/$defs/{self._named[text]}"}


def kubernetes(mirrors: Path) -> dict[str, Any]:
    """The schemas of all kinds, in one file."""
    kinds = {}
    for kind, (name, releases, path) in CRDS.items():
        every = [reduced(crd(name, release, path, mirrors)) for release in releases.split()]
        kinds[kind] = reduce(united, every)
        kinds[kind]["properties"].pop("status", None)
    outer, inner, key = _FILLED_IN["JobSet"]
    rules = kinds["JobSet"]["properties"]["spec"]["properties"][outer]["properties"][inner]["items"]
    rules["required"].remove(key)
    names = Names(kinds)
    kinds = {kind: names.shared(schema, kind, top=True) for kind, schema in kinds.items()}
    sources = "; ".join(
        f"{kind}: {name} {path} @ {revision}" for kind, (name, revision, path) in CRDS.items()
    )
    about = (
        "Written by scripts/cluster_schemas.py from custom resource definitions "
        f"(Apache-2.0). {sources}"
    )
    return {"$schema": _DIALECT, "about": about, "$defs": {**kinds, **names.definitions}}


def skypilot(wheel: Path) -> dict[str, Any]:
    """The schema of a task, with that of its resources and file mounts in their places."""
    with zipfile.ZipFile(wheel) as archive:
        read = {
            name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")
        }
    module = _run_schemas(read)
    task = module["get_task_schema"]()
    mount = {"anyOf": [{"type": "string"}, module["get_storage_schema"]()]}
    task["properties"]["resources"] = module["get_resources_schema"]()
    task["properties"]["file_mounts"] = {"type": "object", "additionalProperties": mount}
    plain = _without_notes(task)
    names = Names(plain)
    task = names.shared(plain, "task", top=True)
    version = wheel.name.split("-")[1]
    about = (
        f"Written by scripts/cluster_schemas.py from skypilot {version}, "
        "sky/utils/schemas.py (Apache-2.0)"
    )
    return {"$schema": _DIALECT, "about": about, "$defs": {"task": task, **names.definitions}}


def _run_schemas(read: dict[str, str]) -> dict[str, Any]:
    """The names of `sky/utils/schemas.py`, run with those parts of what it imports that run by
    themselves.
    """
    for name in ("sky", "sky.skylet", "sky.utils", "sky.data"):
        sys.modules[name] = types.ModuleType(name)
    for name, classes in _IMPORTED.items():
        module = types.ModuleType(name)
        module.__dict__.update(_what_runs(read[f"{name.replace('.', '/')}.py"], classes))
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, module)
    made: dict[str, Any] = {"__name__": "schemas"}
    exec(read["sky/utils/schemas.py"], made)
    made["_allow_additional_properties"] = lambda: True
    # SkyPilot's own settings, of which a task may override some.
    made["_task_config_schema"] = lambda: {"type": "object"}
    return made


def _what_runs(text: str, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return what the assignments, functions and these classes of a module define, where they need
    nothing else.
    """
    known: dict[str, Any] = {"enum": enum, "__name__": "constants"}
    for node in ast.parse(text).body:
        value = isinstance(node, (ast.Assign, ast.AnnAssign, ast.FunctionDef)) and not classes
        if value or (isinstance(node, ast.ClassDef) and node.name in classes):
            part = ast.Module([node], [])
            with suppress(Exception):  # what needs more of SkyPilot
                exec(compile(part, "part", "exec", __future__.annotations.compiler_flag), known)
    return known


def _without_notes(part: Any) -> Any:
    """A schema without descriptions, and without the keys that SkyPilot keeps for itself."""
    if isinstance(part, list):
        return [_without_notes(item) for item in part]
    if not isinstance(part, dict):
        return part
    dropped = ("$schema", "description")
    return {
        key: _without_notes(value)
        for key, value in part.items()
        if key not in dropped or isinstance(value, dict)
    }


def main(mirrors: Path, wheel: Path) -> None:
    """Write both files, a definition a line."""
    for name, schema in (("kubernetes", kubernetes(mirrors)), ("skypilot", skypilot(wheel))):
        definitions = schema.pop("$defs")
        head = json.dumps(schema, indent=2)[:-2]
        lines = ",\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in definitions.items()
        )
        (FOLDER / name / "schema.json").write_text(
            f'{head},\n  "$defs": {{\n{lines}\n  }}\n}}\n', encoding="utf-8"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
