"""Azure Machine Learning: a v2 command job, and trials as a sweep.

The service starts a process per GPU (AML013).

Three programs read the command, one after another: azure-ai-ml turns `{inputs.NAME}` into
`${{inputs.NAME}}`, the service replaces that by a path, and a shell in each process runs the
result. So everything is quoted as plain text, except what the service is meant to replace.
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
from ...job.needs import EXPRESSION, Bindings, Entry, bindings, default_image
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
#: The first character of an expression: `${{...}}`, `$[[...]]` (an optional part, which the service
#: drops where its input is missing), or the old form `{inputs.NAME}`.
_EXPRESSION_START: Final = lazy_pattern(
    r"\$(?=\{\{|\[\[)|(?<!\{)\{(?=(?:inputs|outputs|search_space)\.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command of a job: the words of a program, quoted for the shell of each process."""

    plan: Plan
    program: Program
    bound: Bindings
    #: names of variables whose values differ between trials: `env` in the command sets them
    of_one_trial: frozenset[str] = frozenset()
    configs: Mapping[str, str]  #: by the path of a configuration file, the shell word for it

    @property
    def text(self) -> str:
        """The whole command: `env` with variables (`_set_in_command`), then the program."""
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
            option, folder_word = _literal(resume.option), self._word(resume.folder)
            last = f'{option} {folder_word}/{_literal(resume.prefix)}"$SAVED"'
            begins += f'set --; if [ "$SAVED" -gt 0 ]; then set -- {last}; fi; '
            words.append('"$@"')
        return begins + " ".join(words) + '; end_rank "$?"'

    @property
    def variables(self) -> dict[str, str]:
        """The variables for the job's `environment_variables`: all that the command doesn't set."""
        in_command = dict(self._set_in_command())
        return {
            name: value
            for name, value in environment(self.plan, self.program).items()
            if name not in in_command
        }

    def _set_in_command(self) -> Iterator[tuple[str, str]]:
        """The variables that the command sets, with their shell words.

        `environment_variables` can't hold them, for one of three reasons: the value has an
        expression that dsgen put there, which is replaced in commands; it has text that looks like
        an expression; or it is the value of one trial alone.
        """
        of_spec = self.plan.job.launch.environment  # the user's text: no expression is meant
        for name, value in environment(self.plan, self.program).items():
            if name not in of_spec and EXPRESSION.search(self.bound.word(value)):
                yield name, self._word(value)
            elif "${{" in value or name in self.of_one_trial:
                yield name, _literal(value)

    def _word(self, value: str | ConfigPath) -> str:
        """One word to the shell, whatever path the service puts in for an expression.

        Expressions of inputs and outputs that the job has stay alive; all other text is literal.
        """
        if isinstance(value, ConfigPath):
            return self.configs[value.name]
        text, end, parts = self.bound.word(value), 0, []
        for match in EXPRESSION.finditer(text):
            section, name = match[1], match[2]
            if name in self.bound.section(section):
                parts += [_literal(text[end : match.start()]), expression(section, name)]
                end = match.end()
        parts.append(_literal(text[end:]))
        return "".join(part for part in parts if part != "''") or "''"


def expression(section: str, name: str) -> str:
    """An expression of the service as a part of a shell word, quoted: it may be a path or URL."""
    return f'"${{{{{section}.{name}}}}}"'


