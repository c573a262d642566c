"""DeepSpeed configs damaged as people damage them: seeded, so that the same number gives the same
config.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from dsgen.programs.deepspeed.schema import DeepSpeedSchema, Key, load_schema, versions

WORLD = 8  #: ranks that the configs are made for
Config = dict[str, Any]

#: What a value is replaced with, whatever its key.
STRANGE: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    -1,
    8,
    0.5,
    1.0,
    2.5,
    1e9,
    1e10,
    5e8,
    "",
    "8",
    "1e-3",
    "2e8",
    "true",
]
STRANGE += [
    "auto",
    "cpu",
    "nvme",
    "none",
    "ZERO_STAGE",
    "${STAGE}",
    "{{ x }}",
    "yes",
    [],
    [1],
    ["a"],
    {},
    {"enabled": True},
]
STRANGE += [
    "8.0",
    " 4 ",
    "off",
    "dynamic",
    "bf16",
    -0.5,
    1e19,
    2**40,
    {"device": "cpu"},
    {"stage": 2},
    {"enabled": "auto"},
]
#: Blocks and keys that go wrong together with others.
BLOCKS: list[tuple[str, Any]] = [
    ("/fp16", {"enabled": True}),
    ("/fp16", {"enabled": True, "loss_scale": 0, "min_loss_scale": 0}),
    ("/fp16", {"enabled": True, "loss_scale": "dynamic"}),
    ("/fp16", {"enabled": True, "opt_level": "O2"}),
    ("/fp16", {"enabled": True, "fp16_master_weights_and_grads": True}),
    ("/fp16", {"enabled": True, "initial_scale_power": "16"}),
    ("/bf16", {"enabled": True}),
    ("/bf16", {"enabled": True, "loss_scale": 0}),
    ("/bf16", {"enabled": True, "bf16_master_weights_and_grads": True}),
    ("/bf16", {"enabled": True, "bf16_optimizer_states": True}),
    ("/bf16", None),
    ("/bfloat16", {"enabled": True}),
    ("/zero_optimization", True),
    ("/zero_optimization", False),
    ("/zero_optimization", 2),
    ("/zero_optimization/cpu_offload", True),
    ("/zero_optimization/cpu_offload_param", True),
    ("/zero_optimization/cpu_offload_params", True),
    ("/zero_optimization/cpu_offload_use_pin_memory", True),
    ("/zero_optimization/stage3_gather_fp16_weights_on_model_save", True),
    ("/zero_optimization/stage3_gather_16bit_weights_on_model_save", True),
    ("/zero_optimization/offload_optimizer", {"device": "cpu"}),
    ("/zero_optimization/offload_optimizer", {"device": "cpu", "ratio": 0.5}),
    ("/zero_optimization/offload_optimizer", "cpu"),
    ("/zero_optimization/offload_param", {"device": "gpu"}),
    ("/zero_optimization/prefetch_bucket_size", 1000),
    ("/zero_optimization/stage3_prefetch_bucket_size", 1000),
    ("/zero_optimization/reduce_bucket_size", 15099494.4),
    ("/zero_optimization/reduce_bucket_size", 0),
    ("/zero_optimization/compute_grad_norm", False),
    ("/zero_optimization/leaf_module", {"classes": "Block"}),
    ("/zero_optimization/leaf_module", None),
    ("/zero_optimization/zenflow", {"topk_ratio": 0.1, "update_interval": 4}),
    ("/zero_optimization/zenflow", {"select_strategy": "always"}),
    ("/zero_optimization/aio", {"block_size": 1}),
    ("/zero_optimization/mics_shard_size", 8),
    ("/gradient_allreduce_op", "sum"),
    ("/gradient_allreduce_op", "max"),
    ("/communication_data_type", "fp8"),
    ("/communication_data_type", "BF16"),
    ("/torch_autocast", {"enabled": True, "dtype": "fp8"}),
    (
        "/torch_autocast",
        {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": [1]},
    ),
    ("/checkpoint", {"tag_validation": "warn"}),
    ("/checkpoint", {"tag_validation": "never"}),
    ("/checkpoint", {"writer": {"type": "quick"}}),
    ("/checkpoint", {"parallel_write": {"pipeline_stage": "yes"}}),
    (
        "/data_efficiency",
        {"enabled": True, "data_sampling": {"curriculum_learning": {"enabled": True}}},
    ),
    ("/data_efficiency", {"data_sampling": {"dynamic_batching": {"enabled": True}}}),
    ("/data_efficiency", {"data_sampling": {"dynamic_batching": {"min_batch_size": "few"}}}),
    ("/data_types", {"keep_in_fp32_modules": ["norm"]}),
    ("/data_types", {"keep_in_fp32_modules": "norm"}),
    ("/expert_parallel", {"enabled": True, "autoep_size": 4}),
    ("/expert_parallel", 4),
    ("/tensor_parallel", {"autotp_size": 2}),
    ("/tensor_parallel", {"autotp_size": 2, "tp": {"tp_size": 2}}),
    ("/tensor_parallel", {"dtype": "bf16"}),
    ("/tensor_parallel", {"tensor_parallel": {"tp_sizes": 2}}),
    ("/compile", {"deepcompile": True, "passes": ["z3"]}),
    ("/compile", {"passes": ["z9"]}),
    ("/sparse_attention", {"mode": "fixed"}),
    ("/sparse_attention", {"mode": "thin"}),
    ("/amp", {"opt_level": "O1"}),
    ("/amp", {"enabled": True}),
    ("/progressive_layer_drop", {}),
    ("/curriculum_learning", {"enabled": True}),
    ("/elasticity", {"enabled": False}),
    (
        "/elasticity",
        {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6]},
    ),
    ("/elasticity", {"enabled": True, "micro_batch_sizes": [2]}),
    (
        "/elasticity",
        {"enabled": True, "max_train_batch_size": 64, "micro_batch_sizes": [2, 0], "version": 0.1},
    ),
    (
        "/elasticity",
        {"enabled": True, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4], "min_gpus": 9},
    ),
    (
        "/elasticity",
        {
            "enabled": True,
            "max_train_batch_size": 100,
            "micro_batch_sizes": [3],
            "ignore_non_elastic_batch_info": True,
            "version": 0.1,
        },
    ),
    (
        "/elasticity",
        {
            "enabled": True,
            "max_train_batch_size": 1000,
            "micro_batch_sizes": [2, 4],
            "ignore_non_elastic_batch_info": True,
            "version": 0.1,
            "min_gpus": 4,
            "max_gpus": 64,
        },
    ),
    (
        "/elasticity",
        {
            "enabled": True,
            "max_train_batch_size": 1000,
            "micro_batch_sizes": [2, 4],
            "ignore_non_elastic_batch_info": True,
            "version": 0.2,
            "num_gpus_per_node": 8,
            "model_parallel_size": 3,
        },
    ),
    ("/vocabulary_size", "32000"),
    ("/vocabulary_size", 32001),
    ("/wall_clock_breakdown", "true"),
    ("/flops_profiler", {"enabled": "auto"}),
    ("/autotuning", {"enabled": False, "results_dir": ""}),
    ("/optimizer", {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}),
    ("/optimizer", {"type": "AdamW", "params": {"max_grad_norm": "auto"}}),
    ("/optimizer", {"type": "AdamW", "params": []}),
    ("/optimizer", {"type": 5}),
    ("/scheduler", {"type": "WarmupLR"}),
    ("/sequence_parallel_size", 2),
    ("/sequence_parallel_size", 0),
    ("/tensorboard", "auto"),
    ("/tensorboard", {"enabled": True, "job": "x"}),
    ("/nebula", {"enabled": False}),
    ("/timers", {"throughput": {"enabled": False}}),
    ("/timers", {"throughput": None}),
    ("/hybrid_engine", {"enabled": False, "max_out_tokens": 0}),
    ("/weight_quantization", {"num_bits": "4"}),
    ("/overlap_comm", True),
    ("/max_grad_norm", 1.0),
    ("/micro_batch_size_per_gpu", 1),
]


def mutants(
    bases: list[tuple[str, str]], count: int, version: str, seed: int = 0
) -> Iterator[tuple[str, str]]:
    """`count` pairs of a name and a config's text, from the `bases`, for a release's keys."""
    schema = load_schema(version)
    parsed = [(name, json.loads(text)) for name, text in bases]
    for number in range(count):
        rng = random.Random(f"{seed}/{version}/{number}")
        name, data = rng.choice(parsed)
        config = for_world(copy.deepcopy(data)) if rng.random() < 0.9 else copy.deepcopy(data)
        used = [_mutate(config, schema, rng) for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
        text = json.dumps(config, indent=2)
        if rng.random() < 0.12:
            text = _damage(text, rng)
            used.append("text")
        yield f"{number}: {name} + {', '.join(used)}", text


def for_world(config: Config) -> Config:
    """The config with a batch that fits `WORLD` replicas, where the config says nothing that could
    be read.
    """
    micro, steps = (
        config.get("train_micro_batch_size_per_gpu"),
        config.get("gradient_accumulation_steps"),
    )
    micro = micro if isinstance(micro, int) and micro > 0 else 2
    steps = steps if isinstance(steps, int) and steps > 0 else 1
    config["train_batch_size"] = micro * steps * WORLD
    for key, value in (
        ("train_micro_batch_size_per_gpu", micro),
        ("gradient_accumulation_steps", steps),
    ):
        if key in config:
            config[key] = value
    return config


def _mutate(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> str:
    name = rng.choice(list(MUTATIONS))
    MUTATIONS[name](config, schema, rng)
    return name


def _objects(value: Any) -> list[Config]:
    """Every object in a config, the outermost first."""
    found: list[Config] = []
    todo = [value]
    while todo:
        item = todo.pop(0)
        if isinstance(item, dict):
            found.append(item)
            todo.extend(item.values())
    return found


def _entry(config: Config, rng: random.Random) -> tuple[Config, str] | None:
    """A random object that has keys, and one of them."""
    filled = [item for item in _objects(config) if item]
    if not filled:
        return None
    place = rng.choice(filled)
    return place, rng.choice(sorted(place))


def _put(config: Config, pointer: str, value: Any) -> None:
    """Set a value, making objects on the way where there are none."""
    *parents, key = pointer.split("/")[1:]
    for parent in parents:
        inner = config.get(parent)
        if not isinstance(inner, dict):
            inner = config[parent] = {}
        config = inner
    config[key] = copy.deepcopy(value)


def _rename(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is None:
        return
    place, key = entry
    at = rng.randrange(max(len(key), 1))
    new = rng.choice(
        [
            key + "s",
            key[:at] + key[at + 1 :],
            key.upper(),
            key[:at] + "_" + key[at:],
            "stage3_" + key,
        ]
    )
    place[new] = place.pop(key)


def _drop(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is not None:
        entry[0].pop(entry[1])


def _mistype(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is not None:
        entry[0][entry[1]] = copy.deepcopy(rng.choice(STRANGE))


def _as_text(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is not None and isinstance(entry[0][entry[1]], int | float):
        entry[0][entry[1]] = json.dumps(entry[0][entry[1]])


def _scale(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is None or entry[1] == "initial_scale_power":
        return
    place, key = entry
    value = place[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        place[key] = rng.choice(
            [-value, value * 1.5, value + 1, 0, value * 1e6, value / 7, value - 1]
        )


def _move(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    entry = _entry(config, rng)
    if entry is not None:
        place, key = entry
        value = place.pop(key)
        rng.choice(_objects(config) or [config])[key] = value


def _batch(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    values = [
        None,
        0,
        -8,
        1,
        2,
        3,
        4,
        8,
        12,
        16,
        24,
        32,
        64,
        100,
        1.5,
        8.0,
        "8",
        "auto",
        True,
        "BATCH_SIZE",
        [8],
    ]
    for key in rng.sample(keys, rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.3:
            config.pop(key, None)
        else:
            config[key] = copy.deepcopy(rng.choice(values if rng.random() < 0.5 else values[3:13]))


def _block(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    pointer, value = rng.choice(BLOCKS)
    _put(config, pointer, value)


def _known_key(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    """A key of the release, with a value that may or may not suit it."""
    pointer = rng.choice(schema.pointers)
    section = schema.section(pointer)
    if section is None or not section.keys or pointer.startswith("/compression_training/"):
        return
    name = rng.choice(sorted(section.keys))
    if name in ("initial_scale_power", "use_gds"):
        return
    _put(
        config,
        f"{pointer}/{name}",
        _suiting(section.keys[name], rng) if rng.random() < 0.5 else rng.choice(STRANGE),
    )


def _suiting(key: Key, rng: random.Random) -> Any:
    if key.type.values:
        return rng.choice(key.type.values)
    suits: dict[str, list[Any]] = {
        "bool": [True, False, "true"],
        "int": [0, 1, 4, 1000, 1e6, "16"],
        "float": [0.0, 0.5, 1, "0.25"],
        "str": ["x"],
        "path": ["/tmp/x"],
        "list": [[], ["x"]],
        "dict": [{}, {"x": 1}],
        "section": [{}, {}, {"enabled": True}],
    }
    return copy.deepcopy(rng.choice(suits.get(key.type.name, [key.default])))


def _other_release(config: Config, schema: DeepSpeedSchema, rng: random.Random) -> None:
    """A key that some release has, not always this one."""
    other = load_schema(rng.choice(versions()))
    pointer = rng.choice([p for p in other.pointers if not p.startswith("/compression_training")])
    section = other.section(pointer)
    if section is not None and section.keys:
        name = rng.choice(sorted(set(section.keys) - {"use_gds", "initial_scale_power"}) or ["x"])
        _put(
            config,
            f"{pointer}/{name}",
            _suiting(section.keys[name], rng) if name in section.keys else 1,
        )


MUTATIONS: dict[str, Callable[[Config, DeepSpeedSchema, random.Random], None]] = {
    "rename": _rename,
    "drop": _drop,
    "mistype": _mistype,
    "as text": _as_text,
    "scale": _scale,
    "move": _move,
    "batch": _batch,
    "block": _block,
    "second block": _block,
    "known key": _known_key,
    "another known key": _known_key,
    "other release": _other_release,
}


def _damage(text: str, rng: random.Random) -> str:
    """The text with a slip of the keyboard, or as HJSON would have it."""
    lines = text.split("\n")
    row = rng.randrange(len(lines))
    match rng.randrange(9):
        case 0:
            lines.insert(row, lines[row])
        case 1:
            lines[row] = lines[row].replace('"', "", 2)
        case 2:
            lines[row] = lines[row] + rng.choice(
                [",", " # a comment", " // a comment", "/* a comment */"]
            )
        case 3:
            lines[row] = lines[row].rstrip(",")
        case 4:
            lines.pop(row)
        case 5:
            lines[row] = lines[row].replace(":", "=", 1)
        case 6:
            return text[: rng.randrange(len(text))]
        case 7:
            lines[row] = lines[row].replace('"', "'")
        case _:
            at = rng.randrange(len(text))
            return text[:at] + rng.choice('{}[]",:x1') + text[at:]
    return "\n".join(lines)
