"""The text of a DeepSpeed config: whether its reader can read it, and whether a template was filled in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ....facts.hjson.edits import to_strict
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations, printable
from ....rules.violations import deepspeed
from ...launching.program_options import loads_json
from ...subjects import ds_configs, submissions
from ...submission import Submission
from ..config import Config, has_auto
from .reported import problems_of
from .subjects import edits_of, filled_in, is_filled_in, is_used_as_it_is, leftover, placeholders

_COMPRESSION: Final = "compression/compress.py:24, check_deepspeed_config"
_WITH_SCRIPTS: Final = ("DeepSpeed config", "launch script")
_JSON: Final = deepspeed(f"runtime/config.py:699; {_COMPRESSION}, reads by json")
_STAGES: Final = deepspeed("runtime/zero/config.py:95, runtime/config.py:699")


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
    Prevents: json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read strict JSON, as
        DeepSpeed's compression does, and programs that open the config by themselves
    Fix: write strict JSON"""
    for config in submission.configs:
        text = filled_in(config)
        slips = text.deviations if text is not None else ()
        if text is not config.json and any(slip.what != "a missing comma" for slip in slips):
            continue  # names that no pattern knows may be placeholders too
        if text is None or text.broken is not None or not slips or config.is_empty:
            continue
        more = len(slips) - 1
        rest = f" (and {more} more place{'s' if more > 1 else ''})" if more else ""
        sure = not config.guessed or has_auto(config)  # which none but these fill in
        own = _reads_json_itself(submission, config)
        less = NOTE if config.unclaimed and slips[0].what != "a missing comma" else None  # may be as is meant
        others = "Transformers, accelerate and Megatron-DeepSpeed don't"
        others = own or ("Lightning doesn't" if config.consumer == "lightning" else others)
        yield Violation(
            config.json.lines.locate(slips[0].start),
            f"{slips[0].what} is HJSON, not JSON{rest}: DeepSpeed reads it, {others}",
            "write strict JSON: double quotes, commas between members only, no comments",
            severity=ERROR if own or (sure and config.consumer != "deepspeed") else less,
            edits=()
            if text is not config.json or any(slip.what == "a comment" for slip in slips)
            else edits_of(config, to_strict),
        )


def _reads_json_itself(submission: Submission, config: Config) -> str | None:
    """Return what reads a config by strict JSON beside DeepSpeed's engine: compression, or the program launched."""
    if config.has("/compression_training"):
        return "its compression doesn't"
    for link in submission.references:
        named = any(getattr(one, "json", None) is config.json for one in link.documents)
        if named and link.launch is not None and (program := loads_json(link.launch)) is not None:
            return f"{program} doesn't"
    return None


@ds_configs.rule("PARSE016", ERROR, "parse", deepspeed("runtime/config.py:699"))
def text_can_be_read(config: Config) -> Violations:
    """The config is well-formed for the program that reads it.
    Prevents: HjsonDecodeError, or json.JSONDecodeError
    Fix: correct the text at the place named"""
    text = filled_in(config) if leftover(config) else config.json
    broken = None if text is None else text.hjson_broken if config.consumer == "deepspeed" else text.broken
    if config.is_empty:
        hint = 'write {"train_batch_size": 256, "bf16": {"enabled": true}}'
        less = NOTE if config.unclaimed else None
        yield Violation(config.locate(""), "the file is empty: there is no config in it", hint, severity=less)
    elif broken is not None:
        where = config.json.lines.locate(broken.offset)
        yield Violation(where, f"the config can't be read: {broken.message}", _correction(broken.message))


def _correction(message: str) -> str:
    """Return a correction that would let the text be read."""
    opened = re.search(r"the `([{\[])` in line \d+ is not closed", message)
    if opened:
        return f"add the missing `{'}' if opened[1] == '{' else ']'}`"
    if "quote is missing" in message:
        return 'add the missing `"`'
    if message.startswith("`,` stands"):
        return "remove a comma: there is one too many"
    return "check here: quotes around texts, `:` after a key, one comma between two members, brackets in pairs"


@submissions.rule("PARSE015", ERROR, "parse", _STAGES, reads=_WITH_SCRIPTS)
def templates_are_filled_in(submission: Submission) -> Violations:
    """No unfilled placeholder of a template is left in place of a value of a config that a job reads as it is.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3 [input_value='ZERO_STAGE'], or HjsonDecodeError
    Fix: fill the template in before the job starts"""
    made = {config.path for config in submission.configs if config.embedded}  # judged by what scripts make of them
    for config in submission.configs:
        found = [problem for rule, problem in problems_of(config) if rule == "PARSE015"]
        if found and is_used_as_it_is(submission, config):
            yield from found
        elif found and config.path not in made and not is_filled_in(submission, config):
            message = f"a template: {', '.join(placeholders(config))} to be filled in"
            yield replace(found[0], message=message, severity=NOTE)
