"""What the two Megatron trees are told of data, tokenizer and checkpoints.

**Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/training/arguments.py:834-845 (--save needs --save-interval) and
training.py:2305-2400 (saves before it exits on a signal or after a duration); megatron/core/datasets/utils.py:49;
deepspeedai/Megatron-DeepSpeed 4efb479d, megatron/arguments.py:320, megatron/training.py:1335-1382, megatron/tokenizer.
"""

from __future__ import annotations

from typing import Final

from ...job.framework import Need
from ...job.needs import spec_values
from ...job.records import Job
from ...search.plan import Plan
from ..arguments import Value, gives, group
from ..program import ArgumentGroup
from ..saving import exit_minutes
from .tokenizer import NULL, tokenizer_type

EXIT_OPTION: Final = "--exit-signal-handler"  #: TERM
_EXIT_MINUTES: Final = "--exit-duration-in-mins"

OPTIONS: Final = {
    "data.path": ("--data-path",),
    "data.split": ("--split",),
    "data.tokenizer.type": ("--tokenizer-type",),
    "data.tokenizer.path": ("--tokenizer-model",),
    "data.tokenizer.vocab_file": ("--vocab-file",),
    "data.tokenizer.merges_file": ("--merge-file",),
    "output.checkpoints": ("--save",),
    "output.save_interval": ("--save-interval",),
    "output.resume": ("--load",),
    "output.logs": ("--tensorboard-dir",),
}
NEEDS: Final = (
    Need(what="length", key="training.duration", options=("--train-iters", "--train-samples", "--train-tokens")),
    Need(
        what="data",
        key="data.path",
        options=("--data-path", "--train-data-path", "--data-args-path", "--per-split-data-args-path", "--mock-data"),
    ),
    Need(what="tokenizer", key="data.tokenizer", options=("--tokenizer-type",)),
    Need(what="folder for checkpoints", key="output.checkpoints", options=("--save",)),
    Need(
        what="resume",
        key="output.resume",
        options=("--load",),
        hint="add --load, or set output.checkpoints in place of --save",
    ),
)


def data_group(job: Job) -> ArgumentGroup:
    """Data and tokenizer."""
    own, values = job.launch.arguments, spec_values(job)
    kind = tokenizer_type(job)
    if kind is not None:
        values["data.tokenizer.type"] = (kind,)
    options: dict[str, Value] = {
        option: values[key]
        for key, (option, *_) in OPTIONS.items()
        if key.startswith("data.") and key in values and not gives(own, option)
    }
    if kind == NULL and not gives(own, "--vocab-size"):
        options["--vocab-size"] = (str(job.model.vocab - 1),)
    return group(f"data and tokenizer, of {job.model.vocab} tokens as planned", options)


def checkpoint_group(plan: Plan) -> ArgumentGroup:
    """Where and how often the run saves, and what makes it save and exit."""
    job, output = plan.job, plan.job.output
    folder = output.checkpoints
    saves = folder is not None or output.save_interval is not None
    options: dict[str, Value] = {
        "--save": folder,
        "--load": folder if output.resume else None,
        "--save-interval": plan.saving.interval_steps if saves else None,
        EXIT_OPTION: folder is not None,
        _EXIT_MINUTES: exit_minutes(plan) if folder is not None else None,
        "--tensorboard-dir": output.logs,
    }
    left = {option: value for option, value in options.items() if not gives(job.launch.arguments, option)}
    begin = "; a start goes on from the last checkpoint" if folder is not None and output.resume else ""
    return group(f"what is written{begin}", left)
