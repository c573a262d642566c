"""`Config` reads a DeepSpeed config as DeepSpeed's own parser does, accessor by accessor."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agreement_deepspeed import fitted, is_json, real_configs, rendered_configs
from benchmarks.deepspeed_mutations import WORLD, mutants
from dsgen.programs.deepspeed.config import BATCH_KEYS, Config
from dsgen.programs.releases import NEWEST, Release
from dsgen.text.hjson.text import read_json
from dsgen.text.text import text_of
from tests.needs import needs_deepspeed
from tests.workers import HANGS_S

ROOT = Path(__file__).parents[2]
RELEASE = ".".join(map(str, NEWEST["deepspeed"]))
MUTANTS = 2_500
ZERO = "/zero_optimization"
Held = dict[str, Any]

FLAGS = (
    True,
    False,
    1,
    0,
    1.0,
    "true",
    "yes",
    "on",
    "t",
    "1",
    "false",
    "No",
    "off",
    "auto",
    "maybe",
    2,
    None,
)
SIZES = (500, 5e8, "500", "5e8", " 16 ", "1_000", 2.5, True, "auto", "SIZE", -1, None)
#: Values whose conversion the parser decides on, by pointer.
COERCED: dict[str, tuple[Any, ...]] = {
    f"{ZERO}/stage": (
        0,
        1,
        2,
        3,
        "3",
        "2",
        " 1 ",
        3.0,
        "3.0",
        2.5,
        True,
        False,
        "auto",
        "ZERO_STAGE",
        4,
        None,
    ),
    ZERO: (True, False, {}, "auto", 2, None),
    "/fp16/enabled": FLAGS,
    "/bf16/enabled": FLAGS,
    "/bf16": (None, {}, {"enabled": "on"}),
    "/bfloat16": ({"enabled": "yes"}, {"enabled": 0}),
    f"{ZERO}/offload_optimizer": (
        None,
        "auto",
        {},
        {"device": "cpu"},
        {"device": "auto"},
        {"device": "gpu"},
    ),
    f"{ZERO}/offload_param": (
        None,
        "auto",
        {},
        {"device": "nvme", "nvme_path": "/x"},
        {"device": "auto"},
    ),
    f"{ZERO}/cpu_offload": FLAGS,
    f"{ZERO}/cpu_offload_param": FLAGS,
    f"{ZERO}/overlap_comm": FLAGS,
    f"{ZERO}/stage3_gather_16bit_weights_on_model_save": FLAGS,
    f"{ZERO}/stage3_gather_fp16_weights_on_model_save": FLAGS,
    f"{ZERO}/reduce_bucket_size": SIZES,
    f"{ZERO}/stage3_param_persistence_threshold": SIZES,
    "/tensor_parallel/autotp_size": (2, "2", 2.0, True, "auto", "x", None),
    "/compile/deepcompile": FLAGS,
    "/gradient_clipping": (1.0, 0, 2, True, "1.0", "auto", None),
    "/optimizer": (
        *({"type": name} for name in ("AdamW", "LAMB", "OneBitAdam", "sgd", "auto", None)),
        {},
    ),
    "/zero_allow_untested_optimizer": FLAGS,
    "/prescale_gradients": FLAGS,
}


def coerced(bases: list[dict[str, Any]]) -> Iterator[str]:
    """Configs with each of these values."""
    for pointer, values in COERCED.items():
        for number, value in enumerate(values):
            config = copy.deepcopy(bases[number % len(bases)])
            *parents, key = pointer.split("/")[1:]
            holder = config
            for parent in parents:
                if not isinstance(holder.get(parent), dict):
                    holder[parent] = {}
                holder = holder[parent]
            holder[key] = value
            yield json.dumps(config)


@pytest.fixture(scope="module")
def configs() -> list[tuple[Config, Held]]:
    """Configs that DeepSpeed accepts, with what it holds: published, rendered, damaged, and with
    odd values.
    """
    published = [*real_configs(), *rendered_configs()]
    bases = [(name, text) for name, text in published if is_json(text)]
    texts = [text for _, text in published] + [fitted(text) for _, text in bases]
    texts += [text for _, text in mutants(bases, MUTANTS, RELEASE, seed=21)]
    texts += coerced(
        [{"train_batch_size": WORLD}, *(json.loads(fitted(text)) for _, text in bases[:4])]
    )
    command = [sys.executable, "-W", "ignore", "-m", "tests.config_reading_worker", str(WORLD)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(
        command,
        input=lines,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        (reading(text), held) for text, held in zip(texts, answers, strict=True) if held is not None
    ]
    assert len(found) > len(texts) / 3
    return found


def reading(
    text: str, consumer: str = "deepspeed", version: tuple[int, ...] = NEWEST["deepspeed"]
) -> Config:
    """The view of a config's text."""
    release = Release(program="deepspeed", version=version)
    return Config(
        json=read_json(text_of(text, "ds_config.json")), consumer=consumer, release=release
    )


def _precision(held: Held) -> str:
    return "fp16" if held["/fp16/enabled"] else "bf16" if held["/bf16/enabled"] else "fp32"


def _number(value: object) -> object:
    """A number; text that DeepSpeed keeps as it is, until something computes with it, is none."""
    return value if isinstance(value, int | float) else None


