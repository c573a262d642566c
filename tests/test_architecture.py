"""The house keeps its shape: imports point one way, every package ships, there is one version."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from setuptools import find_packages

import dsgen
from dsgen.catalog import load_catalog
from dsgen.programs import records
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS

pytestmark = pytest.mark.xdist_group("architecture")  # one process reads the sources, once
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "generator"

ORDER = (
    {"version", "dataclass", "patterns", "resources", "numerals", "lasting"},
    {"units", "secrets", "faults"},
    {"findings"},
    {"places"},
    {"rule", "shape", "json_schema"},
    {"text"},
    {"catalog"},
    {"job"},
    {"facts"},
    {"estimate"},
    {"rules"},
    {"search"},
    {"submission"},
    {"programs"},
    {"check", "render", "write"},
    {"draft", "report"},
    {"cli"},
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

#: The folders and modules in `programs`: one imports another only to hand on what that one reads.
#: The others are leaves, which only the lists at the end import.
PROGRAMS = (
    {"pins"},
    {"program", "releases"},
    {"python_around"},
    {"deepspeed"},
    {"launching"},
    {"cluster_jobs", "slurm", "trainer"},
    {"megatron"},
    set[str](),
    {"records"},
    {"frameworks", "launchers", "file_rules", "job_rules"},
)
#: Kinds of files that are no single program's; `text` and `submission` read them.
OWN_KINDS = {"job spec", "launch script", "hostfile", "environment file"}
RANK_IN_PROGRAMS = {name: rank for rank, names in enumerate(PROGRAMS) for name in names}
RANK_OF_LEAVES = PROGRAMS.index(set())

PATHS = sorted(PACKAGE.rglob("*.py"))
MODULES = [path for path in PATHS if path.parent != PACKAGE or path.stem in RANK]
LAUNCH_TARGETS = set(LAUNCHERS)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of the module at `path`."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax."""
    return tuple(ast.walk(tree(path)))


def shown(path: Path) -> str:
    """A module's path in the package."""
    return str(path.relative_to(PACKAGE))


def dotted(path: Path) -> str:
    """A module's name from the package's root."""
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip(".")
    )


NAMES = {dotted(path): path for path in PATHS}


@cache
def relative_imports(path: Path) -> tuple[str, ...]:
    """Names, from the package's root, of the modules that the module at `path` imports, wherever it
    does so.
    """
    return tuple(_relative_imports(path))


def _relative_imports(path: Path) -> Iterator[str]:
    package = path.parent.relative_to(PACKAGE).parts
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)]
            module = ".".join((*base, *(node.module.split(".") if node.module else ())))
            for alias in node.names:
                name = f"{module}.{alias.name}".lstrip(".")
                yield name if name in NAMES or not module else module


