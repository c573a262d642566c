"""Rules on a config's text, keys and values, whose problems the walk through it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from ....findings import (
    ERROR,
    NOTE,
    WARNING,
    Severity,
    Version,
    Violation,
    Violations,
    When,
    printable,
)
from ....rule import Rule
from ....rules.violations import deepspeed, deepspeed_now, violation
from ....submission.repository import program_path
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.hjson.edits import to_strict
from ....text.hjson.text import JsonText, read_json
from ....text.text import text_of
from ....text.wording import escape, walk
from ...python_around import loads_json
from ..config import Config, has_auto
from ..schema import Section, as_hjson
from ..submission import configs_of
from .keys import removed, slips_read_later, unknown_key, written_twice
from .subjects import FILL, Place, Problem, ds_configs, edits_of, is_placeholder, shown
from .values import of_mapping, of_model

#: Quoted text and comments, which may contain anything; else what a template writes for a value.
_TOKENS: Final = re.compile(
    r'"(?:[^"\\\n]|\\.){0,300}"|(?:\#|//)[^\n]*|(?P<left>'
    r"\$\{[^}\n]{0,200}\}|\$[A-Za-z_]\w*|\$\([^)\n]{0,200}\)+"
    r"|\{\{-?\s{0,9}[A-Za-z_][^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}"
    r"|<[A-Za-z_][\w -]{0,60}>|%\(\w{1,60}\)s|@[A-Za-z_]\w{0,60}@"
    # beside a quote it lacks the other
    r"|(?<![\w.\"])[A-Z][A-Z0-9]*(?:[A-Z0-9]|_\w*)\b(?!\"|\s*:))",
    re.ASCII,
)
_SEARCHED: Final = 20_000  #: characters that are searched; a config has a few thousand
#: Unknown keys in one section; more tell nothing new, and each costs a search for what was meant.
_MOST: Final = 50


def leftover(config: Config) -> tuple[int, str] | None:
    """Offset and text of the first placeholder that the config's reader can't read, or None."""
    broken = config.json.hjson_broken if config.consumer == "deepspeed" else config.json.broken
    return None if broken is None else next(bare_placeholders(config), None)


def bare_placeholders(config: Config) -> Iterator[tuple[int, str]]:
    """Offsets and texts of unquoted placeholders, which hjson reads up to their lines' ends."""
    found = _TOKENS.finditer(config.json.text.content[:_SEARCHED])
    return ((token.start(), token["left"]) for token in found if token["left"])


def filled_in(config: Config) -> JsonText | None:
    """The text with a number for each unquoted placeholder, if each stands for a value.

    Offsets in it are those of the config.
    """
    content = config.json.text.content
    marks = [offset for offset, _ in bare_placeholders(config)]
    if any(not re.search(r":\s*$", content[max(0, offset - 80) : offset]) for offset in marks):
        return None
    filled = _TOKENS.sub(
        lambda token: "1" * len(token[0]) if token["left"] else token[0], content[:_SEARCHED]
    )
    return read_json(text_of(filled + content[_SEARCHED:], config.path)) if marks else config.json


def is_filled_in(submission: Submission, config: Config) -> bool:
    """Whether a script hands the config to a command that starts no training: it may rewrite it."""
    words = (word for script in submission.commands for word in script.beside_launches)
    return any(PurePath(word.value or word.raw).name == config.name for word in words)


def problems_of(config: Config) -> tuple[Problem, ...]:
    """Every problem of a config's keys and their values; found once, and kept with the config."""
    kept = vars(config)
    if "_problems" in kept:
        known: tuple[Problem, ...] = kept["_problems"]
        return known

    found, top = list(_of_text(config)), config.schema.section("")
    read = config if config.json.broken is None or top is None else _with_numbers(config)
    if top is not None and read is not None and isinstance(read.json.data, dict):
        walked = (*_of_section(read, read.json.data, top), *slips_read_later(read))
        left_out = _lines_to_fill(config) if read is not config else frozenset[int | None]()
        found += (problem for problem in walked if problem[1].where.line not in left_out)

    kept["_problems"] = tuple(found)
    return tuple(found)