ACCESSORS: dict[str, tuple[Callable[[Config], object], Callable[[Held], object]]] = {
    "stage": (lambda config: config.stage, lambda held: held[f"{ZERO}/stage"]),
    "precision": (lambda config: config.precision, _precision),
    "offload optimizer": (
        lambda config: config.offload("optimizer"),
        lambda held: held.get(f"{ZERO}/offload_optimizer/device", "none"),
    ),
    "offload param": (
        lambda config: config.offload("param"),
        lambda held: held.get(f"{ZERO}/offload_param/device", "none"),
    ),
    "optimizer": (lambda config: config.optimizer, lambda held: held["/optimizer/type"]),
    "clipping": (
        lambda config: config.number("/gradient_clipping"),
        lambda held: _number(held["/gradient_clipping"]),
    ),
    "switch in a model": (
        lambda config: [
            config.switch(f"{ZERO}/{name}") for name in ("overlap_comm", "reduce_scatter")
        ],
        lambda held: [held[f"{ZERO}/{name}"] for name in ("overlap_comm", "reduce_scatter")],
    ),
    "switch in a mapping": (
        lambda config: [
            config.switch(f"/{name}")
            for name in ("prescale_gradients", "zero_allow_untested_optimizer")
        ],
        lambda held: [
            bool(held[f"/{name}"])
            for name in ("prescale_gradients", "zero_allow_untested_optimizer")
        ],
    ),
    "number": (
        lambda config: config.number("/gradient_predivide_factor"),
        lambda held: _number(held["/gradient_predivide_factor"]),
    ),
    "whole": (
        lambda config: [
            config.whole(f"{ZERO}/reduce_bucket_size"),
            config.whole("/tensor_parallel/autotp_size"),
        ],
        lambda held: [held[f"{ZERO}/reduce_bucket_size"], held["/tensor_parallel/autotp_size"]],
    ),
}


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("accessor", ACCESSORS)
def test_accessors_hold_what_the_parser_holds(
    accessor: str, configs: list[tuple[Config, Held]]
) -> None:
    """Each accessor equals what DeepSpeed's parser holds after reading, in every config that it
    accepts.
    """
    ours, theirs = ACCESSORS[accessor]
    wrong = [(ours(config), theirs(held), config.json.text.content) for config, held in configs]
    assert [item for item in wrong if item[0] != item[1]] == []


@needs_deepspeed
@pytest.mark.integration
def test_batch_keys_are_the_parsers(configs: list[tuple[Config, Held]]) -> None:
    """The batch keys that are given are the parser's; it computes the others."""
    for config, held in configs:
        for key, value in config.batch.items():
            assert value == held[f"/{key}"], config.json.text.content
        missing = set(BATCH_KEYS) - set(config.batch)
        assert all(config.value(f"/{key}") is None for key in missing), config.json.text.content


@needs_deepspeed
@pytest.mark.integration
def test_keys_of_models_are_the_parsers(configs: list[tuple[Config, Held]]) -> None:
    """Every key of the models is read as they read it: converted, dropped when it is "auto", or by
    default.
    """
    for config, held in configs:
        for pointer, value in held.items():
            section = config.bf16 if pointer.startswith("/bf16/") else pointer.rpartition("/")[0]
            key = config.schema.key(pointer)
            plain = (
                key is not None
                and key.type.name in ("bool", "int", "float", "enum")
                and not key.deprecated
            )
            if plain and section.count("/") == 1 and len(section) > 1:
                assert config.read(f"{section}/{pointer.rpartition('/')[2]}") == value, (
                    pointer,
                    config.json.data,
                )


@pytest.mark.parametrize(
    ("text", "stage", "precision"),
    [
        ('{"zero_optimization": {"stage": "3"}, "bf16": {"enabled": "true"}}', 3, "bf16"),
        ('{"zero_optimization": true, "fp16": {"enabled": 1}}', 1, "fp16"),
        (
            '{"zero_optimization": {"stage": "ZERO_STAGE"}, "bf16": {"enabled": "maybe"}}',
            None,
            None,
        ),
        ('{"zero_optimization": {"stage": "auto"}, "bf16": {"enabled": "auto"}}', 0, "fp32"),
    ],
)
def test_values_are_converted(text: str, stage: int | None, precision: str | None) -> None:
    """Text and numbers are converted, what the parser refuses is not known, and what is "auto" has
    its default.
    """
    assert (reading(text).stage, reading(text).precision) == (stage, precision)


def test_auto_is_not_known_where_it_is_filled_in() -> None:
    """What Transformers will fill in is not known from the file."""
    text = (
        '{"zero_optimization": {"stage": "auto"}, "bf16": {"enabled": "auto"}, '
        '"gradient_clipping": "auto"}'
    )
    config = reading(text, "huggingface")
    assert (config.stage, config.precision, config.number("/gradient_clipping")) == (
        None,
        None,
        None,
    )


def test_old_releases_convert_less() -> None:
    """pydantic 1 refuses a stage in quotes, and the fp16 block of that time is a plain mapping."""
    text = '{"zero_optimization": {"stage": "3"}, "fp16": {"enabled": "false"}}'
    config = reading(text, version=(0, 14, 5))
    assert (config.stage, config.precision) == (None, "fp16")
