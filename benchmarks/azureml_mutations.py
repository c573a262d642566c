"""Command jobs of AzureML and seeded mutations of them: what people get wrong, and what nobody
would write.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Job = dict[str, Any]

#: A job with something under every key.
FULL: Final[Job] = {
    "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
    "type": "command",
    "name": "llama-8b",
    "display_name": "llama-8b",
    "experiment_name": "llama",
    "description": "a job",
    "code": ".",
    "command": "python train.py --data ${{inputs.data}} --lr ${{inputs.lr}} "
    "--out ${{outputs.model}}",
    "inputs": {
        "data": {"type": "uri_folder", "path": "azureml:corpus:3", "mode": "ro_mount"},
        "lr": 0.1,
    },
    "outputs": {
        "model": {
            "type": "uri_folder",
            "mode": "rw_mount",
            "path": "azureml://datastores/a/paths/b",
        }
    },
    "environment": "azureml:acpt-pytorch:5",
    "environment_variables": {"NCCL_DEBUG": "WARN"},
    "compute": "azureml:h100-cluster",
    "distribution": {"type": "pytorch", "process_count_per_instance": 8},
    "resources": {"instance_count": 2, "shm_size": "64g"},
    "limits": {"timeout": 3600},
    "services": {"shell": {"type": "ssh", "ssh_public_keys": "ssh-rsa AAAA", "nodes": "all"}},
    "identity": {"type": "user_identity"},
    "queue_settings": {"job_tier": "standard", "priority": "medium"},
    "tags": {"owner": "nlp"},
    "properties": {"k": "v"},
}
SMALL: Final[Job] = {
    "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
    "command": "python train.py",
    "environment": {"image": "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8:1"},
    "compute": "azureml:h100-cluster",
    "resources": {"instance_count": 1},
}
TABLE: Final[Job] = {
    **SMALL,
    "command": "python train.py --data ${{inputs.table}}",
    "inputs": {"table": {"type": "mltable", "path": "azureml:t:1", "mode": "eval_mount"}},
    "distribution": {"type": "mpi", "process_count_per_instance": 4},
    "services": {"board": {"type": "tensor_board", "log_dir": "logs"}, "code": {"type": "vs_code"}},
}
RAY: Final[Job] = {
    **SMALL,
    "distribution": {
        "type": "ray",
        "port": 6379,
        "include_dashboard": True,
        "head_node_additional_args": "--x",
    },
    "identity": {"type": "managed", "client_id": "00000000-0000-0000-0000-000000000000"},
}
BASES: Final = (FULL, SMALL, TABLE, RAY)

#: What a value is replaced by.
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -2,
    1,
    8,
    1.5,
    1e30,
    "8",
    "8.0",
    "eight",
    "",
    " ",
    "deepspeed",
    "PyTorch",
    "Mount",
    "64Gi",
    "azureml:x",
    "azureml:x:1",
    "azureml:x@latest",
    "azureml:a/b",
    "azureml:",
    "azureml://registries/r/environments/e/versions/1",
    "azureml://registries/r",
    "registry.example/pytorch/pytorch:2.5",
    "<cluster>",
    "local",
    "Command",
    "sweep?",
    [],
    {},
    ["a"],
    [1],
    {"type": "pytorch"},
    {"type": "uri_file"},
    {"value": 3},
    {"value": None},
    {"path": "x"},
    {"image": "a:b"},
    {"name": "x"},
    float("inf"),
    float("nan"),
    "https://example.com/code.zip",
    "git+https://x.y/z",
    "./missing",
    "../.",
    "2026-01-31",
    {"a": None},
    {"a": 1},
    {"a": "b"},
)
KEYS: Final = (
    "process_count",
    "instance_type",
    "nodes",
    "environmnet",
    "shm",
    "timeout",
    "mode",
    "type",
    "path",
    "docker_args",
    "locations",
    "max_instance_count",
    "job_tier",
    "worker_count",
    "parent_job_name",
    "log_dir",
    "port",
    "version",
    "conda_file",
    "datastore",
    "client_id",
    "status",
    "id",
    "parameters",
    "creation_context",
    "value",
    "a-b",
)


def mutations(count: int, seed: int) -> Iterator[tuple[str, Job]]:
    """`count` jobs that each differ from a base by one or two changes, with the changes in
    words.
    """
    rng = random.Random(seed)
    for _ in range(count):
        job = copy.deepcopy(rng.choice(BASES))
        told = [rng.choice(_CHANGES)(job, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        yield "; ".join(told), job


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within nested mappings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))


def _parent(job: Job, path: tuple[Any, ...]) -> Any:
    inner: Any = job
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
    return inner


def put(job: Job, path: tuple[Any, ...], value: Any, *, remove: bool = False) -> str:
    """Set what is at `path`, or take it away; the change in words."""
    parent, name = _parent(job, path), ".".join(map(str, path))
    if not isinstance(parent, dict):
        return f"{name} has no place"
    if remove:
        parent.pop(path[-1], None)
        return f"without {name}"
    parent[path[-1]] = value
    return f"{name} = {value!r}"


def _replace(job: Job, rng: random.Random) -> str:
    path, value = rng.choice(list(places(job))), copy.deepcopy(rng.choice(VALUES))
    return put(job, path, value)


def _remove(job: Job, rng: random.Random) -> str:
    path = rng.choice(list(places(job)))
    return put(job, path, None, remove=True)


def _add(job: Job, rng: random.Random) -> str:
    folders = [
        (),
        *(path for path in places(job) if isinstance(_parent(job, path)[path[-1]], dict)),
    ]
    path, key, value = rng.choice(folders), rng.choice(KEYS), copy.deepcopy(rng.choice(VALUES))
    _parent(job, (*path, key))[key] = value
    return f"with {'.'.join(map(str, (*path, key)))} = {value!r}"


def _rename(job: Job, rng: random.Random) -> str:
    path = rng.choice(list(places(job)))
    parent, name = _parent(job, path), str(path[-1])
    cut = rng.randrange(len(name)) if name else 0
    new = rng.choice(
        (name[:cut] + name[cut + 1 :], name.replace("_", "-"), name.title(), name + "s")
    )
    parent[new] = parent.pop(path[-1])
    return f"{'.'.join(map(str, path))} renamed {new}"


def _odd_key(job: Job, rng: random.Random) -> str:
    folder = rng.choice(
        ("tags", "properties", "environment_variables", "inputs", "outputs", "services")
    )
    key = rng.choice((1, True, 1.5))
    if isinstance(job.setdefault(folder, {}), dict):
        job[folder][key] = rng.choice(("x", 1))
    return f"{folder} with the key {key!r}"


_CHANGES: Final[tuple[Callable[[Job, random.Random], str], ...]] = (
    _replace,
    _replace,
    _replace,
    _remove,
    _add,
    _add,
    _rename,
    _odd_key,
)
