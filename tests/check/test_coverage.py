"""What wasn't checked is said, and never taken for a pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.check.validate import validate
from tests.case import read_case
from tests.cli.running import run

GOLDEN = Path(__file__).parent.parent / "golden"
_OPENRLHF = "#!/bin/bash\npython3 -m openrlhf.cli.train_sft --x 1\n"
_BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpu-per-node=8\nsrun python train.py\n"

_UNREAD = {
    "python3 -m verl.trainer.main_ppo data.max_epochs=2": (
        "FSDP, with which verl trains here; only counts and keys are checked"
    ),
    "srun python -m verl.trainer.main_ppo a.b=1": (
        "FSDP, with which verl trains here; only counts and keys are checked"
    ),
    "deepspeed --module openrlhf.cli.train_sft --x 1": (
        "the options of openrlhf.cli.train_sft of OpenRLHF are not read"
    ),
    "uv run rl @ rl.toml --trainer.model.name a/b": "FSDP, with which prime-rl trains here",
    "oumi distributed torchrun -m oumi train -c a.yaml": "the options of Oumi are not read",
    "tune run --nproc_per_node 4 full --config a": "FSDP, with which torchtune trains here",
    "axolotl train a.yaml --x": (
        "the file with the settings of axolotl is not among the files read"
    ),
    "uv run examples/run_grpo.py --config a.yaml a.b=1": (
        "the file with the settings of NeMo RL is not among the files read"
    ),
    "python3 -m verl.trainer.main config=a.yaml": (
        "the file with the settings of EasyR1 is not among the files read"
    ),
    "unsloth train --config a.yaml": "the options of unsloth are not read",
    "python train.py --lr 1": "the options of train.py are its own",
    "ray job submit --address=a -- python3 main.py --x 1": "the options of main.py are its own",
}
#: Launches of which something is judged, and the rest isn't read.
_UNREAD_IN_PART = {
    "torchrun pretrain_gpt.py --yaml-cfg a.yaml": (
        "the settings that --yaml-cfg brings are not read"
    ),
    "torchrun pretrain_gpt.py --num-layers 12 --use-checkpoint-args --load a": (
        "the settings that --use-checkpoint-args brings are not read"
    ),
}
_READ = (
    "torchrun --nproc_per_node 8 train.py",
    "srun python train.py",
    "swift sft --model a --per_device_train_batch_size 1",
    "llamafactory-cli train --output_dir out --learning_rate 1e-5",
)


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write files by their names."""
    for name, text in texts.items():
        (folder / name).write_text(text)


