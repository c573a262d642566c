"""The optimizer block: which one is built, and whether what is written reaches it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from ....documents.hjson.edits import move_member, rename_key
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import (
    DEEPSPEED_OPTIMIZERS,
    building,
    configs,
    ds_rule,
    given,
    idle,
    number,
    optimizer_type,
    removed,
    shown,
    stage_of,
    switch,
)

OPTIMIZER: Final = "/optimizer"
PARAMS: Final = "/optimizer/params"

#: Classes of torch.optim in torch 2.13; DeepSpeed takes any of them, in this case.
TORCH_OPTIMIZERS: Final = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam"),
    *("RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam"),
)
_HYPERPARAMETERS: Final = ("lr", "betas", "eps", "weight_decay", "momentum", "adam_w_mode", "torch_adam")

CLIPS_BY_DEFAULT: Final = (0, 19, 3)


def norm_is_no_parameter(submission: Submission) -> Iterator[Breach]:
    """The norm to clip gradients at is the top-level gradient_clipping, not the optimizer's max_grad_norm."""
    for config in building(submission):
        pointer = f"{PARAMS}/max_grad_norm"
        if config.has(pointer) and optimizer_type(config):
            message = f"max_grad_norm: {shown(config.value(pointer))} in the optimizer's params is refused"
            edits = () if config.embedded else move_member(config.json, pointer, "", "gradient_clipping")
            if config.has("/gradient_clipping"):
                edits = removed(config, pointer)
            where, hint = config.locate_key(pointer), "the top-level gradient_clipping"
            yield Breach(where=where, message=message, hint=hint, edits=edits)


def norm_is_called_clipping(submission: Submission) -> Iterator[Breach]:
    """The norm to clip gradients at is called gradient_clipping."""
    for config in configs(submission):
        if config.has("/max_grad_norm"):
            message = f"max_grad_norm: {shown(config.value('/max_grad_norm'))} has no effect: DeepSpeed doesn't know it"
            edits = () if config.embedded else rename_key(config.json, "/max_grad_norm", "gradient_clipping")
            where, hint = config.locate_key("/max_grad_norm"), "gradient_clipping"
            yield Breach(where=where, message=message, hint=hint, edits=edits)


def clipping_is_written(submission: Submission) -> Iterator[Breach]:
    """The config says at which norm gradients are clipped: the default changed from never to 1."""
    if submission.deepspeed_version < CLIPS_BY_DEFAULT:
        default, other = "0 (never)", "1.0 since 0.19.3"
    else:
        default, other = "1.0", "0 (never) up to 0.19.2"
    for config in configs(submission):
        known = config.has("/gradient_clipping") or config.has("/max_grad_norm")
        in_params = config.has(f"{PARAMS}/max_grad_norm")
        if not known and not in_params and config.json.data:
            message = f"gradient_clipping is not set: this DeepSpeed's default is {default}, but it is {other}"
            yield Breach(where=config.locate(""), message=message, hint='"gradient_clipping": 1.0, or 0 for none')


def clipping_is_a_norm(submission: Submission) -> Iterator[Breach]:
    """Gradients are clipped at a norm above zero, or at 0 for never."""
    for config in configs(submission):
        norm = number(given(config, "/gradient_clipping"))
        if norm is not None and norm < 0:
            message = f"gradient_clipping: {shown(norm)} is below 0, so gradients are silently not clipped"
            yield Breach(where=config.locate("/gradient_clipping"), message=message, hint="1.0, or 0 for none")


def optimizer_has_a_type(submission: Submission) -> Iterator[Breach]:
    """The optimizer block names its type: without one, DeepSpeed ignores the block."""
    for config in building(submission):
        block = config.block(OPTIMIZER)
        if block and block.get("type") is None:
            message = f"optimizer has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
            yield Breach(where=config.locate_key(OPTIMIZER), message=message, hint='"type": "AdamW"')


def optimizer_is_known(submission: Submission) -> Iterator[Breach]:
    """The optimizer's type is one that DeepSpeed builds, or a class of torch.optim."""
    for config in building(submission):
        name = given(config, f"{OPTIMIZER}/type")
        if not isinstance(name, str) or name.lower() in DEEPSPEED_OPTIMIZERS or name in TORCH_OPTIMIZERS:
            continue
        same = [known for known in TORCH_OPTIMIZERS if known.lower() == name.lower()]
        close = same or difflib.get_close_matches(name, (*TORCH_OPTIMIZERS, "Lion", "Lamb"), n=1)
        message = f"type: {shown(name)} is neither an optimizer of DeepSpeed nor of torch.optim"
        hint = f'"{close[0]}"' if close else '"AdamW"'
        yield Breach(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint=hint)


def hyperparameters_are_params(submission: Submission) -> Iterator[Breach]:
    """The optimizer's hyperparameters are in its params: beside them they have no effect."""
    for config in building(submission):
        for key in _HYPERPARAMETERS:
            pointer = f"{OPTIMIZER}/{key}"
            if config.has(pointer) and config.has(f"{PARAMS}/{key}"):
                counts, here = config.value(f"{PARAMS}/{key}"), config.value(pointer)
                message = f"{key}: {shown(here)} beside params has no effect: {shown(counts)} within them counts"
                where, edits = config.locate_key(pointer), removed(config, pointer)
                less = Severity.NOTE if here == counts else Severity.WARNING
                yield Breach(where=where, message=message, hint=f"remove {key}", edits=edits, severity=less)
            elif config.has(pointer):
                message = f"{key}: {shown(config.value(pointer))} beside params has no effect: the default is used"
                edits = () if config.embedded else move_member(config.json, pointer, PARAMS, key)
                where, hint = config.locate_key(pointer), f'"params": {{"{key}": ...}}'
                severity = Severity.NOTE if config.value(pointer) == _ADAMS_DEFAULTS.get(key, "") else None
                yield Breach(where=where, message=message, hint=hint, edits=edits, severity=severity)


