"""Files that nothing is known to start, and circumstances in which a run goes on: notes, or
nothing.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Final

import pytest

import dsgen

_OFFLOADS: Final = (
    '{"train_batch_size": 8, "gradient_clipping": 1.0, "bf16": {"enabled": true}, '
    '"zero_optimization": '
    '{"stage": 2, "offload_param": {"device": "cpu"}}}'
)
_ACCELERATE: Final = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: "
    "1\nnum_processes: 8\n"
    "machine_rank: 0\nmixed_precision: bf16\n"
)
_SLURM: Final = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
)
_MEGATRON: Final = (
    "#!/bin/bash\ntorchrun --nproc_per_node=4 pretrain_gpt.py --num-layers 48 --hidden-size 64 "
    "--num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 {}\n"
)


def _severities(folder: Path, rule: str) -> list[str]:
    return [found.severity.value for found in dsgen.validate(folder) if found.rule == rule]


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        pytest.param("train.py", "import deepspeed\n", "note", id="nothing"),
        pytest.param("train.py", 'CONFIG = "ds_config.json"\n', "error", id="code"),
        pytest.param("train.py", '# deepspeed="ds_config.json" is gone\n', "note", id="a comment"),
        pytest.param("train.py", 'path = f"ds_{name}.json"\n', "error", id="a part of the name"),
        pytest.param("train.py", 'path = f"{name}.json"\n', "note", id="any name"),
        pytest.param(
            "README.md", "| `ds_config.json` | what the trainer reads |\n", "note", id="prose"
        ),
        pytest.param(
            "README.md",
            "deepspeed train.py --deepspeed ds_config.json\n",
            "error",
            id="a command in prose",
        ),
        pytest.param("test_configs.py", 'NAMES = ["ds_config.json"]\n', "note", id="a test"),
        pytest.param(".cache/run.py", 'CONFIG = "ds_config.json"\n', "note", id="a hidden folder"),
        pytest.param(
            "env/site-packages/run.py", 'CONFIG = "ds_config.json"\n', "note", id="a library"
        ),
        pytest.param(
            "outputs/run.py", 'CONFIG = "ds_config.json"\n', "note", id="an ignored folder"
        ),
    ],
)
def test_a_config_is_used_where_it_is_named(
    tmp_path: Path, name: str, text: str, severity: str
) -> None:
    """What a config does wrong is an error where code or a command names it, and a note where
    nothing does.
    """
    (tmp_path / "ds_config.json").write_text(_OFFLOADS)
    (tmp_path / "main.py").write_text("")
    (tmp_path / ".gitignore").write_text("/outputs/\n")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert _severities(tmp_path, "ZERO006") == [severity]
    assert _severities(tmp_path / "ds_config.json", "ZERO006") == ["error"]


_LONG: Final = {
    "names": "$.json" * 150_000,
    "words": "a.json " * 100_000,
    "a": "a" * 900_000,
    "made": "x{a}.json\n" * 90_000,
}


@pytest.mark.parametrize("name", _LONG)
def test_names_of_configs_are_found_soon(tmp_path: Path, name: str) -> None:
    """No text of a file beside a config makes it take long to find out whether that is named."""
    (tmp_path / "ds_config.json").write_text(_OFFLOADS)
    (tmp_path / "train.py").write_text(_LONG[name])
    start = time.process_time()
    assert _severities(tmp_path, "ZERO006") == ["note"]
    assert time.process_time() - start < 10


def test_names_of_variables_are_found_soon(tmp_path: Path) -> None:
    """A long line of brackets beside a launch line takes no long time to search for tests of
    variables.
    """
    (tmp_path / "run.sh").write_text(
        "A=1\ntorchrun train.py --model $MODEL\necho '" + "[" * 900_000 + "'\n"
    )
    start = time.process_time()
    assert _severities(tmp_path, "ENV005") == ["note"]
    assert time.process_time() - start < 10


def test_names_with_spaces_are_looked_for_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of n lines `name = 5` none searches the whole script for its name."""
    text = "".join(f"nm{index} = 5\n" for index in range(500)) + "torchrun train.py\n"
    searched, search = list[str](), re.search
    monkeypatch.setattr(re, "search", lambda *given: searched.append(given[1]) or search(*given))
    (tmp_path / "run.sh").write_text(text)
    assert _severities(tmp_path, "ENV002") == []
    assert searched.count(text) < 5


