"""Read the arguments of scripts other than Megatron's, and configs, as keys of the spec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..catalog import find_model
from ..findings import Location
from ..job.arguments import is_module_name
from ..job.hf_config import model_from_config
from ..job.releases import NEWEST
from ..numerals import python_float, read_whole
from ..patterns import lazy_pattern
from ..programs.deepspeed.config import Config
from ..programs.deepspeed.options import OPTIONS
from ..programs.frameworks import FRAMEWORKS
from ..programs.python_around import release_for
from ..programs.trainer.accelerate import STAGES, AccelerateConfig, is_true
from ..programs.trainer.fsdp_config import Fsdp, of_accelerate
from ..programs.trainer.submission import used_accelerate_config
from ..programs.trainer.table import BATCH, GROUPS, ROWS
from ..programs.trainer.training_arguments import LENGTHS, TrainingArguments
from ..rules.job.training import FIRST_WITH_FSDP2
from ..submission.launches import Call, Launch
from ..text.around import is_readable
from ..text.text import UnusableJson, read_json
from ..text.wording import dots, whole_number
from .draft import Draft, Given, LeftOut, Parser, options_of_launch, options_of_values, values_of
from .sharding import is_chosen_by_line, is_sharded, sharding_of

#: Options whose keys of the spec hold decisions of the plan.
PLANNED: Final = frozenset(
    row.option.replace("_", "-")
    for row in ROWS
    if row.key.startswith("layout.") or row.key == "training.precision"
)
#: Options that name the config of what shards the states, or ask for it: the plan has its own.
CONFIGS: Final = frozenset(
    {
        "--deepspeed",
        "--deepspeed_config",
        "--deepspeed-config",
        "--fsdp",
        "--fsdp_config",
        "--fsdp-config",
    }
)
#: Switches with which a script repeats the forward pass of its layers.
_RECOMPUTES: Final = frozenset({"--gradient-checkpointing", "--activation-checkpointing"})
#: Options of scripts that say how large adapters are, by the key of the spec.
_LORA_SIZES: Final = {"rank": ("--lora-r", "--lora-rank"), "alpha": ("--lora-alpha",)}
#: Options with which a program trains adapters: switches, and those that name a kind.
_LORA_SWITCHES: Final = ("--use-lora", "--use-peft", "--lora-enable")
_LORA_KINDS: Final = ("--adapter", "--finetuning-type")
#: Options that name the model.
_MODELS: Final = (
    "--model-name-or-path",
    "--model-name",
    "--model",
    "--pretrained-model",
    "--base-model",
    "--model-path",
)


def read_script(draft: Draft) -> None:
    """Take over the options of the training script, and set the keys that they and configs say."""
    found, trainer = draft.found, draft.found.trainer
    draft.parser = Parser(trainer=trainer is not None)
    options: list[Given] = []
    if found.launch:
        options += options_of_launch(found.launch, draft.parser)
    if trainer is not None and trainer.launch is None:
        options += options_of_values(trainer)
    draft.options = tuple(options)
    # A config alone is the Trainer's where it has an "auto".
    is_trainers_config = found.launch is None and (found.config is None or found.config.filled)
    has_trainer = trainer is not None or is_trainers_config
    draft.set("framework", "huggingface" if has_trainer else "deepspeed")
    set_script(draft)
    if trainer is not None:
        _read_trainer(draft, trainer)
    _read_model(draft)
    _read_usual(draft)
    _read_releases(draft)

    config = used_accelerate_config(found.submission)
    uses_accelerate = found.launch is None or found.launch.call("accelerate") is not None
    if uses_accelerate:
        _read_precision(draft, config)
        if config is not None:
            _read_accelerate(draft, config)
        elif found.launch is not None:
            _read_launch_line(draft, found.launch.call("accelerate"))

    fsdp = sharding_of(found.submission, found.launch, trainer)
    _name_missing_configs(draft, is_sharding_known=fsdp is not None or found.config is not None)
    if fsdp is not None and trainer is not None:
        _read_sharding(draft, fsdp)
    elif fsdp is not None or (found.launch and is_sharded(found.submission, found.launch)):
        why = "dsgen writes FSDP for the Hugging Face Trainer alone, and this program isn't it"
        draft.refused = LeftOut(f"FSDP of {found.program}", found.where, why)


def _read_trainer(draft: Draft, trainer: TrainingArguments) -> None:
    """Set the keys that the Trainer's arguments say, by default too."""
    for row in ROWS:
        value = trainer.setting(row.name) if row.by_default else trainer.value(row.name)
        if row.key and value is not None:
            draft.set(row.key, row.decode(value) if row.decode is not None else value)
    if trainer.lacks("bf16") and trainer.lacks("fp16"):
        draft.set("training.precision", "fp32")
    if trainer.lacks("gradient_checkpointing"):
        draft.set("layout.recompute", "none")
    if trainer.value("save_strategy", "steps") != "steps":
        draft.drop("output.save_interval")


