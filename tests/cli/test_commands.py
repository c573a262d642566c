"""The command line, run for real in an empty folder: what it prints where, what it writes, and how
it exits.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsgen.cli import commands
from dsgen.cli.printing import ExitStatus
from tests.cli.running import run

SMALL = """\
name: small
framework: deepspeed
model: gpt2
cluster: azure/standard_nd96amsr_a100_v4
gpus: 8
training: {sequence_length: 1024, global_batch: 64, precision: bf16, duration: {tokens: 1e9}}
launch: {target: slurm, script: train.py}
"""


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under `folder` with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_default_command_plans_and_writes(workdir: Path) -> None:
    """`dsgen --gpus 1024` prints a summary and writes a DeepSpeed config, a plan, arguments and an
    sbatch script.
    """
    result = run("--gpus", "1024")
    assert result.exit_code == ExitStatus.OK
    folder = workdir / "gpt3-175b-1024gpus"
    assert {"ds_config.json", "plan.json", "arguments.txt", "ends.sh", "launch.sbatch"} == {
        path.name for path in folder.iterdir()
    }
    for expected in (
        " replicas × ",
        "steps of 1,536 sequences",
        "parameters",
        "Step",
        "MFU",
        "tokens/s",
        "fastest",
        "Not ready to submit: no data",
    ):
        assert expected in result.stdout


def test_summary_satisfies_the_batch_identity(workdir: Path) -> None:
    """The plan's batch and world size are the products of their factors."""
    run("--gpus", "1024")
    plan = json.loads((workdir / "gpt3-175b-1024gpus" / "plan.json").read_text())
    layout, batch = plan["layout"], plan["batch"]
    assert (
        batch["global_batch"]
        == layout["micro_batch"] * layout["gradient_accumulation"] * layout["data"]
        == 1536
    )
    assert (
        batch["world"]
        == layout["data"] * layout["tensor"] * layout["pipeline"] * layout["context"]
        == 1024
    )


def test_summary_says_where_the_script_belongs() -> None:
    """AzureML uploads a folder, which must hold the script; the others start it where they are
    called.

    Of a job that isn't ready, what it lacks stands in place of the command.
    """
    data = ("--set", "data.path=/data/corpus", "--set", "data.tokenizer.path=/data/tokenizer.model")
    of_azure = (
        "--set",
        "launch.azureml.compute=gpus",
        "--set",
        "launch.azureml.environment=torch:1",
    )
    more = {"slurm": (), "azureml": of_azure}
    arguments = {
        target: ("--gpus", "64", "--target", target, "-o", target, *data) for target in more
    }
    shown = {target: run(*arguments[target], *more[target]).stdout for target in more}
    assert (
        "from the folder that holds pretrain_gpt.py:\n        sbatch slurm/launch.sbatch"
        in shown["slurm"]
    )
    assert "sbatch" not in run("--gpus", "64", "-o", "bare").stdout.replace("launch.sbatch", "")
    assert "Put pretrain_gpt.py and its modules into azureml, which is uploaded" in shown["azureml"]


def test_same_command_writes_same_bytes(workdir: Path) -> None:
    """Two runs of one command in two folders write the same files, and running it again changes
    nothing.
    """
    run("--gpus", "64", "-o", "one")
    run("--gpus", "64", "-o", "two")
    assert contents(workdir / "one") == contents(workdir / "two")
    assert "(unchanged)" in run("--gpus", "64", "-o", "one").stdout


def test_files_name_the_command_but_no_folder(workdir: Path) -> None:
    """Generated files contain the command that made them, without the folder they were written
    to.
    """
    (workdir / "job.yaml").write_text(SMALL)
    run(str(workdir / "job.yaml"), "--nodes", "2", "-o", str(workdir / "out"))
    script = (workdir / "out" / "launch.sbatch").read_text()
    assert "dsgen job.yaml --nodes 2" in script
    assert str(workdir) not in "".join(path.read_text() for path in (workdir / "out").iterdir())


def test_secrets_given_by_flag_stay_out_of_the_headers(workdir: Path) -> None:
    """The value of a variable that was set on the command line is not repeated in the command of
    the headers.
    """
    (workdir / "job.yaml").write_text(SMALL)
    run("job.yaml", "--set", "launch.environment.NCCL_DEBUG=NOT_IN_HEADER", "-o", "out")
    header = (workdir / "out" / "arguments.txt").read_text()
    assert "--set launch.environment.NCCL_DEBUG=...\n" in header
    assert "NOT_IN_HEADER" not in header


