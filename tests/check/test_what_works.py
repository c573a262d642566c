"""What runs as it is draws no error, and what fails keeps its own beside it."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

import pytest

import dsgen
from dsgen.check.rules import files_there
from dsgen.programs.launching.own_options import libraries

_HEAD: Final = "#!/bin/bash\n"
_LOOP: Final = (
    f"{_HEAD}for i in 1 2; do\ntorchrun --nproc-per-node=8 t.py \\\n  --lr 1\n  # "
    "torchrun old.py \\\n    %s\ndone\n"
)
_SHOWN: Final = (
    f"{_HEAD}CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch %s --num_processes 8 train.py\n"
)
_PORT: Final = f"{_HEAD}torchrun --nproc-per-node=8 --master-port=%s train.py\n"
_AZURE: Final = """$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: |
  %s
  python train.py --deepspeed ds.json
code: .
environment: azureml:e@latest
compute: azureml:c
"""
_MADE: Final = _AZURE % "echo '{}' > ds.json"
_COPIED: Final = _AZURE % "mkdir out"
_CONFIG: Final = (
    '{"train_batch_size": 16, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, %s}'
)
_READS: Final = "import json\nprofile = json.load(open('ds.json'))['profile']\n"
_PROFILE: Final = {"ds.json": _CONFIG % '"profile": {"profile_step": 3}'}
_SFT: Final = (
    "output_dir: out\nper_device_train_batch_size: two\nlearning_rate: "
    "1.0e-5\nnum_train_epochs: 3\nbf16: true\n"
)
_PARSES: Final = (
    "from transformers import HfArgumentParser, "
    "TrainingArguments\nHfArgumentParser(TrainingArguments)%s\n"
)
_BY_ARGUMENT: Final = {
    "configs/sft.yaml": _SFT,
    "train.py": _PARSES % ".parse_yaml_file(sys.argv[1])",
}
_BY_NAME: Final = {"sft.yaml": _SFT, "src/train.py": _PARSES % ".parse_yaml_file('sft.yaml')"}
_OPTION: Final = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--%s')\np.parse_args()\n"
)
_TWO: Final = {
    "scripts/run.sh": "torchrun eval.py --mask 1 --mask 2 --win 4\n",
    "scripts/eval.py": _OPTION % "mask",
}
_INFERENCE: Final = '{"kernel_inject": true, "tensor_parallel": {"tp_size": 8}, "dtype": "fp16"}'
_MULTI_GPU: Final = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
deepspeed_config:
  deepspeed_config_file: ds/local.json
"""
_ARRAY: Final = (
    f"{_HEAD}COMMAND=(\n  srun torchrun --nproc-per-node=8 t.py \\\n  --lr 1 \\\n  "
    "#--wd 1 \\\n  --seed 1\n)\n"
)
_IDS: Final = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\ngpu_ids: "
    "1,2\nnum_processes: 8\n"
)
_PER_TASK: Final = (
    f"{_HEAD}#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1\nsrun python t.py\n"
)
_SEES: Final = "import os, torch\nrank = int(os.environ['LOCAL_RANK'])\n"
_OLD: Final = (
    "torchrun t.py --per_device_train_batch_size 1 --learning_rate 1 --output_dir o "
    "--evaluation_strategy no\n"
)
_COPY: Final = {
    f"transformers/src/transformers/{name}.py": text
    for name, text in {"__init__": "__version__ = '4.30.0'\n", "training_args": ""}.items()
}
_AUTO: Final = _CONFIG % '"gradient_clipping": "auto"'
_GUESSED: Final = {
    "ds.json": _AUTO,
    "run.sh": "deepspeed gone.py --deepspeed --deepspeed_config ds.json\n",
}
_HANDS: Final = "args = TrainingArguments(deepspeed='/home/me/ds.json')\n"
_BATCHES: Final = '"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1'
_STAGED: Final = {
    "ds.json": _CONFIG % _BATCHES,
    "run.sh": "deepspeed --num_gpus 2 t.py --deepspeed_config ds.json\n",
}
_STAGES: Final = (
    "from deepspeed.pipe import PipelineModule\nPipelineModule([], num_stages=world_size())\n"
)
_PARKED: Final = (
    f"{_HEAD}torchrun --nproc-per-node=8 t.py \\\n  --lr 1\n%s  --wd 1 \\\n  --seed 1\n"
)
_SLICED: Final = f"{_HEAD}#SBATCH --gpus=2g.10gb\nsrun python t.py\n"
_LOGS: Final = {"job.sh": "#!/bin/bash\n#SBATCH --output=logs/%j.out\nsrun hostname\n"}


