"""Measure whether `dsgen validate` accepts what `dsgen generate` writes: `python -m
benchmarks.round_trip [--specs N]`.

Seeded specs for every target set random keys of the whole schema: of `launch` and the name, most to
plain values, some to odd ones that the schema allows; of training, layout, model and machines, for
whole nodes and parts of one, with numbers in full precision, for one count of GPUs or several. What
`generate` accepts is written, and the folder is validated by itself, with its spec as `--job`, and
both with the spec's release of DeepSpeed. An error or warning that `generate` doesn't report is
printed with its spec, and so is a crash. `--refused FILE` writes what was refused, with the files
that would have been written: `python -m benchmarks.refused` asks the real programs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import dsgen
from benchmarks.agreement_plans import words_of
from dsgen.check.validate import check_rendered
from dsgen.findings import Finding, InvalidJob, Severity
from dsgen.job.schema import load_schema
from dsgen.programs.launchers import LAUNCHERS
from dsgen.programs.program import RenderedFile
from dsgen.render import render_counts
from dsgen.search.elastic import Elastic, plan_counts
from dsgen.search.plan import Infeasible, Plan
from dsgen.write import write

SPECS: Final = 3_000
SEED: Final = 20261122
TARGETS: Final = tuple(LAUNCHERS)
FRAMEWORKS: Final = ("deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm")
CLUSTERS: Final = (
    "azure/standard_nd96amsr_a100_v4",
    "nvidia/dgx-h100",
    "aws/p4d.24xlarge",
    "aws/g5.48xlarge",
)
MODELS: Final = ("gpt3-1.3b", "gpt3-1.3b", "llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b")
#: what the job uploads may be made after its files
_FOLDERS: Final = frozenset({"AML021", "AML024"})

#: What shells, sbatch, YAML, the service and terminals read as more than text; and plain text of
#: other alphabets.
PIECES: Final = (
    *"\"'`$\\{}[]()<>|&;#:=,.-+*?!~@%^/ \t\n\r",
    *(
        "$HOME",
        "${X}",
        "$(id)",
        "${{inputs.x}}",
        "{inputs.x}",
        "$$",
        "%j",
        "%x",
        "%%",
        "\\n",
        "\r\n",
        "#SBATCH",
        "-o",
    ),
    *(
        "../",
        "~/",
        "/dev/null",
        "&&",
        "||",
        "<<EOF",
        ">x",
        "# ",
        " #",
        ": ",
        "- ",
        "a b",
        "  ",
        "'a'",
        '"a"',
        "\\'",
    ),
    "é",
    "日本",
    "\U0001f600",
    "\u202e",
    "\u200b",
    "\u2028",
    "\u00a0",
    "\ufeff",
    "64 GB",
    "null",
    "true",
    "no",
    "1e3",
    "0x1f",
    "007",
    "--",
    "TODO",
    "my_project",
    "<name>",
    "{{x}}",
    "a,b",
    "a:b",
    "a=b",
    "a@b",
    "azureml:",
    "azureml:x",
    "x/y",
    "latest",
    "0",
    "-1",
    "1.5",
)
#: Options that the programs know, which a random text never is.
OPTIONS: Final = (
    "--lr",
    "--bf16",
    "--fp16",
    "--seed",
    "--save",
    "--load",
    "--train-iters",
    "--micro-batch-size",
    "--deepspeed",
    "--data-path",
    "--nnodes",
    "--local_rank",
    "--use_cpu",
    "--num-layers",
    "--tensor-model-parallel-size",
    "-m",
)


Draw = Callable[[random.Random], Any]


def _one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def _real(low: float, high: float) -> Draw:
    """A number in full precision, as likely in every power of ten."""
    return lambda rng: math.exp(rng.uniform(math.log(low), math.log(high)))


MODEL: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}
MODEL_KEYS: Final[Mapping[str, Draw]] = {
    "num_key_value_heads": _one_of(1, 4, 8, 16),
    "intermediate_size": _one_of(5504, 8192, 5461),
    "tie_word_embeddings": _one_of(True, False),
    "max_position_embeddings": _one_of(2048, 131072),
    "rms_norm_eps": _real(1e-8, 1e-3),
    "rope_theta": _real(1e3, 1e7),
    "attention_dropout": _one_of(0.0, 0.1, 1 / 3),
}
CLUSTER: Final[Mapping[str, Any]] = {
    "accelerator": "a100-80gb-sxm",
    "accelerators_per_node": 8,
    "network_gbits_per_s_per_node": 1600,
}
CLUSTER_KEYS: Final[Mapping[str, Draw]] = {
    "network_gbits_per_s_per_node": _real(10, 3200),
    "host_memory_gib": _real(200, 4000),
    "cpu_cores": _one_of(32, 96, 128),
    "price_per_node_hour": _real(1, 200),
}
TRAINING: Final[Mapping[str, Any]] = {"global_batch": 256, "sequence_length": 2048}
TRAINING_KEYS: Final[Mapping[str, Draw]] = {
    "sequence_length": _one_of(512, 2048, 4096),
    "global_batch": _one_of(64, 256, 768, 1000, {"tokens": "1M"}),
    "precision": _one_of("fp32", "fp16", "bf16", "bf16", "fp8"),
    "optimizer": _one_of("adamw", "adamw", "adamw-8bit", "adam", "lamb", "sgd"),
    "attention": _one_of("flash", "unfused"),
    "kernels": _one_of("eager", "fused"),
    "cross_entropy": _one_of("fused", "unfused"),
    "gradient_dtype": _one_of("fp32", "same"),
    "lora": _one_of(
        {"rank": 16}, {"rank": 7, "alpha": 33, "modules": ["q_proj", "v_proj"]}, {"base": "4bit"}
    ),
    "quantized_weights": _one_of(True, False),
    "learning_rate": _real(1e-7, 1e-1),
    "weight_decay": _real(1e-6, 1),
    "gradient_clipping": _real(1e-3, 100),
    "duration": _one_of(
        {"tokens": "1B"}, {"tokens": 1234567890}, {"steps": 777}, {"samples": 100000, "epochs": 2.5}
    ),
}
LAYOUT_KEYS: Final[Mapping[str, Draw]] = {
    "data": _one_of(1, 2, 4, 8),
    "tensor": _one_of(1, 2, 4, 8),
    "pipeline": _one_of(1, 2, 4),
    "virtual_pipeline": _one_of(1, 2),
    "context": _one_of(1, 2),
    "sequence_parallel": _one_of(True, False),
    "zero_stage": _one_of(0, 1, 2, 3),
    "micro_batch": _one_of(1, 2, 4),
    "gradient_accumulation": _one_of(1, 8, 32),
    "recompute": _one_of("none", "selective", "full"),
    "offload": _one_of("none", "optimizer", "optimizer+parameters"),
    "recompute_layers": _one_of(0, 1, 4),
    "offload_fraction": _real(0.01, 1),
    "zero_hpz": _one_of(1, 8),
}
MEGATRON_KEYS: Final[Mapping[str, Draw]] = {
    "batch_ramp": _one_of(
        {"start": 64, "increment": 64, "samples": 5000}, {"start": 8, "increment": 8, "samples": 1}
    ),
}
#: Keys of a DeepSpeed config that no key of the spec decides, and one that some do.
DEEPSPEED_KEYS: Final[Mapping[str, Draw]] = {
    "steps_per_print": _one_of(1, 100),
    "wall_clock_breakdown": _one_of(True, False),
    "comms_logger": _one_of({"enabled": True}, {"enabled": False, "verbose": True}),
    "zero_optimization": _one_of({"round_robin_gradients": True}, {"stage": 3}),
}
#: Keys that few specs have: the others of training and layout, with the values that their schemas
#: give as examples.
_RARE: Final = 0.03
RELEASES: Final = ("0.14.5", "0.16.9", "0.17.6", "0.18.9", "0.19.6", "0.19.8")
COUNTS: Final[Mapping[str, Draw]] = {
    "nodes": _one_of("1..4", "2..4"),
    "gpus": _one_of("8..32:8", "16..64:16"),
}
#: Values of `data.path` and `data.tokenizer` that scripts of each framework take.
PATHS: Final[Mapping[str, Draw]] = {
    "deepspeed": _one_of("/data/a", ["/data/a b", "it's/b"], "data set"),
    "huggingface": _one_of("/data/a.json", "wiki text", "/data/it's/set", "./-c"),
    "megatron-deepspeed": _one_of(
        "/data/a_document", ["/data/a"], [0.3, "/data/a", "0.7", "/data/it's b"]
    ),
    "megatron-lm": _one_of(
        "/data/a_document", ["/a", "/b", "/c"], [1, "/data/a b"], [0.30, "/data/a", 7e-1, "/b"]
    ),
}
_BPE: Final = {"vocab_file": "/data/vocab.json", "merges_file": "/data/my merges.txt"}
TOKENIZERS: Final[Mapping[str, Draw]] = {
    "deepspeed": _one_of({"path": "/data/tokenizer"}, {"type": "own", **_BPE}),
    "huggingface": _one_of({"path": "/data/tokenizer"}, {"path": "org/name"}),
    "megatron-deepspeed": _one_of(
        {"path": "/t"}, {"path": "/t.model"}, _BPE, {"type": "NullTokenizer"}
    ),
    "megatron-lm": _one_of(
        {"path": "/t"}, {"type": "Llama2Tokenizer", "path": "/t"}, _BPE, {"type": "NullTokenizer"}
    ),
}


@dataclass(slots=True)
class Tally:
    """Outcome of the specs."""

    specs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    infeasible: int = 0
    written: int = 0
    refusals: list[dict[str, Any]] = field(default_factory=list)
    found: list[tuple[dict[str, Any], Finding]] = field(default_factory=list)
    crashes: list[tuple[dict[str, Any], str]] = field(default_factory=list)

    def refuse(
        self,
        spec: dict[str, Any],
        findings: Iterable[Finding],
        files: Iterable[RenderedFile],
        plan: Plan | None = None,
    ) -> None:
        """Count the rules behind a refusal, once each, and keep it."""
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        self.refused.update({finding.rule for finding in errors})
        self.refusals.append(
            {
                "spec": spec,
                "errors": [[finding.rule, finding.message] for finding in errors],
                "world": plan.layout.world if plan else None,
                "words": words_of(plan) if plan else None,
                "files": {file.path: file.text for file in files},
            }
        )


def _odd(rng: random.Random) -> str:
    pieces = [rng.choice(PIECES) for _ in range(rng.choice((1, 1, 2, 3)))]
    return "".join(
        rng.choice(("", "x", "run")) + piece + rng.choice(("", "", "y")) for piece in pieces
    )


def _value(rng: random.Random, schema: dict[str, Any], odd: bool) -> Any:
    """A value of the schema's type: its example, or with `odd` anything of that type."""
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        low, high = schema["minimum"], schema["maximum"]
        return (
            rng.choice((low, high, rng.randint(low, high), *schema["examples"]))
            if odd
            else schema["examples"][0]
        )
    if kind == "number":
        return (
            schema["examples"][0]
            if not odd
            else rng.uniform(schema.get("minimum", 1e-9), schema["maximum"])
        )
    if kind in ("array", "object") and not odd:
        return schema["examples"][0]
    if kind == "array":
        return [_value(rng, schema["items"], odd) for _ in range(rng.randint(1, 3))]
    if kind == "object" and "properties" in schema:
        parts, needed = schema["properties"], schema.get("required", ())
        return {
            key: _value(rng, part, odd)
            for key, part in parts.items()
            if key in needed or rng.random() < 0.4
        }
    if kind == "object":
        names = ("NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", _odd(rng))
        rest = schema["additionalProperties"]
        return {rng.choice(names): _value(rng, rest, odd) for _ in range(rng.randint(1, 3))}
    if odd:
        others = (rng.randint(-5, 5), rng.choice(OPTIONS)) if "number" in schema["type"] else ()
        return rng.choice((_odd(rng), _odd(rng), *others))
    return schema.get("examples", ["2"])[0]


