"""What a job needs before it can be submitted, how it goes on after its time limit, the versions
that its files are written for, and the data that its target mounts.

Versions of programs are those at which options, keys and defaults were read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Final

from ..catalog import find_model
from ..dataclass import dataclass
from ..patterns import lazy_pattern
from .arguments import argument_values, gives, options_of
from .records import Job, Need
from .schema import launch_keys

_RESUME: Final = "output.resume"
#: A token of the Hub, or no connection to it. Source: huggingface_hub 1.0, constants.py and
#: utils/_auth.py.
_LOGS_IN: Final = lazy_pattern(
    r"\b(?:HF_TOKEN(?:_PATH)?|HUGGING_FACE_HUB_TOKEN|(?:HF_HUB|TRANSFORMERS)_OFFLINE)\b(?!=(?:0|"
    r"false)?$)"
    r"|\b(?:hf auth|huggingface-cli) login\b"
)
#: A file that holds arguments, by its option and ending: a script of unknown options may read any
#: from it.
_ARGUMENT_FILE: Final = lazy_pattern(
    # `--config=a.json`, then `--config a.json`: from the word's beginning, so that each is read
    # once
    r"(?:(?<!\S)(?:(?!config)\S)*config[^\s=]*=|(?<![^\s=])(?:(?!config)[^\s=])*config[^\s=]*\s)"
    r"\S*\.(?:json|ya?ml|toml)(?!\S)",
    re.IGNORECASE,
)
#: What else gives a key of the target's options, by the condition that asks for the key.
_INSTEAD: Final = {
    "without setup": ", or setup to install the packages",
    "on several nodes without hostfile": ", or hostfile",
}
#: Rules that say of a spec what `Not ready to submit` says of its plan.
SAID_OF_PLANS: Final = frozenset({"HOST002"})
#: When a submission needs a key of its options: values of `neededToSubmit` in the schema of job
#: specs.
CONDITIONS: Final[Mapping[str, Callable[[Job], bool]]] = {
    "always": lambda job: True,
    "on several nodes without hostfile": lambda job: (
        job.nodes > 1 and not job.launch.options.get("hostfile")
    ),
    "outside Azure": lambda job: job.cluster.provider != "azure",
    "without setup": lambda job: job.launch.options.get("setup") is None,
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
    return (*_of_program(job), *_of_restarts(job), *_of_target(job))


def _of_target(job: Job) -> Iterator[Missing]:
    """The keys of the target's options that a submission needs."""
    target, options = job.launch.target, job.launch.options
    for key, schema in launch_keys(target).items():
        when = schema.get("neededToSubmit")
        if when is None or options.get(key) is not None or not CONDITIONS[when](job):
            continue
        path = f"launch.{target}.{key}"
        yield Missing(key.replace("_", " "), path, f"set {path}{_INSTEAD.get(when, '')}")


def not_ready(needs: Sequence[Missing]) -> str:
    """`Not ready to submit: no data (set data.path), no tokenizer (set data.tokenizer)`."""
    return f"Not ready to submit: {', '.join(map(str, needs))}"


def gated(job: Job) -> str | None:
    """The model or tokenizer that the run can't read from the Hub, as nothing hands it a token."""
    words = (word.partition("=")[2] or word for word in job.launch.arguments)
    for name in (*words, job.data.tokenizer.path or "", job.framework.reads_config(job) or ""):
        owner, slash, _ = name.partition("/")
        entry = find_model(name) if slash and name.count("/") == 1 else None
        if entry is not None and owner in entry.gated:
            return None if any(map(_LOGS_IN.search, _variables(job))) else name
    return None


def config_from_hub(job: Job) -> str | None:
    """The repository of the Hub whose config.json every process reads.

    None where the job sets a token for it, or says that there is no connection.
    """
    repository = job.framework.reads_config(job)
    return None if any(map(_LOGS_IN.search, _variables(job))) else repository


