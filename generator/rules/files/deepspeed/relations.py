"""Relations of settings that DeepSpeed's parser checks itself: precision and ZeRO."""

from __future__ import annotations

from ....documents.submission import FILLERS, Submission
from ....findings import ERROR, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed
from .problem import named, shown
from .subjects import configs
from .walk import problems


@submissions.rule("PREC001", ERROR, "parse", deepspeed("runtime/config.py:827"), reads=("DeepSpeed config",))
def one_half_precision(submission: Submission) -> Violations:
    """Only one of fp16 and bf16 is on.

    Prevents: AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled
    Fix: Turn one of them off; keep bf16 on GPUs that have it.
    """
    for config in configs(submission):
        bf16 = config.bf16
        states = tuple(config.switch(f"{section}/enabled") for section in ("/fp16", bf16))
        if not all(states):
            continue
        message = "both fp16 and bf16 are on; DeepSpeed trains in one of them"
        if "auto" in (config.value("/fp16/enabled"), config.value(f"{bf16}/enabled")):
            message = 'DeepSpeed takes "auto" for on, so both fp16 and bf16 are on'
        hint = 'keep bf16 where the GPUs have it: `"fp16": {"enabled": false}`'
        yield Violation(where=config.locate(f"{bf16}/enabled"), message=message, hint=hint)


@submissions.rule(
    "PREC006", ERROR, "parse", deepspeed("runtime/precision_config.py:165-197"), reads=("DeepSpeed config",)
)
def dynamic_loss_scale_has_bounds(submission: Submission) -> Violations:
    """fp16's scale window and least scale are whole, and with dynamic loss scaling greater than 0.

    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an integer
    Fix: Leave both out, or write 1000 and 1.
    """
    yield from (problem.violation(config) for config, problem in problems(submission) if problem.rule == "PREC006")
    for config in configs(submission):
        section = config.schema.section("/fp16")
        if section is None or "_validate_dynamic_loss_scale_params" not in section.checks:
            continue
        if not config.switch("/fp16/enabled") or config.number("/fp16/loss_scale") != 0:
            continue
        for name in ("loss_scale_window", "min_loss_scale"):
            value = config.number(f"/fp16/{name}")
            if value is not None and value <= 0:
                where = config.locate(f"/fp16/{name}")
                message = f"`fp16.{name}` is {shown(value)}; with dynamic loss scaling it must be greater than 0"
                yield Violation(where=where, message=message, hint=shown(section.keys[name].default))


@submissions.rule(
    "PREC030",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/runtime/config.py:204-214 @ 0.16.9",
    reads=("DeepSpeed config",),
)
def initial_scale_is_a_number(submission: Submission) -> Violations:
    """fp16's initial scale power is a number, which DeepSpeed raises 2 to.

    Prevents: TypeError: unsupported operand type(s) for **
    Fix: Write a whole number, such as 16.
    """
    for config in configs(submission):
        section = config.schema.section("/fp16")
        if section is None or section.kind == "model" or not config.block("/fp16").get("enabled"):
            continue
        value = config.value("/fp16/initial_scale_power", 16)
        if not isinstance(value, int | float) and not (value == "auto" and submission.consumer in FILLERS):
            message = f"`fp16.initial_scale_power` takes a number; DeepSpeed fails on {shown(value)}"
            yield Violation(where=config.locate("/fp16/initial_scale_power"), message=message, hint="16")


