"""Needs of a job before it can be submitted, its continuation after the time limit, and the versions of programs
that its files are written for: options, keys and defaults were read at these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from ..dataclass import dataclass
from .records import Job, Need, Software
from .schema import launch_keys
from .wording import dots

_RESUME: Final = "output.resume"
#: Endings of files that hold arguments: what is in them isn't known.
_ARGUMENT_FILES: Final = (".json", ".yaml", ".yml", ".toml")
#: When a submission needs a key of its options: values of `neededToSubmit` in the schema of job specs.
CONDITIONS: Final[Mapping[str, Callable[[Job], bool]]] = {
    "always": lambda job: True,
    "outside Azure": lambda job: job.cluster.provider != "azure",
}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a submission needs and the job doesn't give."""

    what: str  #: data
    key: str  #: of the spec: data.path
    hint: str  #: set data.path

    def __str__(self) -> str:
        return f"no {self.what} ({self.hint})"


def missing(job: Job) -> tuple[Missing, ...]:
    """Everything that the job still needs, in the order of the spec's keys."""
    target, options = job.launch.target, job.launch.options
    asked = (
        key
        for key, schema in target_options(job).items()
        if (when := schema.get("neededToSubmit")) is not None and options.get(key) is None and CONDITIONS[when](job)
    )
    lacks = (Missing(key.replace("_", " "), f"launch.{target}.{key}", f"set launch.{target}.{key}") for key in asked)
    return (*_of_program(job), *lacks)


def not_ready(lacks: Sequence[Missing]) -> str:
    """`Not ready to submit: no data (set data.path), no tokenizer (set data.tokenizer)`."""
    return f"Not ready to submit: {', '.join(map(str, lacks))}"


def spec_values(job: Job) -> dict[str, tuple[str, ...]]:
    """The keys of `data` and `output` that the job gives a value, with the words of it."""
    data, tokenizer, output = job.data, job.data.tokenizer, job.output
    single = {
        "data.split": data.split,
        "data.tokenizer.type": tokenizer.type,
        "data.tokenizer.path": tokenizer.path,
        "data.tokenizer.vocab_file": tokenizer.vocab_file,
        "data.tokenizer.merges_file": tokenizer.merges_file,
        "output.checkpoints": output.checkpoints,
        "output.save_interval": output.save_interval,
        "output.keep": output.keep,
        "output.logs": output.logs,
    }
    given: dict[str, tuple[str, ...]] = {"data.path": data.path} if data.path else {}
    return given | {key: (str(value),) for key, value in single.items() if value is not None}


def argument_values(arguments: Sequence[str], option: str) -> tuple[str, ...] | None:
    """The words after `option`, up to the next option; `None` where it is not given. The last one wins."""
    found: tuple[str, ...] | None = None
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name != option:
            continue
        rest = arguments[index + 1 :]
        end = next((at for at, other in enumerate(rest) if other.startswith("--")), len(rest))
        found = (value,) if equals else tuple(rest[:end])
    return found


def _of_program(job: Job) -> Iterator[Missing]:
    given = _given(job)
    script = job.launch.script.replace("\\", "/").rpartition("/")[2]
    every = job.framework.needs
    asked = [n for n in every if not n.scripts or any(fnmatchcase(script, pattern) for pattern in n.scripts)]
    replaced = {need.replaces for need in asked}
    asked = [need for need in asked if need.key not in replaced]
    lacks = [n for n in asked if n.key not in given and not _met(n, job.launch.arguments)]
    keys = {need.key for need in lacks}
    for need in lacks:
        if need.key != _RESUME or "output.checkpoints" not in keys:  # nothing is saved that could be gone on from
            yield Missing(need.what, need.key, need.hint or f"set {need.key}")
    save, load = (job.framework.options.get(f"output.{key}", ("",))[0] for key in ("checkpoints", "resume"))
    arguments = job.launch.arguments
    saved = argument_values(arguments, save) or spec_values(job).get("output.checkpoints")
    loaded = argument_values(arguments, load)
    if load and saved and loaded and loaded != saved:
        where = f"{load} {' '.join(loaded)} is not {save} {' '.join(saved)}"
        yield Missing("resume", _RESUME, f"{where}: every start begins there")


def _given(job: Job) -> set[str]:
    """The needs that the spec's own keys meet."""
    given = set(spec_values(job))
    if job.data.tokenizer.given:
        given.add("data.tokenizer")
    if job.output.checkpoints is not None or not job.output.resume:
        given.add(_RESUME)
    if job.training.duration_tokens is not None:
        given.add("training.duration")
    return given