def _name_missing_configs(draft: Draft, *, is_sharding_known: bool) -> None:
    """Name configs of accelerate and DeepSpeed that aren't among the files.

    Where accelerate's would say how the states are sharded, no spec can be written.
    """
    found = draft.found
    for reference in found.submission.references:
        if reference.documents:
            continue
        if reference.kind == "DeepSpeed config" and not is_sharding_known:
            why = f"it says the stage of ZeRO, and {FILE_MISSING}: add it, or set layout.zero_stage"
            draft.leave(reference.path, reference.where, why)
        if reference.kind != "accelerate config":
            continue
        name = f"--config_file {reference.path}"
        if is_sharding_known or is_chosen_by_line(found.launch):
            draft.leave(name, reference.where, "it isn't among the files")
        else:
            why = f"it says how the states are sharded, and {FILE_MISSING}"
            draft.refused = LeftOut(name, reference.where, why)


def _read_releases(draft: Draft) -> None:
    """Set the releases that the repository names: files are written for these."""
    found = draft.found
    launches = [found.launch] if found.launch else []
    shards = sharding_of(found.submission, found.launch, found.trainer)
    programs = {} if shards else {"deepspeed": "deepspeed_version"}
    if found.trainer is not None:
        programs["transformers"] = "transformers_version"
    for program, key in programs.items():
        release = release_for(program, found.where.path, launches)
        if not release.where or not release.exact or release.version == NEWEST[program]:
            continue
        if shards and release.version < FIRST_WITH_FSDP2:
            why = f"FSDP2 needs {dots(FIRST_WITH_FSDP2)} or later; written for the newest"
            path, _, line = release.where.rpartition(":")
            where = Location(path=path, line=read_whole(line))
            draft.leave(str(replace(release, where="")), where, why)
        else:
            draft.set(key, dots(release.version))


def set_script(draft: Draft) -> None:
    """Set the training program. Where only the shell knows its folder, that is its name alone."""
    launch, name = draft.found.launch, draft.found.program
    if launch is None or launch.program is None:
        return
    if not set(name) & set("$`*{}"):
        draft.set("launch.script", _module_or_file(launch, name))
    if launch.program.value is None:
        draft.leave(
            launch.program.raw, draft.found.where, "the program's folder is not in the files"
        )


def _module_or_file(launch: Launch, name: str) -> str:
    """The program's name as a spec has it.

    A module of one word looks like a file there: it is written as its file, or as the module in its
    package that it starts.
    """
    if not launch.starts_module or is_module_name(name):
        return name
    folder = launch.script.text.folder
    is_here = folder is not None and is_readable(Path(folder) / f"{name}.py", Path(folder))
    return f"{name}.py" if is_here else f"{name}.__main__"


def _read_usual(draft: Draft) -> None:
    """Read options of usual names that no standard has; they are carried over as well."""
    values = {
        option.key.replace("_", "-"): values_of(option.words)[0]
        for option in draft.options
        if option.known
    }
    lengths = (read_whole(values.get(f"--{name.replace('_', '-')}")) for name in LENGTHS)
    length = next((number for number in lengths if number is not None), None)
    draft.set("training.sequence_length", length or None)
    for row in GROUPS[BATCH]:
        number = read_whole(values.get(row.option.replace("_", "-"), ""))
        if number and draft.get(row.key) is None:
            draft.set(row.key, number)
    rates = (python_float(values.get(name, "")) for name in ("--learning-rate", "--lr"))
    if draft.get("training.learning_rate") is None:
        draft.set("training.learning_rate", next((rate for rate in rates if rate), None))
    if draft.found.trainer is None:
        for option in draft.options:
            name = option.key.replace("_", "-")
            if name in _RECOMPUTES and is_true(values.get(name, "no")):
                draft.set("layout.recompute", "full")
                draft.comments["layout.recompute"] = f"as {option.key} says"
    _read_adapters(draft, values)


