"""What AzureML's jobs and sweeps have in common: environment, machines, identity, queue, and how they are dumped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from ...search.plan import Plan
from ...version import __version__
from ..launching.call import launch_options, processes_per_node
from ..launching.quoting import Raw

#: The curated environment of azureml-examples @ 085cd6ea. What it holds: Azure/azureml-assets @ 4b41f8cc,
#: assets/training/general/environments/acpt-pytorch-2.8-cuda12.6, whose Dockerfile and requirements pin no DeepSpeed.
CURATED: Final = "acpt-pytorch-2.8-cuda12.6"
_CURATED_ID: Final = f"azureml://registries/azureml/environments/{CURATED}/labels/latest"
TAGGED_DEEPSPEED: Final = "0.13.1"  #: spec.yaml, tags
OWN_FOLDER = "."  #: uploaded unless the spec names another: what lies above it may be anything


def document(top: Sequence[Raw], entries: Mapping[str, object]) -> str:
    """YAML with comments on top."""
    body = yaml.dump(
        {key: value for key, value in entries.items() if value not in (None, {})},
        Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False,
    )  # fmt: skip
    return "\n".join(line.text for line in top) + f"\n\n{body}"


def described(plan: Plan, name: str) -> dict[str, object]:
    """What the studio shows of a job."""
    options = launch_options(plan)
    return {
        "display_name": str(options.get("display_name", name)),
        "experiment_name": _experiment(str(options.get("experiment_name", plan.job.name))),
    }


def running(plan: Plan, command: str, variables: Mapping[str, str]) -> dict[str, object]:
    """What runs on the nodes."""
    options = launch_options(plan)
    return {
        "code": str(options.get("code", OWN_FOLDER)),
        "command": _Folded(command),
        "environment": _environment_reference(plan),
        "environment_variables": dict(variables) or None,
        "distribution": {"type": "pytorch", "process_count_per_instance": processes_per_node(plan)},
        "resources": _resources(plan, options),
    }


def around(plan: Plan) -> dict[str, object]:
    """Where the job runs, as whom, and how it queues."""
    options: Mapping[str, Any] = launch_options(plan)
    compute, identity = str(options.get("compute", "")), options.get("identity")
    return {
        "compute": f"azureml:{compute.removeprefix('azureml:')}" if compute else None,
        "identity": {"type": identity} if identity else None,
        "queue_settings": options.get("queue_settings"),
    }


def tags(plan: Plan) -> dict[str, str]:
    """The job's tags, and who wrote it."""
    own: Any = launch_options(plan).get("tags", {})
    return {**{key: str(value) for key, value in own.items()}, "dsgen": __version__}


def _experiment(name: str) -> str:
    """The service takes letters, digits, `_` and `-`, and a letter or digit first."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:255] or "job"


def _environment_reference(plan: Plan) -> str | dict[str, str]:
    """A name gets `azureml:`, and `@latest` unless it says its version (AML003, AML004); an image has a slash."""
    name = str(launch_options(plan).get("environment", _CURATED_ID))
    if name.startswith("azureml://"):
        return name
    if "/" in name and not name.startswith("azureml:"):
        return {"image": name}
    bare = name.removeprefix("azureml:")
    return f"azureml:{bare}" if ":" in bare or "@" in bare else f"azureml:{bare}@latest"


def _resources(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    """Without a compute the job is serverless, and the instance type says what to run on."""
    provider, _, size = plan.job.cluster.name.partition("/")
    serverless = "compute" not in options and provider == "azure"
    return {
        "instance_count": plan.job.nodes,
        **({"instance_type": size} if serverless else {}),
        "shm_size": str(options.get("shm_size", "64g")),
    }


class _Folded(str):
    """Text that is dumped over several lines where YAML can fold it without changing it."""


class _Dumper(yaml.SafeDumper):
    """The safe dumper, and `_Folded`."""


def _represent_folded(dumper: yaml.SafeDumper, text: _Folded) -> yaml.ScalarNode:
    foldable = text.isprintable() and "  " not in text and text == text.strip()
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=">" if foldable else '"')


_Dumper.add_representer(_Folded, _represent_folded)
