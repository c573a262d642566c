"""What a spec says of data and output, against the options of the training script and `launch.arguments`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...findings import ERROR, Violations
from ...job.needs import argument_values, spec_values
from ...job.records import Job
from ...job.wording import counted
from ..planned import jobs, violation
from ..sources import derived

_ABSENT: Final = object()


@jobs.rule("ARG001", ERROR, "silent", derived("the framework's launch files have no option for it"))
def keys_have_options(job: Job) -> Violations:
    """Each key of data and output is one that the framework's scripts take.

    Prevents: No error: the script runs without it.
    Fix: remove the key, and give the script's own option in launch.arguments"""
    said = set(job.framework.options) | job.framework.in_environment
    for key in spec_values(job):
        if key not in said:
            message = f"{key} is not available with {job.says('framework', job.framework)}"
            hint = "remove it; an option of the script's own goes into launch.arguments"
            yield violation(job, "/" + key.replace(".", "/"), message, hint)


@jobs.rule("ARG002", ERROR, "silent", derived("of an option that is given twice, the last one wins"))
def arguments_agree(job: Job) -> Violations:
    """What data and output say, launch.arguments don't say otherwise.

    Prevents: No error: one of the two values is used, and the plan counts with the other.
    Fix: give each of them once"""
    for key, value in spec_values(job).items():
        for option in job.framework.options.get(key, ()):
            own = argument_values(job.launch.arguments, option)
            if own is not None and own != value:
                message = f"{key} is {' '.join(value)}, but launch.arguments have {' '.join((option, *own))}"
                yield violation(job, "/" + key.replace(".", "/"), message, "keep one of the two")


@jobs.rule("DATA009", ERROR, "silent", derived("what data.path holds goes to the script as it is"))
def paths_suit_the_script(job: Job) -> Violations:
    """Data is one path, or as many with a weight before each or with none as the script takes.

    Prevents: A weight is taken for a path, or the script stops at an argument that it doesn't know.
    Fix: write a weight before each path, or before none; give the Trainer's scripts one"""
    path, taken, where = job.data.path, job.framework.data_paths, "/data/path"
    weights = [_is_weight(word) for word in path]
    if any(weights) and weights != [True, False] * (len(path) // 2):
        found = f"{counted(sum(weights), 'weight')} and {counted(len(path) - sum(weights), 'path')}"
        message = f"data.path has {found}, not in turn"
        yield violation(job, where, message, "write a weight before each path, such as [0.3, /data/a, 0.7, /data/b]")
    elif len(path) > 1 and taken == "one":
        message = f"data.path has {len(path)} values; scripts of {job.framework} take one path"
        yield violation(job, where, message, f"use path: {next(word for word in path if not _is_weight(word))}")
    elif len(path) > 1 and taken == "weighted" and not any(weights):
        message = f"data.path has {len(path)} paths without weights, which {job.framework} requires"
        yield violation(job, where, message, f"write a weight before each, such as [1, {path[0]}, 1, {path[1]}]")


def _is_weight(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


#: Keys of the DeepSpeed config that the plan decides, and the key of the spec that says them.
PLANNED_KEYS: Final[Mapping[str, str]] = {
    "train_batch_size": "training.global_batch",
    "train_micro_batch_size_per_gpu": "layout.micro_batch",
    "gradient_accumulation_steps": "layout.gradient_accumulation",
    "fp16.enabled": "training.precision",
    "bf16.enabled": "training.precision",
    "bfloat16.enabled": "training.precision",
    "zero_optimization.stage": "layout.zero_stage",
    "zero_optimization.mics_shard_size": "layout.zero_copies",
    "zero_optimization.zero_hpz_partition_size": "layout.zero_hpz",
    "tensor_parallel.autotp_size": "layout.tensor",
    "sequence_parallel_size": "layout.context",
    "pipeline.stages": "layout.pipeline",
}


@jobs.rule("ARG003", ERROR, "silent", derived("the values of deepspeed_config are put over those of the plan"))
def config_keys_are_not_planned(job: Job) -> Violations:
    """The keys of deepspeed_config are none that another key of the spec decides.

    Prevents: No error: the run has another batch, stage or precision than the plan counts with.
    Fix: set the spec's own key"""
    for path, key in PLANNED_KEYS.items():
        held: object = job.deepspeed_config
        for part in path.split("."):
            held = held.get(part, _ABSENT) if isinstance(held, Mapping) else _ABSENT
        if held is not _ABSENT:
            message = f"deepspeed_config sets {path}, which {key} decides"
            where = "/deepspeed_config/" + path.replace(".", "/")
            yield violation(job, where, message, f"remove it, and set {key}")


@jobs.rule("ARG004", ERROR, "silent", derived("no other framework reads a DeepSpeed config"))
def config_has_a_reader(job: Job) -> Violations:
    """Only frameworks that run on DeepSpeed have a deepspeed_config.

    Prevents: No error: nothing reads the keys.
    Fix: remove deepspeed_config, or use a framework that runs on DeepSpeed"""
    if job.deepspeed_config and not job.framework.runs("DeepSpeed engine"):
        message = f"deepspeed_config is not available with {job.says('framework', job.framework)}"
        hint = f"remove it, or use {job.says('framework', 'deepspeed')}"
        yield violation(job, "/deepspeed_config", message, hint)