def _left_alone(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    """The reasons why files that are written into a folder aren't judged, by their names."""
    _write(folder, texts)
    return {Path(path).name: reason for path, reason in validate([folder]).left_alone.items()}


@pytest.mark.parametrize(("line", "reason"), (_UNREAD | _UNREAD_IN_PART).items())
def test_a_launch_that_is_not_read_is_not_checked(line: str, reason: str, tmp_path: Path) -> None:
    """A launch of which not every option is judged is named with its line and the reason."""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (only,) = validate([tmp_path]).not_checked
    assert (only.where.line, only.reason) == (2, reason)


@pytest.mark.parametrize("line", _READ)
def test_a_launch_that_is_read_is_checked(line: str, tmp_path: Path) -> None:
    """Options of launchers and arguments that are known are judged."""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    answer = validate([tmp_path])
    assert (answer.not_checked, answer.documents) == ((), 1)


@pytest.mark.parametrize("line", ["make data", "echo done"])
def test_a_script_without_a_launch_is_no_pass(line: str, tmp_path: Path) -> None:
    """A script in which no launch is recognized is not checked, where nothing else was read; what
    sets up a launch beside it is silent.
    """
    (tmp_path / "own.sh").write_text(f"#!/bin/bash\n{line}\n")
    answer = validate([tmp_path])
    assert [(each.of, each.reason) for each in answer.not_checked] == [
        ("script", "no launch is recognized in it")
    ]
    assert answer.documents == 0
    said = run("validate", str(tmp_path), "--require-checked")
    assert said.exit_code == 1 and "not checked: 1 script (no launch" in said.stderr
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{_READ[0]}\n")
    answer = validate([tmp_path])
    assert (answer.not_checked, answer.documents) == ((), 2)


_NOT_RECOGNIZED = {
    "#PBS -l select=2:ngpus=4\nrun-all train.py": (
        2,
        "#PBS lines are not read, and no launch is recognized in it",
    ),
    "rlaunch --gpu 8 -- /jobs/start.sh train.py": (2, "no launch is recognized in it"),
    "site-run -n 2 torchrun train.py": (2, "no launch is recognized in it"),
    "srun --pty bash -c 'cd /work; exec bash'": (2, "no launch is recognized in it"),
    'apptainer exec --nv env.sif "$TOOL" "$@"': (2, "no launch is recognized in it"),
    "queue_job --run 'cd /data; torchrun train.py'": (2, "no launch is recognized in it"),
    'line() {\n  echo "torchrun --nnodes=$1 \\\n train"\n}\neval "$(line 2)"': (
        3,
        "no launch is recognized in it",
    ),
}


@pytest.mark.parametrize("text", _NOT_RECOGNIZED)
def test_a_job_that_is_not_recognized_is_no_pass(text: str, tmp_path: Path) -> None:
    """A script with directives of another scheduler, with a launcher behind an unknown program, or
    with a call of Slurm or a container for one, is not checked, whatever is beside it.
    """
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{_READ[0]}\n")
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{text}\n")
    answer = validate([tmp_path])
    said = [(each.of, (each.where.line, each.reason)) for each in answer.not_checked]
    assert (said, answer.documents) == ([("script", _NOT_RECOGNIZED[text])], 1)


def test_a_text_that_trains_is_not_checked(tmp_path: Path) -> None:
    """A text of `python -c` that trains is named where it stands; one that only asks isn't."""
    text = "#!/bin/bash\npython -c 'import torch; torch.ones(1).backward()'\n"
    (tmp_path / "run.sh").write_text(f"{text}python -c '\nTrainer(model).train()\n'\n")
    answer = validate([tmp_path])
    said = [(each.of, each.where.line, each.reason) for each in answer.not_checked]
    assert said == [("launch", 3, "the text that `python -c` runs trains, and is not read")]
    assert answer.documents == 0
    (tmp_path / "run.sh").write_text(f"{text}python -c 'Trainer(model).train()'\n{_READ[0]}\n")
    assert validate([tmp_path]).documents == 1


def test_a_command_of_a_package_that_trains_is_not_checked(tmp_path: Path) -> None:
    """A package's command with one of its own is named where its options are those of training."""
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nwork = "work:main"\n')
    (tmp_path / "work.py").write_text("def main(): loss().backward()\n")
    (tmp_path / "run.sh").write_text("#!/bin/bash\nwork export --to a\nwork fit --lr 1e-4\n")
    answer = validate([tmp_path])
    said = [(each.of, each.where.line, each.reason) for each in answer.not_checked]
    assert said == [("launch", 3, "what work fit starts is not followed")]


def test_jobs_in_substitutions_are_launches(tmp_path: Path) -> None:
    """A script that keeps the numbers of the jobs that it submits is told by what it submits, as
    one that submits them alone is.
    """
    (tmp_path / "all.sh").write_text("#!/bin/bash\nfirst=$(sbatch --parsable one.sbatch)\n")
    reasons = [each.reason for each in validate([tmp_path]).not_checked]
    assert reasons == ["the options of one.sbatch are its own"]


def test_a_script_that_sbatch_gets_is_read_by_itself(tmp_path: Path) -> None:
    """A line that submits a script which is here has nothing of its own that isn't checked."""
    (tmp_path / "all.sh").write_text("#!/bin/bash\nfirst=$(sbatch --parsable jobs/one.sbatch)\n")
    (tmp_path / "jobs").mkdir()
    job = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
    (tmp_path / "jobs" / "one.sbatch").write_text(job)
    assert not validate([tmp_path]).not_checked


@pytest.mark.parametrize(
    "line", [_READ[0], "python -m torch.distributed.run --nproc-per-node 4 train.py"]
)
def test_what_another_script_calls_is_its_own(line: str, tmp_path: Path) -> None:
    """The launches of a script that another calls are the caller's: it isn't named once more."""
    (tmp_path / "run.sh").write_text("#!/bin/bash\nsrun bash each.sh\n")
    (tmp_path / "each.sh").write_text(f"#!/bin/bash\n{line}\n")
    assert validate([tmp_path]).not_checked == ()


def test_what_no_caller_was_followed_to_is_kept(tmp_path: Path) -> None:
    """A script is judged by itself where the script that calls it is called too deep to go on."""
    handed = "queue_job -c \"bash -c '\n  bash second.sh\n'\""
    (tmp_path / "first.sh").write_text(f"#!/bin/bash\npython data.py\n{handed}\n")
    (tmp_path / "second.sh").write_text("#!/bin/bash\npython check.py\nexec bash third.sh\n")
    (tmp_path / "third.sh").write_text("#!/bin/bash\ntorchrun --nproc_per_nodes=8 train.py\n")
    found = [(finding.rule, finding.where.path) for finding in validate([tmp_path]).findings]
    assert found == [("LNCH025", str(tmp_path / "third.sh"))]


@pytest.mark.parametrize(
    "line",
    [
        "cp torchrun train.py bin",
        "pip install deepspeed",
        "make",
        "srun -l hostname",
        "srun bash -c 'hostname; nvidia-smi'",
        "apptainer build env.sif env.def",
        'eval "$(conda shell.bash hook)"\necho "torchrun train.py starts it"',
    ],
)
def test_a_tool_that_names_a_launcher_starts_none(line: str, tmp_path: Path) -> None:
    """Copying or installing a launcher is no launch, nor is a look at the nodes."""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{_READ[0]}\n")
    (tmp_path / "set_up.sh").write_text(f"#!/bin/bash\n{line}\n")
    answer = validate([tmp_path])
    assert (answer.not_checked, answer.documents) == ((), 2)


def test_a_config_in_a_script_without_a_launch_is_checked(tmp_path: Path) -> None:
    """A script that writes a config of DeepSpeed, which is judged, was read."""
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'
    text = f"#!/bin/bash\ncat > ds_config.json <<EOF\n{config}\nEOF\n"
    (tmp_path / "write.sh").write_text(text)
    answer = validate([tmp_path])
    assert (answer.not_checked, answer.documents) == ((), 1)


def test_a_file_that_a_front_end_reads_is_checked(tmp_path: Path) -> None:
    """A launch is checked where the file that it names is read."""
    (tmp_path / "run.sh").write_text("#!/bin/bash\nllamafactory-cli train sft.yaml\n")
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: a\nstage: sft\ndataset: b\nfinetuning_type: full\noutput_dir: out\n"
    )
    assert validate([tmp_path]).not_checked == ()


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "azure"])
@pytest.mark.parametrize("required", [True, False])
def test_every_format_says_it(form: str, required: bool, tmp_path: Path) -> None:
    """Each format says what was not checked; it is a failure where that is asked for."""
    (tmp_path / "run.sh").write_text(_OPENRLHF)
    more = ["--require-checked"] if required else []
    result = run("validate", str(tmp_path), "--format", form, *more)
    assert result.exit_code == (1 if required else 0)
    assert (
        "not checked: 1 launch (the options of openrlhf.cli.train_sft of OpenRLHF are not read: "
        in result.stderr
    )
    assert "no findings" not in result.stderr
    if form == "json":
        (only,) = json.loads(result.stdout)["not_checked"]
        assert (only["line"], only["column"]) == (2, 12)
    elif form == "sarif":
        (invocation,) = json.loads(result.stdout)["runs"][0]["invocations"]
        (only,) = invocation["toolExecutionNotifications"]
        assert (only["level"], invocation["executionSuccessful"]) == (
            "error" if required else "note",
            not required,
        )
    elif form == "github":
        assert result.stdout.startswith("::error " if required else "::notice ")
        assert "line=2,col=12,title=not checked::not checked: the options" in result.stdout
    elif form == "azure":
        assert "not checked: the options of openrlhf.cli.train_sft of OpenRLHF" in result.stdout
        assert ("type=error" in result.stdout) == required


