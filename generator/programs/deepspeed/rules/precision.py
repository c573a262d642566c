"""Number formats of weights, gradients and messages."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, derived, violation
from ..config import DTYPES, ZERO, Config, has_auto
from .subjects import (
    Run,
    configs,
    is_placeholder,
    named,
    runs,
    setting,
    shown,
    steps_by_torch,
    to_remove,
)

_LOSS_SCALE: Final = "/fp16/loss_scale"
#: Keys of dynamic loss scaling.
_DYNAMIC: Final = (
    "initial_scale_power",
    "loss_scale_window",
    "hysteresis",
    "consecutive_hysteresis",
    "min_loss_scale",
)
#: Without ZeRO: the first release seen to sum bf16 gradients in bf16 too, and the first that no
#: longer sums them in fp32.
_ACCUMULATES_IN_BF16: Final = (0, 17, 0)
_ACCUMULATES_AS_IT_COMPUTES: Final = (0, 18, 5)
_SCALER: Final = "runtime/fp16/loss_scaler.py of DeepSpeed uses a positive loss_scale as it is"
_MASTERS: Final = (
    "runtime/base_optimizer.py:510; runtime/zero/stage3.py:299; runtime/zero/stage_1_and_2.py:332"
)
_CAST: Final = "as they are summed: runtime/zero/stage_1_and_2.py:378"
_IN_ANY_CASE: Final = "engine.py:2077 of DeepSpeed 0.19.8 casts in any case"
_SUM: Final = "/data_types/grad_accum_dtype"
_MASTERS_OF_FP16: Final = "/fp16/fp16_master_weights_and_grads"
_OF_BF16: Final = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
_AUTOCAST: Final = "/torch_autocast"
_ENABLED: Final = f"{_AUTOCAST}/enabled"
_SOURCE: Final = "runtime/config.py:172; runtime/engine.py:671; runtime/torch_autocast.py:132"


@configs.rule("PREC007", WARNING, "silent", derived(_SCALER))
def loss_is_scaled(config: Config) -> Violations:
    """In fp16 the loss is scaled by more than 1: without that small gradients are zero.
    Prevents: Gradients below fp16's smallest number silently become zero.
    Fix: set loss_scale to 0"""
    scale = config.number(_LOSS_SCALE)
    if config.switch("/fp16/enabled") and scale is not None and 0 < scale <= 1:
        message = f"{setting(config, _LOSS_SCALE)} leaves fp16 gradients unscaled:"
        hint = "set loss_scale to 0 for dynamic scaling"
        yield violation(config, _LOSS_SCALE, f"{message} small ones underflow to 0", hint)


@configs.rule("PREC008", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:1799"))
def zero_trains_in_16_bits(config: Config) -> Violations:
    """With ZeRO, the config enables a 16-bit format.
    Prevents: Training in fp32 by oversight, unless the script builds the model in 16 bits, or
    accelerate adds a block.
    Fix: enable bf16 or fp16
    """
    if not config.stage or config.precision != "fp32":
        return
    if config.switch("/torch_autocast/enabled") is not False or config.switch("/amp/enabled"):
        return
    blocks = ("/fp16", "/bf16", "/bfloat16", "/amp", "/torch_autocast")
    has_block = any(map(config.has, blocks))
    # An "auto" in the file means that it is for Hugging Face or accelerate, which also set the
    # precision.
    has_auto = any(config.value(pointer) == "auto" for pointer in config.json.spans)
    is_set_by_program = config.filled or config.completed or has_auto
    if config.auto_precision or (is_set_by_program and not has_block):
        return  # the first has a rule of its own
    message = f"ZeRO stage {config.stage} without fp16 or bf16 trains in fp32:"
    message += " twice the memory, and not the tensor cores' full rate"
    severity = NOTE if has_block or config.guessed else None
    hint = 'add "bf16": {"enabled": true}'
    yield violation(config, f"{ZERO}/stage", message, hint, severity=severity)


@configs.rule("PREC010", ERROR, "init", deepspeed_0_19_8(_MASTERS))
def low_precision_masters_are_offloaded(config: Config) -> Violations:
    """With 16-bit master weights the optimizer is offloaded: DeepSpeedCPUAdam steps them.
    Prevents: `Master weights feature requires ... Offload with DeepSpeedCPUAdam`
    Fix: offload the optimizer to the CPU, or keep fp32 masters"""
    if not config.stage:
        return
    if config.offloads("optimizer") and steps_by_torch(config):
        why, hint = "torch_adam is not DeepSpeedCPUAdam", "remove torch_adam"
    elif config.offload("optimizer") == "none":
        why = "the optimizer is not offloaded"
        hint = 'add "offload_optimizer": {"device": "cpu"}, or remove it'
    else:
        return
    masters, states = (f"{config.bf16}/{name}" for name in _OF_BF16)
    asked_for = []
    if config.switch(_MASTERS_OF_FP16):
        asked_for.append(_MASTERS_OF_FP16)
    if config.switch(masters) and config.switch(states) is False:
        asked_for.append(masters)
    for pointer in asked_for:
        message = (
            f"{pointer.rpartition('/')[2]}: true requires optimizer offload with "
            f"DeepSpeedCPUAdam, but {why}"
        )
        yield violation(config, pointer, message, hint)


@configs.rule("PREC015", ERROR, "init", deepspeed("runtime/engine.py:2070"), before=(0, 19, 8))
def amp_goes_alone(config: Config) -> Violations:
    """Apex amp is used without ZeRO, fp16 and bf16.
    Prevents: `Amp and ZeRO are not currently compatible`, `Cannot enable both amp with ... fp16 or
    bfloat16`
    Fix: use bf16 or fp16 in place of amp
    """
    other: str | None = None
    if config.stage:
        other = f"ZeRO stage {config.stage}"
    elif config.precision in ("fp16", "bf16"):
        other = config.precision
    if config.switch("/amp/enabled") and other:
        message, hint = f"amp is refused with {other}", 'use "bf16": {"enabled": true} without amp'
        yield violation(config, "/amp/enabled", message, hint)


@configs.rule("PREC017", WARNING, "silent", deepspeed_0_19_8("runtime/precision_config.py:37"))
def one_bf16_block(config: Config) -> Violations:
    """The deprecated block bfloat16 is not written together with bf16, which is read.
    Prevents: Settings of the deprecated block silently have no effect.
    Fix: write one block, bf16"""
    if config.value("/bf16") is not None and config.has("/bfloat16"):
        message = "bfloat16 has no effect: DeepSpeed reads bf16, which is there too"
        yield to_remove(config, "/bfloat16", message, at_key=True)


@configs.rule(
    "PREC021", ERROR, "training", deepspeed_0_19_8("runtime/engine.py:2957"), since=(0, 17, 6)
)
def inputs_are_cast_for_fp16(config: Config) -> Violations:
    """fp16.auto_cast is true only with fp16 enabled: it casts positional inputs to half either way.
    Prevents: Half inputs meet a model of another type in the first matrix product. Not said of a
    config with auto values: the Trainer, which fills them in, calls by keywords.
    Fix: remove auto_cast, or enable fp16"""
    pointer = "/fp16/auto_cast"
    is_of_trainer = has_auto(config)
    if config.switch(pointer) and config.switch("/fp16/enabled") is False and not is_of_trainer:
        message = "fp16.auto_cast: true casts positional inputs to half although fp16 is off"
        message += f" and the model is {config.precision or 'fp32'}"
        yield to_remove(config, pointer, message)


@configs.rule("PREC022", NOTE, "silent", deepspeed_0_19_8("runtime/fp16/loss_scaler.py:293"))
def dynamic_keys_scale_dynamically(config: Config) -> Violations:
    """Keys of dynamic loss scaling are not written with a static loss scale.
    Prevents: The settings silently have no effect.
    Fix: set loss_scale to 0 for dynamic scaling"""
    written = [key for key in _DYNAMIC if config.has(f"/fp16/{key}")]
    if config.switch("/fp16/enabled") and config.number(_LOSS_SCALE) and written:
        has = "has" if len(written) == 1 else "have"
        message = (
            f"{setting(config, _LOSS_SCALE)} is static, so {', '.join(written)} {has} no effect"
        )
        yield violation(config, _LOSS_SCALE, message, "set loss_scale to 0, or remove the others")


@configs.rule(
    "PREC012", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1827"), since=(0, 19, 2)
)
def parameter_type_is_the_models(config: Config) -> Violations:
    """data_types.param_dtype is the type that the fp16 and bf16 blocks give the model.
    Prevents: `data_types.param_dtype=... conflicts with the enabled precision mode`
    Fix: remove param_dtype"""
    pointer = "/data_types/param_dtype"
    value = config.text(pointer)
    if config.precision and DTYPES.get(value or "", config.precision) != config.precision:
        message = f"param_dtype: {shown(value)} conflicts with the model's {config.precision},"
        yield to_remove(config, pointer, f"{message} which the fp16 and bf16 blocks decide")


@runs.rule("PREC013", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2323"))
def stage_0_accumulates_as_it_computes(run: Run) -> Violations:
    """Without ZeRO, gradients accumulate in a type that this version of DeepSpeed supports for the
    model's.
    Prevents: `unsupported mix of model_dtype and grad_accum_dtype`
    Fix: use the model's own type, or a ZeRO stage
    """
    config, version = run.config, run.config.version
    kind, summed = config.precision, config.sums_in
    if config.stage != 0 or not kind or not summed:
        return
    accepted: list[str] = [kind]
    right: str = kind
    if kind == "bf16" and version < _ACCUMULATES_AS_IT_COMPUTES:
        sums_in_bf16 = version >= _ACCUMULATES_IN_BF16
        right = "bf16" if sums_in_bf16 else "fp32"
        accepted = ["fp32"]
        if sums_in_bf16 or run.world.pipeline > 1:
            accepted.append("bf16")
    if summed not in accepted:
        message = f"{setting(config, _SUM)} with a model in {kind} is refused without ZeRO"
        hint = f"set grad_accum_dtype to {right}, or use ZeRO stage 1 or more"
        yield violation(config, _SUM, message, hint)


@configs.rule(
    "PREC023", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1808; runtime/config.py:152")
)
def data_types_are_known(config: Config) -> Violations:
    """data_types names types that DeepSpeed has.
    Prevents: `ValueError: ... is not a valid DtypeEnum` when the engine starts
    Fix: write fp32, bf16 or fp16"""
    for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        value = config.value(f"/data_types/{key}")
        is_known = isinstance(value, str) and (value in DTYPES or value == "auto")
        if value is not None and not is_known:
            message = f"unknown type {shown(value)} in {key}"
            hint = 'write "fp32", "bf16" or "fp16"'
            yield violation(config, f"/data_types/{key}", message, hint)


@runs.rule(
    "PREC018",
    WARNING,
    "silent",
    "EleutherAI/gpt-neox megatron/neox_arguments/arguments.py:1004 @ ea7aefd8",
)
def pipelines_accumulate_in_fp32(run: Run) -> Violations:
    """A bf16 pipeline with ZeRO accumulates its micro-batches' gradients in fp32.
    Prevents: Gradients lose bits in a long sum of bf16 numbers.
    Fix: set data_types.grad_accum_dtype to fp32"""
    config, stages = run.config, run.world.pipeline
    if config.precision == "bf16" and config.stage and stages > 1 and not config.accumulates_in:
        message = (
            f"bf16 gradients of {stages} pipeline stages accumulate in bf16 over all micro-batches"
        )
        hint = 'add "data_types": {"grad_accum_dtype": "fp32"}'
        yield violation(config, f"{config.bf16}/enabled", message, hint)


@configs.rule("PREC024", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:1720"))
def gradients_fit_their_messages(config: Config) -> Violations:
    """bf16 gradients are not sent as fp16, whose largest number is 65,504.
    Prevents: bf16's range is cut to fp16's when gradients are reduced.
    Fix: set communication_data_type to bf16 or fp32"""
    pointer = "/communication_data_type"
    sent = config.text(pointer)
    if config.precision == "bf16" and sent is not None and sent.lower() == "fp16":
        message = (
            f"communication_data_type: {shown(sent)} sends bf16 gradients as fp16: large "
            "ones become infinite, small ones 0"
        )
        yield violation(config, pointer, message, 'write "bf16" or "fp32"')


@configs.rule(
    "PREC029",
    WARNING,
    "silent",
    derived(f"DeepSpeed 0.19.8 casts gradients to grad_accum_dtype {_CAST}"),
)
def sums_keep_their_range(config: Config) -> Violations:
    """bf16 gradients don't accumulate in fp16, whose largest number is 65,504.
    Prevents: bf16's range is cut to fp16's in every sum.
    Fix: set grad_accum_dtype to fp32"""
    if config.precision == "bf16" and config.stage and config.sums_in == "fp16":
        message = f"{setting(config, _SUM)} sums bf16 gradients in fp16: large ones become infinite"
        yield violation(config, _SUM, message, 'write "fp32" or "bf16"')


@configs.rule("PREC025", ERROR, "silent", deepspeed_0_19_8(_SOURCE), since=(0, 17, 0))
def autocast_names_its_type(config: Config) -> Violations:
    """torch_autocast sets dtype: without one, CUDA casts to fp16, and nothing scales the loss.
    Prevents: fp16 training without loss scaling: small gradients silently become zero
    Fix: set torch_autocast.dtype to bf16"""
    if config.switch(_ENABLED) and config.value(f"{_AUTOCAST}/dtype") is None:
        message = (
            "torch_autocast without dtype casts to torch's default, fp16 on CUDA, and "
            "the loss is not scaled"
        )
        yield violation(config, _AUTOCAST, message, 'add "dtype": "bf16"')


@configs.rule(
    "PREC026", ERROR, "init", deepspeed_0_19_8("runtime/torch_autocast.py:32"), since=(0, 17, 0)
)
def autocast_gathers_whole_weights(config: Config) -> Violations:
    """torch_autocast runs without quantized weights.
    Prevents: `Cannot enable both torch autocast and zero quantized weights`
    Fix: disable one of the two"""
    pointer = f"{ZERO}/zero_quantized_weights"
    if config.switch(_ENABLED) and config.switch(pointer):
        message = (
            "torch_autocast and zero_quantized_weights are both enabled, which DeepSpeed refuses"
        )
        yield violation(config, pointer, message, "disable one of the two")


@configs.rule("PREC027", NOTE, "silent", derived(_IN_ANY_CASE), since=(0, 17, 0))
def autocast_finds_fp32(config: Config) -> Violations:
    """torch_autocast works on a model in fp32, so fp16 and bf16 are off.
    Prevents: Two ways of mixed precision at once, of which the second has nothing left to keep in
    fp32.
    Fix: disable one of the two
    """
    precision = config.precision
    if config.switch(_ENABLED) and precision in ("fp16", "bf16"):
        message = f"torch_autocast is enabled, but {precision} casts every parameter already:"
        message += f" values that autocast keeps in fp32 start from {precision} weights"
        yield violation(config, _ENABLED, message, f"disable torch_autocast or {precision}")


@configs.rule("PREC028", WARNING, "silent", deepspeed_0_19_8("runtime/config.py:717"))
def vocabulary_fills_tensor_cores(config: Config) -> Violations:
    """vocabulary_size is a multiple of 8, as tensor cores require.
    Prevents: Slower products with the embedding, which only the log reports.
    Fix: use a multiple of 8"""
    size = config.read("/vocabulary_size")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % 8:
        message = (
            f"vocabulary_size: {shown(size)} is not a multiple of 8: products with the "
            "embedding run slower"
        )
        yield violation(
            config, "/vocabulary_size", message, f"pad the vocabulary to {size + 8 - size % 8}"
        )


@configs.rule("PREC001", ERROR, "parse", deepspeed("runtime/config.py:827"))
def one_half_precision(config: Config) -> Violations:
    """At most one of fp16 and bf16 is enabled.
    Prevents: AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled
    Fix: disable one of them; keep bf16 on GPUs that have it"""
    fp16, bf16 = "/fp16/enabled", f"{config.bf16}/enabled"
    has_placeholder = is_placeholder(config.value(fp16)) or is_placeholder(config.value(bf16))
    if config.switch(fp16) and config.switch(bf16) and not has_placeholder:
        effect = 'reads "auto" as true' if config.auto_precision else "trains in one of them"
        message = f"fp16 and bf16 are both enabled: DeepSpeed {effect}"
        hint = 'keep bf16 where the GPUs have it: write "fp16": {"enabled": false}'
        yield violation(config, bf16, message, hint)


@configs.rule(
    "PREC030", ERROR, "parse", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:204-214 @ 0.16.9"
)
def initial_scale_is_a_number(config: Config) -> Violations:
    """fp16's initial scale power is a number: DeepSpeed raises 2 to it.
    Prevents: TypeError: unsupported operand type(s) for **
    Fix: write an integer, such as 16"""
    section, pointer = config.schema.section("/fp16"), "/fp16/initial_scale_power"
    if section is None or section.kind == "model" or not config.switch("/fp16/enabled"):
        return
    value = config.value(pointer, 16)
    is_filled_in = value == "auto" and config.filled
    if not isinstance(value, int | float) and not is_filled_in:
        message = f"`fp16.initial_scale_power` must be a number: DeepSpeed fails on {shown(value)}"
        yield violation(config, pointer, message, "write 16")


@configs.rule("PREC009", ERROR, "parse", deepspeed("runtime/config.py:1037-1047"))
def half_precision_masters_need_zero(config: Config) -> Violations:
    """Master weights and optimizer states in half precision are used with ZeRO.
    Prevents: AssertionError: ..._master_weights_and_grads is only supported with ZeRO Stage 1, 2,
    or 3
    Fix: use ZeRO, or keep them in fp32
    """
    # Until 0.17 fp16's needed stage 2 (deepspeed/runtime/config.py `_do_error_check`).
    stages_by_key = {_MASTERS_OF_FP16: (1, 2, 3) if config.schema.version >= (0, 18) else (2,)}
    stages_by_key |= {f"{config.bf16}/{name}": (1, 2, 3) for name in _OF_BF16}
    for pointer, stages in stages_by_key.items():
        block = pointer.rpartition("/")[0]
        section = config.schema.section(block)
        if section is None or not config.switch(pointer):
            continue
        if section.kind == "mapping" and not config.switch(f"{block}/enabled"):
            continue  # a mapping's other keys are read only where it is enabled
        if config.stage is not None and config.stage not in stages:
            accepted = "stage 2" if stages == (2,) else "stage 1, 2 or 3"
            message = f"{named(pointer)} requires ZeRO {accepted}; this is stage {config.stage}"
            yield violation(config, pointer, message, 'set "stage" to 2, or write false')


@configs.rule("PREC011", ERROR, "parse", deepspeed("runtime/config.py:1049"))
def bf16_states_need_bf16_masters(config: Config) -> Violations:
    """Optimizer states in bf16 are used with master weights in bf16.
    Prevents: AssertionError: bf16_optimizer_states requires bf16_master_weights_and_grads
    Fix: turn both on, or neither"""
    masters, states = (f"{config.bf16}/{name}" for name in _OF_BF16)
    if config.switch(states) and not config.switch(masters):
        message = "`bf16_optimizer_states` requires `bf16_master_weights_and_grads`, which is off"
        yield violation(config, states, message, 'write "bf16_master_weights_and_grads": true')


@configs.rule("PREC019", ERROR, "parse", deepspeed("runtime/config.py:239, :1029-1035"))
def reduction_is_known(config: Config) -> Violations:
    """Gradients are reduced by mean, or by sum where that is implemented.
    Prevents: ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3
    Fix: leave it out: the mean is the default"""
    pointer = "/gradient_allreduce_op"
    operation = config.value(pointer)
    if config.schema.key(pointer) is None or not isinstance(operation, str):
        return
    if operation.lower() not in ("mean", "sum"):
        message = f"`gradient_allreduce_op` must be mean or sum, not {shown(operation)}"
        yield violation(config, pointer, message, 'write "mean"')
    if operation.lower() != "sum":
        return
    without_sums = {
        "ZeRO stage 3": config.stage == 3,
        "ZenFlow": isinstance(config.value(f"{ZERO}/zenflow"), dict),
        "DeepCompile": config.switch("/compile/deepcompile"),
    }
    for name, is_used in without_sums.items():
        if is_used:
            message = f'`gradient_allreduce_op` is "sum", which is not supported with {name}'
            yield violation(config, pointer, message, 'write "mean"')
