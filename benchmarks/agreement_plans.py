"""Ask real programs to take what is rendered from every knob: `python -m benchmarks.agreement_plans
[-n N] [TREE]`.

N seeded plans (500 by default) for each program, of random legal layouts, each of which turns one
knob or more, the rarest first. TREE is a checkout of NVIDIA/Megatron-LM (core_v0.16.1 to
core_v0.19.0 were looked at, each with plans for its release) or of deepspeedai/Megatron-DeepSpeed:
its own parse_args, validate_args and TransformerConfig are asked, on a CPU, with the version of
Transformer Engine made up. Every
ds_config.json is read by DeepSpeed, the installed one and `--deepspeed VERSION`; every batch script
by `sbatch --test-only`, every job.yml by azure-ai-ml, every job.yaml by the resource definitions of
its kind, every task.yaml by SkyPilot, where SKYPILOT_PYTHON names an interpreter that has it, else
by its schema. All plans are to be accepted. Each program is asked of plans of its own; how many of
all differ is printed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

import dsgen
from benchmarks.agreement_azureml import loader_says
from benchmarks.agreement_azureml import quiet as silenced
from benchmarks.agreement_deepspeed import CACHE, REPOSITORY, installed
from benchmarks.agreement_megatron import believe_in, refusal_of
from dsgen.check.engine import parse, quiet
from dsgen.estimate.layout import DEFAULTS, FIELDS, Layout, Layouts, Modules, Offload, Recompute
from dsgen.findings import InvalidJob, Severity
from dsgen.job.records import Job
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.rules.run import binding_rules
from dsgen.search.feasible import make_plan
from dsgen.search.plan import Plan
from tests.programs.cluster_schemas import validator
from tests.slurm_cluster import sbatch_test_only, slurm_for

SEED: Final = 20261122
PLANS: Final = 500
ROWS: Final = 60_000  #: layouts drawn for one job
TRANSFORMER_ENGINE: Final = "2.12.0"
#: names the file in which the programs' processes note their plans
DIFFERENT: Final = "DSGEN_DIFFERENT_PLANS"
#: Keys of `training` and what is drawn of each row; jobs that break a rule are dropped.
TRAINING: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    (
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "fp8"},
        {"precision": "fp8", "fp8_parameters": True},
        {"precision": "fp8", "fp8_recipe": "mxfp8", "fp8_parameters": True},
        {"precision": "nvfp4"},
        {"precision": "nvfp4", "fp8_parameters": True},
    ),
    ({}, {}, {"gradient_dtype": "same"}),
    ({}, {}, {"moment_dtype": "bf16"}, {"moment_dtype": "fp8", "master_dtype": "fp16"}),
    ({}, {}, {}, {"optimizer": "muon"}),
    ({}, {"dispatcher": "alltoall"}, {"dispatcher": "deepep"}, {"dispatcher": "hybridep"}),
    (
        {},
        {},
        {"cuda_graphs": "partial"},
        {"cuda_graphs": "full_iteration"},
        {"cuda_graphs": "full_iteration", "dispatcher": "hybridep"},
        {"cuda_graphs": "full_iteration", "dispatcher": "hybridep", "paged_stash": False},
    ),
    ({}, {}, {"cross_entropy": "unfused"}, {"cross_entropy": "te"}),
    ({}, {}, {"mtp_depths": 1}, {"mtp_depths": 2}),
    ({}, {}, {"lora": {"rank": 16}}, {"quantized_weights": True, "quantized_gradients": True}),
)
#: The same of what a Megatron is told of its data, tokenizer, checkpoints and batch ramp-up.
_BPE: Final = {"vocab_file": "v.json", "merges_file": "m.txt"}
_OUTPUT: Final = {"checkpoints": "/c", "logs": "/l"}
GIVEN: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    ({}, {"data.path": "/d"}, {"data.path": [0.3, "/d", 0.7, "/e"], "data.split": "969,30,1"}),
    (
        {},
        {"data.tokenizer": {"path": "/t"}},
        {"data.tokenizer": _BPE},
        {"data.tokenizer": {"type": "NullTokenizer"}},
    ),
    (
        {},
        {"output": _OUTPUT},
        {"output": {**_OUTPUT, "resume": False}, "launch.time_limit": "2-00:00:00"},
    ),
    ({}, {}, {"training.batch_ramp": {"start": 768, "increment": 384, "samples": 10**6}}),
)
CLUSTERS: Final = (
    "nvidia/dgx-a100-80gb",
    "nvidia/dgx-h100",
    "nvidia/dgx-b200",
    "nvidia/gb200-nvl72",
)
#: The compute capability of their accelerators.
CAPABILITIES: Final = {"ampere": 8, "hopper": 9, "blackwell": 10}
_JOBS: Final = (
    (
        "megatron-lm",
        (
            "llama-3.1-8b",
            "llama-3.1-405b",
            "gpt3-175b",
            "mixtral-8x7b",
            "deepseek-v3",
            "gpt-oss-20b",
            "qwen3-next-80b-a3b",
            "nemotron-3-nano-30b-a3b",
        ),
    ),
    ("megatron-deepspeed", ("gpt3-175b", "llama-3.1-8b", "mixtral-8x7b")),
    ("deepspeed", ("llama-3.1-8b", "qwen2.5-7b")),
    ("huggingface", ("llama-3.1-8b", "qwen2.5-7b")),
)


def _domains() -> dict[str, tuple[Any, ...]]:
    """Values that are drawn, half of them the default where the search turns a field only on
    occasion.
    """
    sizes, some = (1, 1, 2, 4, 8), (1, 2, 4, 8)
    return {
        "tensor": sizes,
        "pipeline": (1, 1, 2, 4, 6, 8, 16),
        "context": sizes,
        "virtual_pipeline": (1, 1, 2, 3, 4, 8),
        "expert": (1, 2, 4, 8),
        "expert_tensor": (1, 1, 2, 4),
        "sequence_parallel": (False, True),
        "zero_stage": (0, 1, 2, 3, 3),
        "micro_batch": (1, 2, 4),
        "recompute": tuple(Recompute),
        "offload": (*Offload, *[Offload.NONE] * 3),
        "recompute_layers": (0, 0, 1, 2, 4),
        "recompute_group": (1, 1, 1, 2),
        "recompute_modules": tuple(range(1, 128)),
        "offload_fraction": (1.0, 0.5, 0.25),
        "tensor_overlap": (False, True),
        "expert_overlap": (False, True),
        "zero_copies": sizes,
        "zero_hpz": (1, 1, 8),
        "context_heads": some,
        "sync_each_batch": (False, True),
        "first_stage_layers": (0, 0, 0, *range(1, 20)),
        "last_stage_layers": (0, 0, 0, *range(1, 20)),
    }


def _drawn(job: Job, draw: np.random.Generator) -> Layouts:
    """Random layouts that satisfy both identities."""
    columns: dict[str, Any] = {}
    for name, values in _domains().items():
        column = np.array([int(v) if isinstance(v, Recompute | Offload) else v for v in values])
        columns[name] = draw.choice(column, ROWS)
        if name in DEFAULTS and name not in ("context_heads", "expert_tensor"):
            columns[name] = np.where(draw.random(ROWS) < 0.6, DEFAULTS[name], columns[name]).astype(
                column.dtype
            )
    ranks = columns["tensor"] * columns["pipeline"] * columns["context"]
    columns["data"] = np.maximum(job.gpus // ranks, 1)
    batch = columns["data"] * columns["micro_batch"]
    columns["gradient_accumulation"] = np.maximum(job.training.global_batch // batch, 1)
    whole = (ranks * columns["data"] == job.gpus) & (
        batch * columns["gradient_accumulation"] == job.training.global_batch
    )
    selective = columns["recompute"] == Recompute.SELECTIVE
    columns["recompute_modules"] = np.where(
        selective, columns["recompute_modules"], Modules.CORE_ATTN
    )
    for name in ("recompute_layers", "recompute_group"):
        columns[name] = np.where(
            columns["recompute"] == Recompute.FULL, columns[name], DEFAULTS[name]
        )
    columns["offload_fraction"] = np.where(
        columns["offload"] == Offload.OPTIMIZER, columns["offload_fraction"], 1.0
    )
    return Layouts(**{name: columns[name] for name in FIELDS}).take(whole)


def legal_layouts(job: Job, draw: np.random.Generator) -> Layouts:
    """Random layouts that break no rule, and turn a knob."""
    found = _drawn(job, draw)
    for rule in binding_rules(job):
        if rule.severity is Severity.ERROR:
            holds = np.asarray(rule.columns.holds(job, found), np.bool_)
            found = found.take(np.broadcast_to(holds, len(found)))
    turned = [getattr(found, name) != default for name, default in DEFAULTS.items()]
    return found.take(np.any(turned, axis=0))


def jobs(
    count: int, chance: random.Random, frameworks: tuple[str, ...], extra: Mapping[str, Any]
) -> Iterator[Job]:
    """Random jobs that break no rule, with what every spec has in addition."""
    choices = [(name, model) for name, models in _JOBS if name in frameworks for model in models]
    for number in range(count):
        framework, model = choices[number % len(choices)]
        gpus = chance.choice((64, 96, 256, 768, 1024))
        training = {"sequence_length": chance.choice((2048, 4096)), "global_batch": 1536}
        for drawn in TRAINING:
            training |= chance.choice(drawn)
        spec = {
            "name": "job",
            "framework": framework,
            "model": model,
            "gpus": gpus,
            "training": training,
        }
        spec["cluster"] = chance.choice(CLUSTERS)
        given = {key: value for drawn in GIVEN for key, value in chance.choice(drawn).items()}
        with contextlib.suppress(InvalidJob):
            yield dsgen.load_job(
                {**spec, **extra}, overrides=given if "megatron" in framework else {}
            )


def plans(count: int, frameworks: tuple[str, ...], program: str, **extra: Any) -> Iterator[Plan]:
    """Random plans for one program, no two alike; of each job, the layouts whose knobs are rarest
    so far.
    """
    seed = SEED + zlib.crc32(program.encode())
    chance, draw, seen = random.Random(seed), np.random.default_rng(seed), Counter[str]()
    made = set[str]()
    for job in jobs(100 * count, chance, frameworks, extra):
        found = legal_layouts(job, draw)
        for _ in range(min(8, len(found), count - len(made))):
            layout = min(
                (found[row] for row in draw.integers(0, len(found), 12)),
                key=lambda x: _rarity(x, seen),
            )
            if (name := hashlib.sha256(repr((job, layout)).encode()).hexdigest()) not in made:
                made.add(name)
                seen.update([*knobs_of(layout), *types_of(job)])
                yield make_plan(job, layout)
        if len(made) >= count:
            break
    if noted := os.environ.get(DIFFERENT):
        with Path(noted).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(made))
    print(f"  knobs turned: {dict(seen.most_common())}")


def knobs_of(layout: Layout) -> list[str]:
    """The fields that aren't as the search leaves them, and cut experts."""
    knobs = [name for name, default in DEFAULTS.items() if getattr(layout, name) != default]
    return [*knobs, *(["expert_tensor"] if layout.expert_tensor > 1 else [])]


