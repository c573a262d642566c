"""Optimizer states and parameters kept off the GPU."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now
from .subjects import building, configs
from .values import removed, shown, unused

ZERO: Final = "/zero_optimization"
OPTIMIZER: Final = f"{ZERO}/offload_optimizer"
PARAM: Final = f"{ZERO}/offload_param"


@configs.rule("ZERO006", ERROR, "silent", deepspeed("runtime/engine.py:2502"))
def parameters_leave_at_stage_3(config: Config) -> Violations:
    """Parameters leave the device only when ZeRO shards them, at stage 3; below, the key is silently unused.

    Prevents: parameters silently stay on the GPU: out of memory where the plan said it fits
    Fix: stage 3
    """
    stage, device = config.stage, config.offload("param")
    if stage in (0, 1, 2) and device in ("cpu", "nvme"):
        key = "offload_param" if config.has(PARAM) else "cpu_offload_param"
        message = f"{key} to {device} at stage {stage} has no effect: parameters stay on the GPU"
        yield Violation(where=config.locate_key(f"{ZERO}/{key}"), message=message, hint="stage 3, or remove it")


@configs.rule("ZERO043", ERROR, "silent", deepspeed_now("runtime/engine.py:2313"))
def offload_starts_at_stage_1(config: Config) -> Violations:
    """Offload is a part of ZeRO: it starts at stage 1.

    Prevents: optimizer states silently stay on the GPU
    Fix: stage 1 or more
    """
    device = config.offload("optimizer")
    if config.stage == 0 and device in ("cpu", "nvme"):
        key = "offload_optimizer" if config.has(OPTIMIZER) else "cpu_offload"
        message = f"{key} to {device} at stage 0 has no effect: optimizer states stay on the GPU"
        yield Violation(where=config.locate_key(f"{ZERO}/{key}"), message=message, hint="stage 1, 2 or 3, or remove it")


@submissions.rule("ZERO012", NOTE, "init", deepspeed_now("runtime/engine.py:2344"), reads=("DeepSpeed config",))
def scripts_bring_cpu_adam(submission: Submission) -> Violations:
    """An optimizer that the script builds for offload is DeepSpeedCPUAdam or DeepSpeedCPULion.

    Prevents: `You are using ZeRO-Offload with a client provided optimizer`
    Fix: an optimizer block, DeepSpeedCPUAdam, or zero_force_ds_cpu_optimizer: false
    """
    for config in configs(submission) if submission.consumer == "deepspeed" else ():
        unforced = config.switch("/zero_force_ds_cpu_optimizer", True) is False
        if config.stage and config.offloads("optimizer") and not config.has("/optimizer") and not unforced:
            message = "the optimizer is offloaded and the config has none: DeepSpeed refuses one of the script's own"
            message += " that is not DeepSpeedCPUAdam or DeepSpeedCPULion"
            hint = 'an optimizer block, or "zero_force_ds_cpu_optimizer": false'
            where = config.locate_key(OPTIMIZER if config.has(OPTIMIZER) else f"{ZERO}/cpu_offload")
            yield Violation(where=where, message=message, hint=hint)


@building.rule("ZERO013", WARNING, "silent", deepspeed_now("runtime/engine.py:2376; ops/adam/cpu_adam.py:30"))
def offloaded_adam_is_deepspeeds(config: Config) -> Violations:
    """Offloaded states are stepped by DeepSpeedCPUAdam, not by torch's Adam.

    Prevents: a slow step on the CPU
    Fix: leave torch_adam out
    """
    pointer = "/optimizer/params/torch_adam"
    adam = config.optimizer in ("adam", "adamw")
    if config.stage and config.offloads("optimizer") and adam and config.switch(pointer):
        message = "torch_adam: true steps the offloaded states with torch's Adam, which is several times slower"
        edits = removed(config, pointer)
        yield Violation(where=config.locate(pointer), message=message, hint="remove torch_adam", edits=edits)


@building.rule("ZERO044", ERROR, "training", deepspeed_now("runtime/engine.py:2501; ops/lamb/fused_lamb.py:53"))
def offloaded_optimizers_run_on_the_host(config: Config) -> Violations:
    """What is offloaded is stepped on the host: LAMB's kernel is CUDA's.

    Prevents: a CUDA kernel gets tensors of the CPU
    Fix: an optimizer with a CPU version
    """
    if config.stage and config.offloads("optimizer") and config.optimizer == "lamb":
        message = f"optimizer {shown(config.value('/optimizer/type'))} is offloaded, but its kernel runs on GPUs only"
        yield Violation(where=config.locate("/optimizer/type"), message=message, hint="AdamW, Adagrad or Lion")


@building.rule("ZERO049", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:316"))
def partial_offload_steps_adam(config: Config) -> Violations:
    """A ratio below 1 splits the step between DeepSpeedCPUAdam and torch's AdamW, so the optimizer is Adam.

    Prevents: `Hybrid Optimizer Only Supports DeepSpeedCPUAdam`
    Fix: Adam, or ratio 1
    """
    ratio, name = config.number(f"{OPTIMIZER}/ratio"), config.optimizer
    torch_adam = bool(config.switch("/optimizer/params/torch_adam"))
    other = name is not None and (name not in ("adam", "adamw") or torch_adam)
    if config.stage == 3 and config.offloads("optimizer") and ratio is not None and ratio < 1 and other:
        what = "torch_adam" if torch_adam else shown(config.value("/optimizer/type"))
        message = f"ratio: {shown(ratio)} offloads a part, which only DeepSpeedCPUAdam can: the optimizer is {what}"
        yield Violation(where=config.locate(f"{OPTIMIZER}/ratio"), message=message, hint='ratio: 1.0, or type "AdamW"')


@configs.rule("ZERO053", WARNING, "silent", deepspeed_now("runtime/engine.py:2755"), since=(0, 18, 0))
def superchips_offload_at_stage_3(config: Config) -> Violations:
    """super_offload works at stage 3 only; elsewhere it is silently left out.

    Prevents: the usual offload runs in place of the fast one
    Fix: stage 3
    """
    pointer = f"{OPTIMIZER}/super_offload"
    if config.switch(pointer) and config.stage in (0, 1, 2):
        message = f"super_offload: true has no effect at stage {config.stage}: the usual offload runs"
        yield Violation(where=config.locate(pointer), message=message, hint="stage 3, or remove it")


@configs.rule(
    "ZERO054", NOTE, "silent", deepspeed_now("runtime/superoffload/superoffload_stage3.py:59"), since=(0, 18, 0)
)
def cores_are_for_super_offload(config: Config) -> Violations:
    """cpuadam_cores_perc is for super_offload.

    Prevents: a setting that looks effective and is not
    Fix: remove it
    """
    if config.switch(f"{OPTIMIZER}/super_offload") is False:
        yield from unused(config, (f"{OPTIMIZER}/cpuadam_cores_perc",), "without super_offload")


@submissions.rule(
    "ZERO055", NOTE, "silent", deepspeed_now("runtime/zero/offload_config.py:44"), reads=("DeepSpeed config",)
)
def offload_is_pinned(submission: Submission) -> Violations:
    """Offload copies from pinned memory, or copies don't overlap computation.

    Prevents: copies between host and GPU at a fraction of the link's rate
    Fix: pin_memory: true
    """
    by_default = submission.deepspeed_version >= PINNED_BY_DEFAULT
    for config in configs(submission):
        for what, pointer in (("optimizer", OPTIMIZER), ("param", PARAM)):
            if not config.has(pointer) or not config.offloads(what):  # type: ignore[arg-type]
                continue
            if config.switch(f"{pointer}/pin_memory", by_default) is False:
                said = "pin_memory: false" if config.has(f"{pointer}/pin_memory") else "pin_memory is false by default:"
                message = f"{said} copies of offload_{what} are slower and overlap nothing"
                where = config.locate(f"{pointer}/pin_memory")
                yield Violation(where=where, message=message, hint='"pin_memory": true where memory can be locked')


#: The first DeepSpeed whose default of pin_memory is true; it was false up to 0.19.4.
PINNED_BY_DEFAULT: Final = (0, 19, 5)