def absolute_imports(path: Path) -> Iterator[str]:
    """Top-level names of the absolute imports of the module at `path`."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def executed(path: Path) -> set[str]:
    """The modules that run when the one at `path` imports what it does, those of the folders that
    they are in too.
    """
    here, found = dotted(path), set()
    for name in relative_imports(path):
        parts = name.split(".")
        above = {".".join(parts[:end]) for end in range(1, len(parts))}
        found |= {name} | {folder for folder in above if not f"{here}.".startswith(f"{folder}.")}
    return (found & NAMES.keys()) - {here, ""}


@cache
def functions(path: Path) -> tuple[ast.FunctionDef, ...]:
    """The functions of a module, also those within others."""
    return tuple(node for node in nodes(path) if isinstance(node, ast.FunctionDef))


def test_imports_make_no_circle() -> None:
    """No module is imported by what it imports, through however many others, in functions, or for
    types alone.
    """
    assert circle_in({dotted(path): executed(path) for path in PATHS}) == []


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The names of a circle in a graph; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def comments(path: Path) -> list[str]:
    """The comments of a module."""
    with path.open("rb") as stream:
        return [
            token.string
            for token in tokenize.tokenize(stream.readline)
            if token.type == tokenize.COMMENT
        ]


def test_imports_in_functions_save_start_up_time() -> None:
    """A module that imports something within a function has a comment that says it saves start-up
    time.
    """
    silent = []
    for path in PATHS:
        imports = [node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom)]
        indented = any(node.col_offset for node in imports)
        inside = indented and any(
            isinstance(node, ast.Import | ast.ImportFrom)
            for function in functions(path)
            for node in ast.walk(function)
        )
        if inside and not any("start-up" in comment for comment in comments(path)):
            silent.append(shown(path))
    assert silent == []


def test_public_names_have_a_docstring() -> None:
    """Every function and class of a module whose name has no underscore in front says what it
    is.
    """
    bare = [
        f"{shown(path)}: {node.name}"
        for path in PATHS
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name[0] != "_"
        and not ast.get_docstring(node)
    ]
    assert bare == []


def constants(node: ast.AST) -> set[object]:
    """The value of a constant, or those of a literal collection, of a dictionary the keys."""
    if isinstance(node, ast.Dict):
        return {key.value for key in node.keys if isinstance(key, ast.Constant)}
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant)}


def names_asked_for(path: Path) -> Iterator[ast.AST]:
    """Where a module outside their folders compares a framework's or a launch target's name, or
    lists targets.
    """
    for node in nodes(path):
        if isinstance(node, ast.Compare) and any(
            constants(part) - {None} for part in (node.left, *node.comparators)
        ):
            for part in map(ast.unparse, (node.left, *node.comparators)):
                of_framework = re.search(r"\bframework(\.name)?$|\bstr\(.*framework\)$", part)
                of_target = re.search(
                    r"\b(launch\.|launcher_|launch_)?target$|\blauncher\.name$", part
                )
                if (of_framework and "programs" not in path.parts) or (
                    of_target and "programs" not in path.parts
                ):
                    yield node
        lists = (
            isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
            and "programs" not in path.parts
        )
        if lists and len(constants(node) & LAUNCH_TARGETS) > 1:
            yield node


def test_nobody_asks_for_a_framework_or_launcher_by_name() -> None:
    """Outside their folders, no module compares a framework's or a launch target's name, or lists
    targets.
    """
    assert [
        f"{shown(path)}: {ast.unparse(node)}" for path in PATHS for node in names_asked_for(path)
    ] == []


def test_imports_point_one_way() -> None:
    """A module imports only from its own folder and from folders to the left of it in the design's
    order.
    """
    wrong = set()
    for path in MODULES:
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in relative_imports(path):
            there = name.split(".")[0]
            public = here == "cli" and there in dsgen.__all__
            if not (public or there == here or RANK[there] < RANK[here]):
                wrong.add(f"{shown(path)} imports {name}")
    assert wrong == set()


def test_imports_point_one_way_in_programs() -> None:
    """A program imports only from those before it in their order, in functions and for types
    too.
    """
    wrong = set()
    for path in PATHS:
        here = path.relative_to(PACKAGE).with_suffix("").parts
        if here[0] != "programs" or here[1] == "__init__":
            continue
        for name in relative_imports(path):
            there = name.split(".")
            if there[0] != "programs" or len(there) == 1 or there[1] == here[1]:
                continue

            ranks = [RANK_IN_PROGRAMS.get(area[1], RANK_OF_LEAVES) for area in (there, here)]
            if ranks[0] >= ranks[1]:
                wrong.add(f"{shown(path)} imports {name}")
    assert wrong == set()


def folder_graph(depth: int) -> dict[str, set[str]]:
    """What each folder imports, wherever it does so; a module beside folders counts as one of them.

    Names have at most `depth` parts, so that a module counts with the folder that holds it at that
    depth.
    """

    def area(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    graph: dict[str, set[str]] = {}
    for path in PATHS:
        here = area(dotted(path))
        there = {area(name) for name in relative_imports(path) if name in NAMES}
        graph.setdefault(here, set()).update(there - {here, ""})
    graph.pop("", None)  # the package itself, whose public interface is above all of it
    return graph


DEPTHS = range(1, 1 + max(len(dotted(path).split(".")) for path in PATHS))


@pytest.mark.parametrize("depth", DEPTHS)
def test_folders_make_no_circle(depth: int) -> None:
    """At no depth of the package does a folder import one that imports it, through however many
    others.
    """
    assert circle_in(folder_graph(depth)) == []


def test_what_belongs_together_names_no_program() -> None:
    """In the readers of text, and in what tells which files belong together, no text is a program's
    or its files' name.
    """
    kinds = set(records.PROGRAMS.kinds) - OWN_KINDS
    names = kinds | {record.name for record in records.PROGRAMS} - {"dsgen", "shell"}
    names |= set(records.PROGRAMS.frameworks)
    folders = (PACKAGE / "text", PACKAGE / "submission")
    assert [
        f"{shown(path)}: {node.value}"
        for path in PATHS
        if any(path.is_relative_to(folder) for folder in folders)
        for node in nodes(path)
        if isinstance(node, ast.Constant) and node.value in names
    ] == []


def test_imports_inside_the_package_are_relative() -> None:
    """No module names its own package absolutely, so that it can't be imported under two names."""
    assert [
        shown(path) for path in PATHS if {"dsgen", "generator"} & set(absolute_imports(path))
    ] == []


def test_no_module_names_a_generation() -> None:
    """What accelerators of a generation are able to do is asked of its entry in the catalog, never
    by its name.
    """
    names = {name.lower() for name in load_catalog().generations}
    assert [
        f"{shown(path)}:{node.lineno}"
        for path in PATHS
        for node in nodes(path)
        if isinstance(node, ast.Constant) and str(node.value).lower() in names
    ] == []


def test_every_folder_has_its_place_in_the_order() -> None:
    """A new folder or module of the package has to be given its place in the import order first."""
    names = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or path.is_dir()
    }
    assert names - {"__init__", "__main__", "__pycache__"} <= set(RANK)


