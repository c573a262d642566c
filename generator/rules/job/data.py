"""Data and output: what spec and `launch.arguments` say of them, and what the target mounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from ...catalog import find_model
from ...findings import ERROR, NOTE, WARNING, Violation, Violations
from ...job.arguments import gives, key_of, options_of
from ...job.needs import (
    ASSET,
    EXPRESSION,
    bindings,
    binds,
    bound_values,
    is_uri,
    only_mounted,
    spec_values,
)
from ...job.records import Job
from ...numerals import python_float
from ...patterns import lazy_pattern
from ...text.wording import NOTHING, counted, value_at
from ..planned import jobs, parallel_jobs
from ..violations import azureml, derived, violation

_CACHE: Final = "--data-cache-path"
#: A mount that can't be written, `claim:/path:ro` or `source:/path:ro`; its group is the path.
_READ_ONLY: Final = lazy_pattern(r"(?:^|:)(/[^:]*):ro\b")


@jobs.rule(
    "AML045",
    ERROR,
    "submit",
    azureml("entities/_job/_input_output_helpers.py (validate_inputs_for_command)"),
)
def mounted_names_are_declared(job: Job) -> Violations:
    """Every ${{inputs.NAME}} and ${{outputs.NAME}} of data, output and launch.arguments is an input
    or output.
    Prevents: ValidationException: Inputs to job does not contain 'NAME' referenced in command
    Fix: declare it in launch.azureml.inputs or outputs
    """
    if not binds(job):
        return
    bound = bindings(job)
    texts = [(pointer, path) for _, pointer, path in bound_values(job)]
    texts += [
        (f"/launch/arguments/{index}", word) for index, word in enumerate(job.launch.arguments)
    ]
    for pointer, text in texts:
        for match in EXPRESSION.finditer(text):
            section, name = match[1], match[2]
            if name not in bound.section(section):
                known = ", ".join(bound.section(section)) or "it has none"
                message = f"{match[0]} names none of the job's {section}: {known}"
                hint = f"add {name} to launch.{job.launch.target}.{section}"
                yield violation(job, pointer, message, hint)


@jobs.rule("AML046", ERROR, "training", derived("a program takes azureml:NAME:1 for a file's name"))
def data_is_mounted(job: Job) -> Violations:
    """Data and folders that only AzureML can mount go with target azureml.
    Prevents: FileNotFoundError, or a folder with the name azureml:
    Fix: use launch.target: azureml, or write a path that the nodes have"""
    if binds(job):
        return
    for key, pointer, path in bound_values(job):
        if only_mounted(path):
            message = f"{key} is {path}, which target {job.launch.target} doesn't mount"
            yield violation(
                job,
                pointer,
                message,
                "write a path that the nodes have, or use launch.target: azureml",
            )


@jobs.rule(
    "AML047",
    ERROR,
    "training",
    derived("an asset is mounted as a folder, whose files have names of their own"),
)
def data_names_its_files(job: Job) -> Violations:
    """Data of Megatron is the beginning of file names within what is mounted:
    azureml:corpus:1/corpus_text_document.
    Prevents: FileNotFoundError: the folder's own name with .idx
    Fix: add the name of the files without .bin and .idx
    """
    if not binds(job) or not job.framework.data_prefix:
        return
    for key, pointer, path in bound_values(job):
        asset, expression = ASSET.fullmatch(path), EXPRESSION.fullmatch(path)
        is_whole_asset = asset is not None and not asset[2]
        is_uri_of_folder = is_uri(path) and path.endswith("/")
        is_folder = expression is not None or is_whole_asset or is_uri_of_folder
        if key == "data.path" and is_folder:
            message = (
                f"data.path is {path}, a folder, of which {job.framework} needs the files' name"
            )
            hint = f"write {path.rstrip('/')}/NAME, without .bin and .idx"
            yield violation(job, pointer, message, hint)


@parallel_jobs.rule(
    "AML048",
    WARNING,
    "training",
    derived(
        "NVIDIA/Megatron-LM @ core_v0.16.1 megatron/core/datasets/gpt_dataset.py:411-414, 544-545; "
        "deepspeedai/Megatron-DeepSpeed @ 4efb479d megatron/data/gpt_dataset.py:367-373, 436, "
        "475-480: the cache is "
        "written beside the data"
    ),
)
def cache_can_be_written(job: Job) -> Violations:
    """Data that is mounted to be read has its cache elsewhere: beside output.checkpoints, or in
    --data-cache-path.
    Prevents: OSError: Read-only file system, when rank 0 writes the order of the samples; not where
    they are there yet.
    Fix: set output.checkpoints, or add --data-cache-path with a folder that all nodes share to
    launch.arguments
    """
    if job.output.checkpoints is not None or gives(job.launch.arguments, _CACHE):
        return
    bound = bindings(job)
    options: Mapping[str, Any] = job.launch.options
    mounts = (*options.get("volumes", ()), *options.get("container_mounts", ()))
    matches = filter(None, map(_READ_ONLY.search, mounts))
    folders = tuple(f"{match[1]}/" for match in matches)
    texts = [bound.word(path) for path in job.data.path]
    if any(EXPRESSION.match(text) or text.startswith(folders) for text in texts):
        name = next(iter(bound.outputs), None)
        folder = "and a folder that all nodes share"
        if name:
            folder = f"${{{{outputs.{name}}}}}/data-cache"
        message = (
            "data.path is mounted read-only, and the samples' order is written beside "
            f"it without {_CACHE}"
        )
        hint = (
            f"set output.checkpoints, beside which it is then written, or add {_CACHE} "
            f"{folder} to launch.arguments"
        )
        yield violation(job, "/data/path", message, hint)


@jobs.rule(
    "AML049",
    NOTE,
    "silent",
    derived("a node's own files are gone with its container; nodes share only mounts"),
)
def checkpoints_are_kept(job: Job) -> Violations:
    """Where data is mounted for a job, checkpoints are written to an output.
    Prevents: No error: they are gone with the node, and a start finds none.
    Fix: set output.checkpoints to azureml://datastores/NAME/paths/PATH"""
    folder = job.output.checkpoints
    if folder is not None and binds(job) and not is_uri(folder) and not EXPRESSION.match(folder):
        message = (
            f"output.checkpoints is {folder}, a folder of each node's container, unless it "
            "is a mount of its own"
        )
        hint = "set it to azureml://datastores/NAME/paths/PATH, or to ${{outputs.NAME}}"
        yield violation(job, "/output/checkpoints", message, hint)


