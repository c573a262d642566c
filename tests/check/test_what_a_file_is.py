"""What only resembles a file of a kind, or is filled in later, is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.check.validate import validate
from dsgen.findings import Severity

_OTHERS = """name: sft-small
resources: {cloud: polaris, accelerators: "A100:4"}
num_nodes: 2
working_dir: .
storage_mounts: {/output: {source: gs://bucket, store: gcs}}
envs: {RUN: sft}
run: launcher distributed torchrun -c sft.yaml
"""


def test_a_task_that_has_keys_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """Several keys that no task of SkyPilot has make it another program's; one is a mistake."""
    job = tmp_path / "job.yaml"
    job.write_text(_OTHERS)
    answer = validate([tmp_path])
    assert answer.left_alone == {str(job): "of another program"}
    assert all(finding.severity is Severity.NOTE for finding in answer.findings)
    job.write_text(_OTHERS.replace("storage_mounts", "file_mounts"))
    assert "SKY001" in {finding.rule for finding in validate([tmp_path]).findings}


def test_dots_in_brackets_are_filled_in(tmp_path: Path) -> None:
    """`<...>` in a script that writes a batch script is left to its user."""
    (tmp_path / "run.sh").write_text(
        '#!/bin/bash\nNODES="<...>"\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$NODES\n'
        "#SBATCH --gpus-per-node=8\nsrun python train.py\nEOF\n"
    )
    assert "SLM028" not in {finding.rule for finding in validate([tmp_path]).findings}


def test_a_block_with_several_blanks_is_filled_in(tmp_path: Path) -> None:
    """`--nodes=` is a blank where others are left too, and a mistake where it is alone."""
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/bash\n#SBATCH --nodes=\n#SBATCH --time=\nsrun python train.py\n")
    assert not {"SLM010", "SLM028"} & {finding.rule for finding in validate([tmp_path]).findings}
    job.write_text("#!/bin/bash\n#SBATCH --nodes=\n#SBATCH --time=60\nsrun python train.py\n")
    assert "SLM028" in {finding.rule for finding in validate([tmp_path]).findings}


@pytest.mark.parametrize("name", ["job-template.yaml", "job.yaml"])
def test_a_template_by_its_name_may_be_no_yaml_yet(name: str, tmp_path: Path) -> None:
    """YAML with names between its values is a template where the file calls itself one."""
    text = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  b: 'All'C_D\n"
    )
    (tmp_path / name).write_text(text)
    answer = validate([tmp_path])
    is_template = "template" in name
    assert ("FILE002" in {finding.rule for finding in answer.findings}) != is_template
    assert bool(answer.left_alone) == is_template


def test_a_name_between_two_signs_is_filled_in(tmp_path: Path) -> None:
    """Values of directives that another program fills in aren't judged; all others are."""
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=#NODES#\n#SBATCH --time=#LIMIT#\n#SBATCH --gpu-per-node=1\n"
        "srun python train.py\n"
    )
    found = {
        f.rule: f.where.line for f in validate([tmp_path]).findings if f.severity.value == "error"
    }
    assert found == {"SLM023": 4}


@pytest.mark.parametrize(("gres", "is_wrong"), [("gpu:3090:4", False), ("gpu:8:1", True)])
def test_a_type_may_be_a_number(gres: str, is_wrong: bool, tmp_path: Path) -> None:
    """A type such as 3090 is one; what looks like a count before the count is none."""
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --gres={gres}\nsrun python a.py\n")
    assert ("SLM029" in {f.rule for f in validate([tmp_path]).findings}) == is_wrong


@pytest.mark.parametrize("is_made", [True, False])
def test_a_wrapper_makes_the_folder_of_the_log(is_made: bool, tmp_path: Path) -> None:
    """The log's folder is there where a script makes it before it calls sbatch."""
    (tmp_path / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --output=logs/%j.out\nsrun python train.py\n"
    )
    make = "mkdir -p logs" if is_made else "echo"
    (tmp_path / "submit.sh").write_text(f"#!/bin/bash\n{make}\nsbatch job.sbatch\n")
    assert ("SLM020" in {f.rule for f in validate([tmp_path]).findings}) != is_made