def _of_text(config: Config) -> Iterator[Problem]:
    """What is wrong with a config as a whole: a placeholder that keeps it from being read, or
    another type.
    """
    left, top = leftover(config), config.schema.section("")
    if left is not None:
        message = f"unfilled placeholder `{printable(left[1])[:80]}`: the config can't be read"
        yield "PARSE015", Violation(config.json.lines.locate(left[0]), message, FILL)

    data = config.json.data
    if config.json.broken is None and top is not None and not isinstance(data, dict):
        place = Place(config=config, section=top, pointer="", value=data)
        message = f"the config must be an object, not {shown(data)}"
        hint = 'write an object such as {"train_batch_size": 256}'
        yield place.problem("PARSE011", message, hint)


def _with_numbers(config: Config) -> Config | None:
    """A config whose placeholders keep it from being read, with numbers in their place; None where
    that doesn't help.
    """
    filled = filled_in(config)
    return replace(config, json=filled) if filled is not None and filled.broken is None else None


def _lines_to_fill(config: Config) -> frozenset[int | None]:
    """The lines with placeholders, of which nothing is known."""
    return frozenset(
        config.json.lines.locate(offset).line for offset, _ in bare_placeholders(config)
    )


def _of_section(
    config: Config, data: Mapping[str, Any], section: Section, pointer: str = ""
) -> Iterator[Problem]:
    places, unknown = dict[str, Place](), 0
    for name, value in data.items():
        at, key = f"{pointer}/{escape(name)}", section.keys.get(name)
        place = places[name] = Place(
            config=config, section=section, pointer=at, value=as_hjson(value)
        )
        if key is None:
            problem = unknown_key(place, name) if unknown < _MOST else None
            unknown += problem is not None
        elif at == "/bfloat16" and config.bf16 != at:
            continue
        else:
            problem = of_model(place, key) if section.kind == "model" else of_mapping(place, key)
        inner = (
            config.schema.section(key.type.section)
            if key is not None and key.type.section is not None
            else None
        )
        if problem is None and key is not None and (later := removed(place, name)) is not None:
            yield later
        if problem is not None:
            yield problem
        elif isinstance(place.value, dict) and inner is not None:
            yield from _of_section(config, place.value, inner, at)
    if section.kind == "model":
        yield from written_twice(places, section)


def _found(
    id: str, source: str, severity: Severity = ERROR, when: When = "parse", *, since: Version = ()
) -> Callable[[str], Rule]:
    """Make a rule of its documentation; it reports the problems that were found under its id."""

    def made(text: str) -> Rule:
        def check(config: Config) -> Violations:
            return (found for rule, found in problems_of(config) if rule == id)

        check.__doc__ = text
        return ds_configs.rule(id, severity, when, source, since=since)(check)

    return made


PARSE004: Final = _found("PARSE004", deepspeed("runtime/config.py:796-923"), WARNING, "silent")("""
    DeepSpeed has every key of the top level.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or move it to where it belongs""")
PARSE005: Final = _found("PARSE005", deepspeed("runtime/config_utils.py:105-113"))("""
    DeepSpeed has every key of a block that it checks.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: correct the key, or remove it""")
PARSE006: Final = _found("PARSE006", deepspeed("runtime/config.py:428-456"), WARNING, "silent")("""
    DeepSpeed has every key of a block that it doesn't check.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or remove it""")
PARSE012: Final = _found(
    "PARSE012", deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110")
)("""
    A key is written by one of its two names.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: keep the name that starts with stage3_""")
PARSE013: Final = _found("PARSE013", deepspeed("runtime/config_utils.py:89-91"))("""
    A deprecated key is not written together with the key that replaces it.
    Prevents: AssertionError: Cannot provide deprecated parameter ... and replacing parameter ...
    together
    Fix: remove the deprecated key""")
PREC003: Final = _found("PREC003", deepspeed("runtime/precision_config.py:41-75"))("""
    The bf16 block has none of fp16's keys: bf16 needs no loss scaling.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key; it belongs to fp16""")
PREC004: Final = _found("PREC004", deepspeed("runtime/precision_config.py:100-170"))("""
    The fp16 block has neither Apex's opt_level nor gpt-neox's type.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key""")
ZERO005: Final = _found("ZERO005", deepspeed("runtime/config_utils.py:110"))("""
    Parameters are offloaded by offload_param; no release since 0.9 has cpu_offload_params.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: write "offload_param": {"device": "cpu"}""")
ZERO014: Final = _found("ZERO014", deepspeed("runtime/config_utils.py:110"))("""
    The aio block is at the top level, not in zero_optimization.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: move the block to the top level""")
VER001: Final = _found("VER001", deepspeed_now("runtime/config.py:80-141"))("""
    The config has none of the blocks that DeepSpeed removed, enabled or not.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the block""")
