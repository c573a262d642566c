"""Write what the forks of Megatron read beyond it: `python scripts/megatron_forks.py MIRRORS`.

MIRRORS has a git directory `OWNER+NAME/repo` for each fork. From the files that define arguments,
at the commit that is there, come the options and the choices that neither Megatron-LM nor
Megatron-DeepSpeed has in any version of our table.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dsgen.programs.megatron.options import Flavour, option_table

OUTPUT: Final = (
    Path(__file__).parent.parent / "generator" / "programs" / "megatron" / "megatron_forks.json"
)
#: Fork: the project that it started from, the revision (empty: the newest), and the file that
#: defines arguments.
FORKS: Final[dict[str, tuple[Flavour, str, str]]] = {
    "bigscience-workshop/Megatron-DeepSpeed": ("megatron-deepspeed", "", "megatron/arguments.py"),
    "argonne-lcf/Megatron-DeepSpeed": ("megatron-deepspeed", "", "megatron/arguments.py"),
    "bigcode-project/Megatron-LM": ("megatron-lm", "", "megatron/arguments.py"),
    "alibaba/Pai-Megatron-Patch": ("megatron-lm", "", "megatron_patch/arguments.py"),
    "swiss-ai/Megatron-LM": ("megatron-lm", "", "megatron/training/arguments.py"),
    "ROCm/Megatron-LM": ("megatron-lm", "", "megatron/training/arguments.py"),
    "LLM360/k2-train": ("megatron-lm", "", "megatron/arguments.py"),
    "Megatron-LM before core_v0.8.0": (
        "megatron-lm",
        "v1.0 v2.0 v2.6 23.06 core_v0.5.0",
        "megatron/arguments.py",
    ),
}
_ABOUT: Final = (
    "Options and choices of forks of Megatron, and of its old releases, that no version in "
    "megatron_options.json has. "
    "Written by scripts/megatron_forks.py. base: the project that a fork started from."
)


def main(mirrors: Path) -> None:
    """Read each fork and write the table."""
    forks = {name: _fork(mirrors, name, *source) for name, source in FORKS.items()}
    OUTPUT.write_text(
        json.dumps({"about": _ABOUT, "forks": forks}, indent=1) + "\n", encoding="utf-8"
    )


def _fork(mirrors: Path, name: str, base: Flavour, revisions: str, file: str) -> dict[str, Any]:
    folder = mirrors / (name if "/" in name else "NVIDIA/Megatron-LM").replace("/", "+") / "repo"
    options, choices = set[str](), dict[str, list[str]]()
    for revision in revisions.split() or ["HEAD"]:
        for given in _arguments(_git(folder, "show", f"{revision}:{file}")):
            names = [
                arg.value
                for arg in given.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
            for option in filter(re.compile(r"--\w[\w-]*").fullmatch, names):
                options.add(option)
                if more := _more_choices(base, option, given):
                    choices[option] = more
    # Megatron-LM's forks took much from the other one
    known = [base] if base == "megatron-deepspeed" else _TABLES
    new = sorted(
        option for option in options if not any(option_table(it).has(option) for it in known)
    )
    commit = revisions or _git(folder, "rev-parse", "--short=8", "HEAD").strip()
    return {"base": base, "source": f"{file} @ {commit}", "options": new, "choices": choices}


_TABLES: Final[tuple[Flavour, ...]] = ("megatron-lm", "megatron-deepspeed")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def _arguments(text: str) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def _more_choices(base: Flavour, name: str, given: ast.Call) -> list[str]:
    """Choices that the project itself doesn't have, where it has choices."""
    option = option_table(base).get(name)
    listed = next((it.value for it in given.keywords if it.arg == "choices"), None)
    if option is None or not option.choices or not isinstance(listed, (ast.List, ast.Tuple)):
        return []
    known = {
        it.value for it in listed.elts if isinstance(it, ast.Constant) and isinstance(it.value, str)
    }
    return sorted(known - {str(choice) for choice in option.choices})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
