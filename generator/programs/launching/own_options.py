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
from sys import stdlib_module_names
from typing import Any, Final, NamedTuple, TypeVar

from ...numerals import read_whole
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...submission.repository import program_of, program_path, programs_in
from ...text.around import folders_above, is_readable, names_in, text_around, until_next_check
from ...text.slips import is_slip
from ...text.wording import whole_number
from ..releases import COPIES, parsed
from .class_names import Binding, bindings

#: The modules of a program that are searched for its parser, or for a class of its arguments; of
#: 486 public programs 479 have it in these.
_MOST_MODULES: Final = 12
#: The modules that are searched for the name of an option; LLaMA-Factory's are in the 50th.
_MOST_DECLARING: Final = 100
#: The folders above a module in which those that it imports are looked for.
_MOST_ABOVE: Final = 6
#: Classes whose objects read a program's options.
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
#: A word of a module that is a program of its own too, perhaps with a parser for that.
_MAIN: Final = "__main__"
#: Methods by which a parser reads the command line.
_PARSES: Final = frozenset({"parse_args", "parse_args_into_dataclasses"})
#: Gives other names to the option that a field makes. Source: transformers 5.23, hf_argparser.py,
#: HfArg.
_ALIASES: Final = "aliases"
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
        "add_subparsers",
        "REMAINDER",
        _ALIASES,
        "return_remaining_strings",
        "prefix_chars",
    }
)
#: The same in a text that needs no parsing then.
_LEFT_OPEN: Final = lazy_pattern(
    r"\b(?:parse_known_\w*args|add_subparsers|return_remaining_strings)\b"
)
#: An option's name as argparse and its kin are given it, or a field of a class; `-` is written as
#: `_`.
_DECLARES: Final = lazy_pattern(r"""["']__(\w+)["']|^[ ]{4}(\w+)\s*:\s*[A-Za-z"']""", re.MULTILINE)
#: Methods that make a part of a parser, to which options are added as well.
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
        "error",
        "exit",
        "format_help",
        "format_usage",
        "print_help",
        "print_usage",
        "set_defaults",
        "get_default",
        *_GROUPS,
    }
)
#: `from a.b import c`, or `import a.b as c, d`, of which the names are before `as` and between
#: commas.
_IMPORTS: Final = lazy_pattern(
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
#: Functions of DeepSpeed that add options to a parser.
_ADDS: Final = frozenset({"add_config_arguments", "add_core_arguments", "add_tuning_arguments"})

Node = TypeVar("Node", bound=ast.AST)
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
        for module in islice(_modules(program), _MOST_MODULES)
        if any(name in module.text for name in _PARSERS)
        # A module beside the program may have a parser for itself as a program.
        and (module.path == program or _MAIN not in module.text)
    )
    module = next(with_parser, None)
    if module is None or _LEFT_OPEN.search(module.text):
        return None
    # Of several modules beside the program it isn't known which parser is used.
    if module.path != program and next(with_parser, None):
        return None

    parser_calls = [call for call in module.calls if _name(call.func) in _PARSERS]
    is_parsed = any(_name(call.func) in _PARSES for call in module.calls)
    if len(parser_calls) != 1 or not is_parsed:
        return None
    (parser_call,) = parser_calls
    if module.origin(parser_call.func) not in _ORIGINS:
        return None
    return _options(module, parser_call, _Classes(program, dict(classes)))


@until_next_check(64)
def valued_options(program: Path) -> frozenset[str]:
    """Return the options of argparse that need a value, wherever the first modules of a program add
    them.
    """
    in_need, others = set[str](), set[str]()
    for module in islice(_modules(program), _MOST_MODULES):
        if "add_argument" not in module.text:  # which needs no parsing then
            continue
        for call in module.calls:
            if _name(call.func) != "add_argument":
                continue
            written = {keyword.arg: keyword.value for keyword in call.keywords}
            # None: `**more`
            needs_value = written.keys().isdisjoint({"action", None}) and _is_at_least_one(
                written.get("nargs")
            )
            if needs_value:
                in_need.update(_texts_among(call.args))
            else:
                others.update(_texts_among(call.args))
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
    modules = [module for module in islice(_modules(program), _MOST_MODULES) if name in module.text]
    takes_value = [
        _VALUE.fullmatch(ast.unparse(part.annotation)) is not None
        for module in modules
        for node in module.classes.values()
        if any(
            _name(each.func if isinstance(each, ast.Call) else each) == "dataclass"
            for each in node.decorator_list
        )
        for part in node.body
        if isinstance(part, ast.AnnAssign) and _name(part.target) == name
    ]
    is_written = any(f"--{name}" in module.text for module in modules)  # for another parser
    return bool(takes_value) and all(takes_value) and not is_written