def _met(need: Need, arguments: Sequence[str]) -> bool:
    """Ask whether the script's own arguments give it, or may: a script of unknown options can read a file of them."""
    names = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    if any(name in need.options for name in names):
        return True
    if not need.words:
        return False
    following = zip(arguments, [*arguments, ""][1:], strict=True)
    pairs = [word.partition("=")[::2] if "=" in word else (word, after) for word, after in following]
    return any("config" in name.lower() and value.lower().endswith(_ARGUMENT_FILES) for name, value in pairs) or any(
        word in name.lower() for name in names for word in need.words
    )


def target_options(job: Job) -> Mapping[str, Any]:
    """The schemas of the keys that the target's own options may have."""
    return launch_keys(job.launch.target)


def can_continue(job: Job) -> bool:
    """Return whether the job's target has another job follow by itself."""
    return "continue" in launch_keys(job.launch.target)


def continuation(job: Job) -> str:
    """Return the way in which the run goes on: requeue | chain | none.

    By default a run that has a folder of checkpoints to go on from queues again: the job keeps its number, needs no
    second one in the queue, and Slurm does the same after a node's failure or a preemption.
    """
    if not can_continue(job):
        return "none"
    options = {key: value for key, value in job.launch.options.items() if value is not None}
    signalled = bool(options.get("requeue") and options.get("signal_seconds"))
    kept = job.output.checkpoints is not None and job.output.resume and options.get("requeue", True)
    return str(options.get("continue", "requeue" if signalled or kept else "none"))


@dataclass(frozen=True, slots=True)
class Version:
    """A program's version, or the versions that another one requires of it; and where that is written."""

    name: str
    version: str
    source: str


#: An image with PyTorch for each vendor's accelerators.
IMAGES: Final = {
    "nvidia": "nvcr.io/nvidia/pytorch:25.11-py3",
    "amd": "rocm/pytorch:latest",
    "intel": "vault.habana.ai/gaudi-docker/1.21.0/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:latest",
}
_LM: Final = "NVIDIA/Megatron-LM @ core_v0.16.1"
#: By the software of a framework. DeepSpeed's version is the job's.
_VERSIONS: Final[Mapping[Software, tuple[Version, ...]]] = {
    "Megatron-LM": (
        Version("Megatron-LM", "core_v0.16.1", f"{_LM} megatron/training/arguments.py"),
        Version("Transformer Engine", ">=2.9,<2.12", f"{_LM} pyproject.toml:70"),
        Version("torch", ">=2.6.0", f"{_LM} pyproject.toml:23"),
        Version("image", IMAGES["nvidia"], f"{_LM} docker/.ngc_version.dev"),
    ),
    "Megatron-DeepSpeed": (
        Version("Megatron-DeepSpeed", "4efb479d", "deepspeedai/Megatron-DeepSpeed @ 4efb479d megatron/arguments.py"),
    ),
    "Trainer": (
        Version("transformers", "5.23.0", "huggingface/transformers @ 5.23.0 src/transformers/training_args.py"),
        Version("accelerate", "1.15.0", "huggingface/accelerate @ 1.15.0 src/accelerate/accelerator.py"),
        Version("torch", ">=2.6", "huggingface/transformers @ 5.23.0 setup.py, the extra `torch`"),
    ),
    "DeepSpeed engine": (Version("torch", ">=2.0.0", "deepspeedai/DeepSpeed @ 0.19.8 requirements/requirements.txt"),),
}
_ADAPTERS: Final = Version("peft", "0.21", "huggingface/peft @ 0.21 src/peft/tuners/lora/config.py")


def written_for(job: Job) -> dict[str, str]:
    """The version of each program that the job's files are written for, `>=2.6` being at least."""
    found: dict[str, str] = {}
    for software, versions in _VERSIONS.items():
        if job.framework.runs(software):
            for each in versions:
                found.setdefault(each.name, each.version)
    vendor = job.cluster.accelerator.vendor
    if vendor != "nvidia":
        found.pop("Transformer Engine", None)  # ROCm's fork is in its images
        found |= {"image": IMAGES[vendor]} if "image" in found else {}
    if job.training.lora is not None:
        found[_ADAPTERS.name] = _ADAPTERS.version
    if job.framework.runs("DeepSpeed engine"):
        found["DeepSpeed"] = dots(job.deepspeed_version)
    return found


def listed_versions(job: Job) -> str:
    """The versions in a line: `Megatron-LM core_v0.16.1, torch >=2.6.0`."""
    return ", ".join(f"{name} {version}" for name, version in written_for(job).items())
