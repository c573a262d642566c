"""What goes to NVMe, and how it is read and written."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config, whole_of
from ....documents.submission import Submission
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now, derived
from .subjects import configs
from .values import removed, shown, unused

ZERO: Final = "/zero_optimization"
OPTIMIZER: Final = f"{ZERO}/offload_optimizer"

PARAM: Final = f"{ZERO}/offload_param"

_NVME_ONLY_OPTIMIZER: Final = ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init")

_NVME_ONLY_PARAM: Final = ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu")

_AIO_DEFAULTS: Final = {
    "block_size": "block_size: 1048576, the default",
    "queue_depth": "queue_depth: 8, the default",
    "intra_op_parallelism": "intra_op_parallelism: 1, the default",
}


@configs.rule(
    "ZERO008", ERROR, "init", deepspeed_now("runtime/zero/partition_parameters.py:1229; runtime/zero/stage3.py:840")
)
def nvme_has_a_path(config: Config) -> Violations:
    """Offload to NVMe says where: nvme_path.

    Prevents: an assertion, or a TypeError where the path is joined
    Fix: nvme_path
    """
    for what, pointer in (("optimizer", OPTIMIZER), ("param", PARAM)):
        path = config.value(f"{pointer}/nvme_path")
        used = config.stage == 3 and config.offload(what) == "nvme"  # type: ignore[arg-type]
        if used and (path is None or path == ""):
            message = f"offload_{what} to nvme has no nvme_path"
            hint = '"nvme_path": a folder on a local disk of every node'
            yield Violation(where=config.locate(f"{pointer}/device"), message=message, hint=hint)


@configs.rule("ZERO009", WARNING, "silent", deepspeed_now("runtime/zero/stage_1_and_2.py:219"))
def nvme_is_for_stage_3(config: Config) -> Violations:
    """The optimizer goes to NVMe at stage 3 only; at 1 and 2 it silently goes to the CPU's memory.

    Prevents: the node's memory fills where a disk was meant to
    Fix: stage 3 or cpu
    """
    stage = config.stage
    if stage in (1, 2) and config.offload("optimizer") == "nvme":
        message = f"offload_optimizer to nvme at stage {stage} silently goes to the node's memory"
        yield Violation(where=config.locate(f"{OPTIMIZER}/device"), message=message, hint='stage 3, or "device": "cpu"')


@configs.rule("ZERO050", NOTE, "silent", deepspeed_now("runtime/zero/stage3.py:839; runtime/zero/stage3.py:1129"))
def nvme_keys_are_for_nvme(config: Config) -> Violations:
    """Keys of the swap to NVMe are written where something goes to NVMe.

    Prevents: settings that look effective and aren't
    Fix: remove them
    """
    for what, pointer, keys in (("optimizer", OPTIMIZER, _NVME_ONLY_OPTIMIZER), ("param", PARAM, _NVME_ONLY_PARAM)):
        device = config.offload(what)  # type: ignore[arg-type]
        if device in ("cpu", "none") and config.block(pointer):
            used = (f"{pointer}/{key}" for key in keys if config.value(f"{pointer}/{key}") not in (None, False, ""))
            yield from unused(config, used, f"with device: {device}")


@configs.rule("ZERO051", NOTE, "silent", deepspeed_now("runtime/engine.py:2781"))
def aio_is_for_nvme(config: Config) -> Violations:
    """The aio block tunes reads and writes of NVMe, so something is offloaded there.

    Prevents: settings that look effective and aren't
    Fix: remove the block
    """
    devices = [config.offload("optimizer"), config.offload("param")]
    quiet = config.has("/checkpoint/writer") or None in devices
    if config.block("/aio") and "nvme" not in devices and not quiet:
        message = "aio has no effect: nothing is offloaded to nvme"
        where, edits = config.locate_key("/aio"), removed(config, "/aio")
        yield Violation(where=where, message=message, hint='remove aio, or "device": "nvme"', edits=edits)


@submissions.rule(
    "ZERO052",
    ERROR,
    "init",
    derived("runtime/swap_tensor/aio_config.py:20 of DeepSpeed 0.19.8 hands them unchecked to a C++ constructor"),
    reads=("DeepSpeed config",),
)
def aio_counts_are_positive(submission: Submission) -> Violations:
    """Sizes and counts of aio are whole numbers above zero.

    Prevents: a TypeError in a C++ constructor, or reads that never end
    Fix: whole numbers above zero
    """
    for config in configs(submission):
        for key in ("block_size", "queue_depth", "intra_op_parallelism"):
            value = config.value(f"/aio/{key}")
            if value in (None, "auto") or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
                continue
            if (whole_of(value) or 0) > 0 and submission.consumer == "deepspeed":
                continue  # hjson reads 1e6 as a whole number
            message = f"aio {key}: {shown(value)} is no whole number above zero"
            yield Violation(where=config.locate(f"/aio/{key}"), message=message, hint=_AIO_DEFAULTS[key])


@submissions.rule(
    "ZERO064",
    ERROR,
    "training",
    deepspeed_now("runtime/swap_tensor/partitioned_param_swapper.py:194"),
    reads=("DeepSpeed config",),
)
def buffers_hold_a_parameter(submission: Submission) -> Violations:
    """A buffer of offload_param to NVMe holds a rank's part of the model's largest parameter.

    Prevents: a RuntimeError when the parameter is read, or one that overwrites its neighbour
    Fix: the largest parameter's part on a rank
    """
    model, replicas = submission.model, submission.world.replicas
    for config in configs(submission) if model and replicas else ():
        if model is None or not replicas or config.stage != 3 or config.offload("param") != "nvme":
            continue
        largest = model.vocab * (model.embedding_width or model.hidden) // submission.world.tensor
        part = -(-largest // (replicas * submission.world.context))
        size = config.whole(f"{PARAM}/buffer_size") if config.has(f"{PARAM}/buffer_size") else BUFFER_SIZE
        if size is not None and part > size:
            default = "" if config.has(f"{PARAM}/buffer_size") else ", the default,"
            message = (
                f"buffer_size: {size}{default} is less than the {part} elements of {model.name}'s embedding on a rank"
            )
            where = config.locate(f"{PARAM}/buffer_size")
            yield Violation(where=where, message=message, hint=f"buffer_size: {part} or more")


#: DeepSpeed's default for offload_param.buffer_size, in elements.
BUFFER_SIZE: Final = 100_000_000
