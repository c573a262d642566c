"""Templates, of which another program makes a file that is checked.

They aren't read, and are named among the files that are left alone.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

from ..text.wording import with_article
from .file import json_keys, loose_keys, yaml_keys
from .job_signs import shows_job_object
from .kinds import MAPPINGS, YAML, kind_of
from .other_programs import ANOTHER, is_read, program_by_keys

#: Endings of templates, of which another program makes files: `job.tpl`, `job.yaml.j2`.
_TEMPLATES: Final = (".tpl", ".tmpl", ".j2", ".jinja", ".jinja2", ".tftpl", "template")
_KUBERNETES: Final = "a template for Kubernetes"


def template_for(path: Path, most_bytes: int) -> str | None:
    """What a template is for: "a template for a DeepSpeed config".

    None where it is nothing that is known. A template of more than `most_bytes` isn't looked into.
    """
    name = path.name.lower()
    ending = next(filter(name.endswith, _TEMPLATES), None)
    if ending is None:
        return None
    try:
        content = path.read_bytes() if path.stat().st_size <= most_bytes else b""
    except OSError:
        return None
    if shows_job_object(content):
        return _KUBERNETES
    made = PurePath(name.removesuffix(ending).rstrip(".-_"))
    return _template_of(made, content.decode("utf-8", "replace"))


def _template_of(made: PurePath, content: str) -> str | None:
    """What a template is for, by the name of the file that is `made` of it and by its keys."""
    if made.suffix not in MAPPINGS:
        return None
    is_json = made.suffix not in YAML
    # What a template has in the place of values is rarely JSON.
    keys = (json_keys(content) or loose_keys(content)) if is_json else yaml_keys(content)
    program = program_by_keys(keys, content, is_json=is_json)
    if program is not None:
        is_known = program != ANOTHER and (is_read(program) or program == "SkyPilot")
        return f"a template for {program}" if is_known else None
    kind = kind_of(made, content, keys)
    return None if kind is None else f"a template for {with_article(kind)}"
