"""Rules on a config's text: it is JSON that its reader can read, has each key once, and no
placeholder of a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations, printable
from ....rules.violations import deepspeed, violation
from ....submission.references import Reference
from ....submission.repository import program_path, program_text
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.hjson.edits import to_strict
from ....text.wording import walk
from ...python_around import loads_json
from ..config import Config, has_auto
from ..submission import configs_of
from .placeholders import bare_placeholders, filled_in, is_filled_in, leftover
from .subjects import ds_configs, edits_of, is_placeholder
from .walk import problems_of

_WITH_SCRIPTS: Final = ("DeepSpeed config", "launch script")
_JSON: Final = deepspeed(
    "runtime/config.py:699; compression/compress.py:24, check_deepspeed_config, reads by json"
)
_STAGES: Final = deepspeed("runtime/zero/config.py:95, runtime/config.py:699")
_INITIALIZES: Final = "deepspeed.initialize("
_SLIPS_OF_SYNTAX: Final = ("a missing comma", "a trailing comma", "a comment")


@ds_configs.rule("PARSE001", ERROR, "parse", deepspeed("runtime/config_utils.py:205-211"))
def keys_are_once(config: Config) -> Violations:
    """An object of the config has each key once.
    Prevents: ValueError: Duplicate keys in DeepSpeed config
    Fix: keep one of the two"""
    effect, severity = "DeepSpeed refuses the config", None
    if config.consumer != "deepspeed":
        effect, severity = "the last one is used, silently", Severity.WARNING
    for duplicate in config.json.duplicates:
        key = printable(duplicate.pointer.rpartition("/")[2])[:80]
        line = config.json.lines.locate(duplicate.first).line
        where = config.json.lines.locate(duplicate.second, duplicate.pointer)
        message = f"duplicate key `{key}`, first on line {line}: {effect}"
        yield Violation(where, message, "keep one of them", severity=severity)


@submissions.rule("PARSE002", WARNING, "parse", _JSON, reads=_WITH_SCRIPTS)
def text_is_json(submission: Submission) -> Violations:
    """The config is JSON, as every program that may read it requires.
    Prevents: json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read
    strict JSON, as
        DeepSpeed's compression does, and programs that open the config by themselves
    Fix: write strict JSON
    """
    for config in configs_of(submission):
        if config.json.broken is None and not config.json.deviations:
            continue  # it is JSON, as most are

        text = filled_in(config)
        if text is None or text.broken is not None or not text.deviations or config.is_empty:
            continue

        # Beside a placeholder, a name that no pattern knows may be one too: only what no
        # placeholder makes is a slip.
        slips = text.deviations
        has_placeholders = text is not config.json  # else `filled_in` gives the text itself
        if has_placeholders and any(slip.what not in _SLIPS_OF_SYNTAX for slip in slips):
            continue

        refusal = _refused_as_json(submission, config)
        others = "Transformers, accelerate and Megatron-DeepSpeed don't"
        if config.consumer == "lightning":
            others = "Lightning doesn't"
        more = len(slips) - 1
        rest = f" (and {more} more place{'s' if more > 1 else ''})" if more else ""
        loses_text = has_placeholders or any(slip.what == "a comment" for slip in slips)
        yield Violation(
            config.json.lines.locate(slips[0].start),
            f"{slips[0].what} is HJSON, not JSON{rest}: DeepSpeed reads it, {refusal or others}",
            "write strict JSON: double quotes, commas between members only, no comments",
            severity=ERROR if refusal else _severity_of_slip(submission, config, slips[0].what),
            edits=() if loses_text else edits_of(config, to_strict),
        )


def _severity_of_slip(submission: Submission, config: Config, what: str) -> Severity | None:
    """An error where the config's reader wants strict JSON, a note where nothing may; else None,
    which stands for the rule's own severity.
    """
    # Only programs that read strict JSON fill in "auto".
    consumer_is_sure = not config.guessed or has_auto(config)
    if consumer_is_sure and config.consumer != "deepspeed":
        return ERROR
    if config.unclaimed and what != "a missing comma":
        return NOTE  # nothing reads it as strict JSON, so it may be meant as HJSON
    return NOTE if _only_deepspeed_reads(submission, config) else None


def _references_to(submission: Submission, config: Config) -> list[Reference]:
    """The references of the submission to the text of a config."""
    return [
        link
        for link in submission.references
        if any(getattr(document, "json", None) is config.json for document in link.documents)
    ]


def _only_deepspeed_reads(submission: Submission, config: Config) -> bool:
    """Return whether every program that gets the config could be read, and hands it to
    DeepSpeed.
    """
    links = _references_to(submission, config)
    return bool(links) and all(
        link.reader == "deepspeed" and _INITIALIZES in (program_text(link.launch) or "")
        for link in links
        if link.launch is not None
    )


def _refused_as_json(submission: Submission, config: Config) -> str | None:
    """What surely reads the config as strict JSON, as a message ends: `train.py doesn't`."""
    if config.has("/compression_training"):
        return "its compression doesn't"
    for link in _references_to(submission, config):
        if link.launch is not None and loads_json(link.launch):
            return f"{program_path(link.launch)} doesn't"
    return None


@ds_configs.rule("PARSE016", ERROR, "parse", deepspeed("runtime/config.py:699"))
def text_can_be_read(config: Config) -> Violations:
    """The config is well-formed for the program that reads it.
    Prevents: HjsonDecodeError, or json.JSONDecodeError
    Fix: correct the text at the place named"""
    text = filled_in(config) if leftover(config) else config.json
    broken = None
    if text is not None:
        broken = text.hjson_broken if config.consumer == "deepspeed" else text.broken

    if config.is_empty:
        hint = 'write {"train_batch_size": 256, "bf16": {"enabled": true}}'
        severity = NOTE if config.unclaimed else None
        message = "the file is empty: there is no config in it"
        yield violation(config, "", message, hint, severity=severity)
    elif broken is not None:
        yield Violation(
            config.json.lines.locate(broken.offset),
            f"the config can't be read: {broken.message}",
            _mended(broken.message),
        )


def _mended(message: str) -> str:
    """What mends a text that can't be read, by the reader's message."""
    opened = re.search(r"the `([{\[])` in line [0-9]+ is not closed", message)
    if opened:
        return "add the missing `}`" if opened[1] == "{" else "add the missing `]`"
    if "quote is missing" in message:
        return 'add the missing `"`'
    if message.startswith("`,` stands"):
        return "remove a comma: there is one too many"
    return (
        "check here: quotes around texts, `:` after a key, one comma between two "
        "members, brackets in pairs"
    )


@submissions.rule("PARSE015", ERROR, "parse", _STAGES, reads=_WITH_SCRIPTS)
def templates_are_filled_in(submission: Submission) -> Violations:
    """No unfilled placeholder of a template is left in place of a value of a config that a job
    reads as it is.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3 [input_value='ZERO_STAGE'], or
    HjsonDecodeError
    Fix: fill the template in before the job starts
    """
    # A template beside the config that a script makes of it is judged by that.
    written_by_scripts = {config.path for config in configs_of(submission) if config.embedded}
    named = {link.name for link in submission.references if link.kind == "DeepSpeed config"}
    for config in configs_of(submission):
        problems = list(problems_of(config, "PARSE015"))
        if not problems:
            continue
        if config.embedded:
            yield from problems
        elif is_filled_in(submission, config):
            continue
        elif config.name in named:
            yield from problems
        elif config.path not in written_by_scripts:
            message = f"a template: {', '.join(_placeholders(config))} to be filled in"
            yield replace(problems[0], message=message, severity=NOTE)


def _placeholders(config: Config) -> Iterable[str]:
    """The placeholders of a template, each once, those without quotes first."""
    bare = (text for _, text in bare_placeholders(config))
    quoted = (
        value.strip().rstrip(",")
        for _, value in walk("", config.json.data)
        if is_placeholder(value)
    )
    return dict.fromkeys((*bare, *quoted))