def spec_of(rng: random.Random) -> dict[str, Any]:
    """A small job with random keys of `launch`, at times one or two of them odd."""
    target, nodes = rng.choice(TARGETS), rng.choice((1, 1, 2, 4))
    known = load_schema()["$defs"]["launch"]["properties"]
    launch: dict[str, Any] = {"target": target}
    own = {key: value for key, value in known[target]["properties"].items() if rng.random() < 0.4}
    general = {
        key: known[key]
        for key in ("script", "arguments", "environment", "time_limit")
        if rng.random() < 0.5
    }
    places = [(launch, key, part) for key, part in general.items()]
    section: dict[str, Any] = {}
    places += [(section, key, part) for key, part in own.items()]
    strange = rng.sample(range(len(places)), min(len(places), rng.choice((0, 0, 0, 1, 2))))
    for index, (home, key, part) in enumerate(places):
        home[key] = _value(rng, part, index in strange)
    if "hosts" in section:
        section["hosts"] = (
            [f"node-{n}" for n in range(nodes)] if "hosts" not in strange else section["hosts"]
        )
    elif target == "shell" and nodes > 1:
        section.setdefault("hostfile", "hosts")
    framework = rng.choice(FRAMEWORKS)
    counts = (
        {"nodes": nodes} if nodes > 1 or rng.random() < 0.5 else {"gpus": rng.choice((1, 2, 4, 8))}
    )
    if LAUNCHERS[target].pick is not None and "hosts" not in section and rng.random() < 0.15:
        counts = {key: COUNTS[key](rng) for key in (rng.choice(tuple(COUNTS)),)}
    return {
        "name": _odd(rng).strip() or "job" if rng.random() < 0.3 else "job",
        "framework": framework,
        "model": rng.choice(MODELS)
        if rng.random() < 0.8
        else {**MODEL, **_some(rng, MODEL_KEYS, 0.3)},
        "cluster": rng.choice(CLUSTERS)
        if rng.random() < 0.8
        else {**CLUSTER, **_some(rng, CLUSTER_KEYS, 0.4)},
        **counts,
        **(
            {"deepspeed_version": rng.choice(RELEASES)}
            if framework != "megatron-lm" and rng.random() < 0.2
            else {}
        ),
        "training": {
            **TRAINING,
            **_rest(rng, "training", TRAINING_KEYS, MEGATRON_KEYS),
            **_some(rng, TRAINING_KEYS, 0.08),
            **(_some(rng, MEGATRON_KEYS, 0.15) if "megatron" in framework else {}),
        },
        "layout": {**_rest(rng, "layout", LAYOUT_KEYS), **_some(rng, LAYOUT_KEYS, 0.08)},
        **({"memory": {"headroom": rng.random() / 3}} if rng.random() < 0.3 else {}),
        **_run_keys(rng, framework, "--data-path" in launch.get("arguments", ())),
        "launch": {**launch, **({target: section} if section else {})},
    }