#: Where these are written, nothing is lost by the default: FusedAdam's, ops/adam/fused_adam.py:76 of DeepSpeed 0.19.8.
_ADAMS_DEFAULTS: Final = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}


def adam_decays_as_named(submission: Submission) -> Iterator[Breach]:
    """Type Adam is AdamW unless adam_w_mode is false."""
    for config in building(submission):
        decay = number(given(config, f"{PARAMS}/weight_decay"))
        if optimizer_type(config) == "adam" and decay and not config.has(f"{PARAMS}/adam_w_mode"):
            name = shown(config.value(f"{OPTIMIZER}/type"))
            message = f"type: {name} decays weights as AdamW does, by {shown(decay)}: adam_w_mode is true by default"
            hint = '"AdamW" if that is meant, else "adam_w_mode": false'
            yield Breach(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint=hint)


def adamw_is_adamw(submission: Submission) -> Iterator[Breach]:
    """Type AdamW is AdamW whatever adam_w_mode says."""
    for config in building(submission):
        pointer = f"{PARAMS}/adam_w_mode"
        if optimizer_type(config) == "adamw" and switch(config, pointer, True) is False:
            message = 'adam_w_mode: false has no effect: type "AdamW" decays weights apart from the gradient'
            yield Breach(where=config.locate(pointer), message=message, hint='type "Adam", or remove adam_w_mode')


def lamb_scales_dynamically(submission: Submission) -> Iterator[Breach]:
    """LAMB runs with dynamic loss scaling."""
    for config in configs(submission):
        scale = number(given(config, "/fp16/loss_scale"))
        if optimizer_type(config) == "lamb" and scale:
            message = f"loss_scale: {shown(scale)} is static, which DeepSpeed refuses with LAMB"
            yield Breach(where=config.locate("/fp16/loss_scale"), message=message, hint="loss_scale: 0")


def legacy_fusion_is_for_stage_0(submission: Submission) -> Iterator[Breach]:
    """legacy_fusion is for the 16-bit optimizer of stage 0."""
    for config in building(submission):
        if stage_of(config) and switch(config, f"{OPTIMIZER}/legacy_fusion"):
            yield from idle(config, (f"{OPTIMIZER}/legacy_fusion",), f"at stage {stage_of(config)}")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "OPT001",
        Severity.ERROR,
        "init",
        norm_is_no_parameter,
        source=deepspeed_now("runtime/engine.py:2484"),
        prevents="`'max_grad_norm' is not supported as an optimizer parameter`",
        fix="gradient_clipping",
    ),
    ds_rule(
        "OPT002",
        Severity.WARNING,
        "silent",
        norm_is_called_clipping,
        source=deepspeed_now("runtime/config.py:264"),
        prevents="gradients are clipped at the default in place of the value written",
        fix="gradient_clipping",
    ),
    ds_rule(
        "OPT003",
        Severity.WARNING,
        "silent",
        clipping_is_written,
        source=deepspeed_now("runtime/constants.py:203"),
        prevents="another training after an upgrade of DeepSpeed",
        fix="write gradient_clipping",
    ),
    ds_rule(
        "OPT017",
        Severity.ERROR,
        "silent",
        clipping_is_a_norm,
        source=deepspeed_now("runtime/engine.py:3506"),
        prevents="gradients are silently not clipped",
        fix="a norm above zero",
    ),
    ds_rule(
        "OPT018",
        Severity.ERROR,
        "silent",
        optimizer_has_a_type,
        source=deepspeed_now("runtime/config.py:290"),
        prevents="no optimizer of DeepSpeed's: `zero stage N requires an optimizer`, or one of the script's",
        fix="name the type",
    ),
    ds_rule(
        "OPT004",
        Severity.ERROR,
        "init",
        optimizer_is_known,
        source=deepspeed_now("runtime/engine.py:2018"),
        prevents="`... is not a supported DeepSpeed Optimizer`",
        fix="a known optimizer",
    ),
    ds_rule(
        "OPT005",
        Severity.ERROR,
        "silent",
        hyperparameters_are_params,
        source=deepspeed_now("runtime/config.py:297"),
        prevents="training with the default, such as lr 0.001, in place of what is written",
        fix="move them into params",
    ),
    ds_rule(
        "OPT006",
        Severity.WARNING,
        "silent",
        adam_decays_as_named,
        source=deepspeed_now("runtime/engine.py:2489"),
        prevents="weight decay of another kind than the name says",
        fix="AdamW, or adam_w_mode: false",
    ),
    ds_rule(
        "OPT019",
        Severity.WARNING,
        "silent",
        adamw_is_adamw,
        source=deepspeed_now("runtime/engine.py:2492"),
        prevents="a setting that looks effective and is not",
        fix="type Adam",
    ),
    ds_rule(
        "OPT007",
        Severity.ERROR,
        "init",
        lamb_scales_dynamically,
        source=deepspeed_now("runtime/engine.py:2021"),
        prevents="`DeepSpeed lamb optimizer requires dynamic loss scaling`",
        fix="loss_scale: 0",
    ),
    ds_rule(
        "OPT020",
        Severity.NOTE,
        "silent",
        legacy_fusion_is_for_stage_0,
        source=deepspeed_now("runtime/engine.py:2592"),
        prevents="a setting that looks effective and is not",
        fix="remove it",
    ),
)
