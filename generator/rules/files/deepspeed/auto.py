"""`"auto"` in a DeepSpeed config: Transformers and accelerate fill it in, at some keys; DeepSpeed never does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ....documents.submission import FILLERS, Submission
from ....findings import ERROR, Severity, Violation, Violations
from ....job.pointer import escape
from ...rule import submissions
from ...sources import deepspeed
from .problem import named
from .subjects import configs
from .templates import batch_values
from .walk import problems

#: Values that DeepSpeed hands on to PyTorch or computes with, where text can't be right; `"auto"` is for fillers.
_HANDED_ON: Final = (
    "/gradient_clipping",
    "/steps_per_print",
    "/gradient_predivide_factor",
    *(f"/optimizer/params/{name}" for name in ("lr", "betas", "eps", "weight_decay")),
    *(
        f"/scheduler/params/{name}"
        for name in ("warmup_num_steps", "total_num_steps", "warmup_min_lr", "warmup_max_lr")
    ),
)
_MOST: Final = 200  #: values; more tell nothing new
_NAMES: Final = {"huggingface": "Transformers' Trainer", "accelerate": "accelerate"}
#: What accelerate fills in: as its plugin (utils/dataclasses.py:1280-1292 @ 1.15.0), and when it prepares
#: (accelerator.py:2223-2356).
_BY_ACCELERATE: Final = frozenset(
    [
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
        *("fp16.enabled", "bf16.enabled", "optimizer.params.lr", "optimizer.params.weight_decay"),
        *(f"scheduler.params.{name}" for name in ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps")),
        "scheduler.params.total_num_steps",
        "zero_optimization.stage",
        *(
            f"zero_optimization.offload_{what}.{key}"
            for what in ("optimizer", "param")
            for key in ("device", "nvme_path")
        ),
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    ]
)
#: What Transformers fills in besides (integrations/deepspeed.py:134-258 @ 5.23.0); its Trainer goes through accelerate.
_BY_TRANSFORMERS: Final = _BY_ACCELERATE | {"optimizer.params.betas", "optimizer.params.eps"}


def _of(submission: Submission, rule: str) -> Violations:
    return (problem.violation(config) for config, problem in problems(submission) if problem.rule == rule)


@submissions.rule("PARSE007", ERROR, "parse", deepspeed("runtime/config.py:931"), reads=("DeepSpeed config",))
def batch_is_not_auto(submission: Submission) -> Violations:
    """A batch key is "auto" only for who fills it in: Transformers and accelerate.

    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: Write numbers, or let Transformers or accelerate read the file.
    """
    for config, key, value in batch_values(submission):
        if value == "auto" and not config.filled:
            message = f'`{key}` is "auto", which only Transformers and accelerate fill in; DeepSpeed fails on it'
            hint = "write a number; or --consumer huggingface, where its Trainer reads the file"
            yield Violation(where=config.locate(f"/{key}"), message=message, hint=hint)


@submissions.rule("PARSE008", ERROR, "silent", deepspeed("runtime/config_utils.py:54-57"), reads=("DeepSpeed config",))
def model_is_not_auto(submission: Submission) -> Violations:
    """A key that DeepSpeed would leave out for being "auto" is written out.

    Prevents: The default is used without a word: "stage": "auto" trains without ZeRO, "enabled": "auto" in fp32.
    Fix: Write the value.
    """
    return _of(submission, "PARSE008")


@submissions.rule("PARSE020", ERROR, "init", deepspeed("runtime/engine.py"), reads=("DeepSpeed config",))
def handed_on_is_not_auto(submission: Submission) -> Violations:
    """A value that DeepSpeed hands on as it is, is not "auto".

    Prevents: A TypeError in the optimizer or the first step: text where a number belongs
    Fix: Write the value, or let Transformers or accelerate read the file.
    """
    for config in configs(submission):
        for pointer in _HANDED_ON if not config.filled else ():
            if config.value(pointer) == "auto":
                message = f'{named(pointer)} is "auto", which only Transformers and accelerate fill in'
                hint = "write a value; or --consumer huggingface, where its Trainer reads the file"
                yield Violation(where=config.locate(pointer), message=message, hint=hint)


@submissions.rule(
    "PARSE021",
    ERROR,
    "init",
    "huggingface/accelerate src/accelerate/utils/dataclasses.py:1357-1374 @ 1.15.0",
    reads=("DeepSpeed config",),
)
def fillers_know_the_key(submission: Submission) -> Violations:
    """A key that is "auto" is one that Transformers or accelerate fill in.

    Prevents: ValueError: `zero_optimization.overlap_comm` not found in kwargs. Please specify it without `auto`
    Fix: Write a value, or leave the key out.
    """
    for config in configs(submission) if submission.consumer in FILLERS else ():
        for pointer in islice(_automatic("", config.block("")), _MOST):
            key = pointer[1:].replace("/", ".")
            if key in (_BY_TRANSFORMERS if submission.consumer == "huggingface" else _BY_ACCELERATE):
                continue
            message = f'{named(pointer)} is "auto", which {_NAMES[submission.consumer]} does not fill in here'
            # `accelerate launch` may start a script with a Trainer, which has filled it in before.
            severity = None
            if key in _BY_TRANSFORMERS:
                severity, message = Severity.WARNING, f"{message}, unless Transformers' Trainer runs"
            hint = "write a value, or take it out"
            yield Violation(where=config.locate(pointer), message=message, hint=hint, severity=severity)


def _automatic(pointer: str, block: Mapping[str, Any]) -> Iterator[str]:
    """Pointers of the values that are "auto", those in lists left out."""
    for name, value in block.items():
        place = f"{pointer}/{escape(name)}"
        if isinstance(value, dict):
            yield from _automatic(place, value)
        elif value == "auto":
            yield place