def test_many_reasons_are_a_line_that_strict_spells_out(tmp_path: Path) -> None:
    """The most frequent reasons are shown with three places each, and all of them with --strict."""
    scripts = ["often.py"] * 5 + [f"once{number}.py" for number in range(9)]
    lines = "".join(f"python {name} --a b\n" for name in scripts)
    (tmp_path / "run.sh").write_text("#!/bin/bash\n" + lines)
    short = run("validate", str(tmp_path)).stderr
    assert "not checked: 14 launches (the options of often.py are its own: " in short
    assert "run.sh:4 and 2 more; the options of once0.py are its own: " in short
    assert "; 4 more for other reasons, which --strict lists)" in short
    assert "once8.py" not in short

    whole = run("validate", str(tmp_path), "--strict").stderr
    assert "run.sh:6" in whole and "once8.py" in whole and "more" not in whole


@pytest.mark.parametrize("name", ["a.sbat", "a.sub", "a.slm", "a.batch", "train"])
def test_a_script_for_sbatch_is_read_whatever_its_name(name: str, tmp_path: Path) -> None:
    """A file with a shell in its first line and directives is read, in a folder and by itself."""
    (tmp_path / name).write_text(_BATCH)
    for path in (tmp_path, tmp_path / name):
        assert "SLM023" in {finding.rule for finding in validate([path]).findings}


def test_a_script_without_a_suffix_is_read(tmp_path: Path) -> None:
    """A file with a shell in its first line and a launch line is read in a folder, too."""
    (tmp_path / "train").write_text("#!/bin/sh\ntorchrun --nproc-per-node 8 \\ \n  train.py\n")
    assert [finding.rule for finding in validate([tmp_path]).findings] == ["LNCH041"]