def types_of(job: Job) -> list[str]:
    """The types and adapters that a job asks for."""
    names = (
        "gradient_dtype",
        "moment_dtype",
        "fp8_parameters",
        "lora",
        "quantized_weights",
        "quantized_gradients",
        "paged_stash",
    )
    graphs = job.training.cuda_graphs
    found = [name for name in names if getattr(job.training, name)]
    return [*found, *([f"graphs {graphs}"] if graphs != "none" else [])]


def _rarity(layout: Layout, seen: Counter[str]) -> int:
    return min((seen[name] for name in knobs_of(layout)), default=sys.maxsize)


def line_of(plan: Plan) -> tuple[str, Mapping[str, str]]:
    """The arguments as one line, and the environment that comes with them."""
    return " ".join(words_of(plan)), FRAMEWORKS[plan.job.framework.name].program(plan).environment


def words_of(plan: Plan) -> list[str]:
    """Return what the script is called with."""
    program = FRAMEWORKS[plan.job.framework.name].program(plan)
    return [word if isinstance(word, str) else word.name for word in program.arguments]


def _asked_megatron(tree: Path, count: int) -> bool:
    is_lm = (tree / "megatron" / "training").exists()
    refusal = refusal_of(tree, engine=TRANSFORMER_ENGINE)

    def why(plan: Plan) -> str | None:
        environment = FRAMEWORKS[plan.job.framework.name].program(plan).environment
        believe_in(CAPABILITIES[plan.job.cluster.accelerator.generation.name])
        return refusal(words_of(plan), plan.layout.world, environment)

    framework = "megatron-lm" if is_lm else "megatron-deepspeed"
    extra = {"megatron_version": release_of(tree)} if is_lm else {}
    return _tried(str(tree), plans(count, (framework,), tree.name, **extra), why)


