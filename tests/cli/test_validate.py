"""`dsgen validate` on the command line: what it prints where, how it exits, what it selects; and
its guide.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsgen.check.folder_files import is_candidate
from dsgen.cli.known_rules import known_rules
from dsgen.cli.printing import ExitStatus
from dsgen.cli.validate import validate as command
from tests.cli.running import run
from tests.docs.blocks import blocks
from tests.needs import needs_deepspeed

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "validate.md"
SPEC = """\
model: gpt2
framework: deepspeed
cluster: azure/standard_nd96amsr_a100_v4
gpus: 8
training: {global_batch: 64}
"""
#: One error, one warning of what is there, both of dsgen's own form of a spec.
_MODEL = (
    "hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: "
    "3072, vocab_size: 50304"
)
BAD = SPEC.replace("model: gpt2", "# its model is the last key") + (
    f"colour: blue\nmodel: {{model_type: llama, {_MODEL}, num_nextn_predict_layers: 1}}\n"
)
CONFIG = (
    '{\n  "train_batch_size": 64,\n  "train_micro_batch_size_per_gpu": 8,\n  "bf16": '
    '{"enabled": true}\n}\n'
)


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own, with a job of one error and one warning."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(BAD)
    return tmp_path


def rules_of(*arguments: str) -> list[str]:
    """The ids of what `dsgen validate` finds."""
    return [
        found["rule"]
        for found in json.loads(run("validate", *arguments, "--format", "json").stdout)["findings"]
    ]


def test_text_is_followed_by_a_summary() -> None:
    """Findings go to standard output, and their numbers to standard error."""
    result = run("validate", ".")
    assert result.exit_code == ExitStatus.FINDINGS
    assert result.stdout.startswith("job.yaml:6:1: error: unknown key 'colour'")
    assert result.stderr == "1 error, 1 warning in 1 document\n"


def test_nothing_found_is_reported(workdir: Path) -> None:
    """A good submission prints nothing to standard output, and exits with 0."""
    (workdir / "job.yaml").write_text(SPEC)
    result = run("validate", ".")
    assert (result.exit_code, result.stdout, result.stderr) == (
        ExitStatus.OK,
        "",
        "no findings in 1 document\n",
    )


@pytest.mark.parametrize("form", ["json", "sarif", "github", "azure"])
def test_other_forms_have_standard_output_for_themselves(form: str) -> None:
    """A form for programs is all of standard output, with the same status; and it is the same every
    time.
    """
    results = [run("validate", "job.yaml", "--format", form) for _ in range(2)]
    assert results[0].stdout == results[1].stdout
    assert results[0].exit_code == ExitStatus.FINDINGS
    if form == "github":
        assert (
            results[0]
            .stdout.splitlines()[0]
            .startswith("::error file=job.yaml,line=6,col=1,title=SPEC006::")
        )
    elif form == "azure":
        command, _, message = results[0].stdout.splitlines()[0].partition("]")
        assert (
            command == "##vso[task.logissue "
            "type=error;sourcepath=job.yaml;linenumber=6;columnnumber=1;code=SPEC006"
        )
        assert message.startswith("unknown key 'colour'")
    else:
        json.loads(results[0].stdout)


def test_files_left_alone_are_named(workdir: Path) -> None:
    """The first files of a reason are named, and all of them with --strict."""
    for number in range(5):
        (workdir / f"notes{number}.md").write_text(
            "```\ntorchrun --nproc-per-node=8 train.py\n```\n"
        )
    short, strict = (run("validate", ".", *more).stderr for more in ((), ("--strict",)))
    assert "notes0.md, notes1.md, notes2.md and 2 more; --strict names all)" in short
    assert "notes0.md, notes1.md, notes2.md, notes3.md, notes4.md)" in strict


@pytest.mark.parametrize(
    ("ignored", "fail_on", "status"),
    [
        ("", "error", 1),
        ("", "never", 0),
        ("SPEC006", "error", 0),
        ("SPEC006", "warning", 1),
        ("SPEC006", "note", 1),
        ("SPEC", "note", 0),
    ],
)
def test_the_status_is_of_what_is_told(ignored: str, fail_on: str, status: int) -> None:
    """The exit status is 1 when something as severe as `--fail-on` is reported."""
    assert run("validate", ".", "--fail-on", fail_on, "--ignore", ignored).exit_code == status


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        ("", ["SPEC006", "SPEC021"]),
        ("--select SPEC021", ["SPEC021"]),
        ("--select spec021,SPEC006", ["SPEC006", "SPEC021"]),
        ("--select SPEC021 --select SPEC006", ["SPEC006", "SPEC021"]),
        ("--select SPEC", ["SPEC006", "SPEC021"]),
        ("--select MLM", []),
        ("--ignore SPEC021", ["SPEC006"]),
        ("--ignore SPEC --select SPEC021", ["SPEC021"]),
        ("--ignore SPEC021 --select SPEC", ["SPEC006"]),
        ("--ignore SPEC021 --select SPEC021", []),
    ],
)
def test_rules_are_selected_and_ignored(flags: str, reported: list[str]) -> None:
    """Rules are chosen by ids and prefixes; the longer prefix decides, of two alike `--ignore`."""
    assert rules_of(".", *flags.split()) == reported


def test_what_could_not_be_read_is_told_whatever_is_selected(workdir: Path) -> None:
    """A file that can't be read has its error under `--select` of other rules; only `--ignore`
    drops it.
    """
    assert rules_of("absent.json", "--select", "MLM") == ["FILE001"]
    assert rules_of("absent.json", "--ignore", "FILE001") == []
    (workdir / "ds_config.json").write_text('{"train_batch_size": ')
    assert rules_of("ds_config.json", "--select", "MLM") == ["PARSE016"]


def test_an_empty_path_is_no_folder(workdir: Path) -> None:
    """A variable that is empty names nothing, and not the current folder."""
    (workdir / "ds.json").write_text(CONFIG)
    result = run("validate", "")
    assert "not a path [FILE001]" in result.output and result.exit_code == ExitStatus.FINDINGS


def test_files_of_other_programs_can_be_left_out(workdir: Path) -> None:
    """With `--skip-unknown` a file of an unknown kind is no error; one that can't be read
    still is.
    """
    (workdir / "package.json").write_text('{"name": "x", "scripts": {}}')
    (workdir / "other.yaml").write_text("on: push\n")
    names = ("package.json", "other.yaml", "job.yaml")
    assert set(rules_of(*names)) > {"SPEC006", "SPEC021"}
    assert rules_of(*names, "--skip-unknown") == ["SPEC006", "SPEC021"]
    assert rules_of("absent.json", "--skip-unknown") == ["FILE001"]


def test_what_is_left_alone_is_counted_in_one_line(workdir: Path) -> None:
    """Files of other programs draw no finding; one line counts them, and the JSON form has each
    with the reason.
    """
    (workdir / "critic.yaml").write_text("_target_: pkg.Config\noptimizer: {}\ncheckpoint: {}\n")
    (workdir / "job.yml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {}\nspec: {}\n")
    text, form = run("validate", "."), run("validate", ".", "--format", "json")
    assert text.stderr.splitlines()[-1] == "left alone: 2 files (1 of Hydra; 1 of Kubernetes)"
    strict = run("validate", ".", "--strict").stderr.splitlines()
    assert strict[-1] == "left alone: 2 files (1 of Hydra: critic.yaml; 1 of Kubernetes: job.yml)"
    assert "checked: job.yaml" in strict
    assert "left alone" not in run("validate", "job.yaml").stderr
    assert {one["path"] for one in json.loads(form.stdout)["left_alone"]} == {
        "critic.yaml",
        "job.yml",
    }
    assert {found["path"] for found in json.loads(form.stdout)["findings"]} == {"job.yaml"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--select", "SPEC06"), "unknown rule 'SPEC06'; did you mean 'SPEC0"),
        (("--ignore", "SPEK"), "did you mean 'SPEC'?"),
        (("--diff",), "--diff requires --fix"),
        (("--fail-on", "sometimes"), "sometimes"),
        (("--consumer", "pytorch"), "pytorch"),
        (("--gpus", "0"), "--gpus"),
        (("--format", "xml"), "xml"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], expected: str) -> None:
    """A wrong command line exits with 2 and a message that helps."""
    result = run("validate", ".", *arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert expected in " ".join(result.stderr.split())


def test_a_job_alone_is_checked(workdir: Path) -> None:
    """`--job` with a folder that has no document says what is wrong with the spec alone."""
    (workdir / "empty").mkdir()
    (workdir / "job.spec").write_text(SPEC)
    result = run("validate", "empty", "--job", "job.spec")
    assert result.exit_code == ExitStatus.OK, result.output
    assert "0 documents" in result.output


def test_a_path_is_required() -> None:
    """Without a path nothing is guessed."""
    assert run("validate").exit_code == ExitStatus.USAGE


def test_a_comment_ignores_a_finding(workdir: Path) -> None:
    """A comment in a job spec ignores a finding on its line, and an unused one is reported."""
    text = BAD.replace("colour: blue", "colour: blue  # dsgen: ignore[SPEC006]").replace(
        "gpus: 8", "gpus: 8  # dsgen: ignore[MLM004]"
    )
    (workdir / "job.yaml").write_text(text)
    assert rules_of("job.yaml") == ["FILE007", "SPEC021"]


def test_an_unknown_name_in_the_flags_is_a_finding() -> None:
    """A cluster that isn't known is an error at the flag, in every form."""
    flags = (
        "validate",
        "job.yaml",
        "--cluster",
        "azure/standard_nd96amrs_a100_v4",
        "--select",
        "FILE006",
    )
    assert run(*flags).stdout.startswith("--cluster azure/standard_nd96amrs_a100_v4: error: ")
    assert run(*flags, "--format", "github").stdout.startswith("::error title=FILE006::")
    [invocation] = json.loads(run(*flags, "--format", "sarif").stdout)["runs"][0]["invocations"]
    assert invocation["toolConfigurationNotifications"][0]["descriptor"] == {"id": "FILE006"}


