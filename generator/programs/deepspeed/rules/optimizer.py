"""Rules on the optimizer: which is built, its parameters, and gradient clipping."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....numerals import is_whole
from ....rules.violations import (
    deepspeed,
    deepspeed_0_19_8,
    derived,
    megatron_deepspeed,
    suggest,
    violation,
)
from ....shape import Shape, Type
from ....submission.repository import reads_key
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.hjson.edits import move_member, remove_member, rename_key
from ....text.slips import is_slip
from ....text.wording import escape
from ...python_around import writes_rate
from ..config import OPTIMIZER, PARAMS, Config, number_of
from ..options import default_of_optimizer
from ..schema import load_schema, mismatch, versions
from ..submission import release_of_deepspeed
from .subjects import (
    configs,
    optimizer_from_config,
    setting,
    shown,
    steps_by_torch,
    to_remove,
    unused,
    while_on,
)

_ONE_BIT: Final = ("onebitadam", "zerooneadam", "onebitlamb")
_WITHOUT_ONE_BIT: Final = (0, 19, 7)  #: the first DeepSpeed without 1-bit optimizers
_WITHOUT_ELASTICITY: Final = (0, 19, 8)  #: the first DeepSpeed without elastic training
_OPTIMIZER: Final = "/optimizer"
_CLIPPING: Final = "/gradient_clipping"
_SCALE: Final = "/fp16/loss_scale"
#: Classes of torch.optim in torch 2.13; DeepSpeed accepts any of them, in this case.
_TORCH: Final = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
)
#: Parameters of optimizers that are looked for outside of `params`.
_HYPERPARAMETERS: Final = (
    "lr",
    "betas",
    "eps",
    "weight_decay",
    "momentum",
    "adam_w_mode",
    "torch_adam",
)
# Parameters of optimizers' constructors.
_ADAM: Final = frozenset({"lr", "betas", "eps", "weight_decay", "amsgrad"})
_SWITCHES: Final = frozenset({"torch_adam", "adam_w_mode", "fp32_optimizer_states"})
_TORCH_EXTRA: Final = frozenset({"foreach", "maximize", "capturable", "differentiable", "fused"})
_CPU_ADAM: Final = _ADAM | _SWITCHES | {"bias_correction"}
_FUSED_ADAM: Final = _CPU_ADAM | {"set_grad_none"}
_LION: Final = frozenset({"lr", "betas", "weight_decay"})
_ADAGRAD: Final = frozenset({"lr", "eps", "weight_decay"})
_LAMB: Final = _ADAM | {"bias_correction", "eps_inside_sqrt", "max_coeff", "min_coeff"}
_SGD: Final = (_TORCH_EXTRA - {"capturable"}) | {
    "lr",
    "momentum",
    "dampening",
    "weight_decay",
    "nesterov",
}
#: What constructors accept: of the optimizer that runs on the GPU, and of the offloaded one.
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
    {
        "lr",
        "momentum",
        "weight_decay",
        "ns_method",
        "betas",
        "eps",
        "muon_lr",
        "adam_lr",
        "per_head_muon",
        "foreach",
    }
)
_MOST_DIGITS: Final = 31  #: of a text that is looked at as a number; more only bound the time
#: Schedules that set every rate themselves, whatever the optimizer's is.
_SETS_RATES: Final = ("LRRangeTest", "OneCycle", "WarmupDecayLR")
_GONE: Final = "runtime/config.py:61 (runtime/fp16/onebit is gone since 0.19.7)"
_CONSTRUCTORS: Final = deepspeed_0_19_8(
    "runtime/engine.py:2495; ops/adam/fused_adam.py:76; ops/adam/cpu_adam.py:15"
)
_AMSGRAD: Final = deepspeed_0_19_8(
    "ops/adam/fused_adam.py:87; ops/adam/cpu_adam.py:108; ops/lamb/fused_lamb.py:55"
)
_WITH_LAUNCHES: Final = ("DeepSpeed config", "launch script", "AzureML job")
_RATES: Final = deepspeed_0_19_8(
    "ops/adam/fused_adam.py:78; ops/lion/fused_lion.py:36; ops/lamb/fused_lamb.py:43"
)


@submissions.rule(
    "VER003", ERROR, "init", deepspeed_0_19_8(_GONE), reads=_WITH_LAUNCHES, since=_WITHOUT_ONE_BIT
)
def what_was_removed_is_not_used(submission: Submission) -> Violations:
    """This version of DeepSpeed has neither 1-bit optimizers nor elastic training.
    Prevents: `... is not a supported DeepSpeed Optimizer`
    Fix: use AdamW"""
    for config in optimizer_from_config(submission):
        if (config.optimizer or "").lower() in _ONE_BIT:
            message = f"{setting(config, OPTIMIZER)} was removed in DeepSpeed 0.19.7"
            yield violation(config, OPTIMIZER, message, 'use "AdamW", or DeepSpeed 0.19.6')
    for launch in submission.launches:
        call = launch.call("deepspeed")
        option = call.options.get("--elastic_training") if call else None
        release = release_of_deepspeed(submission, launch.script.text.path)
        if option and release.version >= _WITHOUT_ELASTICITY:
            message = "--elastic_training was removed in DeepSpeed 0.19.8"
            where = launch.script.locate(option.written)
            yield Violation(where, message, "remove --elastic_training")


@optimizer_from_config.rule(
    "OPT008", ERROR, "init", deepspeed("runtime/engine.py:2235"), before=_WITHOUT_ONE_BIT
)
def one_bit_optimizers_run_without_zero(config: Config) -> Violations:
    """1-bit optimizers are used without ZeRO.
    Prevents: `1bit-Adam is not compatible with ZeRO`
    Fix: use stage 0, or AdamW"""
    if config.optimizer in _ONE_BIT and config.stage:
        message = f"{setting(config, OPTIMIZER)} is refused with ZeRO stage {config.stage}"
        yield violation(config, OPTIMIZER, message, 'use stage 0, or "AdamW"')


@optimizer_from_config.rule("OPT001", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2484"))
def norm_is_no_parameter(config: Config) -> Violations:
    """The norm to clip gradients at is the top-level gradient_clipping, not the optimizer's
    max_grad_norm.
    Prevents: `'max_grad_norm' is not supported as an optimizer parameter`
    Fix: use gradient_clipping
    """
    pointer = f"{PARAMS}/max_grad_norm"
    if config.has(pointer) and config.optimizer:
        if config.has(_CLIPPING):
            edits = remove_member(config.json, pointer)
        else:
            edits = move_member(config.json, pointer, "", _CLIPPING[1:])
        yield Violation(
            config.locate_key(pointer),
            f"{setting(config, pointer)} in the optimizer's params is refused",
            "use the top-level gradient_clipping",
            edits=() if config.embedded else edits,
        )


@configs.rule("OPT002", ERROR, "silent", deepspeed_0_19_8("runtime/config.py:264"))
def norm_is_called_clipping(config: Config) -> Violations:
    """The norm to clip gradients at is called gradient_clipping.
    Prevents: Gradients are clipped at the default in place of the value written.
    Fix: use gradient_clipping"""
    pointer = "/max_grad_norm"
    if config.has(pointer):
        message = f"unknown key {setting(config, pointer)} has no effect"
        edits = () if config.embedded else rename_key(config.json, pointer, "gradient_clipping")
        is_spare = config.has(_CLIPPING) or reads_key("max_grad_norm", config.path)
        yield Violation(
            config.locate_key(pointer),
            message,
            "rename it gradient_clipping",
            edits=edits,
            severity=WARNING if is_spare else None,
        )


@configs.rule("OPT003", NOTE, "silent", deepspeed_0_19_8("runtime/constants.py:203"))
def clipping_is_written(config: Config) -> Violations:
    """The config sets gradient_clipping: its default changed from 0 (no clipping) to 1.0 in
    DeepSpeed 0.19.3.
    Prevents: Gradients are clipped differently after an upgrade of DeepSpeed.
    Fix: set gradient_clipping
    """
    default, other = "1.0", "0 (no clipping) up to 0.19.2"
    if config.version < (0, 19, 3):
        default, other = "0 (no clipping)", "1.0 since 0.19.3"
    if not config.json.data or config.completed:
        return
    # other rules report the norm under another name
    pointers = (_CLIPPING, "/max_grad_norm", f"{PARAMS}/max_grad_norm")
    is_written = any(config.has(pointer) for pointer in pointers)
    if not is_written and not any(is_slip(key, _CLIPPING[1:]) for key in config.block("")):
        message = (
            f"gradient_clipping is not set: the default is {default} in "
            f"{config.release}, and {other}"
        )
        yield violation(config, "", message, 'add "gradient_clipping": 1.0, or 0 for no clipping')


@configs.rule("OPT017", ERROR, "silent", deepspeed_0_19_8("runtime/engine.py:3506"))
def clipping_is_a_norm(config: Config) -> Violations:
    """gradient_clipping is 0, for never, or more.
    Prevents: Gradients are silently not clipped.
    Fix: use a norm greater than 0"""
    norm = config.number(_CLIPPING)
    if norm is not None and norm < 0:
        message = (
            f"gradient_clipping: {shown(norm)} is below 0, so gradients are silently not clipped"
        )
        yield violation(config, _CLIPPING, message, "use 1.0, or 0 for never")


@optimizer_from_config.rule("OPT018", ERROR, "silent", deepspeed_0_19_8("runtime/config.py:290"))
def optimizer_has_a_type(config: Config) -> Violations:
    """The optimizer block names its type: without one, DeepSpeed ignores the block.
    Prevents: DeepSpeed builds no optimizer: `zero stage N requires an optimizer`, or the script's
    is used
    Fix: add "type"
    """
    block = config.block(_OPTIMIZER)
    if block and block.get("type") is None:
        message = (
            f"optimizer has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
        )
        yield Violation(config.locate_key(_OPTIMIZER), message, 'add "type": "AdamW"')


@optimizer_from_config.rule("OPT004", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2018"))
def optimizer_is_known(config: Config) -> Violations:
    """The optimizer's type is one that DeepSpeed builds, or a class of torch.optim.
    Prevents: `... is not a supported DeepSpeed Optimizer`
    Fix: use a known optimizer"""
    name = config.text(OPTIMIZER)
    if name is None or name in _TORCH:
        return
    if any(name.lower() in load_schema(version).optimizers for version in versions()):
        return
    message = f"unknown optimizer {shown(name)}: neither DeepSpeed nor torch.optim has it"
    hint = suggest(name, (*_TORCH, "Lion", "Lamb"), 'use "AdamW"')
    for optimizer in _TORCH:
        if optimizer.lower() == name.lower():
            hint = f"did you mean {optimizer}?"
    yield violation(config, OPTIMIZER, message, hint)


@optimizer_from_config.rule("OPT005", ERROR, "silent", deepspeed_0_19_8("runtime/config.py:297"))
def hyperparameters_are_params(config: Config) -> Violations:
    """The optimizer's hyperparameters are in its params: outside of them they have no effect.
    Prevents: Training with the default, such as lr 0.001, in place of the written value.
    Fix: move them into params"""
    for key in _HYPERPARAMETERS:
        pointer, inner = f"{_OPTIMIZER}/{key}", f"{PARAMS}/{key}"
        if not config.has(pointer):
            continue
        written, used = config.value(pointer), config.value(inner)
        message = f"{key}: {shown(written)} outside of params has no effect:"
        if config.has(inner):
            message = f"{message} {shown(used)} within them is used"
            severity = NOTE if written == used else WARNING
            yield to_remove(config, pointer, message, at_key=True, severity=severity)
        else:
            yield Violation(
                config.locate_key(pointer),
                f"{message} the default is used",
                "move it into params",
                edits=() if config.embedded else move_member(config.json, pointer, PARAMS, key),
                severity=NOTE if written == _default_of_adam(config, key) else None,
            )


def _default_of_adam(config: Config, key: str) -> object:
    """The default of a parameter of DeepSpeed's Adam."""
    parameters = config.schema.optimizers["adam"] or {}
    if key in parameters:
        return parameters[key].default
    return key == "adam_w_mode"  # the switches aren't in the schema; this one is on by default


