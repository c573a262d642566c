"""The optimizer block: which one is built, and whether what is written reaches it."""

from __future__ import annotations

import difflib
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.hjson.edits import move_member, rename_key
from ....documents.submission import Submission
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from .subjects import building, configs
from .values import removed, shown, unused

OPTIMIZER: Final = "/optimizer"
PARAMS: Final = "/optimizer/params"

#: Classes of torch.optim in torch 2.13; DeepSpeed takes any of them, in this case.
TORCH_OPTIMIZERS: Final = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam"),
    *("RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam"),
)
#: Names that some release of DeepSpeed takes in any case.
DEEPSPEED_OPTIMIZERS: Final = frozenset(
    {"adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon"}
    | {"onebitadam", "zerooneadam", "onebitlamb"}
)
_HYPERPARAMETERS: Final = ("lr", "betas", "eps", "weight_decay", "momentum", "adam_w_mode", "torch_adam")

CLIPS_BY_DEFAULT: Final = (0, 19, 3)


@building.rule("OPT001", ERROR, "init", deepspeed_now("runtime/engine.py:2484"))
def norm_is_no_parameter(config: Config) -> Violations:
    """The norm to clip gradients at is the top-level gradient_clipping, not the optimizer's max_grad_norm.

    Prevents: `'max_grad_norm' is not supported as an optimizer parameter`
    Fix: gradient_clipping
    """
    pointer = f"{PARAMS}/max_grad_norm"
    if config.has(pointer) and config.optimizer:
        message = f"max_grad_norm: {shown(config.value(pointer))} in the optimizer's params is refused"
        edits = () if config.embedded else move_member(config.json, pointer, "", "gradient_clipping")
        if config.has("/gradient_clipping"):
            edits = removed(config, pointer)
        where, hint = config.locate_key(pointer), "the top-level gradient_clipping"
        yield Violation(where=where, message=message, hint=hint, edits=edits)


@configs.rule("OPT002", WARNING, "silent", deepspeed_now("runtime/config.py:264"))
def norm_is_called_clipping(config: Config) -> Violations:
    """The norm to clip gradients at is called gradient_clipping.

    Prevents: gradients are clipped at the default in place of the value written
    Fix: gradient_clipping
    """
    if config.has("/max_grad_norm"):
        message = f"max_grad_norm: {shown(config.value('/max_grad_norm'))} has no effect: DeepSpeed doesn't know it"
        edits = () if config.embedded else rename_key(config.json, "/max_grad_norm", "gradient_clipping")
        where, hint = config.locate_key("/max_grad_norm"), "gradient_clipping"
        yield Violation(where=where, message=message, hint=hint, edits=edits)


@submissions.rule("OPT003", WARNING, "silent", deepspeed_now("runtime/constants.py:203"), reads=("DeepSpeed config",))
def clipping_is_written(submission: Submission) -> Violations:
    """The config says at which norm gradients are clipped: the default changed from never to 1.

    Prevents: another training after an upgrade of DeepSpeed
    Fix: write gradient_clipping
    """
    if submission.deepspeed_version < CLIPS_BY_DEFAULT:
        default, other = "0 (never)", "1.0 since 0.19.3"
    else:
        default, other = "1.0", "0 (never) up to 0.19.2"
    for config in configs(submission):
        known = config.has("/gradient_clipping") or config.has("/max_grad_norm")
        in_params = config.has(f"{PARAMS}/max_grad_norm")
        if not known and not in_params and config.json.data:
            message = f"gradient_clipping is not set: this DeepSpeed's default is {default}, but it is {other}"
            yield Violation(where=config.locate(""), message=message, hint='"gradient_clipping": 1.0, or 0 for none')


@configs.rule("OPT017", ERROR, "silent", deepspeed_now("runtime/engine.py:3506"))
def clipping_is_a_norm(config: Config) -> Violations:
    """Gradients are clipped at a norm above zero, or at 0 for never.

    Prevents: gradients are silently not clipped
    Fix: a norm above zero
    """
    norm = config.number("/gradient_clipping")
    if norm is not None and norm < 0:
        message = f"gradient_clipping: {shown(norm)} is below 0, so gradients are silently not clipped"
        yield Violation(where=config.locate("/gradient_clipping"), message=message, hint="1.0, or 0 for none")


@building.rule("OPT018", ERROR, "silent", deepspeed_now("runtime/config.py:290"))
def optimizer_has_a_type(config: Config) -> Violations:
    """The optimizer block names its type: without one, DeepSpeed ignores the block.

    Prevents: no optimizer of DeepSpeed's: `zero stage N requires an optimizer`, or one of the script's
    Fix: name the type
    """
    block = config.block(OPTIMIZER)
    if block and block.get("type") is None:
        message = f"optimizer has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
        yield Violation(where=config.locate_key(OPTIMIZER), message=message, hint='"type": "AdamW"')


