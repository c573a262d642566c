"""Compare `dsgen validate` with a Megatron on arguments: `python -m benchmarks.agreement_megatron
TREE`.

TREE is a checkout of NVIDIA/Megatron-LM (core_v0.16.1 and main were looked at) or of
deepspeedai/Megatron-DeepSpeed, and a number of lines may follow it. Each of as many seeded lines of
options is given to the tree's own parse_args and validate_args, and with Megatron-LM to its
TransformerConfig, on a CPU and in this process, and to the rules on Megatron arguments. Modules
that need a GPU's libraries are left empty; what fails for want of Transformer Engine is not
counted. Both agree where both refuse a line, or neither does; rules on what only the run itself
would notice are left out where the tree takes the line.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import random
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from dsgen.programs.launching.launch_line import launches
from dsgen.programs.megatron.arguments import from_launches
from dsgen.programs.records import PROGRAMS
from dsgen.rule import findings_of
from dsgen.submission.submission import Context, Submission
from dsgen.text.shell.reader import read_script
from dsgen.text.text import text_of

SEED: Final = 20261121
LINES: Final = 400
#: Rows without a body have none of a module.
RULES: Final = tuple(
    rule
    for rule in all_file_rules()
    if ".programs.megatron." in rule.check.__module__ or rule.id.startswith(("MLM", "MDS", "MOE"))
)
#: Requirements that are checked later than by the parser: by the batch calculator, process groups,
#: layers, schedules.
LATER: Final = frozenset(
    [
        "MLM002",
        "MLM003",
        "MLM006",
        "MLM012",
        "MLM016",
        "MLM018",
        "MLM019",
        "MLM029",
        "MLM030",
        "MLM035",
        "MLM041",
        "MLM054",
        "MLM057",
        "MLM058",
        "MLM060",
        "MLM067",
        "SEQ001",
        "MDS001",
        "MDS004",
        "MDS005",
        "MDS006",
        "MDS008",
        "MDS009",
        "MDS012",
        "MDS014",
        "MDS015",
        "MDS017",
        "MDS023",
        "MDS031",
        "MDS032",
        "MDS034",
        "MDS040",
        "MDS041",
        "MDS045",
        "SP001",
        "SP003",
        "PIPE013",
        "PIPE016",
        "PIPE002",
        "MOE001",
        "MOE005",
        "MOE006",
        "BATCH012",
    ]
)
#: The same of Megatron-DeepSpeed, whose parser checks no layers.
LATER_IN_DEEPSPEED: Final = LATER | {"MLM004"}
#: A line that both take, which the others change.
BASE: Final = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096"
    " --micro-batch-size 1 --global-batch-size 256 --tensor-model-parallel-size 2 --bf16 "
    "--train-iters 100 --lr 1e-4"
)
#: Options and the values that they are given; `-` for none, DEL to leave the option out.
OPTIONS: Final = Path(__file__).with_name("data") / "megatron_lines.json"


class _Anything(type):
    """A class that has whatever is asked of it."""

    def __getattr__(cls, name: str) -> type:
        return _anything(name)


def _anything(name: str) -> type:
    """A class of that name that takes anything; no module has more of Python's own names for it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(name, (), {"__init__": lambda self, *_, **__: None})


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules named as empty ones, whose every name is a class that takes anything."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module, if it is one of those named or within one."""
        if any(name == known or name.startswith(f"{known}.") for known in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that has whatever is asked of it."""
        module = types.ModuleType(spec.name)
        module.__getattr__ = _anything  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: a package without files."""
        module.__path__ = []


def lines(options: Mapping[str, Sequence[str]], count: int) -> Iterator[tuple[str, int]]:
    """Seeded lines of options, each with a number of GPUs."""
    chance = random.Random(SEED)
    for _ in range(count):
        line = dict(re.findall(r"(--\S+)((?: (?!--)\S+)*)", BASE))
        for name in chance.choices(list(options), k=chance.randint(1, 6)):
            value = chance.choice(options[name])
            line.pop(name, None)
            if value != "DEL":
                line[name] = "" if value == "-" else f" {value}"
        yield (
            " ".join(f"{name}{value}" for name, value in line.items()),
            chance.choice([8, 16, 24, 32]),
        )


def made_up(*packages: str) -> None:
    """Have packages that aren't there found, each with whatever is asked of it."""
    sys.meta_path.insert(0, _Empty(packages))


def believe_in(major: int) -> None:
    """Have torch report devices of a compute capability: Megatron asks more of those below 10."""
    cuda: Any = importlib.import_module("torch").cuda
    cuda.get_device_capability = lambda *_: (major, 0)
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=major, minor=0)


