"""Relations of settings that DeepSpeed's parser checks itself: precision and ZeRO."""

from __future__ import annotations

from ....findings import ERROR, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now
from ..config import ZERO, Config
from .problem import named
from .subjects import configs
from .values import shown


@configs.rule("PREC001", ERROR, "parse", deepspeed("runtime/config.py:827"))
def one_half_precision(config: Config) -> Violations:
    """At most one of fp16 and bf16 is enabled.

    Prevents: AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled
    Fix: disable one of them; keep bf16 on GPUs that have it"""
    states = ("/fp16/enabled", f"{config.bf16}/enabled")
    if all(map(config.switch, states)):
        message = "fp16 and bf16 are both enabled: DeepSpeed trains in one of them"
        if config.auto_precision:
            message = 'fp16 and bf16 are both enabled: DeepSpeed reads "auto" as true'
        hint = 'keep bf16 where the GPUs have it: write "fp16": {"enabled": false}'
        yield Violation(config.locate(states[1]), message, hint)


@configs.rule("PREC030", ERROR, "parse", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:204-214 @ 0.16.9")
def initial_scale_is_a_number(config: Config) -> Violations:
    """fp16's initial scale power is a number: DeepSpeed raises 2 to it.

    Prevents: TypeError: unsupported operand type(s) for **
    Fix: write an integer, such as 16"""
    section = config.schema.section("/fp16")
    if section is None or section.kind == "model" or not config.switch("/fp16/enabled"):
        return
    value = config.value("/fp16/initial_scale_power", 16)
    if not isinstance(value, int | float) and not (value == "auto" and config.filled):
        message = f"`fp16.initial_scale_power` must be a number: DeepSpeed fails on {shown(value)}"
        yield Violation(config.locate("/fp16/initial_scale_power"), message, "write 16")


@configs.rule("PREC009", ERROR, "parse", deepspeed("runtime/config.py:1037-1047"))
def half_precision_masters_need_zero(config: Config) -> Violations:
    """Master weights and optimizer states in half precision are used with ZeRO.

    Prevents: AssertionError: ..._master_weights_and_grads is only supported with ZeRO Stage 1, 2, or 3
    Fix: use ZeRO, or keep them in fp32"""
    # Until 0.17 fp16's needed stage 2 (deepspeed/runtime/config.py `_do_error_check`).
    needs = {"/fp16/fp16_master_weights_and_grads": (1, 2, 3) if config.schema.version >= (0, 18) else (2,)}
    needs |= {f"{config.bf16}/{name}": (1, 2, 3) for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")}
    for pointer, stages in needs.items():
        block = pointer.rpartition("/")[0]
        section = config.schema.section(block)
        if section is None or (section.kind == "mapping" and not config.switch(f"{block}/enabled")):
            continue  # a mapping's other keys are read only where it is enabled
        if config.switch(pointer) and config.stage is not None and config.stage not in stages:
            accepted = "stage 2" if stages == (2,) else "stage 1, 2 or 3"
            message = f"{named(pointer)} requires ZeRO {accepted}; this is stage {config.stage}"
            yield Violation(config.locate(pointer), message, 'set "stage" to 2, or write false')


@configs.rule("PREC011", ERROR, "parse", deepspeed("runtime/config.py:1049"))
def bf16_states_need_bf16_masters(config: Config) -> Violations:
    """Optimizer states in bf16 are used with master weights in bf16.

    Prevents: AssertionError: bf16_optimizer_states requires bf16_master_weights_and_grads
    Fix: turn both on, or neither"""
    states, masters = (f"{config.bf16}/{name}" for name in ("bf16_optimizer_states", "bf16_master_weights_and_grads"))
    if config.switch(states) and not config.switch(masters):
        message = "`bf16_optimizer_states` requires `bf16_master_weights_and_grads`, which is off"
        yield Violation(config.locate(states), message, 'write "bf16_master_weights_and_grads": true')


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
        yield Violation(config.locate(pointer), message, 'write "mean"')
    against = {
        "ZeRO stage 3": config.stage == 3,
        "ZenFlow": isinstance(config.value(f"{ZERO}/zenflow"), dict),
        "DeepCompile": config.switch("/compile/deepcompile"),
    }
    for name in (name for name, used in against.items() if used and operation.lower() == "sum"):
        message = f'`gradient_allreduce_op` is "sum", which is not supported with {name}'
        yield Violation(config.locate(pointer), message, 'write "mean"')


@configs.rule("ZERO010", ERROR, "parse", deepspeed("runtime/zero/config.py:389-393"))
def partial_offload_needs_stage_3(config: Config) -> Violations:
    """Only ZeRO stage 3 offloads a part of the optimizer.

    Prevents: AssertionError: Partial offloading only supported for ZeRO Stage 3
    Fix: offload all of it, or use stage 3"""
    pointer, stage = f"{ZERO}/offload_optimizer/ratio", config.stage
    ratio = config.number(pointer) if config.schema.pydantic > 1 else None  # pydantic 1 never gets to the check
    if ratio is not None and ratio < 1 and stage not in (3, None):
        message = f"`ratio` {shown(ratio)} offloads a part of the optimizer: stage 3 only; this is stage {stage}"
        yield Violation(config.locate(pointer), message, 'write "ratio": 1.0, or "stage": 3')


@configs.rule("ZERO080", ERROR, "parse", deepspeed_now("runtime/zero/config.py:390"))
def norm_is_left_out_at_stage_1_or_2(config: Config) -> Violations:
    """The gradient norm is only left out at ZeRO stage 1 or 2.

    Prevents: ValidationError: compute_grad_norm=false is supported only with ZeRO Stage 1 or 2
    Fix: remove the key"""
    pointer, zero = f"{ZERO}/compute_grad_norm", config.schema.section(ZERO)
    checked = zero is not None and "compute_grad_norm_valid" in zero.checks
    if checked and config.stage not in (1, 2, None) and config.switch(pointer) is False:
        message = f"`compute_grad_norm` is off, which requires stage 1 or 2; this is stage {config.stage}"
        yield Violation(config.locate(pointer), message, "remove it")