def test_variables_by_other_builtins_are_files_of_them(tmp_path: Path) -> None:
    """A file that `builtin source` reads may set every variable that the launch line names."""
    line = "torchrun train.py --model $MODEL\n"
    (tmp_path / "run.sh").write_text(f"A=1\ncommand -v nvcc\n{line}")
    assert _severities(tmp_path, "ENV005") == ["note"]
    (tmp_path / "run.sh").write_text(f"A=1\nbuiltin source .env\n{line}")
    assert _severities(tmp_path, "ENV005") == []


def test_an_accelerate_config_is_used_where_it_is_named(tmp_path: Path) -> None:
    """An unknown key is a note in a config that nothing starts, an error where its own comment has
    the command.
    """
    config = tmp_path / "accelerate_config.yaml"
    (tmp_path / "train.py").write_text("")
    config.write_text(f"{_ACCELERATE}use_ipex: false\n")
    assert _severities(tmp_path, "ACC001") == ["note"]
    config.write_text(
        f"# accelerate launch --config_file {config.name} train.py\n{_ACCELERATE}use_ipex: false\n"
    )
    assert _severities(tmp_path, "ACC001") == ["error"]


def test_slips_and_broken_text_are_errors_anywhere(tmp_path: Path) -> None:
    """A name with a slip, and text that no program can read, are errors in a config that nothing
    names.
    """
    (tmp_path / "train.py").write_text("")
    config = tmp_path / "ds_config.json"
    config.write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": true}}'
    )
    assert _severities(tmp_path, "PARSE005") == ["error"]
    config.write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}')
    assert _severities(tmp_path, "PARSE016") == ["error"]


def test_copies_of_libraries_draw_notes(tmp_path: Path) -> None:
    """A script in a copy of transformers that a project carries draws notes, and errors where the
    copy is named.
    """
    copy = tmp_path / "transformers-4.54.0"
    (copy / "src" / "transformers").mkdir(parents=True)
    (copy / "src" / "transformers" / "training_args.py").write_text("")
    (copy / "examples").mkdir()
    script = copy / "examples" / "run.sh"
    script.write_text("#!/bin/bash\ntorchrun train.py \\\n  --lr 1\n  --bf16\n")
    assert _severities(tmp_path, "LNCH041") == ["note"]
    assert [_severities(named, "LNCH041") for named in (copy, copy / "examples", script)] == [
        ["error"]
    ] * 3


def test_own_folders_in_a_fork_are_no_copy(tmp_path: Path) -> None:
    """A script in a folder that DeepSpeed's releases lack draws errors, though DeepSpeed's sources
    lie beside it.
    """
    fork = tmp_path / "fork"
    (fork / "deepspeed" / "runtime").mkdir(parents=True)
    (fork / "deepspeed" / "runtime" / "config.py").write_text("")
    (fork / "myruns").mkdir()
    (fork / "myruns" / "run.sh").write_text(
        "#!/bin/bash\ntorchrun train.py \\\n  --lr 1\n  --bf16\n"
    )
    assert _severities(tmp_path, "LNCH041") == ["error"]


def test_arguments_in_another_folder_are_used_where_code_names_them(tmp_path: Path) -> None:
    """The only arguments below a folder are those of its only job where a program has their
    name.
    """
    (tmp_path / "configs").mkdir()
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true}}'
    )
    arguments = {
        "output_dir": "out",
        "bf16": True,
        "per_device_train_batch_size": 1,
        "num_train_epochs": 1,
    }
    (tmp_path / "configs" / "training.json").write_text(json.dumps(arguments))
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\naccelerate launch --deepspeed_config_file ds.json train.py\n"
    )
    (tmp_path / "train.py").write_text("parser = HfArgumentParser(TrainingArguments)\n")
    assert _severities(tmp_path, "HF001") == []
    (tmp_path / "train.py").write_text(
        'HfArgumentParser(TrainingArguments).parse_json_file("training.json")\n'
    )
    assert "error" in _severities(tmp_path, "HF001")