@submissions.rule("PREC009", ERROR, "parse", deepspeed("runtime/config.py:1037-1047"), reads=("DeepSpeed config",))
def half_precision_masters_need_zero(submission: Submission) -> Violations:
    """Master weights and optimizer states in half precision go with ZeRO.

    Prevents: AssertionError: ..._master_weights_and_grads is only supported with ZeRO Stage 1, 2, or 3
    Fix: Use ZeRO, or leave them in fp32.
    """
    for config in configs(submission):
        bf16, stage = config.bf16, config.stage
        # Until 0.17 fp16's needed stage 2 (deepspeed/runtime/config.py `_do_error_check`).
        needs = {"/fp16/fp16_master_weights_and_grads": (1, 2, 3) if config.schema.version >= (0, 18) else (2,)}
        needs |= {f"{bf16}/{name}": (1, 2, 3) for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")}
        for pointer, stages in needs.items():
            block = pointer.rpartition("/")[0]
            section = config.schema.section(block)
            if section is None or (section.kind == "mapping" and not config.switch(f"{block}/enabled")):
                continue  # a mapping's other keys are read only where it is on
            if config.switch(pointer) and stage not in stages:
                wanted = "stage 2" if stages == (2,) else "stage 1, 2 or 3"
                message = f"{named(pointer)} needs ZeRO {wanted}; this is stage {stage}"
                yield Violation(where=config.locate(pointer), message=message, hint='"stage": 2, or false')


@submissions.rule("PREC011", ERROR, "parse", deepspeed("runtime/config.py:1049"), reads=("DeepSpeed config",))
def bf16_states_need_bf16_masters(submission: Submission) -> Violations:
    """Optimizer states in bf16 go with master weights in bf16.

    Prevents: AssertionError: bf16_optimizer_states requires bf16_master_weights_and_grads
    Fix: Turn both on, or neither.
    """
    for config in configs(submission):
        block = config.bf16
        states, masters = (
            config.switch(f"{block}/{name}") for name in ("bf16_optimizer_states", "bf16_master_weights_and_grads")
        )
        if states and not masters:
            message = "`bf16_optimizer_states` needs `bf16_master_weights_and_grads`, which is off"
            where = config.locate(f"{block}/bf16_optimizer_states")
            yield Violation(where=where, message=message, hint='"bf16_master_weights_and_grads": true')


@submissions.rule(
    "PREC019", ERROR, "parse", deepspeed("runtime/config.py:239, :1029-1035"), reads=("DeepSpeed config",)
)
def reduction_is_known(submission: Submission) -> Violations:
    """Gradients are reduced by mean, or by sum where that is implemented.

    Prevents: ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3
    Fix: Leave it out: the mean is the default.
    """
    pointer = "/gradient_allreduce_op"
    for config in configs(submission):
        operation = config.value(pointer)
        if config.schema.key(pointer) is None or not isinstance(operation, str):
            continue
        if operation.lower() not in ("mean", "sum"):
            message = f"`gradient_allreduce_op` is {shown(operation)}; DeepSpeed takes mean or sum"
            yield Violation(where=config.locate(pointer), message=message, hint='"mean"')
        against = {
            "ZeRO stage 3": config.stage == 3,
            "ZenFlow": isinstance(config.value("/zero_optimization/zenflow"), dict),
            "DeepCompile": bool(config.switch("/compile/deepcompile")),
        }
        for name in (name for name, used in against.items() if used and operation.lower() == "sum"):
            message = f'`gradient_allreduce_op` is "sum", which {name} doesn\'t support'
            yield Violation(where=config.locate(pointer), message=message, hint='"mean"')


@submissions.rule("ZERO010", ERROR, "parse", deepspeed("runtime/zero/config.py:389-393"), reads=("DeepSpeed config",))
def partial_offload_needs_stage_3(submission: Submission) -> Violations:
    """Only ZeRO stage 3 offloads a part of the optimizer.

    Prevents: AssertionError: Partial offloading only supported for ZeRO Stage 3
    Fix: Offload all of it, or use stage 3.
    """
    section = "/zero_optimization/offload_optimizer"
    for config in configs(submission):
        if config.schema.pydantic == 1:  # its check asks the values for an attribute, which they never have
            continue
        ratio = config.number(f"{section}/ratio")
        stage = config.stage
        if ratio is not None and ratio < 1 and stage != 3:
            message = f"`ratio` {shown(ratio)} offloads a part of the optimizer: stage 3 only; this is stage {stage}"
            yield Violation(
                where=config.locate(f"{section}/ratio"), message=message, hint='"ratio": 1.0, or "stage": 3'
            )


@submissions.rule(
    "ZERO080",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/runtime/zero/config.py:390 @ 0.19.8",
    reads=("DeepSpeed config",),
)
def norm_is_left_out_at_stage_1_or_2(submission: Submission) -> Violations:
    """The gradient norm is only left out at ZeRO stage 1 or 2.

    Prevents: ValidationError: compute_grad_norm=false is supported only with ZeRO Stage 1 or 2
    Fix: Leave it out.
    """
    pointer = "/zero_optimization/compute_grad_norm"
    for config in configs(submission):
        zero, stage = config.schema.section("/zero_optimization"), config.stage
        if zero is None or "compute_grad_norm_valid" not in zero.checks or stage in (1, 2):
            continue
        if config.has(pointer) and config.switch(pointer) is False:
            message = f"`compute_grad_norm` is off, which needs stage 1 or 2; this is stage {stage}"
            yield Violation(where=config.locate(pointer), message=message, hint="take it out")