def _severities(folder: Path, files: dict[str, str], rule: str) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [one.severity.value for one in dsgen.validate(folder) if one.rule == rule]


@pytest.mark.parametrize(
    ("rule", "files", "severities"),
    [
        pytest.param(
            "LNCH041", {"run.sh": _LOOP % "wait"}, [], id="a command further in, below a comment"
        ),
        pytest.param("LNCH041", {"run.sh": _ARRAY}, [], id="a comment in an array"),
        pytest.param(
            "LNCH042",
            {**_TWO, "eval.py": _OPTION % "win"},
            [],
            id="an option of a namesake further up",
        ),
        pytest.param("LNCH042", _TWO, ["error"], id="an option that the only program lacks"),
        pytest.param(
            "PARSE016",
            {"ds_config.json": "version https://git-lfs.github.com/spec/v1\n"},
            [],
            id="a pointer",
        ),
        pytest.param(
            "PARSE020",
            {**_GUESSED, "hf.py": _HANDS},
            [],
            id="a config that code hands to the Trainer",
        ),
        pytest.param(
            "PARSE020",
            {**_GUESSED, "t.py": 'x["gradient_clipping"] = 1\n'},
            [],
            id="a key that code sets",
        ),
        pytest.param(
            "PARSE020",
            _GUESSED,
            ["error"],
            id="a config for the engine of a program that isn't there",
        ),
        pytest.param(
            "BATCH001", {**_STAGED, "t.py": _STAGES}, [], id="a pipeline of unknown stages"
        ),
        pytest.param("BATCH001", _STAGED, ["error"], id="a batch over GPUs"),
        pytest.param(
            "BATCH004", {"deepspeed_config.json": _INFERENCE}, [], id="a config of an inference"
        ),
        pytest.param(
            "ACC011",
            {"a.yaml": _MULTI_GPU, "ds/b.json": "{}"},
            ["note"],
            id="a config that isn't there",
        ),
        pytest.param(
            "ACC006", {"a.yaml": _IDS}, ["note"], id="processes that a launch line may count anew"
        ),
        pytest.param(
            "SLM004", {"run.sh": _PER_TASK, "t.py": _SEES}, ["warning"], id="a GPU by LOCAL_RANK"
        ),
        pytest.param(
            "SLM004",
            {"run.sh": _PER_TASK, "t.py": f"{_SEES}if torch.cuda.device_count() == 1: rank = 0\n"},
            ["note"],
            id="a program that counts its GPUs",
        ),
        pytest.param(
            "MLM031",
            {"run.sh": "megatron sft --model a --dataset b.jsonl --save /ckpt --min_lr 1e-6\n"},
            [],
            id="a front end's own interval of saves",
        ),
        pytest.param(
            "HF023", {"run.sh": _OLD}, ["warning"], id="an argument that the newest release lacks"
        ),
        pytest.param(
            "HF023", {"run.sh": _OLD, **_COPY}, ["note"], id="a release that is carried in a folder"
        ),
        pytest.param(
            "LNCH041", {"run.sh": _LOOP % ". env.sh"}, [], id="a file that is sourced there"
        ),
        pytest.param(
            "LNCH041",
            {"run.sh": _LOOP % "data/c4.jsonl \\\n    --x"},
            ["error"],
            id="a file of data there",
        ),
        pytest.param(
            "LNCH035",
            {"run.sh": _PORT % ("9" * 5_000)},
            ["error"],
            id="a number of 5,000 digits for a port",
        ),
        pytest.param(
            "LNCH035", {"run.sh": _PORT % "80"}, ["warning"], id="a port that a container may open"
        ),
        pytest.param(
            "ENV003",
            {"run.sh": _SHOWN % ""},
            ["warning"],
            id="machines that the user's configuration may name",
        ),
        pytest.param(
            "ENV003",
            {"run.sh": _SHOWN % "--num_machines 1"},
            ["error"],
            id="ranks beyond one machine's GPUs",
        ),
        pytest.param("AML043", {"job.yml": _MADE}, [], id="a config that the command writes first"),
        pytest.param("AML043", {"job.yml": _COPIED}, ["error"], id="a config that nothing brings"),
        pytest.param(
            "PARSE004",
            {"ds.json": _CONFIG % '"env": {"seed": 1}'},
            ["note"],
            id="a seed in a section",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _CONFIG % '"comm": {"enabled": true}'},
            ["note"],
            id="a common key alone",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _CONFIG % '"data": {"seed": 1}'},
            ["note"],
            id="the start of two names",
        ),
        pytest.param("PARSE004", _PROFILE, ["error"], id="a key that one section alone has"),
        pytest.param(
            "PARSE004",
            {**_PROFILE, "train.py": _READS},
            ["note"],
            id="a section that a program reads",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _CONFIG % '"optim": {"type": "AdamW", "params": {}}'},
            ["error"],
            id="a section's name cut short",
        ),
        pytest.param(
            "HF025",
            {**_BY_ARGUMENT, "run.sh": f"{_HEAD}torchrun train.py configs/$1.yaml\n"},
            ["error"],
            id="a name that is an argument, in a folder",
        ),
        pytest.param(
            "HF025",
            {**_BY_ARGUMENT, "run.sh": f"{_HEAD}torchrun train.py other/$1.yaml\n"},
            ["note"],
            id="a name that is an argument, in another folder",
        ),
        pytest.param(
            "HF025",
            {**_BY_NAME, ".gitignore": "# built from src\n"},
            ["error"],
            id="a comment on a folder",
        ),
        pytest.param(
            "HF025",
            {**_BY_NAME, ".gitignore": "src/\n!src/\n"},
            ["error"],
            id="a folder that is kept",
        ),
        pytest.param(
            "HF025", {**_BY_NAME, ".gitignore": "/src/*\n"}, ["note"], id="a folder that is ignored"
        ),
        pytest.param(
            "SLM020",
            {**_LOGS, ".gitignore": "# logs are large\n"},
            ["warning"],
            id="a comment on logs",
        ),
        pytest.param(
            "SLM020", {**_LOGS, ".gitignore": "/logs/*.out\n"}, ["note"], id="files in a folder"
        ),
    ],
)
def test_certainty(rule: str, files: dict[str, str], severities: list[str], tmp_path: Path) -> None:
    """A rule is as sure as the case allows that its name says."""
    assert _severities(tmp_path, files, rule) == severities


