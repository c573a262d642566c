"""How many breaks of front ends' launches `dsgen validate` finds: `python -m
benchmarks.front_end_breaks ROOT [--seed 0] [--each 6] [--show]`.

ROOT has checkouts of the front ends' own repositories, whose scripts work: an error on one that is
as it came is false, but for those of KNOWN. In a copy of each script that trains sizes, batches,
names and counts are then broken, as many as `--each` drawn at random; a break is drawn only where
the program's arithmetic, which is written down here once more, refuses it or loses samples. `found`
is an error at the place, or one that names it; of what loses samples, a warning is enough.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsgen import validate
from dsgen.findings import Finding
from dsgen.numerals import read_whole, whole

#: Options by what they are, each as front ends write it.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor": (
        "--tensor-model-parallel-size",
        "--tensor_model_parallel_size",
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
    ),
    "pipeline": (
        "--pipeline-model-parallel-size",
        "--pipeline_model_parallel_size",
        "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size",
    ),
    "context": (
        "--context-parallel-size",
        "--context_parallel_size",
        "actor_rollout_ref.actor.megatron.context_parallel_size",
    ),
    "expert": (
        "--expert-model-parallel-size",
        "--expert_model_parallel_size",
        "actor_rollout_ref.actor.megatron.expert_model_parallel_size",
    ),
    "batch": (
        "--global-batch-size",
        "--global_batch_size",
        "--train.batch_size",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
    ),
    "prompts": ("--rollout-batch-size", "--rollout.batch_size"),
    "engine": (
        "--rollout-num-gpus-per-engine",
        "--vllm.tensor_parallel_size",
        "--vllm_tensor_parallel_size",
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
    ),
    "GPUs": (
        "--actor-num-gpus-per-node",
        "--actor.num_gpus_per_node",
        "NPROC_PER_NODE",
        "trainer.n_gpus_per_node",
    ),
}
#: Programs whose launches are broken.
_LAUNCH: Final = re.compile(
    r"train(?:_async)?\.py|\bmegatron (?:sft|pt|rlhf)\b|openrlhf\.cli\.train_ppo_ray"
    r"|verl\.trainer\.main_ppo\b"
)
#: Numbers of GPUs and of what is made of them, as findings write them.
_COUNTS: Final = re.compile(
    r"\b([0-9]{1,5}) (?:GPUs|processes|ranks|(?:model |megatron |fsdp )?replicas)\b"
)
#: Scripts that are broken as they come: path and rule, each judged by the program's source.
KNOWN: Final = frozenset(
    {
        # layers 47, pipeline 2
        ("run-glm4.7-30B-A3B-delta.sh", "MLM003"),
        # experts 8 × pipeline 2 of 8 GPUs
        ("run-glm4.7-30B-A3B.sh", "MLM018"),
        # expert tensor ranks are tensor ranks where none are given: 16 of 8 GPUs
        ("run_qwen3_30b_a3b_megatron.sh", "FRONT001"),
        # rollout.py:293 wants as many expert ranks as tensor × data ranks
        ("run_qwen3_30b_a3b_megatron.sh", "FRONT004"),
        # four samples a GPU in micro-batches of eight
        ("run_qwen2_5_7b_fsdp.sh", "FRONT005"),
        ("run_qwen2_5_7b_fsdp_multi_rs.sh", "FRONT005"),
    }
)


#: A script whose launch ends early, at a line without its backslash: no break behind it changes it.
_ENDS_EARLY: Final = "run-kimi-k2-Instruct.sh"


@dataclass(frozen=True)
class Script:
    """A script that trains, as text, with the numbers that it writes."""

    path: Path
    text: str

    def word(self, name: str) -> re.Match[str] | None:
        """The word that gives a value: what is before it, and the value."""
        for option in NAMES[name]:
            between = r"=" if option[0] != "-" else r"[ =]"
            matches = re.finditer(
                rf"^(?P<before>[^#\n]*?(?<![\w.-]){re.escape(option)}{between})"
                r"(?P<value>[^\s\\)]+)",
                self.text,
                re.MULTILINE,
            )
            for match in matches:
                return match
        return None

    def number(self, name: str, default: int | None = None) -> int | None:
        """The number that is written; None where it is a variable's."""
        match = self.word(name)
        if match is None:
            return default
        return read_whole(match["value"])


