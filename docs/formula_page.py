"""The formulae of the estimates as Markdown: what each function gives, and the source that its
docstring names.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "generator" / "estimate"


def formula_sections() -> Iterator[str]:
    """A section for each module that has formulae with a source."""
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        texts = {node.name: inspect.cleandoc(ast.get_docstring(node) or "") for node in functions}
        sourced = {name: text for name, text in texts.items() if "**Source**" in text}
        own = inspect.cleandoc(ast.get_docstring(tree) or "")
        if sourced or "Source" in own:
            yield from (f"## {path.stem}", "", _markdown(own), "")
            for name, text in sourced.items():
                yield from (f"### {name}", "", _markdown(text), "")


def _markdown(text: str) -> str:
    text = re.sub(r"(\*\*(?:Source|Symbols|Assumes)\*\*)", r"\n\n\1", text)
    parts = re.split(r"(`[^`]*`)", re.sub(r"[ \n]*\n\n[ \n]*", "\n\n", text))
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace(">", "&gt;")
        for part in parts
    )
