"""The options of a training program's own parser, where all of them can be read.

Parsers of argparse and of transformers are read.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from glob import escape
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from ...numerals import read_whole
from ...submission.launches import Launch
from ...submission.repository import program_of, program_path, programs_in
from ...text.around import folders_above, is_readable, names_in, text_around, until_next_check
from ...text.lookup import is_slip
from ...text.wording import whole_number
from ..releases import COPIES, parsed

#: Of a program that are searched for its parser or a class of its arguments; 479 of 486 public ones
#: have it in these.
_MOST_MODULES: Final = 12
# asked where none of the first has an option; LLaMA-Factory's is the 50th
_MOST_DECLARING: Final = 100
# folders above a module in which those that it imports are looked for, as in `facts.around`
_MOST_ABOVE: Final = 6
_PARSERS: Final = frozenset({"ArgumentParser", "HfArgumentParser"})
_ORIGINS: Final = ("argparse", "transformers")
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
_MAIN: Final = "__main__"  # in a module that is a program of its own, with a parser for that
_PARSES: Final = frozenset({"parse_args", "parse_args_into_dataclasses"})
# of options that fields make. Source: transformers 5.23, hf_argparser.py, HfArg
_ALIASES: Final = "aliases"
#: What leaves open which options there are: some that aren't known are passed over, or are made
#: elsewhere.
_OPEN: Final = frozenset(
    {"parse_known_args", "parse_known_intermixed_args", "add_subparsers", "REMAINDER"}
    | {_ALIASES, "return_remaining_strings", "prefix_chars"}
)
#: The same in a text that needs no parsing then.
_LEFT_OPEN: Final = re.compile(
    r"\b(?:parse_known_\w*args|add_subparsers|return_remaining_strings)\b"
)
#: An option's name as argparse and its kin are given it, or a field of a class; `-` is written as
#: `_`.
_DECLARES: Final = re.compile(r"""["']__(\w+)["']|^[ ]{4}(\w+)\s*:\s*[A-Za-z"']""", re.MULTILINE)
_GROUPS: Final = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
#: Methods of parsers and groups that make no options but those that are written. Source: Python
#: 3.12, argparse.py
_PLAIN: Final = frozenset(
    {
        "add_argument",
        "parse_args",
        "parse_args_into_dataclasses",
        "parse_dict",
        "parse_json_file",
        "parse_yaml_file",
    }
    | {
        "error",
        "exit",
        "format_help",
        "format_usage",
        "print_help",
        "print_usage",
        "set_defaults",
        "get_default",
    }
    | _GROUPS
)
#: `from a.b import c`, or `import a.b as c, d`, of which the names are before `as` and between
#: commas.
_IMPORTS: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b[ \t(]*([^\n#;)]*)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_FIRST: Final = r"(?:^|,)\s*([\w.]+)"
_PIPELINE: Final = "PipelineModule"  # of deepspeed.pipe
#: Names with which a program trains by a library, and the packages that have them; without any,
#: classes of one's own.
_TRAINS: Final = (
    ("deepspeed", "initialize", ("deepspeed",)),
    (
        "lightning",
        "Trainer|Fabric|LightningCLI",
        ("lightning", "pytorch_lightning", "lightning_fabric"),
    ),
    ("transformers", r"\w*Trainer", ("transformers", "trl")),
    ("transformers", r"\w*TrainingArguments", ()),
)
# of DeepSpeed
_ADDS: Final = frozenset({"add_config_arguments", "add_core_arguments", "add_tuning_arguments"})

Node = TypeVar("Node", bound=ast.AST)
Classes = tuple[tuple[str, frozenset[str]], ...]  # names and fields


@until_next_check(128)
def own_options(program: Path, classes: Classes) -> frozenset[str] | None:
    """Return the long options of a program; None where there may be others.

    `classes` are classes, with their fields, that a parser may make options of and that are not in
    the repository.
    """
    near = (
        one
        for one in islice(_modules(program), _MOST_MODULES)
        if any(name in one.text for name in _PARSERS)
    )
    making = (one for one in near if one.path == program or _MAIN not in one.text)
    module = next(making, None)
    if (
        module is None
        or _LEFT_OPEN.search(module.text)
        or (module.path != program and next(making, None))
    ):
        return None
    made = [node for node in module.calls if _name(node.func) in _PARSERS]
    if len(made) != 1 or not any(_name(call.func) in _PARSES for call in module.calls):
        return None
    return (
        _options(module, made[0], dict(classes))
        if module.origin(made[0].func) in _ORIGINS
        else None
    )


def slips(program: Path, options: Iterable[str]) -> dict[str, str]:
    """Return the option that is meant, by each of `options` that is one of a program's with a slip.

    Options that are written in its first modules are left out.
    """
    names = {option: option.lstrip("-").replace("-", "_") for option in options}
    unread = {option: name for option, name in names.items() if lacks_word(program, name)}
    declared = _declared(program) if unread else ()
    unread = {option: name for option, name in unread.items() if name not in declared}
    near = {
        option: next((one for one in declared if is_slip(name, one)), "")
        for option, name in unread.items()
    }
    return {
        option: f"--{one}"
        for option, one in near.items()
        if one and not one.startswith(names[option])
    }


def trained_by(launch: Launch) -> tuple[str, ...] | None:
    """Return the libraries with which the program of a launch line trains.

    Returns None where programs of its name differ in that. Of a program in a folder that a variable
    names, those of its name in the folders beside are read.
    """
    found, program, folder = (
        program_of(launch),
        program_path(launch),
        Path(launch.script.text.path).parent,
    )
    named = (
        f"*/{escape(program)}" if program and program.endswith(".py") and "/" not in program else ""
    )
    elsewhere = programs_in(folder, folder, named) if named and not found else []
    used = {libraries(path.absolute()) for path in ([found] if found else elsewhere)}
    return used.pop() if len(used) == 1 else None if used else ()


@until_next_check(64)
def libraries(program: Path) -> tuple[str, ...] | None:
    """Return the libraries with which a program trains.

    `deepspeed` is told by its engine, `transformers` and `lightning` by their trainers. Returns
    None where the program isn't read.
    """
    module = _module(program)
    used = {(_name(node), module.origin(node)) for node in module.every(ast.Attribute, ast.Name)}
    found = {
        library
        for library, pattern, homes in _TRAINS
        if any(home in (homes or (home,)) and re.fullmatch(pattern, name) for name, home in used)
    }
    if not found and "HfArgumentParser" in module.text:
        found.add("transformers")
    unread = module.text and not any(one.body for one in module.every(ast.Module))
    return None if unread and not found else tuple(sorted(found))


@until_next_check(4096)
def lacks_word(program: Path, word: str) -> bool:
    """Return whether a word is in none of a program's first modules."""
    return not any(word in text for text in _texts(program))


