"""Unknown keys of accelerate's deepspeed_config: what was meant, and whether it matters."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from ....findings import ERROR, NOTE, Severity
from ....job.releases import NEWEST
from ....patterns import lazy_pattern
from ....rules.violations import did_you_mean
from ....text.slips import is_slip
from ....text.wording import whole_number
from ...deepspeed.config import ZERO
from ...deepspeed.schema import load_schema
from ..training_arguments import TrainingArguments
from .accelerate import TOP_KEYS, Accelerated

#: Source: accelerate commands/launch.py (the options of its DeepSpeed group) @ 1.15.0.
KEYS: Final = (
    "deepspeed_config_file",
    "deepspeed_exclusion_filter",
    "deepspeed_hostfile",
    "deepspeed_inclusion_filter",
    "deepspeed_moe_layer_cls_names",
    "deepspeed_multinode_launcher",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "offload_optimizer_device",
    "offload_optimizer_nvme_path",
    "offload_param_device",
    "offload_param_nvme_path",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "zero_stage",
)
#: Source: accelerate utils/dataclasses.py (DeepSpeedPlugin.__post_init__) @ 1.15.0.
_DEFAULTS: Final = {
    "gradient_accumulation_steps": "1",
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_save_16bit_model": "false",
    "zero_stage": "2",
}
#: TrainingArguments that the Trainer holds the same settings to. Source: transformers
#: integrations/deepspeed.py (trainer_config_process) @ 5.23.
_OF_TRAINER: Final = {
    "gradient_clipping": "max_grad_norm",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
#: How many ranks share a model or a batch, as programs call it.
_DEGREE: Final = lazy_pattern(
    r"(data|tensor|pipeline|context|sequence|expert|model)_parallel(?:_size|_degree)?"
)


def instead_of(run: Accelerated, key: str, value: object) -> str:
    """The hint on an unknown key: what to write, unless that is there or would change nothing."""
    if key in TOP_KEYS and run.config.has(key):
        return f"remove it: {key} is there already"
    if key in TOP_KEYS:
        return "move it to the top of the file"
    meant = _meant(key)
    if meant is None and _happens_anyway(run, key, value):
        return "remove what holds anyway"
    if meant is None:
        return "move it into the JSON that deepspeed_config_file names"
    if meant not in run.config.deepspeed and _is_unread(run, meant):
        return f"remove it: {meant} has no effect at stage {run.config.zero_stage}"
    argument = _OF_TRAINER.get(meant, "")
    for arguments in run.submission.of(TrainingArguments):
        if argument and arguments.has(argument):
            return f"remove it: the Trainer's {argument} counts"
    return did_you_mean(meant, run.config.deepspeed)


def harm_of(run: Accelerated, key: str, value: object) -> Severity | None:
    """How severe an unknown key is: a note where what it says happens anyway, an error for a slip.

    None: the severity of the rule.
    """
    meant = _meant(key)
    is_there = meant in run.config.deepspeed or (key in TOP_KEYS and run.config.has(key))
    if is_there or _happens_anyway(run, meant or key, value):
        return NOTE
    return ERROR if any(is_slip(key, known) for known in KEYS) else None


def _meant(key: str) -> str | None:
    """The known key that an unknown one was meant to be."""
    near = get_close_matches(key.lower(), KEYS, n=1)
    return near[0] if near else None


def _is_unread(run: Accelerated, key: str) -> bool:
    """Whether nothing reads a known key at the stage of a config."""
    is_of_stage_3 = key.startswith(("offload_param_", "zero3_"))
    return is_of_stage_3 and run.config.zero_stage in (0, 1, 2)


def _happens_anyway(run: Accelerated, key: str, value: object) -> bool:
    """Whether what a key says holds without it: by default, or as the processes are divided."""
    if key in KEYS:
        return _is_unread(run, key) or str(value).lower() == _DEFAULTS.get(key)
    degree = _DEGREE.fullmatch(key)
    if degree is not None:
        ranks = run.config.processes if degree[1] == "data" else 1
        return ranks is not None and whole_number(value) == ranks
    schema = load_schema(NEWEST["deepspeed"])
    known = (schema.key(f"{parent}/{key}") for parent in (ZERO, ""))
    return any(row is not None and value is not None and row.default == value for row in known)
