"""From what a program takes its place among the ranks.

The program counts with the modules that it imports from the repository: many have a module that
sets up the process group.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...submission.repository import (
    has_text,
    program_of,
    python_beside,
    strings_beside,
    strings_in,
)
from ...text.around import text_around, until_next_check
from ..python_around import tells
from .program_modules import (
    DEFINITIONS,
    Module,
    is_for_main,
    module_of,
    modules_from,
    name_of,
)

#: A variable of a launcher's, as a program reads it, in no comment.
_READS_RANK: Final = lazy_pattern(
    r"^[^#\n]*?(?:\b(?:environ(?:\.get)?|getenv)\s*[\[(]\s*[\"'](RANK|LOCAL_RANK|WORLD_SIZE)[\"']"
    r"|[\"'](RANK|LOCAL_RANK|WORLD_SIZE)[\"']\s+in\s+os\.environ\b)",
    re.MULTILINE,
)
_RANKS: Final = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})
#: The call by which a module that reads a rank uses it for the run.
_SETS_UP: Final = "init_process_group"
#: Packages, and a function, that ask Slurm or MPI for the ranks. Sources:
#: lightning_fabric/plugins/environments, timm/utils/distributed.py, mmengine/dist/utils.py,
#: ignite/distributed/comp_models/native.py, fairseq/distributed/utils.py,
#: physicsnemo/distributed/manager.py, jax/_src/clusters, IDRIS's manual (idr_torch).
_ASKS_FOR_RANKS: Final = lazy_pattern(
    r"^[ \t]*(?:import|from)\s+(?:pytorch_lightning|lightning\w*|timm|mm(?:cv|engine)|ignite"
    r"|fairseq|physicsnemo|modulus|jax|submitit|horovod|mpi4py|ray|nemo|composer|idr_torch)\b"
    r"|\bdeepspeed\.init_distributed\(",
    re.MULTILINE,
)
_OF_SCHEDULERS: Final = ("SLURM", "OMPI", "PMI_", "PMIX", "MV2_")
#: Modules of a program that are looked into: a bound on time.
_MOST_MODULES: Final = 200
#: Calls by which a program may give itself the variables.
_MAY_SET: Final = lazy_pattern(
    r"\bsetdefault\(\s*[\"'](?:LOCAL_)?RANK\b|\benviron\.update\(|\bdotenv\b"
)


def rank_variables(launch: Launch) -> frozenset[str]:
    """The variables of a launcher's from which a program takes its place among the ranks.

    There are none where the program isn't here, or Python around it may ask Slurm or MPI.
    """
    program = program_of(launch)
    return frozenset() if program is None else _variables_of(program)


@until_next_check(64)
def _variables_of(program: Path) -> frozenset[str]:
    """The variables of `rank_variables`, of a program."""
    modules = _modules_of(program)
    texts = [module.text for module in modules if module.path == program or _SETS_UP in module.text]
    found = chain.from_iterable(map(_READS_RANK.findall, texts))
    variables = frozenset(filter(None, chain.from_iterable(found)))
    if not variables or tells("ranks", str(program)):
        return frozenset()
    strings = strings_beside(program).union(*(strings_in(module.path) for module in modules))
    if any(name in string for string in strings for name in _OF_SCHEDULERS):
        return frozenset()
    beside = [text_around(path, path.parent) for path in python_beside(program)]
    around = [*beside, *(module.text for module in modules)]
    return frozenset() if any(map(_ASKS_FOR_RANKS.search, around)) else variables


@until_next_check(64)
def _modules_of(program: Path) -> tuple[Module, ...]:
    """A program and the modules that it imports from the repository, the nearest first."""
    return tuple(islice(modules_from(program), _MOST_MODULES))


#: What makes the group of all ranks in a program of these packages.
_GROUPS_OF: Final = {
    "transformers": ("Trainer", "TrainingArguments", "HfArgumentParser"),
    "trl": ("Trainer", "Config", "TrlParser"),
    "accelerate": ("Accelerator", "PartialState"),
    "deepspeed": ("initialize", "init_distributed"),
}


def may_make_group(launch: Launch) -> bool:
    """Return whether a launch's program makes a group of ranks, by itself or by a library.

    One that isn't here may.
    """
    program = program_of(launch)
    return program is None or _may_make_group(program)


@until_next_check(64)
def _may_make_group(program: Path) -> bool:
    return any(
        _SETS_UP in module.text or _ASKS_FOR_RANKS.search(module.text) or _calls_for_group(module)
        for module in _modules_of(program)
    )


def _calls_for_group(module: Module) -> bool:
    """Whether a module calls what makes a group in one of the packages that it imports."""
    if not any(package in module.text for package in _GROUPS_OF):
        return False  # as most are, which needn't be parsed
    return any(
        name_of(call.func).endswith(_GROUPS_OF.get(module.origin(call.func) or "", ()))
        for call in module.calls
    )


def asks_slurm(launch: Launch, number: str) -> bool:
    """Return whether the program takes a number from Slurm's variable itself, as SLURM_PROCID.

    Of a program that isn't known, one beside the script counts.
    """
    program = program_of(launch)
    if program is not None:
        return any(number in module.text for module in _modules_of(program))
    folder, pattern = Path(launch.script.text.path).absolute().parent, re.compile(number)
    is_known = launch.program is not None and launch.program.value is not None
    return not is_known and has_text(folder, pattern, ("*.py",), number)


def needed_ranks(launch: Launch) -> frozenset[str]:
    """The variables of a launcher's without which the program surely ends with a KeyError.

    It looks them up without a default and under no condition.
    """
    program = program_of(launch)
    return frozenset() if program is None else _needed_by(program)


@until_next_check(64)
def _needed_by(program: Path) -> frozenset[str]:
    """The variables of `needed_ranks`, of a program."""
    module = module_of(program)
    if not any(name in module.text for name in _RANKS) or _MAY_SET.search(module.text):
        return frozenset()
    functions = {node.name: node.body for node in module.top if isinstance(node, ast.FunctionDef)}
    needed = set[str]()
    for statement in _surely_run(module.top, functions):
        if statement is None:
            break
        needed |= {_looked_up(node) for node in _evaluated(statement)}
    return frozenset(needed & _RANKS)


def _surely_run(
    body: list[ast.stmt], functions: dict[str, list[ast.stmt]]
) -> Iterator[ast.stmt | None]:
    """The statements that a body surely runs, with those of the functions that it calls.

    None follows where the program may end, or may leave the function.
    """
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            continue
        if isinstance(statement, ast.With) or is_for_main(statement):
            yield from _surely_run(statement.body, functions)
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            for node in _evaluated(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    # Each function once: one may call itself.
                    yield from _surely_run(functions.pop(node.func.id, []), functions)
            yield statement
        elif any(map(_may_end, ast.walk(statement))):
            yield None


def _may_end(node: ast.AST) -> bool:
    """Whether a program, or a function, may end here."""
    is_call = isinstance(node, ast.Call) and name_of(node.func) in ("exit", "_exit", "abort")
    return is_call or isinstance(node, (ast.Return, ast.Raise))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that are surely evaluated."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.IfExp, ast.BoolOp, ast.Lambda)):
            yield from _evaluated(child)


def _looked_up(node: ast.AST) -> str:
    """The variable that `os.environ["RANK"]` looks up; an empty text for another node."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return ""
    if name_of(node.value) != "environ":
        return ""
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    return key if isinstance(key, str) else ""
