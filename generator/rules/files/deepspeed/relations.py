"""Relations of settings that DeepSpeed's parser checks itself: precision and ZeRO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import FILLERS, Submission
from ....findings import Severity
from ...sources import deepspeed
from ..rule import Breach, DocumentRule
from .problem import named, shown
from .settings import bf16_block, readable, setting, stage_of
from .walk import problems


def one_half_precision(submission: Submission) -> Iterator[Breach]:
    """Only one of fp16 and bf16 is on."""
    for config, schema in readable(submission):
        bf16 = bf16_block(config, schema)
        states = tuple(setting(config, schema, section, "enabled") for section in ("/fp16", bf16))
        if not all(states) or ("auto" in states and submission.consumer in FILLERS):
            continue
        message = "both fp16 and bf16 are on; DeepSpeed trains in one of them"
        if "auto" in states:
            message = 'DeepSpeed takes "auto" for on, so both fp16 and bf16 are on'
        hint = 'keep bf16 where the GPUs have it: `"fp16": {"enabled": false}`'
        yield Breach(where=config.locate(f"{bf16}/enabled"), message=message, hint=hint)


def dynamic_loss_scale_has_bounds(submission: Submission) -> Iterator[Breach]:
    """fp16's scale window and least scale are whole, and with dynamic loss scaling greater than 0."""
    yield from (problem.breach(config) for config, problem in problems(submission) if problem.rule == "PREC006")
    for config, schema in readable(submission):
        section = schema.section("/fp16")
        if section is None or "_validate_dynamic_loss_scale_params" not in section.checks:
            continue
        if not setting(config, schema, "/fp16", "enabled") or setting(config, schema, "/fp16", "loss_scale") != 0:
            continue
        for name in ("loss_scale_window", "min_loss_scale"):
            value = setting(config, schema, "/fp16", name)
            if isinstance(value, int | float) and value <= 0:
                where = config.locate(f"/fp16/{name}")
                message = f"`fp16.{name}` is {shown(value)}; with dynamic loss scaling it must be greater than 0"
                yield Breach(where=where, message=message, hint=shown(section.keys[name].default))


def initial_scale_is_a_number(submission: Submission) -> Iterator[Breach]:
    """fp16's initial scale power is a number, which DeepSpeed raises 2 to."""
    for config, schema in readable(submission):
        section = schema.section("/fp16")
        if section is None or section.kind == "model" or not config.block("/fp16").get("enabled"):
            continue
        value = config.value("/fp16/initial_scale_power", 16)
        if not isinstance(value, int | float) and not (value == "auto" and submission.consumer in FILLERS):
            message = f"`fp16.initial_scale_power` takes a number; DeepSpeed fails on {shown(value)}"
            yield Breach(where=config.locate("/fp16/initial_scale_power"), message=message, hint="16")