def test_keys_with_other_remedies_are_told_apart(tmp_path: Path) -> None:
    """Of keys that accelerate ignores, each that is like a known one has the hint of its own."""
    keys = "".join(
        f"  {key}: 3\n"
        for key in ("gradient_clipping_level", "offload_param_device_type", "foo", "bar")
    )
    (tmp_path / "accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: "
        "1\nnum_processes: 8\n"
        f"deepspeed_config:\n  zero_stage: 3\n{keys}"
    )
    found = {one.where.line: one.hint for one in dsgen.validate(tmp_path) if one.rule == "ACC008"}
    assert found == {
        7: "did you mean gradient_clipping?",
        8: "did you mean offload_param_device?",
        9: "move them into the JSON that deepspeed_config_file names",
    }


def test_a_program_of_any_length_takes_little_memory(tmp_path: Path) -> None:
    """A program of a million characters, of which each two are a statement, is not parsed."""
    (tmp_path / "train.py").write_text(
        "import deepspeed\ndeepspeed.initialize()\n" + "a\n" * 490_000
    )
    assert libraries(tmp_path / "train.py") is None
    (tmp_path / "small.py").write_text("import deepspeed\ndeepspeed.initialize()\n" + "a\n" * 9)
    assert libraries(tmp_path / "small.py") == ("deepspeed",)


def test_a_path_of_very_many_folders_is_not_searched_for_slips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each folder of a program's path may be the slip, but not of one with hundreds of them."""
    searched: list[str] = []
    monkeypatch.setattr(files_there, "names_in", lambda *asked: searched.append(asked[0]) or ())
    for depth, expected in ((4, True), (400, False)):
        searched.clear()
        program = PurePath(*["run_"] * depth, "train.py")
        assert files_there._by_folder(program, str(tmp_path / "run.sh")) is None
        assert bool(searched) is expected
