"""Bounds of time and memory: what no machine has or nobody writes is answered, soon, and in
words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

import dsgen
from dsgen.check.codes import MOST_FINDINGS
from dsgen.check.runs import MAX_COLUMNS
from dsgen.cli.validate import MOST_GPUS as MOST_OF_FLAGS
from dsgen.programs.launching.launch_line import MOST_LAUNCHES
from dsgen.submission.world import MOST_GPUS
from tests.cli.running import run
from tests.examples import FOLDER
from tests.workers import HANGS_S

#: Processor time of one answer. A slow machine takes a fifth of it; growth with the square of the
#: size takes minutes.
MOST_S = 20.0
SPEC = str(FOLDER / "bert-large-lamb-v100.yaml")
LAUNCH = (
    "torchrun --nproc-per-node=8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
    "--num-attention-heads 4 "
    "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size "
    "64 --train-iters 5 "
    "--tokenizer-type NullTokenizer --vocab-size 32000 --mock-data --lr 1e-4"
)
HUGE = 999999999999999989  # a prime


def answered(*arguments: str) -> str:
    """What the program says, within `MOST_S`."""
    before = time.process_time()
    output = run(*arguments).output
    assert time.process_time() - before < MOST_S
    return output


def process(shell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A shell line with `dsgen` for the program."""
    line = re.sub(r"(?<![\w/.-])dsgen(?= )", f"{sys.executable} -m dsgen", shell)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


@pytest.mark.parametrize(
    "line",
    [
        "dsgen plan fifo",
        "dsgen validate fifo",
        f"dsgen validate {SPEC} --job fifo",
        f"dsgen plan {SPEC} --model ./fifo",
        f"dsgen plan {SPEC} --calibration fifo",
        f"dsgen calibrate fifo --job {SPEC}",
    ],
)
def test_named_pipe_without_a_writer_is_refused(line: str, tmp_path: Path) -> None:
    """Nobody waits for ever: a named pipe that nothing writes to is an error, whatever it is given
    as.
    """
    os.mkfifo(tmp_path / "fifo")
    answer = process(line, tmp_path)
    assert answer.returncode == 1
    assert "nothing writes to this named pipe" in answer.stderr + answer.stdout


@pytest.mark.parametrize(
    "line",
    [
        f"(cat {SPEC} > fifo &); dsgen plan fifo",
        f"dsgen plan <(sleep 1.5; cat {SPEC})",
        f"cat {SPEC} | dsgen plan /dev/stdin",
        f"cat {SPEC} | dsgen plan -",
    ],
)
def test_pipe_with_a_writer_is_read(line: str, tmp_path: Path) -> None:
    """Pipes that are written to are read to their end, however long the first byte takes."""
    os.mkfifo(tmp_path / "fifo")
    answer = process(line, tmp_path)
    assert "layouts fit" in answer.stdout, answer.stderr


@pytest.mark.parametrize(
    "line",
    [
        "dsgen plan - <&-",
        f"dsgen plan {SPEC} >&-",
        f"dsgen plan {SPEC} --format csv >&-",
        "dsgen plan none 2>&-",
    ],
)
def test_closed_streams_are_no_traceback(line: str, tmp_path: Path) -> None:
    """A closed standard stream is an error of reading or writing, in one line."""
    answer = process(line, tmp_path)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{LAUNCH} --num-experts {HUGE} --expert-model-parallel-size 8",
            f"--num-experts is {HUGE:,}",
        ),
        (
            f"#SBATCH --nodes={10**11}\n#SBATCH --gpus-per-node=8\nsrun {LAUNCH}",
            "more nodes than any machine has",
        ),
        (f"#SBATCH --nodes=-1\n#SBATCH --gpus-per-node=8\nsrun {LAUNCH} --num-experts 8", ""),
        (
            LAUNCH.replace("--nproc-per-node=8", f"--nnodes={10**17} --nproc-per-node=8"),
            f"at most {MOST_GPUS:,}",
        ),
    ],
)
def test_sizes_that_no_machine_has_are_findings(text: str, says: str, tmp_path: Path) -> None:
    """A size beyond all machines is reported where it is written, and nothing is computed with
    it.
    """
    script = tmp_path / "run.sbatch"
    script.write_text(f"#!/bin/bash\n{text}\n")
    output = answered("validate", str(script))
    assert says in output
    assert ("[SUB016]" in output) == bool(says)


