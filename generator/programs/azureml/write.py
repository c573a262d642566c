"""Azure Machine Learning: a v2 command job, and trials as a sweep.

The service starts a process per GPU (AML013).

Three programs read the command: azure-ai-ml makes `${{inputs.NAME}}` of `{inputs.NAME}`, the
service replaces that by a path, and a shell in each process runs what comes out. So all but the
paths that the service puts in is quoted, as data.
Source: azure-ai-ml azure/ai/ml/_utils/utils.py:845-869 (map_single_brackets_and_warn),
_schema/_sweep/sweep_job.py, parameterized_sweep.py @ 1.35.2; Azure/azureml-examples @ 085cd6ea
cli/jobs/basics/hello-sweep.yml.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...dataclass import dataclass
from ...job.needs import EXPRESSION, IMAGES, Bindings, bindings
from ...job.records import JobLaunch
from ...patterns import lazy_pattern
from ...search.plan import Plan
from ...version import __version__
from ..launching import fabric
from ..launching.write import (
    ending_values,
    environment,
    fill,
    header,
    launch_options,
    processes_per_node,
    shell_word,
    yaml_file,
)
from ..program import (
    TRIAL,
    ConfigPath,
    Launcher,
    Program,
    RenderedFile,
    Scheduler,
    trial_folder,
)
from .job import ENDS

_SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
_WIDTH: Final = 110  #: of lines of YAML
_NOTES = (
    "The service starts one process per GPU and sets RANK, LOCAL_RANK, WORLD_SIZE, "
    "MASTER_ADDR and MASTER_PORT: "
    "a launcher inside the command would start them twice.",
    "Configuration files travel as inputs, so they arrive whatever folder `code` is. "
    "Paths here are relative to this file.",
)
#: What the service or azure-ai-ml would replace, or leave out where it is optional.
_LIVE: Final = lazy_pattern(r"\$(?=\{\{|\[\[)|(?<!\{)\{(?=(?:inputs|outputs|search_space)\.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program's words, as the shell of a process is given them."""

    plan: Plan
    program: Program
    bound: Bindings
    apart: frozenset[str] = frozenset()  #: variables that are set in the command
    #: what stands for the path of each configuration file, as a shell word
    configs: Mapping[str, str]

    @property
    def text(self) -> str:
        """The command: variables with expressions, or that look like some, then the program."""
        in_command = [f"{name}={word}" for name, word in self._set_in_command()]
        words = [
            *(("env", *in_command) if in_command else ()),
            "python",
            *map(self._word, self.program.start),
        ]
        words += map(self._word, self.program.arguments)
        resume, folder = self.program.resume, self.plan.job.output.checkpoints
        if folder is None:
            return " ".join(words)
        # ends.sh reads CHECKPOINTS, sets SAVED (the last step; 0: none) and defines end_rank
        begins = f"CHECKPOINTS={self._word(folder)}; . {self.configs[ENDS]}; "
        if resume is not None:
            last = (
                f'{_data(resume.option)} {self._word(resume.folder)}/{_data(resume.prefix)}"$SAVED"'
            )
            begins += f'set --; if [ "$SAVED" -gt 0 ]; then set -- {last}; fi; '
            words.append('"$@"')
        return begins + " ".join(words) + '; end_rank "$?"'

    @property
    def variables(self) -> dict[str, str]:
        """The variables that are plain text to the service too."""
        in_command = dict(self._set_in_command())
        return {
            name: value
            for name, value in environment(self.plan, self.program).items()
            if name not in in_command
        }

    def _set_in_command(self) -> Iterator[tuple[str, str]]:
        """The variables that the command sets, with their shell words.

        The service would not leave them as they are: some have expressions of dsgen's own, others
        text that looks like one; or they are of one trial alone. Those of a spec are text.
        """
        of_spec = self.plan.job.launch.environment
        for name, value in environment(self.plan, self.program).items():
            if name not in of_spec and EXPRESSION.search(self.bound.word(value)):
                yield name, self._word(value)
            elif "${{" in value or name in self.apart:
                yield name, _data(value)

    def _word(self, value: str | ConfigPath) -> str:
        """One word to the shell, whatever the service puts in."""
        if isinstance(value, ConfigPath):
            return self.configs[value.name]
        text, end, parts = self.bound.word(value), 0, []
        for match in EXPRESSION.finditer(text):
            if match[2] in self.bound.section(match[1]):
                parts += [_data(text[end : match.start()]), expression(match[1], match[2])]
                end = match.end()
        parts.append(_data(text[end:]))
        return "".join(part for part in parts if part != "''") or "''"


