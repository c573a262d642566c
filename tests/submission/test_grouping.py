"""A launch line and what it names is a submission; each config is read as the program that it is
for reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dsgen.check.read import read_documents
from dsgen.check.validate import validate
from dsgen.findings import Finding
from dsgen.programs.deepspeed.submission import configs_of
from dsgen.programs.records import PROGRAMS
from dsgen.submission.grouping import submissions_of
from dsgen.submission.submission import Submission
from dsgen.text.lookup import Files

Contents = Mapping[str, str]

PLAIN = json.dumps(
    {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0}
)
AUTO = json.dumps(
    {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": "auto"},
    }
)
LAUNCH = "#!/bin/bash\ndeepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config {}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: Contents) -> None:
    """Write these files, in the working directory."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def grouped(*paths: str) -> list[Submission]:
    """The submissions at these paths."""
    documents = read_documents(paths).documents
    files = Files(documents, paths)
    return [
        Submission(programs=PROGRAMS, documents=g, around=files)
        for g in submissions_of(documents, files, PROGRAMS)
    ]


def paths_of(*paths: str) -> list[list[str]]:
    """The files of each submission at these paths."""
    return sorted(
        sorted({document.path for document in group.documents}) for group in grouped(*paths)
    )


def found(*paths: str) -> dict[str, list[Finding]]:
    """What `dsgen validate` finds, by rule."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in validate(paths).findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


def test_two_jobs_of_a_folder_are_apart(here: Path) -> None:
    """Each script has the config that it names, and a config that nothing names is by itself."""
    write({"a.sh": LAUNCH.format("a.json"), "b.sh": LAUNCH.format("b.json")})
    write(dict.fromkeys(("a.json", "b.json", "ds_old.json"), PLAIN))
    assert paths_of(".") == [["a.json", "a.sh"], ["b.json", "b.sh"], ["ds_old.json"]]


def test_configs_of_one_name_belong_to_the_script_beside_them(here: Path) -> None:
    """In a repository with many a ds_config.json, a name means the one that the program would
    open.
    """
    for folder in ("one", "two/deep"):
        write(
            {f"{folder}/run.sh": LAUNCH.format("ds_config.json"), f"{folder}/ds_config.json": PLAIN}
        )
    expected = [
        ["one/ds_config.json", "one/run.sh"],
        ["two/deep/ds_config.json", "two/deep/run.sh"],
    ]
    assert paths_of(".") == expected


@pytest.mark.parametrize(
    ("script", "line", "config"),
    [
        ("shell/big/run.sh", LAUNCH.format("ds.json"), "ds.json"),
        ("shell/run.sh", LAUNCH.format("conf/ds.json"), "conf/ds.json"),
        ("run.sh", "cd training\n" + LAUNCH.format("ds.json"), "training/ds.json"),
        ("a/run.sh", LAUNCH.format("$ROOT/conf/zero/ds.json"), "b/conf/zero/ds.json"),
        ("a/run.sh", LAUNCH.format("/workspace/repo/conf/zero/ds.json"), "conf/zero/ds.json"),
        ("a/run.sh", "DIR=../conf\n" + LAUNCH.format("$DIR/ds.json"), "conf/ds.json"),
        ("a/run.sh", LAUNCH.format("ds_${STAGE}_bf16.json"), "a/ds_3_bf16.json"),
        (
            "a/run.sh",
            "if $BIG; then C=$D/ds_a.json; else C=$D/ds_b.json; fi\n" + LAUNCH.format("$C"),
            "a/ds_b.json",
        ),
    ],
)
def test_a_config_is_found_as_the_program_finds_it(
    here: Path, script: str, line: str, config: str
) -> None:
    """From the folders above, the one that the script changes to, by the end of a path, or a
    variable's values.
    """
    write(
        {
            script: line,
            config: PLAIN,
            "other/ds.json": PLAIN,
            "other/run.sh": LAUNCH.format("no.json"),
        }
    )
    assert sorted([script, config]) in paths_of(".")


def test_a_path_whose_end_many_files_have_names_none(here: Path) -> None:
    """What can't be told apart isn't guessed."""
    write(
        {
            "a/run.sh": LAUNCH.format("$ROOT/conf/ds.json"),
            "b/conf/ds.json": PLAIN,
            "c/conf/ds.json": PLAIN,
        }
    )
    assert ["a/run.sh"] in paths_of(".")


def test_code_of_azureml_is_where_its_command_starts(here: Path) -> None:
    """A config in the `code` folder is the job's, and is not missing."""
    job = "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncode: src\n"
    job += (
        "command: deepspeed train.py --deepspeed --deepspeed_config "
        "ds.json\nenvironment: azureml:e:1\n"
    )
    write(
        {
            "jobs/job.yml": job,
            "jobs/src/ds.json": PLAIN,
            "jobs/other.yml": job.replace("ds.json", "no.json"),
        }
    )
    assert ["jobs/job.yml", "jobs/src/ds.json"] in paths_of(".")
    assert [finding.where.path for finding in found(".").get("PARSE003", [])] == ["jobs/other.yml"]


