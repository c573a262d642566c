"""The options of a training program's own parser, where all of them can be read.

Parsers of argparse, of transformers and of TRL are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from glob import escape
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ...numerals import read_whole
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...submission.repository import program_of, program_path, programs_in
from ...text.around import text_around, until_next_check
from ...text.slips import is_slip
from ...text.wording import whole_number
from .added_options import (
    ADDS,
    BOTH_WAYS,
    ELSEWHERE,
    added_options,
    called_with_parser,
    takes_over,
)
from .parsed_classes import ALIASES, class_meant, fields_of, handed_over
from .program_modules import (
    GROUPS,
    PARSERS,
    Module,
    annotated_fields,
    as_field,
    first_modules,
    module_of,
    modules_from,
    name_of,
)

#: The modules that are searched for the name of an option; LLaMA-Factory's are in the 50th.
_MOST_DECLARING: Final = 100
_ORIGINS: Final = ("argparse", "transformers", "trl")
#: What deepspeed.add_config_arguments adds. Source: deepspeedai/DeepSpeed deepspeed/__init__.py @
#: 0.19.8
OF_DEEPSPEED: Final = frozenset(
    {
        "--deepspeed",
        "--deepspeed_config",
        "--deepscale",
        "--deepscale_config",
        "--local_rank",
        "--local-rank",
    }
)
#: A word of a module that is a program of its own too, perhaps with a parser for that.
_MAIN: Final = "__main__"
#: Methods by which a parser reads the command line.
_PARSES: Final = frozenset({"parse_args", "parse_args_into_dataclasses", "parse_args_and_config"})
#: Types of fields whose options take one value.
_VALUE: Final = lazy_pattern(
    r"(?:Optional\[)?(?:str|int|float|[Ll]ist\[(?:str|int|float)\])\]?"
    r"|(?:str|int|float) \| None|None \| (?:str|int|float)"
)
#: What leaves open which options there are: some that aren't known are passed over, or are made
#: elsewhere.
_OPEN: Final = frozenset(
    {
        "parse_known_args",
        "parse_known_intermixed_args",
        "REMAINDER",
        ALIASES,
        "return_remaining_strings",
        "ignore_extra_args",
        *ELSEWHERE,
    }
)
#: The same in a text that needs no parsing then.
_LEFT_OPEN: Final = lazy_pattern(
    r"\b(?:parse_known_\w*args|add_subparsers|return_remaining_strings)\b"
)
#: Methods of parsers and groups that make no options but those that are written. Source: Python
#: 3.12, argparse.py
_PLAIN: Final = frozenset(
    {
        ADDS,
        "parse_args",
        "parse_args_and_config",
        "parse_args_into_dataclasses",
        "parse_dict",
        "parse_json_file",
        "parse_yaml_file",
        "error",
        "exit",
        "format_help",
        "format_usage",
        "print_help",
        "print_usage",
        "set_defaults",
        "get_default",
        *GROUPS,
    }
)
_PIPELINE: Final = "PipelineModule"  # of deepspeed.pipe


class _Sign(NamedTuple):
    """Names by which a program that uses one trains with a library."""

    library: str
    names: str  #: as a pattern
    packages: tuple[str, ...]  #: that have them; empty: classes of the program's own count too


_SIGNS: Final = (
    _Sign("deepspeed", "initialize", ("deepspeed",)),
    _Sign(
        "lightning",
        "Trainer|Fabric|LightningCLI",
        ("lightning", "pytorch_lightning", "lightning_fabric"),
    ),
    _Sign("transformers", r"\w*Trainer", ("transformers", "trl")),
    _Sign("transformers", r"\w*TrainingArguments", ()),
)
#: Functions of DeepSpeed that add options to a parser.
_ADDS_OF_DEEPSPEED: Final = frozenset(
    {"add_config_arguments", "add_core_arguments", "add_tuning_arguments"}
)

#: Names of classes and their fields; tuples, as answers are kept by them.
Classes = tuple[tuple[str, frozenset[str]], ...]


@until_next_check(128)
def own_options(program: Path, classes: Classes) -> frozenset[str] | None:
    """Return the long options of a program; None where there may be others.

    `classes` are classes, with their fields, that a parser may make options of and that are not in
    the repository.
    """
    with_parser = (
        module
        for module in first_modules(program)
        if any(name in module.text for name in PARSERS)
        # A module beside the program may have a parser for itself as a program.
        and (module.path == program or _MAIN not in module.text)
    )
    module = next(with_parser, None)
    if module is None or _LEFT_OPEN.search(module.text):
        return None
    # Of several modules beside the program it isn't known which parser is used.
    if module.path != program and next(with_parser, None):
        return None

    parser_calls = [call for call in module.calls if name_of(call.func) in PARSERS]
    is_parsed = any(name_of(call.func) in _PARSES for call in module.calls)
    if len(parser_calls) != 1 or not is_parsed:
        return None
    (parser_call,) = parser_calls
    if module.origin(parser_call.func) not in _ORIGINS:
        return None
    return _options(program, module, parser_call, dict(classes))


@until_next_check(64)
def valued_options(program: Path) -> frozenset[str]:
    """Return the options of argparse that need a value, wherever the first modules of a program add
    them.
    """
    in_need, others = set[str](), set[str]()
    for module in first_modules(program):
        for option in added_options(module) if ADDS in module.text else ():
            is_plain = option.settings.keys().isdisjoint({"action", None})
            if is_plain and _is_at_least_one(option.settings.get("nargs")):
                in_need.update(option.names)
            else:
                others.update(option.names)
    return frozenset(in_need - others)


def _is_at_least_one(nargs: ast.expr | None) -> bool:
    """Return whether so many values are one or more; without `nargs` they are one."""
    if nargs is None:
        return True
    number = nargs.value if isinstance(nargs, ast.Constant) else None
    return number == "+" or (whole_number(number) or 0) > 0


@until_next_check(4096)
def field_takes_value(program: Path, name: str) -> bool:
    """Return whether a parser of transformers makes an option that takes one value of a field.

    Every class of this program's first modules that has the field has to give it such a type.
    """
    modules = [module for module in first_modules(program) if name in module.text]
    classes = [node for module in modules for node in module.classes.values()]
    types = [annotated_fields(node).get(name) for node in classes if _is_dataclass(node)]
    takes_value = [
        _VALUE.fullmatch(ast.unparse(annotation)) is not None
        for annotation in types
        if annotation is not None
    ]
    is_written = any(f"--{name}" in module.text for module in modules)  # for another parser
    return bool(takes_value) and all(takes_value) and not is_written


def _is_dataclass(node: ast.ClassDef) -> bool:
    """Return whether a class has the decorator, with arguments or without."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return "dataclass" in map(name_of, decorators)


