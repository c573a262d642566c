"""Configs that a script writes before it launches: the file on the disk, or its absence, says
nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dsgen

GOLDEN = Path(__file__).parents[1] / "golden"
LAUNCH = "deepspeed train.py --deepspeed_config ${config}\n"
WRITES = 'sed "s/STAGE/1/" ds_template.json > ${config}\n'


@pytest.mark.parametrize("writes", [False, True])
def test_a_config_that_the_script_writes_is_not_missed(tmp_path: Path, writes: bool) -> None:
    """A missing config draws a note, but not where a command of the script writes it, of a template
    or not.
    """
    script = f"#!/bin/bash\nconfig=ds_small.json\n{WRITES if writes else ''}{LAUNCH}"
    (tmp_path / "train.sh").write_text(script)
    (tmp_path / "ds_template.json").write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": "STAGE"}}'
    )
    found = {finding.rule for finding in dsgen.validate(tmp_path)}
    assert found & {"PARSE003", "PARSE015"} == (set() if writes else {"PARSE003"})


def _found(folder: Path, files: dict[str, str]) -> list[tuple[str, str, int | None, str]]:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return [
        (f.rule, Path(f.where.path).name, f.where.line, f.severity.value)
        for f in dsgen.validate(folder)
    ]


BAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 7}}'


@pytest.mark.parametrize(
    "writes",
    [
        "cp other.json ds.json",
        "jq '.a = 1' other.json > ds.json",
        "envsubst < other.tmpl | tee ds.json",
        "yq -o json other.yaml --output ds.json",
        "sed s/A/B/ other.json > ./ds.json",
        "echo x > $PWD/ds.json; cat other.json > /home/me/%s/ds.json",
    ],
)
def test_a_file_that_a_script_writes_is_not_judged_as_it_lies_there(
    tmp_path: Path, writes: str
) -> None:
    """What an older run left on the disk says nothing of a config that the script writes before it
    launches.
    """
    writes = writes.replace("%s", tmp_path.name)
    script = f"#!/bin/bash\n{writes}\ndeepspeed train.py --deepspeed --deepspeed_config ds.json\n"
    assert _found(
        tmp_path, {"ds.json": BAD, "train.sh": "deepspeed train.py --deepspeed_config ds.json\n"}
    )
    assert not [
        rule for rule, name, *_ in _found(tmp_path, {"train.sh": script}) if name == "ds.json"
    ]


@pytest.mark.parametrize(
    "code", ["python - <<'EOF'\nopen('ds.json', 'w').write('{}')\nEOF", "sed -i s/8/4/ ds.json"]
)
def test_a_config_that_a_script_changes_is_not_held_against_its_launch_line(
    tmp_path: Path, code: str
) -> None:
    """A config that a program's text names, or that is edited in place, is not compared with the
    launch line.
    """
    files = {"ds.json": '{"train_batch_size": 8, "bf16": {"enabled": true}}'}
    launch = "deepspeed --num_gpus 3 train.py --deepspeed --deepspeed_config ds.json\n"
    assert [
        one for one in _found(tmp_path, files | {"train.sh": launch}) if one[0].startswith("BATCH")
    ]
    assert not [
        one
        for one in _found(tmp_path, {"train.sh": f"{code}\n{launch}"})
        if one[0].startswith("BATCH")
    ]


@pytest.mark.parametrize(
    ("writes", "line"),
    [(f'cat <<EOT > "$dir/ds.json"\n{BAD}\nEOT', 2), (f"echo '{BAD}' > $dir/ds.json", 1)],
)
def test_the_text_of_a_config_in_an_unknown_folder_is_judged(
    tmp_path: Path, writes: str, line: int
) -> None:
    """The text that a script writes is judged with the place of its lines, whatever folder it is
    written to.
    """
    script = f"{writes}\ndeepspeed train.py --deepspeed --deepspeed_config $dir/ds.json\n"
    assert [
        one
        for one in _found(tmp_path, {"train.sh": script})
        if one[1:] == ("train.sh", line, "error")
    ]


@pytest.mark.parametrize(
    ("named", "there"),
    [
        ("configs/zero3_ofload.json", "configs/zero3_offload.json"),
        ("configs/zero3_offload.json", "config/zero3_offload.json"),
        ("zero3-offload.json", "zero3_offload.json"),
    ],
)
@pytest.mark.parametrize("by", ["script", "yaml"])
def test_a_slip_in_a_config_s_path_is_an_error(
    tmp_path: Path, named: str, there: str, by: str
) -> None:
    """A path that is one letter from a config's is an error wherever that lies, through
    accelerate's YAML too.
    """
    script = f"deepspeed train.py --deepspeed {named}\n"
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        f"deepspeed_config:\n  deepspeed_config_file: {named}\n"
    )
    files = {
        there: '{"train_batch_size": "auto"}',
        **({"a.sh": script} if by == "script" else {"a.yaml": accelerate}),
    }
    assert "error" in [
        severity for rule, *_, severity in _found(tmp_path, files) if rule == "PARSE003"
    ]


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("accelerate launch --config_file conf/fsdp.yaml train.py", ["warning"]),
        ("accelerate launch --config_file $CONF/fsdp.yaml train.py", ["note"]),
        ("cd $SOMEWHERE\naccelerate launch --config_file conf/fsdp.yaml train.py", ["note"]),
        ("accelerate launch --config_file elsewhere/fsdp.yaml train.py", ["note"]),
        (
            "python make.py conf/fsdp.yaml\naccelerate launch --config_file "
            "conf/fsdp.yaml train.py",
            [],
        ),
    ],
)
def test_a_config_of_accelerate_that_is_not_there_is_reported(
    tmp_path: Path, lines: str, severities: list[str]
) -> None:
    """A config of accelerate's that is missing is a warning where its folder is there, a note where
    it may lie elsewhere, and nothing where a command makes it.
    """
    found = _found(tmp_path, {"train.sh": f"{lines}\n", "conf/other.json": "{}"})
    assert [severity for rule, *_, severity in found if rule == "SUB011"] == severities


@pytest.mark.parametrize("named", ["/data/demo_scripts/ds.json", "demo_scripts/ds.json"])
def test_a_file_of_the_same_name_in_another_folder_is_not_the_one(
    tmp_path: Path, named: str
) -> None:
    """A config beside a script is not what the script means by a path with another folder."""
    files = {
        "train/ds.json": '{"train_batch_size": 8}',
        "train/a.sh": f"deepspeed --num_gpus 3 t.py --deepspeed {named}\n",
    }
    assert not [one for one in _found(tmp_path, files) if one[0].startswith(("BATCH", "HF"))]


@pytest.mark.parametrize("example", ["qwen2.5-7b-finetune", "llama-3-70b-deepspeed", "bloom-176b"])
def test_a_config_gone_from_written_files_is_an_error(tmp_path: Path, example: str) -> None:
    """Files that dsgen wrote draw no error, and one where the DeepSpeed config among them is
    deleted.
    """
    folder = shutil.copytree(GOLDEN / example, tmp_path / example)
    assert not [finding for finding in dsgen.validate(folder) if finding.severity.value == "error"]
    (folder / "ds_config.json").unlink()
    errors = {
        finding.rule for finding in dsgen.validate(folder) if finding.severity.value == "error"
    }
    assert errors & {"PARSE003", "AML024"}
