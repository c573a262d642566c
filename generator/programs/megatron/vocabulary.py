"""How messages call the keys of a job where they speak of Megatron's arguments: by its options."""

from __future__ import annotations

from typing import Final, get_args

from ...text.wording import Vocabulary, in_spec
from . import table
from .options import PROJECTS, Flavour, option_table

#: What no option says alone.
_WORDS: Final = {
    "gpus": "{} GPUs",
    "data": "{} replicas",
    "one data": "1 replica",
    "gradient_accumulation": "{} micro-batches",
    "one gradient_accumulation": "1 micro-batch",
    "virtual_pipeline: 1": "no interleaving",
    "framework: megatron-lm": "Megatron-LM",
    "framework: megatron-deepspeed": "Megatron-DeepSpeed",
    "recompute: none": "no recomputation",
    "offload: none": "no offload",
    "offload: optimizer+parameters": "offload of optimizer and parameters",
    "precision: fp8": "fp8",
    "precision: nvfp4": "NVFP4",
    "precision: fp32": "fp32",
    "attention: flash": "flash attention",
    "attention: unfused": "unfused attention",
    "optimizer": "optimizer: {}",  # AdamW is `adam` there
}


def _phrases(flavour: Flavour) -> dict[str, str]:
    """The options of the keys of `layout` and `training`, by key, or by key and value."""
    phrases: dict[str, str] = {}
    for row in table.rows(flavour):
        section, _, key = row.key.partition(".")
        option = option_table(flavour).get(row.option)
        if section not in ("layout", "training") or option is None:
            continue
        if row.value is not True:
            phrases[f"{key}: {in_spec(row.value)}"] = row.option
        elif option.kind == "flag":
            phrases |= {f"{key}: true": row.option, f"{key}: false": f"no {row.option}"}
            phrases[f"without {key}"] = f"remove {row.option}"
        else:
            phrases.setdefault(key, f"{row.option} {{}}")
    return phrases | _WORDS | dict(PROJECTS[flavour].phrases)


OF_OPTIONS: Final = {
    flavour: Vocabulary(phrases=_phrases(flavour), by_batch=True) for flavour in get_args(Flavour)
}