@pytest.mark.parametrize(
    "assignment",
    [
        "launch.environment.HF_TOKEN=hush",
        "launch.environment={HF_TOKEN: hush}",
        "launch={environment: {HF_TOKEN: hush}}",
    ],
)
@pytest.mark.parametrize("target", ["slurm", "azureml", "shell"])
def test_secrets_are_not_written(workdir: Path, assignment: str, target: str) -> None:
    """A variable whose name is a secret's stops the files, and an error reports it."""
    (workdir / "job.yaml").write_text(
        SMALL.replace("launch: {target: slurm, script: train.py}\n", "")
    )
    result = run("job.yaml", "--set", assignment, "--target", target, "-o", "out")
    assert result.exit_code == ExitStatus.FINDINGS
    assert "`HF_TOKEN` is a secret" in result.stderr
    assert "hush" not in result.stdout + result.stderr
    assert not (workdir / "out").exists()


def test_dsgen_yaml_is_the_default_spec(workdir: Path) -> None:
    """Without SPEC the file dsgen.yaml of the working directory is planned."""
    (workdir / "dsgen.yaml").write_text(SMALL)
    result = run()
    assert result.exit_code == ExitStatus.OK
    assert (workdir / "small-8gpus" / "plan.json").exists()


def test_spec_from_standard_input() -> None:
    """SPEC `-` is read from standard input, and its findings are located there."""
    good = CliRunner().invoke(commands, ["plan", "-"], input=SMALL)
    assert good.exit_code == ExitStatus.OK
    bad = CliRunner().invoke(commands, ["plan", "-"], input=SMALL + "colour: blue\n")
    assert bad.exit_code == ExitStatus.FINDINGS
    assert "<stdin>:8:1: error:" in bad.stderr


def test_full_disk_behind_stdout_is_no_traceback() -> None:
    """When standard output can't be written, the program reports it in one line and exits with
    1.
    """
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dsgen", "plan"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == ExitStatus.FINDINGS
    assert "dsgen: error: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_overwritten_without_force(workdir: Path) -> None:
    """A file that differs stops the run with status 4, names the file and leaves the folder as it
    was.
    """
    run("--gpus", "64", "-o", "out")
    (workdir / "out" / "ds_config.json").write_text("mine")
    before = contents(workdir)
    result = run("--gpus", "64", "-o", "out")
    assert result.exit_code == ExitStatus.WOULD_OVERWRITE
    assert "out/ds_config.json: error:" in result.stderr
    assert contents(workdir) == before
    assert run("--gpus", "64", "-o", "out", "--force").exit_code == ExitStatus.OK
    assert contents(workdir) != before


def test_another_framework_leaves_nothing_of_the_former_set(workdir: Path) -> None:
    """A config that the new set lacks is named, goes with --force, and `validate` finds nothing."""
    (workdir / "dsgen.yaml").write_text(SMALL)
    run("-o", "out")
    other = ("-o", "out", "--framework", "megatron-lm")
    refused = run(*other)
    assert refused.exit_code == ExitStatus.WOULD_OVERWRITE
    said = "out/ds_config.json: error: file of the former set, which --force removes"
    assert said in refused.stderr
    assert "+++ /dev/null" in run(*other, "--diff").stdout

    done = run(*other, "--force")
    assert "out: ds_config.json (removed)" in done.stdout
    assert not (workdir / "out" / "ds_config.json").exists()
    assert run("validate", "out").exit_code == ExitStatus.OK


def test_diff_writes_nothing(workdir: Path) -> None:
    """--diff prints what would change as a unified diff and writes nothing."""
    result = run("--gpus", "64", "--diff")
    assert result.exit_code == ExitStatus.OK
    assert "+++ gpt3-175b-64gpus/plan.json" in result.stdout
    assert contents(workdir) == {}


def test_diff_as_json_writes_nothing(workdir: Path) -> None:
    """--diff with --format json has the diff of each file beside its action, and writes nothing."""
    document = json.loads(run("--gpus", "64", "--diff", "--format", "json").stdout)
    assert {entry["action"] for entry in document["files"]} == {"create"}
    shown = {Path(entry["path"]).name: entry["diff"] for entry in document["files"]}
    assert "+++ gpt3-175b-64gpus/plan.json" in shown["plan.json"]
    assert contents(workdir) == {}