def test_every_package_is_found() -> None:
    """setup.py finds every folder with Python code; one that it misses imports here and is absent
    from a wheel.
    """
    folders = {".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("*/*.py")}
    assert set(find_packages(str(PACKAGE))) == folders


def test_there_is_one_version() -> None:
    """The version is written in one place, and the changelog knows it."""
    version = dsgen.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    written = [
        path
        for path in (*PACKAGE.rglob("*.py"), ROOT / "setup.cfg", ROOT / "pyproject.toml")
        if re.search(
            rf"version\S* *= *['\"]?{re.escape(version)}['\"]?", path.read_text(encoding="utf-8")
        )
    ]
    assert written == [PACKAGE / "version.py"]


def claims_of(syntax: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Tests of a module or a class, with their docstrings."""
    for node in syntax.body:
        if isinstance(node, ast.ClassDef):
            yield from claims_of(node)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, ast.get_docstring(node) or ""


def test_every_test_states_its_claim() -> None:
    """Every test function has a docstring that ends with a full stop."""
    claims = {
        f"{path.name}: {name}": claim.rstrip()
        for path in (ROOT / "tests").rglob("test_*.py")
        for name, claim in claims_of(tree(path))
    }
    assert [name for name, claim in claims.items() if not claim.endswith(".")] == []


#: Where a rule asks another, or a rule on files one of planning, which are themselves asked by
#: `rule.py`.
ASK_WITHIN_RULES = {
    "programs/megatron/rules/batch.py",
    "programs/megatron/rules/shape.py",
    "rules/run.py",
}


def test_rules_are_asked_where_faults_are_noted() -> None:
    """Only `rule.py` calls what a rule's author wrote, and notes what it raises; a rule may ask
    another.
    """
    asked = {
        f"{shown(path)}: {ast.unparse(node.func)}"
        for path in PATHS
        if shown(path) not in {"rule.py", *ASK_WITHIN_RULES}
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and re.search(r"\.check$|\.subjects$|\bcolumns\.(holds|binds)$", ast.unparse(node.func))
    }
    assert asked == set()


#: Programs and parts of programs that a formula or rule might ask for by name, beside the
#: frameworks' own names.
SOFTWARE = (
    *("deepspeed", "megatron", "megatron-core", "megatron layers", "deepspeed engine", "autotp"),
    *("trainer", "transformers", "own script", "fsdp", "fsdp2", "torchtitan", "megatron-bridge"),
)


#: Who reads a file, and whose arguments it has: facts of files, which have no engine.
FILE_FACTS = ("consumer", "flavour")


def compared(node: ast.AST) -> Iterator[ast.AST]:
    """What a node compares values with: operands, patterns, and the arguments of methods that look
    at a text.
    """
    if isinstance(node, ast.Compare):
        if not (isinstance(node.left, ast.Attribute) and node.left.attr in FILE_FACTS):
            yield from (node.left, *node.comparators)
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from node.args if node.func.attr in ("startswith", "endswith", "runs") else ()


def texts(operand: ast.AST) -> Iterator[str]:
    """The texts that an operand is, or has as an element."""
    if isinstance(operand, ast.Constant):
        yield str(operand.value).lower()
    elif isinstance(operand, ast.Tuple | ast.List | ast.Set):
        for element in operand.elts:
            yield from texts(element)


def asks_for(names: set[str], code: Iterable[ast.AST]) -> list[int]:
    """The lines of nodes that compare a value with one of these names, or ask which software
    runs.
    """
    return sorted(
        {
            node.lineno
            for node in code
            if (isinstance(node, ast.Attribute) and node.attr == "software")
            or not names.isdisjoint(text for each in compared(node) for text in texts(each))
        }
    )


def test_nothing_compares_with_the_name_of_a_framework() -> None:
    """Outside of programs, what an engine does is asked of its record's properties, never by a
    program's name.
    """
    engines = [framework.engine for framework in FRAMEWORKS.values()]
    measured = {name for each in engines for name in (each.measured_as, each.measured_cut) if name}
    names = {name.lower() for name in (*FRAMEWORKS, *measured, *SOFTWARE)}
    folders = {path.relative_to(PACKAGE).parts[0] for path in PATHS} - {"programs"}
    asked = {
        shown(path): lines
        for path in PATHS
        if path.relative_to(PACKAGE).parts[0] in folders and (lines := asks_for(names, nodes(path)))
    }
    assert asked == {}


@pytest.mark.parametrize(
    "code",
    [
        'job.framework.name == "megatron-lm"',
        '"deepspeed" != name',
        'name in ("deepspeed", "other")',
        'name not in {"Megatron-LM"}',
        'job.framework.runs("AutoTP")',
        'name.startswith("megatron")',
        "framework.software",
        'match name:\n    case "huggingface" | "other":\n        pass',
    ],
)
def test_a_question_for_a_name_is_noticed(code: str) -> None:
    """Comparisons, memberships, patterns and calls that ask for a program's name are found."""
    assert asks_for(
        {"megatron-lm", "deepspeed", "autotp", "megatron", "huggingface"}, ast.walk(ast.parse(code))
    )