def _variables(job: Job) -> Iterator[str]:
    """Texts of the job's `launch` that give variables to the run."""
    yield from (f"{name}={value}" for name, value in job.launch.environment.items())
    for key in ("passed_variables", "variables_from", "setup", "directives"):
        value: Any = job.launch.options.get(key) or ()
        yield from (value,) if isinstance(value, str) else value


def spec_values(job: Job) -> dict[str, tuple[str, ...]]:
    """The keys of `data` and `output` to which the job gives a value, each with its words.

    The folder of weights is among them.
    """
    data, tokenizer, output = job.data, job.data.tokenizer, job.output
    single = {
        "training.weights": job.training.weights,
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
    by_key: dict[str, tuple[str, ...]] = {"data.path": data.path} if data.path else {}
    return by_key | {key: (str(value),) for key, value in single.items() if value is not None}


def _of_program(job: Job) -> Iterator[Missing]:
    arguments = job.launch.arguments

    # What the spec's own keys give.
    stated = set(spec_values(job))
    if job.data.tokenizer.given or job.training.weights is not None:  # a folder has its own
        stated.add("data.tokenizer")
    if job.output.checkpoints is not None or not job.output.resume:
        stated.add(_RESUME)
    if job.training.duration_tokens is not None:
        stated.add("training.duration")

    # What this script needs: a need for certain scripts may stand in for a general one.
    script = job.launch.script.replace("\\", "/").rpartition("/")[2]
    needs = [
        need
        for need in job.framework.needs
        if not need.scripts or any(fnmatchcase(script, pattern) for pattern in need.scripts)
    ]
    replaced = {need.replaces for need in needs}
    needs = [need for need in needs if need.key not in replaced]

    # What its arguments give: by an option, by a word in one, or in a file of arguments.
    written = [option.written.lower() for option in options_of(arguments)]
    has_file = _ARGUMENT_FILE.search(" ".join(arguments)) is not None

    def is_in_arguments(need: Need) -> bool:
        if gives(arguments, *need.options) or (need.words and has_file):
            return True
        return any(word in option for option in written for word in need.words)

    lacking = [need for need in needs if need.key not in stated and not is_in_arguments(need)]
    keys = {need.key for need in lacking}
    for need in lacking:
        # Where nothing is saved, there is nothing to go on from.
        if need.key != _RESUME or "output.checkpoints" not in keys:
            yield Missing(need.what, need.key, need.hint or f"set {need.key}")


def _of_restarts(job: Job) -> Iterator[Missing]:
    """What keeps a job from going on where it saved: arguments by which each start is the first."""
    framework, arguments = job.framework, job.launch.arguments
    save, *_ = framework.options.get("output.checkpoints", ("",))
    load, *_ = framework.options.get("output.resume", ("",))
    saved = argument_values(arguments, save) or spec_values(job).get("output.checkpoints")
    loaded = argument_values(arguments, load)
    if not (load and saved and job.output.resume):
        return
    instead = ""
    if framework.first_weights:
        instead = f"; {framework.first_weights} FOLDER in its place is for the first start alone"
    if loaded and loaded != saved:
        where = f"{load} {' '.join(loaded)} is not {save} {' '.join(saved)}"
        yield Missing("resume", _RESUME, f"{where}: every start begins there{instead}")
    elif framework.starts_anew and gives(arguments, framework.starts_anew):
        instead = instead or f": take {framework.starts_anew} out when the run has saved"
        yield Missing(
            "resume", _RESUME, f"every start with {framework.starts_anew} is at step 0{instead}"
        )


def can_continue(job: Job) -> bool:
    """Return whether the job's target has another job follow by itself."""
    return "continue" in launch_keys(job.launch.target)


def continuation(job: Job) -> str:
    """Return the way in which the run goes on: requeue | chain | none.

    By default a run that has a folder of checkpoints to go on from queues again: the job keeps its
    number, needs no second one in the queue, and Slurm does the same after a node's failure or a
    preemption.
    """
    if not can_continue(job):
        return "none"
    options = {key: value for key, value in job.launch.options.items() if value is not None}
    is_signalled = bool(options.get("requeue") and options.get("signal_seconds"))
    can_resume = job.output.checkpoints is not None and job.output.resume
    requeues = is_signalled or (can_resume and options.get("requeue", True))
    return str(options.get("continue", "requeue" if requeues else "none"))


#: An image with PyTorch for each vendor's accelerators.
IMAGES: Final = {
    "nvidia": "nvcr.io/nvidia/pytorch:25.11-py3",
    "amd": "rocm/pytorch:latest",
    "intel": "vault.habana.ai/gaudi-docker/1.21.0/ubuntu22.04/habanalabs/"
    "pytorch-installer-2.6.0:latest",
}
#: An image with a vendor's fork of Transformer Engine too, where the one above lacks it. Source:
#: AMD-AGI/Primus docs/01-getting-started/release-notes.md @ 45328e79 (PyTorch 2.12, Transformer
#: Engine 2.17, Python 3.12).
_WITH_TRANSFORMER_ENGINE: Final[Mapping[str, str]] = {"amd": "rocm/primus:v26.7"}


#: Packages of kernels by the least version that transformers takes.
#: Source: huggingface/transformers @ 5.23.0 src/transformers/utils/import_utils.py
KERNELS: Final[Mapping[str, str]] = {"flash-linear-attention": ">=0.2.2", "mamba-ssm": ">=2.0.4"}


def written_for(job: Job) -> dict[str, str]:
    """The version of each program that the job's files are written for, `>=2.6` being at least."""
    versions = {**job.framework.versions, **job.framework.packages(job)}
    vendor = job.cluster.accelerator.vendor
    if vendor != "nvidia":
        by_te = versions.pop("Transformer Engine", None) is not None  # others have forks of it
        images = _WITH_TRANSFORMER_ENGINE if by_te else IMAGES
        versions |= {"image": images.get(vendor, IMAGES[vendor])} if "image" in versions else {}
    versions |= {name: KERNELS.get(name, "any") for name in job.model.kernels}
    if job.training.lora is not None and not job.framework.recipes:
        versions["peft"] = "0.21"  # huggingface/peft @ 0.21 src/peft/tuners/lora/config.py
    return versions


def default_image(job: Job) -> str:
    """The image that containers run where the job names none."""
    return written_for(job).get("image", IMAGES[job.cluster.accelerator.vendor])


def listed_versions(job: Job) -> str:
    """The versions in a line: `Megatron-LM 0.19.2, torch >=2.6.0`."""
    return ", ".join(
        f"{name} {version}".removesuffix(" any") for name, version in written_for(job).items()
    )


#: What AzureML replaces with a mounted path: `${{inputs.data}}`. Groups: section, name.
EXPRESSION: Final = lazy_pattern(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
#: A data asset, `azureml:corpus:3`, and a path within it.
ASSET: Final = lazy_pattern(r"azureml:(?![/\\])([^/:@]+(?:[:@][^/]+)?)(?:/(.+))?")
_URI: Final = lazy_pattern(
    r"(?:azureml|https?|wasbs?|abfss?|adl)://\S.*|azureml:\S.*", re.IGNORECASE
)
_SUFFIX: Final = lazy_pattern(r"\.[A-Za-z0-9]{1,8}$")
_OUTPUTS: Final = ("output.checkpoints", "output.logs")
_FILES: Final = ("data.tokenizer.vocab_file", "data.tokenizer.merges_file")
PATHS: Final = ("training.weights", "data.path", "data.tokenizer.path", *_FILES, *_OUTPUTS)
_MODES: Final = {"inputs": "ro_mount", "outputs": "rw_mount"}

Entry = Mapping[str, object]


@dataclass(slots=True)
class Bindings:
    """The inputs and outputs that are mounted, and the expressions that stand for them."""

    inputs: dict[str, Entry] = field(default_factory=dict)
    outputs: dict[str, Entry] = field(default_factory=dict)
    #: a URI of the spec, and what the program gets for it
    words: dict[str, str] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Entry]:
        """The inputs, or the outputs."""
        return self.inputs if name == "inputs" else self.outputs

    def word(self, text: str) -> str:
        """A word of the program's arguments, with an expression where it is a URI of the spec."""
        return self.words.get(text, text)


def binds(job: Job) -> bool:
    """Return whether the job's target mounts data."""
    return "inputs" in launch_keys(job.launch.target)


def bound_values(job: Job) -> Iterator[tuple[str, str, str]]:
    """Each path of `data` and `output`, and the folder of weights.

    It comes as the key of the spec, its pointer, and the path.
    """
    for key, values in spec_values(job).items():
        if key not in PATHS:
            continue
        pointer = f"/{key.replace('.', '/')}"
        for index, path in enumerate(values):
            yield key, f"{pointer}/{index}" if len(values) > 1 else pointer, path


def is_uri(text: str) -> bool:
    """Return whether a path of the spec names storage that a target can mount."""
    return _URI.fullmatch(text) is not None


def only_mounted(text: str) -> bool:
    """Return whether a path means something only to a target that mounts data."""
    return text.lower().startswith("azureml:") or EXPRESSION.search(text) is not None


def bindings(job: Job) -> Bindings:
    """The inputs and outputs that the job declares, and those for URIs in `data` and `output`."""
    bound = Bindings()
    if not binds(job):
        return bound
    for section, mode in _MODES.items():
        declared: Any = job.launch.options.get(section) or {}
        for name, value in declared.items():
            entry = {"path": value} if isinstance(value, str) else value
            is_input = section == "inputs"
            usual_kind = _kind(str(entry.get("path", ""))) if is_input else "uri_folder"
            kind = entry.get("type") or usual_kind
            usual = "eval_mount" if kind == "mltable" and is_input else mode
            bound.section(section)[name] = {"type": kind, **entry, "mode": entry.get("mode", usual)}
    for key, _, path in bound_values(job):
        if is_uri(path) and path not in bound.words:
            bound.words[path] = _bound(job, bound, key, path)
    return bound


def _bound(job: Job, bound: Bindings, key: str, uri: str) -> str:
    """The expression for a URI of the spec. Where it has no input or output yet, one is added."""
    section = "outputs" if key in _OUTPUTS else "inputs"
    path, rest, kind = uri, "", "uri_folder" if section == "outputs" else _kind(uri)
    takes_prefix = key == "data.path" and job.framework.data_prefix and not job.packs_sequences
    asset = ASSET.fullmatch(uri)
    if asset:  # the mounted place, and the path within
        path, rest, kind = f"azureml:{asset[1]}", asset[2] or "", "uri_folder"
    elif takes_prefix and not uri.endswith("/"):  # its folder, and the beginning of names in it
        path, _, rest = uri.rpartition("/")
        kind = "uri_folder"
    if key in _FILES and not rest:
        kind = "uri_file"
    entries = bound.section(section)
    with_path = (
        name
        for name, entry in entries.items()
        if str(entry.get("path", "")).rstrip("/") == path.rstrip("/")
    )

    # The name says what it is: data, tokenizer, checkpoints; data_2 where that is taken.
    words = key.split(".")
    base = words[-2] if words[-1] == "path" else words[-1]
    numbered = (f"{base}_{number}" for number in range(2, len(entries) + 3))
    free = (name for name in (base, *numbered) if name not in entries)
    name = next(with_path, None) or next(free)
    entries.setdefault(name, {"type": kind, "path": path, "mode": _MODES[section]})
    return f"${{{{{section}.{name}}}}}" + (f"/{rest}" if rest else "")


def _kind(path: str) -> str:
    has_suffix = _SUFFIX.search(path.rpartition("/")[2]) is not None
    return "uri_file" if has_suffix and not ASSET.fullmatch(path) else "uri_folder"