@building.rule("OPT004", ERROR, "init", deepspeed_now("runtime/engine.py:2018"))
def optimizer_is_known(config: Config) -> Violations:
    """The optimizer's type is one that DeepSpeed builds, or a class of torch.optim.

    Prevents: `... is not a supported DeepSpeed Optimizer`
    Fix: a known optimizer
    """
    name = config.read(f"{OPTIMIZER}/type")
    if not isinstance(name, str) or name.lower() in DEEPSPEED_OPTIMIZERS or name in TORCH_OPTIMIZERS:
        return
    same = [known for known in TORCH_OPTIMIZERS if known.lower() == name.lower()]
    close = same or difflib.get_close_matches(name, (*TORCH_OPTIMIZERS, "Lion", "Lamb"), n=1)
    message = f"type: {shown(name)} is neither an optimizer of DeepSpeed nor of torch.optim"
    hint = f'"{close[0]}"' if close else '"AdamW"'
    yield Violation(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint=hint)


@building.rule("OPT005", ERROR, "silent", deepspeed_now("runtime/config.py:297"))
def hyperparameters_are_params(config: Config) -> Violations:
    """The optimizer's hyperparameters are in its params: beside them they have no effect.

    Prevents: training with the default, such as lr 0.001, in place of what is written
    Fix: move them into params
    """
    for key in _HYPERPARAMETERS:
        pointer = f"{OPTIMIZER}/{key}"
        if config.has(pointer) and config.has(f"{PARAMS}/{key}"):
            counts, here = config.value(f"{PARAMS}/{key}"), config.value(pointer)
            message = f"{key}: {shown(here)} beside params has no effect: {shown(counts)} within them counts"
            where, edits = config.locate_key(pointer), removed(config, pointer)
            less = Severity.NOTE if here == counts else Severity.WARNING
            yield Violation(where=where, message=message, hint=f"remove {key}", edits=edits, severity=less)
        elif config.has(pointer):
            message = f"{key}: {shown(config.value(pointer))} beside params has no effect: the default is used"
            edits = () if config.embedded else move_member(config.json, pointer, PARAMS, key)
            where, hint = config.locate_key(pointer), f'"params": {{"{key}": ...}}'
            severity = Severity.NOTE if config.value(pointer) == _ADAMS_DEFAULTS.get(key, "") else None
            yield Violation(where=where, message=message, hint=hint, edits=edits, severity=severity)


#: Where these are written, nothing is lost by the default: FusedAdam's, ops/adam/fused_adam.py:76 of DeepSpeed 0.19.8.
_ADAMS_DEFAULTS: Final = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}


@building.rule("OPT006", WARNING, "silent", deepspeed_now("runtime/engine.py:2489"))
def adam_decays_as_named(config: Config) -> Violations:
    """Type Adam is AdamW unless adam_w_mode is false.

    Prevents: weight decay of another kind than the name says
    Fix: AdamW, or adam_w_mode: false
    """
    decay = config.number(f"{PARAMS}/weight_decay")
    if config.optimizer == "adam" and decay and not config.has(f"{PARAMS}/adam_w_mode"):
        name = shown(config.value(f"{OPTIMIZER}/type"))
        message = f"type: {name} decays weights as AdamW does, by {shown(decay)}: adam_w_mode is true by default"
        hint = '"AdamW" if that is meant, else "adam_w_mode": false'
        yield Violation(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint=hint)


@building.rule("OPT019", WARNING, "silent", deepspeed_now("runtime/engine.py:2492"))
def adamw_is_adamw(config: Config) -> Violations:
    """Type AdamW is AdamW whatever adam_w_mode says.

    Prevents: a setting that looks effective and is not
    Fix: type Adam
    """
    pointer = f"{PARAMS}/adam_w_mode"
    if config.optimizer == "adamw" and config.switch(pointer, True) is False:
        message = 'adam_w_mode: false has no effect: type "AdamW" decays weights apart from the gradient'
        yield Violation(where=config.locate(pointer), message=message, hint='type "Adam", or remove adam_w_mode')


@configs.rule("OPT007", ERROR, "init", deepspeed_now("runtime/engine.py:2021"))
def lamb_scales_dynamically(config: Config) -> Violations:
    """LAMB runs with dynamic loss scaling.

    Prevents: `DeepSpeed lamb optimizer requires dynamic loss scaling`
    Fix: loss_scale: 0
    """
    scale = config.number("/fp16/loss_scale")
    if config.optimizer == "lamb" and scale:
        message = f"loss_scale: {shown(config.value('/fp16/loss_scale'))} is static, which DeepSpeed refuses with LAMB"
        yield Violation(where=config.locate("/fp16/loss_scale"), message=message, hint="loss_scale: 0")


@building.rule("OPT020", NOTE, "silent", deepspeed_now("runtime/engine.py:2592"))
def legacy_fusion_is_for_stage_0(config: Config) -> Violations:
    """legacy_fusion is for the 16-bit optimizer of stage 0.

    Prevents: a setting that looks effective and is not
    Fix: remove it
    """
    if config.stage and config.switch(f"{OPTIMIZER}/legacy_fusion"):
        yield from unused(config, (f"{OPTIMIZER}/legacy_fusion",), f"at stage {config.stage}")