@jobs.rule(
    "AML050", WARNING, "silent", derived("mode upload copies an output when the job has ended")
)
def checkpoints_are_written_at_once(job: Job) -> Violations:
    """An output for checkpoints is mounted, and not uploaded at the end.
    Prevents: No error: a job that is preempted has saved nothing, and a start finds none.
    Fix: use mode: rw_mount"""
    bound = bindings(job)
    match = EXPRESSION.match(bound.word(job.output.checkpoints or ""))
    entry = bound.outputs.get(match[2], {}) if match and match[1] == "outputs" else {}
    if entry.get("mode") in ("upload", "direct"):
        message = (
            f"output.checkpoints is an output of mode {entry['mode']}: nothing is there "
            "until the job has ended"
        )
        yield violation(job, "/output/checkpoints", message, "use mode: rw_mount")


@jobs.rule(
    "AML051",
    ERROR,
    "submit",
    derived("an output is a place in storage; an asset is made of it by its name"),
)
def outputs_are_places(job: Job) -> Violations:
    """Output goes to a place in storage: neither to a data asset nor to an input.
    Prevents: The service refuses the output's path, or writing fails: Read-only file system.
    Fix: write azureml://datastores/NAME/paths/PATH"""
    if not binds(job):
        return
    for key, pointer, path in bound_values(job):
        match = EXPRESSION.match(path)
        is_input = match is not None and match[1] == "inputs"
        is_read_only = is_input or ASSET.fullmatch(path) is not None
        if key.startswith("output.") and is_read_only:
            message = f"{key} is {path}, which can be read, not written"
            yield violation(
                job,
                pointer,
                message,
                "write azureml://datastores/NAME/paths/PATH, or ${{outputs.NAME}}",
            )


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