@pytest.mark.parametrize("name", ["file", "file/inside", "/proc/nowhere"])
def test_unwritable_output(workdir: Path, name: str) -> None:
    """An output folder that is a file, lies under one or can't be made is refused, and nothing is
    written.
    """
    (workdir / "file").write_text("here")
    result = run("--gpus", "64", "-o", name)
    assert result.exit_code == ExitStatus.FINDINGS
    assert "nothing was written" in result.stderr
    assert contents(workdir) == {"file": b"here"}


def test_json_is_all_of_stdout(workdir: Path) -> None:
    """With --format json every command prints one JSON document to stdout and nothing else."""
    (workdir / "job.yaml").write_text(SMALL)
    for arguments in (
        ("generate", "job.yaml", "--format", "json"),
        ("plan", "job.yaml", "--format", "json"),
        ("plan", "--gpus", "8", "--format", "json"),
        ("estimate", "job.yaml", "--format", "json"),
        ("validate", "job.yaml", "--format", "json"),
        ("rules", "--format", "json"),
        ("catalog", "--format", "json"),
        ("catalog", "models", "gpt2", "--format", "json"),
        ("schema",),
        ("schema", "plan"),
    ):
        assert isinstance(json.loads(run(*arguments).stdout), (dict, list))


def test_plan_explains_the_training_time(workdir: Path) -> None:
    """`plan --explain` has a line for every factor that training times are known to depend on."""
    (workdir / "job.yaml").write_text(SMALL)
    shown = run("plan", "job.yaml", "--explain").stdout
    table = shown[shown.index("Factors of the training time") :]
    factors = (
        "model",
        "data",
        "convergence",
        "batch",
        "GPUs",
        "memory",
        "data type",
        "input",
        "network",
    )
    for factor in (*factors, "saving", "failures", "restarts", "evaluation", "energy", "waiting"):
        assert f"\n{factor} " in table
    assert "210 days (assumed: 102 to 431 days published)" in " ".join(table.split())


def test_another_number_format_is_compared_on_the_layout_of_the_plan() -> None:
    """What a step takes in bf16 is of the layout that was chosen for fp8, and said to be."""
    shown = run(
        *("plan", "--model", "llama-3.1-8b", "--framework", "megatron-lm", "--gpus", "8"),
        *("--cluster", "nvidia/dgx-h100", "--global-batch", "128", "--sequence-length", "4096"),
        *("--set", "training.precision=fp8", "--explain"),
    ).stdout
    [row] = [line for line in shown.splitlines() if line.lstrip().startswith("in bf16 ")]
    assert "the plan's layout" in row
    assert "the plan's layout: with another it may be faster" in " ".join(shown.split())


def test_plan_as_csv(workdir: Path) -> None:
    """`plan --format csv` has one line per plan, in rank order, with the layout's keys."""
    (workdir / "job.yaml").write_text(SMALL)
    rows = list(
        csv.DictReader(io.StringIO(run("plan", "job.yaml", "--top", "3", "--format", "csv").stdout))
    )
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert {row["data"] for row in rows} <= {"1", "2", "4", "8"}


def test_infeasible_is_an_answer() -> None:
    """A model that can't fit exits with 3, and shows the binding rule, the nearest miss and what
    would fit.
    """
    result = run("plan", "--gpus", "8")
    assert result.exit_code == ExitStatus.INFEASIBLE
    for expected in ("layouts", "Binding  MEM00", "Nearest  ", "GiB", "makes it fit", "gpus: "):
        assert expected in result.stdout


def test_suggestions_are_true() -> None:
    """Applying the first suggestion of an infeasible job makes it feasible."""
    document = json.loads(run("plan", "--gpus", "8", "--format", "json").stdout)["infeasible"]
    suggestion = document["suggestions"][0]
    result = run("plan", "--gpus", "8", "--set", f"{suggestion['path']}={suggestion['value']}")
    assert result.exit_code == ExitStatus.OK, suggestion["text"]


def test_findings_have_place_caret_and_hint(workdir: Path) -> None:
    """Every problem of a spec is printed to stderr at once, with place, caret and hint, and nothing
    is written.
    """
    (workdir / "job.yaml").write_text(SMALL.replace("gpus: 8", "gpu: 8") + "colour: blue\n")
    result = run("job.yaml")
    assert result.exit_code == ExitStatus.FINDINGS
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("job.yaml:5:1: error: "))
    assert lines[at + 1 : at + 3] == ["  gpu: 8", "  ^"]
    assert lines[at + 3].startswith("hint: ")
    assert "colour" in result.stderr
    assert list(contents(workdir)) == ["job.yaml"]