VER002: Final = _found("VER002", deepspeed_now("runtime/config.py:115-130"))("""
    zero_optimization has none of the keys that DeepSpeed removed.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the key""")
VER004: Final = _found("VER004", deepspeed("runtime/config_utils.py:110"))("""
    Every key belongs to the release of DeepSpeed that reads it.
    Prevents: ValidationError: Extra inputs are not permitted; or the setting is silently ignored
    Fix: use a release that has the key, or remove it""")
ZERO003: Final = _found("ZERO003", deepspeed("runtime/zero/config.py:181-213"), NOTE, "silent")("""
    Offloading is written as offload_optimizer and offload_param, not as the deprecated cpu_offload.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write offload_optimizer and offload_param""")
ZERO004: Final = _found("ZERO004", deepspeed("runtime/zero/config.py:280-285"), NOTE, "silent")("""
    No key is deprecated.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write the key that replaces it""")
PARSE009: Final = _found(
    "PARSE009",
    deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
)("""
    A number is written as a number.
    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at
    the first step
    Fix: write the number without quotes""")
PARSE010: Final = _found("PARSE010", deepspeed("runtime/zero/config.py:113"))("""
    An integer has no fraction.
    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: round it""")
PARSE011: Final = _found(
    "PARSE011", deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50")
)("""
    The config and each of its blocks is an object.
    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: write an object, or leave the block out""")
PARSE017: Final = _found("PARSE017", deepspeed("runtime/config_utils.py:105-113"))("""
    A value has the type and range of its key.
    Prevents: ValidationError: Input should be a valid ...
    Fix: write a value of the type that the message names""")
PARSE018: Final = _found(
    "PARSE018", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9"
)("""
    A block has the keys that DeepSpeed fails without.
    Prevents: KeyError: 'enabled'
    Fix: add the key, or remove the block""")
PARSE007: Final = _found("PARSE007", deepspeed("runtime/config.py:931"))("""
    A batch key is "auto" only where Transformers or accelerate fill it in.
    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: write numbers, or let Transformers or accelerate read the file""")
_IGNORES_AUTO: Final = deepspeed("runtime/config_utils.py:54-57")
PARSE008: Final = _found("PARSE008", _IGNORES_AUTO, ERROR, "silent")("""
    A key that DeepSpeed drops where it is "auto" has a value.
    Prevents: The default is used silently: "stage": "auto" trains without ZeRO, "enabled": "auto"
    in fp32.
    Fix: write the value""")
ZERO001: Final = _found("ZERO001", deepspeed("runtime/zero/config.py:81-95"))("""
    The ZeRO stage is 0, 1, 2 or 3.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: set "stage" to 0, 1, 2 or 3""")
ZERO002: Final = _found("ZERO002", deepspeed("runtime/zero/config.py:60-75"), WARNING, "silent")("""
    zero_optimization is an object, not the deprecated true or false.
    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated.
    Fix: write {"stage": 1}""")
ZERO007: Final = _found("ZERO007", deepspeed("runtime/zero/offload_config.py:14-24"))("""
    The device of an offload is "cpu", "nvme" or "none".
    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: write "cpu" or "nvme"
    """)
ZERO025: Final = _found("ZERO025", deepspeed("runtime/zero/config.py:113"))("""
    Bucket sizes are greater than 0.
    Prevents: ValidationError: Input should be greater than 0
    Fix: write a size in elements, such as 500000000""")
PREC005: Final = _found("PREC005", deepspeed("runtime/precision_config.py:120-132"))("""
    fp16's loss scale is a number of at least 0.
    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: write 0 for dynamic loss scaling""")
PREC006: Final = _found("PREC006", deepspeed("runtime/precision_config.py:165-197"))("""
    fp16's scale window and minimum scale are integers, greater than 0 with dynamic loss scaling.
    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an
    integer
    Fix: leave both out, or write 1000 and 1""")
CMP001: Final = _found(
    "CMP001", deepspeed_now("compile/config.py:9; compile/config.py:76"), since=(0, 18, 9)
)("""
    Each pass is one of DeepCompile's.
    Prevents: `ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`
    Fix: use a known pass""")