@pytest.mark.parametrize("is_fetched", [True, False])
def test_what_a_script_fetches_may_be_missing(is_fetched: bool, tmp_path: Path) -> None:
    """A config in a folder that setup.sh clones isn't missed."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\naccelerate launch --config_file configs/acc.yaml train.py\n"
    )
    fetch = "git clone https://x.org/a/configs" if is_fetched else "true"
    (tmp_path / "setup.sh").write_text(f"#!/bin/bash\n{fetch}\n")
    assert ("SUB011" in {f.rule for f in validate([tmp_path]).findings}) != is_fetched


@pytest.mark.parametrize(
    ("keys", "is_spec"),
    [
        (("title", "summary", "items", "model"), False),
        (("title", "summary", "name", "items", "model"), False),
        (("model", "training"), True),
        (("modl", "note"), True),
        (("title", "summary", "items", "model", "gpuss"), True),
    ],
)
def test_a_named_job_spec_is_told_by_more_than_a_model(
    keys: tuple[str, ...], is_spec: bool, tmp_path: Path
) -> None:
    """YAML that the user names is a job spec by half of its keys, or by one that only specs have;
    slips count.
    """
    card = tmp_path / "card.yaml"
    card.write_text("".join(f"{key}: {{a: 1}}\n" for key in keys))
    found = {finding.rule for finding in validate([card]).findings}
    assert (found == {"FILE004"}) != is_spec


POD = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: example/train:1
              command: [torchrun, --nproc-per-node=8, train.py]
              resources:
                limits:
                  nvidia.com/gpu: 8
"""


def test_scripts_in_hidden_folders_are_read(tmp_path: Path) -> None:
    """A script in a hidden folder that starts a job is read, as are pods, and what else starts one
    is named; neither are copies of files.
    """
    texts = {
        ".claude/jobs/train.sh": "#!/bin/bash\ntorchrun --nproc_per_noed=8 train.py\n",
        ".jobs/a.slurm": "#!/bin/bash\n#SBATCH --node=2\nsrun python train.py\n",
        ".jobs/pod.yaml": POD.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 0.5"),
        ".jobs/notes.sh": "echo no job\n",
        ".jobs/train.md": "Run it:\n\n    torchrun --nproc_per_noed=8 train.py\n",
        ".git/train.sh": "torchrun --nproc_per_noed=8 train.py\n",
        ".env/pyvenv.cfg": "",
        ".env/train.sh": "torchrun --nproc_per_noed=8 train.py\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    answer = validate([tmp_path])
    errors = {one.where.path for one in answer.findings if one.severity == "error"}
    assert errors == {str(tmp_path / name) for name in [*texts][:3]}
    hidden = {str(tmp_path / ".jobs/train.md"): "launch lines, in a hidden folder"}
    assert answer.left_alone == hidden


@pytest.mark.parametrize(
    ("lines", "is_gone"),
    [
        ("srun bash trian.sh", True),
        ("[ -f trian.sh ] && srun bash trian.sh", False),
        ("cp /opt/trian.sh .\nsrun bash trian.sh", False),
        ("echo 'echo a' > trian.sh\nsrun bash trian.sh", False),
        ("srun bash other.sh", False),
    ],
)
def test_a_script_that_may_come_is_not_missed(lines: str, is_gone: bool, tmp_path: Path) -> None:
    """A called script is missed where one of a like name is there, and nothing tests or brings
    it.
    """
    (tmp_path / "train.sh").write_text("#!/bin/bash\npython train.py\n")
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n#SBATCH --nodes=1\n{lines}\n")
    assert ("LNCH050" in {f.rule for f in validate([tmp_path]).findings}) == is_gone


@pytest.mark.parametrize(
    ("key", "is_job"),
    [("command: python train.py", True), ("idle_timeout: 2h", False), ("slots: 1", False)],
)
def test_a_job_of_azureml_has_a_command(key: str, is_job: bool, tmp_path: Path) -> None:
    """Files of other programs have names, environments and resources, too."""
    (tmp_path / "job.yaml").write_text(
        f"{key}\nname: a\ndescription: b\nenvironment: {{c: d}}\nresources: {{shm_size: 2}}\n"
    )
    found = {finding.rule for finding in validate([tmp_path]).findings}
    assert any(rule.startswith("AML") for rule in found) == is_job