def test_flags_are_findings_places() -> None:
    """A problem that comes from a flag is located at it, not in the file."""
    result = run("--model", "gpt3-175", "--gpus", "64", "--cluster", "nvidia/dgx-h100")
    assert result.exit_code == ExitStatus.FINDINGS
    assert result.stderr.splitlines()[-2].startswith("--model gpt3-175: error: ")
    assert "gpt3-175b" in result.stderr


def test_estimate_shows_broken_rules_and_estimates_all_the_same() -> None:
    """`estimate` of a layout that doesn't fit prints the finding and the ledgers, and exits
    with 0.
    """
    result = run("estimate", "--gpus", "8", "--set", "layout.tensor=8")
    assert result.exit_code == ExitStatus.OK
    assert "[MEM00" in result.stderr
    assert "too large" in result.stdout


def test_a_hint_without_a_value_is_left_out() -> None:
    """Where no other value of one key makes the product, the finding has no hint."""
    machines = ("--cluster", "dgx-h100", "--gpus", "64", "--framework", "megatron-lm")
    work = ("--model", "llama-3-8b", "--global-batch", "512", "--sequence-length", "4096")
    told = run("estimate", *machines, *work, "--set", "layout.tensor=3").stderr
    assert "= 63 is not gpus: 64 [MLM001]\n--set" in told


def test_validate_tells_good_from_bad(workdir: Path) -> None:
    """`validate` exits with 0 for a good spec, with a note on an empty folder, and with 1 for
    anything else.
    """
    (workdir / "job.yaml").write_text(SMALL)
    (workdir / "empty.yaml").write_text("")
    (workdir / "junk.yaml").write_bytes(bytes(range(256)))
    (workdir / "folder").mkdir()
    assert run("validate", "job.yaml").exit_code == ExitStatus.OK
    for path in ("empty.yaml", "junk.yaml", "absent.yaml", "folder"):
        result = run("validate", "job.yaml", path)
        assert result.exit_code == (ExitStatus.OK if path == "folder" else ExitStatus.FINDINGS)
        assert (
            f"{path}: note:" in result.stdout if path == "folder" else f"{path}:" in result.stdout
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plna",), "did you mean `dsgen plan`"),
        (("models",), "did you mean `dsgen catalog models`"),
        (("accelerator", "h100"), "did you mean `dsgen catalog accelerators`"),
        (("valdate", "ds.json"), "did you mean `dsgen validate`"),
        (("xyzzy", "ds.json"), "no such command or file: 'xyzzy'"),
        (("rules", "MLM4"), "did you mean"),
        (("catalog", "nothing-like-it"), "unknown kind or name"),
        (("catalog", "shapes", "llama-7b"), "unknown kind 'shapes'"),
        (("catalog", "clusters"), "did you mean 'node-types'"),
        (("catalog", "gpu"), "did you mean 'accelerators'"),
        (("catalog", "clustres"), "did you mean 'node-types'"),
        (("catalog", "cluster", "h100"), "unknown kind 'cluster'; did you mean 'node-types'"),
        (("catalog", "models", "gpt3-175"), "did you mean 'gpt3-175b'"),
        (("--gpus", "8", "--nodes", "1"), "--gpus or --nodes"),
        (("--set", "layout"), "is not PATH=VALUE"),
        (("--gpus", "0"), "--gpus"),
        (("--gpus", "8", "plan"), "put the command first: `dsgen plan ...`"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], expected: str) -> None:
    """A wrong command line exits with 2 and a message that helps."""
    result = run(*arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert expected in result.stderr


def test_help_is_a_command_too() -> None:
    """`dsgen help` lists the commands, in the order in which a job needs them; `dsgen help plan` is
    `plan --help`.
    """
    listed = run("help").stdout
    assert listed == run("--help").stdout
    assert listed.index("  init") < listed.index("  plan") < listed.index("  submit")
    assert run("help", "plan").stdout == run("plan", "--help").stdout


def test_an_entry_is_found_without_its_kind() -> None:
    """`catalog NAME` is the entry, whatever it is."""
    assert run("catalog", "dgx-h100").stdout == run("catalog", "node-types", "dgx-h100").stdout
    assert run("catalog", "llama-3-8b").stdout == run("catalog", "models", "llama-3-8b").stdout


def test_rules_are_explained() -> None:
    """`rules ID` gives what the rule requires, the error it prevents, a fix and its source, in any
    case of the id.
    """
    result = run("rules", "mlm004")
    assert result.exit_code == ExitStatus.OK
    assert result.stdout.startswith("MLM004 (error")
    for expected in ("prevents  ", "fix  ", "source  "):
        assert expected in result.stdout


def test_rules_of_a_subject_are_listed() -> None:
    """`rules PREFIX` lists the rules whose ids begin so, and no others."""
    listed = run("rules", "mlm").stdout.splitlines()[1:]
    assert len(listed) > 10
    assert all(line.startswith(("MLM", " ")) for line in listed)


def test_titles_of_rules_are_printed_as_they_are() -> None:
    """The table of rules has no emoji where a title has `H:M:S`, and loses nothing in brackets."""
    assert "H:M:S" in run("rules", "SLM010").stdout
    assert "H:M:S" in " ".join(run("rules", "SLM").stdout.split())


def test_every_command_is_documented() -> None:
    """Every command has help, and so has every option of every command."""
    for name, command in commands.commands.items():
        assert command.help, name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_rules_are_found_by_a_word() -> None:
    """A word that is no id lists the rules whose requirement or error has it, in any case."""
    listed = run("rules", "oom").stdout
    assert "MEM001" in listed and "MLM004" not in listed
    assert run("rules", "qqqq").exit_code == ExitStatus.USAGE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("catalog",), "8 × a100-80gb-sxm  1,600 Gbit/s"),
        (("catalog", "models", "llama"), "models (16)\n  llama-7b "),
        (("catalog", "accelerators", "A100-80GB"), "a100-80gb-sxm"),
        (("catalog", "models", "gpt3-175b"), "174,604,259,328"),
        (("catalog", "node-types", "azure/standard_nd96amsr_a100_v4"), "source"),
    ],
)
def test_catalog_is_printed(arguments: tuple[str, ...], expected: str) -> None:
    """`catalog` lists entries with their main facts, and prints one entry by any of its names, with
    its source.
    """
    result = run(*arguments)
    assert result.exit_code == ExitStatus.OK
    assert expected in result.stdout


