"""The parameters that are passed to the optimizer's constructor."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import escape
from ....rules.sources import deepspeed_now, derived, megatron_deepspeed
from ....rules.violations import suggest, violation
from ..config import Config, number_of
from .subjects import building, configs, shown, to_remove

_PARAMS: Final = "/optimizer/params"
_TYPE: Final = "/optimizer/type"

_ADAM: Final = frozenset({"lr", "betas", "eps", "weight_decay", "amsgrad"})
_SWITCHES: Final = frozenset({"torch_adam", "adam_w_mode", "fp32_optimizer_states"})
_TORCH_EXTRA: Final = frozenset({"foreach", "maximize", "capturable", "differentiable", "fused"})
_CPU_ADAM: Final = _ADAM | _SWITCHES | {"bias_correction"}
_FUSED_ADAM: Final = _CPU_ADAM | {"set_grad_none"}
_LION: Final = frozenset({"lr", "betas", "weight_decay"})
_ADAGRAD: Final = frozenset({"lr", "eps", "weight_decay"})
_LAMB: Final = _ADAM | {"bias_correction", "eps_inside_sqrt", "max_coeff", "min_coeff"}
_SGD: Final = (_TORCH_EXTRA - {"capturable"}) | {"lr", "momentum", "dampening", "weight_decay", "nesterov"}
#: What is accepted when the optimizer runs on the GPU, and when it is offloaded.
_ACCEPTED: Final = {
    "adam": (_FUSED_ADAM, _CPU_ADAM),
    "adamw": (_FUSED_ADAM, _CPU_ADAM),
    "lion": (_LION | {"set_grad_none"}, _LION | {"fp32_optimizer_states"}),
    "adagrad": (
        _ADAGRAD | {"lr_decay", "initial_accumulator_value"} | (_TORCH_EXTRA - {"capturable"}),
        _ADAGRAD | {"amsgrad", "fp32_optimizer_states"},
    ),
    "lamb": (_LAMB, _LAMB),
    "SGD": (_SGD, _SGD),
}
_MUON: Final = _SWITCHES | frozenset(
    {"lr", "momentum", "weight_decay", "ns_method", "betas", "eps", "muon_lr", "adam_lr", "per_head_muon", "foreach"}
)
_DEFAULT_RATES: Final = {"adam": "0.001", "adamw": "0.001", "lion": "0.001", "lamb": "0.001", "adagrad": "0.01"}

#: Schedules that set every rate themselves, whatever the optimizer's is.
_SETS_RATES: Final = ("LRRangeTest", "OneCycle", "WarmupDecayLR")

_CONSTRUCTORS: Final = deepspeed_now("runtime/engine.py:2495; ops/adam/fused_adam.py:76; ops/adam/cpu_adam.py:15")
_AMSGRAD: Final = deepspeed_now("ops/adam/fused_adam.py:87; ops/adam/cpu_adam.py:108; ops/lamb/fused_lamb.py:55")
_RATES: Final = deepspeed_now("ops/adam/fused_adam.py:78; ops/lion/fused_lion.py:36; ops/lamb/fused_lamb.py:43")


def _accepted(config: Config) -> frozenset[str] | None:
    """The parameters that the optimizer's constructor accepts; None where that isn't known."""
    name = config.optimizer or ""
    if name in ("adam", "adamw") and config.switch(f"{_PARAMS}/torch_adam"):
        return _ADAM | _SWITCHES | _TORCH_EXTRA
    offloaded = config.offloads("optimizer") and bool(config.stage)
    return _ACCEPTED[name][offloaded] if name in _ACCEPTED else None


def _unknown(config: Config, accepted: frozenset[str], message: str) -> Violations:
    """A violation for each parameter that is not accepted; `message` has a place for its name."""
    for key in config.block(_PARAMS):
        if key not in accepted and key != "max_grad_norm":  # for which there is a rule of its own
            where, hint = config.locate_key(f"{_PARAMS}/{escape(key)}"), suggest(key, sorted(accepted))
            yield Violation(where, message.format(key), hint)


@building.rule("OPT021", ERROR, "init", _CONSTRUCTORS)
def parameters_are_the_optimizers(config: Config) -> Violations:
    """The optimizer's params are ones that its constructor accepts.

    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: use parameters that the constructor accepts"""
    accepted = _accepted(config)
    if accepted is not None:
        message = f"unknown parameter {{}} of {shown(config.value(_TYPE))}: its constructor raises"
        yield from _unknown(config, accepted, message)


@building.rule("OPT022", ERROR, "init", _AMSGRAD)
def deepspeeds_adam_has_no_amsgrad(config: Config) -> Violations:
    """DeepSpeed's own Adam and LAMB are used without amsgrad, which they don't implement.

    Prevents: `FusedAdam does not support the AMSGrad variant.`
    Fix: remove amsgrad"""
    pointer, name = f"{_PARAMS}/amsgrad", config.optimizer
    own = name == "lamb" or (name in ("adam", "adamw") and config.switch(f"{_PARAMS}/torch_adam") is False)
    if config.switch(pointer) and own:
        message = f"amsgrad: true is refused by DeepSpeed's {shown(config.value(_TYPE))}"
        yield violation(config, pointer, message, "remove it, or set torch_adam to true")


@building.rule("OPT023", ERROR, "silent", derived("a step is the rate times a direction"))
def rates_are_above_zero(config: Config) -> Violations:
    """The learning rate is greater than 0.

    Prevents: A job that trains nothing.
    Fix: use a rate greater than 0"""
    rate = config.number(f"{_PARAMS}/lr")
    if rate is None or rate > 0 or config.optimizer is None:
        return
    if rate < 0 or config.read("/scheduler/type") not in (*_SETS_RATES, "WarmupLR"):
        effect = "trains nothing" if rate == 0 else "raises the loss, or is refused"
        yield violation(config, f"{_PARAMS}/lr", f"lr: {shown(rate)} {effect}", "use a rate greater than 0")


@configs.rule("OPT024", WARNING, "silent", _RATES)
def rates_are_written(config: Config) -> Violations:
    """The optimizer's params set the learning rate; else its constructor's default is used.

    Prevents: Training at a rate that nobody chose.
    Fix: set lr"""
    default, schedule = _DEFAULT_RATES.get(config.optimizer or ""), config.read("/scheduler/type")
    sets = schedule in _SETS_RATES or (schedule == "WarmupLR" and config.has("/scheduler/params/warmup_max_lr"))
    misplaced = config.has("/optimizer/lr")  # which another rule reports
    if config.consumer == "deepspeed" and default and not (sets or misplaced or config.has(f"{_PARAMS}/lr")):
        message = f"lr is not set: {shown(config.value(_TYPE))} trains at its default, {default}"
        yield violation(config, _TYPE, message, 'add "lr" to params')


@building.rule("OPT025", ERROR, "init", derived("params reach Python constructors as they are in the JSON"))
def numbers_are_no_text(config: Config) -> Violations:
    """Numbers in params are numbers: nothing converts text.

    Prevents: `TypeError: '<=' not supported between instances of 'float' and 'str'`
    Fix: write a number without quotes"""
    for block in (_PARAMS, "/scheduler/params"):
        for key, value in config.block(block).items():
            if isinstance(value, str) and _is_number(value):
                message = f'{key}: "{value}" is text, which the constructor compares with numbers: TypeError'
                yield violation(config, f"{block}/{escape(key)}", message, f"write {value} without quotes")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return len(text) < 32 and any(letter.isdigit() for letter in text)


@building.rule("OPT026", ERROR, "init", derived("Adam, LAMB and Lion unpack two betas; torch checks their range"))
def betas_are_two(config: Config) -> Violations:
    """betas are two numbers from 0 up to, but not including, 1.

    Prevents: a ValueError, or moments that grow without end
    Fix: write [0.9, 0.999]"""
    betas = config.read(f"{_PARAMS}/betas")
    if config.optimizer not in ("adam", "adamw", "lamb", "lion") or betas is None:
        return
    if not isinstance(betas, list) or len(betas) != 2 or not all(beta == "auto" or _is_beta(beta) for beta in betas):
        message = f"betas: {shown(betas)} are not two numbers from 0 up to, but not including, 1"
        yield violation(config, f"{_PARAMS}/betas", message, "set betas to [0.9, 0.999]")


def _is_beta(value: object) -> bool:
    beta = number_of(value)
    return beta is not None and 0 <= beta < 1


@building.rule("OPT040", WARNING, "silent", deepspeed_now("runtime/engine.py:2411, :2420"), since=(0, 19, 8))
def muon_reads_its_parameters(config: Config) -> Violations:
    """Muon's params are ones that it reads: others are silently ignored.

    Prevents: The settings silently have no effect.
    Fix: use parameters that Muon reads"""
    if config.optimizer == "muon":
        yield from _unknown(config, _MUON, "{} has no effect: Muon doesn't read it")


@configs.rule("OPT041", WARNING, "silent", megatron_deepspeed("megatron/training.py:627"))
def megatron_brings_its_optimizer(config: Config) -> Violations:
    """A config for Megatron-DeepSpeed has no optimizer and scheduler: Megatron's arguments decide both.

    Prevents: training with Megatron's own learning rate, weight decay and schedule
    Fix: use Megatron's arguments"""
    for block in ("optimizer", "scheduler") if config.consumer == "megatron-deepspeed" else ():
        if config.block(f"/{block}"):
            message = f"{block} has no effect: Megatron-DeepSpeed passes one that it builds from its arguments"
            yield to_remove(
                config, f"/{block}", message, "remove it, and use --lr, --lr-decay-style and so on", at_key=True
            )
