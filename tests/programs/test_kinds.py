"""What a file is, by evidence; and what other programs' files are read for."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from dsgen.check.file import File
from dsgen.check.read import Reading, read_documents
from dsgen.programs.deepspeed.config import Config, DsConfig
from dsgen.programs.releases import newest
from dsgen.programs.trainer.training_arguments import TrainingArguments
from dsgen.text.document import Kind

NEOX = """\
# parallelism
{
  "pipe-parallel-size": 2,
  "model_parallel_size": 2,
  "num_layers": 24,
  "hidden_size": 2048,
  "seq_length": 2048,
  "no_weight_tying": true,
  "optimizer": {"type": "sm3", "params": {"lr": 0.0002}},
  "zero_optimization": {
    "stage": 1,
    "cpu_offload": True,   # as YAML, not as JSON
  },
  "train_micro_batch_size_per_gpu": 4,
  "precision": "bfloat16",
  "fp16": {"fp16": true, "hysteresis": 2, "min_loss_scale": 1e-10},
  "train_iters": 1000,
}
"""
AXOLOTL = """\
base_model: org/model-7b
datasets:
  - path: org/data
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
learning_rate: 2e-5
bf16: auto
deepspeed: deepspeed_configs/zero3.json
"""
LLAMA_FACTORY = """\
model_name_or_path: org/model-7b
stage: sft
finetuning_type: full
dataset: demo
template: plain
output_dir: out
per_device_train_batch_size: 1
learning_rate: 1e-5
deepspeed: ds_z3.json
"""
SWIFT = """\
model: org/model-7b
tuner_type: lora
dataset: [org/data#500]
split_dataset_ratio: 0.01
output_dir: out
learning_rate: 1e-4
deepspeed: zero2
"""
#: Files of other programs, each as far as it takes to know them, and the program.
FOREIGN = {
    "train.yml": (NEOX, "gpt-neox"),
    "lora.yml": (AXOLOTL, "axolotl"),
    "full_sft.yaml": (LLAMA_FACTORY, "LLaMA-Factory"),
    "swift.yaml": (SWIFT, "ms-swift"),
    "critic.yaml": (
        "_target_: pkg.Config\noptim:\n  lr: 1e-5\ncheckpoint:\n  save: [model]\n",
        "Hydra",
    ),
    "legacy.yaml": (
        "defaults:\n  - model: base\n  - _self_\noptimizer:\n  lr: 1\nfp16: true\n",
        "Hydra",
    ),
    "interpolated.yaml": (
        "checkpoint: ${oc.select:trainer.dir,null}\noptimizer: {lr: 1}\n",
        "Hydra",
    ),
    "missing.yaml": ("output_dir: ???\nlearning_rate: 1\nseed: 1\nbf16: true\n", "Hydra"),
    "ppo.yaml": ("actor_rollout_ref:\n  a: 1\nalgorithm: {}\ncritic: {}\ntrainer: {}\n", "verl"),
    "gpt.yaml": ("run: {}\ntrainer:\n  num_nodes: 2\nexp_manager: {}\nmodel: {}\n", "NeMo"),
    "recipe.yaml": (
        "model: {}\ntrain: {}\noptimizer: {}\nscheduler: {}\ncheckpoint: {}\nddp: {}\n",
        "Megatron-Bridge",
    ),
    "cli.yaml": (
        "seed_everything: 1\ntrainer:\n  strategy: deepspeed_stage_3\nmodel: {}\n",
        "Lightning",
    ),
    "rayjob.yaml": (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {}\nspec: {}\ncluster: a\ngpus: 8\n",
        "Kubernetes",
    ),
    "steps.yaml": ("resources:\n  cpu: 8\nenvs: {}\nsetup: pip\nrun: torchrun\n", "SkyPilot"),
}
#: Files that dsgen checks, and their kind; None: of no kind that it knows.
KINDS: dict[str, tuple[str, Kind | None]] = {
    "a.json": ('{"zero_optimization": {"stage": 2}, "my_key": 1}', "DeepSpeed config"),
    "run.json": ('{"zero_optimization": {"stage": 2}, "my_key": 1, "b": 1, "c": 1}', None),
    "b.json": ('{"steps_per_print": 1, "fp16": {}}', "DeepSpeed config"),
    "ds_config.json": ('{"optimizer": {}}', "DeepSpeed config"),
    "ds_config_empty.json": ("{}", "DeepSpeed config"),
    "ds_stats.json": ('{"rows": 1, "columns": 2}', None),
    "zero-shot.json": ('{"labels": ["a"]}', None),
    "recipe.json": ('{"optimizer": {}, "scheduler": {}, "checkpoint": {}, "fp16": true}', None),
    "trainer_state.json": (
        '{"global_step": 1, "max_steps": 9, "train_batch_size": 8, "save_steps": 1}',
        None,
    ),
    "fsdp.json": (
        '{"_note": "", "fsdp": "full_shard", "fsdp_config": {"reshard_after_forward": true}}',
        None,
    ),
    "comments.json": (
        '{"zero_optimization": {"stage": 2}, // HJSON\n"steps_per_print": 1}',
        "DeepSpeed config",
    ),
    "vocab.json": (
        '{"model": 1, "the": 2, "training": 3, "cluster": 4, "a": 5, "b": 6, "gpus": 7}',
        None,
    ),
    "list.json": ('[{"zero_optimization": {"stage": 2}}]', None),
    "hyper.yaml": ("optimizer: adam\nscheduler: cosine\nfp16: true\ntensorboard: true\n", None),
    "handed.yaml": (
        "zero_optimization:\n  stage: 2\ntrain_micro_batch_size_per_gpu: 4\n",
        "DeepSpeed config",
    ),
    "part.yaml": ("model: a\nlr: 1\nlayers: 2\nzero_optimization:\n  stage: 2\n", None),
    "mine.yaml": ("model: m\ntraining: {}\ndata: {}\n", None),
    "job.yaml": ("model: m\ncluster: c\ngpus: 8\ntraining: {}\n", "job spec"),
    "accelerate.yaml": (
        "compute_environment: LOCAL_MACHINE\nnum_processes: 8\n",
        "accelerate config",
    ),
    "dtype.yaml": ("mixed_precision: bf16\nfsdp_config: {}\nstrategy: fsdp\n", None),
    "args.yaml": ("output_dir: out\nlearning_rate: 1.0e-5\nseed: 1\n", "training arguments"),
    "optim.yaml": ("lr: 1\nlr_scheduler_type: cosine\nweight_decay: 0\nbetas: []\n", None),
    "aml.yml": (
        "command: python a.py\nenvironment: azureml:e@latest\ncompute: c\ncode: src\n",
        "AzureML job",
    ),
    "compose.yml": ("command: run\nservices: {}\nports: []\n", None),
    "pytorchjob.yaml": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {}\nspec: "
        "{}\ncluster: a\ngpus: 8\n",
        "Kubernetes job",
    ),
    "sky.yaml": (
        "resources:\n  accelerators: A100:8\nnum_nodes: 2\nsetup: pip\nrun: torchrun\n",
        "SkyPilot task",
    ),
    "hostfile": ("worker-0 8\n", "hostfile"),
    "hostfile.16": ("worker-0 slots=8\n", "hostfile"),
    "hostfile.txt": ("# hosts\nworker-0 slots=8\nworker-1 slots=8\n", "hostfile"),
    "hostfile_tool.py": ('#!/usr/bin/env python3\nimport os\n\nprint("a slots=8")\n', None),
    "hostfiles.md": ("# Hostfiles\nA line is worker-0 slots=8.\n", None),
}


def of(name: str, content: str) -> File:
    """A file in a folder."""
    return File(name, content, None, named=False)


def read(folder: Path, **files: str) -> Reading:
    """What is read of a folder with these files."""
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return read_documents([folder])


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_needs_enough_evidence(name: str) -> None:
    """A file is of a kind by a key that only its files have, or by several that are much of it;
    else of none.
    """
    content, kind = KINDS[name]
    file = of(name, content)
    assert (file.kind, file.program) == (kind, None)


@pytest.mark.parametrize("name", FOREIGN)
def test_other_programs_are_known(name: str) -> None:
    """A file of another program is known as its, whatever keys of DeepSpeed, accelerate or a job
    spec it has.
    """
    content, program = FOREIGN[name]
    file = of(name, content)
    assert (file.kind, file.program) == (None, program)


def test_azureml_jobs_are_no_other_programs() -> None:
    """Keys that are also another program's don't hide a job whose `$schema` is AzureML's."""
    schema = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
    assert (
        of("job.yml", f"$schema: {schema}\ncommand: a\nservices: {{}}\nversion: 1\n").kind
        == "AzureML job"
    )


def test_gpt_neox_is_read_for_its_deepspeed_config(tmp_path: Path) -> None:
    """Of gpt-neox's keys the DeepSpeed config has those that are handed on, at their places in the
    file.
    """
    (config,) = read(tmp_path, train__yml=NEOX).documents
    assert isinstance(config, DsConfig)
    assert set(config.block("")) == {
        "zero_optimization",
        "train_micro_batch_size_per_gpu",
        "bf16",
        "fp16",
    }
    assert config.value("/bf16/enabled") is True
    assert config.block("/fp16") == {"hysteresis": 2}
    assert (
        config.locate_key("/zero_optimization/cpu_offload").line,
        config.locate("/bf16/enabled").line,
    ) == (12, 15)
    assert config.embedded  # no edits: what is found is no JSON


def test_a_part_of_a_gpt_neox_config_is_left_alone(tmp_path: Path) -> None:
    """A file that gpt-neox joins with others is no DeepSpeed config, and is named with its
    program.
    """
    reading = read(
        tmp_path,
        model__yml="num_layers: 2\nhidden_size: 8\nno-weight-tying: true\npos-emb: rotary\n",
    )
    assert (reading.documents, dict(reading.left_alone)) == (
        [],
        {str(tmp_path / "model.yml"): "of gpt-neox"},
    )


@pytest.mark.parametrize("content", [AXOLOTL, LLAMA_FACTORY])
def test_trainers_are_read_for_their_arguments(content: str, tmp_path: Path) -> None:
    """axolotl and LLaMA-Factory hand on TrainingArguments: by name, text converted, axolotl's
    defaults unknown.
    """
    arguments, *_ = read(tmp_path, train__yaml=content).documents
    assert isinstance(arguments, TrainingArguments)
    assert arguments.value("learning_rate") in (2e-5, 1e-5)
    assert (
        str(arguments.value("deepspeed")).endswith("z3.json")
        or arguments.value("num_train_epochs") == 3
    )
    assert arguments.integer("per_device_train_batch_size") == (2 if content is AXOLOTL else 1)
    assert arguments.setting("weight_decay") == (None if content is AXOLOTL else 0.0)
    assert not arguments.has("bf16")


def test_a_template_of_a_script_is_left_alone(tmp_path: Path) -> None:
    """A script with Jinja's statements for commands is named as a template, and not judged; text
    that a script writes may have them.
    """
    condition = "{% if account -%}\n#SBATCH --account={{ account }}\n{% endif -%}\n"
    (tmp_path / "job.sh.jinja").write_text(f"#!/bin/bash\n{condition}torchrun train.py\n")
    (tmp_path / "run.sh").write_text(f"cat > job.txt <<EOF\n{condition}EOF\ntorchrun train.py\n")
    reading = read_documents([tmp_path])
    assert [document.path for document in reading.documents] == [str(tmp_path / "run.sh")]
    assert dict(reading.left_alone) == {str(tmp_path / "job.sh.jinja"): "a template for a script"}
    assert [finding.rule for finding in read_documents([tmp_path / "job.sh.jinja"]).findings] == [
        "FILE004"
    ]


def test_a_script_of_no_shell_is_left_alone(tmp_path: Path) -> None:
    """A script whose first line names another program or csh isn't read as bash, and is named."""
    (tmp_path / "old.sh").write_text("#!/bin/csh\nforeach f (a b)\n  echo $f\nend\n")
    (tmp_path / "all.sh").write_text("#!/usr/bin/expect -f\nfor {set i 0} {$i < 1} {incr i} {\n}\n")
    (tmp_path / "run.sh").write_text("#!/usr/bin/env -S bash -eu\ntorchrun train.py\n")
    (tmp_path / "train.sh").write_text("#!/usr/bin\ntorchrun train.py\n")  # names no program
    reading = read_documents([tmp_path])
    assert [document.path for document in reading.documents] == [
        str(tmp_path / name) for name in ("run.sh", "train.sh")
    ]
    assert dict(reading.left_alone) == {
        str(tmp_path / name): "a script that bash doesn't read" for name in ("all.sh", "old.sh")
    }


def test_yaml_that_takes_values_of_other_keys_is_hydras(tmp_path: Path) -> None:
    """A DeepSpeed config in YAML whose values are other keys' is filled in by OmegaConf."""
    reading = read(
        tmp_path, ds__yaml="bf16:\n  enabled: ${is_bf16}\nzero_optimization:\n  stage: 3\n"
    )
    assert (reading.documents, set(reading.left_alone.values())) == ([], {"of Hydra"})


def test_megatron_by_another_program_is_left_alone(tmp_path: Path) -> None:
    """A file by which LLaMA-Factory or ms-swift runs Megatron is none of TrainingArguments."""
    reading = read(tmp_path, train__yaml=SWIFT + "tensor_model_parallel_size: 2\n")
    assert (reading.documents, dict(reading.left_alone)) == (
        [],
        {str(tmp_path / "train.yaml"): "of ms-swift"},
    )


def test_lists_are_what_the_autotuner_tries(tmp_path: Path) -> None:
    """With autotuning, a list in place of a number is not known, and neither is "auto"; without it,
    it is a list.
    """
    space = (
        '{"autotuning": {"enabled": %s}, "zero_optimization": {"stage": [1, 2], '
        '"reduce_bucket_size": [1, 2]}}'
    )
    for enabled, stage in (("true", "auto"), ("false", [1, 2])):
        (config,) = read(tmp_path, ds__json=space % enabled).documents
        assert isinstance(config, DsConfig)
        assert config.value("/zero_optimization/stage") == stage
        seen = Config(json=config.json, consumer="deepspeed", release=newest("deepspeed"))
        assert seen.filled is (enabled == "true")


def test_data_in_a_folder_is_no_error(tmp_path: Path) -> None:
    """Large, binary and undecodable files in a folder are left out, a script that can't be read is
    an error.
    """
    (tmp_path / "vocab.json").write_text('{"a": "' + "x" * 9_000_000 + '"}')
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    (tmp_path / "binary.job").write_bytes(b"\x00\x01")
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 8}')
    assert not read_documents([tmp_path]).findings
    (tmp_path / "run.sh").write_bytes(b"echo \xe9")
    assert [finding.rule for finding in read_documents([tmp_path]).findings] == ["FILE001"]