def expression(section: str, name: str) -> str:
    """An expression of the service as a part of a shell word, quoted: it may be a path or URL."""
    return f'"${{{{{section}.{name}}}}}"'


def _data(text: str) -> str:
    """A shell word for text in which the service replaces nothing.

    After the first mark of an expression an empty pair of quotes is put, so that none is seen.
    """
    return _LIVE.sub(lambda match: f"{match[0]}''", shell_word(text))


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`job.yml`, to be submitted with `az ml job create --file job.yml`.

    Where checkpoints are saved, the script with which the job ends is beside it.
    """
    job = yaml_file(
        "job.yml", plan, program, command, _notes(plan), _job(plan, program), width=_WIDTH
    )
    if plan.job.output.checkpoints is None:
        return (job,)
    top, values = header(plan, program, command), ending_values(plan, program)
    text = fill("azureml/ends.sh.j2", plan, program, header=top, **values)
    return (job, RenderedFile(path=ENDS, text=text))


def _job(plan: Plan, program: Program) -> dict[str, object]:
    job, bound, options = plan.job, bindings(plan.job), launch_options(plan)
    ends = [] if job.output.checkpoints is None else [ENDS]
    paths = [*(file.path for file in program.files), *ends]
    stems = {path: re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(path).stem) for path in paths}
    # The names of inputs; one that data has too gets an ending.
    names = {path: f"{name}_file" if name in bound.inputs else name for path, name in stems.items()}
    configs = {path: expression("inputs", name) for path, name in names.items()}
    made = Command(plan=plan, program=program, bound=bound, configs=configs)
    limit_s = job.launch.time_limit_s
    return {
        "$schema": _SCHEMA,
        "type": "command",
        **display_fields(plan, job.name),
        **process_fields(plan, made.text, made.variables),
        "inputs": {
            **{name: {"type": "uri_file", "path": f"./{path}"} for path, name in names.items()},
            **bound.inputs,
        },
        "outputs": bound.outputs,
        **placement(plan),
        "services": options.get("services"),
        "limits": {"timeout": limit_s} if limit_s is not None else None,
        "tags": tags(plan),
    }


def _notes(plan: Plan) -> Iterator[str]:
    """What a reader would ask: processes, paths, environment, and what a restart does."""
    yield from _NOTES
    if (
        "environment" not in launch_options(plan)
        and plan.job.cluster.accelerator.vendor == "nvidia"
    ):
        yield (
            f"`environment` stands in for yours: {CURATED} pins no DeepSpeed (its tag says "
            f"{TAGGED_DEEPSPEED}). Name "
            "one with the versions above in launch.azureml.environment."
        )
    outputs = bindings(plan.job).outputs
    if outputs:
        named = ", ".join(name for name, entry in outputs.items() if "path" not in entry)
        yield (
            "A job that is preempted starts again with the same outputs."
            + (
                f" A new submission gets new folders for {named}: they have no path."
                if named
                else ""
            )
        )
    code, script = launch_options(plan).get("code", OWN_FOLDER), plan.job.launch.script
    if plan.job.launch.is_module:
        yield f"The environment or `code`, which is all that is uploaded, has the module {script}."
    elif code == OWN_FOLDER:
        yield (
            f"`code` is this folder and all that is uploaded: put {script} and its modules "
            "here, or name another."
        )
    else:
        yield f"`code` is all that is uploaded: it holds {script} and its modules."
    for name, path in fabric.host_files(plan.job).items():
        yield (
            f"Azure's images set {name} to {path}; an image without that file needs a copy, or "
            "all-reduce is slow."
        )


def _uploaded(launch: JobLaunch, folder: Path) -> Path | None:
    """The local folder that is `code`; None for a registered asset or a repository."""
    code = str(launch.options.get("code", OWN_FOLDER))
    return None if ":" in code else Path(os.path.normpath(folder / code))


def _placed(options: Mapping[str, Any], spec: Path, folder: Path) -> Mapping[str, Any]:
    """The options with local paths as job.yml needs them; in the spec they are relative to it."""

    def place(value: str) -> str:
        elsewhere = value.startswith(("/", "~")) or ":" in value or "$" in value or value[:1] == "<"
        return value if elsewhere else Path(os.path.relpath(spec / value, folder)).as_posix()

    moved = {"code": place(options["code"])} if "code" in options else {}
    inputs = dict(options.get("inputs", {}))
    for name, entry in inputs.items():
        if isinstance(entry, str):
            inputs[name] = place(entry)
        elif isinstance(entry, Mapping) and "path" in entry:
            inputs[name] = {**entry, "path": place(entry["path"])}
    return {**options, **moved, **({"inputs": inputs} if inputs else {})}


def _first_step(launch: JobLaunch, folder: Path) -> str:
    """What to do first, as the line above the command that starts the job."""
    uploaded = _uploaded(launch, folder)
    if launch.is_module or launch.script.startswith("/"):
        return f"Start the job; the image has to have {launch.script}:"
    if uploaded is None or (uploaded / launch.script).exists():
        return f"Start the job, which uploads {uploaded or launch.options['code']}:"
    other = "" if "code" in launch.options else " (or set launch.azureml.code)"
    return (
        f"Put {launch.script} and its modules into {uploaded}, which is "
        f"uploaded{other}, and start it:"
    )


#: The curated environment of azureml-examples @ 085cd6ea. What it holds: Azure/azureml-assets @
#: 4b41f8cc, assets/training/general/environments/acpt-pytorch-2.8-cuda12.6, whose Dockerfile and
#: requirements pin no DeepSpeed.
CURATED: Final = "acpt-pytorch-2.8-cuda12.6"
_CURATED_ID: Final = f"azureml://registries/azureml/environments/{CURATED}/labels/latest"
TAGGED_DEEPSPEED: Final = "0.13.1"  #: spec.yaml, tags
OWN_FOLDER = "."  #: uploaded unless the spec names another: what lies above it may be anything


def display_fields(plan: Plan, name: str) -> dict[str, object]:
    """Return what the studio shows of a job."""
    options = launch_options(plan)
    experiment = options.get("experiment_name", plan.job.name)
    return {
        "display_name": options.get("display_name", name),
        # The service takes letters, digits, `_` and `-`, and a letter or digit first.
        "experiment_name": re.sub(r"[^A-Za-z0-9_-]+", "-", experiment).strip("-_")[:255] or "job",
    }


def process_fields(plan: Plan, command: str, variables: Mapping[str, str]) -> dict[str, object]:
    """Return what runs on the nodes."""
    options, (provider, _, size) = launch_options(plan), plan.job.cluster.name.partition("/")
    # Without a compute the service itself runs the job, on the instance type that is asked for.
    serverless = "compute" not in options and provider == "azure"
    vendor = plan.job.cluster.accelerator.vendor
    name = options.get("environment", _CURATED_ID if vendor == "nvidia" else IMAGES[vendor])
    return {
        "code": options.get("code", OWN_FOLDER),
        "command": command,
        "environment": _environment(name),
        "environment_variables": dict(variables) or None,
        "distribution": {"type": "pytorch", "process_count_per_instance": processes_per_node(plan)},
        "resources": {
            "instance_count": plan.job.nodes,
            **({"instance_type": size} if serverless else {}),
            "shm_size": options.get("shm_size", "64g"),
        },
    }


def _environment(name: str) -> str | dict[str, str]:
    """An environment by its name; an image has a slash."""
    bare = name.removeprefix("azureml:")
    if "/" in name and bare == name:
        return {"image": name}
    if "//" in name:
        return name
    # the service takes no name without a version or a label (AML003, AML004)
    has_version = ":" in bare or "@" in bare
    return f"azureml:{bare}" if has_version else f"azureml:{bare}@latest"


def placement(plan: Plan) -> dict[str, object]:
    """Return where the job runs, as whom, and how it queues."""
    options = launch_options(plan)
    compute, identity = options.get("compute", ""), options.get("identity")
    return {
        "compute": f"azureml:{compute.removeprefix('azureml:')}" if compute else None,
        "identity": {"type": identity} if identity else None,
        "queue_settings": options.get("queue_settings"),
    }


def tags(plan: Plan) -> dict[str, str]:
    """The job's tags, and who wrote it."""
    asked = launch_options(plan).get("tags", {})
    return {**{key: str(value) for key, value in asked.items()}, "dsgen": __version__}