def _read_adapters(draft: Draft, values: Mapping[str, str]) -> None:
    """Set the adapters that options ask for; `values` has the options' values by name."""
    kinds = {values.get(name) for name in _LORA_KINDS}
    is_switched_on = any(is_true(values.get(name, "no")) for name in _LORA_SWITCHES)
    trains_adapters = is_switched_on or not kinds.isdisjoint({"lora", "qlora"})
    if not trains_adapters or not FRAMEWORKS[draft.get("framework")].adapters:
        return
    lora: dict[str, object] = {}
    for key, names in _LORA_SIZES.items():
        value = next((values[name] for name in names if name in values), "")
        number = read_whole(value)
        if number is not None:
            lora[key] = number
    if "qlora" in kinds:
        lora["base"] = "4bit"
    draft.set("training.lora", lora)


def _read_model(draft: Draft) -> None:
    """Set the model that an option names: a preset, or a folder with a config.json."""
    folder = draft.found.launch.script.text.folder if draft.found.launch else None
    for option in draft.options:
        if not option.known or option.key.replace("_", "-") not in _MODELS:
            continue
        value = values_of(option.words)[0]
        entry = find_model(value)
        if entry is not None:
            draft.set("model", entry.name)
            return
        path = Path(folder or "") / value / "config.json"
        if folder is not None and is_readable(path, Path(folder)):
            if _is_planned(path):
                draft.set("model", str(path.parent))
            else:
                draft.leave(str(option), option.where, "dsgen plans no such model")
            return


def _is_planned(path: Path) -> bool:
    """Return whether a config.json is of a model that can be planned."""
    try:
        config = read_json(path)
        return isinstance(config, dict) and bool(model_from_config(config, name="", source=""))
    except (UnusableJson, ValueError):  # ConfigError is a ValueError
        return False


def _read_precision(draft: Draft, config: AccelerateConfig | None) -> None:
    """Set the precision of accelerate's launch line, else of its config, if no option has one."""
    launch = draft.found.launch
    call = launch.call("accelerate") if launch is not None else None
    precision = call.options.text("--mixed_precision") if call is not None else None
    if precision is None and config is not None:
        precision = config.text("mixed_precision")
    if precision in ("bf16", "fp16") and draft.get("training.precision") in (None, "fp32"):
        draft.set("training.precision", precision)


def _read_accelerate(draft: Draft, config: AccelerateConfig) -> None:
    """Set the keys that an accelerate config says, and name its others.

    Its own DeepSpeed settings don't count where it names a DeepSpeed config.
    """
    read = {
        "deepspeed_config",
        "distributed_type",
        "num_machines",
        "num_processes",
        "mixed_precision",
    }
    asking_nothing = {
        "machine_rank",
        "rdzv_backend",
        "same_network",
        "compute_environment",
        "debug",
        "main_training_function",
    }
    if of_accelerate(config):  # `_read_sharding` reads these
        read |= {"fsdp_config", "parallelism_config"}
    for name, place, value in config.entries(""):
        if name not in read | asking_nothing and value not in ("no", False, None, []):
            why = "dsgen's launch files start the processes without accelerate launch"
            draft.leave(f"{name}: {value}", config.locate(place), why)
    if config.uses_deepspeed and not config.config_file:
        _read_section(draft, config)


#: Why a launch is refused whose accelerate config wasn't given.
FILE_MISSING: Final = "isn't among the files"
#: Settings for which a spec has no key, with the values that ask for nothing.
_UNSAID: Final = {
    "ignored_modules": (None, ""),
    "activation_checkpointing_offload": (None, False),
    "xla": (None, False),
}


