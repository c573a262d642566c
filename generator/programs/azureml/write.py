"""Azure Machine Learning: a v2 command job. The service starts one process per GPU, so no torchrun inside (AML013)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...job.bindings import bindings
from ...job.records import Launch
from ...search.plan import Plan
from ..launcher import Launcher, Scheduler
from ..launching import fabric
from ..launching.call import header, launch_options
from ..program import Program, RenderedFile
from . import write_sweep as azureml_sweep
from .write_command import command_of, expression
from .write_job import CURATED, OWN_FOLDER, TAGGED_DEEPSPEED, around, described, document, running, tags

_SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
_NOTES = (
    "The service starts one process per GPU and sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: "
    "a launcher inside the command would start them twice.",
    "Configuration files travel as inputs, so they arrive whatever folder `code` is. "
    "Paths here are relative to this file.",
)


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`job.yml`, to be submitted with `az ml job create --file job.yml`."""
    top = header(plan, program, command, tuple(_notes(plan)))
    return (RenderedFile(path="job.yml", text=document(top, _job(plan, program))),)


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


def _input(path: str, taken: Collection[str]) -> str:
    """Name of the input that carries a file: `ds_config.json` is `ds_config`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(path).stem)
    return f"{name}_file" if name in taken else name


def _notes(plan: Plan) -> Iterator[str]:
    """What a reader would ask: processes, paths, the environment, and what happens when the job starts again."""
    yield from _NOTES
    if "environment" not in launch_options(plan):
        yield (
            f"`environment` stands in for yours: {CURATED} pins no DeepSpeed (its tag says {TAGGED_DEEPSPEED}). Name "
            "one with the versions above in launch.azureml.environment."
        )
    outputs = bindings(plan.job).outputs
    if outputs:
        named = ", ".join(name for name, entry in outputs.items() if "path" not in entry)
        yield (
            "A job that is preempted starts again with the same outputs."
            + (f" A new submission gets new folders for {named}: they have no path." if named else "")
        )
    code, script = launch_options(plan).get("code", OWN_FOLDER), plan.job.launch.script
    if code == OWN_FOLDER:
        yield f"`code` is this folder and all that is uploaded: put {script} and its modules here, or name another."
    else:
        yield f"`code` is all that is uploaded: it holds {script} and its modules."
    for name, path in fabric.host_files(plan.job).items():
        yield f"Azure's images set {name} to {path}; an image without that file needs a copy, or all-reduce is slow."


def _uploaded(launch: Launch, folder: Path) -> Path | None:
    """The folder on this machine that is `code`; None where it is a registered asset or a repository."""
    code = str(launch.options.get("code", OWN_FOLDER))
    return None if ":" in code else folder / code


def _before(launch: Launch, folder: Path) -> str:
    """What is uploaded, which has to hold the script."""
    if "code" in launch.options:
        return f"Start the job, which uploads {folder / str(launch.options['code'])}:"
    uploaded = f"{folder}, which is uploaded (or set launch.azureml.code)"
    return f"Put {launch.script} and its modules into {uploaded}, and start it:"


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
    trials=azureml_sweep.trials_file,
    trials_start_files=False,
    scheduler=Scheduler(
        submit=("az", "ml", "job", "create", "--file", "{file}", "--query", "name", "--output", "tsv"),
        trial=None,  # `az ml job validate` takes pipelines only
        identity=r"^(\S+)$",
        watch=("az ml job stream --name {id}", "az ml job show --name {id} --web"),
        state=("az", "ml", "job", "show", "--name", "{id}", "--query", "status", "--output", "tsv"),
        # Source: azure-ai-ml azure/ai/ml/operations/_run_history_constants.py:76-82 (TERMINAL_STATUSES) @ 1.35.2
        unfinished=r"^(?!(?:Completed|Failed|Canceled|NotResponding|Paused)\s*$)",
        collect=azureml_sweep.COLLECT,
    ),
    for_whole_runs=frozenset({"services"}),
    in_folder=False,
    uploaded=_uploaded,
    before=_before,
)