@until_next_check(64)
def _texts(program: Path, most: int = _MOST_MODULES) -> tuple[str, ...]:
    """The first modules of a program, with `-` written as `_`."""
    return tuple(module.text.replace("-", "_") for module in islice(_modules(program), most))


@until_next_check(64)
def _declared(program: Path) -> tuple[str, ...]:
    """Return the options and fields that the modules of a program declare.

    Those that DeepSpeed adds for it are among them.
    """
    texts = _texts(program, _MOST_DECLARING)
    found = {option or field for text in texts for option, field in _DECLARES.findall(text)}
    adds = any(name in text for text in texts for name in _ADDS)
    return tuple(
        sorted(found | {one.lstrip("-").replace("-", "_") for one in OF_DEEPSPEED if adds})
    )


def pipeline_stages(launch: Launch) -> int | None:
    """Return the stages of the `PipelineModule` that a program makes.

    They are a number, or an option's value, given or by default.
    """
    found = program_of(launch)
    module = _module(found) if found and _PIPELINE in text_around(found, found.parent) else None
    made = (
        (call.keywords for call in module.calls if _name(call.func) == _PIPELINE) if module else ()
    )
    stages = next(
        (keyword.value for keywords in made for keyword in keywords if keyword.arg == "num_stages"),
        None,
    )
    if module is None or stages is None or isinstance(stages, ast.Constant):
        return whole_number(stages.value) if isinstance(stages, ast.Constant) else None
    for call in module.calls:
        names = [
            name.value
            for name in call.args
            if isinstance(name, ast.Constant) and isinstance(name.value, str)
        ]
        given = {
            one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)
        }
        fields = {given.get("dest"), *(name.lstrip("-").replace("-", "_") for name in names)}
        if _name(call.func) == "add_argument" and _name(stages) in fields:
            words = [part for word in launch.arguments for part in (word.value or "").split("=", 1)]
            after = next((text for option, text in pairwise(words) if option in names), None)
            return whole_number(given.get("default")) if after is None else read_whole(after)
    return None