def test_the_only_job_of_a_folder_uses_what_lies_beside_it(here: Path) -> None:
    """A config that nothing names is that of the one job there; with another job, of none."""
    write({"run.sh": "deepspeed train.py\n", "ds_config.json": PLAIN})
    assert paths_of(".") == [["ds_config.json", "run.sh"]]
    write({"run2.sh": "deepspeed train.py\n"})
    assert paths_of(".") == [["ds_config.json"], ["run.sh"], ["run2.sh"]]


def test_a_launcher_reads_only_the_files_that_it_is_given(here: Path) -> None:
    """A hostfile that deepspeed isn't given is not the job's; one whose name isn't known is the
    only one there.
    """
    write({"run.sh": "deepspeed train.py\n", "hostfile": "a slots=8\n", ".deepspeed_env": "A=b\n"})
    assert paths_of(".") == [[".deepspeed_env", "run.sh"], ["hostfile"]]
    write({"run.sh": "deepspeed --hostfile hosts train.py\n"})
    assert paths_of(".") == [[".deepspeed_env", "run.sh"], ["hostfile"]]
    write({"run.sh": 'deepspeed --hostfile "$HOSTS" train.py\n'})
    assert paths_of(".") == [[".deepspeed_env", "hostfile", "run.sh"]]


def test_the_only_job_of_a_path_uses_what_lies_below(here: Path) -> None:
    """A job's folder may have its config in a folder of its own; of two paths, each has its own."""
    write(
        {
            "job/scripts/run.sh": "deepspeed train.py\n",
            "job/configs/ds.json": PLAIN,
            "next/ds.json": PLAIN,
        }
    )
    assert paths_of("job") == [["job/configs/ds.json", "job/scripts/run.sh"]]
    assert paths_of("job", "next") == [
        ["job/configs/ds.json", "job/scripts/run.sh"],
        ["next/ds.json"],
    ]


def test_a_torchrun_does_not_read_a_hostfile_or_an_accelerate_config(here: Path) -> None:
    """What no launcher of the job reads is not held against it."""
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: "
        "1\nnum_processes: 1\n"
    )
    slurm = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n"
    )
    write({"run.sbatch": f"{slurm}srun torchrun --nnodes 2 --nproc_per_node 8 train.py\n"})
    write({"hostfile": "a slots=8\n", "accelerate.yaml": accelerate})
    assert not found(".").keys() & {"SUB001", "SUB002", "SUB003"}


def test_a_script_that_starts_one_other_is_its_job_and_of_several_none(here: Path) -> None:
    """`sbatch train.sh` joins the two; a script that submits many jobs is none of them."""
    write(
        {
            "submit.sh": "sbatch train.sh\n",
            "train.sh": "torchrun train.py\n",
            "more.sh": "torchrun more.py\n",
        }
    )
    assert paths_of(".") == [["more.sh"], ["submit.sh", "train.sh"]]
    write({"submit.sh": "sbatch train.sh\nsbatch more.sh\n"})
    assert paths_of(".") == [["more.sh"], ["submit.sh"], ["train.sh"]]


def test_scripts_that_start_one_another_are_checked_once(here: Path) -> None:
    """A ring of references is one submission."""
    write({"a.sh": "srun bash b.sh\n", "b.sh": "srun bash a.sh\n"})
    assert paths_of(".") == [["a.sh", "b.sh"]]


def test_auto_is_the_trainers_unless_a_line_says_otherwise(here: Path) -> None:
    """A config with "auto" that nothing names is right; for DeepSpeed's own arguments it is an
    error.
    """
    write({"ds_config.json": AUTO})
    assert not [
        finding
        for findings in found(".").values()
        for finding in findings
        if finding.severity.value == "error"
    ]
    write({"run.sh": LAUNCH.format("ds_config.json")})
    assert {"PARSE007", "PARSE008", "PARSE020"} <= found(".").keys()
    write(
        {"run.sh": "#!/bin/bash\ndeepspeed train.py --deepspeed ds_config.json --output_dir out\n"}
    )
    assert not {"PARSE007", "PARSE008", "PARSE020"} & found(".").keys()


def test_a_guessed_reader_draws_no_error_of_its_own(here: Path) -> None:
    """What only Transformers would refuse is no error in a file that nothing names."""
    write(
        {
            "ds_config.json": json.dumps(
                {"train_batch_size": "auto", "zero_optimization": {"overlap_comm": "auto"}}
            )
        }
    )
    findings = found("ds_config.json")
    assert {finding.severity.value for finding in findings["PARSE021"]} == {"note"}
    assert "HF013" not in findings


