"""Trials on AzureML: a sweep over their numbers, one after another, whose command runs the trial that it is given.

Source: azure-ai-ml azure/ai/ml/_schema/_sweep/sweep_job.py, parameterized_sweep.py @ 1.35.2; Azure/azureml-examples
@ 085cd6ea cli/jobs/basics/hello-sweep.yml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...job.bindings import bindings
from ...search.plan import Plan
from ..launcher import TRIAL, trial_folder
from ..launching.call import header
from ..program import Program, RenderedFile
from .write_command import Command, command_of, expression
from .write_job import around, described, document, running, tags

FILE: Final = "tune.yml"
_SCHEMA: Final = "https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json"
_INPUT: Final = "trials"  #: the folder of this file, with the configuration files of all trials
_NUMBER: Final = "${{search_space.trial}}"
_NOTES: Final = (
    "Grid sampling runs every number once. No metric is logged, so the service names no best trial: dsgen tune reads "
    "the logs, each of which begins with its trial's number.",
)
#: Brings the logs of the trials, which are jobs of their own: of a sweep, az downloads those of the best one alone.
#: Source: azure-ai-ml azure/ai/ml/operations/_job_operations.py:1167-1185 @ 1.35.2.
COLLECT: Final = (
    "sh",
    "-c",
    'az ml job list --parent-job-name "$1" --query "[].name" --output tsv | while read -r name; do '
    'az ml job download --name "$name" --download-path "$2/logs/$name" </dev/null || exit; done',
    "collect",
    "{id}",
    "{folder}",
)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.yml`, to be submitted with `az ml job create --file tune.yml`."""
    plan, made = plans[0], _commands(plans, programs)
    limits = [trial.job.launch.time_limit_s for trial in plans if trial.job.launch.time_limit_s is not None]
    text = _choice(made)
    inputs = {name: entry for name, entry in made[0].bound.inputs.items() if expression("inputs", name) in text}
    outputs = {name: entry for name, entry in made[0].bound.outputs.items() if expression("outputs", name) in text}
    configs = {_input(plan): {"type": "uri_folder", "path": "."}} if any(program.files for program in programs) else {}
    entries: dict[str, object] = {
        "$schema": _SCHEMA,
        "type": "sweep",
        **described(plan, f"{plan.job.name}-tune"),
        "trial": {key: value for key, value in running(plan, text, _shared(made)).items() if value is not None},
        "inputs": {**configs, **inputs},
        "outputs": outputs,
        **around(plan),
        "sampling_algorithm": "grid",
        "search_space": {"trial": {"type": "choice", "values": list(range(1, len(plans) + 1))}},
        "objective": {"goal": "minimize", "primary_metric": "step_time_s"},
        "limits": {
            "max_total_trials": len(plans),
            "max_concurrent_trials": 1,
            **({"trial_timeout": max(limits)} if limits else {}),
        },
        "tags": tags(plan),
    }
    notes = (f"Trials of {len(plans)} plans, the first of which follows.", *_NOTES)
    return RenderedFile(path=FILE, text=document(header(plan, programs[0], command, notes), entries))


def _commands(plans: Sequence[Plan], programs: Sequence[Program]) -> list[Command]:
    """The command of each trial; variables that the trials don't share are in it."""
    made = [
        command_of(plan, program, {file.path: _config(plan, number, file.path) for file in program.files})
        for number, (plan, program) in enumerate(zip(plans, programs, strict=True), start=1)
    ]
    shared = _shared(made)
    return [replace(each, apart=frozenset(each.variables) - set(shared)) for each in made]


def _input(plan: Plan) -> str:
    """The name of the input with all trials, which the job may have given to one of its own."""
    return f"{_INPUT}_files" if _INPUT in bindings(plan.job).inputs else _INPUT


def _config(plan: Plan, number: int, path: str) -> str:
    return f"{expression('inputs', _input(plan))}/{trial_folder(number)}/{path}"


def _shared(made: Sequence[Command]) -> Mapping[str, str]:
    """Variables that have the same value in every trial."""
    others = [each.variables for each in made]
    return {name: value for name, value in others[0].items() if all(one.get(name) == value for one in others)}


def _choice(made: Sequence[Command]) -> str:
    """A shell's choice of the trial's command."""
    cases = " ".join(f"{number}) {each.text} ;;" for number, each in enumerate(made, start=1))
    return f"echo {TRIAL} {_NUMBER}; case {_NUMBER} in {cases} esac"
