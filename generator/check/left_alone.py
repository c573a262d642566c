"""Why a file isn't judged: a finding where the user named it, else a reason in the account."""

from __future__ import annotations

from typing import Final

from ..findings import Finding, Location
from ..job.schema import answer_with
from ..submission.script import is_template
from ..text.wording import with_article
from . import codes, kinds
from .file import File
from .job_signs import (
    LAUNCH_LINES,
    names_config,
    schedules,
    shows_job_object,
    starts_launcher,
)

CHECKED_KINDS: Final = (
    "a job spec, ds_config.json, launch script, job of AzureML, Kubernetes or SkyPilot, accelerate "
    "config or hostfile"
)
#: Programs that read YAML which others make of templates.
_TEMPLATED: Final = frozenset({"Kubernetes", "SkyPilot"})
TEMPLATE: Final = "this is a template, of which another program makes a {}"
OWN_PROGRAM: Final = "read by a program of the repository's own"
HIDDEN: Final = "launch lines, in a hidden folder"
WRITTEN: Final = "written by a script"
OF_HTCONDOR: Final = "of HTCondor"
OF_SUBMITIT: Final = "written by submitit for one job"


def refusal_of(file: File) -> Finding:
    """The finding on a file that the user named and dsgen doesn't check: it says what it is."""
    message = "unknown kind of document"
    hint = f"name {CHECKED_KINDS}, or a folder of them"
    if file.program in _TEMPLATED and is_template(file.content):
        message = TEMPLATE.format(f"file of {file.program}")
        hint = "check what that program makes, such as the output of helm template"
    elif file.program:
        message = f"this is a file of {file.program}, which dsgen does not check"
    elif file.other_job is not None:
        job = with_article(file.other_job)
        message = f"this is {job}; of AzureML's files dsgen checks command jobs only"
    elif file.is_json and (answer := answer_with(file.keys)) is not None:
        message = f"this is an answer of dsgen's (`dsgen schema {answer}`)"
        hint = "name the folder of the files that dsgen generate wrote, or the job spec"
    return codes.UNKNOWN_KIND.at(Location(path=file.text.path), message, hint)


def why_left_alone(file: File) -> str | None:
    """Why a file of a folder isn't judged, where the user may expect that it is; else None."""
    if kinds.is_for_another(file.path, file.content):
        return "a script that bash doesn't read"
    if file.belongs_to or kinds.is_evidence(file.keys):
        program = file.program or ("AzureML" if file.other_job else "")
        if program in _TEMPLATED and is_template(file.content):
            return f"a template for {program}"
        return f"of {program}" if program else "not recognized"
    if not (file.is_json or file.is_yaml):
        return None
    content = file.content.encode("utf-8", "replace")
    if file.is_json and shows_job_object(content):
        return "of Kubernetes, but not as JSON or YAML"
    if file.is_yaml and (starts_launcher(content) or schedules(content)):
        return LAUNCH_LINES
    return OWN_PROGRAM if file.is_yaml and names_config(content) else None