@jobs.rule(
    "ARG002", ERROR, "silent", derived("of an option that is given twice, the last one wins")
)
def arguments_agree(job: Job) -> Violations:
    """Options in launch.arguments don't contradict the spec: its model, lengths, batch, adapters,
    layout, data, output.
    Prevents: No error: one of the two values is used, and the plan counts with the other.
    Fix: give each of them once
    """
    said = {
        key_of(option): key
        for key in spec_values(job)
        for option in job.framework.options.get(key, ())
    }
    said |= {key_of(option): key for option, key in job.framework.decides.items()}
    # Other words of Megatron's are options for something else.
    common = {} if job.engine.has_parallel_layers else _COMMON
    last_options = {option.key: option for option in options_of(job.launch.arguments)}
    for option in last_options.values():
        key, text = said.get(option.key) or common.get(option.key), " ".join(option.values)
        mismatch = _other(job, key, text) if key else None
        if key is None or mismatch is None:
            continue
        value, other = mismatch
        message = f"{key} is {value}, but launch.arguments have {option.written} {text}".rstrip()
        by_us = option.key in said  # dsgen writes the option, so the script need not
        if key == "model":
            write = f"write the name of {value} there"
        elif by_us or key == _ATTENTION:
            write = f"remove {option.written}"
        else:
            write = f"write {option.written} {value.replace(',', '')}"
        # A script of the user's own may mean something else by the word.
        # The plan writes --max_steps, which goes before the Trainer's epochs.
        is_unsure = (job.engine.scripted and not by_us) or key == _EPOCHS
        severity = WARNING if is_unsure else None
        where = job.locate(f"/launch/arguments/{option.at}")
        yield Violation(where, message, f"{write}, or set {other}", severity=severity)


_ATTENTION: Final = "training.attention"
_EPOCHS: Final = "training.duration.epochs"
#: Options of training scripts by the key of the spec that says the same, whatever the framework:
#: those of examples of Megatron, transformers, accelerate, trl and LLaMA-Factory, which scripts of
#: people's own take over.
_COMMON: Final = {
    key_of(f"--{name}"): f"training.{key}" if key else "model"
    for key, names in {
        "sequence_length": "sequence_length seq_length seq_len max_seq_length max_seq_len "
        "cutoff_len block_size",
        "global_batch": "global_batch_size",
        "duration.steps": "max_steps train_steps max_train_steps num_train_steps "
        "total_steps train_iters",
        _EPOCHS.removeprefix("training."): "num_train_epochs num_epochs epochs",
        "learning_rate": "learning_rate lr",
        "weight_decay": "weight_decay",
        "gradient_clipping": "max_grad_norm",
        "attention": "attn_implementation flash_attn use_flash_attn use_flash_attention "
        "use_flash_attention_2",
        "lora.rank": "lora_rank lora_r",
        "lora.alpha": "lora_alpha",
        "": "model_name_or_path pretrained_model_name_or_path",
    }.items()
    for name in names.split()
}
#: Keys of `training` that decide what is learned, and have defaults of dsgen's.
_LEARNED: Final = ("learning_rate", "weight_decay", "gradient_clipping", "sequence_length")
_SPARES: Final = ("training.learning_rate", "training.weight_decay", "training.gradient_clipping")
#: The whole value of an option for attention, by the kind that it asks for. What others, such as
#: sdpa, run depends on the machine.
_KINDS: Final = {
    "unfused": lazy_pattern(r"eager|disabled|unfused|local"),
    "flash": lazy_pattern(r"(?:true|fused|.*(?:flash|fa[0-9]).*)?", re.IGNORECASE),
}
#: A name that begins so is a path, which says little of the model in it.
_PATH: Final = lazy_pattern(r"[./~$]|.*[:\\$]|(?:[^/]*/){2}")
_SHAPE: Final = attrgetter("layers", "hidden", "heads", "ffn", "vocab")


def filled_in(job: Job) -> dict[str, str]:
    """The keys of `training` that decide what is learned and that dsgen fills in, with its values.

    Neither the spec nor an option of launch.arguments gives them.
    """
    meant = {key_of(option): key for option, key in job.framework.decides.items()} | _COMMON
    keys_of_arguments = {meant.get(option.key) for option in options_of(job.launch.arguments)}
    return {
        name: f"{getattr(job.training, name):g}"
        for name in _LEARNED
        if f"training.{name}" not in keys_of_arguments
        and f"/training/{name}" not in job.origin.locations
    }


def _other(job: Job, key: str, text: str) -> tuple[str, str] | None:
    """The value of the spec, and the key with that of an option, where the two differ."""
    if key == "model":
        return _other_model(job, text)
    if key == _ATTENTION:
        value = job.training.attention
        text = next((kind for kind in _KINDS if _KINDS[kind].fullmatch(text)), "")
    else:
        texts = spec_values(job)
        if key not in texts:
            return _other_number(job, key, text)
        value = " ".join(texts[key])
    return (value, f"{key}: {text}") if text not in ("", value) else None


def _other_model(job: Job, text: str) -> tuple[str, str] | None:
    """The spec's model, and the one that an option names, where both are of the catalog and their
    shapes differ.
    """
    is_comparable = not _PATH.match(text) and find_model(job.model.name) is not None
    entry = find_model(text) if is_comparable else None
    if entry is None or entry.name == job.model.name:
        return None

    from ...job.hf_config import model_from_config  # saves start-up time: few specs name two

    other_model = model_from_config(entry.config, name=entry.name, source=entry.source)
    is_same = _SHAPE(other_model) == _SHAPE(job.model)
    return None if is_same else (job.model.name, f"model: {text}")


