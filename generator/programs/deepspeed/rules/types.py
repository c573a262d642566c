"""Values of a type or range that DeepSpeed's parser refuses."""

from __future__ import annotations

from dataclasses import replace

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.sources import deepspeed
from ...rule import submissions
from ...submission import Submission
from .templates import is_used_as_it_is, placeholders
from .walk import problems_of, reported


@reported(
    "PARSE009",
    ERROR,
    "parse",
    deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
)
def numbers_are_no_text() -> None:
    """A number is written as a number.

    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at the first step
    Fix: write the number without quotes"""


@reported("PARSE010", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def whole_numbers_are_whole() -> None:
    """An integer has no fraction.

    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: round it"""


@reported("PARSE011", ERROR, "parse", deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"))
def blocks_are_objects() -> None:
    """The config and each of its blocks is an object.

    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: write an object, or leave the block out"""


@submissions.rule(
    "PARSE015",
    ERROR,
    "parse",
    deepspeed("runtime/zero/config.py:95, runtime/config.py:699"),
    reads=("DeepSpeed config", "launch script"),
)
def templates_are_filled_in(submission: Submission) -> Violations:
    """No unfilled placeholder of a template is left in place of a value of a config that a job reads as it is.

    Prevents: ValidationError: Input should be 0, 1, 2 or 3 [input_value='ZERO_STAGE'], or HjsonDecodeError
    Fix: fill the template in before the job starts"""
    made = {config.path for config in submission.configs if config.embedded}  # judged by what scripts make of them
    for config in submission.configs:
        found = [problem.violation for problem in problems_of(config) if problem.rule == "PARSE015"]
        if found and is_used_as_it_is(submission, config):
            yield from found
        elif found and config.path not in made:
            message = f"a template: {', '.join(placeholders(config))} to be filled in"
            yield replace(found[0], message=message, severity=NOTE)


@reported("PARSE017", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"))
def values_have_their_type() -> None:
    """A value has the type and range of its key.

    Prevents: ValidationError: Input should be a valid ...
    Fix: write a value of the type that the message names"""


@reported("PARSE018", ERROR, "parse", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9")
def blocks_have_what_they_need() -> None:
    """A block has the keys that DeepSpeed fails without.

    Prevents: KeyError: 'enabled'
    Fix: add the key, or remove the block"""


@reported("PARSE007", ERROR, "parse", deepspeed("runtime/config.py:931"))
def batch_is_not_auto() -> None:
    """A batch key is "auto" only where Transformers or accelerate fill it in.

    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: write numbers, or let Transformers or accelerate read the file"""


@reported("PARSE008", ERROR, "silent", deepspeed("runtime/config_utils.py:54-57"))
def model_is_not_auto() -> None:
    """A key that DeepSpeed drops where it is "auto" has a value.

    Prevents: The default is used silently: "stage": "auto" trains without ZeRO, "enabled": "auto" in fp32.
    Fix: write the value"""


@reported("ZERO001", ERROR, "parse", deepspeed("runtime/zero/config.py:81-95"))
def stage_is_known() -> None:
    """The ZeRO stage is 0, 1, 2 or 3.

    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: set "stage" to 0, 1, 2 or 3"""


@reported("ZERO002", WARNING, "silent", deepspeed("runtime/zero/config.py:60-75"))
def stage_is_written() -> None:
    """zero_optimization is an object, not the deprecated true or false.

    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated.
    Fix: write {"stage": 1}"""


@reported("ZERO007", ERROR, "parse", deepspeed("runtime/zero/offload_config.py:14-24"))
def offload_device_is_known() -> None:
    """The device of an offload is "cpu", "nvme" or "none".

    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: write "cpu" or "nvme"
    """


@reported("ZERO025", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def buckets_are_positive() -> None:
    """Bucket sizes are greater than 0.

    Prevents: ValidationError: Input should be greater than 0
    Fix: write a size in elements, such as 500000000"""


@reported("PREC005", ERROR, "parse", deepspeed("runtime/precision_config.py:120-132"))
def loss_scale_is_a_number() -> None:
    """fp16's loss scale is a number of at least 0.

    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: write 0 for dynamic loss scaling"""


@reported("PREC006", ERROR, "parse", deepspeed("runtime/precision_config.py:165-197"))
def dynamic_loss_scale_has_bounds() -> None:
    """fp16's scale window and minimum scale are integers, greater than 0 with dynamic loss scaling.

    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an integer
    Fix: leave both out, or write 1000 and 1"""
