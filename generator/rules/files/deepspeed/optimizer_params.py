"""The parameters that are handed to the optimizer's constructor."""

from __future__ import annotations

import difflib
from typing import Final

from ....documents.deepspeed_config import Config, number_of
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.source import escape
from ...rule import submissions
from ...sources import deepspeed_now, derived, megatron_deepspeed
from .subjects import building, configs
from .values import removed, shown

PARAMS: Final = "/optimizer/params"

_TORCH: Final = frozenset({"lr", "betas", "eps", "weight_decay", "amsgrad"})
_SWITCHES: Final = frozenset({"torch_adam", "adam_w_mode", "fp32_optimizer_states"})
_TORCH_EXTRA: Final = frozenset({"foreach", "maximize", "capturable", "differentiable", "fused"})
_FUSED_ADAM: Final = _TORCH | {"bias_correction", "set_grad_none"} | _SWITCHES
_CPU_ADAM: Final = _TORCH | {"bias_correction"} | _SWITCHES
_FUSED_LION: Final = frozenset({"lr", "betas", "weight_decay", "set_grad_none"})
_CPU_LION: Final = frozenset({"lr", "betas", "weight_decay", "fp32_optimizer_states"})
_CPU_ADAGRAD: Final = frozenset({"lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states"})
_TORCH_ADAGRAD: Final = frozenset({"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"})
_TORCH_ADAGRAD_EXTRA: Final = frozenset({"foreach", "maximize", "differentiable", "fused"})
_LAMB: Final = _TORCH | {"bias_correction", "eps_inside_sqrt", "max_coeff", "min_coeff"}
_SGD: Final = frozenset({"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach"})
_SGD_EXTRA: Final = frozenset({"differentiable", "fused"})

#: Schedules that set every rate themselves, whatever the optimizer's is.
SETS_RATES: Final = ("LRRangeTest", "OneCycle", "WarmupDecayLR")


def _taken(config: Config) -> frozenset[str] | None:
    """The parameters that the optimizer's constructor takes; None where that isn't known."""
    name, offloaded = config.optimizer, config.offloads("optimizer") and bool(config.stage)
    if name in ("adam", "adamw"):
        if config.switch(f"{PARAMS}/torch_adam"):
            return _TORCH | _SWITCHES | _TORCH_EXTRA
        return _CPU_ADAM if offloaded else _FUSED_ADAM
    if name == "lion":
        return _CPU_LION if offloaded else _FUSED_LION
    if name == "adagrad":
        return _CPU_ADAGRAD if offloaded else _TORCH_ADAGRAD | _TORCH_ADAGRAD_EXTRA
    return {"lamb": _LAMB, "SGD": _SGD | _SGD_EXTRA}.get(name or "")


@building.rule(
    "OPT021", ERROR, "init", deepspeed_now("runtime/engine.py:2495; ops/adam/fused_adam.py:76; ops/adam/cpu_adam.py:15")
)
def parameters_are_the_optimizers(config: Config) -> Violations:
    """The optimizer's params are ones that its constructor takes.

    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: parameters that the constructor takes
    """
    taken = _taken(config)
    for key in config.block(PARAMS) if taken else ():
        if taken is None or key in taken or key == "max_grad_norm":
            continue
        close = difflib.get_close_matches(key, sorted(taken), n=1)
        message = f"{key} is no parameter of {shown(config.value('/optimizer/type'))}: its constructor raises"
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(sorted(taken - _SWITCHES))}"
        yield Violation(where=config.locate_key(f"{PARAMS}/{escape(key)}"), message=message, hint=hint)


@building.rule(
    "OPT022",
    ERROR,
    "init",
    deepspeed_now("ops/adam/fused_adam.py:87; ops/adam/cpu_adam.py:108; ops/lamb/fused_lamb.py:55"),
)
def deepspeeds_adam_has_no_amsgrad(config: Config) -> Violations:
    """DeepSpeed's own Adam and LAMB have no AMSGrad.

    Prevents: `FusedAdam does not support the AMSGrad variant.`
    Fix: leave amsgrad out
    """
    pointer, name = f"{PARAMS}/amsgrad", config.optimizer
    own = name == "lamb" or (name in ("adam", "adamw") and config.switch(f"{PARAMS}/torch_adam") is False)
    if config.switch(pointer) and own:
        message = f"amsgrad: true is refused by DeepSpeed's {shown(config.value('/optimizer/type'))}"
        yield Violation(where=config.locate(pointer), message=message, hint="remove it, or torch_adam: true")


@building.rule("OPT023", ERROR, "silent", derived("a step is the rate times a direction"))
def rates_are_above_zero(config: Config) -> Violations:
    """The learning rate is above zero.

    Prevents: a job that trains nothing
    Fix: a rate above zero
    """
    rate = config.number(f"{PARAMS}/lr")
    if rate is None or rate > 0 or config.optimizer is None:
        return
    if rate < 0 or config.read("/scheduler/type") not in (*SETS_RATES, "WarmupLR"):
        what = "trains nothing" if rate == 0 else "climbs the loss, or is refused"
        message = f"lr: {shown(rate)} {what}"
        yield Violation(where=config.locate(f"{PARAMS}/lr"), message=message, hint="a rate above zero")


