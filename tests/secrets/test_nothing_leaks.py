"""No secret of a spec or of a job's files is in any file or on any screen, whatever the target and
the form.
"""

from __future__ import annotations

import json
import shlex
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dsgen import InvalidJob, load_job
from dsgen.cli import commands
from dsgen.secrets import find, mask

from .realistic import SECRETS
from .samples import (
    ARGUMENTS,
    HARMLESS,
    HEX,
    HF,
    JWT,
    ORDINARY,
    ORDINARY_ARGUMENTS,
    PEM,
    PLACES,
    SAS,
    VARIABLES,
)

TARGETS = ("slurm", "azureml", "shell")
PLAIN_LINES = (Path(__file__).parent / "harmless.txt").read_text(encoding="utf-8").splitlines()
FORMS = ("text", "json", "sarif", "github", "azure")
SPECS: list[tuple[dict[str, Any], str]] = [
    *(({"environment": {name: value}}, value) for name, value in VARIABLES.items()),
    *(({"arguments": arguments}, secret) for arguments, secret in ARGUMENTS),
    *PLACES,
]


def spec(launch: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A job that is right but for what `launch` adds."""
    return {
        "name": "small",
        "framework": "deepspeed",
        "model": "gpt2",
        "cluster": "azure/standard_nd96amsr_a100_v4",
        "gpus": 8,
        "training": {"global_batch": 64},
        "launch": {"script": "train.py", **launch},
        **more,
    }


def run(*arguments: str) -> str:
    """All that a command prints."""
    result = CliRunner().invoke(commands, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout + result.stderr


def assert_hidden(secret: str, shown: str) -> None:
    """Neither the secret nor any of its lines is shown, raw or as JSON, and nothing of what a
    message cuts short.
    """
    for part in (
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        *secret.split("\n"),
        secret.split("\n")[0][:30],
    ):
        if part not in ("", "-----BEGIN OPENSSH PRIVATE KEY-----"[:30]):
            assert part not in shown


def test_there_are_sixty() -> None:
    """The specs hold at least 60 secrets."""
    assert len(SPECS) >= 60


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("launch", "secret"), SPECS)
def test_a_secret_stops_the_files(
    workdir: Path, launch: dict[str, Any], secret: str, target: str
) -> None:
    """It is an error on every target, nothing is written, and no line shows it."""
    (workdir / "job.yaml").write_text(
        yaml.safe_dump(spec({**launch, "target": target}), width=1000)
    )
    shown = run("generate", "job.yaml", "-o", "out")
    assert "[SPEC016]" in shown
    assert not (workdir / "out").exists()
    assert_hidden(secret, shown)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("launch", "secret"), SPECS)
def test_no_form_shows_a_secret_of_a_spec(
    workdir: Path, launch: dict[str, Any], secret: str, form: str
) -> None:
    """Checking the spec reports the secret without its value, in every form."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec(launch), width=1000))
    shown = run("validate", "job.yaml", "--format", form)
    assert "SPEC016" in shown
    assert_hidden(secret, shown)


@pytest.mark.parametrize("command", ["plan", "estimate", "generate"])
@pytest.mark.parametrize(("name", "secret"), VARIABLES.items())
def test_no_flag_shows_a_secret(workdir: Path, name: str, secret: str, command: str) -> None:
    """A secret that a flag sets is reported without its value."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec({})))
    shown = run(command, "job.yaml", "--set", f"launch.environment.{name}={secret}")
    assert "[SPEC016]" in shown
    assert_hidden(secret, shown)


@pytest.mark.parametrize("command", ["plan", "generate", "estimate"])
def test_arguments_of_a_flag_are_not_shown_where_they_are_placed(
    workdir: Path, command: str
) -> None:
    """The place of a finding on `--set launch.arguments=...` is the flag, without the secret
    in it.
    """
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec({})))
    arguments = json.dumps(["--hf-token", "Zz9kLm42Qq7"])
    assert_hidden("Zz9kLm42Qq7", run(command, "job.yaml", "--set", f"launch.arguments={arguments}"))


@pytest.mark.parametrize(("launch", "secret"), SPECS)
def test_no_exception_holds_a_secret(launch: dict[str, Any], secret: str) -> None:
    """From Python, neither the exception nor its findings hold the value."""
    with pytest.raises(InvalidJob) as raised:
        load_job(spec(launch))
    assert_hidden(secret, f"{raised.value} {raised.value.findings!r}")


@pytest.mark.parametrize(
    ("more", "secret"),
    [
        ({"gpus": "hunter2hunter"}, ""),
        ({"cluster": "https://joe:swordfish7@h/x"}, "swordfish7"),
        ({"model": f"https://joe:swordfish8@h/{HF}"}, HF),
        ({"name": HF}, HF),
        ({"wandb_api_key": HEX}, HEX),
        ({"training": {"global_batch": HF}}, HF),
        ({"calibration": f"https://a.b/c?sig={SAS}"}, SAS),
    ],
)
def test_other_findings_hide_it_too(workdir: Path, more: dict[str, Any], secret: str) -> None:
    """What is wrong with a value for another reason is reported without the secret in it."""
    (workdir / "job.yaml").write_text(
        yaml.safe_dump(spec({"environment": {"MY_PASSWORD": "hunter2hunter"}}, **more))
    )
    for form in FORMS:
        shown = run("validate", "job.yaml", "--format", form)
        assert_hidden("hunter2hunter", shown)
        assert_hidden(secret, shown) if secret else None


@pytest.mark.parametrize("target", TARGETS)
def test_ordinary_names_are_written(workdir: Path, target: str) -> None:
    """Tokenizers, numbers of tokens, paths, variables and placeholders are no secrets, and land in
    the files.
    """
    launch = {"environment": ORDINARY, "arguments": ORDINARY_ARGUMENTS, "target": target}
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec(launch)))
    shown = run("generate", "job.yaml", "-o", "out")
    assert "SPEC016" not in shown
    assert (workdir / "out" / "plan.json").exists()


FILES: dict[str, tuple[str, str]] = {
    "run.sh": (
        "#!/bin/bash\n{}\ndeepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n",
        "SLM018",
    ),
    "run.sbatch": (
        "#!/bin/bash\n#SBATCH --nodes=2\n{}\nsrun torchrun --nnodes=2 train.py\n",
        "SLM018",
    ),
}
LINES = [
    *(
        (f"export {name}='{value}'", value)
        for name, value in VARIABLES.items()
        if "\n" not in value
    ),
    *((f"python train.py {shlex.join(words)}", secret) for words, secret in ARGUMENTS),
    (f"cat > key <<EOF\n{PEM}\nEOF", PEM),
    (f"# export HF_TOKEN={HF}", HF),
    (f"curl -H 'Authorization: Bearer {JWT}' https://h", JWT),
    (f"wandb login {HEX}", HEX),
    ("sshpass -p hunter7x ssh host", "hunter7x"),
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("line", "secret"), LINES)
def test_no_finding_shows_a_secret_of_a_script(
    workdir: Path, name: str, line: str, secret: str
) -> None:
    """Whatever else is wrong on its line, a secret in a script is shown by no form, nor by a diff
    of fixes.
    """
    (workdir / name).write_text(FILES[name][0].replace("{}", f"{line}; #SBATCH --nodez=$((1"))
    (workdir / "other.sh").write_text(
        f"#!/bin/bash\n{line}\ntorchrun --nproc 8 --nnodez 4 train.py\n"
    )
    for form in FORMS:
        assert_hidden(secret, run("validate", ".", "--format", form))
    assert_hidden(secret, run("validate", ".", "--fix", "--diff"))


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("run.sh", f"#!/bin/bash\nexport WANDB_API_KEY={HEX}\ndeepspeed train.py\n", "SLM018"),
        ("run.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\npython t.py --api-key {HEX}\n", "SLM018"),
        (".deepspeed_env", f"NCCL_DEBUG=INFO\nWANDB_API_KEY={HEX}\n", "SLM018"),
        (
            "job.yml",
            "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\n"
            "command: python t.py\n"
            "environment: azureml:e@latest\ncompute: azureml:c\nenvironment_variables:\n  "
            f"WANDB_API_KEY: {HEX}\n",
            "AML042",
        ),
        (
            "ds_config.json",
            '{"train_batch_size": 8, "comet": {"enabled": true, "api_key": "' + HEX + '"}}',
            "MON007",
        ),
        (
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: "
            f"8\nhub_token: {HEX}\n",
            "SUB014",
        ),
        (
            "args.yaml",
            f"output_dir: o\nper_device_train_batch_size: 1\nreport_to: none\nhub_token: {HEX}\n",
            "SUB014",
        ),
    ],
)
def test_every_kind_of_file_is_judged(workdir: Path, name: str, text: str, rule: str) -> None:
    """A secret in any kind of file is reported by the rule of its reader, and shown by no form."""
    (workdir / name).write_text(text)
    for form in FORMS:
        shown = run("validate", name, "--format", form)
        assert rule in shown
        assert_hidden(HEX, shown)


def test_a_diff_hides_what_was_added_by_hand(workdir: Path) -> None:
    """A secret that somebody wrote into a generated file is masked in the diff of a new plan."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec({})))
    run("generate", "job.yaml", "-o", "out")
    script = workdir / "out" / "launch.sbatch"
    script.write_text(script.read_text() + f"export HF_TOKEN={HF}\n")
    shown = run("generate", "job.yaml", "-o", "out", "--diff")
    assert "HF_TOKEN=***" in shown
    assert_hidden(HF, shown)


def test_a_usage_error_hides_it() -> None:
    """What click reports of an argument is masked too."""
    assert_hidden("hunter2hunter", run("plan", "--set", "launch.password:hunter2hunter"))


@pytest.mark.parametrize(
    "content", ["a very private line\nand more\n", '"a very private line"', "private: very\n"]
)
def test_a_private_file_is_named_not_quoted(workdir: Path, content: str) -> None:
    """A file named as calibration, model or job that is something else is not shown."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec({})))
    (workdir / "diary.txt").write_text(content)
    (workdir / "ds.json").write_text('{"train_batch_size": 8}')
    commands_of = (
        ("plan", "job.yaml", "--calibration", "diary.txt"),
        ("plan", "job.yaml", "--model", "./diary.txt"),
        ("validate", "ds.json", "--model", "./diary.txt"),
        ("validate", "ds.json", "--job", "diary.txt"),
    )
    for arguments in commands_of:
        shown = run(*arguments)
        assert "diary.txt" in shown
        assert "very" not in shown


@pytest.mark.parametrize("lines", [1, 2])
def test_a_script_in_place_of_a_table_is_not_quoted(workdir: Path, lines: int) -> None:
    """A column's name that is a secret's line is masked, in the message on it as in the line that
    is shown.
    """
    (workdir / "runs.csv").write_text('export SECRETS="whisper10"\n' * lines)
    shown = run("calibrate", "runs.csv", "--job", "job.yaml")
    assert "is an unknown column" in shown
    assert "whisper10" not in shown


def test_a_file_of_one_line_takes_as_long_as_one_of_many() -> None:
    """The scan is linear in a line's length: the place of each name in its line costs nothing."""

    def seconds(text: str) -> float:
        start = time.process_time()
        find(text)
        return time.process_time() - start

    one, many = (min(seconds(f'"key": 1,{end}' * 40_000) for _ in range(3)) for end in " \n")
    assert one < 20 * many  # the square of its length would be thousands


def test_all_values_are_checked() -> None:
    """No sample's secret is so short that hiding it is luck."""
    assert min(map(len, chain(VARIABLES.values(), (secret for _, secret in ARGUMENTS)))) >= 7


def _refused(words: list[str]) -> str:
    """What is said of a spec with these arguments."""
    with pytest.raises(InvalidJob) as raised:
        load_job(spec({"arguments": words}))
    assert any(finding.rule == "SPEC016" for finding in raised.value.findings)
    return f"{raised.value} {raised.value.findings!r}"


def test_there_are_a_hundred_realistic_ones() -> None:
    """The list has at least 100 secrets, and 200 harmless values."""
    assert len(SECRETS) >= 100
    assert len(PLAIN_LINES) + len(HARMLESS) >= 200


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_realistic_secret_is_masked_and_refused(text: str, secret: str) -> None:
    """Commands, tokens, URLs and words of other languages: shown nowhere, and refused in a spec."""
    assert secret not in mask(text)
    assert len(mask(text)) == len(text)
    assert secret not in _refused([text])


@pytest.mark.parametrize(
    "words", [["-u", "me:pw4711x"], ["-pS3cretPw9"], ["--user", "me:hunter2!"]]
)
def test_a_password_of_two_words_is_refused(words: list[str]) -> None:
    """An option and its value are read together, as the program gets them."""
    assert words[-1].removeprefix("-p") not in _refused(words)


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_harmless_arguments_are_accepted(line: str) -> None:
    """Globs, digests, images, hashes, addresses and names with `key` or `token` in them are no
    secrets.
    """
    assert mask(line) == line
    assert load_job(spec({"arguments": line.split(" ")}))


def test_harmless_variables_are_accepted() -> None:
    """What runs set in their environment is no secret."""
    assert load_job(spec({"environment": HARMLESS}))


@pytest.mark.parametrize("depth", [1, 3, 7])
def test_escaped_quotes_hide_nothing(workdir: Path, depth: int) -> None:
    """JSON in JSON in a flag: the refusal shows neither the key's value nor the flag's."""
    (workdir / "job.yaml").write_text(yaml.safe_dump(spec({})))
    quote = "\\" * depth + '"'
    flag = f'launch.arguments=["--config","{{{quote}api_key{quote}: {quote}Zq9kLm42Qq7{quote}}}"]'
    shown = run("plan", "job.yaml", "--set", flag)
    assert_hidden("Zq9kLm42Qq7", shown)


def test_a_diff_shows_no_secret_of_its_lines(workdir: Path) -> None:
    """--fix --diff masks a secret behind escaped quotes, and the same secret on other lines."""
    config = (
        '{"train_batchsize": 8, "note": "{\\"api_key\\": \\"Zq9kLm42Qq7\\"}", '
        '"b": "run-Zq9kLm42Qq7"}'
    )
    (workdir / "ds_config.json").write_text(config)
    shown = run("validate", ".", "--fix", "--diff")
    assert_hidden("Zq9kLm42Qq7", shown)


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--gpus", "8", "--model", HF, "--cluster", "nvidia/dgx-h100"),
        ("plan", "--cluster", HF, "--gpus", "8"),
    ],
)
def test_a_token_as_a_flag_is_not_shown(workdir: Path, arguments: tuple[str, ...]) -> None:
    """A token in place of a model or cluster is named as one, and not repeated."""
    shown = run(*arguments)
    assert "SPEC016" in shown
    assert_hidden(HF, shown)


def test_a_draft_keeps_no_secret_of_a_variable(workdir: Path) -> None:
    """init --from leaves out a known secret wherever it is: in a name, a path, an image, a mount, a
    config.
    """
    (workdir / "run.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nexport API_KEY=sEcr3tCanary99\n"
        "srun --container-image=me:pw4711x@nvcr.io#pytorch "
        "--container-mounts=/scratch,/d:/d,/r-$API_KEY:/x "
        "deepspeed train.py --key $API_KEY --name run-$API_KEY --out /o/$API_KEY -u me:pw4711y "
        "--deepspeed ds.json\n"
    )
    (workdir / "ds.json").write_text(
        '{"train_batch_size": 64, "tensorboard": {"output_path": "/x/sEcr3tCanary99"}}'
    )
    shown = run(
        "init", "--from", ".", "--model", "gpt2", "--cluster", "nvidia/dgx-h100", "-o", "new.yaml"
    )
    text = (workdir / "new.yaml").read_text()
    for secret in ("sEcr3tCanary99", "pw4711x", "pw4711y"):
        assert_hidden(secret, shown + text)
    assert "container_mounts: [/scratch, /d:/d]" in text