def test_gpus_that_no_node_has_are_not_listed(tmp_path: Path) -> None:
    """The numbers that a script may choose from are listed where one is beyond them alone."""
    script = tmp_path / "run.sbatch"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:{100 * MOST_GPUS}\n"
        f"export CUDA_VISIBLE_DEVICES=0,1\n{LAUNCH}\n"
    )
    tracemalloc.start()
    try:
        dsgen.validate(script)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_sizes_of_a_config_are_findings(tmp_path: Path) -> None:
    """A DeepSpeed config's sizes are those that 32 bits hold."""
    config = tmp_path / "ds_config.json"
    config.write_text(
        f'{{"train_batch_size": {HUGE}, "zero_optimization": {{"stage": 3, '
        f'"zero_hpz_partition_size": 7}}}}'
    )
    assert f"train_batch_size is {HUGE:,}; the most is 2,147,483,647" in answered(
        "validate", str(config)
    )


def test_gpus_of_the_command_line_are_bounded() -> None:
    """`validate --gpus` takes as many as a job spec has, and says so."""
    assert MOST_OF_FLAGS == MOST_GPUS
    assert f"1<=x<={MOST_GPUS}" in run("validate", SPEC, "--gpus", str(HUGE)).output


def test_table_with_many_columns_is_cut(tmp_path: Path) -> None:
    """A header of 100,000 commas is one finding on their number, and the first columns' own."""
    table = tmp_path / "runs.csv"
    table.write_text("step_time_s" + "," * 100_000 + "\n2.5\n")
    output = answered("calibrate", str(table), "--job", SPEC)
    assert f"the table has 100,001 columns; the most is {MAX_COLUMNS:,}" in output


def test_many_launches_are_linear_and_bounded(tmp_path: Path) -> None:
    """Of a thousand launches in a script the first hundred are checked, and that is said."""
    script = tmp_path / "many.sh"
    script.write_text("#!/bin/bash\n" + f"{LAUNCH}\n" * 1000)
    output = answered("validate", str(script), "--gpus", "64", "--cluster", "nvidia/dgx-h100")
    assert f"many.sh:{1 + MOST_LAUNCHES}:" in output
    assert f"training program number {MOST_LAUNCHES}; none after it is checked" in output


def test_one_rule_is_reported_a_hundred_times(tmp_path: Path) -> None:
    """A rule that is broken everywhere is reported so often that one sees it, and the rest is said
    to be unknown.
    """
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n" + "#SBATCH --nodez=1\n" * 5_000 + f"srun {LAUNCH}\n")
    output = answered("validate", str(script))
    assert output.count(f"is reported {MOST_FINDINGS} times") >= 1
    assert output.count("--nodez") < 10 * MOST_FINDINGS


def test_a_repeated_key_is_reported_a_hundred_times(tmp_path: Path) -> None:
    """What a reader finds everywhere is reported as often as what a rule finds."""
    config = tmp_path / "train.yaml"
    config.write_text("output_dir: x\n" + "max_steps: 5\n" * 5_000)
    output = answered("validate", str(config))
    assert output.count("duplicate key `max_steps`") == MOST_FINDINGS
    assert output.count(f"FILE003 is reported {MOST_FINDINGS} times") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "".join(f"key{n}: 1\n" for n in range(15_000))),
        ("job.yaml", "a: [" * 100_000),
        ("ds_config.json", "{" + ",".join(f'"k{n}": 1' for n in range(80_000)) + "}"),
        ("ds_config.json", '{"a":' * 150_000),
        ("run.sh", "$(" * 300_000),
        ("run.sh", "a " * 450_000),
        ("hostfile", "worker slots=8\n" * 60_000),
        ("train.yaml", "output_dir: x\n" + "".join(f"learning_rat{n}: 1\n" for n in range(15_000))),
        ("ds_config.json", "x" * 900_000),
    ],
    ids=[
        "keys",
        "lists",
        "more keys",
        "objects",
        "substitutions",
        "words",
        "lines",
        "arguments",
        "one word",
    ],
)
def test_long_documents_are_answered_in_time(name: str, text: str, tmp_path: Path) -> None:
    """Up to 1 MB of anything is answered, whatever repeats in it."""
    (tmp_path / name).write_text(text)
    assert answered("validate", str(tmp_path / name))


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": "deepspeed " * 60_000},
        {"run.sh": f"{LAUNCH}\n", "pretrain_gpt.py": "\n" * 600_000},
        {"run.sh": f"(({'a' * 200_000} 1))\n{LAUNCH}\n"},
        {
            "run.sbatch": "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH "
            f"--nodelist={',' * 100_000}\nsrun {LAUNCH}\n"
        },
        {"ds_config.json": f'{{"train_batch_size": "[{"a " * 100_000}"}}'},
        {"run.sh": f"deepspeed train.py --deepspeed_config {'a/' * 100_000}ds.json\n"},
        {
            **{f"a{n}.txt": "x==1\n" for n in range(2_000)},
            "requirements.txt": "".join(f"-r a{n}.txt\n" for n in range(60_000)),
            "ds_config.json": '{"train_batch_size": 8, "aio": {"x": 1}}',
        },
        {"run.sh": "cd src\nsed -i s/2/3/ ds_config.json\n" * 10_000 + f"{LAUNCH}\n"},
    ],
    ids=[
        "words",
        "lines of a program",
        "a name",
        "a list",
        "a placeholder",
        "a path",
        "requirements",
        "commands that name a file",
    ],
)
def test_long_files_of_a_folder_are_answered_in_time(files: dict[str, str], tmp_path: Path) -> None:
    """What repeats in a file is read as fast as what doesn't, in each kind of file that a folder
    may have.
    """
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert answered("validate", str(tmp_path))


