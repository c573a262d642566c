"""Files of a submission that name one another: `--deepspeed_config ds.json`, `--hostfile hosts`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePath
from typing import Final

from ..findings import Location
from .accelerate import AccelerateConfig
from .deepspeed_config import Config
from .document import AzureMLJob, Kind
from .shell.launch_line import Launch
from .shell.records import Word
from .submission import Submission
from .training_arguments import TrainingArguments

#: Options of training programs that take the path of a DeepSpeed config. `--deepspeed` alone is a switch of Megatron's.
_CONFIG_OPTIONS: Final = frozenset(
    {"--deepspeed_config", "--deepspeed-config", "--deepspeed", "--ds_config", "--ds-config", "--deepspeed_config_file"}
)
_INPUT: Final = re.compile(r"[\"']?\$\{\{\s*inputs\.([\w-]+)\s*\}\}[\"']?")
#: Options of launchers, and the kind of document that they name.
_LAUNCHER_OPTIONS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("deepspeed", "--hostfile", "hostfile"),
    ("mpirun", "--hostfile", "hostfile"),
    ("accelerate", "--deepspeed_config_file", "DeepSpeed config"),
    ("accelerate", "--deepspeed_hostfile", "hostfile"),
    ("accelerate", "--config_file", "accelerate config"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that a document names."""

    kind: Kind
    path: str  #: as written, variables expanded; only its end where the folder is a variable that isn't known
    where: Location

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return PurePath(self.path).name


@lru_cache(maxsize=4)
def references(submission: Submission) -> tuple[Reference, ...]:
    """Every file that a launch line or config names, where its name can be known."""
    return tuple(_references(submission))


@lru_cache(maxsize=4)
def names_in(submission: Submission, path: str) -> frozenset[str]:
    """The names of all files that the document at `path` names."""
    return frozenset(link.name for link in references(submission) if link.where.path == path)


@lru_cache(maxsize=4)
def used_config(submission: Submission) -> Config | None:
    """The DeepSpeed config that the job uses: the one that a launch line names, else the only one there is."""
    named = {link.name for link in references(submission) if link.kind == "DeepSpeed config"}
    used = [config for config in submission.configs if config.name in named] or submission.configs
    return used[0] if len(used) == 1 else None


def used_accelerate_config(submission: Submission) -> AccelerateConfig | None:
    """The accelerate config that the job uses: the one that a launch line names, else the only one there is."""
    named = {link.name for link in references(submission) if link.kind == "accelerate config"}
    configs = submission.accelerate_configs
    used = [config for config in configs if PurePath(config.path).name in named] if named else configs
    return used[0] if len(used) == 1 else None


def ds_config_of(submission: Submission, arguments: TrainingArguments) -> Config | None:
    """The DeepSpeed config that arguments name by their `deepspeed`; the job's, where the name can't be known.

    None where the arguments don't use DeepSpeed, or it can't be known which config they mean.
    """
    named = arguments.value("deepspeed")
    if not arguments.has("deepspeed") or isinstance(named, dict) or named in (False, ""):
        return None
    configs = submission.configs
    if isinstance(named, str):
        name = named.replace("\\", "/").rpartition("/")[2]
        same = [config for config in configs if config.name == name]
        if len(same) == 1:
            return same[0]
    return used_config(submission) if named is None or len(configs) == 1 else None


def _references(submission: Submission) -> Iterator[Reference]:
    for launch in submission.launches:
        yield from _program_references(launch)
        for call in launch.calls:
            for program, name, kind in _LAUNCHER_OPTIONS:
                option = call.options.get(name) if call.program == program else None
                if option is not None and option.values and (path := _path_of(option.values[0])):
                    yield Reference(kind=kind, path=path, where=launch.script.locate(option.values[0]))
    for config in submission.accelerate_configs:
        if isinstance(config.config_file, str) and config.config_file:
            where = config.locate("deepspeed_config/deepspeed_config_file")
            yield Reference(kind="DeepSpeed config", path=config.config_file, where=where)
    for arguments in submission.training_arguments:
        named = arguments.value("deepspeed")
        if isinstance(named, str) and named.endswith((".json", ".hjson")):
            yield Reference(kind="DeepSpeed config", path=named, where=arguments.locate("deepspeed"))
    for job in submission.azureml_jobs:
        yield from _input_references(job)


def _input_references(job: AzureMLJob) -> Iterator[Reference]:
    """Local files that a command gets as inputs of its job: `--deepspeed_config ${{inputs.ds_config}}`."""
    for launch in job.launches:
        for option, value in zip(launch.arguments, launch.arguments[1:], strict=False):
            binding = _INPUT.fullmatch(value.raw) if option.raw in _CONFIG_OPTIONS else None
            name = f"inputs/{binding[1]}/path" if binding else ""
            path = job.value(name) if binding else None
            if isinstance(path, str) and path.endswith((".json", ".hjson")) and ":" not in path:
                yield Reference(kind="DeepSpeed config", path=path, where=job.locate(name))


def _program_references(launch: Launch) -> Iterator[Reference]:
    for word, following in zip_longest(launch.arguments, launch.arguments[1:]):
        option, equals, _ = word.raw.partition("=")
        value = word if equals else following
        path = _path_of(value) if option in _CONFIG_OPTIONS and value is not None else None
        path = path.partition("=")[2] if path and equals else path
        if path and path.endswith((".json", ".hjson")):
            yield Reference(kind="DeepSpeed config", path=path, where=launch.script.locate(value))


def _path_of(word: Word) -> str | None:
    """The path that a word names; its last part where the folder is a variable: `$HERE/ds.json`."""
    if word.value is not None:
        return word.value
    name = word.raw.strip("\"'").rpartition("/")[2].strip("\"'")
    return name if name and not set(name) & set("$`*?{}\"'") else None
