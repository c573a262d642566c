"""Arguments of scripts other than Megatron's, and configs, as keys of the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..catalog import find_model
from ..job.hf_config import model_from_config
from ..numerals import read_whole
from ..programs.deepspeed.config import Config
from ..programs.deepspeed.options import OPTIONS
from ..programs.frameworks import FRAMEWORKS
from ..programs.trainer.accelerate import AccelerateConfig, is_true
from ..programs.trainer.submission import used_accelerate_config
from ..programs.trainer.table import BATCH, GROUPS, LENGTHS, ROWS
from ..text.around import is_readable
from ..text.text import UnusableJson, read_json
from .draft import Draft, Given, Parser, options_of_launch, options_of_values, values_of

#: Options whose keys of the spec hold decisions of the plan.
PLANNED: Final = frozenset(
    row.option.replace("_", "-")
    for row in ROWS
    if row.key.startswith("layout.") or row.key == "training.precision"
)
#: Options that name the DeepSpeed config, or ask for DeepSpeed: the plan has its own.
CONFIGS: Final = frozenset({"--deepspeed", "--deepspeed_config", "--deepspeed-config"})
#: Options of scripts that say how large adapters are.
_RANKS: Final = {"rank": ("--lora-r", "--lora-rank"), "alpha": ("--lora-alpha",)}
_MODELS: Final = (
    *(
        "--model-name-or-path",
        "--model-name",
        "--model",
        "--pretrained-model",
        "--base-model",
        "--model-path",
    ),
)


def read_script(draft: Draft) -> None:
    """The options of the training script, and of the Trainer what the spec has keys for."""
    found, trainer = draft.found, draft.found.trainer
    draft.parser = Parser(trainer=trainer is not None)
    options: list[Given] = (
        list(options_of_launch(found.launch, draft.parser)) if found.launch else []
    )
    if trainer is not None and trainer.launch is None:
        options += options_of_values(trainer)
    draft.options = tuple(options)
    alone = found.launch is None and (found.config is None or found.config.filled)
    draft.set("framework", "huggingface" if trainer is not None or alone else "deepspeed")
    set_script(draft)
    if trainer is not None:
        for row in ROWS:
            value = trainer.setting(row.name) if row.by_default else trainer.value(row.name)
            if row.key and value is not None:
                draft.set(row.key, row.decode(value) if row.decode is not None else value)
        if all(map(trainer.lacks, ("bf16", "fp16"))):
            draft.set("training.precision", "fp32")
        if trainer.lacks("gradient_checkpointing"):
            draft.set("layout.recompute", "none")
        if trainer.value("save_strategy", "steps") != "steps":
            draft.drop("output.save_interval")
    _read_model(draft)
    _read_usual(draft)
    config = used_accelerate_config(found.submission)
    if config is not None and (found.launch is None or found.launch.call("accelerate") is not None):
        _read_accelerate(draft, config)


def set_script(draft: Draft) -> None:
    """The training program; of one in a folder that only the shell knows, its name."""
    launch, name = draft.found.launch, draft.found.program
    if launch is None or launch.program is None:
        return
    if not set(name) & set("$`*{}"):
        draft.set("launch.script", name)
    if launch.program.value is None:
        draft.leave(
            launch.program.raw, draft.found.where, "the program's folder is not in the files"
        )


def _read_usual(draft: Draft) -> None:
    """Read options of usual names that no standard has; they are carried over as well."""
    values = {
        option.key.replace("_", "-"): values_of(option.words)[0]
        for option in draft.options
        if option.known
    }
    options = [f"--{name.replace('_', '-')}" for name in LENGTHS]
    read = (read_whole(values.get(name)) for name in options)
    length = next((number for number in read if number is not None), None)
    draft.set("training.sequence_length", length or None)
    for row in GROUPS[BATCH]:
        value = values.get(row.option.replace("_", "-"), "")
        if (number := read_whole(value)) and draft.get(row.key) is None:
            draft.set(row.key, number)
    adapts = FRAMEWORKS[draft.get("framework")].adapters
    if adapts and any(
        is_true(values.get(name, "no")) for name in ("--use-lora", "--use-peft", "--lora-enable")
    ):
        found = {
            key: next((values[one] for one in names if one in values), "")
            for key, names in _RANKS.items()
        }
        draft.set(
            "training.lora",
            {
                key: number
                for key, value in found.items()
                if (number := read_whole(value)) is not None
            },
        )


def _read_model(draft: Draft) -> None:
    """The model whose name or folder an option has: a preset, or a folder with a config.json."""
    folder = draft.found.launch.script.text.folder if draft.found.launch else None
    for option in draft.options:
        if option.known and option.key.replace("_", "-") in _MODELS:
            value = values_of(option.words)[0]
            entry = find_model(value)
            if entry is not None:
                draft.set("model", entry.name)
            elif folder is not None and is_readable(
                path := Path(folder) / value / "config.json", Path(folder)
            ):
                if _is_planned(path):
                    draft.set("model", str(path.parent))
                else:
                    draft.leave(str(option), option.where, "dsgen plans no such model")
            else:
                continue
            return


def _is_planned(path: Path) -> bool:
    """Return whether a config.json is of a model that can be planned."""
    try:
        read = read_json(path)
        return isinstance(read, dict) and bool(model_from_config(read, name="", source=""))
    except (UnusableJson, ValueError):  # ConfigError is a ValueError
        return False


def _read_accelerate(draft: Draft, config: AccelerateConfig) -> None:
    """The DeepSpeed settings of an accelerate config.

    Of one that names a DeepSpeed config, the rest only.
    """
    precision = config.value("mixed_precision")
    if precision in ("bf16", "fp16") and draft.get("training.precision") in (None, "fp32"):
        draft.set("training.precision", precision)
    names = {
        "deepspeed_config",
        "distributed_type",
        "num_machines",
        "num_processes",
        "mixed_precision",
    }
    usual = {
        "machine_rank",
        "rdzv_backend",
        "same_network",
        "compute_environment",
        "debug",
        "main_training_function",
    }
    for name, place, value in config.entries(""):
        if name not in names | usual and value not in ("no", False, None, []):
            why = "dsgen's launch files start the processes without accelerate launch"
            draft.leave(f"{name}: {value}", config.locate(place), why)
    if config.uses_deepspeed and not config.config_file:
        _read_section(draft, config)


def _read_section(draft: Draft, config: AccelerateConfig) -> None:
    section, at = config.deepspeed, "deepspeed_config"
    draft.set("layout.zero_stage", config.zero_stage)
    optimizer, params = (
        str(section.get(f"offload_{name}_device", "none")) for name in ("optimizer", "param")
    )
    moved = (
        "none"
        if optimizer == "none"
        else "optimizer"
        if params == "none"
        else "optimizer+parameters"
    )
    draft.set("layout.offload", moved if config.zero_stage else None)
    steps = config.integer(f"{at}/gradient_accumulation_steps")
    if draft.get("layout.gradient_accumulation") is None:
        draft.set("layout.gradient_accumulation", steps)
    clipping = section.get("gradient_clipping")
    if isinstance(clipping, int | float) and not isinstance(clipping, bool):
        draft.set("training.gradient_clipping", clipping)
    known = {
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "gradient_accumulation_steps",
    }
    known |= {"gradient_clipping", "deepspeed_multinode_launcher", "deepspeed_hostfile"}
    for name, value in section.items():
        if name == "zero3_init_flag" or (name == "zero3_save_16bit_model" and is_true(value)):
            continue  # the Trainer's config switches both on at stage 3
        if name not in known:
            draft.leave(
                f"{at}.{name}: {value}", config.locate(f"{at}/{name}"), "the spec has no key for it"
            )


def read_config(draft: Draft, config: Config) -> None:
    """The keys that a DeepSpeed config says: batch, precision, optimizer, part of the layout."""
    megatron = draft.found.megatron is not None
    stated = config.has("/fp16/enabled") or config.has(f"{config.bf16}/enabled")
    known = {
        "layout.gradient_accumulation": megatron and draft.get("training.global_batch") is not None,
        "training.precision": not stated and draft.get("training.precision") is not None,
    }
    for option in OPTIONS:
        if (option.megatron or not megatron) and not known.get(option.spec):
            draft.set(option.spec, option.decode(config, option.pointer))