def has_unknown_stages(launch: Launch) -> bool:
    """Return whether a program has DeepSpeed's pipeline, and its stages aren't known."""
    found = program_of(launch)
    return (
        found is not None
        and _PIPELINE in text_around(found, found.parent)
        and pipeline_stages(launch) is None
    )


class _Module:
    """A Python file: its calls, its classes, and the files in the repository that it imports.

    It is parsed when it is first asked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = text_around(path, path.parent)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[Any]]:
        """All that is in it, from outside in; only the empty module where it can't be parsed."""
        found = defaultdict[type[ast.AST], list[Any]](list)
        for node in ast.walk(parsed(self.text)):
            found[type(node)].append(node)
        return found

    def every(self, *kinds: type[Node]) -> list[Node]:
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]

    @property
    def calls(self) -> list[ast.Call]:
        return self.every(ast.Call)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.every(ast.ClassDef)}

    @cached_property
    def imported(self) -> tuple[Path, ...]:
        """The files of the modules that are imported by name, where they are in the repository."""
        names = list[str]()
        for origin, members, several in _IMPORTS.findall(self.text):
            names += [
                f"{origin.rstrip('.')}.{one}"
                for one in re.findall(_FIRST, members)
                if origin.strip(".")
            ]
            names += [origin] if origin else re.findall(_FIRST, several)
        return tuple(filter(None, map(self._file, dict.fromkeys(names))))

    def origin(self, node: ast.expr) -> str | None:
        """The package that a name is imported from; None where that isn't seen."""
        while isinstance(node, ast.Attribute):
            node = node.value
        origins = self._origins.get(_name(node), ())
        return next(iter(origins)) if len(origins) == 1 else None

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The packages that names are imported from."""
        found = defaultdict[str, set[str]](set)
        imports: list[ast.Import | ast.ImportFrom] = [
            *self.every(ast.Import),
            *self.every(ast.ImportFrom),
        ]
        for part in imports:
            for one in part.names:
                home = (part.module or "") if isinstance(part, ast.ImportFrom) else one.name
                found[one.asname or one.name.partition(".")[0]].add(home.partition(".")[0])
        return found

    @cached_property
    def parsers(self) -> frozenset[str]:
        """The names of variables and attributes that hold a parser, or a group of one.

        They are assigned from a parser's class, or from a function that returns such a variable.
        """
        assigned = [
            (_name(target), _name(node.value.func))
            for node in self.every(ast.Assign)
            if isinstance(node.value, ast.Call)
            for target in node.targets
        ]
        made_here = {name for name, maker in assigned if maker in _PARSERS | _GROUPS}

        returned = [
            node.lineno
            for node in self.every(ast.Return)
            if node.value and _name(node.value) in made_here
        ]
        functions = self.every(ast.FunctionDef) if returned else []
        makers = {
            function.name
            for function in functions
            if any(function.lineno <= line <= (function.end_lineno or 0) for line in returned)
        }
        made_by_function = {name for name, maker in assigned if maker in makers}
        return frozenset((made_here | made_by_function) - {""})

    def _file(self, name: str) -> Path | None:
        bare = name.lstrip(".")
        bases = [self.path.parent, *islice(self.path.parent.parents, _MOST_ABOVE)]
        bases = bases[max(len(name) - len(bare) - 1, 0) :][:1] if bare != name else bases
        first = bare.partition(".")[0]
        # fewer questions to the disk than one for each module that may be there
        here = str(self.path.parent)
        bases = [
            base
            for base in bases
            if bare and not {first, f"{first}.py"}.isdisjoint(names_in(str(base), here))
        ]
        places = (
            base / f"{bare.replace('.', '/')}{end}"
            for base in bases
            for end in (".py", "/__init__.py")
        )
        return next((place for place in places if is_readable(place, self.path.parent)), None)


_module = until_next_check(256)(_Module)


def _modules(first: Path) -> Iterator[_Module]:
    """A program, and then what it imports from the repository."""
    waiting, seen = [first], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            yield (module := _module(path))
            waiting += module.imported


def _options(
    module: _Module, made: ast.Call, classes: Mapping[str, frozenset[str]]
) -> frozenset[str] | None:
    names = {_name(node) for node in module.every(ast.Attribute, ast.Name)}
    given = (
        (call, value)
        for call in module.calls
        for value in (*call.args, *(one.value for one in call.keywords))
    )
    named, parsers = ((_name(call.func), _name(value)) for call, value in given), module.parsers
    adding = {method for method, name in named if name in parsers or "parser" in name.lower()}
    keywords = {keyword.arg for call in module.calls for keyword in call.keywords}
    used = {node.attr for node in module.every(ast.Attribute) if _name(node.value) in parsers}
    # other calls make folders
    inherits = any(keyword.arg == "parents" for keyword in made.keywords)
    if inherits or names & _OPEN or keywords & _OPEN or adding - _ADDS or used - _PLAIN:
        return None
    found = set(OF_DEEPSPEED) if adding else set[str]()
    for call in module.calls:
        if _name(call.func) == "add_argument":
            values = [
                argument.value for argument in call.args if isinstance(argument, ast.Constant)
            ]
            words = [value for value in values if isinstance(value, str)]
            if not words or len(words) < len(call.args):
                return None
            found |= {word for word in words if word.startswith("--")}
            found |= {f"--no-{word[2:]}" for word in words if "BooleanOptionalAction" in names}
    if _name(made.func) == "HfArgumentParser":
        first = made.args[0] if made.args else None
        listed = first.elts if isinstance(first, (ast.Tuple, ast.List)) else made.args[:1]
        fields = [_fields(module, node, classes, _MOST_MODULES) for node in listed]
        if not fields or None in fields:
            return None
        found |= {
            f"--{no}{field}" for known in fields for field in known or () for no in ("", "no_")
        }
        found |= {option.replace("_", "-") for option in found}
    return frozenset({*found, "--help"})


def _fields(
    module: _Module,
    given: ast.expr,
    classes: Mapping[str, frozenset[str]],
    depth: int,
    within: str = "",
) -> frozenset[str] | None:
    """Return the fields of a class that a module names, with those of its bases.

    Returns None where one of the classes isn't known.
    """
    name, near = _name(given), islice(_modules(module.path), _MOST_MODULES)
    # by a class of that name
    hidden = isinstance(given, ast.Name) and name in module.classes and name != within
    if not hidden and module.origin(given) == "transformers":
        # with other fields, maybe
        copies = (base / COPIES["transformers"][0] for base in folders_above(module.path))
        return (
            None
            if any(is_readable(copy, module.path.parent) for copy in copies)
            else classes.get(name)
        )
    home = next((one for one in near if f"class {name}" in one.text and name in one.classes), None)
    if home is None or not depth or _ALIASES in home.text:
        return None
    node = home.classes[name]
    targets = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
    own = {target.id for target in targets if isinstance(target, ast.Name)}
    for base in node.bases:
        above = _fields(home, base, classes, depth - 1, name)
        if above is None and _name(base) != "object":
            return None
        own |= above or frozenset()
    return frozenset(own)


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
