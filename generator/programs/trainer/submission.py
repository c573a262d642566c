"""Which configs and models the Trainer's arguments and accelerate's launch lines use, and what they
claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ...catalog import Model
from ...job.named_models import model_named
from ...submission.claims import Claim, Quantity, Trust
from ...submission.launches import Launch
from ...submission.submission import Submission
from ..deepspeed.config import Config
from ..deepspeed.submission import is_made, named_by, read_by, used_config
from .accelerate import AccelerateConfig
from .training_arguments import TrainingArguments

_FRAMEWORK: Final = "huggingface"  # as job specs call it
_LONGEST: Final = 200  #: characters of a model's name
#: Options that name a DeepSpeed config, or a file of arguments.
_NAME_FILES: Final = frozenset({"--deepspeed", "--config", "--config_file"})


def model_of(submission: Submission, arguments: TrainingArguments | None = None) -> Model | None:
    """The model of the context or the job, else the one that the arguments name."""
    if submission.model is not None:
        return submission.model
    name = arguments.value("model_name_or_path") if arguments is not None else None
    return model_named(name) if isinstance(name, str) and len(name) < _LONGEST else None


def used_accelerate_config(submission: Submission) -> AccelerateConfig | None:
    """The accelerate config that the job uses: the one that a launch line names, else the only one
    there is.
    """
    named = named_by(link for link in submission.references if link.kind == "accelerate config")
    configs = submission.of(AccelerateConfig)
    used = [config for config in configs if id(config) in named] or configs
    return used[0] if len(used) == 1 else None


def ds_config_of(submission: Submission, arguments: TrainingArguments) -> Config | None:
    """The DeepSpeed config that arguments name by their `deepspeed`.

    None where the arguments don't use DeepSpeed, or it can't be known which config they mean.
    """
    named = arguments.value("deepspeed")
    if not arguments.has("deepspeed"):
        return _ds_config_beside(submission, arguments)
    if isinstance(named, dict) or named in (False, ""):
        return None
    if named is None:  # a variable, for instance
        return used_config(submission)

    # Of what is in an image or volume, the name alone is known.
    paths = (named, PurePath(str(named)).name)
    links = [
        link
        for link in submission.references
        if link.path in paths and link.where.path == arguments.path
    ]
    if links and all(is_made(submission, link) for link in links):
        return used_config(submission)
    return next(iter(read_by(submission, named_by(links))), None)


def _ds_config_beside(submission: Submission, arguments: TrainingArguments) -> Config | None:
    """The DeepSpeed config that launch lines name beside a file of arguments, and no other option:
    `train.py config.yaml --deepspeed ds.json`.
    """
    if arguments.launch is not None:
        return None
    launches = {
        id(link.launch): link.launch
        for link in submission.references
        if link.launch is not None and any(one is arguments for one in link.documents)
    }
    named = [
        link
        for link in submission.references
        if link.kind == "DeepSpeed config" and id(link.launch) in launches
    ]
    has_others = any(_has_other_options(launch) for launch in launches.values())
    return None if has_others else next(iter(read_by(submission, named_by(named))), None)


def _has_other_options(launch: Launch) -> bool:
    """Whether a line has options beside those that name files for it, which may replace a file's
    values.
    """
    names = (word.raw.partition("=")[0] for word in launch.arguments)
    return any(name.startswith("-") and name not in _NAME_FILES for name in names)


def is_data_parallel(launch: Launch) -> bool:
    """Return whether a launch line of the Trainer asks for nothing that shards the states.

    The Trainer then uses DDP. Accelerate's launcher may have a config on the machine that says
    otherwise.
    """
    if any(launch.call(name) is not None for name in ("accelerate", "deepspeed")):
        return False
    names = (word.prefix.partition("=")[0] for word in launch.arguments)
    return not any("deepspeed" in name or "fsdp" in name for name in names)


def consumer_of(submission: Submission) -> str | None:
    """The program that reads DeepSpeed's configs: the Trainer, where the job or its arguments have
    it, or accelerate.
    """
    if submission.job is not None and submission.job.framework.name == _FRAMEWORK:
        return _FRAMEWORK
    if any(arguments.has("deepspeed") for arguments in submission.of(TrainingArguments)):
        return _FRAMEWORK
    if submission.has("accelerate config") or submission.calls("accelerate"):
        return "accelerate"
    return None


def claims_of(submission: Submission) -> Iterator[Claim]:
    """The processes and machines of accelerate's config, where no command line sets them."""
    config = used_accelerate_config(submission)
    launches = [launch for launch in submission.launches if launch.call("accelerate")]
    calls = [
        call.options for launch in launches for call in launch.calls if call.program == "accelerate"
    ]
    # Without a call of accelerate another program reads the config, and may set the counts itself.
    if config is None or (submission.launches and not calls):
        return

    # With one machine accelerate leaves the nodes to torchrun's parser, which reads a variable.
    # Source: accelerate utils/launch.py (prepare_multi_gpu_env, _filter_args) @ 1.15.0.
    is_of_each = config.machines == 1 and any(
        "PET_NNODES" in launch.environment for launch in launches
    )
    counts: tuple[tuple[str, int | None, Quantity], ...] = (
        ("num_processes", config.processes, "GPUs per node" if is_of_each else "processes"),
        ("num_machines", None if is_of_each else config.integer("num_machines"), "nodes"),
    )
    for name, value, quantity in counts:
        overridden = any(options.opaque or options.has(f"--{name}") for options in calls)
        if value is not None and not overridden:
            yield Claim(quantity, value, config.locate(name), f"{name}: {value}", Trust.CONFIG)