def test_values_that_a_script_leaves_empty_are_to_be_filled_in(tmp_path: Path) -> None:
    """An argument without a value is a note where a variable behind it is left empty, whatever
    others are empty.
    """
    line = (
        "deepspeed train.py --model_name_or_path m --output_dir {} --num_train_epochs 1 "
        "--save_strategy no\n"
    )
    (tmp_path / "run.sh").write_text(f'OUT=""\n{line.format("$OUT")}')
    assert _severities(tmp_path, "HF025") == ["note"]
    (tmp_path / "run.sh").write_text(line.format(""))
    assert _severities(tmp_path, "HF025") == ["warning"]
    (tmp_path / "run.sh").write_text(f'OUT=""\n{line.format("").rstrip()} $OUT\n')
    assert _severities(tmp_path, "HF025") == ["warning"]


def test_a_page_of_templates_is_no_job(tmp_path: Path) -> None:
    """#SBATCH lines without a command are a part of other scripts: what is wrong with them is a
    note.
    """
    (tmp_path / "templates.sh").write_text(
        "#!/bin/bash\n#SBATCH --time=2:00:00\n# large:\n#SBATCH --time=8:00:00\n"
    )
    assert _severities(tmp_path, "SLM033") == ["note"]


def test_lightning_completes_a_config(tmp_path: Path) -> None:
    """A config without a batch is right for a program with Lightning's Trainer, and wrong for
    another.
    """
    (tmp_path / "ds.json").write_text(
        '{"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}'
    )
    (tmp_path / "job.sh").write_text("python train.py --deepspeed_config_path ds.json\n")
    (tmp_path / "train.py").write_text("import deepspeed\n")
    assert _severities(tmp_path, "BATCH004") == ["error"]
    (tmp_path / "train.py").write_text(
        "import pytorch_lightning as pl\npl.Trainer(strategy=of(args))\n"
    )
    assert _severities(tmp_path, "BATCH004") == []


def test_folders_that_a_pattern_ignores_are_there(tmp_path: Path) -> None:
    """A log's folder that a pattern of .gitignore fits is there for whoever works with the
    repository.
    """
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --output=logs/%j.out\nsrun hostname\n")
    assert _severities(tmp_path, "SLM020") == ["warning"]
    (tmp_path / ".gitignore").write_text("log*\n")
    assert _severities(tmp_path, "SLM020") == ["note"]
    (tmp_path / ".gitignore").unlink()
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH -D /work/me\n#SBATCH --output=logs/%j.out\nsrun hostname\n"
    )
    assert _severities(tmp_path, "SLM020") == ["note"]


def test_gpus_are_left_to_what_else_a_script_starts(tmp_path: Path) -> None:
    """Fewer processes than GPUs are an error, and nothing where the script has another launch
    line.
    """
    head = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    )
    line = (
        "srun accelerate launch --num_machines 2 --num_processes 8 --machine_rank "
        "$SLURM_NODEID train.py\n"
    )
    (tmp_path / "run.sh").write_text(head + line)
    assert _severities(tmp_path, "SUB001") == ["error"]
    (tmp_path / "run.sh").write_text(f"{head}srun python serve.py &\n{line}")
    assert _severities(tmp_path, "SUB001") == []


def test_nodes_are_left_to_what_else_a_script_starts(tmp_path: Path) -> None:
    """Fewer nodes than are asked for are an error, and a note where the script has another launch
    line.
    """
    head = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    )
    line = (
        "srun --nodes=1 --ntasks=1 accelerate launch --num_machines 1 --num_processes 8 train.py\n"
    )
    (tmp_path / "run.sh").write_text(head + line)
    assert _severities(tmp_path, "SUB002") == ["error"]
    (tmp_path / "run.sh").write_text(f"{head}srun --nodes=1 --ntasks=1 python serve.py &\n{line}")
    assert _severities(tmp_path, "SUB002") == ["note"]