def parses_classes(program: Path) -> bool:
    """Return whether a program's first modules make options of the fields of classes."""
    return any("HfArgumentParser" in text for text in _texts(program))


def slips(program: Path, options: Iterable[str]) -> dict[str, str]:
    """Return, by each of `options` that is a slip of an option that a program has, what was meant.

    An option that its first modules have anywhere in their text is no slip, and none is where they
    make names of options as the program runs.
    """
    names = {option: as_field(option) for option in options}
    unread = {option: name for option, name in names.items() if lacks_word(program, name)}
    declared = _declared(program) if unread else ()
    meant_by_option = dict[str, str]()
    for option, name in unread.items():
        if name in declared:
            continue
        meant = next((other for other in declared if is_slip(name, other)), "")
        # argparse takes the beginning of an option for the option.
        if meant and not meant.startswith(name):
            meant_by_option[option] = f"--{meant}"
    return {} if meant_by_option and _makes_names(program) else meant_by_option


@until_next_check(64)
def _makes_names(program: Path) -> bool:
    """Return whether the first modules of a program add options whose names aren't written out."""
    modules = (module for module in first_modules(program) if ADDS in module.text)
    return any(option.has_other_names for module in modules for option in added_options(module))


def trained_by(launch: Launch) -> tuple[str, ...] | None:
    """Return the libraries with which the program of a launch line trains.

    Returns None where programs of its name differ in that. Of a program in a folder that a variable
    names, those of its name in the folders beside are read.
    """
    program_file, name = program_of(launch), program_path(launch)
    if program_file is not None:
        return libraries(program_file.absolute())

    if name is None or not name.endswith(".py") or "/" in name:
        return ()
    folder = Path(launch.script.text.path).parent
    namesakes = programs_in(folder, folder, f"*/{escape(name)}")
    used = {libraries(path.absolute()) for path in namesakes}
    if len(used) > 1:
        return None
    return used.pop() if used else ()


@until_next_check(64)
def libraries(program: Path) -> tuple[str, ...] | None:
    """Return the libraries with which a program trains.

    `deepspeed` is told by its engine, `transformers` and `lightning` by their trainers. Returns
    None where the program isn't read.
    """
    module = module_of(program)
    used = {(name_of(node), module.origin(node)) for node in module.every(ast.Attribute, ast.Name)}
    trains_by = {
        sign.library
        for sign in _SIGNS
        for name, package in used
        if (not sign.packages or package in sign.packages) and re.fullmatch(sign.names, name)
    }
    if not trains_by and "HfArgumentParser" in module.text:
        trains_by.add("transformers")

    is_unread = module.text and not any(tree.body for tree in module.every(ast.Module))
    return None if is_unread and not trains_by else tuple(sorted(trains_by))