def test_rotation_is_told_of_attention_with_an_indexer_beside_it() -> None:
    """A layer whose attention is rotated has rotary positions, whatever stands beside that; layers
    without are still listed.
    """
    listed = {
        name: json.loads(run("catalog", "models", name, "--format", "json").stdout)
        for name in ("glm-5", "qwen3-next-80b-a3b")
    }
    assert listed["glm-5"]["layers_without_rotary"] == []
    assert listed["qwen3-next-80b-a3b"]["layers_without_rotary"][:4] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("8xh200", "141"),
        ("dgx-h200", "nvidia/dgx-h200"),
        ("dgx-h1000", "did you mean 'dgx-h100'?"),
        ("clusters", "did you mean 'node-types'?"),
        ("presets", "one of accelerators, node-types, models"),
        ("acclerators", "did you mean 'accelerators'?"),
        ("mixtral", "one of mixtral-8x7b, mixtral-8x22b"),
        ("nodes", "did you mean 'node-types'?"),
        ("llama-3-8b", "none or 0 "),
    ],
)
def test_the_catalogue_finds_names_as_people_write_them(name: str, said: str) -> None:
    """Counted GPUs are an accelerator; a wrong name gets the nearest of its own kind, or the kinds.

    What a model lacks is one line.
    """
    assert said in run("catalog", name).output


def test_a_dash_is_standard_output(workdir: Path) -> None:
    """`-o -` prints what the file would hold and nothing else, where a command writes one file, and
    is refused where it writes several; no file is called `-`.
    """
    job = ("--model", "gpt2", "--cluster", "8xh100", "--gpus", "8", "--framework", "deepspeed")
    job = (*job, "--target", "shell")
    table = "gpus,model,cluster,global_batch,zero_stage,step_time_s\n8,gpt2,8xh100,64,1,0.1\n"
    Path("runs.csv").write_text(table)
    arguments = {"init": job, "report": (*job, "--no-sweep"), "calibrate": ("runs.csv",)}
    for name, command in commands.commands.items():
        output = next((one for one in command.params if "--output" in one.opts), None)
        if output is None:
            continue
        result = run(name, *arguments.get(name, ()), "-o", "-")
        if output.metavar == "DIR":
            assert result.exit_code == ExitStatus.USAGE, name
            continue
        assert result.exit_code == ExitStatus.OK, result.stderr
        run(name, *arguments[name], "-o", "written")
        ours, theirs = (text.splitlines() for text in (result.stdout, Path("written").read_text()))
        commands_apart = [line for line in zip(ours, theirs, strict=True) if line[0] != line[1]]
        assert not commands_apart, name
        Path("written").unlink()
    assert not Path("-").exists()
