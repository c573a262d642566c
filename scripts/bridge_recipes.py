"""Write the recipes that fine-tune text models: `python scripts/bridge_recipes.py BRIDGE RELEASE`.

BRIDGE is the source of NVIDIA-NeMo/Megatron-Bridge at RELEASE. Functions are read, nothing is
imported. Each recipe stands with the model of the catalog that it is for, which `MODELS` says, and
with the repository on the Hub that it reads the config of.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent.parent / "generator/programs/megatron_bridge/recipes.json"
#: Models of the catalog by the recipe's stem; those of GLM-4.5 take no packed sequences.
MODELS: Final = {
    **{f"llama3_{size}": f"llama-3-{size}" for size in ("8b", "70b")},
    **{f"llama31_{size}": f"llama-3.1-{size}" for size in ("8b", "70b", "405b")},
    **{f"llama32_{size}": f"llama-3.2-{size}" for size in ("1b", "3b")},
    **{f"qwen25_{size}": f"qwen2.5-{size}" for size in ("7b", "14b", "32b", "72b")},
    "qwen25_500m": "qwen2.5-0.5b",
    "qwen25_1p5b": "qwen2.5-1.5b",
    "qwen3_600m": "qwen3-0.6b",
    "qwen3_1p7b": "qwen3-1.7b",
    **{f"qwen3_{size}": f"qwen3-{size}" for size in ("4b", "8b", "14b", "32b")},
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    **{f"gpt_oss_{size}": f"gpt-oss-{size}" for size in ("20b", "120b")},
    "olmoe_7b": "olmoe-1b-7b",
}
#: The mode of the program by the task in a recipe's name.
MODES: Final = {"sft": "sft", "peft": "lora"}
#: Where a recipe reads the model's config: a repository on the Hub, and a commit of it.
REPOSITORY: Final = r"[\w.-]+/[\w.-]+"
REVISION: Final = r"[0-9a-f]{40}"
#: Fields of a recipe's adapters, as recipes have them in common.
LORA: Final = {
    "dim": 32,
    "alpha": 32,
    "target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"],
}


def functions(folder: Path) -> dict[str, ast.FunctionDef]:
    """The functions of all recipes, also by the names that packages export them under."""
    found, aliases = dict[str, ast.FunctionDef](), dict[str, str]()
    constants: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.alias) and node.asname:
                aliases[node.asname] = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names = map(ast.unparse, node.targets)
                constants |= {name: str(node.value.value) for name in names if name.isupper()}
    for node in found.values():
        named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & {*constants}
        node.decorator_list = [ast.Constant(constants[name]) for name in sorted(named)]
    return {**found, **{name: found[to] for name, to in aliases.items() if to in found}}


def named(pattern: str, node: ast.FunctionDef, known: dict[str, ast.FunctionDef]) -> str | None:
    """The first text of a pattern that a recipe has, or one that it calls."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    for text in texts:
        if isinstance(text, str) and re.fullmatch(pattern, text):
            return text
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    names = (call.id for call in calls if isinstance(call, ast.Name))
    called = (known[name] for name in names if name in known and known[name] is not node)
    return next(filter(None, (named(pattern, each, known) for each in called)), None)


def adapters(node: ast.FunctionDef, known: dict[str, ast.FunctionDef]) -> dict[str, object]:
    """The fields of its adapters that a recipe sets, after those that it calls."""
    found = dict[str, object]()
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            called = known.get(each.func.id)
            found |= adapters(called, known) if called is not None and called is not node else {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute):
            name = each.targets[0].attr
            found |= {name: ast.literal_eval(each.value)} if name in LORA else {}
    return found


def main() -> None:
    """Write the recipes of one release."""
    bridge, release = sys.argv[1:]
    known = functions(Path(bridge) / "src/megatron/bridge/recipes")
    recipes = dict[str, dict[str, object]]()
    for stem, model in sorted(MODELS.items()):
        tasks = [task for task in MODES if f"{stem}_{task}_config" in known]
        first = known[f"{stem}_{tasks[0]}_config"]
        recipes[stem] = {
            "model": model,
            "hub": named(REPOSITORY, first, known),
            "revision": named(REVISION, first, known),
            "modes": [MODES[task] for task in tasks],
        }
        if "peft" in tasks:
            fields = {**LORA, **adapters(known[f"{stem}_peft_config"], known)}
            recipes[stem]["lora"] = {
                "rank": fields["dim"],
                "alpha": fields["alpha"],
                "modules": fields["target_modules"],
            }
    source = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/recipes"
    document = {"source": f"{source} @ v{release}", "recipes": recipes}
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
