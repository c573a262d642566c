"""Azure Machine Learning: a v2 command job. The service starts one process per GPU, so no torchrun inside (AML013)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from ..frameworks.program import Program, RenderedFile
from ..job.bindings import bindings
from ..job.records import Launch
from ..search.plan import Plan
from ..version import __version__
from . import fabric
from .azureml_command import command_of, expression
from .call import header, launch_options, processes_per_node
from .launcher import Launcher, Scheduler
from .quoting import Raw

_SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
#: The curated environment of azureml-examples @ 085cd6ea. What it holds: Azure/azureml-assets @ 4b41f8cc,
#: assets/training/general/environments/acpt-pytorch-2.8-cuda12.6, whose Dockerfile and requirements pin no DeepSpeed.
_CURATED: Final = "acpt-pytorch-2.8-cuda12.6"
_CURATED_ID: Final = f"azureml://registries/azureml/environments/{_CURATED}/labels/latest"
_TAGGED_DEEPSPEED: Final = "0.13.1"  #: spec.yaml, tags
_NOTES = (
    "The service starts one process per GPU and sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: "
    "a launcher inside the command would start them twice.",
    "Configuration files travel as inputs, so they arrive whatever folder `code` is. "
    "Paths here are relative to this file.",
)
_OWN_FOLDER = "."  #: uploaded unless the spec names another: what lies above it may be anything


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`job.yml`, to be submitted with `az ml job create --file job.yml`."""
    top = header(plan, program, command, tuple(notes(plan)))
    return (RenderedFile(path="job.yml", text=document(top, _job(plan, program))),)


def document(top: Sequence[Raw], entries: Mapping[str, object]) -> str:
    """YAML with comments on top."""
    body = yaml.dump(
        {key: value for key, value in entries.items() if value not in (None, {})},
        Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False,
    )  # fmt: skip
    return "\n".join(line.text for line in top) + f"\n\n{body}"


def _job(plan: Plan, program: Program) -> dict[str, object]:
    options: Mapping[str, Any] = launch_options(plan)
    job, bound = plan.job, bindings(plan.job)
    names = {file.path: _input(file.path, bound.inputs) for file in program.files}
    made = command_of(plan, program, {path: expression("inputs", name) for path, name in names.items()})
    limit_s = job.launch.time_limit_s
    return {
        "$schema": _SCHEMA,
        "type": "command",
        **described(plan, job.name),
        **running(plan, made.text, made.variables),
        "inputs": {**{name: {"type": "uri_file", "path": f"./{path}"} for path, name in names.items()}, **bound.inputs},
        "outputs": bound.outputs,
        **around(plan),
        "services": options.get("services"),
        "limits": {"timeout": limit_s} if limit_s is not None else None,
        "tags": tags(plan),
    }


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
        "code": str(options.get("code", _OWN_FOLDER)),
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


def _input(path: str, taken: Collection[str]) -> str:
    """Name of the input that carries a file: `ds_config.json` is `ds_config`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(path).stem)
    return f"{name}_file" if name in taken else name


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


def notes(plan: Plan) -> Iterator[str]:
    """What a reader would ask: processes, paths, the environment, and what happens when the job starts again."""
    yield from _NOTES
    if "environment" not in launch_options(plan):
        yield (
            f"`environment` stands in for yours: {_CURATED} pins no DeepSpeed (its tag says {_TAGGED_DEEPSPEED}). Name "
            "one with the versions above in launch.azureml.environment."
        )
    outputs = bindings(plan.job).outputs
    if outputs:
        named = ", ".join(name for name, entry in outputs.items() if "path" not in entry)
        yield (
            "A job that is preempted starts again with the same outputs."
            + (f" A new submission gets new folders for {named}: they have no path." if named else "")
        )
    code, script = launch_options(plan).get("code", _OWN_FOLDER), plan.job.launch.script
    if code == _OWN_FOLDER:
        yield f"`code` is this folder and all that is uploaded: put {script} and its modules here, or name another."
    else:
        yield f"`code` is all that is uploaded: it holds {script} and its modules."
    for name, path in fabric.host_files(plan.job).items():
        yield f"Azure's images set {name} to {path}; an image without that file needs a copy, or all-reduce is slow."


def _before(launch: Launch, folder: Path) -> str:
    """What is uploaded, which has to hold the script."""
    if "code" in launch.options:
        return f"Start the job, which uploads {folder / str(launch.options['code'])}:"
    uploaded = f"{folder}, which is uploaded (or set launch.azureml.code)"
    return f"Put {launch.script} and its modules into {uploaded}, and start it:"


class _Folded(str):
    """Text that is dumped over several lines where YAML can fold it without changing it."""


class _Dumper(yaml.SafeDumper):
    """The safe dumper, and `_Folded`."""


def _represent_folded(dumper: yaml.SafeDumper, text: _Folded) -> yaml.ScalarNode:
    foldable = text.isprintable() and "  " not in text and text == text.strip()
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=">" if foldable else '"')


_Dumper.add_representer(_Folded, _represent_folded)


LAUNCHER: Final = Launcher(
    name="azureml",
    keys=frozenset(
        {
            *("compute", "environment", "experiment_name", "display_name", "code", "shm_size", "tags"),
            *("inputs", "outputs", "identity", "services", "queue_settings"),
        }
    ),
    files=launch_files,
    start="az ml job create --file {}/job.yml",
    file="job.yml",
    scheduler=Scheduler(
        submit=("az", "ml", "job", "create", "--file", "{file}", "--query", "name", "--output", "tsv"),
        trial=None,  # `az ml job validate` takes pipelines only
        identity=r"^(\S+)$",
        watch=("az ml job stream --name {id}", "az ml job show --name {id} --web"),
    ),
    in_folder=False,
    before=_before,
)
