"""The AzureML launcher, against azure-ai-ml's own loader."""

from __future__ import annotations

import os
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen.check.runs import outcomes
from dsgen.job.records import Data, Output, Tokenizer
from dsgen.programs.azureml import write as azureml_write
from dsgen.programs.launchers import LAUNCHERS, launch_files
from dsgen.programs.program import TRIAL, Program, Resume
from dsgen.render import trial
from dsgen.search.plan import Plan
from tests.needs import needs_azure
from tests.programs.hand_built import HOSTILE, expected_arguments, plan, program
from tests.programs.places import put

pytestmark = pytest.mark.filterwarnings("ignore:::azure", "ignore:::marshmallow", "ignore:::msrest")

OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"compute": "gpu-cluster", "environment": "deepspeed", "shm_size": "128g"},
    {
        "compute": "azureml:gpu-cluster",
        "environment": "azureml:deepspeed:7",
        "tags": {"team": "a", "cost": 4},
    },
    {
        "environment": "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04:1",
        "code": "..",
    },
    {
        "inputs": {
            "corpus": "azureml:corpus:1",
            "table": {"path": "azureml:table:2", "type": "mltable"},
        },
        "outputs": {
            "run": "azureml://datastores/training/paths/run",
            "logs": {"mode": "upload", "name": "logs"},
        },
    },
    {
        "identity": "user_identity",
        "services": {
            "code": {"type": "vs_code"},
            "board": {"type": "tensor_board", "log_dir": "tb", "nodes": "all"},
        },
        "queue_settings": {"job_tier": "spot", "priority": "high"},
    },
    {"display_name": HOSTILE[2], "experiment_name": HOSTILE[0], "tags": {"hostile": HOSTILE[12]}},
)


def launch(folder: Path, **job: Any) -> dict[str, Any]:
    """The parsed `job.yml` of a hand-built plan, written to `folder` with the files it names."""
    built = program()
    put((*built.files, *launch_files(plan("azureml", **job), built)), folder)
    return dict(yaml.safe_load((folder / "job.yml").read_text()))


@needs_azure
@pytest.mark.integration
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
def test_azure_accepts_the_job(tmp_path: Path, options: dict[str, object]) -> None:
    """azure-ai-ml loads the job, and reads the size of it that the plan has."""
    from azure.ai.ml import load_job

    launch(tmp_path, options=options, environment={"A": HOSTILE[2]})
    job = load_job(tmp_path / "job.yml")
    assert job.resources.instance_count == 128
    assert job.distribution.process_count_per_instance == 8
    assert job.limits.timeout == 172800
    assert job.environment_variables["A"] == HOSTILE[2]
    assert Path(job.inputs["ds_config"].path).name == "ds_config.json"