def release_of(tree: Path) -> str:
    """The release of Megatron-Core that a tree is; a branch is of the one that it becomes."""
    text = (tree / "megatron" / "core" / "package_info.py").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^(?:MAJOR|MINOR|PATCH) = ([0-9]+)$", text, re.MULTILINE))


def _asked_deepspeed(count: int, version: str | None) -> bool:
    def why(plan: Plan) -> str | None:
        (text,) = (file.text for file in dsgen.render(plan) if file.path == "ds_config.json")
        has_mpu = plan.job.framework.passes_mpu or plan.layout.pipeline > 1
        try:
            with quiet():
                parse(json.loads(text), plan.layout.world, dp=plan.layout.data if has_mpu else None)
        except Exception as problem:  # whatever the parser raises is its answer
            return str(problem) or type(problem).__name__
        return None

    extra = {"deepspeed_version": version} if version else {}
    name = f"DeepSpeed {version or 'installed'}"
    return _tried(
        name, plans(count, ("megatron-deepspeed", "deepspeed", "huggingface"), name, **extra), why
    )


def _asked_slurm(count: int) -> bool:
    """A scheduler of nodes like the larger of the clusters', with the cores that Slurm would count
    on it.
    """
    with (
        slurm_for(cpus=256, gpus=8, memory_mib=2 * 2**20, nodes=128) as cluster,
        tempfile.TemporaryDirectory() as name,
    ):
        script = Path(name) / "launch.sbatch"

        def why(plan: Plan) -> str | None:
            (text,) = (file.text for file in dsgen.render(plan) if file.path == script.name)
            script.write_text(text, encoding="utf-8")
            said = sbatch_test_only(script, cluster)
            return None if said.returncode == 0 else said.stderr.strip()

        return _tried("sbatch --test-only", plans(count, tuple(FRAMEWORKS), "sbatch"), why)