@pytest.mark.parametrize(
    "name", ["\x1b[2Jds_config.json", "ds,line=1::config.json", "a\nds_config.json", "%0Ads.json"]
)
@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "azure"])
def test_hostile_file_names_do_no_harm(name: str, form: str, workdir: Path) -> None:
    """A file's name can't write to the terminal or end a workflow command, and --fix takes it as it
    is.
    """
    (workdir / name).write_text(CONFIG.replace("64", "63").replace('"bf16"', '# c\n "bf16"'))
    answer = run("validate", ".", "--gpus", "8", "--format", form, "--consumer", "huggingface")
    assert answer.exit_code == ExitStatus.FINDINGS
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", answer.stdout)
    if form == "github":
        assert all(
            re.match(r"::\w+ (file=[^,:]*,(line=\d+,)?(col=\d+,)?)?title=\w+::", line)
            for line in answer.stdout.splitlines()
        )
    if form == "azure":
        commands = [line for line in answer.stdout.splitlines() if line.startswith("##vso")]
        assert commands
        form_of = (
            r"##vso\[task.logissue type=\w+;"
            r"(sourcepath=[^];]*;(linenumber=\d+;)?(columnnumber=\d+;)?)?code=\w+\]"
        )
        assert all(re.match(form_of, line) for line in commands)
    run("validate", ".", "--gpus", "8", "--consumer", "huggingface", "--fix")


