"""The settings of `accelerate launch` against the DeepSpeed config and against one another."""

from __future__ import annotations

from typing import Final

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....job.wording import show
from ...rule import submissions
from ...sources import accelerate
from .accelerate import clusters, on_the_line
from .parallelism import accelerate_calls

_AT: Final = "/deepspeed_config"


@submissions.rule(
    "HF008",
    ERROR,
    "init",
    accelerate("utils/dataclasses.py (DeepSpeedPlugin.set_mixed_precision)"),
    reads=("launch script", "DeepSpeed config"),
)
def precision_is_the_configs(submission: Submission) -> Violations:
    """--mixed_precision of accelerate launch is what the DeepSpeed config enables.

    Prevents: ValueError: `--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the config file.
    Fix: the same in both
    """
    linked = submission.config
    for launch, call in accelerate_calls(submission) if linked is not None else ():
        option, wanted = call.options.get("--mixed_precision"), call.options.text("--mixed_precision")
        other = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}.get(wanted or "")
        if option is None or other is None or linked is None or not linked.switch(f"/{other}/enabled"):
            continue
        message = f"--mixed_precision {wanted}, and {other} is enabled in {linked.name}"
        hint = f"--mixed_precision {other}, or none"
        yield Violation(where=launch.script.locate(option.written), message=message, hint=hint)


@submissions.rule(
    "HF012",
    WARNING,
    "silent",
    accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)"),
    reads=("launch script", "DeepSpeed config"),
)
def accumulation_is_the_configs(submission: Submission) -> Violations:
    """--gradient_accumulation_steps of accelerate launch is the DeepSpeed config's, which counts.

    Prevents: No error: the DeepSpeed config's number counts, and the batch is another one.
    Fix: the same in both
    """
    linked = submission.config
    for launch, call in accelerate_calls(submission) if linked is not None else ():
        option = call.options.get("--gradient_accumulation_steps")
        steps = call.options.integer("--gradient_accumulation_steps")
        value = linked.value("/gradient_accumulation_steps") if linked is not None else None
        if option is None or linked is None or steps is None or not call.options.has("--deepspeed_config_file"):
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value != steps:
            message = f"--gradient_accumulation_steps {steps} is not used: {linked.name} says {value}"
            where = launch.script.locate(option.written)
            yield Violation(where=where, message=message, hint=f"{value} in both, or only in the JSON")


@submissions.rule(
    "ACC018", ERROR, "init", accelerate("utils/deepspeed.py (HfDeepSpeedConfig.__init__)"), reads=("accelerate config",)
)
def config_file_is_a_path(submission: Submission) -> Violations:
    """deepspeed_config_file is the path of a DeepSpeed config.

    Prevents: ValueError: Expected a string path to an existing deepspeed config
    Fix: deepspeed_config_file: ds_config.json
    """
    for config in clusters(submission):
        pointer = f"{_AT}/deepspeed_config_file"
        value, where = config.source.value(pointer), config.source.locate(pointer)
        if value is None or on_the_line(submission, "--deepspeed_config_file"):
            continue
        if not isinstance(value, str) or value.isdecimal():
            message = f"deepspeed_config_file is {show(value)}, not a path"
            yield Violation(where=where, message=message, hint="deepspeed_config_file: ds_config.json")
        elif not value.endswith((".json", ".hjson")) and len(value) < _SHORT and value != "none":
            message = f"deepspeed_config_file is {show(value)}, not the path of a JSON file"
            hint = "deepspeed_config_file: ds_config.json"
            yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)


_SHORT: Final = 60  # characters; a config in base64, which it may be too, is longer


_READS: Final = ("accelerate config",)
_LINES: Final = ("launch script", "DeepSpeed config")
