"""Azure Machine Learning: a v2 command job. The service starts one process per GPU, so no torchrun inside (AML013)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from ..frameworks.program import ConfigPath, Program, RenderedFile
from ..job.records import Launch
from ..search.plan import Plan
from ..version import __version__
from .call import environment, header, launch_options, processes_per_node
from .launcher import Launcher, Scheduler
from .quoting import shell_word

_SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
_ENVIRONMENT = "azureml://registries/azureml/environments/acpt-pytorch-2.2-cuda12.1/labels/latest"
_NOTES = (
    "The service starts one process per GPU and sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: "
    "a launcher inside the command would start them twice.",
    "Configuration files travel as inputs, so they arrive whatever folder `code` is. "
    "Paths here are relative to this file.",
)
_EXPRESSION = "${{"  #: starts what the service replaces
_OWN_FOLDER = "."  #: uploaded unless the spec names another: what lies above it may be anything


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`job.yml`, to be submitted with `az ml job create --file job.yml`."""
    top = "\n".join(line.text for line in header(plan, program, command, tuple(_notes(plan))))
    body = yaml.dump(
        _job(plan, program), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False
    )
    return (RenderedFile(path="job.yml", text=f"{top}\n\n{body}"),)


def _job(plan: Plan, program: Program) -> dict[str, object]:
    options: Mapping[str, Any] = launch_options(plan)
    job = plan.job
    variables, compute = environment(plan, program), str(options.get("compute", ""))
    entries: dict[str, object] = {
        "$schema": _SCHEMA,
        "type": "command",
        "display_name": str(options.get("display_name", job.name)),
        "experiment_name": _experiment(str(options.get("experiment_name", job.name))),
        "code": str(options.get("code", _OWN_FOLDER)),
        "command": _Folded(_command(program, variables)),
        "inputs": {_input(file.path): {"type": "uri_file", "path": f"./{file.path}"} for file in program.files},
        "environment": _environment_reference(str(options.get("environment", _ENVIRONMENT))),
        "environment_variables": {k: v for k, v in variables.items() if _EXPRESSION not in v},
        "compute": f"azureml:{compute.removeprefix('azureml:')}" if compute else None,
        "distribution": {"type": "pytorch", "process_count_per_instance": processes_per_node(plan)},
        "resources": _resources(plan, options),
        "limits": {"timeout": job.launch.time_limit_s} if job.launch.time_limit_s is not None else None,
        "tags": {**{k: str(v) for k, v in options.get("tags", {}).items()}, "dsgen": __version__},
    }
    return {key: value for key, value in entries.items() if value not in (None, {})}


def _command(program: Program, variables: Mapping[str, str]) -> str:
    """The command, which a shell on each node runs after the service has replaced its own `${{...}}` in it."""
    held_back = [f"{name}={value}" for name, value in variables.items() if _EXPRESSION in value]
    prefix = ["env", *held_back] if held_back else []
    return " ".join(map(_word, (*prefix, "python", program.script, *program.arguments)))


def _word(value: str | ConfigPath) -> str:
    if isinstance(value, ConfigPath):
        return f"${{{{inputs.{_input(value.name)}}}}}"
    return shell_word(value).replace(_EXPRESSION, "$''{{")  # the same word to the shell, no expression to the service


def _input(path: str) -> str:
    """Name of the input that carries a file: `ds_config.json` is `ds_config`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(path).stem)


def _experiment(name: str) -> str:
    """The service takes letters, digits, `_` and `-`, and a letter or digit first."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:255] or "job"


def _environment_reference(name: str) -> str | dict[str, str]:
    """A name gets `azureml:`, and `@latest` unless it says its version (AML003, AML004); an image has a slash."""
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


def _notes(plan: Plan) -> Iterator[str]:
    yield from _NOTES
    code, script = launch_options(plan).get("code", _OWN_FOLDER), plan.job.launch.script
    if code == _OWN_FOLDER:
        yield f"`code` is this folder and all that is uploaded: put {script} and its modules here, or name another."
    else:
        yield f"`code` is all that is uploaded: it holds {script} and its modules."
    if plan.job.cluster.name == "azure/standard_nd96amsr_a100_v4" and plan.job.nodes > 1:
        yield (
            "ND A100 v4 images set NCCL_TOPO_FILE; in an image of your own, set it and "
            "NCCL_IB_PCI_RELAXED_ORDERING=1, or all-reduce is slow."
        )


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
    keys=frozenset({"compute", "environment", "experiment_name", "display_name", "code", "shm_size", "tags"}),
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