@dataclass(frozen=True)
class Break:
    """A script as it is broken, and where."""

    kind: str
    script: Script
    text: str
    line: int
    name: str  #: of the option
    loses: bool = False  #: the run goes on


#: Options of which a wrong number leaves GPUs idle, and stops nothing.
_LOSES: Final = frozenset({"--rollout-num-gpus-per-engine"})


def _with_value(
    script: Script, kind: str, name: str, value: object, *, loses: bool = False
) -> Break | None:
    match = script.word(name)
    if match is None:
        return None
    start, end = match.span("value")
    text = f"{script.text[:start]}{value}{script.text[end:]}"
    option = next(option for option in NAMES[name] if option in match["before"])
    line = script.text.count("\n", 0, start) + 1
    return Break(kind, script, text, line, option, loses=loses or option in _LOSES)


#: Batches that are cut by their tokens, which any number of replicas divides.
_BY_TOKENS: Final = re.compile(
    r"use-dynamic-batch-size|use_dynamic_bsz=True|dynamic_batch_enable|use_dynamic_batch\b"
)


def _size(kind: str, name: str, value: int) -> Callable[[Script, random.Random], Break | None]:
    """A size that no power of two of GPUs divides by; none where the GPUs that are written do."""

    def broken(script: Script, _: random.Random) -> Break | None:
        if not script.word("GPUs") and name != "engine":
            return None
        gpus = script.number("GPUs")
        is_whole = gpus is not None and gpus % value == 0
        return None if is_whole else _with_value(script, kind, name, value)

    return broken


def _seven_gpus(script: Script, _: random.Random) -> Break | None:
    """GPUs that no even size or batch divides; none where nothing has to divide them."""
    sizes = (script.number(name, 1) for name in ("tensor", "pipeline", "context", "engine"))
    if all(size == 1 for size in sizes) and _BY_TOKENS.search(script.text):
        return None
    return _with_value(script, "7 GPUs", "GPUs", 7)


def _batch(script: Script, _: random.Random) -> Break | None:
    """An odd batch, where replicas or micro-batches are even."""
    sizes = [script.number(name, 1) for name in ("tensor", "pipeline", "context")]
    gpus, batch = script.number("GPUs", 8), script.number("batch")
    if None in (*sizes, gpus, batch):
        return None
    cut = (sizes[0] or 1) * (sizes[1] or 1) * (sizes[2] or 1)
    if gpus is None or gpus // cut < 2:
        return None
    by_tokens = "dynamic_batch_enable" in script.text  # OpenRLHF's, which drops the rest
    return _with_value(script, "batch", "batch", (batch or 0) + 1, loses=by_tokens)


def _large_batch(script: Script, _: random.Random) -> Break | None:
    """More samples in a step than a rollout makes."""
    text = script.text
    if script.word("prompts") is None or script.word("batch") is None or "num-steps" in text:
        return None
    is_of_openrlhf = "openrlhf" in text  # which trains on nothing, and says nothing
    return _with_value(script, "batch over the rollout", "batch", 10**6, loses=is_of_openrlhf)


def _left_over(script: Script, _: random.Random) -> Break | None:
    """A prompt more than steps have place for: the rest of the samples isn't trained on."""
    prompts, batch = script.number("prompts"), script.number("batch")
    if prompts is None or batch is None or "num-steps" in script.text:
        return None
    return _with_value(script, "samples left", "prompts", prompts + 1, loses=True)