def _asked_azureml(count: int) -> bool:
    with tempfile.TemporaryDirectory() as name, silenced():
        folder = Path(name)

        def why(plan: Plan) -> str | None:
            for file in dsgen.render(plan):
                (folder / file.path).write_text(file.text, encoding="utf-8")
            return loader_says(folder / "job.yml")

        launch = {
            "target": "azureml",
            "azureml": {"compute": "cluster", "environment": "azureml:training:1"},
        }
        return _tried(
            "azure-ai-ml", plans(count, tuple(FRAMEWORKS), "azure-ai-ml", launch=launch), why
        )


def _asked_kubernetes(count: int) -> bool:
    """The custom resource definitions, which know every key, as the API server does with strict
    validation.
    """

    def why(plan: Plan) -> str | None:
        kind = plan.job.launch.options["kind"]
        (text,) = (file.text for file in dsgen.render(plan) if file.path == "job.yaml")
        job = next(part for part in yaml.safe_load_all(text) if part["kind"] == kind)
        return (
            "; ".join(
                error.message for error in validator("kubernetes", str(kind)).iter_errors(job)
            )
            or None
        )

    agreed = []
    for kind in ("PyTorchJob", "TrainJob", "JobSet"):
        launch = {
            "target": "kubernetes",
            "kubernetes": {"kind": kind, "volumes": ["data:/d:ro", "runs:/c"]},
        }
        drawn = plans(count // 3 + 1, tuple(FRAMEWORKS), kind, launch=launch)
        agreed.append(_tried(f"Kubernetes {kind}", drawn, why))
    return all(agreed)


#: Reads the names of task files, and says of each what SkyPilot says, in JSON.
_SKYPILOT: Final = """
import json, sys, sky
for line in sys.stdin:
    try:
        sky.Task.from_yaml(line.strip())
        print(json.dumps(None), flush=True)
    except Exception as problem:
        print(json.dumps(str(problem) or type(problem).__name__), flush=True)
"""


def _asked_skypilot(count: int) -> bool:
    python = os.environ.get("SKYPILOT_PYTHON")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        task, folder = Path(name) / "task.yaml", Path(name)
        real = None
        if python is not None:
            pipes: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "text": True,
            }
            real = stack.enter_context(
                subprocess.Popen([python, "-c", _SKYPILOT], cwd=folder, **pipes)
            )
            stack.callback(real.terminate)

        def why(plan: Plan) -> str | None:
            (text,) = (file.text for file in dsgen.render(plan) if file.path == task.name)
            task.write_text(text, encoding="utf-8")
            if real is None or real.stdin is None or real.stdout is None:
                found = validator("skypilot", "task").iter_errors(yaml.safe_load(text))
                return "; ".join(error.message for error in found) or None
            real.stdin.write(f"{task}\n")
            real.stdin.flush()
            said = json.loads(real.stdout.readline())
            return None if said is None else str(said)

        launch = {
            "target": "skypilot",
            "skypilot": {"infra": "aws", "use_spot": True, "workdir": "."},
        }
        shown = "SkyPilot" if real else "SkyPilot's schema"
        return _tried(shown, plans(count, tuple(FRAMEWORKS), "SkyPilot", launch=launch), why)