def parses_classes(program: Path) -> bool:
    """Return whether a program's first modules make options of the fields of classes."""
    return any("HfArgumentParser" in text for text in _texts(program))


def _texts_among(arguments: Iterable[ast.expr]) -> list[str]:
    """The arguments of a call that are texts written out."""
    return [
        argument.value
        for argument in arguments
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def slips(program: Path, options: Iterable[str]) -> dict[str, str]:
    """Return, by each of `options` that is a slip of an option that a program has, what was meant.

    An option that its first modules have anywhere in their text is no slip.
    """
    names = {option: option.lstrip("-").replace("-", "_") for option in options}
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
    return meant_by_option


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
    module = _module(program)
    used = {(_name(node), module.origin(node)) for node in module.every(ast.Attribute, ast.Name)}
    trains_by = {
        library
        for library, pattern, homes in _TRAINS
        if any(home in (homes or (home,)) and re.fullmatch(pattern, name) for name, home in used)
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
def _texts(program: Path, most: int = _MOST_MODULES) -> tuple[str, ...]:
    """The first modules of a program, with `-` written as `_`."""
    return tuple(module.plain_text for module in islice(_modules(program), most))


@until_next_check(64)
def _declared(program: Path) -> tuple[str, ...]:
    """Return the options and fields that the modules of a program declare.

    Those that DeepSpeed adds for it are among them.
    """
    modules = list(islice(_modules(program), _MOST_DECLARING))
    declared = {name for module in modules for name in module.declared}
    if any(name in module.plain_text for module in modules for name in _ADDS):
        declared |= {option.lstrip("-").replace("-", "_") for option in OF_DEEPSPEED}
    return tuple(sorted(declared))


def pipeline_stages(launch: Launch) -> int | None:
    """Return the stages of the `PipelineModule` that a program makes.

    They are a number, or an option's value, given or by default.
    """
    path = program_of(launch)
    if path is None or _PIPELINE not in text_around(path, path.parent):
        return None

    module = _module(path)
    values = (
        keyword.value
        for call in module.calls
        if _name(call.func) == _PIPELINE
        for keyword in call.keywords
        if keyword.arg == "num_stages"
    )
    stages = next(values, None)
    if stages is None:
        return None
    if isinstance(stages, ast.Constant):
        return whole_number(stages.value)
    return _value_of_option(module, _name(stages), launch)


def _value_of_option(module: _Module, name: str, launch: Launch) -> int | None:
    """The number that a launch line gives to the option of a field's name, or its default."""
    for call in module.calls:
        if _name(call.func) != "add_argument":
            continue
        options = _texts_among(call.args)
        keywords = {
            keyword.arg: keyword.value.value
            for keyword in call.keywords
            if isinstance(keyword.value, ast.Constant)
        }
        fields = {option.lstrip("-").replace("-", "_") for option in options}
        if name not in fields and name != keywords.get("dest"):
            continue

        words = [part for word in launch.arguments for part in (word.value or "").split("=", 1)]
        values = (text for option, text in pairwise(words) if option in options)
        value = next(values, None)
        return whole_number(keywords.get("default")) if value is None else read_whole(value)
    return None


def has_unknown_stages(launch: Launch) -> bool:
    """Return whether a program has DeepSpeed's pipeline, and its stages aren't known."""
    path = program_of(launch)
    return (
        path is not None
        and _PIPELINE in text_around(path, path.parent)
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
    def plain_text(self) -> str:
        """Its text with `-` written as `_`, as many programs that import it ask for it."""
        return self.text.replace("-", "_")

    @cached_property
    def declared(self) -> frozenset[str]:
        """The options and fields that it declares, `-` written as `_`."""
        return frozenset(option or field for option, field in _DECLARES.findall(self.plain_text))

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[Any]]:
        """All that is in it, from outside in; only the empty module where it can't be parsed."""
        by_kind = defaultdict[type[ast.AST], list[Any]](list)
        nodes: list[ast.AST] = [parsed(self.text)]
        for node in nodes:  # which grow; twice as fast as `ast.walk`, in the same order
            by_kind[type(node)].append(node)
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    nodes.append(value)
                elif isinstance(value, list):
                    nodes += [each for each in value if isinstance(each, ast.AST)]
        return by_kind

    def every(self, *kinds: type[Node]) -> list[Node]:
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]

    @property
    def top(self) -> list[ast.stmt]:
        """The statements of the module itself."""
        return [statement for tree in self.every(ast.Module) for statement in tree.body]

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
                f"{origin.rstrip('.')}.{member}"
                for member in re.findall(_FIRST, members)
                if origin.strip(".")
            ]
            names += [origin] if origin else re.findall(_FIRST, several)
        folder = self.path.parent
        files = (_file_of(name, folder) for name in dict.fromkeys(names))
        return tuple(filter(None, files))

    def origin(self, node: ast.expr) -> str | None:
        """The package that a name is imported from; None where that isn't seen."""
        while isinstance(node, ast.Attribute):
            node = node.value
        origins = self._origins.get(_name(node), ())
        return next(iter(origins)) if len(origins) == 1 else None

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The packages that names are imported from."""
        packages = defaultdict[str, set[str]](set)
        for node in self.every(ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                packages[alias.asname or package].add(package)
        for from_node in self.every(ast.ImportFrom):
            package = (from_node.module or "").partition(".")[0]
            for alias in from_node.names:
                packages[alias.asname or alias.name.partition(".")[0]].add(package)
        return packages

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


_module = until_next_check(256)(_Module)


@until_next_check(4096)
def _file_of(name: str, folder: Path) -> Path | None:
    """The file of a module that one in a folder imports, from there or from a few folders above."""
    bare = name.lstrip(".")
    if not bare:
        return None
    dots = len(name) - len(bare)
    homes = _homes(folder)
    if dots:  # relative: `.module` is in this folder, `..module` in the one above
        homes = homes[dots - 1 : dots]

    # One look at a folder is less than one for each file that may be there.
    first = bare.partition(".")[0]
    places = (
        home / f"{bare.replace('.', '/')}{end}"
        for home, names in homes
        if first in names or f"{first}.py" in names
        for end in (".py", "/__init__.py")
    )
    return next((place for place in places if is_readable(place, folder)), None)


@until_next_check(256)
def _homes(folder: Path) -> tuple[tuple[Path, frozenset[str]], ...]:
    """A folder and a few above it, with the names in each."""
    above = (folder, *islice(folder.parents, _MOST_ABOVE))
    return tuple((home, frozenset(names_in(str(home), str(folder)))) for home in above)


def _modules(first: Path) -> Iterator[_Module]:
    """A program, and then what it imports from the repository."""
    waiting, seen = [first], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            module = _module(path)
            yield module
            waiting += module.imported


def _options(module: _Module, parser_call: ast.Call, classes: _Classes) -> frozenset[str] | None:
    """The options of the parser that a call makes; None where there may be others."""
    if _leaves_open(module, parser_call):
        return None

    names = _written_names(module)
    if names is None:
        return None
    options = {name for name in names if name.startswith("--")}
    if "BooleanOptionalAction" in _names(module):
        options |= {f"--no-{name[2:]}" for name in names}
    if _called_with_parser(module):  # functions of DeepSpeed: others leave the options open
        options |= OF_DEEPSPEED

    if _name(parser_call.func) == "HfArgumentParser":
        of_classes = parser_call.args[:1]
        if of_classes and isinstance(of_classes[0], (ast.Tuple, ast.List)):
            of_classes = of_classes[0].elts
        fields = [classes.fields(module, node) for node in of_classes]
        if not fields or None in fields:
            return None
        every = {field for of_class in fields for field in of_class or ()}
        # A field that is true by default has a switch for false too.
        options |= {f"--{field}" for field in every} | {f"--no_{field}" for field in every}
        options |= {option.replace("_", "-") for option in options}
    return frozenset({*options, "--help"})


def _names(module: _Module) -> set[str]:
    return {_name(node) for node in module.every(ast.Attribute, ast.Name)}


def _called_with_parser(module: _Module) -> set[str]:
    """The functions that are called with a parser, which may add options to it."""
    return {
        _name(call.func)
        for call in module.calls
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
        if _name(value) in module.parsers or "parser" in _name(value).lower()
    }


def _leaves_open(module: _Module, parser_call: ast.Call) -> bool:
    """Return whether a parser may have options that aren't written in its module."""
    if any(keyword.arg == "parents" for keyword in parser_call.keywords):
        return True
    keywords = {keyword.arg for call in module.calls for keyword in call.keywords}
    if not _OPEN.isdisjoint(_names(module) | keywords):
        return True
    methods = {
        node.attr for node in module.every(ast.Attribute) if _name(node.value) in module.parsers
    }
    return not (_called_with_parser(module) <= _ADDS and methods <= _PLAIN)