@optimizer_from_config.rule("OPT006", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2489"))
def adam_decays_as_named(config: Config) -> Violations:
    """Type Adam with weight decay sets adam_w_mode, which makes it AdamW by default.
    Prevents: Weight decay of another kind than the one named.
    Fix: use AdamW, or set adam_w_mode to false"""
    decay = config.number(f"{PARAMS}/weight_decay")
    if config.optimizer == "adam" and decay and not config.has(f"{PARAMS}/adam_w_mode"):
        message = f"{setting(config, OPTIMIZER)} decays weights as AdamW does, by {shown(decay)}:"
        hint = 'use "AdamW", or set "adam_w_mode" to false'
        yield violation(config, OPTIMIZER, f"{message} adam_w_mode is true by default", hint)


@optimizer_from_config.rule("OPT019", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2492"))
def adamw_is_adamw(config: Config) -> Violations:
    """Type AdamW is used without adam_w_mode: false.
    Prevents: The setting silently has no effect.
    Fix: use type Adam"""
    pointer = f"{PARAMS}/adam_w_mode"
    if config.optimizer == "adamw" and config.switch(pointer, True) is False:
        message = (
            'adam_w_mode: false has no effect: type "AdamW" decays weights apart from the gradient'
        )
        yield violation(config, pointer, message, 'use type "Adam", or remove adam_w_mode')


@configs.rule("OPT007", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2021"))
def lamb_scales_dynamically(config: Config) -> Violations:
    """LAMB is used with dynamic loss scaling.
    Prevents: `DeepSpeed lamb optimizer requires dynamic loss scaling`
    Fix: set loss_scale to 0"""
    if config.optimizer == "lamb" and config.number(_SCALE):
        message = f"{setting(config, _SCALE)} is static, which DeepSpeed refuses with LAMB"
        yield violation(config, _SCALE, message, "set loss_scale to 0")


@optimizer_from_config.rule("OPT020", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2592"))
def legacy_fusion_is_for_stage_0(config: Config) -> Violations:
    """legacy_fusion is used at stage 0, with its 16-bit optimizer.
    Prevents: The setting silently has no effect.
    Fix: remove it"""
    if config.stage and config.switch(f"{_OPTIMIZER}/legacy_fusion"):
        yield from unused(config, (f"{_OPTIMIZER}/legacy_fusion",), f"at stage {config.stage}")


def _unknown(config: Config, accepted: frozenset[str], message: str) -> Violations:
    """A violation for each parameter that is not accepted; `message` has a place for its name."""
    for key in config.block(PARAMS):
        if key not in accepted and key != "max_grad_norm":  # OPT001 reports that
            where = config.locate_key(f"{PARAMS}/{escape(key)}")
            hint = suggest(key, sorted(accepted), present=config.block(PARAMS))
            yield Violation(where, message.format(key), hint)


@optimizer_from_config.rule("OPT021", ERROR, "init", _CONSTRUCTORS)
def parameters_are_the_optimizers(config: Config) -> Violations:
    """The optimizer's params are ones that its constructor accepts.
    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: use parameters that the constructor accepts"""
    if steps_by_torch(config):
        accepted = _ADAM | _SWITCHES | _TORCH_EXTRA
    elif config.optimizer in _ACCEPTED:
        on_gpu, offloaded = _ACCEPTED[config.optimizer]
        accepted = offloaded if config.stage and config.offloads("optimizer") else on_gpu
    else:
        return  # what it accepts isn't known
    optimizer = shown(config.value(OPTIMIZER))
    message = f"unknown parameter {{}} of {optimizer}: its constructor raises"
    yield from _unknown(config, accepted, message)


@optimizer_from_config.rule("OPT022", ERROR, "init", _AMSGRAD)
def deepspeeds_adam_has_no_amsgrad(config: Config) -> Violations:
    """DeepSpeed's own Adam and LAMB are used without amsgrad, which they don't implement.
    Prevents: `FusedAdam does not support the AMSGrad variant.`
    Fix: remove amsgrad"""
    is_adam = config.optimizer in ("adam", "adamw")
    is_deepspeeds_adam = is_adam and config.switch(f"{PARAMS}/torch_adam") is False
    if is_deepspeeds_adam or config.optimizer == "lamb":
        effect = f"is refused by DeepSpeed's {shown(config.value(OPTIMIZER))}"
        hint = "remove it, or set torch_adam to true"
        yield from while_on(config, f"{PARAMS}/amsgrad", effect, hint)


@optimizer_from_config.rule(
    "OPT023", ERROR, "silent", derived("a step is the rate times a direction")
)
def rates_are_above_zero(config: Config) -> Violations:
    """The learning rate is greater than 0.
    Prevents: A job that trains nothing.
    Fix: use a rate greater than 0"""
    rate = config.number(f"{PARAMS}/lr")
    if rate is None or rate > 0 or config.optimizer is None:
        return
    # These schedules replace the rate, WarmupLR by its warmup_max_lr.
    is_replaced = config.read("/scheduler/type") in (*_SETS_RATES, "WarmupLR")
    if rate < 0 or not is_replaced:
        effect = "trains nothing" if rate == 0 else "raises the loss, or is refused"
        message = f"lr: {shown(rate)} {effect}"
        yield violation(config, f"{PARAMS}/lr", message, "use a rate greater than 0")


@configs.rule("OPT024", WARNING, "silent", _RATES)
def rates_are_written(config: Config) -> Violations:
    """The optimizer's params set the learning rate; else its constructor's default is used.
    Prevents: Training at a rate that nobody chose. A note where a program beside the config writes
    the same rate.
    Fix: set lr"""
    default = default_of_optimizer(config, "lr")
    if config.consumer != "deepspeed" or not default:
        return
    schedule = config.read("/scheduler/type")
    warms_up_to_rate = schedule == "WarmupLR" and config.has("/scheduler/params/warmup_max_lr")
    is_scheduled = schedule in _SETS_RATES or warms_up_to_rate
    is_written = config.has(f"{PARAMS}/lr") or config.has("/optimizer/lr")  # OPT005: misplaced
    if not is_scheduled and not is_written:
        message = (
            f"lr is not set: {shown(config.value(OPTIMIZER))} trains at its default, {default}"
        )
        severity = NOTE if writes_rate(config.path, default) else None
        yield violation(config, OPTIMIZER, message, 'add "lr" to params', severity=severity)


@optimizer_from_config.rule(
    "OPT025", ERROR, "init", derived("params reach Python constructors as they are in the JSON")
)
def numbers_are_no_text(config: Config) -> Violations:
    """Numbers in params are numbers: nothing converts text.
    Prevents: `TypeError: '<=' not supported between instances of 'float' and 'str'`
    Fix: write a number without quotes"""
    for block in (PARAMS, "/scheduler/params"):
        for key, value in config.block(block).items():
            if not isinstance(value, str) or len(value) > _MOST_DIGITS:
                continue
            has_digit = any(map(is_whole, value))  # `nan` and `inf` are floats without one
            if has_digit and mismatch(value, Shape(type=Type(name="float"))) is None:
                message = (
                    f'{key}: "{value}" is text, which the constructor compares '
                    "with numbers: TypeError"
                )
                hint = f"write {value} without quotes"
                yield violation(config, f"{block}/{escape(key)}", message, hint)


@optimizer_from_config.rule(
    "OPT026",
    ERROR,
    "init",
    derived("Adam, LAMB and Lion unpack two betas; torch checks their range"),
)
def betas_are_two(config: Config) -> Violations:
    """betas are two numbers from 0 up to, but not including, 1.
    Prevents: a ValueError, or moments that grow without end
    Fix: write [0.9, 0.999]"""
    betas = config.read(f"{PARAMS}/betas")
    if config.optimizer not in ("adam", "adamw", "lamb", "lion") or betas is None:
        return
    if not isinstance(betas, list) or len(betas) != 2 or not all(map(_is_beta, betas)):
        message = f"betas: {shown(betas)} are not two numbers from 0 up to, but not including, 1"
        yield violation(config, f"{PARAMS}/betas", message, "set betas to [0.9, 0.999]")


def _is_beta(value: object) -> bool:
    """Whether a value is in a beta's range, or is "auto", which PARSE020 judges."""
    number = number_of(value)
    return value == "auto" or (number is not None and 0 <= number < 1)


@optimizer_from_config.rule(
    "OPT040", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2411, :2420"), since=(0, 19, 8)
)
def muon_reads_its_parameters(config: Config) -> Violations:
    """Muon's params are ones that it reads: others are silently ignored.
    Prevents: The settings silently have no effect.
    Fix: use parameters that Muon reads"""
    if config.optimizer == "muon":
        yield from _unknown(config, _MUON, "{} has no effect: Muon doesn't read it")


@optimizer_from_config.rule(
    "OPT049",
    ERROR,
    "silent",
    "deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py, stage3.py (muon_update)",
    before=(0, 19, 7),
)
def muon_has_zero(config: Config) -> Violations:
    """Muon is used with ZeRO's own optimizers, which alone make its update before 0.19.7.
    Prevents: No error: the parameters are trained by SGD with momentum.
        So it is at stage 0, and with bf16 and sums in fp32 at stage 1.
    Fix: use stage 1 or more, or a newer DeepSpeed
    """
    if config.optimizer != "muon":
        return
    if config.stage == 0:
        message = "Muon at ZeRO stage 0 trains by SGD in DeepSpeed before 0.19.7"
        yield violation(config, OPTIMIZER, message, "use ZeRO stage 1 or more")
    elif config.stage == 1 and config.switch("/bf16/enabled") and config.accumulates_in == "fp32":
        message = "Muon with bf16 and sums in fp32 at ZeRO stage 1 trains by SGD in DeepSpeed "
        message += "before 0.19.7: the BF16 optimizer makes no update of Muon's"
        hint = 'remove "grad_accum_dtype", or use stage 2'
        yield violation(config, OPTIMIZER, message, hint)


@configs.rule("OPT041", WARNING, "silent", megatron_deepspeed("megatron/training.py:627"))
def megatron_brings_its_optimizer(config: Config) -> Violations:
    """A config for Megatron-DeepSpeed has no optimizer and scheduler: Megatron's arguments decide
    both.
    Prevents: training with Megatron's own learning rate, weight decay and schedule
    Fix: use Megatron's arguments
    """
    if config.consumer != "megatron-deepspeed":
        return
    for block in ("optimizer", "scheduler"):
        if config.block(f"/{block}"):
            message = (
                f"{block} has no effect: Megatron-DeepSpeed passes one that it "
                "builds from its arguments"
            )
            hint = "remove it, and use --lr, --lr-decay-style and so on"
            yield to_remove(config, f"/{block}", message, hint, at_key=True)
