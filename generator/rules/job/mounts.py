"""Data that the target mounts: what the spec and `launch.arguments` name is there, readable, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...findings import ERROR, NOTE, WARNING, Violations
from ...job.bindings import ASSET, EXPRESSION, Bindings, bindings, binds, bound_values, is_uri, only_mounted
from ...job.needs import argument_values
from ...job.records import Job
from ..planned import jobs, megatron_jobs, violation
from ..sources import azureml, derived

_CACHE: Final = "--data-cache-path"


@jobs.rule("AML045", ERROR, "submit", azureml("entities/_job/_input_output_helpers.py (validate_inputs_for_command)"))
def mounted_names_are_declared(job: Job) -> Violations:
    """Every ${{inputs.NAME}} and ${{outputs.NAME}} of data, output and launch.arguments is an input or output.

    Prevents: ValidationException: Inputs to job does not contain 'NAME' referenced in command
    Fix: declare it in launch.azureml.inputs or outputs"""
    found = bindings(job)
    for pointer, text in _texts(job) if binds(job) else ():
        for match in EXPRESSION.finditer(text):
            section, name = match[1], match[2]
            if not found.has(section, name):
                message = f"{match[0]} names none of the job's {section}: {_listed(found, section)}"
                hint = f"add {name} to launch.{job.launch.target}.{section}"
                yield violation(job, pointer, message, hint)


def _texts(job: Job) -> Iterator[tuple[str, str]]:
    yield from ((pointer, path) for _, pointer, path in bound_values(job))
    yield from ((f"/launch/arguments/{index}", word) for index, word in enumerate(job.launch.arguments))


def _listed(found: Bindings, section: str) -> str:
    return ", ".join(found.section(section)) or "it has none"


@jobs.rule("AML046", ERROR, "training", derived("a program takes azureml:NAME:1 for a file's name"))
def data_is_mounted(job: Job) -> Violations:
    """Data and folders that only AzureML can mount go with target azureml.

    Prevents: FileNotFoundError, or a folder with the name azureml:
    Fix: use launch.target: azureml, or write a path that the nodes have"""
    for key, pointer, path in bound_values(job) if not binds(job) else ():
        if only_mounted(path):
            message = f"{key} is {path}, which target {job.launch.target} doesn't mount"
            yield violation(job, pointer, message, "write a path that the nodes have, or use launch.target: azureml")


@jobs.rule("AML047", ERROR, "training", derived("an asset is mounted as a folder, whose files have names of their own"))
def data_names_its_files(job: Job) -> Violations:
    """Data of Megatron is the beginning of file names within what is mounted: azureml:corpus:1/corpus_text_document.

    Prevents: FileNotFoundError: the folder's own name with .idx
    Fix: add the name of the files without .bin and .idx"""
    for key, pointer, path in bound_values(job) if binds(job) and job.framework.data_prefix else ():
        asset, expression = ASSET.fullmatch(path), EXPRESSION.fullmatch(path)
        if key == "data.path" and (expression or (asset and not asset[2]) or (is_uri(path) and path.endswith("/"))):
            message = f"data.path is {path}, a folder, of which {job.framework} needs the files' name"
            hint = f"write {path.rstrip('/')}/NAME, without .bin and .idx"
            yield violation(job, pointer, message, hint)


@megatron_jobs.rule(
    "AML048",
    WARNING,
    "training",
    derived(
        "NVIDIA/Megatron-LM @ core_v0.16.1 megatron/core/datasets/gpt_dataset.py:411-414, 544-545; "
        "deepspeedai/Megatron-DeepSpeed @ 4efb479d megatron/data/gpt_dataset.py:367-373, 436, 475-480: the cache is "
        "written beside the data"
    ),
)
def cache_can_be_written(job: Job) -> Violations:
    """Data that is mounted to be read has its cache elsewhere: --data-cache-path.

    Prevents: OSError: Read-only file system, when rank 0 writes the order of the samples; not where they are there yet.
    Fix: add --data-cache-path with a folder that all nodes share to launch.arguments"""
    found = bindings(job)
    mounted = [text for path in job.data.path if EXPRESSION.match(text := found.word(path))]
    if not mounted or argument_values(job.launch.arguments, _CACHE):
        return
    name = next(iter(found.outputs), None)
    folder = f"${{{{outputs.{name}}}}}/data-cache" if name else "and a folder that all nodes share"
    message = f"data.path is mounted read-only, and the samples' order is written beside it without {_CACHE}"
    yield violation(job, "/data/path", message, f"add {_CACHE} {folder} to launch.arguments")


@jobs.rule("AML049", NOTE, "silent", derived("a node's own files are gone with its container; nodes share only mounts"))
def checkpoints_are_kept(job: Job) -> Violations:
    """Where data is mounted for a job, checkpoints are written to an output.

    Prevents: No error: they are gone with the node, and a start finds none.
    Fix: set output.checkpoints to azureml://datastores/NAME/paths/PATH"""
    folder = job.output.checkpoints
    if folder is not None and binds(job) and not is_uri(folder) and not EXPRESSION.match(folder):
        message = f"output.checkpoints is {folder}, a folder of each node's container, unless it is a mount of its own"
        hint = "set it to azureml://datastores/NAME/paths/PATH, or to ${{outputs.NAME}}"
        yield violation(job, "/output/checkpoints", message, hint)


@jobs.rule("AML050", WARNING, "silent", derived("mode upload copies an output when the job has ended"))
def checkpoints_are_written_at_once(job: Job) -> Violations:
    """An output for checkpoints is mounted, and not uploaded at the end.

    Prevents: No error: a job that is preempted has saved nothing, and a start finds none.
    Fix: use mode: rw_mount"""
    found = bindings(job)
    match = EXPRESSION.match(found.word(job.output.checkpoints or ""))
    entry = found.outputs.get(match[2], {}) if match and match[1] == "outputs" else {}
    if entry.get("mode") in ("upload", "direct"):
        message = f"output.checkpoints is an output of mode {entry['mode']}: nothing is there until the job has ended"
        yield violation(job, "/output/checkpoints", message, "use mode: rw_mount")


@jobs.rule("AML051", ERROR, "submit", derived("an output is a place in storage; an asset is made of it by its name"))
def outputs_are_places(job: Job) -> Violations:
    """What is written goes to a place in storage: neither to a data asset nor to an input.

    Prevents: The service refuses the output's path, or writing fails: Read-only file system.
    Fix: write azureml://datastores/NAME/paths/PATH"""
    for key, pointer, path in bound_values(job) if binds(job) else ():
        match = EXPRESSION.match(path)
        read_only = ASSET.fullmatch(path) is not None or (match is not None and match[1] == "inputs")
        if key.startswith("output.") and read_only:
            message = f"{key} is {path}, which can be read, not written"
            yield violation(job, pointer, message, "write azureml://datastores/NAME/paths/PATH, or ${{outputs.NAME}}")