def _other_number(job: Job, key: str, text: str) -> tuple[str, str] | None:
    """The spec's number for a key, and the key with that of an option, where the two differ."""
    # A number of no weight in a plan counts where it is the spec's own, or repeated in the
    # DeepSpeed config.
    is_of_spec = (
        not job.engine.has_parallel_layers or f"/{key.replace('.', '/')}" in job.origin.locations
    )
    if key in _SPARES and not is_of_spec:
        return None
    value, written = _number_of_spec(job, key), python_float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None

    # Steps and samples that follow from tokens are rounded up or down: both are right.
    section, _, last = key.rpartition(".")
    is_of_duration = section == "training.duration" and key != _EPOCHS
    is_rounded = is_of_duration and job.training.duration_steps is None
    if written is None or written <= 0 or abs(written - value) <= is_rounded:
        return None
    is_nested = is_of_duration or section == "training.lora"
    return f"{value:,.15g}", f"{section}: {{{last}: {text}}}" if is_nested else f"{key}: {text}"


def _number_of_spec(job: Job, key: str) -> object:
    """What a job has for a key of `training` or `layout`; None where it has nothing."""
    training, (section, _, last) = job.training, key.rpartition(".")
    if key == _EPOCHS:
        return training.duration_epochs
    if section == "training.duration":
        tokens = training.duration_tokens if training.batch_ramp is None else None
        if tokens is None:
            return None
        return tokens / training.sequence_length if last == "samples" else training.steps
    holder = {"training": training, "training.lora": training.lora}.get(section, job.pins)
    return getattr(holder, last, None)


@jobs.rule("DATA009", ERROR, "silent", derived("the text of data.path goes to the script as it is"))
def paths_suit_the_script(job: Job) -> Violations:
    """Data is one path, or as many with a weight before each or with none as the script takes.
    Prevents: A weight is taken for a path, or the script stops at an argument that it doesn't have.
    Fix: write a weight before each path, or before none; give the Trainer's scripts one"""
    path, taken, where = job.data.path, job.framework.data_paths, "/data/path"
    weights = [python_float(word) is not None for word in path]
    if any(weights) and weights != [True, False] * (len(path) // 2):
        count = sum(weights)
        counts = f"{counted(count, 'weight')} and {counted(len(path) - count, 'path')}"
        message = f"data.path has {counts}, not in turn"
        yield violation(
            job,
            where,
            message,
            "write a weight before each path, such as [0.3, /data/a, 0.7, /data/b]",
        )
    elif len(path) > 1 and taken == "one":
        message = f"data.path has {len(path)} values; scripts of {job.framework} take one path"
        yield violation(job, where, message, f"use path: {path[weights.index(False)]}")
    elif len(path) > 1 and taken == "weighted" and not any(weights):
        message = f"data.path has {len(path)} paths without weights, which {job.framework} requires"
        yield violation(
            job, where, message, f"write a weight before each, such as [1, {path[0]}, 1, {path[1]}]"
        )


@jobs.rule(
    "ARG003",
    ERROR,
    "silent",
    derived("the values of deepspeed_config are put over those of the plan"),
)
def config_keys_are_not_planned(job: Job) -> Violations:
    """The keys of deepspeed_config are none that another key of the spec decides.
    Prevents: No error: the run has another batch, stage or precision than the plan counts with.
    Fix: set the spec's own key"""
    for pointer, key in job.framework.planned.items():
        if value_at(job.deepspeed_config, pointer, NOTHING) is not NOTHING:
            message = f"deepspeed_config sets {pointer[1:].replace('/', '.')}, which {key} decides"
            yield violation(
                job, f"/deepspeed_config{pointer}", message, f"remove it, and set {key}"
            )


@jobs.rule("ARG004", ERROR, "silent", derived("no other framework reads a DeepSpeed config"))
def config_has_a_reader(job: Job) -> Violations:
    """Only frameworks that run on DeepSpeed have a deepspeed_config.
    Prevents: No error: nothing reads the keys.
    Fix: remove deepspeed_config, or use a framework that runs on DeepSpeed"""
    if job.deepspeed_config and not job.framework.planned:
        message = f"deepspeed_config is not available with {job.says('framework', job.framework)}"
        hint = f"remove it, or use {job.says('framework', 'deepspeed')}"
        yield violation(job, "/deepspeed_config", message, hint)