def test_a_folder_of_thousands_of_files_is_read(tmp_path: Path) -> None:
    """More than 1,000 files are no reason to refuse a folder, and those deep down are found."""
    for number in range(1_100):
        (tmp_path / f"golden_{number}.json").write_text('{"lm loss": {"values": {"1": 10.5}}}')
    deep = tmp_path.joinpath(*"abcdefghijkl")
    deep.mkdir(parents=True)
    (deep / "z.json").write_text('{"zero_optimization": {"stage": 2}}')
    reading = read_documents([tmp_path])
    assert (len(reading.documents), reading.findings, dict(reading.left_alone)) == (1, [], {})


def test_libraries_below_a_folder_are_not_the_jobs(tmp_path: Path) -> None:
    """What lies in site-packages or node_modules is others' code."""
    (tmp_path / "venv" / "site-packages").mkdir(parents=True)
    (tmp_path / "venv" / "site-packages" / "ds_config.json").write_text("{}")
    (tmp_path / "ds_config.json").write_text("{}")
    assert len(read_documents([tmp_path]).documents) == 1


def test_a_named_file_of_another_program_is_told(tmp_path: Path) -> None:
    """A file that the user names is an error when it is another program's, with the program's
    name.
    """
    (tmp_path / "critic.yaml").write_text(FOREIGN["critic.yaml"][0])
    (finding,) = read_documents([tmp_path / "critic.yaml"]).findings
    assert (finding.rule, "Hydra" in finding.message) == ("FILE004", True)


