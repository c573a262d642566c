"""Number formats in a DeepSpeed config."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import FILLERS, Submission
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ...numbers import listed
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import removed, shown

#: The first release seen to have bf16_master_weights_and_grads, and the first to cast inputs without fp16.
HAS_BF16_MASTERS: Final = (0, 18, 9)
CASTS_ANYWAY: Final = (0, 17, 6)


@submissions.rule("PREC002", ERROR, "init", deepspeed("runtime/engine.py:1679"), reads=("DeepSpeed config",))
def hardware_computes_precision(submission: Submission) -> Violations:
    """The accelerator computes in the precision asked for.

    Prevents: `Type bf16 is not supported on your device.`, or emulation by a slow path where torch has one
    Fix: enable a format that the accelerator computes in
    """
    cluster = submission.cluster
    for config in configs(submission) if cluster else ():
        kind = config.precision
        if cluster and kind in ("fp16", "bf16") and not cluster.accelerator.supports(kind):
            block = "/fp16" if kind == "fp16" else config.bf16
            able = [p for p in ("bf16", "fp16") if cluster.accelerator.supports(p)]
            message = f"{kind} is enabled, which {cluster.accelerator.name} does not compute in"
            hint = f"enable {listed(able)} instead" if able else "train in fp32"
            yield Violation(where=config.locate(f"{block}/enabled"), message=message, hint=hint)


@configs.rule(
    "PREC007",
    WARNING,
    "silent",
    derived("runtime/fp16/loss_scaler.py of DeepSpeed uses a positive loss_scale as it is"),
)
def loss_is_scaled(config: Config) -> Violations:
    """In fp16 the loss is scaled by more than 1, or small gradients are zero.

    Prevents: gradients below fp16's smallest number silently become zero
    Fix: loss_scale: 0
    """
    scale = config.number("/fp16/loss_scale")
    if config.switch("/fp16/enabled") and scale is not None and 0 < scale <= 1:
        message = f"loss_scale: {shown(config.value('/fp16/loss_scale'))} leaves fp16 gradients unscaled:"
        message += " small ones underflow to 0"
        yield Violation(where=config.locate("/fp16/loss_scale"), message=message, hint="loss_scale: 0 scales by need")


def _is_filled(config: Config) -> bool:
    """Whether the file has an "auto", so that it is for Hugging Face or accelerate, which also set the precision."""
    return any(config.value(pointer) == "auto" for pointer in config.json.spans)


@submissions.rule("PREC008", WARNING, "silent", deepspeed_now("runtime/engine.py:1799"), reads=("DeepSpeed config",))
def zero_trains_in_16_bits(submission: Submission) -> Violations:
    """Training with ZeRO says which 16-bit format it computes in.

    Prevents: training in fp32 by oversight, unless the script builds the model in 16 bits
    Fix: enable bf16 or fp16
    """
    for config in configs(submission):
        stage, autocast = config.stage, config.switch("/torch_autocast/enabled")
        said = any(config.has(block) for block in ("/fp16", "/bf16", "/bfloat16", "/amp", "/torch_autocast"))
        left = "auto" in (config.value("/fp16/enabled"), config.value(f"{config.bf16}/enabled"))  # told by another rule
        filled = not said and (submission.consumer in FILLERS or _is_filled(config))
        alone = autocast is False and not filled and not left and not config.switch("/amp/enabled")
        if stage and config.precision == "fp32" and alone:
            message = f"ZeRO stage {stage} without fp16 or bf16 trains in fp32:"
            message += " twice the memory, and not the tensor cores' full rate"
            where, severity = config.locate("/zero_optimization/stage"), Severity.NOTE if said else None
            yield Violation(where=where, message=message, hint='"bf16": {"enabled": true}', severity=severity)


@submissions.rule(
    "PREC010",
    ERROR,
    "init",
    deepspeed_now("runtime/base_optimizer.py:510; runtime/zero/stage3.py:299; runtime/zero/stage_1_and_2.py:332"),
    reads=("DeepSpeed config",),
)
def low_precision_masters_are_offloaded(submission: Submission) -> Violations:
    """Master weights in 16 bits are stepped by DeepSpeedCPUAdam, so the optimizer is offloaded.

    Prevents: `Master weights feature requires ... Offload with DeepSpeedCPUAdam`
    Fix: offload the optimizer to the CPU, or keep fp32 masters
    """
    has_bf16_masters = submission.deepspeed_version >= HAS_BF16_MASTERS
    for config in configs(submission):
        half = "/fp16/fp16_master_weights_and_grads"
        brain = f"{config.bf16}/bf16_master_weights_and_grads"
        needs = [half] if config.switch(half) else []
        if has_bf16_masters and config.switch(brain) and config.switch(f"{config.bf16}/bf16_optimizer_states") is False:
            needs.append(brain)
        offloaded = config.offloads("optimizer")
        steps_on_gpu = config.value("/zero_optimization/offload_optimizer/device", "none") == "none" and not offloaded
        torch_adam = (
            offloaded and config.optimizer in ("adam", "adamw") and config.switch("/optimizer/params/torch_adam")
        )
        for pointer in needs if config.stage and (steps_on_gpu or torch_adam) else ():
            name = pointer.rpartition("/")[2]
            why = "torch_adam is not DeepSpeedCPUAdam" if torch_adam else "the optimizer is not offloaded"
            message = f"{name}: true needs optimizer offload with DeepSpeedCPUAdam, but {why}"
            hint = "remove torch_adam" if torch_adam else 'offload_optimizer: {"device": "cpu"}, or remove it'
            yield Violation(where=config.locate(pointer), message=message, hint=hint)


@configs.rule("PREC015", ERROR, "init", deepspeed("runtime/engine.py:2070"), before=(0, 19, 8))
def amp_goes_alone(config: Config) -> Violations:
    """Apex amp runs without ZeRO, fp16 and bf16.

    Prevents: `Amp and ZeRO are not currently compatible`, `Cannot enable both amp with ... fp16 or bfloat16`
    Fix: bf16 or fp16 in place of amp
    """
    if not config.switch("/amp/enabled"):
        return
    kind, stage = config.precision, config.stage
    other = f"ZeRO stage {stage}" if stage else kind if kind in ("fp16", "bf16") else None
    if other:
        message = f"amp is enabled together with {other}, which DeepSpeed refuses"
        yield Violation(
            where=config.locate("/amp/enabled"), message=message, hint='"bf16": {"enabled": true} without amp'
        )


@configs.rule("PREC017", WARNING, "silent", deepspeed_now("runtime/precision_config.py:37"))
def one_bf16_block(config: Config) -> Violations:
    """The old block bfloat16 is not there beside bf16, which is the one that is read.

    Prevents: settings of the old block silently don't count
    Fix: one block, bf16
    """
    if config.value("/bf16") is not None and config.has("/bfloat16"):
        message = "bfloat16 is ignored: DeepSpeed reads bf16, which is there too"
        where, edits = config.locate_key("/bfloat16"), removed(config, "/bfloat16")
        yield Violation(where=where, message=message, hint="remove bfloat16", edits=edits)


@configs.rule("PREC021", ERROR, "training", deepspeed_now("runtime/engine.py:2957"), since=(0, 17, 6))
def inputs_are_cast_for_fp16(config: Config) -> Violations:
    """fp16.auto_cast casts inputs to half even when fp16 is off, so it is there only with fp16.

    Prevents: half inputs meet a model of another type in the first matrix product
    Fix: auto_cast only with fp16 enabled
    """
    if config.switch("/fp16/auto_cast") and config.switch("/fp16/enabled") is False:
        kind = config.precision or "fp32"
        message = f"fp16.auto_cast: true casts the inputs to half although fp16 is off and the model is {kind}"
        where, edits = config.locate("/fp16/auto_cast"), removed(config, "/fp16/auto_cast")
        yield Violation(where=where, message=message, hint="remove auto_cast", edits=edits)


@submissions.rule(
    "PREC022", NOTE, "silent", deepspeed_now("runtime/fp16/loss_scaler.py:293"), reads=("DeepSpeed config",)
)
def dynamic_keys_scale_dynamically(submission: Submission) -> Violations:
    """A static loss scale has no use for the keys of the dynamic one.

    Prevents: settings that look effective and aren't
    Fix: loss_scale: 0 for dynamic scaling
    """
    keys = ("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale")
    for config in configs(submission):
        scale = config.number("/fp16/loss_scale")
        here = [key for key in keys if config.has(f"/fp16/{key}")]
        if config.switch("/fp16/enabled") and scale and here:
            said, has = shown(config.value("/fp16/loss_scale")), "has" if len(here) == 1 else "have"
            message = f"loss_scale: {said} is static, so {', '.join(here)} {has} no effect"
            yield Violation(
                where=config.locate("/fp16/loss_scale"), message=message, hint="loss_scale: 0, or remove the others"
            )