def test_launch_lines_in_other_files_are_named(tmp_path: Path) -> None:
    """Files without a suffix, templates, and YAML of no known kind are named where they have launch
    lines.
    """
    line = "python -m torch.distributed.run --nproc_per_node 8 a.py"
    texts = {
        "commands": "torchrun \\\n  --nproc_per_node=8 train.py\n",
        "recipe.yaml": f"products:\n  - script: |\n      {line}\n",
        "notes.md": "    deepspeed \\\n      train.py\n",
        "job.yaml-template": "args:\n  - /usr/bin/torchrun\n  - --nproc_per_node=$GPUS\n",
        "build.yaml": "steps:\n- args: ['-c', 'ray job submit -- python train.py']\n",
        "action.yaml": 'runs:\n  run: "${HOME}/.venv/bin/torchrun" train.py\n',
        "tests.yaml": "script: |\n  CMD=$(echo torchrun ${ARGS[@]} -m pytest)\n",
        "write.py": "text = '#!/bin/bash\\\n#SBATCH --nodes=2'\n",
        "pbs.template": "#!/bin/bash\n#PBS -l select=2\n",
        "launch.txt": "srun torchrun --nproc_per_node=8 train.py\n",
        "train.Dockerfile": 'ENTRYPOINT ["torchrun", "--nproc-per-node=8", "train.py"]\n',
        "job.jinja": "command: torchrun --nproc_per_node={{ gpus }} train.py\n",
        "pixi.toml": '[tasks]\ntrain = "accelerate launch train.py"\n',
        "cluster.yaml": "gpu:\n  job: srun -n {tasks} {command}\n",
        "fabfile.py": "c.run(f'mpirun --host {hosts} {command}')\n",
        "queue.yaml": "start: |\n  sbatch --nodes=2 {script}\n",
        "LICENSE": "You may accelerate whatever you like.\n",
        "other.yaml": "text: srun is a command\nproducts:\n  - script: echo torchrun\n",
    }
    left = dict.fromkeys([*texts][:-2], "launch lines, but no script")
    assert _left_alone(tmp_path, texts) == left


def test_job_definitions_of_services_are_named(tmp_path: Path) -> None:
    """Files of services that start jobs, and that aren't read, are named."""
    texts = {
        "definition.json": '{"jobDefinitionName": "a", "type": "multinode", "nodeProperties": {}}',
        "stack.yaml": "Parameters: {}\nResources:\n  Job:\n    Type: AWS::Batch::JobDefinition\n",
        "vertex.yaml": "worker_pool_specs:\n- replica_count: 2\n",
    }
    left = ("of AWS Batch", "of CloudFormation", "of Vertex AI")
    assert tuple(_left_alone(tmp_path, texts).values()) == left


def test_templates_and_submit_files_are_named(tmp_path: Path) -> None:
    """A template is named by what is made of it, and HTCondor's description of a job by its lines;
    other files of these suffixes aren't.
    """
    texts = {
        "ds_config.json.j2": '{"zero_optimization": {"stage": {{ stage }}}, "bf16": {{ bf16 }}}\n',
        "accelerate.yaml.template": "distributed_type: FSDP\nnum_machines: @N@\nnum_processes: 8\n",
        "task.yaml.tmpl": "resources:\n  accelerators: {{ gpus }}\nrun: |\n  python train.py\n",
        "train.sub": "# one GPU\nExecutable = train.sh\nrequest_gpus = 1\nqueue 4\n",
        "config.sub": "#! text\nqueue\n",
        "nginx.yaml.template": "listen: {{ port }}\nworkers: 4\n",
    }
    assert _left_alone(tmp_path, texts) == {
        "ds_config.json.j2": "a template for a DeepSpeed config",
        "accelerate.yaml.template": "a template for an accelerate config",
        "task.yaml.tmpl": "a template for SkyPilot",
        "train.sub": "of HTCondor",
    }


def test_objects_that_run_jobs_are_named_whatever_form_they_have(tmp_path: Path) -> None:
    """A template or a client's dump of a job isn't read, and is named; other objects aren't."""
    texts = {
        "job.tpl": "apiVersion: ray.io/v1\nkind: RayJob\nspec:\n  entrypoint: @START@\n",
        "old.json": "{\n  apiVersion: batch/v1\n  kind: Job\n  spec: class V1JobSpec {\n  }\n}\n",
        "service.tpl": "apiVersion: v1\nkind: Service\nspec:\n  type: @TYPE@\n",
        "words.json": "{\n  kind: Job\n  spec: class V1JobSpec {\n  }\n}\n",
    }
    assert _left_alone(tmp_path, texts) == {
        "job.tpl": "a template for Kubernetes",
        "old.json": "of Kubernetes, but not as JSON or YAML",
    }


