"""Ask real programs to refuse what `dsgen generate` refuses: `python -m benchmarks.refused FILE
[--tree TREE ...]`.

FILE is what `python -m benchmarks.round_trip --refused FILE` wrote. Arguments that a rule on
Megatron (MLM, MDS) refused are given to the parser of TREE, a checkout of NVIDIA/Megatron-LM or of
deepspeedai/Megatron-DeepSpeed, those of a Trainer (HF) to Transformers' own. A spec that was
refused before anything was rendered is only counted: no program ever reads it. Prints what a
program accepts; such a refusal is a fault, or on what only a run would notice.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.agreement_megatron import refusal_of
from benchmarks.agreement_plans import TRANSFORMER_ENGINE

Asked = Callable[[Sequence[str], int], str | None]
_IN_TREE: Final = "--in-tree"


def _framework_of(tree: Path) -> str:
    return "megatron-lm" if (tree / "megatron" / "training").exists() else "megatron-deepspeed"


def _megatron(tree: Path) -> Asked:
    refusal = refusal_of(tree, engine=TRANSFORMER_ENGINE)
    return lambda words, world: refusal(words, world)


def _transformers(words: Sequence[str], _: int) -> str | None:
    """Why HfArgumentParser or TrainingArguments refuses the words; options of the script itself are
    left out.
    """
    from transformers import HfArgumentParser, TrainingArguments

    own = [word for word in words if word not in ("--deepspeed", "ds_config.json")]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            HfArgumentParser([TrainingArguments]).parse_args_into_dataclasses(
                [*own, "--use_cpu"], True
            )  # type: ignore[list-item]
    except SystemExit:
        return said.getvalue().strip().rpartition("\n")[2]
    except Exception as problem:  # whatever it raises is its answer
        return str(problem) or type(problem).__name__
    return None


def ask(
    cases: Sequence[dict[str, Any]], framework: str, subjects: tuple[str, ...], asked: Asked
) -> None:
    """Give each case of a framework that a rule of these subjects refused to the program, and print
    what it accepts.
    """
    verdicts = Counter[str]()
    for case in cases:
        rules = [rule for rule, _ in case["errors"] if rule.startswith(subjects)]
        if case["spec"]["framework"] != framework or not rules or not case["files"]:
            continue
        why = asked(case["words"], case["world"])
        verdicts[
            "accepted" if why is None else "can't be told here" if why == "?" else "refused"
        ] += 1
        if why is None:
            print(f"  accepted, but {case['errors']!a}")
    print(f"{framework}: {dict(verdicts)}")


def main() -> None:
    """Ask each program in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--tree", type=Path, action="append", default=[])
    parser.add_argument(_IN_TREE, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [json.loads(line) for line in options.file.read_text(encoding="utf-8").splitlines()]
    if options.in_tree:
        ask(cases, _framework_of(options.in_tree), ("MLM", "MDS"), _megatron(options.in_tree))
        return
    rendered = Counter(
        rule for case in cases if case["files"] for rule in {rule for rule, _ in case["errors"]}
    )
    early = sum(not case["files"] for case in cases)
    print(
        f"{len(cases)} refused; {early} before anything was rendered; of the others: "
        f"{dict(rendered.most_common())}"
    )
    sys.stdout.flush()
    for tree in options.tree:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.refused", str(options.file), _IN_TREE, str(tree)],
            check=True,
        )
    ask(cases, "huggingface", ("HF",), _transformers)


if __name__ == "__main__":
    main()