def calls_of(count: int, folder: Path) -> int:
    """The calls of functions in an answer to a folder of `count` launches, each with files of its
    own.
    """
    folder.mkdir()
    for number in range(count):
        (folder / f"ds_{number}.json").write_text(f'{{"train_batch_size": {number + 8}}}')
        (folder / f"train_{number}.py").write_text("import torch\n")
        (folder / f"run_{number}.sh").write_text(
            f"deepspeed train.py --deepspeed_config ds_{number}.json\n"
        )
        (folder / f"run_{number}.sbatch").write_text(
            f"#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun train_{number}.py "
            f"--deepspeed ds_{number}.json\n"
        )
    calls = 0

    def count_call(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count_call)
    try:
        run("validate", str(folder))
    finally:
        sys.setprofile(None)
    return calls


def test_work_grows_with_the_files_of_a_folder(tmp_path: Path) -> None:
    """Four times as many configs, scripts and programs take four times the work."""
    calls_of(2, tmp_path / "first")  # what is loaded once
    assert calls_of(100, tmp_path / "many") < 4.8 * calls_of(25, tmp_path / "few")


def test_batch_with_many_divisors_is_searched_in_part() -> None:
    """Of 448 divisors of a batch the hundred smallest are tried as micro-batches, and a note says
    so.
    """
    output = answered("plan", SPEC, "--global-batch", "8648640", "--gpus", "720720", "--top", "1")
    assert "has 448 divisors; the 100 smallest are searched as micro-batches, up to 312" in output


def test_list_of_plans_is_bounded() -> None:
    """`--top` ends where explaining plans would take longer than finding them."""
    assert "1<=x<=100" in run("plan", SPEC, "--top", "2147483648").output


def test_no_nodes_and_no_gpus_are_findings(tmp_path: Path) -> None:
    """Counts of zero contradict the launcher, and divide nothing."""
    (tmp_path / "run.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=0\n#SBATCH --gpus-per-node=0\nsrun accelerate launch "
        "--num_processes 8 train.py\n"
    )
    assert "[SUB001]" in answered("validate", str(tmp_path))


def test_unknown_words_before_a_program_are_read_in_linear_time(tmp_path: Path) -> None:
    """Each of 300,000 variables may stand for options: the program behind them is looked for
    once.
    """
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/bash\ntorchrun {'$A ' * 300_000}train.py\n")
    assert "[" not in answered("validate", str(script))


def test_long_words_in_messages_are_told_in_linear_time(tmp_path: Path) -> None:
    """Messages that say the same are found whatever the length of the words that they quote."""
    script = tmp_path / "run.sbatch"
    script.write_text(f"#!/bin/bash\nsrun --kill-on-ba{'d' * 60_000} python train.py\n")
    assert "run.sbatch" in answered("validate", str(script))


def test_endless_steps_are_no_traceback(tmp_path: Path) -> None:
    """Steps that are infinite, or no number, divide nothing."""
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash\ntorchrun train.py --output_dir out --load_best_model_at_end "
        "--eval_strategy steps "
        "--save_strategy steps --save_steps 1e999 --eval_steps 1e999 --deepspeed ds.json\n"
    )
    assert "Traceback" not in answered("validate", str(script))


def test_devices_beside_a_huge_count_are_not_counted_up(tmp_path: Path) -> None:
    """Devices of the environment are compared with those that `--num_gpus` takes by what is
    listed.
    """
    script = tmp_path / "run.sh"
    script.write_text(
        f"#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus {HUGE} train.py "
        "--deepspeed ds.json\n"
    )
    assert "[LNCH024]" in answered("validate", str(script))


def test_sizes_that_would_pass_are_not_looked_for_one_by_one(tmp_path: Path) -> None:
    """The sizes that divide a huge number of GPUs are found by its factors."""
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash\nray job submit -- python3 train.py --actor-num-nodes 1 "
        f"--actor-num-gpus-per-node {HUGE} --rollout-batch-size 32 --n-samples-per-prompt 8 "
        "--global-batch-size 256 --expert-model-parallel-size 7 --expert-tensor-parallel-size 1\n"
    )
    assert "[FRONT001]" in answered("validate", str(script))