def test_keys_that_accelerate_ignores_are_told_at_once(tmp_path: Path) -> None:
    """Unknown keys of deepspeed_config are one finding, slips apart."""
    keys = (
        "deepspeed_config:\n  zero_stage: 3\n  overlap_comm: false\n  reduce_scatter: false\n  "
        "zero3_init_flg: true\n"
    )
    (tmp_path / "accelerate.yaml").write_text(_ACCELERATE.replace("MULTI_GPU", "DEEPSPEED") + keys)
    found = {
        one.message: one.severity.value for one in dsgen.validate(tmp_path) if one.rule == "ACC008"
    }
    assert found == {
        "unknown keys overlap_comm, reduce_scatter in deepspeed_config: "
        "accelerate ignores them": "warning",
        "unknown key zero3_init_flg in deepspeed_config: accelerate ignores it": "error",
    }


def test_another_programs_yaml_is_not_accelerates(tmp_path: Path) -> None:
    """A file that has two of accelerate's keys among many others is another program's."""
    keys = "".join(f"option_{number}: {number}\n" for number in range(9))
    (tmp_path / "trainer.yaml").write_text(
        f"distributed_type: MULTI_GPU\nmixed_precision: bf16\n{keys}"
    )
    assert _severities(tmp_path, "ACC001") == []


def test_empty_values_are_to_be_filled_in(tmp_path: Path) -> None:
    """A port that is left empty is a note, and an empty interface is as good as none to NCCL."""
    (tmp_path / "run.sh").write_text(
        f'{_SLURM}port=\nexport NCCL_SOCKET_IFNAME="${{NCCL_SOCKET_IFNAME:-}}"\n'
        "srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=4 "
        "--master-port=$port train.py\n"
    )
    assert _severities(tmp_path, "LNCH035") == ["note"]
    assert _severities(tmp_path, "NCCL001") == []


def test_unused_gpus_of_each_node_are_told_once(tmp_path: Path) -> None:
    """Fewer ranks than a node has GPUs, on all nodes of the job, start and train: one warning."""
    (tmp_path / "run.sh").write_text(
        f"{_SLURM}srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=1 "
        "--rdzv-endpoint=$HEAD:1 train.py\n"
    )
    assert _severities(tmp_path, "SUB001") == []
    assert _severities(tmp_path, "SUB003") == ["warning"]


def test_options_that_a_program_lacks_are_told_at_once(tmp_path: Path) -> None:
    """Options of a launch line that its program doesn't have are one finding."""
    options = "".join(
        f"parser.add_argument('--{name}')\n" for name in ("data", "lr", "steps", "seed", "output")
    )
    (tmp_path / "train.py").write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\n{options}args = "
        "parser.parse_args()\n"
    )
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\ntorchrun train.py --data d --lr 1 --steps 9 --seed 1 --output o "
        "--validate_every 2 --keep 3\n"
    )
    (found,) = [one for one in dsgen.validate(tmp_path) if one.rule == "LNCH042"]
    assert found.message == "train.py has no options --validate_every, --keep"


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        (
            "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --distribution=nopack\nsrun hostname\n",
            "SLM056",
        ),
        ("#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:48gb:1\nsrun hostname\n", "SLM029"),
        ("#!/bin/bash\ntorchrun --nproc-per-node=8 train.py --prompt=a\\ plane\\ \n", "LNCH041"),
        (f"{_SLURM}if torchrun --help | grep -q local-addr; then echo new; fi\n", "SLM059"),
        (
            f"{_SLURM}srun --nodes=1 -w $NODE torchrun --nnodes=2 --node_rank=0 "
            "--master_addr=$H train.py\n",
            "LNCH029",
        ),
        (
            f"{_SLURM}srun --kill-on-bad-exit=1 hostname\nexit 0\n\n  --lr 1 \\\n  --bf16\n",
            "LNCH041",
        ),
        (
            "N=${1:-all}\nif [ $N = all ]; then\n  torchrun --nproc-per-node=gpu a.py\nelse\n  "
            "torchrun --nproc-per-node=$N a.py\nfi\n",
            "LNCH031",
        ),
        (
            f"{_SLURM}# Submit it so:\n#sbatch -p gpu --time=1:00:00 run.sh\nsrun hostname\n",
            "SLM035",
        ),
    ],
)
def test_what_is_meant_draws_nothing(tmp_path: Path, script: str, rule: str) -> None:
    """A distribution that sbatch takes, a blank at the end of a word, a launcher that is asked for
    its options, a step on one node, what comes after `exit`, a branch for another value, and a
    command in a comment are as is meant.
    """
    (tmp_path / "run.sh").write_text(script)
    assert _severities(tmp_path, rule) == []