def test_commands_of_trainers_are_read(tmp_path: Path) -> None:
    """`llamafactory-cli train`, as a module too, and `swift sft` take TrainingArguments;
    `llamafactory-cli export` doesn't.
    """
    options = (
        "--output_dir out --deepspeed ds.json --per_device_train_batch_size 2 --report_to none"
    )
    commands = (
        f"llamafactory-cli train --stage sft {options}",
        f"python -m llamafactory.cli train --stage sft {options}",
        f"NPROC_PER_NODE=8 swift sft --model m {options}",
    )
    script = "\n".join(["#!/bin/bash", *commands, f"llamafactory-cli export {options}"])
    found = [
        one
        for one in read(tmp_path, run__sh=script).documents
        if isinstance(one, TrainingArguments)
    ]
    assert [
        (one.integer("per_device_train_batch_size"), one.locate("deepspeed").line) for one in found
    ] == [
        (2, 2),
        (2, 3),
        (2, 4),
    ]
    assert not any(one.complete for one in found)


def test_bad_lines_of_a_hostfile_are_one_finding(tmp_path: Path) -> None:
    """A hostfile whose lines have no slots is one error, with the number of such lines."""
    (tmp_path / "hostfile").write_text("a\nb\nc slots=8\nd\n")
    (finding,) = [found for found in dsgen.validate(tmp_path) if found.rule == "LNCH002"]
    assert (finding.where.line, "2 more lines" in finding.message) == (1, True)
