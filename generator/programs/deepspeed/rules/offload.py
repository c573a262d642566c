"""Optimizer states and parameters kept off the GPU."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now
from ..config import ZERO, Config, Offloaded
from .subjects import building, configs
from .values import removed, shown, unused

OPTIMIZER: Final = f"{ZERO}/offload_optimizer"
PARAM: Final = f"{ZERO}/offload_param"
#: What is offloaded, with the pointer of its block.
OFFLOADS: Final[tuple[tuple[Offloaded, str], ...]] = (("optimizer", OPTIMIZER), ("param", PARAM))
_TORCH_ADAM: Final = "/optimizer/params/torch_adam"


@configs.rule("ZERO006", ERROR, "silent", deepspeed("runtime/engine.py:2502"))
def parameters_leave_at_stage_3(config: Config) -> Violations:
    """Parameters are offloaded at stage 3, where ZeRO shards them: at a lower stage the key has no effect.

    Prevents: Parameters silently stay on the GPU: out of memory where the plan fits.
    Fix: use stage 3"""
    if config.stage in (0, 1, 2) and config.offloads("param"):
        key = "offload_param" if config.has(PARAM) else "cpu_offload_param"
        message = f"{key} to {config.offload('param')} has no effect at stage {config.stage}:"
        where, hint = config.locate_key(f"{ZERO}/{key}"), f"use stage 3, or remove {key}"
        yield Violation(where, f"{message} parameters stay on the GPU", hint)


@configs.rule("ZERO043", ERROR, "silent", deepspeed_now("runtime/engine.py:2313"))
def offload_starts_at_stage_1(config: Config) -> Violations:
    """The optimizer is offloaded from stage 1 on: offload is a part of ZeRO.

    Prevents: Optimizer states silently stay on the GPU.
    Fix: use stage 1, 2 or 3"""
    if config.stage == 0 and config.offloads("optimizer"):
        key = "offload_optimizer" if config.has(OPTIMIZER) else "cpu_offload"
        message = f"{key} to {config.offload('optimizer')} has no effect at stage 0: optimizer states stay on the GPU"
        where, hint = config.locate_key(f"{ZERO}/{key}"), f"use stage 1, 2 or 3, or remove {key}"
        yield Violation(where, message, hint)


@configs.rule("ZERO012", NOTE, "init", deepspeed_now("runtime/engine.py:2344"))
def scripts_bring_cpu_adam(config: Config) -> Violations:
    """An optimizer that the script builds for offload is DeepSpeedCPUAdam or DeepSpeedCPULion.

    Prevents: `You are using ZeRO-Offload with a client provided optimizer`
    Fix: add an optimizer block, build DeepSpeedCPUAdam, or set zero_force_ds_cpu_optimizer to false"""
    forced = config.switch("/zero_force_ds_cpu_optimizer") is not False
    offloaded = config.stage and config.offloads("optimizer")
    if config.consumer == "deepspeed" and offloaded and forced and not config.has("/optimizer"):
        message = "the optimizer is offloaded and the config has none: DeepSpeed refuses one that the script builds"
        message += " unless it is DeepSpeedCPUAdam or DeepSpeedCPULion"
        hint = 'add an optimizer block, or set "zero_force_ds_cpu_optimizer" to false'
        where = config.locate_key(OPTIMIZER if config.has(OPTIMIZER) else f"{ZERO}/cpu_offload")
        yield Violation(where, message, hint)


@building.rule("ZERO013", WARNING, "silent", deepspeed_now("runtime/engine.py:2376; ops/adam/cpu_adam.py:30"))
def offloaded_adam_is_deepspeeds(config: Config) -> Violations:
    """Offloaded states are stepped by DeepSpeedCPUAdam, not by torch's Adam.

    Prevents: A slow step on the CPU.
    Fix: remove torch_adam"""
    offloaded = config.stage and config.offloads("optimizer")
    if offloaded and config.optimizer in ("adam", "adamw") and config.switch(_TORCH_ADAM):
        message = "torch_adam: true steps the offloaded states with torch's Adam, which is several times slower"
        where, edits = config.locate(_TORCH_ADAM), removed(config, _TORCH_ADAM)
        yield Violation(where, message, "remove torch_adam", edits=edits)


@building.rule("ZERO044", ERROR, "training", deepspeed_now("runtime/engine.py:2501; ops/lamb/fused_lamb.py:53"))
def offloaded_optimizers_run_on_the_host(config: Config) -> Violations:
    """An offloaded optimizer has a CPU version: LAMB's kernel is CUDA's.

    Prevents: A CUDA kernel gets tensors of the CPU.
    Fix: use AdamW, Adagrad or Lion"""
    if config.stage and config.offloads("optimizer") and config.optimizer == "lamb":
        message = f"optimizer {shown(config.value('/optimizer/type'))} is offloaded, but its kernel runs on GPUs only"
        yield Violation(config.locate("/optimizer/type"), message, "use AdamW, Adagrad or Lion")


@building.rule("ZERO049", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:316"))
def partial_offload_steps_adam(config: Config) -> Violations:
    """With a ratio below 1 the optimizer is Adam: DeepSpeedCPUAdam and torch's AdamW share the step.

    Prevents: `Hybrid Optimizer Only Supports DeepSpeedCPUAdam`
    Fix: use AdamW, or ratio 1"""
    ratio, name = config.number(f"{OPTIMIZER}/ratio"), config.optimizer
    torch_adam = bool(config.switch(_TORCH_ADAM))
    other = name is not None and (name not in ("adam", "adamw") or torch_adam)
    if config.stage == 3 and config.offloads("optimizer") and ratio is not None and ratio < 1 and other:
        what = "torch_adam" if torch_adam else shown(config.value("/optimizer/type"))
        message = f"ratio: {shown(ratio)} offloads a part, which only DeepSpeedCPUAdam can: the optimizer is {what}"
        yield Violation(config.locate(f"{OPTIMIZER}/ratio"), message, 'set "ratio" to 1.0, or "type" to "AdamW"')


@configs.rule("ZERO053", WARNING, "silent", deepspeed_now("runtime/engine.py:2755"), since=(0, 18, 0))
def superchips_offload_at_stage_3(config: Config) -> Violations:
    """super_offload is used at stage 3: at a lower stage it has no effect.

    Prevents: The usual offload silently runs in place of the fast one.
    Fix: use stage 3"""
    pointer = f"{OPTIMIZER}/super_offload"
    if config.switch(pointer) and config.stage in (0, 1, 2):
        message = f"super_offload: true has no effect at stage {config.stage}: the usual offload runs"
        yield Violation(config.locate(pointer), message, "use stage 3, or remove super_offload")


@configs.rule(
    "ZERO054", NOTE, "silent", deepspeed_now("runtime/superoffload/superoffload_stage3.py:59"), since=(0, 18, 0)
)
def cores_are_for_super_offload(config: Config) -> Violations:
    """cpuadam_cores_perc is written with super_offload.

    Prevents: The setting silently has no effect.
    Fix: remove it"""
    if config.switch(f"{OPTIMIZER}/super_offload") is False:
        yield from unused(config, (f"{OPTIMIZER}/cpuadam_cores_perc",), "without super_offload")


@configs.rule("ZERO055", NOTE, "silent", deepspeed_now("runtime/zero/offload_config.py:44"))
def offload_is_pinned(config: Config) -> Violations:
    """Offload copies from pinned memory: other copies don't overlap computation.

    Prevents: copies between host and GPU at a fraction of the link's rate
    Fix: set pin_memory to true"""
    for what, pointer in OFFLOADS:
        if config.has(pointer) and config.offloads(what) and config.switch(f"{pointer}/pin_memory") is False:
            default = "" if config.has(f"{pointer}/pin_memory") else ", the default"
            message = f"pin_memory: false{default}: copies of offload_{what} are slower and overlap nothing"
            hint = 'set "pin_memory" to true where memory can be locked'
            yield Violation(config.locate(f"{pointer}/pin_memory"), message, hint)