def test_a_template_is_filled_by_another_script(tmp_path: Path) -> None:
    """#SBATCH lines with placeholders and no #! are a part of a script that is put together
    elsewhere.
    """
    (tmp_path / "head.sh").write_text(
        "#SBATCH --nodes=<NODES>\n#SBATCH --time=<TIME>\nmodule load cuda\n"
    )
    assert _severities(tmp_path, "SLM032") == ["note"]


@pytest.mark.parametrize(
    ("parser", "rule"),
    [
        (
            "args.pipeline_model_parallel_size = min(args.pipeline_model_parallel_size, world)\n",
            "MLM001",
        ),
        ("if args.mode:\n    assert args.micro_batch_size is None, 'the mode sets it'\n", "MLM052"),
    ],
)
def test_a_forks_parser_decides(tmp_path: Path, parser: str, rule: str) -> None:
    """Where Megatron's own parser cuts the pipeline to the GPUs, or sets the micro-batch in a mode,
    it is right.
    """
    options = (
        "num-layers",
        "hidden-size",
        "num-attention-heads",
        "seq-length",
        "max-position-embeddings",
    )
    more = ("micro-batch-size", "pipeline-model-parallel-size", "mode")
    known = "".join(f"group.add_argument('--{name}')\n" for name in (*options, *more))
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "arguments.py").write_text(known)
    (tmp_path / "pretrain_gpt.py").write_text("from megatron.arguments import parse_args\n")
    rest = (
        "--micro-batch-size 1 --pipeline-model-parallel-size 16" if rule == "MLM001" else "--mode 1"
    )
    (tmp_path / "run.sh").write_text(_MEGATRON.format(rest))
    assert _severities(tmp_path, rule) == ["error"]
    (tmp_path / "megatron" / "arguments.py").write_text(known + parser)
    assert _severities(tmp_path, rule) == []


def test_a_script_is_judged_by_its_defaults(tmp_path: Path) -> None:
    """The text that a script writes is judged by the defaults of its arguments, and a function's by
    the arguments of its call, where these are known.
    """
    config = (
        '{"train_batch_size": ${1:-8}, "optimizer": {"type": "Adam"}, '
        '"zero_optimization": {"stage": 1}}'
    )
    body = (
        f"cat <<EOT > ds_config.json\n{config}\nEOT\ndeepspeed train.py --deepspeed "
        "--deepspeed_config ds_config.json\n"
    )
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{body}")
    assert _severities(tmp_path, "OPT024") == ["warning"]
    for call, expected in (("start 4", ["warning"]), ('start "$SIZE"', [])):
        (tmp_path / "run.sh").write_text(f"#!/bin/bash\nstart() {{\n{body}}}\n{call}\n")
        assert _severities(tmp_path, "OPT024") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b'#!/bin/bash\nA="\xa1"\ntorchrun t.py\n', ["note"], id="a byte in a text"),
        pytest.param(
            "\ufeff#!/bin/bash\ntorchrun t.py\n".encode("utf-16-le"), ["error"], id="UTF-16"
        ),
    ],
)
def test_a_shell_reads_bytes_as_they_are(
    content: bytes, expected: list[str], tmp_path: Path
) -> None:
    """Bytes of a script that aren't UTF-8 are no error where a shell reads them."""
    (tmp_path / "run.sh").write_bytes(content)
    assert _severities(tmp_path, "FILE001") == expected
