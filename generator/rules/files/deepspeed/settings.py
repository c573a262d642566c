"""What DeepSpeed's parser takes for a setting: converted where a model does it, its default where it must."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ....documents.deepspeed_schema import DeepSpeedSchema, load_schema
from ....documents.document import DsConfig
from ....documents.lax_types import mismatch
from ....documents.submission import Submission

#: The first release whose parser divides the world by `sequence_parallel_size`, and the first that fails where it
#: can't (deepspeed/runtime/config.py `DeepSpeedConfig.__init__`).
DIVIDES_BY_SEQUENCE: Final = (0, 17)
FAILS_BY_SEQUENCE: Final = (0, 19, 3)
BATCH_KEYS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
#: Numbers that the parser takes as they are and the engine computes with, at stages of ZeRO where it does.
COMPUTED_LATER: Final = {
    "/gradient_clipping": ((0, 1, 2, 3), "TypeError: '>' not supported between instances of 'str' and 'float'"),
    "/steps_per_print": ((0, 1, 2, 3), "TypeError: unsupported operand type(s) for %: 'int' and 'str'"),
    "/gradient_predivide_factor": ((0, 2, 3), "it is not 1.0, which ZeRO refuses, and no number to divide by"),
}
_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})


def readable(submission: Submission) -> Iterator[tuple[DsConfig, DeepSpeedSchema]]:
    """The configs whose top level is an object, with the keys of the release that is to read them."""
    for config in submission.ds_configs:
        if isinstance(config.json.data, dict) and config.json.broken is None:
            yield config, load_schema(submission.deepspeed_version)


def is_empty(config: DsConfig) -> bool:
    """Whether the file has nothing in it; a part of a script's text may come later."""
    return not config.embedded and any(what.what == "no value at all" for what in config.json.deviations)


def setting(config: DsConfig, schema: DeepSpeedSchema, section: str, name: str) -> Any:
    """The value that the parser takes for a key of a section; None where the release doesn't know it."""
    key = schema.key(f"{section}/{name}")
    if key is None:
        return None
    names = (key.written, key.name)
    value = next((config.value(f"{section}/{n}") for n in names if config.has(f"{section}/{n}")), key.default)
    inner = schema.section(section)
    if inner is None or inner.kind == "mapping":
        return value
    if value == "auto" or (value is not key.default and mismatch(value, key, pydantic=schema.pydantic)):
        return key.default
    if not isinstance(value, str):
        return value
    if key.type.name == "bool":
        return value.lower() in _TRUE
    whole = key.type.name == "enum" and key.type.of[0].name == "int"
    return float(value) if whole or key.type.name in ("int", "float") else value


def is_elastic(config: DsConfig, schema: DeepSpeedSchema) -> bool:
    """Whether the batch follows from the elasticity block, whatever the batch keys say."""
    return schema.section("/elasticity") is not None and bool(config.block("/elasticity").get("enabled"))


def replicas_of(config: DsConfig, submission: Submission) -> int | float | None:
    """What DeepSpeed's parser takes for the number of replicas; None where no document says how many GPUs there are.

    Tensor parallelism that the config asks for is not divided out: without an mpu the parser counts every GPU.
    """
    world = submission.world
    if world.gpus is None:
        return None
    apart: int | float = world.pipeline
    if submission.megatron or (submission.job is not None and submission.job.framework.runs("Megatron layers")):
        apart *= world.tensor * world.context
    elif submission.deepspeed_version >= DIVIDES_BY_SEQUENCE:
        degree = config.value("/sequence_parallel_size", 1)
        if not isinstance(degree, int | float) or not degree:
            # What can't be divided by counts as a world of one, until the parser fails on it.
            return 1 if submission.deepspeed_version < FAILS_BY_SEQUENCE else None
        apart *= degree
    return world.gpus / apart if world.gpus % apart else world.gpus // apart


def batch_values(submission: Submission) -> Iterator[tuple[DsConfig, str, object]]:
    """The batch keys that DeepSpeed computes with: each config, key and value."""
    for config, schema in readable(submission):
        for key in BATCH_KEYS if not is_elastic(config, schema) else ():
            yield config, key, config.value(f"/{key}")


def bf16_block(config: DsConfig, schema: DeepSpeedSchema) -> str:
    """The pointer of the block that the parser reads as bf16."""
    key = schema.key("/bf16")
    takes_null = key is not None and "null" not in key.refuses  # then null counts as left out
    absent = not config.has("/bf16") or (takes_null and config.value("/bf16") is None)
    return "/bfloat16" if absent and config.has("/bfloat16") else "/bf16"


def stage_of(config: DsConfig, schema: DeepSpeedSchema) -> int:
    """The ZeRO stage as the parser takes it, from true, "2" and 2.0 as well."""
    written = config.value("/zero_optimization")
    if isinstance(written, bool):
        return int(written)
    stage = setting(config, schema, "/zero_optimization", "stage")
    return int(stage) if isinstance(stage, int | float) else 0
