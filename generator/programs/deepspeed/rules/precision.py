"""Number formats in a DeepSpeed config."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.numbers import listed
from ....rules.sources import deepspeed, deepspeed_now, derived
from ..config import Config
from .subjects import Run, configs, runs
from .values import removed, shown

_LOSS_SCALE: Final = "/fp16/loss_scale"
#: Keys of dynamic loss scaling.
_DYNAMIC: Final = (
    *("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"),
)


@runs.rule("PREC002", ERROR, "init", deepspeed("runtime/engine.py:1679"))
def hardware_computes_precision(run: Run) -> Violations:
    """The accelerator computes in the precision of the config.

    Prevents: `Type bf16 is not supported on your device.`, or emulation by a slow path where torch has one
    Fix: enable a format that the accelerator computes in"""
    config, cluster, kind = run.config, run.submission.cluster, run.config.precision
    if cluster and kind in ("fp16", "bf16") and not cluster.accelerator.supports(kind):
        able = [known for known in ("bf16", "fp16") if cluster.accelerator.supports(known)]
        message = f"{kind} is enabled, which {cluster.accelerator.name} does not compute in"
        hint = f"enable {listed(able)} instead" if able else "train in fp32"
        yield Violation(config.locate(f"{config.bf16 if kind == 'bf16' else '/fp16'}/enabled"), message, hint)


@configs.rule(
    "PREC007",
    WARNING,
    "silent",
    derived("runtime/fp16/loss_scaler.py of DeepSpeed uses a positive loss_scale as it is"),
)
def loss_is_scaled(config: Config) -> Violations:
    """In fp16 the loss is scaled by more than 1: without that small gradients are zero.

    Prevents: Gradients below fp16's smallest number silently become zero.
    Fix: set loss_scale to 0"""
    scale = config.number(_LOSS_SCALE)
    if config.switch("/fp16/enabled") and scale is not None and 0 < scale <= 1:
        message = f"loss_scale: {shown(config.value(_LOSS_SCALE))} leaves fp16 gradients unscaled:"
        hint = "set loss_scale to 0 for dynamic scaling"
        yield Violation(config.locate(_LOSS_SCALE), f"{message} small ones underflow to 0", hint)


@configs.rule("PREC008", WARNING, "silent", deepspeed_now("runtime/engine.py:1799"))
def zero_trains_in_16_bits(config: Config) -> Violations:
    """With ZeRO, the config enables a 16-bit format.

    Prevents: Training in fp32 by oversight, unless the script builds the model in 16 bits, or accelerate adds a block.
    Fix: enable bf16 or fp16"""
    blocks = [block for block in ("/fp16", "/bf16", "/bfloat16", "/amp", "/torch_autocast") if config.has(block)]
    # An "auto" in the file means that it is for Hugging Face or accelerate, which also set the precision.
    filled = config.filled or config.completed or any(config.value(pointer) == "auto" for pointer in config.json.spans)
    others = config.switch("/torch_autocast/enabled") is not False or config.switch("/amp/enabled")
    is_open = config.auto_precision or (filled and not blocks)  # the first has a rule of its own
    if not config.stage or config.precision != "fp32" or others or is_open:
        return
    message = f"ZeRO stage {config.stage} without fp16 or bf16 trains in fp32:"
    message += " twice the memory, and not the tensor cores' full rate"
    where, severity = config.locate("/zero_optimization/stage"), Severity.NOTE if blocks or config.guessed else None
    yield Violation(where, message, 'add "bf16": {"enabled": true}', severity=severity)


@configs.rule(
    "PREC010",
    ERROR,
    "init",
    deepspeed_now("runtime/base_optimizer.py:510; runtime/zero/stage3.py:299; runtime/zero/stage_1_and_2.py:332"),
)
def low_precision_masters_are_offloaded(config: Config) -> Violations:
    """With 16-bit master weights the optimizer is offloaded: DeepSpeedCPUAdam steps them.

    Prevents: `Master weights feature requires ... Offload with DeepSpeedCPUAdam`
    Fix: offload the optimizer to the CPU, or keep fp32 masters"""
    half, brain = "/fp16/fp16_master_weights_and_grads", f"{config.bf16}/bf16_master_weights_and_grads"
    masters = [half] if config.switch(half) else []
    if config.switch(brain) and config.switch(f"{config.bf16}/bf16_optimizer_states") is False:
        masters.append(brain)
    adam = config.optimizer in ("adam", "adamw")
    torch_adam = config.offloads("optimizer") and adam and config.switch("/optimizer/params/torch_adam")
    for pointer in masters if config.stage and (torch_adam or config.offload("optimizer") == "none") else ():
        why = "torch_adam is not DeepSpeedCPUAdam" if torch_adam else "the optimizer is not offloaded"
        message = f"{pointer.rpartition('/')[2]}: true requires optimizer offload with DeepSpeedCPUAdam, but {why}"
        hint = "remove torch_adam" if torch_adam else 'add "offload_optimizer": {"device": "cpu"}, or remove it'
        yield Violation(config.locate(pointer), message, hint)


@configs.rule("PREC015", ERROR, "init", deepspeed("runtime/engine.py:2070"), before=(0, 19, 8))
def amp_goes_alone(config: Config) -> Violations:
    """Apex amp is used without ZeRO, fp16 and bf16.

    Prevents: `Amp and ZeRO are not currently compatible`, `Cannot enable both amp with ... fp16 or bfloat16`
    Fix: use bf16 or fp16 in place of amp"""
    kind = config.precision if config.precision in ("fp16", "bf16") else None
    other = f"ZeRO stage {config.stage}" if config.stage else kind
    if config.switch("/amp/enabled") and other:
        message, hint = f"amp is refused with {other}", 'use "bf16": {"enabled": true} without amp'
        yield Violation(config.locate("/amp/enabled"), message, hint)


@configs.rule("PREC017", WARNING, "silent", deepspeed_now("runtime/precision_config.py:37"))
def one_bf16_block(config: Config) -> Violations:
    """The deprecated block bfloat16 is not written together with bf16, which is read.

    Prevents: Settings of the deprecated block silently have no effect.
    Fix: write one block, bf16"""
    if config.value("/bf16") is not None and config.has("/bfloat16"):
        message = "bfloat16 has no effect: DeepSpeed reads bf16, which is there too"
        where, edits = config.locate_key("/bfloat16"), removed(config, "/bfloat16")
        yield Violation(where, message, "remove bfloat16", edits=edits)


@configs.rule("PREC021", ERROR, "training", deepspeed_now("runtime/engine.py:2957"), since=(0, 17, 6))
def inputs_are_cast_for_fp16(config: Config) -> Violations:
    """fp16.auto_cast is true only with fp16 enabled: it casts inputs to half either way.

    Prevents: Half inputs meet a model of another type in the first matrix product.
    Fix: remove auto_cast, or enable fp16"""
    pointer = "/fp16/auto_cast"
    if config.switch(pointer) and config.switch("/fp16/enabled") is False:
        message = "fp16.auto_cast: true casts the inputs to half although fp16 is off"
        message += f" and the model is {config.precision or 'fp32'}"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where, message, "remove auto_cast", edits=edits)


@configs.rule("PREC022", NOTE, "silent", deepspeed_now("runtime/fp16/loss_scaler.py:293"))
def dynamic_keys_scale_dynamically(config: Config) -> Violations:
    """Keys of dynamic loss scaling are not written with a static loss scale.

    Prevents: The settings silently have no effect.
    Fix: set loss_scale to 0 for dynamic scaling"""
    here = [key for key in _DYNAMIC if config.has(f"/fp16/{key}")]
    if config.switch("/fp16/enabled") and config.number(_LOSS_SCALE) and here:
        has = "has" if len(here) == 1 else "have"
        message = f"loss_scale: {shown(config.value(_LOSS_SCALE))} is static, so {', '.join(here)} {has} no effect"
        yield Violation(config.locate(_LOSS_SCALE), message, "set loss_scale to 0, or remove the others")
