"""Write what transformers' TrainingArguments takes: `python scripts/training_arguments_table.py`.

Names, types, defaults and choices come from the installed transformers, by the parser that launch
lines go through.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "generator" / "programs" / "trainer" / "training_arguments.json"
_TYPES = {"int": "int", "float": "float", "string_to_bool": "bool"}


def table() -> dict[str, Any]:
    """The table of the installed transformers."""
    import transformers
    from transformers import HfArgumentParser, TrainingArguments

    parser = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]
    arguments: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._StoreFalseAction):
            arguments[action.dest]["negated"] = True  # `--no_NAME`
        elif isinstance(action, argparse._StoreAction):
            arguments[action.dest] = _entry(action)
    return {"transformers": transformers.__version__, "arguments": dict(sorted(arguments.items()))}


def _entry(action: argparse.Action) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "text"}
    name = getattr(action.type, "__name__", "")
    if action.nargs == "+":
        entry["type"] = "list"
    elif action.choices is not None:
        entry["type"] = "choice"
        entry["choices"] = [str(getattr(choice, "value", choice)) for choice in action.choices]
    else:
        entry["type"] = _TYPES.get(name, "text")
    if action.nargs == "?":
        entry["alone"] = True  # `--NAME` without a value is true
    default = getattr(action.default, "value", action.default)
    if isinstance(default, (bool, int, float, str)):
        entry["default"] = default
    return entry


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1) + "\n", encoding="utf-8")
