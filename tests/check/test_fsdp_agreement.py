"""Our findings on FSDP's settings and the ways of transformers and accelerate with them agree."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

import dsgen
from dsgen.findings import Severity
from dsgen.programs.frameworks import program_for
from dsgen.programs.program import ConfigPath
from tests.case import NAMES, read_case
from tests.needs import needs_transformers
from tests.workers import answers, once

WORKER: Final = Path(__file__).with_name("fsdp_says_worker.py")
#: Rules on releases of torch and accelerate that aren't installed here.
OF_OTHER_RELEASES: Final = ("FSDP047", "FSDP048", "FSDP049")
#: Endings of cases on what another program reads: dsgen, a front end, or bash with its branches.
OF_OTHER_PROGRAMS: Final = ("_spec", "_axolotl", "_front_end", "_branches")
CASES: Final = [
    name
    for name in NAMES
    if name.startswith(("FSDP0", "ACC025", "HF005_launch"))
    and not name.startswith(OF_OTHER_RELEASES)
    and not name.endswith(OF_OTHER_PROGRAMS)
]
#: What is raised, by the case's rule or name.
RAISED: Final = {
    "FSDP020": "ValueError: invalid truth value",
    "FSDP024": "ValueError: FSDP2 does not support LOCAL_STATE_DICT",
    "FSDP024_unknown": "KeyError: 'SHARDED'",
    "FSDP025": "ValueError: `activation_checkpointing_offload=True` requires `activation_check",
    "FSDP025_first": "ValueError: `activation_checkpointing_offload=True` requires `fsdp_version",
    "FSDP026": "ValueError: When using `--fsdp_cpu_ram_efficient_loading` set",
    "FSDP027": "ValueError: Invalid auto wrap policy",
    "FSDP027_trainer": "ValueError: `auto_wrap_policy` must be one of",
    "FSDP028": "TypeError: 'NoneType' object is not callable",
    "FSDP030": "ValueError: fully_shard does not support containers",
    "FSDP038": "ValueError: FSDP is enabled but the parallelism config has no dimension for FSDP",
    "FSDP039": "ValueError: Could not find the transformer layer class",
    "HF005": "ValueError: Using --fsdp xxx together with --deepspeed is not possible",
    "FSDP031": "ValueError: Using `cp_size>1` requires FSDP2",
    "FSDP035": "ValueError: `fsdp_config['activation_checkpointing']`",
    "FSDP036": "ValueError: save_only_model option is not compatible",
    "FSDP042": "ValueError: `cp_size > 1` specified in the `parallelism_config`, but no `fsdp_plug",
    "FSDP044": "ValueError: Using fsdp only works in distributed training",
    "FSDP050": "KeyError: 'FULL_SHARDED'",
    "FSDP041": "ValueError: the launcher's parser refuses the line",
    "ACC025": "ValueError: You can only use one of",
    "FSDP032": "ValueError: Unknown `fsdp` option: true",
    "FSDP032_first": "ValueError: `fsdp=hybrid_shard` is only available with FSDP1",
}
#: What runs instead, of what isn't raised.
RUNS: Final[dict[str, dict[str, Any]]] = {
    "FSDP021": {"version": 2, "reshard": True, "strategy": None},
    "FSDP022": {"version": 1, "strategy": "FULL_SHARD"},
    "FSDP023": {"version": 1},
    "FSDP029": {"version": 2, "units": 0},
    "FSDP033": {"plugin": False},
    "FSDP034": {"version": 2, "offload": False},
    "FSDP040": {"plugin": False},
}
#: Read in the source: nobody looks whether a variable was set in time; attention is asked for in
#: the first step, experts and quantized weights by no one.
READ: Final = {"FSDP037", "FSDP043", "FSDP045", "FSDP046"}


def _question(folder: Path) -> dict[str, Any]:
    """What a folder of a case asks."""
    script = folder / "train.sh"
    if script.exists():
        words = shlex.split(script.read_text().replace("\\\n", " "), comments=True)
        words = words[words.index("launch") + 1 :]
        return {"folder": str(folder), "line": words, "is_launched": True}
    if (folder / "accelerate.yaml").exists():
        line = ["--config_file", "accelerate.yaml", "train.py"]
        return {"folder": str(folder), "line": line, "is_launched": True}
    words = shlex.split((folder / "run.sh").read_text().replace("\\\n", " "), comments=True)
    at = next(index for index, word in enumerate(words) if word in ("run_clm.py", "sft.py"))
    launched = "torchrun" in words
    return {"folder": str(folder), "arguments": words[at + 1 :], "is_launched": launched}


@once
def said() -> dict[tuple[str, str], dict[str, Any]]:
    """What the programs say of both parts of every case."""
    with TemporaryDirectory() as home:
        asked = {
            (name, part): _question(read_case(name).write(part, Path(home) / name / part))
            for name in CASES
            for part in ("bad", "good")
        }
        return dict(zip(asked, answers(WORKER, [*asked.values()]), strict=True))


@pytest.mark.integration
@needs_transformers
@pytest.mark.parametrize("name", CASES)
def test_cases_fare_as_they_say(name: str) -> None:
    """What a case calls bad is refused with its error, or runs as something else; what it calls
    good is taken.
    """
    rule = name.partition("_")[0]
    bad, good = said()[name, "bad"], said()[name, "good"]
    assert good["error"] is None
    assert good["plugin"]
    if rule in READ:
        assert bad["error"] is None
        return
    expected = RAISED.get(name, RAISED.get(rule))
    if expected is not None:
        assert str(bad["error"]).startswith(expected)
    else:
        assert bad["error"] is None
        assert RUNS[rule].items() <= bad.items()


@pytest.mark.parametrize("name", CASES)
def test_good_cases_have_no_error(name: str, tmp_path: Path) -> None:
    """What the programs accept causes no error."""
    found = dsgen.validate(read_case(name).write("good", tmp_path))
    assert not [item for item in found if item.severity is Severity.ERROR]


def _drawn(draw: random.Random) -> dict[str, Any]:
    """A spec of the Trainer with FSDP2, most of whose values are left open."""
    layout: dict[str, Any] = {}
    for key, values in {
        "zero_stage": (2, 3),
        "recompute": ("none", "full"),
        "offload": ("none", "optimizer+parameters"),
        "sync_each_batch": (True, False),
        "zero_copies": (1, 2),
        "context": (1, 2),
        "micro_batch": (1, 2),
    }.items():
        if draw.random() < 0.5:
            layout[key] = draw.choice(values)
    training: dict[str, Any] = {
        "sharding": "fsdp2",
        "sequence_length": draw.choice((1024, 4096)),
        "global_batch": draw.choice((64, 256)),
        "precision": draw.choice(("bf16", "fp16")),
    }
    if draw.random() < 0.5:
        training |= {"optimizer": draw.choice(("adamw", "sgd")), "duration": {"steps": 500}}
    if training["precision"] == "bf16" and draw.random() < 0.3:
        training["master_dtype"] = "same"
    elif draw.random() < 0.3:
        training["lora"] = {"rank": draw.choice((8, 64))}
    return {
        "framework": "huggingface",
        "model": draw.choice(("llama-3.1-8b", "qwen2.5-7b", "llama-3.2-1b", "qwen3-4b")),
        "cluster": draw.choice(("dgx-h100", "aws/p4de.24xlarge")),
        "nodes": draw.choice((1, 2, 4)),
        "training": training,
        "layout": layout,
        "output": {"checkpoints": "out"} if draw.random() < 0.5 else {},
        "launch": {"target": "shell", "script": draw.choice(("run_clm.py", "train.py"))},
    }


@pytest.mark.integration
@needs_transformers
def test_random_specs_are_taken(tmp_path: Path) -> None:
    """The arguments and files of random specs are accepted, and mean what their plans say."""
    draw, asked, plans = random.Random(20261129), list[dict[str, Any]](), list[dsgen.Plan]()
    while len(plans) < 60:
        try:
            plan = dsgen.estimate(dsgen.load_job(_drawn(draw)))
        except dsgen.InvalidJob:
            continue
        if any(finding.severity is Severity.ERROR for finding in plan.findings):
            continue
        folder = tmp_path / str(len(plans))
        folder.mkdir()
        program = program_for(plan)
        for file in program.files:
            (folder / file.path).write_text(file.text)
        words = [w.name if isinstance(w, ConfigPath) else w for w in program.arguments]
        asked.append({"folder": str(folder), "arguments": words, "is_launched": True})
        plans.append(plan)
    for plan, told in zip(plans, answers(WORKER, asked), strict=True):
        assert told["error"] is None
        assert told["reshard"] == (plan.layout.zero_stage == 3)
        assert told["offload"] == (plan.layout.offload.label == "optimizer+parameters")
        assert told["units"] == 2