@until_next_check(4096)
def lacks_word(program: Path, word: str) -> bool:
    """Return whether a word is in none of a program's first modules."""
    return not any(word in text for text in _texts(program))


@until_next_check(64)
def _texts(program: Path) -> tuple[str, ...]:
    """The first modules of a program, with `-` written as `_`."""
    return tuple(module.plain_text for module in first_modules(program))


@until_next_check(64)
def _declared(program: Path) -> tuple[str, ...]:
    """Return the options and fields that the modules of a program declare.

    Those that DeepSpeed adds for it are among them.
    """
    modules = list(islice(modules_from(program), _MOST_DECLARING))
    declared = {name for module in modules for name in module.declared}
    if any(name in module.plain_text for module in modules for name in _ADDS_OF_DEEPSPEED):
        declared |= {as_field(option) for option in OF_DEEPSPEED}
    return tuple(sorted(declared))


def pipeline_stages(launch: Launch) -> int | None:
    """Return the stages of the `PipelineModule` that a program makes.

    They are a number, or an option's value, given or by default.
    """
    path = program_of(launch)
    if path is None or _PIPELINE not in text_around(path, path.parent):
        return None

    module = module_of(path)
    values = (
        keyword.value
        for call in module.calls
        if name_of(call.func) == _PIPELINE
        for keyword in call.keywords
        if keyword.arg == "num_stages"
    )
    stages = next(values, None)
    if stages is None:
        return None
    if isinstance(stages, ast.Constant):
        return whole_number(stages.value)
    return _value_of_option(module, name_of(stages), launch)


def _value_of_option(module: Module, name: str, launch: Launch) -> int | None:
    """The number that a launch line gives to the option of a field's name, or its default."""
    for option in added_options(module):
        settings = {
            key: node.value
            for key, node in option.settings.items()
            if isinstance(node, ast.Constant)
        }
        if name not in map(as_field, option.names) and name != settings.get("dest"):
            continue

        words = [part for word in launch.arguments for part in (word.value or "").split("=", 1)]
        values = (text for word, text in pairwise(words) if word in option.names)
        value = next(values, None)
        return whole_number(settings.get("default")) if value is None else read_whole(value)
    return None


def has_unknown_stages(launch: Launch) -> bool:
    """Return whether a program has DeepSpeed's pipeline, and its stages aren't known."""
    path = program_of(launch)
    return (
        path is not None
        and _PIPELINE in text_around(path, path.parent)
        and pipeline_stages(launch) is None
    )


def _options(
    program: Path, module: Module, parser_call: ast.Call, classes: Mapping[str, frozenset[str]]
) -> frozenset[str] | None:
    """The options of the parser that a call makes; None where there may be others."""
    if _leaves_open(module, parser_call):
        return None

    added = list(added_options(module))
    if any(option.has_other_names for option in added):
        return None
    names = {name for option in added for name in option.names}
    options = {name for name in names if name.startswith("--")}
    if BOTH_WAYS in module.names:
        options |= {f"--no-{name[2:]}" for name in names}
    if called_with_parser(module):  # functions of DeepSpeed: others leave the options open
        options |= OF_DEEPSPEED

    kind = name_of(parser_call.func)
    if kind != "ArgumentParser":
        meant = (class_meant(program, module, node) for node in handed_over(module, parser_call))
        fields_by_class = [each and fields_of(program, each, classes) for each in meant]
        if not fields_by_class or None in fields_by_class:
            return None
        fields = {field for of_class in fields_by_class for field in of_class or ()}
        # A field that is true by default has a switch for false too.
        options |= {f"--{field}" for field in fields} | {f"--no_{field}" for field in fields}
        options |= {option.replace("_", "-") for option in options}
        options |= {"--config"} if kind == "TrlParser" else set()
    return frozenset({*options, "--help"})


def _leaves_open(module: Module, parser_call: ast.Call) -> bool:
    """Return whether a parser may have options that aren't written in its module."""
    if takes_over(parser_call) or not _OPEN.isdisjoint(module.names):
        return True
    methods = {
        node.attr for node in module.every(ast.Attribute) if name_of(node.value) in module.parsers
    }
    return not (called_with_parser(module) <= _ADDS_OF_DEEPSPEED and methods <= _PLAIN)
