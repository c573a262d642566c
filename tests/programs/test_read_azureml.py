"""The command of an AzureML job is read as a shell text, with places in the YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.agreement_azureml import quiet
from dsgen.programs.azureml.job import AzureMLJob, other_than_command, read_azureml
from dsgen.text.document import read_yaml
from dsgen.text.text import UnreadableText, text_of
from tests.needs import needs_azure

REST = "environment: azureml:e:1\n"


def read(content: str) -> AzureMLJob:
    """The job of a YAML text."""
    text = text_of(content, "job.yml")
    return read_azureml(read_yaml(text), text)


STYLES = {
    "plain": "command: torchrun --nnodes 2 train.py --lr 1e-4\n",
    "plain on two lines": "command: torchrun --nnodes 2\n  train.py --lr 1e-4\n",
    "folded": "command: >-\n  torchrun --nnodes 2\n  train.py --lr 1e-4\n",
    "folded with a comment": "command: >-  # runs\n  torchrun --nnodes 2\n\n  train.py --lr 1e-4\n",
    "literal": "command: |\n  echo start\n    torchrun --nnodes 2 \\\n      train.py --lr 1e-4\n",
    "indented by a number": "command: |2\n    torchrun --nnodes 2 train.py --lr 1e-4\n",
    "single quotes": "command: 'torchrun --nnodes 2 --name ''a b'' train.py --lr 1e-4'\n",
    "double quotes": 'command: "torchrun --nnodes 2 --name \\"a b\\" \\\n  train.py --lr 1e-4"\n',
    "an anchor": "command: &c !!str torchrun --nnodes 2 train.py --lr 1e-4\n",
}


@pytest.mark.parametrize("style", STYLES)
def test_words_have_their_places_in_the_file(style: str) -> None:
    """In every style of scalar, the place of a word is where the word stands in the YAML file."""
    content = STYLES[style] + REST
    job = read(content)
    assert job.script is not None
    lines = content.split("\n")
    launch = job.script.launches[0]
    assert launch.calls[0].program == "torchrun"
    for word in (launch.calls[0].word, *launch.arguments):
        where = job.script.shell.locate(word)
        assert where.path == "job.yml"
        assert where.pointer == "/command"
        assert lines[(where.line or 0) - 1][(where.column or 0) - 1 :].startswith(word.raw), (
            word.raw
        )


def test_what_cannot_be_mapped_is_at_the_key() -> None:
    """The words of an alias, or of text with escapes, have the place of the command's key."""
    for content in (
        "x: &c python train.py\ncommand: *c\n",
        'x: 1\ncommand: "python\\x20train.py"\n',
    ):
        job = read(content + REST)
        assert job.script is not None
        assert job.script.shell.locate(job.script.shell.commands[0].words[1]).line == 2


@pytest.mark.parametrize(
    "command", ["", "command:\n", "command: 3\n", "command: [a]\n", "command: ' '\n"]
)
def test_a_job_without_a_command_has_no_script(command: str) -> None:
    """What is no text is no command; the job is read all the same."""
    job = read(command + REST)
    assert job.script is None
    assert job.source.value("/environment") == "azureml:e:1"


def test_bindings_are_words_that_cannot_be_known() -> None:
    """`${{inputs.x}}` is filled in by the service: its word has no value, and those around it have
    theirs.
    """
    job = read("command: python train.py --data ${{inputs.data}} --lr 1\n" + REST)
    assert job.script is not None
    values = [word.value for word in job.script.launches[0].arguments]
    assert values == ["--data", None, "--lr", "1"]


@given(
    st.text(max_size=60),
    st.sampled_from(["command: ", "command: >\n  ", "command: |\n  ", "command: '", 'command: "']),
)
def test_any_command_is_read(text: str, style: str) -> None:
    """Whatever stands as a command, reading it and asking for places raises nothing."""
    try:
        source = text_of(style + text, "job.yml")
    except UnreadableText:
        return
    job = read_azureml(read_yaml(source), source)
    for command in job.script.shell.commands if job.script else ():
        assert job.script is not None
        assert all(job.script.shell.locate(word).line for word in command.words)


SCHEMAS = "$schema: https://azuremlschemas.azureedge.net/latest/"
OTHERS = {
    "environment": SCHEMAS + "environment.schema.json\nname: e\nimage: i\n",
    "command component": SCHEMAS
    + "commandComponent.schema.json\ntype: command\ncommand: python a.py\n",
    "component": "version: 1\ncommand: python a.py\ninputs:\n  epochs: {type: "
    "integer, default: 1}\n",
    "flow": SCHEMAS.replace("latest", "promptflow/latest") + "Flow.schema.json\ninputs: {}\n",
    "pipeline job": "type: pipeline\njobs: {}\n",
    "sweep job": "type: sweep\ntrial: {code: src}\n",
    "deployment": "endpoint_name: e\nenvironment: azureml:e:1\nenvironment_variables: {A: b}\n",
    "managed online deployment": SCHEMAS + "managedOnlineDeployment.schema.json\nname: blue\n",
}
JOBS = {
    "its schema": SCHEMAS + "commandJob.schema.json\n",
    "its type": "type: command\n",
    "a type that is none": "type: comand\n",
    "its type and the schema of another kind of job": SCHEMAS
    + "pipelineJob.schema.json\ntype: command\n",
    "a schema of no kind": "$schema: 3\n",
    "an "
    "input that has a value": "inputs:\n  epochs: 1\n  data: {type: uri_file, path: azureml:d:1}\n",
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_kinds_are_no_command_jobs(what: str) -> None:
    """What `$schema`, `type` or its keys tell of another kind is called that."""
    assert other_than_command(read_yaml(text_of(OTHERS[what], "file.yml"))) == what


@pytest.mark.parametrize("what", JOBS)
def test_command_jobs_are_no_other_kind(what: str) -> None:
    """A job with its schema, its type or neither is a command job; so is one with a slip in
    them.
    """
    assert (
        other_than_command(
            read_yaml(text_of(JOBS[what] + "command: python a.py\n" + REST, "job.yml"))
        )
        is None
    )


COUNTS = {
    "4": 4,
    "' 8 '": 8,
    "'+2'": 2,
    "-1": -1,
    "'--3'": None,
    "two": None,
    "'4.0'": None,
    "true": None,
    "": None,
}


@pytest.mark.parametrize("written", COUNTS)
def test_counts_are_converted_from_text(written: str) -> None:
    """An integer is read from text too; what is none, or true and false, is None."""
    job = read(f"command: python a.py\nresources:\n  instance_count: {written}\n" + REST)
    assert job.count("resources/instance_count") == COUNTS[written]
    assert job.nodes == (COUNTS[written] or 1)


@pytest.mark.integration
@needs_azure
@pytest.mark.parametrize(
    "written", [written for written, count in COUNTS.items() if count is not None]
)
def test_counts_are_those_of_the_loader(written: str, tmp_path: Path) -> None:
    """azure-ai-ml holds the same number after loading."""
    path = tmp_path / "job.yml"
    path.write_text(
        f"type: command\ncommand: python a.py\nresources:\n  instance_count: {written}\n" + REST
    )
    with quiet():
        from azure.ai.ml import load_job

        assert load_job(str(path)).resources.instance_count == COUNTS[written]