def _literal(text: str) -> str:
    """A shell word for text in which the service replaces nothing.

    An empty pair of quotes splits what looks like an expression after its first character: the
    service sees `$''{{` and leaves it, and the shell drops the quotes.
    """
    return _EXPRESSION_START.sub(lambda match: f"{match[0]}''", shell_word(text))


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
    """The entries of `job.yml`."""
    job, bound, options = plan.job, bindings(plan.job), launch_options(plan)
    paths = [file.path for file in program.files]
    if job.output.checkpoints is not None:
        paths.append(ENDS)
    names = {path: _input_name(path, bound) for path in paths}
    configs = {path: expression("inputs", name) for path, name in names.items()}
    command = Command(plan=plan, program=program, bound=bound, configs=configs)
    limit_s = job.launch.time_limit_s
    return {
        "$schema": _SCHEMA,
        "type": "command",
        **display_fields(plan, job.name),
        **process_fields(plan, command.text, command.variables),
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


def _input_name(path: str, bound: Bindings) -> str:
    """The name of the input that brings a file; other than those of the job's own inputs."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(path).stem)
    return f"{stem}_file" if stem in bound.inputs else stem


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
        restart = "A job that is preempted starts again with the same outputs."
        without_path = ", ".join(name for name, entry in outputs.items() if "path" not in entry)
        if without_path:
            restart += f" A new submission gets new folders for {without_path}: they have no path."
        yield restart
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
    """The options, with paths that were relative to the spec made relative to job.yml."""

    def place(value: str) -> str:
        # absolute paths, URLs and assets, variables, and placeholders such as `<path>`
        is_relative = not value.startswith(("/", "~", "<")) and not {":", "$"} & set(value)
        return Path(os.path.relpath(spec / value, folder)).as_posix() if is_relative else value

    placed = dict(options)
    if "code" in options:
        placed["code"] = place(options["code"])
    inputs = dict(options.get("inputs", {}))
    for name, entry in inputs.items():
        if isinstance(entry, str):
            inputs[name] = place(entry)
        elif isinstance(entry, Mapping) and "path" in entry:
            inputs[name] = {**entry, "path": place(entry["path"])}
    if inputs:
        placed["inputs"] = inputs
    return placed


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
    default = _CURATED_ID if vendor == "nvidia" else default_image(plan.job)
    name = options.get("environment", default)
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
    of_spec = launch_options(plan).get("tags", {})
    return {**{key: str(value) for key, value in of_spec.items()}, "dsgen": __version__}


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
    plan, commands = plans[0], _commands(plans, programs)
    cases = " ".join(f"{number}) {each.text} ;;" for number, each in enumerate(commands, start=1))
    text = f"echo {TRIAL} {_NUMBER}; case {_NUMBER} in {cases} esac"

    bound = commands[0].bound
    inputs = _used_in(text, "inputs", bound.inputs)
    if any(program.files for program in programs):
        inputs = {_trials_input(plan): {"type": "uri_folder", "path": "."}, **inputs}

    times_s = [trial.job.launch.time_limit_s for trial in plans]
    limits_s = [limit_s for limit_s in times_s if limit_s is not None]
    timeout = {"trial_timeout": max(limits_s)} if limits_s else {}

    trial_fields = process_fields(plan, text, _shared(commands))
    entries = {
        "$schema": _SWEEP_SCHEMA,
        "type": "sweep",
        **display_fields(plan, f"{plan.job.name}-tune"),
        "trial": {key: value for key, value in trial_fields.items() if value is not None},
        "inputs": inputs,
        "outputs": _used_in(text, "outputs", bound.outputs),
        **placement(plan),
        "sampling_algorithm": "grid",
        "search_space": {"trial": {"type": "choice", "values": list(range(1, len(plans) + 1))}},
        "objective": {"goal": "minimize", "primary_metric": "step_time_s"},
        "limits": {"max_total_trials": len(plans), "max_concurrent_trials": 1, **timeout},
        "tags": tags(plan),
    }
    notes = (f"Trials of {len(plans)} plans, the first of which follows.", _SWEEP_NOTE)
    return yaml_file(FILE, plan, programs[0], command, notes, entries, width=_WIDTH)


def _used_in(command: str, section: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The inputs or outputs that a command uses."""
    return {name: entry for name, entry in entries.items() if expression(section, name) in command}


def _commands(plans: Sequence[Plan], programs: Sequence[Program]) -> list[Command]:
    """The command of each trial, which sets the variables that the trials don't share."""
    commands = []
    for number, (plan, program) in enumerate(zip(plans, programs, strict=True), start=1):
        folder = f"{expression('inputs', _trials_input(plan))}/{trial_folder(number)}"
        configs = {file.path: f"{folder}/{file.path}" for file in program.files}
        bound = bindings(plan.job)
        commands.append(Command(plan=plan, program=program, bound=bound, configs=configs))
    shared = _shared(commands).keys()
    return [
        replace(each, of_one_trial=frozenset(each.variables.keys() - shared)) for each in commands
    ]


def _trials_input(plan: Plan) -> str:
    """The input with the files of all trials: its name, which differs from the job's own inputs."""
    is_taken = _TRIALS_INPUT in bindings(plan.job).inputs
    return f"{_TRIALS_INPUT}_files" if is_taken else _TRIALS_INPUT


def _shared(commands: Sequence[Command]) -> Mapping[str, str]:
    """Variables that have the same value in every trial."""
    by_trial = [each.variables for each in commands]
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
