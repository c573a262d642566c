"""Compare `dsgen validate` with accelerate on accelerate configs: `python -m
benchmarks.agreement_accelerate`.

Each of a number of seeded configs goes the way of `accelerate launch --config_file`: it is loaded,
its arguments are checked, the launcher's command and environment are made, and the DeepSpeed plugin
is built in that environment. Nothing is started. Errors of ours that are silent there, or that
DeepSpeed would give later, are counted as beyond it.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

import dsgen
from benchmarks.azureml_mutations import places, put
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity

SEED: Final = 20261121
CONFIGS: Final = 600
BASES: Final[tuple[dict[str, Any], ...]] = (
    {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "bf16",
        "num_machines": 2,
        "num_processes": 16,
        "machine_rank": 0,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 29500,
        "main_training_function": "main",
        "deepspeed_config": {
            "zero_stage": 3,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 1.0,
            "offload_optimizer_device": "none",
            "offload_param_device": "cpu",
            "zero3_init_flag": True,
            "zero3_save_16bit_model": True,
            "deepspeed_multinode_launcher": "standard",
        },
    },
    {
        "distributed_type": "DEEPSPEED",
        "num_machines": 1,
        "num_processes": 8,
        "deepspeed_config": {"deepspeed_config_file": "ds_config.json", "zero3_init_flag": False},
    },
)
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    4,
    7,
    8,
    70000,
    1.5,
    "8",
    "auto",
    "no",
    "fp16",
    "bf16",
    "FP8",
    "bf61",
    "none",
    "cpu",
    "nvme",
    "disk",
    "DEEPSPEED",
    "deepspeed",
    "FSDP",
    "MULTI_GPU",
    "pdsh",
    "standard",
    "torchrun",
    [],
    {},
    ["0", "1"],
    "0,1",
    "ds_config.json",
)
KEYS: Final = (
    "gpu_ids",
    "num_proceses",
    "mixed_precision",
    "zero_stage",
    "zero_stages",
    "fsdp_config",
    "deepspeed_hostfile",
    "gradient_accumulation_steps",
    "fp16",
    "use_cpu",
    "dynamo_backend",
    "gradient_clipping",
    "downcast_bf16",
)
SETTINGS: Final = (
    "zero_stage",
    "zero_stages",
    "deepspeed_hostfile",
    "gradient_clipping",
    "offload_param_device",
)
_WHEN: Final = {rule.id: rule.when for rule in all_file_rules()}
#: Rules whose errors come after what is done here: the rendezvous, the start of processes,
#: DeepSpeed's own reading.
_LATER: Final = frozenset({"ACC004", "ACC005", "ACC006", "ACC009", "ACC015", "ACC016", "HF016"})


def configs(count: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """The bases, and `count` of them with one or two changes each, said in words."""
    rng = random.Random(seed)
    made: list[tuple[str, dict[str, Any]]] = [
        (f"base {index}", base) for index, base in enumerate(BASES)
    ]
    for _ in range(count):
        config, told = copy.deepcopy(rng.choice(BASES)), []
        for _ in range(rng.choice((1, 1, 2))):
            path, value = rng.choice(list(places(config))), copy.deepcopy(rng.choice(VALUES))
            if rng.random() < 0.35:
                path = rng.choice(((rng.choice(KEYS),), ("deepspeed_config", rng.choice(SETTINGS))))
            told.append(put(config, path, value, remove=rng.random() < 0.15))
        made.append(("; ".join(told), config))
    return made


def launch_says(folder: Path) -> str | None:
    """Why accelerate refuses a config before it starts anything; None where it would start."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin, patch_environment
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    parser = launch_command_parser()
    try:
        args = parser.parse_args(
            ["--config_file", str(folder / "accelerate.yaml"), str(folder / "train.py")]
        )
        args, defaults, from_config = _validate_launch_command(args)
        if not args.use_deepspeed or args.cpu:
            return None
        fields = [*defaults.deepspeed_config.keys(), *(["mixed_precision"] if from_config else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        if str(args.deepspeed_config_file) == "ds_config.json":
            args.deepspeed_config_file = str(folder / "ds_config.json")
        _, environment = prepare_deepspeed_cmd_env(args)
        with patch_environment(**environment):
            DeepSpeedPlugin().set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])
    except (Exception, SystemExit) as problem:  # whatever it raises keeps the job from starting
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
    return None


def compare_all(count: int = CONFIGS, *, seed: int = SEED) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome came, and every disagreement."""
    counts: Counter[str] = Counter()
    unexplained: list[str] = []
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as name:
        warnings.simplefilter("ignore")
        folder = Path(name)
        (folder / "train.py").touch()
        (folder / "ds_config.json").write_text(
            json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
        )
        for told, config in configs(count, seed):
            (folder / "accelerate.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
            outcome, problem = _compare(folder)
            counts[outcome] += 1
            if problem:
                unexplained.append(f"{told}: {problem}")
    logging.disable(logging.NOTSET)
    return counts, unexplained


def _compare(folder: Path) -> tuple[str, str | None]:
    refusal = launch_says(folder)
    told = dsgen.validate(folder / "accelerate.yaml")
    # num_processes may come from a launch line, and what is empty be filled in: notes.
    found = [
        item
        for item in told
        if item.severity is Severity.ERROR or item.rule in ("ACC004", "ACC005")
    ]
    wrong = [item for item in found if _WHEN.get(item.rule) != "silent" and item.rule not in _LATER]
    if refusal is not None and not found and "Expected a string path" in refusal:
        return "no such file, from here", None  # the path may be right where the job starts
    if refusal is not None:
        return (
            ("both refuse", None)
            if found
            else ("disagree", f"accelerate says {refusal}; we say nothing")
        )
    if wrong:
        return "disagree", "accelerate starts; we say " + "; ".join(
            f"{item.rule} {item.message}" for item in wrong
        )
    return ("refused later or silent" if found else "both take"), None


def main() -> int:
    """Print the counts and every disagreement."""
    counts, unexplained = compare_all()
    print(", ".join(f"{outcome}: {number}" for outcome, number in sorted(counts.items())))
    print(f"unexplained disagreements: {len(unexplained)}")
    print("\n".join(unexplained))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