def test_the_schema_is_printed() -> None:
    """`dsgen schema findings` prints the schema of the JSON form."""
    assert json.loads(run("schema", "findings").stdout)["title"] == "dsgen findings"


def in_fresh_python(code: str) -> subprocess.CompletedProcess[str]:
    """What a new interpreter makes of some code."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_engine_needs_deepspeed() -> None:
    """Without DeepSpeed `--engine` is a usage error with what to install."""
    done = in_fresh_python(
        "import sys; sys.modules['deepspeed'] = None\n"
        "from dsgen.cli import main; main(['validate', 'job.yaml', '--engine'])"
    )
    assert done.returncode == ExitStatus.USAGE
    assert "DeepSpeed is not installed; pip install 'dsgen-launch[deepspeed]'" in done.stderr
    assert done.stdout == ""


@needs_deepspeed
@pytest.mark.integration
def test_engine_tells_what_deepspeed_refuses(workdir: Path) -> None:
    """What DeepSpeed's own parser refuses is an error at the key that it names, unless an error is
    reported already.
    """
    (workdir / "job.yaml").unlink()
    (workdir / "ds_config.json").write_text(
        CONFIG.replace("}\n}", '},\n  "zero_optimization": {"stage": 7}\n}')
    )
    flags = (".", "--gpus", "8", "--engine")
    own = {rule for rule in rules_of(*flags) if not rule.startswith("ENG")}
    assert "ENG001" not in rules_of(*flags)
    answer = json.loads(
        run("validate", *flags, "--format", "json", "--ignore", ",".join(own)).stdout
    )
    [found] = [found for found in answer["findings"] if found["rule"] == "ENG001"]
    assert (found["severity"], found["pointer"], found["line"]) == (
        "error",
        "/zero_optimization/stage",
        5,
    )
    assert "on 8 GPUs" in found["message"] and "0, 1, 2, 3" in found["message"]


@needs_deepspeed
@pytest.mark.integration
def test_engine_reads_as_the_consumer_does(workdir: Path) -> None:
    """What only DeepSpeed's own reader takes is refused, at its place, for a program that reads
    with json before it.
    """
    (workdir / "job.yaml").unlink()
    (workdir / "ds_config.json").write_text(CONFIG.replace("64,", "64, # a comment"))
    flags = (".", "--gpus", "8", "--engine", "--select", "ENG", "--format", "json")
    assert json.loads(run("validate", *flags).stdout)["findings"] == []
    [found] = json.loads(run("validate", *flags, "--consumer", "huggingface").stdout)["findings"]
    assert (found["rule"], found["line"], found["column"]) == ("ENG001", 2, 27)
    assert found["message"].startswith("Python's json, which reads it first, refuses this config")


@needs_deepspeed
@pytest.mark.integration
def test_engine_of_another_version_is_told(workdir: Path) -> None:
    """When the DeepSpeed that is asked is not the one that the files are for, a note reports it."""
    (workdir / "job.yaml").unlink()
    (workdir / "ds_config.json").write_text(CONFIG)
    assert "ENG002" in rules_of(".", "--gpus", "8", "--engine", "--deepspeed-version", "0.16.9")


@needs_deepspeed
@pytest.mark.integration
def test_engine_keeps_standard_output_clean(workdir: Path) -> None:
    """What DeepSpeed prints while it is asked stays out of standard output, whatever it is."""
    (workdir / "job.yaml").unlink()
    (workdir / "ds_config.json").write_text(CONFIG.replace("64", "63"))
    code = (
        "from dsgen.cli import main; main(['validate', '.', '--gpus', '8', '--engine', "
        "'--format', 'json'])"
    )
    done = in_fresh_python(code)
    json.loads(done.stdout)
    assert "Traceback" not in done.stderr


def test_hooks_of_the_guide_are_published() -> None:
    """Each hook that the guide shows is one that dsgen has, with arguments that it takes."""
    documents = [
        yaml.safe_load(block.text)
        for block in blocks(ROOT / "docs/ci.md")
        if block.language == "yaml"
    ]
    hooks = [
        hook
        for document in documents
        for repo in document.get("repos", [])
        for hook in repo["hooks"]
    ]
    published = {
        hook["id"]
        for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    }
    assert hooks and {hook["id"] for hook in hooks} <= published
    for hook in hooks:
        arguments = [word for word in hook.get("args", []) if not Path(word).suffix]
        parsed, _, _ = command.make_parser(command.make_context("validate", ["x"])).parse_args(
            ["x", *arguments]
        )
        assert parsed["paths"]


def test_the_guide_names_every_flag() -> None:
    """Every option of the command is in the guide, and every rule that the guide names is there."""
    options = [
        option
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    ]
    guide = GUIDE.read_text(encoding="utf-8")
    assert [option for option in options if option not in guide] == []
    known = {rule.id for rule in known_rules()}
    assert set(re.findall(r"\b[A-Z]{2,6}\d{3}\b", guide)) <= known


def test_folders_are_jobs_of_their_own(workdir: Path) -> None:
    """Two jobs in one tree are not checked against each other, and nothing of them is lost; `--job`
    joins them.
    """
    for name, stage in (("a", 2), ("b", 9)):
        (workdir / name).mkdir()
        config = {
            "train_batch_size": 64,
            "zero_optimization": {"stage": stage, "overlap_comm": True},
        }
        (workdir / name / "ds_config.json").write_text(
            json.dumps(config | {"gradient_clipping": 1.0})
        )
        (workdir / name / "hostfile").write_text(f"{name}-0 slots=8\n")
    (workdir / "b" / "hostfile").write_text("b-0 slots=8\nb-1 slots=8\n")
    apart = json.loads(run("validate", "a", "b", "--format", "json").stdout)["findings"]
    assert {finding["path"] for finding in apart if finding["severity"] == "error"} == {
        "b/ds_config.json"
    }
    assert "SUB001" not in {finding["rule"] for finding in apart}
    spec = str(ROOT / "examples" / "llama-3-8b-lora.yaml")
    together = json.loads(run("validate", "a", "b", "--job", spec, "--format", "json").stdout)[
        "findings"
    ]
    assert "SUB002" in {finding["rule"] for finding in together}


def test_the_hook_takes_the_documents_of_a_folder() -> None:
    """The pre-commit hook is given the files that a folder's documents are looked for in, and no
    others.
    """
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (hook["id"], hook["entry"]) == ("dsgen-validate", "dsgen validate --skip-unknown")
    names = """ds_config.json conf.hjson job.yaml job.yml run.sh run.bash a.sbatch a.slurm
        a.job hostfile hostfile.16 arguments.txt .deepspeed_env a/b/ds.json train.py README.md a.txt
        .hidden.json json hostfile/a x.json.bak"""
    for name in names.split():
        taken = re.search(hook["files"], name) is not None
        assert taken == is_candidate(Path(name)) or name == ".hidden.json", name


def test_files_alone_load_no_heavy_library(workdir: Path) -> None:
    """Configs, scripts and hostfiles are checked without numpy and jinja2: a job spec needs
    them.
    """
    (workdir / "job.yaml").unlink()
    (workdir / "ds_config.json").write_text(CONFIG)
    (workdir / "run.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun train.py\n")
    (workdir / "hostfile").write_text("a slots=8\n")
    done = in_fresh_python(
        "import sys\nfrom dsgen.cli import main\n"
        "try: main(['validate', '.', '--gpus', '8', '--fail-on', 'never'])\n"
        "except SystemExit: print('loaded:', *({'numpy', 'jinja2', 'torch'} & set(sys.modules)))"
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_what_was_not_read_is_said_in_every_form(workdir: Path) -> None:
    """Launch lines outside scripts, and files that a script writes, are named in text, JSON and
    SARIF.
    """
    (workdir / "README.md").write_text("```bash\ntorchrun --nproc_per_node 8 train.py\n```\n")
    (workdir / "run.py").write_text('subprocess.run(["accelerate", "launch", "train.py"])\n')
    (workdir / "notes.md").write_text("deepspeed and accelerate are libraries\n")
    (workdir / "ds_config.json").write_text('{"train_batch_size": 7}')
    script = "cp other.json ds_config.json\ndeepspeed train.py --deepspeed_config ds_config.json\n"
    (workdir / "run.sh").write_text(script)
    text, form = run("validate", "."), json.loads(run("validate", ".", "--format", "json").stdout)
    reasons = {one["path"]: one["reason"] for one in form["left_alone"]}
    launches = "launch lines, but no script"
    assert reasons == {
        "README.md": launches,
        "run.py": launches,
        "ds_config.json": "written by a script",
    }
    assert (
        "(2 launch lines, but no script: README.md, run.py; 1 written by a script: ds_config.json)"
        in text.stderr
    )
    properties = json.loads(run("validate", ".", "--format", "sarif").stdout)["runs"][0][
        "properties"
    ]
    assert (properties["documents"], len(properties["leftAlone"])) == (form["documents"], 3)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ipynb", '{"cells": [], "nbformat": 4}'),
        ("a.json", '{"scripts": {}}'),
        ("a.yaml", "on: push\n"),
    ],
)
def test_a_file_that_is_named_is_not_forced_into_a_kind(
    workdir: Path, name: str, content: str
) -> None:
    """A notebook, or data of no known kind, is said to be unknown, and not read as a config or a
    job.
    """
    (workdir / name).write_text(content)
    assert rules_of(name) == ["FILE004"]


def test_a_folder_without_anything_known_is_a_note(workdir: Path) -> None:
    """A folder in which there is nothing to check fails no pipeline."""
    (workdir / "empty").mkdir()
    found = json.loads(run("validate", "empty", "--format", "json").stdout)["findings"]
    assert [(one["rule"], one["severity"]) for one in found] == [("FILE004", "note")]


def test_a_folder_that_can_not_be_read_is_an_error(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without rights is not said to have nothing to check."""
    (workdir / "closed").mkdir()
    scandir = os.scandir

    def refused(path: Any = ".") -> Any:
        if str(path) == "closed":
            raise PermissionError(13, "Permission denied", "closed")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    (found,) = json.loads(run("validate", "closed", "--format", "json").stdout)["findings"]
    assert (found["rule"], found["severity"]) == ("FILE001", "error")
    assert found["message"] == "the folder can't be read: permission denied"


def test_a_named_spec_needs_no_suffix() -> None:
    """A spec of any name is read as one, though its framework is a launcher's name as well."""
    Path("job").write_text(BAD)
    assert "job:6:1: error: unknown key 'colour'" in run("validate", "job").stdout


def test_standard_input_is_refused_by_name() -> None:
    """`-` is answered with what to do, where it was said to be no file."""
    assert "reads no standard input" in run("validate", "-").stderr