def half_precision_masters_need_zero(submission: Submission) -> Iterator[Breach]:
    """Master weights and optimizer states in half precision go with ZeRO."""
    for config, schema in readable(submission):
        bf16, stage = bf16_block(config, schema), stage_of(config, schema)
        # Until 0.17 fp16's needed stage 2 (deepspeed/runtime/config.py `_do_error_check`).
        needs = {"/fp16/fp16_master_weights_and_grads": (1, 2, 3) if schema.version >= (0, 18) else (2,)}
        needs |= {f"{bf16}/{name}": (1, 2, 3) for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")}
        for pointer, stages in needs.items():
            block, _, name = pointer.rpartition("/")
            section = schema.section(block)
            if section is None or (section.kind == "mapping" and not setting(config, schema, block, "enabled")):
                continue  # a mapping's other keys are read only where it is on
            if setting(config, schema, block, name) and stage not in stages:
                wanted = "stage 2" if stages == (2,) else "stage 1, 2 or 3"
                message = f"{named(pointer)} needs ZeRO {wanted}; this is stage {stage}"
                yield Breach(where=config.locate(pointer), message=message, hint='"stage": 2, or false')


def bf16_states_need_bf16_masters(submission: Submission) -> Iterator[Breach]:
    """Optimizer states in bf16 go with master weights in bf16."""
    for config, schema in readable(submission):
        block = bf16_block(config, schema)
        states, masters = (
            setting(config, schema, block, name) for name in ("bf16_optimizer_states", "bf16_master_weights_and_grads")
        )
        if states and not masters:
            message = "`bf16_optimizer_states` needs `bf16_master_weights_and_grads`, which is off"
            where = config.locate(f"{block}/bf16_optimizer_states")
            yield Breach(where=where, message=message, hint='"bf16_master_weights_and_grads": true')


def reduction_is_known(submission: Submission) -> Iterator[Breach]:
    """Gradients are reduced by mean, or by sum where that is implemented."""
    pointer = "/gradient_allreduce_op"
    for config, schema in readable(submission):
        operation = config.value(pointer)
        if schema.key(pointer) is None or not isinstance(operation, str):
            continue
        if operation.lower() not in ("mean", "sum"):
            message = f"`gradient_allreduce_op` is {shown(operation)}; DeepSpeed takes mean or sum"
            yield Breach(where=config.locate(pointer), message=message, hint='"mean"')
        against = {
            "ZeRO stage 3": stage_of(config, schema) == 3,
            "ZenFlow": isinstance(config.value("/zero_optimization/zenflow"), dict),
            "DeepCompile": bool(setting(config, schema, "/compile", "deepcompile")),
        }
        for name in (name for name, used in against.items() if used and operation.lower() == "sum"):
            message = f'`gradient_allreduce_op` is "sum", which {name} doesn\'t support'
            yield Breach(where=config.locate(pointer), message=message, hint='"mean"')


def partial_offload_needs_stage_3(submission: Submission) -> Iterator[Breach]:
    """Only ZeRO stage 3 offloads a part of the optimizer."""
    section = "/zero_optimization/offload_optimizer"
    for config, schema in readable(submission):
        if schema.pydantic == 1:  # its check asks the values for an attribute, which they never have
            continue
        ratio = setting(config, schema, section, "ratio") if isinstance(config.value(section), dict) else None
        stage = stage_of(config, schema)
        if isinstance(ratio, int | float) and ratio < 1 and stage != 3:
            message = f"`ratio` {shown(ratio)} offloads a part of the optimizer: stage 3 only; this is stage {stage}"
            yield Breach(where=config.locate(f"{section}/ratio"), message=message, hint='"ratio": 1.0, or "stage": 3')


def norm_is_left_out_at_stage_1_or_2(submission: Submission) -> Iterator[Breach]:
    """The gradient norm is only left out at ZeRO stage 1 or 2."""
    pointer = "/zero_optimization/compute_grad_norm"
    for config, schema in readable(submission):
        zero, stage = schema.section("/zero_optimization"), stage_of(config, schema)
        if zero is None or "compute_grad_norm_valid" not in zero.checks or stage in (1, 2):
            continue
        if config.has(pointer) and not setting(config, schema, "/zero_optimization", "compute_grad_norm"):
            message = f"`compute_grad_norm` is off, which needs stage 1 or 2; this is stage {stage}"
            yield Breach(where=config.locate(pointer), message=message, hint="take it out")


RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="PREC001",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:827"),
        prevents="AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled",
        fix="Turn one of them off; keep bf16 on GPUs that have it.",
        check=one_half_precision,
    ),
    DocumentRule(
        id="PREC006",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/precision_config.py:165-197"),
        prevents="ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an integer",
        fix="Leave both out, or write 1000 and 1.",
        check=dynamic_loss_scale_has_bounds,
    ),
    DocumentRule(
        id="PREC009",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:1037-1047"),
        prevents="AssertionError: ..._master_weights_and_grads is only supported with ZeRO Stage 1, 2, or 3",
        fix="Use ZeRO, or leave them in fp32.",
        check=half_precision_masters_need_zero,
    ),
    DocumentRule(
        id="PREC011",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:1049"),
        prevents="AssertionError: bf16_optimizer_states requires bf16_master_weights_and_grads",
        fix="Turn both on, or neither.",
        check=bf16_states_need_bf16_masters,
    ),
    DocumentRule(
        id="PREC019",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:239, :1029-1035"),
        prevents="ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3",
        fix="Leave it out: the mean is the default.",
        check=reduction_is_known,
    ),
    DocumentRule(
        id="PREC030",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source="deepspeedai/DeepSpeed deepspeed/runtime/config.py:204-214 @ 0.16.9",
        prevents="TypeError: unsupported operand type(s) for **",
        fix="Write a whole number, such as 16.",
        check=initial_scale_is_a_number,
    ),
    DocumentRule(
        id="ZERO010",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:389-393"),
        prevents="AssertionError: Partial offloading only supported for ZeRO Stage 3",
        fix="Offload all of it, or use stage 3.",
        check=partial_offload_needs_stage_3,
    ),
    DocumentRule(
        id="ZERO080",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source="deepspeedai/DeepSpeed deepspeed/runtime/zero/config.py:390 @ 0.19.8",
        prevents="ValidationError: compute_grad_norm=false is supported only with ZeRO Stage 1 or 2",
        fix="Leave it out.",
        check=norm_is_left_out_at_stage_1_or_2,
    ),
)