@pytest.mark.parametrize(
    ("options", "says"),
    [({}, "put train.py and its modules here"), ({"code": ".."}, "holds train.py")],
)
def test_the_job_says_where_the_script_belongs(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    """Only `code` is uploaded, so the header says that the script has to be in it."""
    launch(tmp_path, options=options)
    header = (tmp_path / "job.yml").read_text().partition("\n\n")[0]
    assert says in " ".join(header.replace("# ", "").split())


STORE = "azureml://datastores/training/paths"
#: Text that azure-ai-ml or the service would take for an expression, in arguments of the user.
LIVE = (
    "{inputs.corpus}",
    "${inputs.corpus}",
    "$[[--flag ${{inputs.x}}]]",
    "{outputs.a b}",
    "it's {search_space.n}",
)
#: What the service may put in: a mount, a path with blanks, a URL in mode direct.
PLACES = (
    "/mnt/azureml/cr/j/1/cap/data-capability/wd/INPUT_corpus",
    "/mnt/with  blanks",
    "https://a.b/c?x=1&y=2;z",
)


def with_data(**job: Any) -> Plan:
    """A plan whose data, tokenizer and folders are AzureML's."""
    built = plan("azureml", **job)
    data = Data(path=("azureml:corpus:1",), tokenizer=Tokenizer(path=f"{STORE}/tok/vocab.json"))
    output = Output(checkpoints=f"{STORE}/run", logs="${{outputs.logs}}/tb")
    return replace(built, job=replace(built.job, data=data, output=output))


def served(command: str, places: dict[str, str]) -> str:
    """The command as a shell gets it: azure-ai-ml's change, then the service's, which takes names
    that are there.
    """
    single = r"(?<!\{)\{(inputs|outputs|search_space)\.([^}]*)\}(?!\})"
    command = re.sub(single, r"${{\1.\2}}", command)
    return re.sub(r"\$\{\{(\w+\.\w+)\}\}", lambda match: places[match[1]], command)


def shown(command: str, **environment: str) -> list[str]:
    """The words of `python` in a command, and the variable LOGS, as bash takes them."""
    show = 'python() { printf "%s\\0" "${LOGS-}" "$@"; }; env() { export "$1"; shift; "$@"; }\n'
    done = subprocess.run(
        ["bash", "-c", show + command],
        env={"PATH": os.environ["PATH"], "RANK": "0", **environment},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


def test_the_command_is_data_to_the_shell(tmp_path: Path) -> None:
    """After the service has put the input's path in, a shell gives the script every argument
    unchanged.
    """
    command = launch(tmp_path, environment={"LOGS": HOSTILE[12]})["command"]
    assert command.count("${{") == 1
    words = shown(served(command, {"inputs.ds_config": "/mnt/ds_config.json"}))
    assert words == [HOSTILE[12], "train.py", *expected_arguments("/mnt/ds_config.json")]


@pytest.mark.parametrize("place", PLACES)
def test_data_and_folders_arrive_as_one_word_each(place: str, tmp_path: Path) -> None:
    """URIs of the spec and the user's own expressions come out as the place they stand for; other
    text as it is.
    """
    given = (
        "--path",
        "azureml:corpus:1",
        f"{STORE}/tok/vocab.json",
        "a=${{inputs.own}}/x y",
        f"{STORE}/run",
        *LIVE,
    )
    built = replace(
        program(hostile=(*given, *HOSTILE)), environment={"LOGS": "${{outputs.logs}}/tb"}
    )
    made = with_data(options={"inputs": {"own": "./own"}, "outputs": {"logs": {}}})
    file, ends = launch_files(made, built)[:2]
    put((ends,), tmp_path)
    names = (
        "inputs.ds_config",
        "inputs.data",
        "inputs.tokenizer",
        "inputs.own",
        "outputs.logs",
        "outputs.checkpoints",
    )
    places = {name: f"{place}-{name}" for name in names}
    places["inputs.ends"] = str(tmp_path / ends.path)
    words = shown(served(yaml.safe_load(file.text)["command"], places))
    data, tokenizer, own, logs, checkpoints = (places[name] for name in names[1:])
    expected = ("--path", data, tokenizer, f"a={own}/x y", checkpoints, *LIVE, *HOSTILE)
    assert words == [f"{logs}/tb", "train.py", *expected_arguments(places[names[0]], expected)]


def test_a_start_goes_on_from_the_last_whole_checkpoint(tmp_path: Path) -> None:
    """The program is told of the last checkpoint that was written to its end, and of none where
    there is none.
    """
    resume = Resume(option="--resume", folder=f"{STORE}/run", prefix="checkpoint-")
    built = replace(program(), resume=resume)
    file, ends = launch_files(with_data(framework="huggingface"), built)[:2]
    put((ends,), tmp_path)
    folder = tmp_path / "run 1"
    places = dict.fromkeys(("inputs.ds_config", "inputs.data", "inputs.tokenizer"), "/mnt/x")
    places["inputs.ends"] = str(tmp_path / ends.path)
    command = served(
        yaml.safe_load(file.text)["command"], {**places, "outputs.checkpoints": str(folder)}
    )
    assert "--resume" not in shown(command)
    for step, state in (
        (90, "{}"),
        (1000, '{"best": 1}\n'),
        (2000, None),
        (3000, ""),
        (4000, '{"best'),
    ):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        if state is not None:
            (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert shown(command)[-2:] == ["--resume", str(folder / "checkpoint-1000")]


@needs_azure
@pytest.mark.integration
def test_azure_makes_the_inputs_and_outputs_of_the_spec(tmp_path: Path) -> None:
    """azure-ai-ml makes of the job a request with the spec's data as inputs and its folders as
    outputs.
    """
    from azure.ai.ml import load_job

    built = program()
    made = with_data(options={"outputs": {"logs": {}}})
    put((*built.files, *launch_files(made, built)), tmp_path)
    sent = load_job(tmp_path / "job.yml")._to_job()._to_rest_object().as_dict()["properties"]
    assert sent["inputs"]["data"] == {
        "jobInputType": "uri_folder",
        "mode": "ReadOnlyMount",
        "uri": "corpus:1",
    }
    assert sent["inputs"]["tokenizer"]["uri"] == f"{STORE}/tok/vocab.json"
    assert sent["inputs"]["tokenizer"]["jobInputType"] == "uri_file"
    assert sent["outputs"]["checkpoints"]["uri"] == f"{STORE}/run"
    assert sent["outputs"]["checkpoints"]["mode"] == "ReadWriteMount"
    assert sent["command"] == yaml.safe_load((tmp_path / "job.yml").read_text())["command"]


def test_names_get_the_form_that_the_service_takes(tmp_path: Path) -> None:
    """A bare compute or environment gets its prefix and version; an experiment's name loses what
    isn't allowed.
    """
    job = launch(tmp_path, options={**OPTIONS[1], "experiment_name": "my runs (new)"})
    assert (job["compute"], job["environment"]) == (
        "azureml:gpu-cluster",
        "azureml:deepspeed@latest",
    )
    assert job["experiment_name"] == "my-runs-new"


def test_without_compute_the_job_is_serverless(tmp_path: Path) -> None:
    """Without a compute the instance type says which machines to use."""
    job = launch(tmp_path)
    assert "compute" not in job
    assert job["resources"]["instance_type"] == "standard_nd96amsr_a100_v4"


def test_no_launcher_inside(tmp_path: Path) -> None:
    """The service starts the processes, so the command names no launcher."""
    command = launch(tmp_path)["command"]
    assert not any(word in command for word in ("torchrun", "deepspeed ", "accelerate", "mpirun"))


def test_the_files_say_where_they_come_from(tmp_path: Path) -> None:
    """The header says the version and the command, and its comments can't become keys."""
    launch(tmp_path)
    text = (tmp_path / "job.yml").read_text()
    assert text.startswith("# Written by dsgen 0.3.0: dsgen generate\n")
    assert "\nrm -rf" not in text


def tuned(options: dict[str, object]) -> tuple[list[Plan], list[Program], dict[str, Any], str]:
    """Two trials with configurations, variables and arguments of their own; the sweep as data and
    as text.
    """
    plans = [plan("azureml", options=options, time_limit_s=limit) for limit in (600, 900)]
    programs = [
        replace(program(hostile=(*HOSTILE, *LIVE, mark)), environment={"SAME": "1", "LOGS": mark})
        for mark in ("first", "second's")
    ]
    file = azureml_write.trials_file(plans, programs, "dsgen tune")
    assert file.path == azureml_write.FILE
    return plans, programs, yaml.safe_load(file.text), file.text


def test_a_sweep_runs_each_trial_with_its_own_arguments() -> None:
    """With its number put in, the command says the trial's mark, and gives the script all of the
    trial's arguments.
    """
    _, programs, sweep, _ = tuned({})
    assert sweep["search_space"] == {"trial": {"type": "choice", "values": [1, 2]}}
    assert sweep["trial"]["environment_variables"]["SAME"] == "1"
    assert "LOGS" not in sweep["trial"]["environment_variables"]
    for number, built in enumerate(programs, start=1):
        places = {"inputs.trials": "/mnt/tri als", "search_space.trial": str(number)}
        first, *rest = shown(served(sweep["trial"]["command"], places))
        mark, _, logs = first.partition("\n")
        assert mark == f"dsgen trial {number}"
        config = f"/mnt/tri als/trial-{number}/ds_config.json"
        assert [logs, *rest] == [
            built.environment["LOGS"],
            "train.py",
            *expected_arguments(config, built.groups[-1].arguments[1:]),  # type: ignore[arg-type]
        ]


@needs_azure
@pytest.mark.integration
def test_azure_accepts_the_sweep(tmp_path: Path) -> None:
    """azure-ai-ml loads the sweep, and makes a request of it with every trial once, one at a
    time.
    """
    from azure.ai.ml import load_job

    options = {
        "identity": "managed",
        "queue_settings": {"priority": "low"},
        "compute": "gpus",
        "inputs": {"a": "b"},
    }
    *_, text = tuned(options)
    (tmp_path / "tune.yml").write_text(text)
    sent = load_job(tmp_path / "tune.yml")._to_rest_object().as_dict()["properties"]
    assert sent["samplingAlgorithm"]["samplingAlgorithmType"] == "Grid"
    assert sent["searchSpace"] == {"trial": ["choice", [[1, 2]]]}
    assert (sent["limits"]["maxTotalTrials"], sent["limits"]["maxConcurrentTrials"]) == (2, 1)
    assert sent["limits"]["trialTimeout"] == "PT15M"
    assert sent["trial"]["resources"]["instanceCount"] == 128
    assert sent["trial"]["distribution"]["processCountPerInstance"] == 8


def test_a_trial_keeps_the_names_of_folders() -> None:
    """A trial saves nothing, and an argument that names the folder of checkpoints still means
    it.
    """
    made = with_data(
        arguments=("--data-cache-path", "${{outputs.checkpoints}}/cache"),
        options={"outputs": {"logs": {}}},
    )
    short = trial(made, 10)
    assert short.job.output.checkpoints is None
    file = azureml_write.trials_file(
        [short], [program(hostile=short.job.launch.arguments)], "dsgen tune"
    )
    sweep = yaml.safe_load(file.text)
    assert list(sweep["outputs"]) == ["checkpoints"]
    assert '"${{outputs.checkpoints}}"/cache' in sweep["trial"]["command"]


AZ = """#!/bin/bash
echo "$*" >>"$CALLS"
case "$2 $3" in
  "job list") printf 'sweep_0\\nsweep_1\\n' ;;
  "job download")
    folder="${!#}"; mkdir -p "$folder"
    printf 'dsgen trial %d\\n%s' $((${5##*_} + 1)) "$STEPS" >"$folder/a.txt" ;;
esac
"""


def test_the_logs_of_a_sweep_are_those_of_its_trials(tmp_path: Path) -> None:
    """The trials' logs are downloaded one by one, and known by their marks; only a sweep that has
    ended is read.
    """
    scheduler = LAUNCHERS["azureml"].scheduler
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "az").write_text(AZ)
    (tmp_path / "bin" / "az").chmod(0o755)
    step = "iteration 1/ 10 | elapsed time per iteration (ms): 1500.0 | global batch size: 8 |\n"
    environment = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
        "STEPS": step * 5,
    }
    folder = tmp_path / "a folder"
    words = [word.format(id="sweep", folder=folder) for word in scheduler.collect]
    subprocess.run(words, env=environment, check=True)
    found = outcomes(folder, TRIAL)
    assert [found[number].run.step_time_s for number in (1, 2)] == [1.5, 1.5]  # type: ignore[union-attr]
    assert "job list --parent-job-name sweep " in (tmp_path / "calls").read_text()
    states = (
        "Completed\n",
        "Failed",
        "Canceled",
        "Running",
        "Queued\n",
        "NotStarted",
        "Finalizing",
    )
    assert [bool(re.search(scheduler.unfinished, state)) for state in states] == [False] * 3 + [
        True
    ] * 4


def test_random_words_arrive() -> None:
    """Of 1,500 random words of what a shell, azure-ai-ml or the service reads, each arrives as it
    is meant.
    """
    rng = random.Random(13)
    pieces = (
        *HOSTILE[:-1],
        *LIVE,
        "${{inputs.own}}",
        "${{ outputs.out }}",
        "$",
        "{",
        "}",
        "'",
        '"',
        "\\",
        "inputs.own",
        "\t",
    )
    places = {
        name: f"/mnt/it's {name}" for name in ("inputs.ds_config", "inputs.own", "outputs.out")
    }
    made = plan("azureml", options={"inputs": {"own": "azureml:own:1"}, "outputs": {"out": {}}})
    for _ in range(30):
        words = tuple("".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(50))
        (file,) = launch_files(made, program(hostile=words))[:1]
        got = shown(served(yaml.safe_load(file.text)["command"], places))
        meant = [
            re.sub(
                r"\$\{\{ ?(inputs\.own|outputs\.out) ?\}\}", lambda match: places[match[1]], word
            )
            for word in words
        ]
        assert got[1:] == [
            "train.py",
            *expected_arguments(places["inputs.ds_config"], tuple(meant)),
        ]