def _slip(script: Script, draw: random.Random) -> Break | None:
    """A letter less in an option of some length."""
    options = [
        match
        for match in re.finditer(r"^[ \t]+(--[a-z][\w.-]{11,})", script.text, re.MULTILINE)
        if not match[1].startswith(("--sglang", "--router", "--eval", "--wandb"))
    ]
    if not options:
        return None
    match = draw.choice(options)
    at = match.start(1) + draw.randrange(5, len(match[1]) - 1)
    if not script.text[at].isalpha():
        return None
    text = script.text[:at] + script.text[at + 1 :]
    line = script.text.count("\n", 0, at) + 1
    return Break("slip", script, text, line, match[1][:5])


BREAKS: Final[tuple[Callable[[Script, random.Random], Break | None], ...]] = (
    _size("tensor 3", "tensor", 3),
    _size("pipeline 5", "pipeline", 5),
    _size("expert 7", "expert", 7),
    _size("context 3", "context", 3),
    _size("engine of 3", "engine", 3),
    _seven_gpus,
    _batch,
    _large_batch,
    _left_over,
    _slip,
)


def scripts_in(root: Path) -> Iterator[Script]:
    """Every script below a folder that starts a front end, and says its GPUs."""
    for path in sorted(root.rglob("*.sh")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if _LAUNCH.search(text) and path.name != _ENDS_EARLY:
            script = Script(path, text)
            if any(script.word(name) for name in NAMES):
                yield script


def errors_of(path: Path, *, least: str = "error") -> list[Finding]:
    """The errors on a script; `warning`: warnings too."""
    wanted = ("error",) if least == "error" else ("error", "warning")
    return [one for one in validate(path) if one.severity.value in wanted]


def is_found(broken: Break, new: list[Finding]) -> bool:
    """Return whether a finding is at the break, or names what is broken."""
    texts = [f"{one.message} {one.hint or ''}" for one in new]
    counts = [whole(count) for text in texts for count in _COUNTS.findall(text)]
    by_gpus = broken.kind == "7 GPUs" and any(count % 7 == 0 for count in counts)
    by_name = any(broken.name in text for text in texts)
    return by_gpus or by_name or any(one.where.line == broken.line for one in new)


def main() -> int:
    """Break scripts and print what is found of each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front_end_breaks")
    parser.add_argument("root", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=6)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    found, drawn, false = Counter[str](), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        shutil.copytree(asked.root, root, ignore=shutil.ignore_patterns(".git", "*.md", "*.png"))
        for checkout in filter(Path.is_dir, root.iterdir()):
            (checkout / ".git").mkdir()  # what a script sources is looked for within its repository
        for script in scripts_in(root):
            before = errors_of(script.path, least="warning")
            told = {(one.rule, one.message) for one in before}
            false += [
                f"{script.path.relative_to(root)}: {one.message} [{one.rule}]"
                for one in before
                if one.severity.value == "error" and (script.path.name, one.rule) not in KNOWN
            ]
            made = [one for one in (make(script, draw) for make in BREAKS) if one is not None]
            for broken in draw.sample(made, min(asked.each, len(made))):
                script.path.write_text(broken.text, encoding="utf-8")
                after = errors_of(script.path, least="warning" if broken.loses else "error")
                new = [one for one in after if (one.rule, one.message) not in told]
                drawn[broken.kind] += 1
                found[broken.kind] += (is_it := is_found(broken, new))
                if asked.show and not is_it:
                    said = "; ".join(one.rule for one in new) or "nothing"
                    print(f"{script.path.relative_to(root)}:{broken.line} {broken.kind}: {said}")
            script.path.write_text(script.text, encoding="utf-8")

    for kind in drawn:
        print(f"| {kind} | {found[kind]} | {drawn[kind]} |")
    print(f"| all | {found.total()} | {drawn.total()} |")
    print(f"errors on scripts as they come: {len(false)}", *false, sep="\n")
    return int(bool(false) or found.total() < 0.9 * drawn.total())


if __name__ == "__main__":
    sys.exit(main())
