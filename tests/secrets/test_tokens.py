"""Tokens as their makers draw them are all found, and what only resembles them isn't."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from dsgen import InvalidJob, load_job
from dsgen.secrets import Hider, find, mask, patterns
from tests.cli.running import run
from tests.test_architecture import PATHS

KINDS = {
    f"{prefix}{kind['usual']}": (prefix, kind)
    for kind in patterns()["tokens"]
    for prefix in kind["prefixes"]
}
MANY = 500
SPEC = {
    "model": "gpt2",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "gpus": 8,
    "framework": "deepspeed",
    "training": {"global_batch": 64},
}
HARMLESS = (Path(__file__).parent / "harmless_values.txt").read_text(encoding="utf-8").splitlines()


def alphabet(kind: dict[str, str]) -> str:
    """The characters of a token's alphabet, without those that separate its parts."""
    return "".join(
        char
        for char in map(chr, range(33, 127))
        if re.match(f"[{kind['alphabet']}]", char) and char not in ".="
    )


def drawn(prefix: str, kind: dict[str, str], count: int) -> list[str]:
    """Random tokens of a kind, always the same."""
    draw, chars = random.Random(prefix), alphabet(kind)
    return [
        prefix
        + re.sub(r"\d+", lambda size: "".join(draw.choices(chars, k=int(size[0]))), kind["usual"])
        for _ in range(count)
    ]


def test_a_part_of_something_encoded_is_no_token() -> None:
    """An image in base64 has the beginnings of tokens in it by chance."""
    prefix, kind = next(each for each in KINDS.values() if each[0] == "EAA")
    token = drawn(prefix, kind, 1)[0]
    assert [secret.value_in(token) for secret in find(token)] == [token]
    assert find("/9j/4AAQSkZJRgABAQEASABIAAD+4gxYSUNDX1BST0ZJTEUAAQEAAAxITGlubwIQ/" + token) == ()


@pytest.mark.parametrize("name", KINDS)
def test_no_random_token_is_missed(name: str) -> None:
    """Of 500 random tokens of each kind, as long as they are made, every one is masked whole."""
    prefix, kind = KINDS[name]
    tokens = drawn(prefix, kind, MANY)
    shown = mask("\n".join(f"--note {token}" for token in tokens)).split("\n")
    missed = [
        token
        for token, line in zip(tokens, shown, strict=True)
        if set(line.removeprefix("--note ")) != {"*"}
    ]
    assert missed == []


@pytest.mark.parametrize("value", HARMLESS)
def test_harmless_values_are_no_secrets(value: str) -> None:
    """Hashes, digests, names, paths, and lists of assignments are accepted as arguments and as
    variables.
    """
    assert find(f"run --data {value}") == ()
    launch = {
        "script": "train.py",
        "arguments": ["--data", value, value],
        "environment": {"DATA": value},
    }
    try:
        load_job({**SPEC, "launch": launch})
    except InvalidJob as invalid:
        assert [f.message for f in invalid.findings] == []


def test_there_are_enough_harmless_values() -> None:
    """The list holds at least 100 values, of every kind that a launch has."""
    assert len(set(HARMLESS)) >= 100


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=s3cretWord1,user=joe", "s3cretWord1"),
        ("user=joe,password=s3cretWord1", "s3cretWord1"),
        ("a=1,api_key=Zx81kk20Qw77pL", "Zx81kk20Qw77pL"),
        (
            "aws configure set aws_secret_access_key wJalrXUtnFEMIK7MDENGbPxRfiCYqqqqqqqKEYw",
            "wJalr",
        ),
        ("aws configure set --profile x aws_session_token FwoGZXIvYXdzEBYaDJ77", "FwoGZX"),
        ("git config --global github.token c0ffee1234567890abcd", "c0ffee"),
        ("npm config set api-token abc123def456ghi7", "abc123"),
        ('arguments: [--model_pat\nX_PAT: "supersecret"', "supersecret"),
    ],
)
def test_secrets_in_lists_and_commands_are_found(text: str, secret: str) -> None:
    """A secret among assignments in a list, and the value that a command stores under a secret's
    name, are masked.
    """
    assert secret not in mask(text)


def test_a_setup_that_stores_a_secret_is_refused() -> None:
    """A command among `setup` that stores a secret is an error, and nothing is written."""
    setup = ["aws configure set aws_secret_access_key wJalrXUtnFEMIK7MDENGbPxRfiCYqqqqqqqKEYw"]
    with pytest.raises(InvalidJob) as refused:
        load_job({**SPEC, "launch": {"script": "train.py", "slurm": {"setup": setup}}})
    assert ["secret" in finding.message for finding in refused.value.findings] == [True]
    assert "wJalr" not in str(refused.value)


def test_secrets_are_told_in_one_place() -> None:
    """No module but `secrets.py`, with its list, has the beginning of a token."""
    known = [p for p in (prefix for prefix, _ in KINDS.values()) if len(p) > 5 and p[-1] in "-_."]
    held = {
        path.name: prefix
        for path in PATHS
        for prefix in known
        if re.search(rf"[\"'|(]{re.escape(prefix)}", path.read_text(encoding="utf-8"))
    }
    assert held == {}


def test_words_between_are_no_values() -> None:
    """What a command sets under an ordinary name stays, and so do sentences on settings."""
    for text in (
        "aws configure set region eu-west-1",
        "git config --global user.name joe",
        "the config key layer_norm",
    ):
        assert mask(text) == text


KEY = "RSA " + "PRIVATE KEY"  # apart, so that no other program takes this file for a key
BODY = "MIIEpAIBAAKCAQEA7bq0QzExampleBodyLine1abcDEF0123456789"


@pytest.mark.parametrize("end", ["\\n", "\\\\n", "\\r\\n", "\n"])
@pytest.mark.parametrize("quote", ['"', "'", "$'"])
def test_a_private_key_on_one_line_is_not_carried_over(
    end: str, quote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init --from` neither writes nor prints the body of a private key, however its lines end."""
    monkeypatch.chdir(tmp_path)
    text = f"-----BEGIN {KEY}-----{end}{BODY}{end}{BODY[::-1]}{end}-----END {KEY}-----{end}"
    word = f"{quote}{text}{quote[-1]}"
    config = {"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
    Path("ds.json").write_text(json.dumps(config))
    Path("launch.sh").write_text(
        f"#!/bin/bash\nexport NOTES={word}\nexport SSH_KEY={word}\n"
        "aws configure set aws_secret_access_key wJalrXUtnFEMIK7MDENGbPxRfiCYqqqqqqqKEYw\n"
        "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --model_name_or_path gpt2"
        f" --note {word}\n"
    )
    told = run(
        "init", "--from", "launch.sh", "-o", "made.yaml", "--cluster", "dgx-h100", "--gpus", "8"
    )
    shown = told.stdout + told.stderr + Path("made.yaml").read_text()
    for secret in (BODY, BODY[::-1], "wJalrXUtnFEMIK7MDENGbPxRfiCYqqqqqqqKEYw"):
        assert secret[:20] not in shown
        assert secret[-20:] not in shown


def test_of_values_that_begin_alike_each_is_hidden_whole() -> None:
    """A text with one of two values that begin alike shows nothing of it, whichever is longer."""
    hide = Hider(["-----BEGIN abc\\nSECRETBODY1234567", "-----BEGIN abc\\\\nSECRETBODY1234567890"])
    assert "SECRET" not in hide("x -----BEGIN abc\\nSECRETBODY1234567 y")