def _read_sharding(draft: Draft, fsdp: Fsdp) -> None:
    """Set the keys that FSDP's settings say."""
    if fsdp.version is None or fsdp.switch("xla", False):
        reason = "PyTorch/XLA's FSDP" if fsdp.switch("xla", False) else "FSDP"
        why = "its settings aren't in the files" if fsdp.version is None else "it isn't planned"
        draft.refused = LeftOut(reason, fsdp.locate("xla"), why)
        return

    strategy, stage = fsdp.running, fsdp.zero_stage
    if stage is None:
        why = "it is no sharding, and dsgen writes DDP for no framework"
        where = fsdp.locate("sharding_strategy")
        draft.refused = LeftOut(f"FSDP's {strategy}", where, why)
        return

    draft.set("framework", "huggingface")
    draft.set("training.sharding", "fsdp2")
    draft.set("layout.zero_stage", stage)
    if fsdp.offloads:
        draft.set("layout.offload", "optimizer+parameters")
    if fsdp.switch("activation_checkpointing", False):
        draft.set("layout.recompute", "full")
    _read_mesh(draft, fsdp)
    _read_accumulation(draft)
    if draft.get("training.precision") == "fp32" and _is_loaded_in_bf16(draft):
        draft.set("training.precision", "bf16")
        draft.set("training.master_dtype", "same")
    _name_differences(draft, fsdp)


def _name_differences(draft: Draft, fsdp: Fsdp) -> None:
    """Name what runs differently with the plan's FSDP."""
    if fsdp.version == 1:
        why = "the plan's files run FSDP2, which has the same stages"
        draft.leave(f"FSDP1, {fsdp.running}", fsdp.locate("version"), why)
    if fsdp.units is not None:
        why = "not needed: the plan's FSDP takes the layers that the model's code names itself"
        name = "transformer_layer_cls_to_wrap"
        draft.leave(fsdp.written(name, ",".join(fsdp.units)), fsdp.locate(name), why)
    if fsdp.policy != "TRANSFORMER_BASED_WRAP":
        why = "the plan makes a unit of each layer: TRANSFORMER_BASED_WRAP"
        draft.leave(f"auto_wrap_policy {fsdp.policy}", fsdp.locate("auto_wrap_policy"), why)
    kept = "SHARDED_STATE_DICT" if fsdp.by_accelerate and fsdp.version == 2 else "FULL_STATE_DICT"
    state_dict = fsdp.text("state_dict_type", kept)
    if state_dict != "SHARDED_STATE_DICT":
        why = "the plan's checkpoints are sharded: SHARDED_STATE_DICT"
        draft.leave(f"state_dict_type {state_dict}", fsdp.locate("state_dict_type"), why)
    for name, usual in _UNSAID.items():
        value = fsdp.values.get(name)
        if value not in usual:
            draft.leave(f"{name}: {value}", fsdp.locate(name), "the spec has no key for it")


def _is_loaded_in_bf16(draft: Draft) -> bool:
    """Return whether an option of the script says that the model is in bf16.

    Without mixed precision nothing then makes fp32 copies of the weights.
    """
    named = (option for option in draft.options if option.key in ("--dtype", "--torch-dtype"))
    return any(values_of(option.words) == ("bfloat16",) for option in named)


def _read_mesh(draft: Draft, fsdp: Fsdp) -> None:
    """Set copies of the shards, and context parallelism, by a mesh's sizes."""
    keys = {"dp_replicate_size": "zero_copies", "cp_size": "context"}
    for name, size in fsdp.mesh.items():
        number = whole_number(size.value)
        if name in keys and number is not None and number > 1:
            draft.set(f"layout.{keys[name]}", number)
        elif name in ("tp_size", "sp_size") and number is not None and number > 1:
            why = "the plan's files have no tensor parallelism with FSDP2"
            draft.refused = LeftOut(f"{name} {number}", size.where, why)


#: accelerator_config that asks for a reduction of each micro-batch, and nothing else.
_SYNC_EACH_BATCH: Final = lazy_pattern(
    r'\s*\{\s*"gradient_accumulation_kwargs"\s*:'
    r'\s*\{\s*"sync_each_batch"\s*:\s*true\s*\}\s*\}\s*'
)


