"""Which files of a folder are worth reading: by their names, and some by how they begin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Final

from ..text.around import files_below
from .job_signs import beginning_of, is_batch_script, is_manifest, is_submit_file, launches_in
from .kinds import CONFIG_NAME, MAPPINGS, SCRIPTS

_OUR_TEXTS: Final = ("arguments.txt", "overrides.txt")
#: Suffixes of texts, workflows and templates, which may have launch lines.
_HOLDERS: Final = frozenset(
    {
        *(".ipynb", ".j2", ".md", ".mk", ".nf", ".py", ".rst", ".smk", ".tape", ".tmpl"),
        *(".toml", ".tpl"),
    }
)
#: Suffixes of texts and templates that may be batch scripts, too.
_TEXTS: Final = frozenset(
    {".def", ".dockerfile", ".jinja", ".jinja2", ".jsonnet", ".libsonnet", ".tftpl", ".txt"}
)
#: Hidden folders that hold copies of files: of other commits, in environments and caches.
_FOLDERS_OF_COPIES: Final = frozenset(
    {".cache", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".nox", ".svn", ".tox"}
)
_MOST_BLANK: Final = 64  # bytes before the brace that JSON begins with
_MOST_HIDDEN: Final = 2_000  # files of hidden folders that are looked at


def is_candidate(path: PurePath) -> bool:
    """Return whether a file of a folder may be a document, by its name alone."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name.startswith("."):
        return name == ".deepspeed_env"
    return suffix in SCRIPTS | MAPPINGS or name in _OUR_TEXTS or name.startswith("hostfile")


def may_hold_launch_line(path: PurePath) -> bool:
    """Return whether a file that is no document may have launch lines, by its name alone.

    A hidden file may be the configuration of a service that starts jobs, such as `.gitlab-ci.yml`.
    """
    suffix = path.suffix.lower()
    if path.name.startswith("."):
        return suffix in SCRIPTS | MAPPINGS
    # `job.yaml.template`, `job.yaml-template`
    return may_be_script(path) or suffix in _HOLDERS or suffix.endswith("template")


def may_be_script(path: PurePath) -> bool:
    """Return whether a file may be a batch script, though its suffix isn't one of scripts."""
    return not path.suffix or path.suffix.lower() in _TEXTS


def with_launches(hidden: Iterable[Path], most_bytes: int) -> Iterator[Path]:
    """The files in and below hidden folders that start jobs.

    They have launch lines, are batch scripts, or are objects of Kubernetes. Folders of copies and
    virtual environments are passed over. Files of more than `most_bytes` aren't read.
    """
    folders = (
        folder
        for folder in hidden
        if folder.name not in _FOLDERS_OF_COPIES and not (folder / "pyvenv.cfg").is_file()
    )
    below = chain.from_iterable(map(files_below, folders))
    for path in islice(below, _MOST_HIDDEN):
        by_name = is_candidate(path) or may_hold_launch_line(path)
        if not by_name or os.path.islink(path):  # noqa: PTH114 - as in `candidates`
            continue
        starts_job = bool(launches_in(path, most_bytes)) or is_batch_script(path)
        if starts_job or is_manifest(path, most_bytes):
            yield path


def _is_deepspeed_json(path: Path) -> bool:
    """Return whether a file has a name of DeepSpeed's configs alone and begins as JSON, whatever
    its suffix: `ds_zero2.config`.
    """
    has_name = CONFIG_NAME.search(path.name.lower()) is not None
    return has_name and beginning_of(path, _MOST_BLANK).lstrip().startswith(b"{")


#: What shows that a file is worth a look, whatever its name.
_SHOW_BY_CONTENT: Final = (is_batch_script, _is_deepspeed_json, is_submit_file)


def candidates(folder: Path, hidden: list[Path] | None = None) -> Iterator[Path]:
    """The files in and below a folder that may be documents or have launch lines, in order.

    Links to files in the folder come last, so that a file is read by its own name first. Hidden
    folders, other links, pipes and devices are left out; the hidden folders are appended to
    `hidden`, where it is given.
    """
    links = list[Path]()
    for path in files_below(folder, hidden=hidden):
        by_name = is_candidate(path) or may_hold_launch_line(path)
        if os.path.islink(path):  # noqa: PTH114 - what may not be read is an error to pathlib
            if by_name:
                links.append(path)
        elif not os.path.isfile(path):  # noqa: PTH113
            continue
        elif by_name or any(shows(path) for shows in _SHOW_BY_CONTENT):
            yield path
    root = os.path.realpath(folder)
    yield from (
        link
        for link in links
        if Path(os.path.realpath(link)).is_relative_to(root) and link.is_file()
    )
