"""The glossary has every abbreviation that an output prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dsgen.cli import commands
from dsgen.cli.known_rules import known_rules
from dsgen.estimate.layout import Layout
from dsgen.estimate.layout_words import dimensions
from tests.case import NAMES as NAMES_OF_CASES
from tests.case import read_case
from tests.cli.running import run
from tests.docs.blocks import ROOT

#: Words with two capitals next to each other, or short ones with two: not names such as DeepSpeed
#: or PyTorchJob.
_ABBREVIATION = re.compile(r"\b(?=\w*[A-Z]{2}|(?:[a-z]*[A-Z]){2}\w{0,3}\b)[A-Za-z][A-Za-z0-9]*\b")
#: What is quoted, an option, a variable, a path or an address: another's word.
_QUOTED = re.compile(
    r"`[^`]*`|'[^']*'|\"[^\"]*\"|--[\w-]+|\$\{\w+(?:\[@\])?\}|\$\w+|\w*_\w+|\S*[/\\]\S*|\w+\([^)]*\)|\b\w+=\S+|\[\w+\]|<[^>]+>"
)
#: The message and the hint of a finding.
_MESSAGE = re.compile(r"^ *\S.*?: (?:error|warning|note): (.*) \[\w+\]$|^ *hint: (.*)$", re.M)
_TAGS = re.compile(r"<(style|script)\b.*?</\1>|<[^>]+>", re.S)
#: Names of products and classes that have capitals next to each other, and words in capitals in a
#: sentence.
NAMES = {
    *(
        "DeepSpeed",
        "OpenMPI",
        "MPIJob",
        "HfArgumentParser",
        "OpenRLHF",
        "TRL",
        "NeMo",
        "SkyPilot",
        "README",
        "LICENSE",
        "OR",
        "AND",
        "NOT",
        "NB",
    ),
    *(
        "SBATCH",
        "RANK",
        "CHECKPOINTS",
        "PATH",
        "GPU0",
        "BigScience",
        "PyTorch",
        "JobSet",
        "ConfigMap",
        "OPT",
        "MVAPICH",
        "DGX",
        "HGX",
        "DGXC",
    ),
    *(
        "InfiniBand",
        "DistOpt",
        "ZenFlow",
        "LRRangeTest",
        "GroupedGEMM",
        "GroupedMLP",
        "GPUS",
        "HOLDERS",
        "ROLE",
        "ExitCode",
        "DOS",
        "nprocPerNode",
        "OSError",
    ),
    *(
        "DeepSpeedCPUAdam",
        "DeepSpeedCPULion",
        "DistributedType",
        "DtypeEnum",
        "JSONDecodeError",
        "secretKeyRef",
    ),
    *(
        "ZeRORuntimeException",
        "DeepSeek",
        "DeltaNet",
        "GPT2BPETokenizer",
        "MLFLOW",
        "TrainJob",
        "WarmupLR",
    ),
    *("WarmupCosineLR", "WarmupDecayLR"),
}
#: Values that other programs take, as findings list them, and those that cases have wrong.
VALUES = {
    *(
        "ALL",
        "BEGIN",
        "END",
        "FAIL",
        "FALI",
        "FINISH",
        "FAST",
        "IGNORE",
        "LOUD",
        "MOCK",
        "MV2",
        "NET",
        "NETWORK",
        "NO",
    ),
    *("NONE", "PYTHON", "RANDOM", "REQUEUE", "UNLIMITED"),
}
#: Words in capitals that stand for what is to be put there.
SLOTS = {
    *(
        "DIR",
        "FOLDER",
        "GBSIZE",
        "HOSTS",
        "JOBID",
        "MODEL",
        "NODES",
        "OUT",
        "STATES",
        "WAIT",
        "WORDS",
    ),
    *(
        "COUNT",
        "DEEPSPEED",
        "FATAL",
        "FLAGS",
        "HOME",
        "INFO",
        "INIT",
        "MAX",
        "MIN",
        "NAME",
        "PORT",
        "RUNS",
        "SECONDS",
    ),
    *(
        "SHELL",
        "SIGNAL",
        "SOURCE",
        "STEP",
        "SUBDOMAIN",
        "TARGET",
        "TYPE",
        "VALUE",
        "VALUES",
        "VERSION",
        "WARN",
    ),
}


def outputs(folder: Path) -> Iterator[str]:
    """What the commands print, and what rules say."""
    examples = [str(path) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    for spec in examples:
        yield run("plan", spec, "--explain", "--top", "10").output
    for command in ("generate", "plan", "estimate"):
        yield run(
            command, examples[0], *(("-o", str(folder / "out")) if command == "generate" else ())
        ).output
    built_in = str(ROOT / "examples" / "gpt3-175b-azure.yaml")
    yield run("sweep", "gpus=512,1024", built_in).output
    yield run("plan", built_in, "--compare", "tensor=4").output
    yield run("plan", built_in, "--gpus", "8").output
    yield run("tune", built_in, "-o", str(folder / "tune")).output
    for asked in (
        ("catalog",),
        ("catalog", "deepseek-v3"),
        ("catalog", "p5.48xlarge"),
        ("schema", "job"),
        ("rules",),
    ):
        yield run(*asked).output
    assert (
        run(
            "report", str(ROOT / "examples" / "gpt3-175b-azure.yaml"), "-o", str(folder / "a.html")
        ).exit_code
        == 0
    )
    yield _TAGS.sub(" ", (folder / "a.html").read_text(encoding="utf-8"))
    for name, command in commands.commands.items():
        metavars = [p.make_metavar(click.Context(command)) for p in command.params]
        yield re.sub(
            "|".join(map(re.escape, filter(None, metavars))) or "$^", "", run(name, "--help").output
        )
    for rule in known_rules():
        yield f"{rule.title} {rule.prevents} {rule.fix}"
    yield from findings()
    yield from rendered()


def findings() -> Iterator[str]:
    """Messages and hints of every case: of config files and scripts, and of job specs."""
    told = [
        path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests" / "invalid").glob("*.out"))
    ]
    for text in (*told, *(read_case(name).expected for name in NAMES_OF_CASES)):
        yield from (message or hint for message, hint in _MESSAGE.findall(text))


def rendered() -> Iterator[str]:
    """Comments of written files, and what their scripts print."""
    for path in sorted((ROOT / "tests" / "golden").glob("*/*")):
        if path.suffix != ".json":
            text = path.read_text(encoding="utf-8")
            yield from re.findall(r"^\s*(?:#(?!!|SBATCH)|//) *(.*)", text, re.M)
            yield from (
                re.sub(r"\$\{?\w+\}?", " ", said)
                for said in re.findall(r'^ *echo "([^"]*)"', text, re.M)
            )


def glossary() -> set[str]:
    """The terms of the first column."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return {
        word
        for cell in re.findall(r"^\| ([^|]+) \|", text, re.M)
        for word in re.findall(r"[\w/+-]+", cell)
    }


@pytest.mark.slow
def test_every_abbreviation_is_in_the_glossary(tmp_path: Path) -> None:
    """Abbreviations of plans, tables, reports, help and rules are explained, but for names and
    quoted words.
    """
    ids = {rule.id for rule in known_rules()}
    prefixes = {re.sub(r"\d+$", "", rule) for rule in ids}
    found = {
        word
        for text in outputs(tmp_path)
        for word in _ABBREVIATION.findall(_QUOTED.sub(" ", text))
        if word not in ids | prefixes | NAMES | SLOTS | VALUES
    }
    explained = glossary()
    missing = sorted(found - explained - {term.split("/")[0] for term in explained})
    assert not missing, ", ".join(missing)


def test_every_heading_of_a_table_of_plans_is_in_the_glossary() -> None:
    """The columns of the dimensions of a layout are explained."""
    assert set(dimensions(Layout(data=1))) <= glossary() | {"recompute", "offload"}
