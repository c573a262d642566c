"""Data that the target mounts for the job: its inputs and outputs, and what of the spec they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .needs import spec_values
from .records import Job
from .schema import launch_keys

#: What the target replaces with a path; the whole of it, and the section and the name.
EXPRESSION: Final = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
ASSET: Final = re.compile(r"azureml:(?![/\\])([^/:@]+(?:[:@][^/]+)?)(?:/(.+))?")  #: and a path within it
_URI: Final = re.compile(r"(?:azureml|https?|wasbs?|abfss?|adl)://\S.*|azureml:\S.*", re.IGNORECASE)
_OWN_URI: Final = "azureml:"  #: that no program but the target can read
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,8}$")
_OUTPUTS: Final = ("output.checkpoints", "output.logs")
_FILES: Final = ("data.tokenizer.vocab_file", "data.tokenizer.merges_file")
_PATHS: Final = ("data.path", "data.tokenizer.path", *_FILES, *_OUTPUTS)
_MODES: Final = {"inputs": "ro_mount", "outputs": "rw_mount"}

Entry = Mapping[str, object]


@dataclass(slots=True)
class Bindings:
    """The inputs and outputs that are mounted, and the expressions that stand for them."""

    inputs: dict[str, Entry] = field(default_factory=dict)
    outputs: dict[str, Entry] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  #: a URI of the spec, and what the program gets for it

    def has(self, section: str, name: str) -> bool:
        """Return whether an expression stands for anything."""
        return name in self.section(section)

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
    """The paths of `data` and `output`: key of the spec, its pointer, and the path."""
    for key, values in spec_values(job).items():
        pointer = f"/{key.replace('.', '/')}"
        for index, path in enumerate(values if key in _PATHS else ()):
            yield key, f"{pointer}/{index}" if len(values) > 1 else pointer, path


def is_uri(text: str) -> bool:
    """Return whether a path of the spec names storage that a target can mount."""
    return _URI.fullmatch(text) is not None


def only_mounted(text: str) -> bool:
    """Return whether a path means something only to a target that mounts data."""
    return text.lower().startswith(_OWN_URI) or EXPRESSION.search(text) is not None


def bindings(job: Job) -> Bindings:
    """The inputs and outputs that the job declares, and those for the URIs in its `data` and `output`."""
    found = Bindings()
    if not binds(job):
        return found
    for section, mode in _MODES.items():
        declared: Any = job.launch.options.get(section) or {}
        for name, value in declared.items():
            given = {"path": value} if isinstance(value, str) else value
            kind = given.get("type") or (_kind(str(given.get("path", ""))) if section == "inputs" else "uri_folder")
            usual = "eval_mount" if kind == "mltable" and section == "inputs" else mode
            found.section(section)[name] = {"type": kind, **given, "mode": given.get("mode", usual)}
    for key, _, path in bound_values(job):
        if is_uri(path) and path not in found.words:
            found.words[path] = _bound(job, found, key, path)
    return found


def _bound(job: Job, found: Bindings, key: str, uri: str) -> str:
    """The expression for a URI of the spec, whose input or output is added where there is none for it yet."""
    section = "outputs" if key in _OUTPUTS else "inputs"
    prefix = key == "data.path" and job.framework.data_prefix
    path, rest, kind = _parted(uri, prefix=prefix)
    if section == "outputs":
        kind = "uri_folder"
    elif key in _FILES and not rest:
        kind = "uri_file"
    entries = found.section(section)
    same = (name for name, entry in entries.items() if str(entry.get("path", "")).rstrip("/") == path.rstrip("/"))
    words = key.split(".")
    base = words[-2] if words[-1] == "path" else words[-1]  # data, tokenizer, checkpoints; data_2 where it is taken
    numbered = (f"{base}_{number}" for number in range(2, len(entries) + 3))
    name = next(same, None) or next(name for name in (base, *numbered) if name not in entries)
    entries.setdefault(name, {"type": kind, "path": path, "mode": _MODES[section]})
    return f"${{{{{section}.{name}}}}}" + (f"/{rest}" if rest else "")


def _parted(uri: str, *, prefix: bool) -> tuple[str, str, str]:
    """Split a value into the mounted place, the path within, and its kind; of a prefix of names, take the folder."""
    asset = ASSET.fullmatch(uri)
    if asset is not None:
        return f"azureml:{asset[1]}", asset[2] or "", "uri_folder"
    if prefix and not uri.endswith("/"):
        folder, _, name = uri.rpartition("/")
        return folder, name, "uri_folder"
    return uri, "", _kind(uri)


def _kind(path: str) -> str:
    return "uri_file" if _SUFFIX.search(path.rpartition("/")[2]) and not ASSET.fullmatch(path) else "uri_folder"