_PROGRAMS: Final = {
    "slurm": _asked_slurm,
    "azureml": _asked_azureml,
    "kubernetes": _asked_kubernetes,
    "skypilot": _asked_skypilot,
}


def _tried(name: str, tried: Iterator[Plan], why: Callable[[Plan], str | None]) -> bool:
    """Print how many are accepted, and each kind of refusal once; whether all are."""
    verdicts, reported = Counter[str](), set[str]()
    print(name)
    for plan in tried:
        problem = why(plan)
        verdicts[
            "accepted" if problem is None else "can't be told here" if problem == "?" else "refused"
        ] += 1
        if problem is not None and problem not in reported:
            reported.add(problem)
            print(f"  {problem}: {line_of(plan)[0]}\n")
    print(f"  {dict(verdicts)}")
    return set(verdicts) == {"accepted"}


def main() -> None:
    """Ask every tree and release of DeepSpeed in a process of its own, then the other programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=PLANS, help="plans for each program")
    parser.add_argument(
        "--deepspeed",
        metavar="VERSION",
        action="append",
        default=[],
        help="another release, installed",
    )
    parser.add_argument("--ask", choices=("tree", "deepspeed", *_PROGRAMS), help="this one alone")
    parser.add_argument("trees", nargs="*", type=Path)
    options = parser.parse_args()
    print(f"seed {SEED}")
    if options.ask == "tree":
        sys.exit(not _asked_megatron(options.trees[0], options.n))
    if options.ask == "deepspeed":
        sys.exit(not _asked_deepspeed(options.n, next(iter(options.deepspeed), None)))
    if options.ask:
        sys.exit(not _PROGRAMS[options.ask](options.n))
    again = [sys.executable, "-m", "benchmarks.agreement_plans", "-n", str(options.n)]
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as noted:
        os.environ[DIFFERENT] = noted.name
        asked = [["tree", str(tree)] for tree in options.trees] + [
            ["deepspeed"],
            *([name] for name in _PROGRAMS),
        ]
        agreed = [subprocess.run([*again, "--ask", *words]).returncode for words in asked]
        for version in options.deepspeed:
            folder = installed(version, CACHE)
            path = {
                "PYTHONPATH": os.pathsep.join(filter(None, (str(folder or ""), str(REPOSITORY))))
            }
            words = [*again, "--ask", "deepspeed", "--deepspeed", version]
            agreed.append(subprocess.run(words, env={**os.environ, **path}).returncode)
        print(f"{len(set(noted))} different plans")
    sys.exit(any(agreed))


if __name__ == "__main__":
    main()