def refusal_of(tree: Path, *, engine: str | None = None) -> Callable[..., str | None]:
    """Ask the tree's own code: why it refuses a line, None where it takes it, `?` where it can't
    tell here.

    `engine`: the version of Transformer Engine that the tree is to believe in.
    """
    training = tree / "megatron" / "training" / "arguments.py"
    needing_triton = [
        ".".join(path.relative_to(tree).with_suffix("").parts)
        for path in (tree / "megatron").rglob("*.py")
        if re.search(r"^(?:import|from) triton", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    sys.meta_path.insert(0, _Empty(["six", "tools", "apex", "amp_C", *needing_triton]))
    sys.path.insert(0, str(tree))
    typing.override = getattr(typing, "override", lambda method: method)  # type: ignore[attr-defined]
    # Saves two seconds where no tree is asked, and torch itself where it is not installed.
    cuda: Any = importlib.import_module("torch").cuda
    believe_in(8)
    cuda.current_device = lambda: 0
    name = "megatron.training.arguments" if training.exists() else "megatron.arguments"
    if engine and training.exists():
        sys.meta_path.insert(0, _Empty(["transformer_engine"]))
        importlib.import_module("transformer_engine").__dict__["__version__"] = engine
        for part in ("pytorch.ops", "common.recipe"):
            importlib.import_module(f"transformer_engine.{part}")
    parser: Any = importlib.import_module(name)

    def refusal(
        line: str | Sequence[str], world: int, environment: Mapping[str, str] | None = None
    ) -> str | None:
        sys.argv = ["pretrain_gpt.py", *(line.split() if isinstance(line, str) else line)]
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        os.environ.update(
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if environment is None else environment
        )
        os.environ.update(WORLD_SIZE=str(world), RANK="1")
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
                arguments = parser.parse_args()
                parser.validate_args(arguments, {})
                if training.exists():
                    parser.core_transformer_config_from_args(arguments)
        except SystemExit:
            return quiet.getvalue().strip().rpartition("\n")[2] or "it exits"
        except (ImportError, AttributeError, TypeError):
            return "?"
        except Exception as problem:
            text = str(problem) or "an assertion"
            return "?" if re.search(r"\bTE\b|[Tt]ransformer.?[Ee]ngine|GEMM", text) else text
        return None

    return refusal


def errors_of(line: str, world: int) -> set[str]:
    """The rules that the line breaks, of those that are errors."""
    script = f"export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun pretrain_gpt.py {line}\n"
    documents = tuple(from_launches(launches(read_script(text_of(script, "run.sh")))))
    submission = Submission(programs=PROGRAMS, documents=documents, context=Context(gpus=world))
    found = findings_of(RULES, submission)
    return {finding.rule for finding in found if finding.severity is Severity.ERROR}


def main(tree: Path, count: int) -> None:
    """Print how often both agree, and each kind of disagreement once."""
    is_lm = (tree / "megatron" / "training").exists()
    tables = json.loads(OPTIONS.read_text(encoding="utf-8"))
    options = {**tables["both"], **tables["megatron-lm" if is_lm else "megatron-deepspeed"]}
    refusal, verdicts, reported = refusal_of(tree), Counter[str](), set[str]()
    for line, world in lines(options, count):
        line += "" if is_lm else " --deepspeed --deepspeed_config ds_config.json"
        why, broken = refusal(line, world), errors_of(line, world)
        if why == "?":
            continue
        if why is None:
            broken -= LATER if is_lm else LATER_IN_DEEPSPEED
        agree = bool(why) == bool(broken)
        verdicts[
            "agree" if agree else "only Megatron refuses" if why else "only dsgen refuses"
        ] += 1
        kind = why or " ".join(sorted(broken))
        if not agree and kind not in reported:
            reported.add(kind)
            print(f"{world} GPUs, {line}\n  {kind}")
    print(dict(verdicts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else LINES)