def test_a_deepspeed_config_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    """JSON with a name that only DeepSpeed's configs have is one; other text of the name isn't."""
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'
    texts = {"ds_zero_2.config": config, "zero2.conf": "stage = 2\n", "plain.config": config}
    _write(tmp_path, texts)
    checked = validate([tmp_path])
    assert checked.documents == 1
    assert {Path(finding.where.path).name for finding in checked.findings} == {"ds_zero_2.config"}


def test_a_launch_is_checked_whose_parser_is_here(tmp_path: Path) -> None:
    """Options are compared with a whole parser; with one that takes what it doesn't know, not."""
    parser = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--folder')\n"
    )
    texts = {
        "whole.py": f"{parser}parser.parse_args()\n",
        "open.py": f"{parser}parser.parse_known_args()\n",
        "run.sh": "#!/bin/bash\npython whole.py --folder a\npython open.py --folder a\n",
    }
    _write(tmp_path, texts)
    assert [each.where.line for each in validate([tmp_path]).not_checked] == [3]


def test_a_vocabulary_is_not_taken_for_a_template(tmp_path: Path) -> None:
    """A tokenizer's words may include each key of a service's template, among many others."""
    words = ["Resources", "Parameters", "Outputs", *(f"word{number}" for number in range(100))]
    text = json.dumps({word: number for number, word in enumerate(words)})
    assert _left_alone(tmp_path, {"vocab.json": text}) == {}


@pytest.mark.parametrize(
    ("name", "text", "program"),
    [
        ("train.py", "import ray\nray.train.torch.TorchTrainer(f)\n", "Ray"),
        ("job.py", "from azure.ai.ml import command\ncommand(code='.')\n", "AzureML"),
        ("job.ipynb", '"from sagemaker.pytorch import A\\n",\n"A(distribution=d)"\n', "SageMaker"),
        ("plot.py", "import ray\nprint(ray.TorchTrainer)\n", None),
        ("stats.py", "# sagemaker's distribution\n", None),
    ],
)
def test_jobs_that_python_starts_are_named(
    name: str, text: str, program: str | None, tmp_path: Path
) -> None:
    """Python that starts jobs of a program isn't read, and is named."""
    named = {name: f"started from Python by {program}"} if program else {}
    assert _left_alone(tmp_path, {name: text}) == named


def test_what_submitit_wrote_is_left_alone(tmp_path: Path) -> None:
    """A script that submitit wrote for one job is judged only where it is named."""
    path = tmp_path / "22_submission.sh"
    path.write_text(
        "#!/bin/bash\n#SBATCH --signal=USR2@90\n#SBATCH --time=1\n"
        "srun python3 -u -m submitit.core._submit /logs\n"
    )
    answer = validate([tmp_path])
    assert answer.left_alone == {str(path): "written by submitit for one job"}
    assert not [finding for finding in answer.findings if finding.rule == "SLM030"]
    assert [finding for finding in validate([path]).findings if finding.rule == "SLM030"]


@pytest.mark.parametrize("line", ["#PBS -l select=2", "srun --mpi=pmix bash run_and_time.sh"])
def test_a_job_of_any_suffix_is_read(line: str, tmp_path: Path) -> None:
    """A shell script with a scheduler's directive or a step is read, whatever its suffix."""
    (tmp_path / "run.sub").write_text(f"#!/bin/bash\n{line}\n")
    answer = validate([tmp_path])
    assert answer.documents or answer.not_checked


@pytest.mark.parametrize("name", ["README.md", "job.out", "fix.patch"])
def test_prose_about_a_launcher_is_no_broken_script(name: str, tmp_path: Path) -> None:
    """A text that names a launcher, and that no shell reads, is refused as no script."""
    path = tmp_path / name
    path.write_text("Run it for an hour; it isn't fast:\n\n    torchrun train.py\n")
    (only,) = validate([path]).findings
    assert (only.rule, only.message) == (
        "FILE004",
        "this names a launcher, but isn't a shell script",
    )
    assert not validate([path], skip_unknown=True).findings


def test_a_file_that_only_speaks_of_directives_is_no_script(tmp_path: Path) -> None:
    """Without a shell in its first line, or without a directive, a file is left out."""
    (tmp_path / "a.out").write_text("#SBATCH --gpu-per-node=8\n")
    (tmp_path / "b.sub").write_text("#!/bin/bash\n# write #SBATCH --gpu-per-node=8\nsleep 1\n")
    (tmp_path / "c.x").write_text("#!/usr/bin/env python\n#SBATCH --gpu-per-node=8\n")
    assert validate([tmp_path]).documents == 0


_JOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: sft}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: x/y:1
              command: [bash, -c]
              args:
                - |
                  # TEMPLATE="{% for m in messages %}{{ m.content }}{% endfor %}"
                  torchrun train.py
"""


def test_a_template_in_a_comment_makes_no_template_of_the_file(tmp_path: Path) -> None:
    """A job whose script has another language's template in a comment is read, however named."""
    (tmp_path / "job.yaml").write_text(_JOB)
    for path in (tmp_path, tmp_path / "job.yaml"):
        assert validate([path]).documents == 1


def test_a_template_of_a_job_is_said_to_be_one(tmp_path: Path) -> None:
    """YAML that a program makes of a template is left alone as that, and refused when named."""
    job = tmp_path / "job.yaml"
    job.write_text(
        _JOB.replace("      replicas: 1", "{% if big %}\n      replicas: 1\n{% endif %}")
    )
    assert validate([tmp_path]).left_alone == {str(job): "a template for Kubernetes"}
    (only,) = validate([job]).findings
    assert "template" in only.message and "helm template" in (only.hint or "")


def test_no_secret_is_named_as_a_program(tmp_path: Path) -> None:
    """Text that stands where a program would is named without its secrets."""
    line = """sbatch --config '{"api_key": "x7Fq2mZt9Lw4"}' --lr 1"""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    for form in ("text", "json", "github"):
        shown = run("validate", str(tmp_path), "--format", form).output
        assert "are its own" in shown
        assert "x7Fq2mZt9Lw4" not in shown


def test_megatrons_options_of_another_program_are_not_checked(tmp_path: Path) -> None:
    """Options like Megatron's, of a program that lies there without Megatron, are named."""
    line = "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4"
    line += " --tensor-model-parallel-size 3 --seq-length 64 --micro-batch-size 1"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    assert validate([tmp_path]).not_checked == ()  # Megatron's own, which isn't there

    (tmp_path / "pretrain_gpt.py").write_text("from corp.train import main\n\nmain()\n")
    (only,) = validate([tmp_path]).not_checked
    reason = "pretrain_gpt.py has Megatron's options, and nothing that it imports here is"
    assert only.reason == f"{reason} Megatron's"


def test_a_launch_is_checked_in_part(tmp_path: Path) -> None:
    """Counts and keys of a launch are judged, and its engine, which isn't, is named."""
    line = (
        "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=2 "
        "actor_rollout_ref.actor.use_dynamic_bsz=True "
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size="
    )
    (tmp_path / "run.sh").write_text(f"{line}2\n")
    answer = validate([tmp_path])
    assert (answer.documents, len(answer.not_checked)) == (1, 1)

    (tmp_path / "run.sh").write_text(f"{line}3\n")
    answer = validate([tmp_path])
    assert {finding.rule for finding in answer.findings} == {"FRONT004"}
    assert (answer.documents, len(answer.not_checked)) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("ds_config.json\n", "ds_config.json\n# a note\n", None),
        (
            "train.py ",
            "train.py --seq 8192 ",
            "--seq has another value than in arguments.txt, which has those of the plan",
        ),
        (
            "gpus-per-node=8",
            "gpus-per-node=4",
            "the files have nodes of 4 GPUs, and plan.json nodes of 8",
        ),
    ],
)
def test_memory_of_edited_files_is_judged_or_said_why_not(
    old: str, new: str, reason: str | None, tmp_path: Path
) -> None:
    """A script that was edited is judged by the plan beside it, or the difference is named."""
    read_case("MEM001_plan").write("good", tmp_path)
    plan, script = tmp_path / "plan.json", tmp_path / "launch.sbatch"
    plan.write_text(plan.read_text().replace("{", '{"file_hashes": {"launch.sbatch": ""},', 1))
    assert old in script.read_text()
    script.write_text(script.read_text().replace(old, new))
    answer = validate([tmp_path])
    assert [finding.message for finding in answer.findings if finding.rule == "SUB017"]
    assert {each.reason for each in answer.not_checked if each.is_memory} == {reason} - {None}


@pytest.mark.parametrize(
    ("old", "new", "rules", "reason"),
    [
        ("", "", [], None),
        # memory of what a layout says is estimated anew
        ("train.micro_batch_size=1", "train.micro_batch_size=8", ["MEM001"], None),
        ("scheduler.lr_warmup_fraction=0.01", "scheduler.lr_warmup_fraction=0.02", [], None),
        # what else may cost memory isn't read
        (
            "model.cross_entropy_loss_fusion=true",
            "model.cross_entropy_loss_fusion=false",
            [],
            "what model.cross_entropy_loss_fusion changes isn't read",
        ),
    ],
)
def test_memory_of_edited_overrides_is_judged(
    old: str, new: str, rules: list[str], reason: str | None, tmp_path: Path
) -> None:
    """Overrides of Megatron-Bridge are estimated as edited, where a layout says what was; else the
    keys that were changed are named.
    """
    shutil.copytree(GOLDEN / "llama-3.1-70b-bridge", tmp_path / "run")
    path = tmp_path / "run" / "overrides.txt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    answer = validate([tmp_path / "run"])
    assert [one.rule for one in answer.findings if one.severity.value == "error"] == rules
    assert [one.reason for one in answer.not_checked if one.is_memory] == (
        [reason] if reason else []
    )