def _written_names(module: _Module) -> set[str] | None:
    """The names in the module's calls of `add_argument`; None where some aren't written out."""
    names = set[str]()
    for call in module.calls:
        if _name(call.func) == "add_argument":
            texts = _texts_among(call.args)
            if not texts or len(texts) < len(call.args):
                return None
            names |= set(texts)
    return names


class _Classes(NamedTuple):
    """Where the classes of a program's parser are looked for."""

    program: Path
    outside: Mapping[str, frozenset[str]]  #: the fields of those of transformers, by name

    def fields(self, module: _Module, written: ast.expr) -> frozenset[str] | None:
        """The fields of a class that a module names, with those of its bases.

        None where it isn't sure which class it is, or one of them isn't known.
        """
        possible = self._possible(module, written, None, _MOST_MODULES)
        return possible.pop() if len(possible) == 1 else None

    def _possible(
        self, module: _Module, written: ast.expr, within: ast.ClassDef | None, depth: int
    ) -> set[frozenset[str] | None]:
        """The fields of each class that a name may mean, None of one that isn't known.

        Empty: the module doesn't bind the name. `within` is the class that has it as a base.
        """
        if not depth or not isinstance(written, (ast.Name, ast.Attribute)):
            return {None}
        statements = [
            statement
            for statement in module.every(ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)
            if within is None or statement.lineno < within.lineno
        ]
        possible = set[frozenset[str] | None]()
        for binding in bindings(written, statements, module.top):
            if binding.defined is not None:
                found = {self._of_class(module, binding.defined, depth - 1)}
            elif binding.module:
                found = self._imported(module, binding, depth - 1)
            else:
                found = {None}
            if found:
                possible = found if binding.always else possible | found
        return possible

    def _imported(
        self, module: _Module, binding: Binding, depth: int
    ) -> set[frozenset[str] | None]:
        """The same of an imported name."""
        name = f"{binding.module}__init__" if binding.module.endswith(".") else binding.module
        folders = (module.path.parent, self.program.parent)
        files = {_file_of(name, folder) for folder in folders} - {None}
        if not files:
            return self._from_outside(module, binding)
        possible = set[frozenset[str] | None]()
        for file in filter(None, files):
            found = self._possible(_module(file), ast.Name(binding.name), None, depth)
            possible |= found or (set() if binding.is_star else {None})
        return possible

    def _from_outside(self, module: _Module, binding: Binding) -> set[frozenset[str] | None]:
        """The same of a name from a package that isn't in the repository."""
        package = binding.module.partition(".")[0]
        if package in stdlib_module_names and binding.is_star:
            return set()
        if package != "transformers":
            return {None}
        copies = (base / COPIES["transformers"][0] for base in folders_above(module.path))
        if any(is_readable(copy, module.path.parent) for copy in copies):
            return {None}  # a copy may have other fields
        return {self.outside.get(binding.name)}

    def _of_class(self, module: _Module, node: ast.ClassDef, depth: int) -> frozenset[str] | None:
        """The fields of a class, with those of its bases."""
        if _ALIASES in module.text:
            return None
        targets = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
        fields = {target.id for target in targets if isinstance(target, ast.Name)}
        for base in node.bases:
            if _name(base) == "object":
                continue
            of_base = self._possible(module, base, node, depth)
            known = of_base.pop() if len(of_base) == 1 else None
            if known is None:
                return None
            fields |= known
        return frozenset(fields)


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
