"""What goes to NVMe, and how it is read and written."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed_now, derived
from ...world import world_of
from ..config import Config, whole_of
from .offload import OFFLOADS, OPTIMIZER, PARAM
from .subjects import Run, configs, runs
from .values import removed, shown, unused

#: Keys of an offload that are for NVMe only.
_NVME_ONLY: Final = {
    OPTIMIZER: ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init"),
    PARAM: ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu"),
}
#: Counts of the aio block, with their defaults.
_AIO: Final = {"block_size": 1048576, "queue_depth": 8, "intra_op_parallelism": 1}


@configs.rule(
    "ZERO008", ERROR, "init", deepspeed_now("runtime/zero/partition_parameters.py:1229; runtime/zero/stage3.py:840")
)
def nvme_has_a_path(config: Config) -> Violations:
    """Offload to NVMe has an nvme_path.

    Prevents: an assertion, or a TypeError where the path is joined
    Fix: add "nvme_path"
    """
    for what, pointer in OFFLOADS:
        path = config.value(f"{pointer}/nvme_path")
        if config.stage == 3 and config.offload(what) == "nvme" and path in (None, ""):
            message, hint = f"offload_{what} to nvme has no nvme_path", 'add "nvme_path": a folder on a local disk'
            yield Violation(config.locate(f"{pointer}/device"), message, hint)


@configs.rule("ZERO009", WARNING, "silent", deepspeed_now("runtime/zero/stage_1_and_2.py:219"))
def nvme_is_for_stage_3(config: Config) -> Violations:
    """The optimizer is offloaded to NVMe at stage 3: at stages 1 and 2 it silently goes to the CPU's memory.

    Prevents: The node's memory fills in place of the disk.
    Fix: use stage 3, or cpu"""
    if config.stage in (1, 2) and config.offload("optimizer") == "nvme":
        message = f"offload_optimizer to nvme at stage {config.stage} silently goes to the node's memory"
        yield Violation(config.locate(f"{OPTIMIZER}/device"), message, 'use stage 3, or "device": "cpu"')


@configs.rule("ZERO050", NOTE, "silent", deepspeed_now("runtime/zero/stage3.py:839; runtime/zero/stage3.py:1129"))
def nvme_keys_are_for_nvme(config: Config) -> Violations:
    """Keys of the swap to NVMe are written where something is offloaded to NVMe.

    Prevents: The settings silently have no effect.
    Fix: remove them"""
    for what, block in OFFLOADS:
        device = config.offload(what)
        if device in ("cpu", "none") and config.block(block):
            keys = (f"{block}/{key}" for key in _NVME_ONLY[block])
            used = (pointer for pointer in keys if config.value(pointer) not in (None, False, ""))
            yield from unused(config, used, f"with device: {device}")


@configs.rule("ZERO051", NOTE, "silent", deepspeed_now("runtime/engine.py:2781"))
def aio_is_for_nvme(config: Config) -> Violations:
    """The aio block is written where something is offloaded to NVMe, whose reads and writes it tunes.

    Prevents: The settings silently have no effect.
    Fix: remove the block"""
    devices = [config.offload(what) for what, _ in OFFLOADS]
    if config.block("/aio") and not {"nvme", None} & set(devices) and not config.has("/checkpoint/writer"):
        message, hint = "aio has no effect: nothing is offloaded to nvme", 'remove aio, or use "device": "nvme"'
        where, edits = config.locate_key("/aio"), removed(config, "/aio")
        yield Violation(where, message, hint, edits=edits)


@configs.rule(
    "ZERO052",
    ERROR,
    "init",
    derived("runtime/swap_tensor/aio_config.py:20 of DeepSpeed 0.19.8 hands them unchecked to a C++ constructor"),
)
def aio_counts_are_positive(config: Config) -> Violations:
    """Sizes and counts of aio are integers greater than 0.

    Prevents: a TypeError in a C++ constructor, or reads that never end
    Fix: write an integer greater than 0"""
    for key, default in _AIO.items():
        value = config.value(f"/aio/{key}")
        exact = isinstance(value, int) and not isinstance(value, bool)
        if value in (None, "auto") or ((exact or config.consumer == "deepspeed") and _is_positive(value)):
            continue  # hjson reads 1e6 as an integer
        message, hint = f"aio {key} must be an integer greater than 0, not {shown(value)}", f"write {default}"
        yield Violation(config.locate(f"/aio/{key}"), message, f"{hint}, the default")


def _is_positive(value: object) -> bool:
    return not isinstance(value, bool) and (whole_of(value) or 0) > 0


@runs.rule("ZERO064", ERROR, "training", deepspeed_now("runtime/swap_tensor/partitioned_param_swapper.py:194"))
def buffers_hold_a_parameter(run: Run) -> Violations:
    """buffer_size of offload_param to NVMe is at least a rank's part of the model's largest parameter.

    Prevents: a RuntimeError when the parameter is read, or one that overwrites its neighbour
    Fix: set buffer_size to the largest parameter's part on a rank"""
    config, model, world = run.config, run.submission.model, world_of(run.submission)
    if not model or not world.replicas or config.stage != 3 or config.offload("param") != "nvme":
        return
    pointer = f"{PARAM}/buffer_size"
    largest = model.vocab * (model.embedding_width or model.hidden) // world.tensor
    part, size = -(-largest // (world.replicas * world.context)), config.whole(pointer)
    if size is not None and part > size:
        default = "" if config.has(pointer) else ", the default,"
        message = f"buffer_size: {size}{default} is less than the {part} elements of {model.name}'s embedding on a rank"
        yield Violation(config.locate(pointer), message, f"set buffer_size to {part} or more")