@submissions.rule(
    "OPT024",
    WARNING,
    "silent",
    deepspeed_now("ops/adam/fused_adam.py:78; ops/lion/fused_lion.py:36; ops/lamb/fused_lamb.py:43"),
    reads=("DeepSpeed config",),
)
def rates_are_written(submission: Submission) -> Violations:
    """The optimizer's params say the learning rate, or its constructor's default is taken.

    Prevents: training at a rate that nobody chose
    Fix: write lr
    """
    for config in configs(submission) if submission.consumer == "deepspeed" else ():
        schedule = config.read("/scheduler/type")
        name = config.optimizer
        default = {"adam": "0.001", "adamw": "0.001", "lion": "0.001", "lamb": "0.001", "adagrad": "0.01"}.get(
            name or ""
        )
        beside = config.has("/optimizer/lr")  # told by the rule of misplaced parameters
        sets = schedule in SETS_RATES or (schedule == "WarmupLR" and config.has("/scheduler/params/warmup_max_lr"))
        if default and not sets and not beside and not config.has(f"{PARAMS}/lr"):
            message = f"lr is not set: {shown(config.value('/optimizer/type'))} trains at its default, {default}"
            yield Violation(where=config.locate("/optimizer/type"), message=message, hint='"params": {"lr": ...}')


@building.rule("OPT025", ERROR, "init", derived("params reach Python constructors as they are in the JSON"))
def numbers_are_no_text(config: Config) -> Violations:
    """Numbers in params are numbers: nothing converts text.

    Prevents: `TypeError: '<=' not supported between instances of 'float' and 'str'`
    Fix: a number without quotes
    """
    for block in (PARAMS, "/scheduler/params"):
        for key, value in config.block(block).items():
            if isinstance(value, str) and _is_number(value):
                message = f'{key}: "{value}" is text, which the constructor compares with numbers: TypeError'
                where = config.locate(f"{block}/{escape(key)}")
                yield Violation(where=where, message=message, hint=f"{key}: {value} without quotes")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return len(text) < 32 and any(letter.isdigit() for letter in text)


@building.rule(
    "OPT026",
    ERROR,
    "init",
    derived(
        "Adam, LAMB and Lion unpack two betas; torch checks their range, DeepSpeed's kernels diverge outside of it"
    ),
)
def betas_are_two(config: Config) -> Violations:
    """betas are two numbers from 0 up to 1.

    Prevents: a ValueError, or moments that grow without end
    Fix: [0.9, 0.999]
    """
    betas = config.read(f"{PARAMS}/betas")
    if config.optimizer not in ("adam", "adamw", "lamb", "lion") or betas is None:
        return
    pair = isinstance(betas, list) and len(betas) == 2 and all(beta == "auto" or _is_beta(beta) for beta in betas)
    if not pair:
        message = f"betas: {shown(betas)} are not two numbers from 0 up to, but not, 1"
        yield Violation(where=config.locate(f"{PARAMS}/betas"), message=message, hint="betas: [0.9, 0.999]")


def _is_beta(value: object) -> bool:
    beta = number_of(value)
    return beta is not None and 0 <= beta < 1


@building.rule(
    "OPT040", WARNING, "silent", deepspeed_now("runtime/engine.py:2411; runtime/engine.py:2420"), since=(0, 19, 8)
)
def muon_reads_its_parameters(config: Config) -> Violations:
    """Muon's params are ones that it reads: others are silently left out.

    Prevents: a setting that looks effective and is not
    Fix: what Muon reads
    """
    for key in config.block(PARAMS) if config.optimizer == "muon" else ():
        if key in _MUON or key == "max_grad_norm":
            continue
        close = difflib.get_close_matches(key, sorted(_MUON), n=1)
        message = f"{key} has no effect: Muon doesn't read it"
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(sorted(_MUON - _SWITCHES))}"
        yield Violation(where=config.locate_key(f"{PARAMS}/{escape(key)}"), message=message, hint=hint)


_MUON: Final = _SWITCHES | frozenset(
    {"lr", "momentum", "weight_decay", "ns_method", "betas", "eps", "muon_lr", "adam_lr", "per_head_muon", "foreach"}
)


@submissions.rule(
    "OPT041", WARNING, "silent", megatron_deepspeed("megatron/training.py:627"), reads=("DeepSpeed config",)
)
def megatron_brings_its_optimizer(submission: Submission) -> Violations:
    """Megatron-DeepSpeed builds optimizer and schedule from its own arguments, so the config has neither.

    Prevents: training with Megatron's own learning rate, weight decay and schedule
    Fix: Megatron's arguments
    """
    for config in configs(submission) if submission.consumer == "megatron-deepspeed" else ():
        for block in ("optimizer", "scheduler"):
            if config.block(f"/{block}"):
                message = f"{block} has no effect: Megatron-DeepSpeed passes one that it built from its arguments"
                where, edits = config.locate_key(f"/{block}"), removed(config, f"/{block}")
                hint = "--lr, --lr-decay-style and so on; remove it here"
                yield Violation(where=where, message=message, hint=hint, edits=edits)