def test_memory_of_edited_fsdp_of_megatron_is_judged(tmp_path: Path) -> None:
    """The stage of Megatron FSDP is known from its options, so that an edited launch is judged."""
    job = dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": "llama-3-8b",
            "cluster": "dgx-h100",
            "gpus": 32,
            "training": {"sequence_length": 8192, "global_batch": 256},
            "layout": {"zero_stage": 3, "micro_batch": 1, "tensor": 1, "pipeline": 1},
            "launch": {"target": "slurm"},
        }
    )
    found = dsgen.search(job, top=1)
    assert isinstance(found, dsgen.SearchResult)
    for file in dsgen.render(found.plans[0]):
        (tmp_path / file.path).write_text(file.text)
    launch = tmp_path / "launch.sbatch"
    launch.write_text(launch.read_text().replace("--micro-batch-size 1", "--micro-batch-size 8"))
    answer = validate([tmp_path])
    assert "MEM001" in {one.rule for one in answer.findings}
    assert not answer.not_checked


def test_memory_has_one_verdict(tmp_path: Path) -> None:
    """A config that is too large at the least is not said to be not judged as well."""
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true},'
        ' "zero_optimization": {"stage": 1}}'
    )
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n")
    (tmp_path / "job.yaml").write_text(
        "framework: deepspeed\nmodel: llama-3-70b\ncluster: dgx-h100\ngpus: 8\n"
        "training: {sequence_length: 8192, global_batch: 128}\n"
    )
    answer = validate([tmp_path / "ds.json", tmp_path / "run.sh"], job=tmp_path / "job.yaml")
    assert any(
        one.rule == "MEM001" and one.where.path.endswith("ds.json") for one in answer.findings
    )
    assert not any(one.is_memory for one in answer.not_checked)


def test_fsdp_without_a_job_has_no_verdict_on_memory(tmp_path: Path) -> None:
    """What model and machines leave open of FSDP's files is said; without them nobody asked."""
    (tmp_path / "fsdp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"
        "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
        "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}\n"
    )
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file fsdp.yaml sft.py --output_dir o --bf16 true"
        " --per_device_train_batch_size 1 --gradient_accumulation_steps 4"
        " --report_to none --save_strategy no\n"
    )
    asked = validate([tmp_path], model="qwen2.5-32b", cluster="dgx-h100").not_checked
    assert [(one.is_memory, one.reason.partition(":")[0]) for one in asked] == [
        (True, "a job spec says what files with FSDP leave open")
    ]
    assert not validate([tmp_path]).not_checked


@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_written_fsdp_is_judged_alike_on_each_target(tmp_path: Path, target: str) -> None:
    """FSDP's settings are known from a ConfigMap, as from a file beside a script."""
    job = dsgen.load_job(
        {
            "framework": "huggingface",
            "model": "llama-3-8b",
            "cluster": "dgx-h100",
            "gpus": 16,
            "training": {"sequence_length": 4096, "global_batch": 64, "sharding": "fsdp2"},
            "launch": {"target": target},
        }
    )
    found = dsgen.search(job, top=1)
    assert isinstance(found, dsgen.SearchResult)
    for file in dsgen.render(found.plans[0]):
        if file.path != "plan.json":
            (tmp_path / file.path).write_text(file.text)
    answer = validate([tmp_path], model="llama-3-8b", cluster="dgx-h100")
    assert [one.reason.partition(":")[0] for one in answer.not_checked if one.is_memory] == [
        "a job spec says what files with FSDP leave open"
    ]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (None, "the width of the experts, how many a token takes and the layers that have them"),
        (16, "the arguments and the job differ in --num-layers (layers 32 in the job)"),
    ],
)
def test_why_memory_of_experts_is_not_judged(
    tmp_path: Path, layers: int | None, reason: str
) -> None:
    """Without a job the facts that are missing are named, else what differs from it."""
    (tmp_path / "run.sh").write_text(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "torchrun --standalone --nproc-per-node=8 pretrain_gpt.py"
        f" --num-layers {layers or 32} --hidden-size 4096 --num-attention-heads 32"
        " --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --num-experts 8"
        " --moe-router-topk 2 --seq-length 4096 --max-position-embeddings 4096"
        " --micro-batch-size 1 --global-batch-size 64 --bf16 --train-iters 100 --lr 1e-4"
        " --swiglu --untie-embeddings-and-output-weights --position-embedding-type rope"
        " --normalization RMSNorm --disable-bias-linear --use-distributed-optimizer\n"
    )
    flags: dict[str, Any] = {"model": "mixtral-8x7b", "cluster": "dgx-h100"}
    if layers is not None:
        spec = tmp_path.parent / "job.yaml"
        spec.write_text(
            "framework: megatron-lm\nmodel: mixtral-8x7b\ncluster: dgx-h100\ngpus: 8\n"
            "training: {sequence_length: 4096, global_batch: 64}\n"
        )
        flags = {"job": spec}
    reasons = [one.reason for one in validate([tmp_path], **flags).not_checked if one.is_memory]
    assert [one.startswith(reason) for one in reasons] == [True], reasons