def _run_keys(rng: random.Random, framework: str, has_data: bool) -> dict[str, Any]:
    """`data`, `output` and `reliability`, with values that suit the framework, and a few odd
    ones.
    """
    known = load_schema()["$defs"]
    if rng.random() < 0.3:
        return {}
    data = _some(rng, {"path": PATHS[framework], "tokenizer": TOKENIZERS[framework]}, 0.4)
    if "megatron" in framework and rng.random() < 0.3:
        data["split"] = rng.choice(("969,30,1", "98, 2", "100"))
    if has_data and rng.random() < 0.9:
        data.pop("path", None)  # which would say otherwise than launch.arguments
    if data and rng.random() < 0.05:
        data["path"] = _odd(rng)
    sections = {"data": data}
    for name in ("output", "reliability"):
        keys = {key: part for key, part in known[name]["properties"].items() if rng.random() < 0.4}
        sections[name] = {key: _value(rng, part, rng.random() < 0.05) for key, part in keys.items()}
    if framework != "huggingface" and rng.random() < 0.9:
        sections["output"].pop("keep", None)  # which only the Trainer has
    if framework != "megatron-lm" and rng.random() < 0.2:
        sections["deepspeed_config"] = _some(rng, DEEPSPEED_KEYS, 0.6)
    return {name: section for name, section in sections.items() if section}


