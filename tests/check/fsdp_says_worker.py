"""What transformers and accelerate make of FSDP's settings: `python fsdp_says_worker.py QUESTIONS
ANSWERS`.

A question is a line of `accelerate launch` (`line`, its words), or arguments of the Trainer
(`arguments`), with the folder that they lie in. Its answer has `error`, the text of what is raised,
or what became of the settings: launcher, arguments, plugin and sharding are accelerate's and
transformers' own, of a tiny model in one process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate import ParallelismConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState
from accelerate.utils import FullyShardedDataParallelPlugin, TorchDynamoPlugin, fsdp_utils
from accelerate.utils.launch import prepare_multi_gpu_env
from cpus_as_gpus import take_cpus_for_gpus
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

_OURS = ("FSDP_", "ACCELERATE_", "PARALLELISM_CONFIG_")


def by_launcher(words: list[str]) -> FullyShardedDataParallelPlugin | None:
    """The plugin in the environment that a line of `accelerate launch` makes."""
    try:
        arguments = launch_command_parser().parse_args(words)
    except SystemExit as stop:
        raise ValueError("the launcher's parser refuses the line") from stop
    arguments, *_ = _validate_launch_command(arguments)
    arguments.mixed_precision = arguments.mixed_precision or "no"
    made = prepare_multi_gpu_env(arguments)
    os.environ.update({name: made[name] for name in made if name.startswith(_OURS)})
    if "ACCELERATE_USE_FSDP" not in made:
        start_state(None)
        return None
    if made.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
        sizes = {"multi_device": True, "num_processes": arguments.num_processes}
        second = made["FSDP_VERSION"] == "2"
        whole = SimpleNamespace(is_fsdp2=second, is_main_process=False, **sizes)
        ParallelismConfig()._validate_accelerator(whole)
    if made["FSDP_VERSION"] == "1":  # whose states are sent to other ranks by a GPU alone
        os.environ |= {"FSDP_SYNC_MODULE_STATES": "no", "FSDP_CPU_RAM_EFFICIENT_LOADING": "no"}
    plugin = FullyShardedDataParallelPlugin()
    start_state(plugin)
    return plugin


def start_state(plugin: FullyShardedDataParallelPlugin | None) -> None:
    """Make accelerate's record of a run, by the sizes that the launcher handed on."""
    asked = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true"
    AcceleratorState._reset_state(reset_partial_state=True)
    AcceleratorState(
        cpu=True,
        dynamo_plugin=TorchDynamoPlugin(),
        fsdp_plugin=plugin,
        parallelism_config=ParallelismConfig() if asked else None,
        _from_accelerator=True,
    )


def by_arguments(words: list[str]) -> FullyShardedDataParallelPlugin | None:
    """The plugin that the Trainer makes of its arguments."""
    parser = HfArgumentParser(TrainingArguments)
    arguments, *_ = parser.parse_args_into_dataclasses(
        [*words, "--use_cpu", "true"], return_remaining_strings=True
    )
    Trainer(model=tiny_model(), args=arguments)
    made = arguments.fsdp_plugin_args
    return None if made is None else FullyShardedDataParallelPlugin(**made)


def tiny_model() -> Any:
    """A model of two layers."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, **sizes))


def units(plugin: FullyShardedDataParallelPlugin) -> int:
    """The units that accelerate makes of a tiny model, beside embedding, head and the rest."""
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        is_main_process=True,
        device=torch.device("cpu"),
    )
    model = tiny_model()
    plugin.cpu_ram_efficient_loading = False
    if isinstance(plugin.cpu_offload, CPUOffloadPolicy):
        plugin.cpu_offload = CPUOffloadPolicy(pin_memory=False)  # which needs a GPU
    if plugin.activation_checkpointing:
        model = fsdp_utils.fsdp2_apply_ac(accelerator, model)
    model = fsdp_utils.fsdp2_prepare_model(accelerator, model)
    return sum(isinstance(layer, FSDPModule) for layer in model.model.layers)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What becomes of one question."""
    for name in [name for name in os.environ if name.startswith(_OURS)]:
        del os.environ[name]
    os.chdir(question["folder"])
    os.environ.pop("LOCAL_RANK", None)
    if question["is_launched"]:
        os.environ["LOCAL_RANK"] = "0"
    try:
        line = question.get("line")
        plugin = by_launcher(line) if line else by_arguments(question["arguments"])
        if plugin is None:
            return {"error": None, "plugin": False}
        return {
            "error": None,
            "plugin": True,
            "version": plugin.fsdp_version,
            "reshard": plugin.reshard_after_forward is True,
            "strategy": getattr(plugin.sharding_strategy, "name", None),
            "offload": isinstance(plugin.cpu_offload, CPUOffloadPolicy),
            "units": units(plugin) if plugin.fsdp_version == 2 else None,
        }
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}


def main() -> None:
    """Answer all questions."""
    take_cpus_for_gpus()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    questions = json.loads(Path(sys.argv[1]).read_text())
    target = Path(sys.argv[2]).absolute()
    target.write_text(json.dumps([answer(question) for question in questions]))


if __name__ == "__main__":
    main()