def _read_accumulation(draft: Draft) -> None:
    """Set when gradients are reduced, as `accelerator_config` says it; name its other keys."""
    trainer, name = draft.found.trainer, "accelerator_config"
    value = None if trainer is None else trainer.value(name)
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    if trainer is None or not re.search(r'"sync_each_batch"\s*:\s*true', text):
        return

    draft.set("layout.sync_each_batch", True)
    if not _SYNC_EACH_BATCH.fullmatch(text):
        why = "of its keys the spec has sync_each_batch alone"
        draft.leave(f"{name} {text}", trainer.locate(name), why)
    option = f"--{name}".replace("_", "-")
    draft.options = tuple(each for each in draft.options if each.key != option)


def is_hybrid(draft: Draft) -> bool:
    """Return whether FSDP shards the states within each node, and each node has a copy."""
    found = draft.found
    fsdp = sharding_of(found.submission, found.launch, found.trainer)
    return fsdp is not None and fsdp.running.startswith("HYBRID")


def _read_section(draft: Draft, config: AccelerateConfig) -> None:
    """Set the keys that an accelerate config's own DeepSpeed settings say."""
    section, at = config.deepspeed, "deepspeed_config"
    draft.set("layout.zero_stage", config.zero_stage)
    if config.zero_stage:
        optimizer = str(section.get("offload_optimizer_device", "none"))
        parameters = str(section.get("offload_param_device", "none"))
        draft.set("layout.offload", _offload_to(optimizer, parameters))
    steps = config.integer(f"{at}/gradient_accumulation_steps")
    if draft.get("layout.gradient_accumulation") is None:
        draft.set("layout.gradient_accumulation", steps)
    clipping = section.get("gradient_clipping")
    if isinstance(clipping, int | float) and not isinstance(clipping, bool):
        draft.set("training.gradient_clipping", clipping)
    read = {
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "deepspeed_multinode_launcher",
        "deepspeed_hostfile",
    }
    for name, value in section.items():
        if name == "zero3_init_flag" or (name == "zero3_save_16bit_model" and is_true(value)):
            continue  # the Trainer's config switches both on at stage 3
        if name not in read:
            where = config.locate(f"{at}/{name}")
            draft.leave(f"{at}.{name}: {value}", where, "the spec has no key for it")


def _offload_to(optimizer: str | None, parameters: str | None) -> str:
    """What is offloaded, by the devices for the optimizer and the parameters."""
    if optimizer in (None, "none"):
        return "none"
    return "optimizer" if parameters in (None, "none") else "optimizer+parameters"


def _read_launch_line(draft: Draft, call: Call | None) -> None:
    """Set the keys that options of accelerate's launch line say of DeepSpeed, with no config file.

    **Source**: accelerate commands/launch.py @ 1.15.0, launch_command_parser: ZeRO 2 where no stage
    is named.
    """
    if call is None or not call.has("--use_deepspeed") or call.has("--deepspeed_config_file"):
        return
    stage = read_whole(call.options.text("--zero_stage") or "2")
    draft.set("layout.zero_stage", stage if stage in STAGES else None)
    if stage:
        optimizer = call.options.text("--offload_optimizer_device")
        parameters = call.options.text("--offload_param_device")
        draft.set("layout.offload", _offload_to(optimizer, parameters))


def read_config(draft: Draft, config: Config) -> None:
    """Set the keys that a DeepSpeed config says: batch, precision, optimizer, parts of layout."""
    has_megatron = draft.found.megatron is not None
    has_precision = config.has("/fp16/enabled") or config.has(f"{config.bf16}/enabled")
    has_batch = draft.get("training.global_batch") is not None
    is_known = {  # by other files
        "layout.gradient_accumulation": has_megatron and has_batch,
        "training.precision": not has_precision and draft.get("training.precision") is not None,
    }
    for option in OPTIONS:
        is_read = option.megatron or not has_megatron
        if is_read and not is_known.get(option.spec):
            draft.set(option.spec, option.decode(config, option.pointer))