FILE: Final = "tune.yml"
_SWEEP_SCHEMA: Final = "https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json"
#: The input that is the folder of tune.yml, with the configuration files of all trials.
_TRIALS_INPUT: Final = "trials"
_NUMBER: Final = "${{search_space.trial}}"
_SWEEP_NOTE: Final = (
    "Grid sampling runs every number once. No metric is logged, so the service names no best "
    "trial: dsgen tune reads "
    "the logs, each of which begins with its trial's number."
)
#: Brings the logs of the trials, which are jobs of their own: of a sweep, az downloads those of the
#: best one alone.
#: Source: azure-ai-ml azure/ai/ml/operations/_job_operations.py:1167-1185 @ 1.35.2.
_COLLECT: Final = (
    'az ml job list --parent-job-name "$1" --query "[].name" --output tsv | while read -r name; do '
    'az ml job download --name "$name" --download-path "$2/logs/$name" </dev/null || exit; done'
)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.yml`, to be submitted with `az ml job create --file tune.yml`."""
    plan, made = plans[0], _commands(plans, programs)
    limits = [
        trial.job.launch.time_limit_s
        for trial in plans
        if trial.job.launch.time_limit_s is not None
    ]
    timeout = {"trial_timeout": max(limits)} if limits else {}
    cases = " ".join(f"{number}) {each.text} ;;" for number, each in enumerate(made, start=1))
    text = f"echo {TRIAL} {_NUMBER}; case {_NUMBER} in {cases} esac"
    inputs = {
        name: entry
        for name, entry in made[0].bound.inputs.items()
        if expression("inputs", name) in text
    }
    outputs = {
        name: entry
        for name, entry in made[0].bound.outputs.items()
        if expression("outputs", name) in text
    }
    has_configs = any(program.files for program in programs)
    configs = {_trials_input(plan): {"type": "uri_folder", "path": "."}} if has_configs else {}
    entries = {
        "$schema": _SWEEP_SCHEMA,
        "type": "sweep",
        **display_fields(plan, f"{plan.job.name}-tune"),
        "trial": {
            key: value
            for key, value in process_fields(plan, text, _shared(made)).items()
            if value is not None
        },
        "inputs": {**configs, **inputs},
        "outputs": outputs,
        **placement(plan),
        "sampling_algorithm": "grid",
        "search_space": {"trial": {"type": "choice", "values": list(range(1, len(plans) + 1))}},
        "objective": {"goal": "minimize", "primary_metric": "step_time_s"},
        "limits": {"max_total_trials": len(plans), "max_concurrent_trials": 1, **timeout},
        "tags": tags(plan),
    }
    notes = (f"Trials of {len(plans)} plans, the first of which follows.", _SWEEP_NOTE)
    return yaml_file(FILE, plan, programs[0], command, notes, entries, width=_WIDTH)


def _commands(plans: Sequence[Plan], programs: Sequence[Program]) -> list[Command]:
    """The command of each trial; variables that the trials don't share are in it."""
    made = []
    for number, (plan, program) in enumerate(zip(plans, programs, strict=True), start=1):
        folder = f"{expression('inputs', _trials_input(plan))}/{trial_folder(number)}"
        configs = {file.path: f"{folder}/{file.path}" for file in program.files}
        made.append(Command(plan=plan, program=program, bound=bindings(plan.job), configs=configs))
    shared = _shared(made)
    return [replace(each, apart=frozenset(each.variables.keys() - shared.keys())) for each in made]


def _trials_input(plan: Plan) -> str:
    """The name of the input with all trials, which the job may have given to one of its own."""
    return f"{_TRIALS_INPUT}_files" if _TRIALS_INPUT in bindings(plan.job).inputs else _TRIALS_INPUT


def _shared(made: Sequence[Command]) -> Mapping[str, str]:
    """Variables that have the same value in every trial."""
    by_trial = [each.variables for each in made]
    return {
        name: value
        for name, value in by_trial[0].items()
        if all(variables.get(name) == value for variables in by_trial)
    }


LAUNCHER: Final = Launcher(
    name="azureml",
    files=launch_files,
    start="az ml job create --file {}/job.yml",
    file="job.yml",
    trials=trials_file,
    trials_start_files=False,
    token="upload its weights as a data asset (a job has no field for a token)",
    scheduler=Scheduler(
        submit=(
            "az",
            "ml",
            "job",
            "create",
            "--file",
            "{file}",
            "--query",
            "name",
            "--output",
            "tsv",
        ),
        trial=None,  # `az ml job validate` takes pipelines only
        identity=r"^(\S+)$",
        watch=("az ml job stream --name {id}", "az ml job show --name {id} --web"),
        state=("az", "ml", "job", "show", "--name", "{id}", "--query", "status", "--output", "tsv"),
        # Source: azure-ai-ml azure/ai/ml/operations/_run_history_constants.py:76-82
        # (TERMINAL_STATUSES) @ 1.35.2
        unfinished=r"^(?!(?:Completed|Failed|Canceled|NotResponding|Paused)\s*$)",
        collect=("sh", "-c", _COLLECT, "collect", "{id}", "{folder}"),
    ),
    for_whole_runs=frozenset({"services"}),
    in_folder=False,
    uploaded=_uploaded,
    placed=_placed,
    before=_first_step,
)