def test_each_config_has_the_reader_that_names_it(here: Path) -> None:
    """In one folder the Trainer's config, Megatron's, accelerate's and DeepSpeed's are each read as
    theirs.
    """
    megatron = (
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --zero-stage 1"
    )
    write(
        dict.fromkeys(("hf.json", "mds.json", "acc.json", "ds.json", "pl.json", "ddp.json"), PLAIN)
        | {"auto.json": AUTO}
    )
    write(
        {
            "hf.sh": "torchrun run_clm.py --deepspeed hf.json --output_dir o --do_train\n",
            "mds.sh": f"deepspeed pretrain_gpt.py {megatron} --deepspeed "
            "--deepspeed_config mds.json\n",
            "acc.sh": "accelerate launch --use_deepspeed --deepspeed_config_file "
            "acc.json train.py\n",
            "ds.sh": LAUNCH.format("ds.json"),
            "pl.sh": "export PL_DEEPSPEED_CONFIG_PATH=pl.json\npython train.py --strategy "
            "deepspeed_stage_2\n",
            "ddp.sh": "export PL_DEEPSPEED_CONFIG_PATH=ddp.json\npython train.py --strategy ddp\n",
        }
    )
    read = {
        config.path: (config.consumer, config.guessed)
        for one in grouped(".")
        for config in configs_of(one)
    }
    assert read == {
        "hf.json": ("huggingface", False),
        "mds.json": ("megatron-deepspeed", False),
        "acc.json": ("accelerate", False),
        "ds.json": ("deepspeed", False),
        "pl.json": ("lightning", False),
        "ddp.json": ("deepspeed", True),
        "auto.json": ("huggingface", True),
    }


def test_a_missing_config_is_a_note_and_a_slip_an_error(here: Path) -> None:
    """Another name may be a file that is made later; a name with a letter missing is none."""
    write({"ds_config.json": PLAIN, "run.sh": LAUNCH.format("ds_zero2.json")})
    assert [finding.severity.value for finding in found(".")["PARSE003"]] == ["note"]
    for slip in ("ds_confg.json", "ds_cofnig.json", "ds_configs.json", "ds-config.json"):
        write({"run.sh": LAUNCH.format(slip)})
        [finding] = found(".")["PARSE003"]
        assert (finding.severity.value, finding.hint) == (
            "error",
            "did you mean `ds_config.json`?",
        ), slip
    write({"ds_zero3.json": PLAIN, "run.sh": LAUNCH.format("ds_zero2.json")})
    assert [finding.severity.value for finding in found(".")["PARSE003"]] == ["note"]


def test_the_command_line_goes_before_the_file_of_accelerate(here: Path) -> None:
    """`--num_machines` on the line, known or not, replaces the YAML's."""
    config = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: "
        "1\nnum_processes: 8\n"
    )
    slurm = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n"
    line = "srun accelerate launch --config_file acc.yaml {} train.py\n"
    write({"acc.yaml": config, "run.sbatch": slurm + line.format("")})
    assert "SUB002" in found(".")
    write({"run.sbatch": slurm + line.format('--num_machines "$NODES"')})
    assert "SUB002" not in found(".")
    write({"run.sbatch": slurm + "srun python sweep.py --accelerate_config acc.yaml train.py\n"})
    assert not found(".").keys() & {
        "SUB001",
        "SUB002",
    }  # another program reads it, and may set the counts itself


def test_a_template_belongs_to_the_script_that_fills_it_in(here: Path) -> None:
    """What `sed` reads is the script's, wherever it lies, and what it writes is the config of the
    launch line.
    """
    write({"conf/ds_TEMPLATE.json": '{"train_micro_batch_size_per_gpu": MBSIZE}\n'})
    write(
        {
            "a/run.sh": "sed s/MBSIZE/4/ ../conf/ds_TEMPLATE.json > ds.json\n"
            + LAUNCH.format("ds.json")
        }
    )
    assert paths_of(".") == [["a/run.sh", "conf/ds_TEMPLATE.json"]]


def test_steps_of_a_pipeline_and_trials_of_a_sweep_are_jobs(here: Path) -> None:
    """Each step has its own nodes, processes and configs, and its places are those in the file."""
    schema = "$schema: https://azuremlschemas.azureedge.net/latest/{}Job.schema.json\ntype: {}\n"
    step = (
        "code: src\n    command: torchrun --nproc_per_node 4 --node_rank $RANK train.py "
        "--n ${{inputs.n}}\n"
    )
    step += "    environment: azureml:e:1\n    inputs: {n: 1}\n    distribution: {type: pytorch}\n"
    pipeline = (
        f"{schema.format('pipeline', 'pipeline')}jobs:\n  prepare:\n    command: "
        "python prepare.py\n"
    )
    pipeline += (
        f"    environment: azureml:e:1\n  train:\n    {step}    resources: {{instance_count: 2}}\n"
    )
    pipeline += "  rest:\n    component: file:./other.yml\n"
    write({"pipeline.yml": pipeline, "src/train.py": "", "src/ds.json": PLAIN})
    trial = (
        "trial:\n  command: deepspeed train.py --lr ${{search_space.lr}} --deepspeed "
        "--deepspeed_config ds.json\n"
    )
    trial += "  code: src\n  environment: azureml:e:1\nsearch_space: {lr: {type: uniform}}\n"
    write({"sweep.yml": schema.format("sweep", "sweep") + trial})
    assert paths_of(".") == [["pipeline.yml"], ["pipeline.yml"], ["src/ds.json", "sweep.yml"]]
    [finding] = found("pipeline.yml")["AML038"]
    assert (finding.where.line, finding.where.pointer) == (9, "/jobs/train/command")
    assert "SUB002" not in found(".")  # one step has one node, the other two