_WITH_SCRIPTS: Final = ("DeepSpeed config", "launch script")
_JSON: Final = deepspeed(
    "runtime/config.py:699; compression/compress.py:24, check_deepspeed_config, reads by json"
)
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
    Prevents: json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read
    strict JSON, as
        DeepSpeed's compression does, and programs that open the config by themselves
    Fix: write strict JSON
    """
    for config in configs_of(submission):
        text = filled_in(config)
        slips, filled = text.deviations if text is not None else (), text is not config.json
        if filled and any(
            slip.what not in ("a missing comma", "a trailing comma", "a comment") for slip in slips
        ):
            # that no placeholder makes: names that no pattern knows may be placeholders too
            continue
        if text is None or text.broken is not None or not slips or config.is_empty:
            continue
        more = len(slips) - 1
        rest = f" (and {more} more place{'s' if more > 1 else ''})" if more else ""
        sure = not config.guessed or has_auto(config)  # which none but these fill in
        own = "its compression doesn't" if config.has("/compression_training") else None
        for link in (
            submission.references
        ):  # and programs that are launched may read it by strict JSON themselves
            named = any(
                getattr(document, "json", None) is config.json for document in link.documents
            )
            if not own and named and link.launch is not None and loads_json(link.launch):
                own = f"{program_path(link.launch)} doesn't"
        # may be as is meant
        less = NOTE if config.unclaimed and slips[0].what != "a missing comma" else None
        others = "Transformers, accelerate and Megatron-DeepSpeed don't"
        others = own or ("Lightning doesn't" if config.consumer == "lightning" else others)
        yield Violation(
            config.json.lines.locate(slips[0].start),
            f"{slips[0].what} is HJSON, not JSON{rest}: DeepSpeed reads it, {others}",
            "write strict JSON: double quotes, commas between members only, no comments",
            severity=ERROR if own or (sure and config.consumer != "deepspeed") else less,
            edits=()
            if filled or any(slip.what == "a comment" for slip in slips)
            else edits_of(config, to_strict),
        )


@ds_configs.rule("PARSE016", ERROR, "parse", deepspeed("runtime/config.py:699"))
def text_can_be_read(config: Config) -> Violations:
    """The config is well-formed for the program that reads it.
    Prevents: HjsonDecodeError, or json.JSONDecodeError
    Fix: correct the text at the place named"""
    text = filled_in(config) if leftover(config) else config.json
    broken = (
        None
        if text is None
        else text.hjson_broken
        if config.consumer == "deepspeed"
        else text.broken
    )
    if config.is_empty:
        hint = 'write {"train_batch_size": 256, "bf16": {"enabled": true}}'
        less = NOTE if config.unclaimed else None
        yield violation(
            config, "", "the file is empty: there is no config in it", hint, severity=less
        )
    elif broken is not None:
        hint = (
            "check here: quotes around texts, `:` after a key, one comma between two "
            "members, brackets in pairs"
        )
        if opened := re.search(r"the `([{\[])` in line [0-9]+ is not closed", broken.message):
            hint = f"add the missing `{'}' if opened[1] == '{' else ']'}`"
        elif "quote is missing" in broken.message:
            hint = 'add the missing `"`'
        elif broken.message.startswith("`,` stands"):
            hint = "remove a comma: there is one too many"
        yield Violation(
            config.json.lines.locate(broken.offset),
            f"the config can't be read: {broken.message}",
            hint,
        )


@submissions.rule("PARSE015", ERROR, "parse", _STAGES, reads=_WITH_SCRIPTS)
def templates_are_filled_in(submission: Submission) -> Violations:
    """No unfilled placeholder of a template is left in place of a value of a config that a job
    reads as it is.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3 [input_value='ZERO_STAGE'], or
    HjsonDecodeError
    Fix: fill the template in before the job starts
    """
    # judged by what scripts make of them
    made = {config.path for config in configs_of(submission) if config.embedded}
    for config in configs_of(submission):
        found = [problem for rule, problem in problems_of(config) if rule == "PARSE015"]
        named = any(
            link.kind == "DeepSpeed config" and link.name == config.name
            for link in submission.references
        )
        if found and (config.embedded or (named and not is_filled_in(submission, config))):
            yield from found
        elif found and config.path not in made and not is_filled_in(submission, config):
            quoted = (
                value.strip().rstrip(",")
                for _, value in walk("", config.json.data)
                if is_placeholder(value)
            )
            marks = dict.fromkeys((*(text for _, text in bare_placeholders(config)), *quoted))
            yield replace(
                found[0], message=f"a template: {', '.join(marks)} to be filled in", severity=NOTE
            )
