"""The settings of `accelerate launch` against the DeepSpeed config and against one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ....documents.shell.launch_line import Call, Launch
from ....documents.submission import Submission
from ....findings import Severity
from ....spec.wording import show
from ...sources import accelerate
from ..rule import Breach, DocumentRule
from .accelerate import clusters, on_the_line, whole

_AT: Final = "/deepspeed_config"
_SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")


def sizes_make_the_processes(submission: Submission) -> Iterator[Breach]:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism exclude each other."""
    for config in clusters(submission):
        source = config.source
        section = source.value("/parallelism_config")
        if not isinstance(section, dict) or not section or on_the_line(submission, "--num_processes"):
            continue
        sizes = [source.value(f"/parallelism_config/parallelism_config_{name}", 1) for name in _SIZES]
        whole_sizes = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool)]
        where, processes = source.locate_key("/parallelism_config"), whole(config, "/num_processes")
        if len(whole_sizes) < len(sizes):
            continue
        context, sequence = whole_sizes[3], whole_sizes[4]
        words = " × ".join(f"{name} {size}" for name, size in zip(_SIZES, whole_sizes, strict=True) if size != 1)
        if min(whole_sizes) < 1:
            yield Breach(where=where, message=f"{words}: a size is at least 1", hint="1 for what is not used")
        elif context > 1 and sequence > 1:
            message = f"cp_size {context} and sp_size {sequence} exclude each other"
            yield Breach(where=where, message=message, hint="one of them 1")
        elif sequence == 1 and processes and math.prod(whole_sizes) not in (1, processes):
            message = f"{words} = {math.prod(whole_sizes)} is not num_processes {processes}"
            rest = math.prod(whole_sizes) // whole_sizes[1]
            hint = (
                f"dp_shard_size {processes // rest}"
                if processes % rest == 0
                else f"num_processes: {math.prod(whole_sizes)}"
            )
            yield Breach(where=where, message=message, hint=hint)


def _accelerate_calls(submission: Submission) -> Iterator[tuple[Launch, Call]]:
    for launch in submission.launches:
        for call in launch.calls:
            if call.program == "accelerate":
                yield launch, call


def precision_is_the_configs(submission: Submission) -> Iterator[Breach]:
    """--mixed_precision of accelerate launch is what the DeepSpeed config enables."""
    linked = submission.ds_config
    for launch, call in _accelerate_calls(submission) if linked is not None else ():
        option, wanted = call.options.get("--mixed_precision"), call.options.text("--mixed_precision")
        other = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}.get(wanted or "")
        if option is None or other is None or linked is None or not linked.enabled(f"/{other}"):
            continue
        message = f"--mixed_precision {wanted}, and {other} is enabled in {linked.name}"
        hint = f"--mixed_precision {other}, or none"
        yield Breach(where=launch.script.locate(option.written), message=message, hint=hint)


def accumulation_is_the_configs(submission: Submission) -> Iterator[Breach]:
    """--gradient_accumulation_steps of accelerate launch is the DeepSpeed config's, which counts."""
    linked = submission.ds_config
    for launch, call in _accelerate_calls(submission) if linked is not None else ():
        option = call.options.get("--gradient_accumulation_steps")
        steps = call.options.integer("--gradient_accumulation_steps")
        value = linked.value("/gradient_accumulation_steps") if linked is not None else None
        if option is None or linked is None or steps is None or not call.options.has("--deepspeed_config_file"):
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value != steps:
            message = f"--gradient_accumulation_steps {steps} is not used: {linked.name} says {value}"
            where = launch.script.locate(option.written)
            yield Breach(where=where, message=message, hint=f"{value} in both, or only in the JSON")


def config_file_is_a_path(submission: Submission) -> Iterator[Breach]:
    """deepspeed_config_file is the path of a DeepSpeed config."""
    for config in clusters(submission):
        pointer = f"{_AT}/deepspeed_config_file"
        value, where = config.source.value(pointer), config.source.locate(pointer)
        if value is None or on_the_line(submission, "--deepspeed_config_file"):
            continue
        if not isinstance(value, str) or value.isdecimal():
            message = f"deepspeed_config_file is {show(value)}, not a path"
            yield Breach(where=where, message=message, hint="deepspeed_config_file: ds_config.json")
        elif not value.endswith((".json", ".hjson")) and len(value) < _SHORT and value != "none":
            message = f"deepspeed_config_file is {show(value)}, not the path of a JSON file"
            hint = "deepspeed_config_file: ds_config.json"
            yield Breach(where=where, message=message, hint=hint, severity=Severity.WARNING)


_SHORT: Final = 60  # characters; a config in base64, which it may be too, is longer


_READS: Final = ("accelerate config",)
_LINES: Final = ("launch script", "DeepSpeed config")

RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="HF008",
        severity=Severity.ERROR,
        when="init",
        reads=_LINES,
        source=accelerate("utils/dataclasses.py (DeepSpeedPlugin.set_mixed_precision)"),
        prevents="ValueError: `--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the config file.",
        fix="the same in both",
        check=precision_is_the_configs,
    ),
    DocumentRule(
        id="HF012",
        severity=Severity.WARNING,
        when="silent",
        reads=_LINES,
        source=accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)"),
        prevents="No error: the DeepSpeed config's number counts, and the batch is another one.",
        fix="the same in both",
        check=accumulation_is_the_configs,
    ),
    DocumentRule(
        id="HF017",
        severity=Severity.ERROR,
        when="init",
        reads=_READS,
        source=accelerate("parallelism_config.py:329-345,373-380"),
        prevents="ValueError: ParallelismConfig total_size does not match num_processes",
        fix="sizes whose product is num_processes",
        check=sizes_make_the_processes,
    ),
    DocumentRule(
        id="ACC018",
        severity=Severity.ERROR,
        when="init",
        reads=_READS,
        source=accelerate("utils/deepspeed.py (HfDeepSpeedConfig.__init__)"),
        prevents="ValueError: Expected a string path to an existing deepspeed config",
        fix="deepspeed_config_file: ds_config.json",
        check=config_file_is_a_path,
    ),
)
