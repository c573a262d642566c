"""Bad input through the real command line: every finding with its place, a value that passes, and
nothing written.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsgen.cli.printing import ExitStatus
from tests.cli.running import run

GOOD = """\
model: gpt3-175b
cluster: azure/standard_nd96amsr_a100_v4
gpus: 1024
training:
  global_batch: 1536
"""
V100 = """\
model: gpt2-xl
cluster: azure/standard_nd40rs_v2
gpus: 8
training: {global_batch: 64, precision: bf16}
"""
SLICES = """\
model: gpt2
framework: deepspeed
cluster: {accelerator: a100-40gb-sxm-3g.20gb, accelerators_per_node: 2,
  network_gbits_per_s_per_node: 0}
gpus: 2
training: {global_batch: 8}
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
HARM = "$(rm -rf ~)"

# What the file holds, the exit status, and what the output contains: places, numbers, values that
# pass.
CASES: dict[str, tuple[str | bytes, ExitStatus, tuple[str, ...]]] = {
    "unknown key": (
        GOOD.replace("gpus", "gpu") + "launch: {sript: a.py}\n",
        ExitStatus.FINDINGS,
        (
            "job.yaml:3:1: error: unknown key 'gpu'",
            "did you mean `gpus`?",
            "job.yaml:6:10: error: unknown key 'sript'",
        ),
    ),
    "duplicate key": (
        f"{GOOD}gpus: 512\n",
        ExitStatus.FINDINGS,
        ("job.yaml:6:1: error: duplicate key `gpus`, first on line 3", "keep one"),
    ),
    "wrong type": (
        GOOD.replace("1024", "many").replace("1536", "'12'"),
        ExitStatus.FINDINGS,
        (
            "job.yaml:3:7: error: `gpus` is 'many'; expected a number, a range such as "
            "960..1024, or a list",
            "job.yaml:5:17: ",
            "`global_batch: 12`",
        ),
    ),
    "unknown model and cluster": (
        GOOD.replace("gpt3-175b", "gpt3-175").replace("amsr", "amrs"),
        ExitStatus.FINDINGS,
        (
            "job.yaml:1:8: error: unknown model 'gpt3-175'",
            "`gpt3-175b`",
            "job.yaml:2:10: ",
            "`azure/standard_nd96amsr",
        ),
    ),
    "heads that don't divide on 1,000 GPUs": (
        GOOD.replace("1024", "1000") + "layout: {tensor: 5}\n",
        ExitStatus.FINDINGS,
        (
            "job.yaml:6:18: error: tensor: 5 does not divide the 96 attention heads",
            "hint: use tensor: 1, 2, 4 or 8",
        ),
    ),
    "no layout on 1,000 GPUs": (
        GOOD.replace("1024", "1000"),
        ExitStatus.INFEASIBLE,
        (
            "1,000 GPUs (job.yaml:3:7)",
            "1,536 (job.yaml:5:17)",
            "it is 1, 2, 4 or 8",
            "  gpus: 1024",
        ),
    ),
    "a last node that isn't filled": (
        GOOD.replace("1024", "1004"),
        ExitStatus.FINDINGS,
        ("job.yaml:3:7: error: 1004 GPUs don't fill nodes of 8", "hint: use gpus: 1000 or 1008"),
    ),
    "a global batch that can't be met": (
        GOOD.replace("1536", "1537"),
        ExitStatus.INFEASIBLE,
        (
            "1,024 GPUs (job.yaml:3:7)",
            "1,537 (job.yaml:5:17), so it is 1.",
            "  training.global_batch: 1536",
        ),
    ),
    "tokens that make no whole sequences": (
        GOOD.replace("1536", "{tokens: 4000000}"),
        ExitStatus.FINDINGS,
        (
            "job.yaml:5:26: error: 4000000 tokens",
            "of 2048 tokens",
            "3999744 (1953 sequences) or tokens: 4001792 (1954",
        ),
    ),
    "a pinned contradiction": (
        f"{GOOD}layout: {{tensor: 8, pipeline: 16, data: 8, micro_batch: 5, zero_stage: 3}}\n",
        ExitStatus.FINDINGS,
        (
            "micro_batch: 5 × data: 8 = 40 does not divide",
            "zero_stage: 3 with pipeline: 16",
            "zero_stage: 1",
        ),
    ),
    "gpus and nodes": (
        f"{GOOD}nodes: 4\n",
        ExitStatus.FINDINGS,
        ("job.yaml:6:1: error: `gpus` and", "keep `gpus: 1024"),
    ),
    "bf16 on V100": (
        V100,
        ExitStatus.FINDINGS,
        (
            "job.yaml:4:41: error: precision: bf16",
            "v100-32gb-sxm (volta)",
            "hint: use precision: fp16 or fp32",
        ),
    ),
    "slices together": (
        SLICES,
        ExitStatus.FINDINGS,
        ("job.yaml:5:7: error: 2 slices", "no NVLink and no peer-to-peer", "hint: use gpus: 1"),
    ),
    "a model that can't fit": (
        GOOD.replace("1024", "8").replace("1536", "8"),
        ExitStatus.INFEASIBLE,
        ("Binding  MEM00", "Nearest  ", "GiB", "  gpus: "),
    ),
    "empty file": (
        "",
        ExitStatus.FINDINGS,
        ("job.yaml:1:1: error: the file is empty", "training.global_batch"),
    ),
    "binary junk": (
        bytes(range(256)) * 4,
        ExitStatus.FINDINGS,
        ("error: byte 0x80 at offset 128", "UTF-8"),
    ),
    "alias bomb": (BOMB, ExitStatus.FINDINGS, ("job.yaml:5:", "more than 20,000 values")),
    "a command in every string": (
        f'"{HARM}": "{HARM}"\nname: "{HARM}"\nmodel: "{HARM}"\ncluster: "{HARM}"\ngpus: '
        f'"{HARM}"\nframework: "{HARM}"\n'
        f'training: {{global_batch: "{HARM}", precision: "{HARM}"}}\nlaunch: '
        f'{{time_limit: "{HARM}"}}\n',
        ExitStatus.FINDINGS,
        tuple(f"job.yaml:{line}:" for line in (1, 3, 4, 5, 6, 7, 8)),
    ),
}


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_bad_spec(case: str, workdir: Path) -> None:
    """A bad spec is refused with its status, place, numbers and a value that passes, and nothing is
    written.
    """
    content, status, expected = CASES[case]
    (workdir / "job.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("job.yaml", "-o", "out")
    assert result.exit_code == status
    reported = " ".join(result.output.split())
    assert [text for text in expected if " ".join(text.split()) not in reported] == []
    assert [path.name for path in workdir.iterdir()] == ["job.yaml"]


def test_a_spec_of_100_mb(workdir: Path) -> None:
    """A huge file is refused by its size, without being read."""
    with (workdir / "job.yaml").open("wb") as file:
        file.write(GOOD.encode())
        file.truncate(100_000_000)
    result = run("job.yaml", "-o", "out")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "job.yaml: error: the file is larger than 1,000,000 bytes" in result.stderr
    assert not (workdir / "out").exists()


def test_a_spec_that_is_a_directory(workdir: Path) -> None:
    """A directory in the spec's place is refused, with the file that would do; one that dsgen wrote
    has none.
    """
    (workdir / "job").mkdir()
    result = run("job/", "-o", "out")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "is a directory" in result.stderr
    assert "job/dsgen.yaml" in result.stderr
    (workdir / "job" / "plan.json").touch()
    result = run("job/", "-o", "out")
    assert "job/dsgen.yaml" not in result.stderr
    assert "name the job spec from which its files were written" in result.stderr


@pytest.mark.parametrize("command", ["plan", "estimate", "sweep"])
def test_an_answer_in_the_place_of_a_spec_is_one_error(command: str, workdir: Path) -> None:
    """What a command answers with, given as a spec, is told by one error, with what to give."""
    (workdir / "job.yaml").write_text(GOOD)
    keys = ["gpus=512..1024"] if command == "sweep" else []
    answered = run(command, "job.yaml", *keys, "--format", "json")
    assert answered.exit_code == ExitStatus.OK, answered.stderr
    (workdir / "answer.json").write_text(answered.stdout)
    result = run("estimate", "answer.json")
    assert result.exit_code == ExitStatus.FINDINGS
    schema = "sweep" if command == "sweep" else "plan"
    assert f"is an answer of dsgen's (`dsgen schema {schema}`)" in result.stderr
    assert result.stderr.count("error:") == 1
    assert "hint: name the job spec that it was made from" in result.stderr
    checked = run("validate", "answer.json")
    assert checked.exit_code == ExitStatus.FINDINGS
    assert f"this is an answer of dsgen's (`dsgen schema {schema}`)" in checked.output


def test_a_name_too_long_to_write_is_told_as_that(workdir: Path) -> None:
    """A name that is too long wants a shorter one; a folder with other rights wouldn't help."""
    (workdir / "job.yaml").write_text(GOOD)
    result = run("job.yaml", "-o", "x" * 300)
    assert result.exit_code == ExitStatus.FINDINGS
    assert "File name too long" in result.stderr
    assert "hint: choose a shorter name\n" in result.stderr


def test_a_spec_that_lacks_most_is_no_answer(workdir: Path) -> None:
    """A spec with a key of an answer, and without its own, is still told what it lacks."""
    (workdir / "job.yaml").write_text("layout: {tensor: 8}\nmemory: {headroom: 0.1}\n")
    result = run("estimate", "job.yaml")
    assert "`model` is missing" in result.stderr


@pytest.mark.parametrize("target", ["slurm", "shell"])
def test_a_command_in_every_text_that_may_be_one_is_data(target: str, workdir: Path) -> None:
    """A launch script made of hostile text has it as arguments, word for word, and running bash on
    it does no harm.
    """
    home = workdir / "home"
    home.mkdir()
    (home / "precious").write_text("")
    model = (
        "hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: "
        "256, vocab_size: 512"
    )
    (workdir / "job.yaml").write_text(
        f'name: "{HARM}"\nframework: deepspeed\ncluster: azure/standard_nd96amsr_a100_v4\ngpus: 8\n'
        f'model: {{name: "{HARM}", {model}}}\ntraining: {{sequence_length: 64, global_batch: 64}}\n'
        f'launch: {{target: {target}, script: "{HARM}", arguments: ["{HARM}"], environment: '
        f'{{A: "{HARM}"}}}}\n'
    )
    assert run("job.yaml", "-o", "out").exit_code == ExitStatus.OK
    (script,) = (workdir / "out").glob("launch.*")
    # What names the script and its arguments, up to the end of the array.
    assignments = "SCRIPT=" + script.read_text().partition("\nSCRIPT=")[2].partition("\n)\n")[0]
    shown = f'CONFIG_DIR=.\n{assignments}\n)\nprintf "%s\\n" "$SCRIPT" "${{ARGUMENTS[@]}}"\n'
    done = subprocess.run(
        ["bash", "-c", shown], env={**os.environ, "HOME": str(home)}, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == HARM
    assert done.stdout.splitlines()[-1] == HARM
    assert (home / "precious").exists()


def test_a_folder_with_other_contents_is_left_as_it_is(workdir: Path) -> None:
    """Files that would be overwritten stop the run with status 4; files of other names are kept."""
    (workdir / "job.yaml").write_text(GOOD)
    (workdir / "out").mkdir()
    (workdir / "out" / "notes.txt").write_text("mine")
    (workdir / "out" / "plan.json").write_text("mine")
    result = run("job.yaml", "-o", "out")
    assert result.exit_code == ExitStatus.WOULD_OVERWRITE
    assert "out/plan.json: error: file exists with other contents" in result.stderr
    assert sorted(path.name for path in (workdir / "out").iterdir()) == ["notes.txt", "plan.json"]


def test_a_folder_that_may_not_be_written(workdir: Path) -> None:
    """An output folder of someone else is refused in one line with the system's reason, and stays
    empty.
    """
    (workdir / "job.yaml").write_text(GOOD)
    closed = workdir / "closed"
    closed.mkdir(mode=0o555)
    workdir.chmod(0o755)
    # Root may write anywhere, so it becomes nobody, once all that is read later is in memory.
    program = (
        "import os, sys; from dsgen.cli import main, commands\n"
        "try: commands.main([*sys.argv[1:], '--diff'], standalone_mode=False)\n"
        "finally:\n"
        "    if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "job.yaml", "-o", str(closed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == ExitStatus.FINDINGS
    assert "Permission denied; nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(closed.iterdir()) == []
