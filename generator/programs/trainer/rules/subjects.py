"""accelerate configs, `accelerate launch` lines and the models of training programs, as rules look at them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ....catalog import Model, find_model
from ....findings import Location
from ....job.plain import plain_source
from ....job.resolve_model import resolve_model
from ...deepspeed.config import Config
from ...launching.launch_line import Call, Launch
from ...links import used_config
from ...rule import subject
from ...submission import Submission
from ..accelerate import AccelerateConfig
from ..training_arguments import TrainingArguments


@dataclass(frozen=True, slots=True)
class AccelerateLaunch:
    """An `accelerate launch` on its line, and the DeepSpeed config of the submission."""

    launch: Launch
    call: Call
    linked: Config | None

    def locate(self, name: str) -> Location:
        """The place of an option, else of the launcher."""
        option = self.call.options.get(name)
        return self.launch.script.locate(option.written if option is not None else self.call.word)


@subject("launch script", "DeepSpeed config")
def accelerate_launches(submission: Submission) -> Iterator[AccelerateLaunch]:
    """Every `accelerate launch`."""
    for launch in submission.launches:
        for call in launch.calls:
            if call.program == "accelerate":
                yield AccelerateLaunch(launch, call, used_config(submission))


@dataclass(frozen=True, slots=True)
class Accelerated:
    """An accelerate config of a cluster, with the launch lines that go before it and the DeepSpeed config it uses."""

    config: AccelerateConfig
    launches: tuple[AccelerateLaunch, ...]
    exported: frozenset[str]  #: the variables of all launch lines
    linked: Config | None
    deepspeed_version: tuple[int, ...]

    def overridden(self, *options: str) -> bool:
        """Whether a launch line has one of these options, or may have it."""
        every = [item.call.options for item in self.launches]
        return any(given.opaque or any(map(given.has, options)) for given in every)


@subject("accelerate config", "launch script", "DeepSpeed config")
def clusters(submission: Submission) -> Iterator[Accelerated]:
    """The configs of clusters, not of SageMaker, that could be read to their end."""
    launches = tuple(accelerate_launches(submission))
    exported = frozenset(name for launch in submission.launches for name in launch.environment)
    for config in submission.accelerate_configs:
        if config.readable and not config.for_sagemaker:
            yield Accelerated(config, launches, exported, used_config(submission), submission.deepspeed_version)


@subject("accelerate config", "launch script")
def groups(submission: Submission) -> Iterator[Accelerated]:
    """Those for several machines, whose number no launch line sets."""
    return (run for run in clusters(submission) if run.config.machines > 1 and not run.overridden("--num_machines"))


#: Suffixes of Hugging Face names: versions, tunings, formats. The architecture is the same.
_ENDING: Final = re.compile(r"-(?:hf|base|instruct|chat|it|v\d{1,2}(?:\.\d{1,2})?)\Z")
_LONGEST: Final = 200  # characters of a name


def model_of(submission: Submission, arguments: TrainingArguments | None = None) -> Model | None:
    """The model of the context or the job, else the one that the arguments name."""
    named = arguments.value("model_name_or_path") if arguments is not None else None
    return submission.model or (model_named(named) if isinstance(named, str) and len(named) < _LONGEST else None)


@lru_cache(maxsize=64)
def model_named(name: str) -> Model | None:
    """The model of a Hugging Face name such as `mistralai/Mixtral-8x7B-v0.1`; None where the catalog has none."""
    short, found = name.rstrip("/").rpartition("/")[2].lower(), None
    while short and found is None:
        found = find_model(short)
        cut = _ENDING.sub("", short)
        short = cut if cut != short else ""
    return resolve_model(plain_source({"model": found.name}), found.name)[0] if found is not None else None