def test_expressions_of_azureml_are_the_paths_that_they_stand_for(tmp_path: Path) -> None:
    """Of a job's command, the option alone that was edited has another value than planned."""
    job = dsgen.load_job(
        {
            "name": "run",
            "framework": "deepspeed",
            "model": "llama-3-8b",
            "cluster": "azure/standard_nd96isr_h100_v5",
            "nodes": 2,
            "training": {"sequence_length": 8192, "global_batch": 128, "duration": {"steps": 9}},
            "data": {"path": "azureml:corpus:1/tok"},
            "output": {"checkpoints": "azureml://datastores/training/paths/runs/l8"},
            "launch": {
                "target": "azureml",
                "script": "train.py",
                "azureml": {"compute": "h100", "environment": "training:7"},
            },
        }
    )
    found = dsgen.search(job, top=1)
    assert isinstance(found, dsgen.SearchResult)
    for file in dsgen.render(found.plans[0]):
        (tmp_path / file.path).write_text(file.text)
    written = tmp_path / "job.yml"
    written.write_text(written.read_text().replace("{inputs.data}", "{inputs.other}"))
    reasons = [one.reason for one in validate([tmp_path]).not_checked if one.is_memory]
    assert reasons == [
        "--data_path has another value than in arguments.txt, which has those of the plan"
    ]


def test_a_file_that_a_program_loads_for_itself_is_left_alone(tmp_path: Path) -> None:
    """Arguments in a file that a program loads as YAML, and puts onto a command line, are none of
    the Trainer's file: `1e-4` is a number there.
    """
    path = tmp_path / "defaults.yaml"
    path.write_text(
        "num_train_epochs: 1\ngradient_accumulation_steps: 1\nlr_scheduler_type: linear\n"
        "weight_decay: 0.01\nadam_epsilon: 1e-4\nmax_steps: 100\nlogging_steps: 10\n"
    )
    loads = "arguments = yaml.safe_load(open('defaults.yaml'))\n"
    parser = "from transformers import HfArgumentParser, TrainingArguments\n"
    (tmp_path / "bench.py").write_text(f"{parser}{loads}parser = HfArgumentParser((A,))\n")
    (tmp_path / "train.py").write_text(f"{parser}HfArgumentParser(TrainingArguments)\n")
    assert validate([tmp_path]).left_alone == {
        str(path): "read by a program of the repository's own"
    }
    (tmp_path / "bench.py").write_text(f"{parser}{loads}TrainingArguments(**arguments)\n")
    assert "HF025" in {finding.rule for finding in validate([tmp_path]).findings}


def test_a_file_of_its_own_program_that_names_a_config_is_left_alone(tmp_path: Path) -> None:
    """YAML of no known kind is named where a key of it names a DeepSpeed config."""
    (tmp_path / "run.yaml").write_text("training:\n  deepspeed: configs/zero2.json  # or zero3\n")
    (tmp_path / "pack.yaml").write_text("training:\n  deepspeed: true\n  data: train.json\n")
    assert validate([tmp_path]).left_alone == {
        str(tmp_path / "run.yaml"): "read by a program of the repository's own"
    }


@pytest.mark.parametrize(
    ("keys", "program"),
    [
        ("model dataset optimizer ddp training seed", "another program"),
        ("model dataset optimizer rng step_scheduler loss_fn", "NeMo AutoModel"),
    ],
)
def test_configs_like_those_of_megatron_bridge_are_others(
    keys: str, program: str, tmp_path: Path
) -> None:
    """Several sections that Megatron-Bridge lacks make a config another program's."""
    path = tmp_path / "train.yaml"
    path.write_text("".join(f"{key}: {{a: 1}}\n" for key in keys.split()))
    assert validate([tmp_path]).left_alone == {str(path): f"of {program}"}
