"""Pipelines and sweeps of AzureML: every job in them is read and judged by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import dsgen
from dsgen.programs.azureml.job import AzureMLJob, other_than_command, read_jobs
from dsgen.text.document import read_yaml
from dsgen.text.text import Text

PIPELINE: Final = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
settings:
  default_compute: azureml:gpus
jobs:
  prepare:
    component: ./prepare.yml
  train:
    type: command
    command: >-
      torchrun --nproc_per_node 4 train.py --data ${{inputs.data}}
    code: src
    environment: azureml:env@latest
    inputs:
      data: ${{parent.inputs.data}}
    distribution:
      type: pytorch
      process_count_per_instance: 4
  test:
    type: command
    command: python test.py --data ${{inputs.nothing}}
    environment: azureml:env@latest
"""
SWEEP: Final = """\
$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json
type: sweep
trial:
  command: python train.py --lr ${{search_space.lr}} --data ${{inputs.data}}
  environment: azureml:env@latest
inputs:
  data:
    type: uri_folder
    path: azureml:data:1
compute: azureml:gpus
search_space:
  lr: {type: choice, values: [1, 2]}
"""


def jobs_of(content: str) -> tuple[AzureMLJob, ...]:
    """The jobs of a file."""
    text = Text(path="pipeline.yml", content=content, lines=content.splitlines())
    return read_jobs(read_yaml(text), text)


def rules_of(folder: Path, content: str) -> list[tuple[str, int | None, str]]:
    """What is wrong with a file: rule, line, and pointer."""
    (folder / "src").mkdir()
    (folder / "pipeline.yml").write_text(content)
    found = dsgen.validate(folder)
    return [
        (one.rule, one.where.line, one.where.pointer)
        for one in found
        if one.severity.value != "note"
    ]


def test_the_steps_of_a_pipeline_are_jobs() -> None:
    """Steps with a command are jobs, with the pipeline's compute and places in its file; components
    are not.
    """
    train, test = jobs_of(PIPELINE)
    assert [launch.program.value for launch in train.launches if launch.program] == ["train.py"]
    assert (train.text("compute"), test.text("compute")) == ("azureml:gpus", "azureml:gpus")
    where = train.locate("distribution/type")
    assert (where.line, where.pointer) == (17, "/jobs/train/distribution/type")
    assert train.locate("compute").pointer == "/compute"
    assert other_than_command(train.source) is None


def test_what_is_wrong_with_a_step_is_said_at_its_place(tmp_path: Path) -> None:
    """Two launchers in one step and an input that another doesn't have are errors, each at its line
    and pointer.
    """
    assert rules_of(tmp_path, PIPELINE) == [
        ("AML013", 11, "/jobs/train/command"),
        ("AML025", 21, "/jobs/test/command"),
    ]


def test_a_trial_has_the_inputs_of_its_sweep(tmp_path: Path) -> None:
    """The trial of a sweep is a job that may use the sweep's inputs and what is searched."""
    (trial,) = jobs_of(SWEEP)
    assert (trial.text("compute"), list(trial.block("inputs"))) == ("azureml:gpus", ["data"])
    assert rules_of(tmp_path, SWEEP) == []
    assert rules_of_missing(tmp_path) == ["AML025"]


def rules_of_missing(folder: Path) -> list[str]:
    """What is wrong with the sweep without its inputs."""
    start, _, rest = SWEEP.partition("inputs:\n")
    (folder / "pipeline.yml").write_text(start + rest[rest.index("compute:") :])
    return [one.rule for one in dsgen.validate(folder) if one.severity.value != "note"]


def test_a_pipeline_of_components_is_none_of_ours() -> None:
    """Without a command in it, a pipeline is no document that is checked."""
    content = PIPELINE[: PIPELINE.index("  train:")]
    text = Text(path="pipeline.yml", content=content, lines=content.splitlines())
    assert other_than_command(read_yaml(text)) == "pipeline job"