def _rest(rng: random.Random, section: str, *drawn: Mapping[str, Draw]) -> dict[str, Any]:
    """Some of a section's keys that are `drawn` by no table."""
    parts = load_schema()["$defs"][section]["properties"]
    rest = {key: part for key, part in parts.items() if not any(key in table for table in drawn)}
    return {key: _value(rng, part, False) for key, part in rest.items() if rng.random() < _RARE}


def _some(
    rng: random.Random, pool: Mapping[str, Callable[[random.Random], Any]], share: float
) -> dict[str, Any]:
    return {key: draw(rng) for key, draw in pool.items() if rng.random() < share}


def try_spec(spec: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Plan, write and validate one spec."""
    try:
        job, of_spec = dsgen.check_job(spec)
    except InvalidJob as invalid:
        tally.refuse(spec, invalid.findings, ())
        return
    found = plan_counts(job, top=1) if job.elastic else dsgen.search(job, top=1)
    if isinstance(found, Infeasible):
        tally.infeasible += 1
        return
    plans = found.plans if isinstance(found, Elastic) else found.plans[:1]
    files = render_counts(found) if isinstance(found, Elastic) else dsgen.render(plans[0])
    of_files = [one for plan in plans for one in check_rendered(dsgen.render(plan), plan.job)]
    of_plans = [finding for plan in plans for finding in plan.findings]
    own = {finding.rule for finding in (*of_spec, *of_plans, *of_files)} | _FOLDERS
    if any(finding.severity is Severity.ERROR for finding in of_files):
        tally.refuse(spec, of_files, files, plans[0])
        return
    write(files, folder)
    tally.written += 1
    stated = folder.with_suffix(".json")
    stated.write_text(json.dumps(spec), encoding="utf-8")
    release = (
        {"deepspeed_version": spec["deepspeed_version"]} if "deepspeed_version" in spec else {}
    )
    for flags in (
        {},
        {"job": stated},
        *(({**release}, {"job": stated, **release}) if release else ()),
    ):
        for finding in dsgen.validate(folder, **flags):
            if finding.severity is not Severity.NOTE and finding.rule not in own:
                tally.found.append(
                    (spec, replace(finding, hint=f"with {', '.join(flags) or 'no flag'}"))
                )


def round_trips(count: int, seed: int) -> Tally:
    """`count` specs tried."""
    tally, rng = Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        for number in range(count):
            spec = spec_of(rng)
            tally.specs += 1
            try:
                try_spec(spec, Path(name) / str(number), tally)
            except Exception:  # what this looks for
                tally.crashes.append((spec, traceback.format_exc()))
    return tally


def main() -> None:
    """Print what came of the specs; exit with 1 when a finding or a crash is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, default=SPECS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--refused", type=Path, help="write what was refused, one JSON a line")
    arguments = parser.parse_args()
    tally = round_trips(arguments.specs, arguments.seed)
    refused = ", ".join(f"{rule} {times}" for rule, times in tally.refused.most_common())
    print(
        f"{tally.specs:,} specs (seed {arguments.seed}): {tally.written:,} written and validated, ",
        end="",
    )
    print(f"{tally.infeasible} infeasible; refused: {refused or 'none'}")
    print(
        f"{len(tally.crashes)} crashes, {len(tally.found)} findings of validate that "
        "generate does not report"
    )
    if arguments.refused:
        arguments.refused.write_text(
            "".join(f"{json.dumps(one)}\n" for one in tally.refusals), encoding="utf-8"
        )
    shown: Counter[str] = Counter()
    for spec, finding in tally.found:
        shown[f"{finding.rule} {finding.severity.value}"] += 1
        if shown[f"{finding.rule} {finding.severity.value}"] <= 2:
            print(
                f"\n{finding.rule} {finding.message!a}, {finding.hint}, {finding.where.name}\n "
                f" {json.dumps(spec)}"
            )
    print(dict(shown))
    for spec, trace in tally.crashes[:5]:
        print(f"\n{json.dumps(spec)}\n{trace}")
    sys.exit(bool(tally.crashes or tally.found))


if __name__ == "__main__":
    main()
