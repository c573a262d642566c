"""Trains tiny models as the Trainer's arguments ask for with FSDP2, on CPU, in processes of one
group.

`python fsdp_worker.py GROUPS.json ANSWERS.json`. Each group of processes is started anew; it has
`gpus`, their number, and `runs`, which it does one after another. A run has `arguments` and
`environment` (those of a launch file), `model` (a config's keys), `micro_batches`, `sync`, `until`
(steps) and `folder`, where it goes on from, and is saved. accelerate starts plain data parallelism
on a CPU (state.py, `AcceleratorState`: MULTI_CPU isn't among the kinds that it shards), so that its
own functions are called here one by one: those that parse, wrap, cast, shard, save and load. With
`by_trainer` all of this is the Trainer's, to which the CPUs are told to be GPUs.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
from cpus_as_gpus import take_cpus_for_gpus
from forked import free_port, start
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.trainer_utils import get_last_checkpoint

LENGTH = 16
#: Imported as a run goes on; here once for all ranks.
LATE = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "transformers.models.llama.modeling_llama",
    "transformers.trainer",
    "transformers.models.mixtral.modeling_mixtral",
)


class Collectives(TorchDispatchMode):
    """Counts the collectives of PyTorch, and the elements of their whole tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, list[int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.name().partition("::")[2]
        if function.namespace == "c10d" and name.startswith(("_all", "_reduce", "all", "reduce")):
            tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
            tensors += [t for arg in args if isinstance(arg, list) for t in arg]
            entry = self.counts.setdefault(name.partition(".")[0], [0, 0])
            entry[0] += 1
            entry[1] += max(tensor.numel() for tensor in tensors)
        return function(*args, **(kwargs or {}))


def accelerator_of(arguments: TrainingArguments) -> SimpleNamespace:
    """What accelerate's functions ask of an accelerator, made as it makes it."""
    plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
    precision = "bf16" if arguments.bf16 else "no"
    if arguments.bf16:
        plugin.set_mixed_precision("bf16")
    parallelism = ParallelismConfig()
    asked = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true"
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision=precision,
        is_main_process=dist.get_rank() == 0,
        process_index=dist.get_rank(),
        num_processes=dist.get_world_size(),
        is_fsdp2=True,
        multi_device=True,
        device=torch.device("cpu"),
        parallelism_config=parallelism,
        torch_device_mesh=parallelism.get_device_mesh("cpu") if asked else None,
        wait_for_everyone=dist.barrier,
    )
    if asked:
        parallelism._validate_accelerator(accelerator)
    return accelerator


def prepared(question: dict[str, Any], accelerator: SimpleNamespace) -> Any:
    """The model as accelerate shards it."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**question["model"])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.config.use_cache = False
    if accelerator.state.fsdp_plugin.activation_checkpointing:
        model = fsdp_utils.fsdp2_apply_ac(accelerator, model)
    return fsdp_utils.fsdp2_prepare_model(accelerator, model)


def groups(model: Any) -> list[Any]:
    """FSDP's own records of the units."""
    states = {
        id(s): s
        for m in model.modules()
        if isinstance(m, FSDPModule)
        for s in [m._get_fsdp_state()]
    }
    found = [group for state in states.values() for group in state._fsdp_param_groups]
    return list({id(group): group for group in found}.values())


def whole_gradients(model: Any) -> int:
    """Bytes of gradients that are whole, between two micro-batches."""
    parameters = [each for group in groups(model) for each in group.fsdp_params]
    kept = [each.unsharded_accumulated_grad for each in parameters]
    kept += [each._unsharded_param.grad for each in parameters if hasattr(each, "_unsharded_param")]
    return sum(each.numel() * each.element_size() for each in kept if each is not None)


def local(tensors: Any) -> int:
    """Bytes of a rank's parts."""
    parts = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    return sum(part.numel() * part.element_size() for part in parts)


def step(model: Any, question: dict[str, Any], number: int) -> int:
    """Train a step; give the bytes of whole gradients before its last micro-batch."""
    kept, count = 0, question["micro_batches"]
    for micro in range(count):
        last = micro == count - 1
        kept = whole_gradients(model) if last else kept
        model.set_requires_gradient_sync(last or question["sync"])
        seed = torch.Generator().manual_seed(1000 * number + 10 * micro + dist.get_rank())
        tokens = torch.randint(0, question["model"]["vocab_size"], (1, LENGTH), generator=seed)
        (model(input_ids=tokens, labels=tokens, use_cache=False).loss / count).backward()
    return kept


class StopAt(TrainerCallback):  # type: ignore[misc]
    """Ends the training behind a step, as an interruption does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop once the step is saved."""
        control.should_training_stop |= state.global_step >= self.step


def answer_of_trainer(question: dict[str, Any]) -> dict[str, Any]:
    """What becomes of one run of the Trainer, which goes on from its last checkpoint."""
    os.environ.update(question["environment"])
    os.chdir(question["folder"])
    take_cpus_for_gpus()
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        [*question["arguments"], "--use_cpu", "true", "--save_steps", "2"]
    )

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**question["model"]))
    model.config.use_cache = False
    drawn = torch.Generator().manual_seed(1)
    samples = [torch.randint(0, 256, (LENGTH,), generator=drawn) for _ in range(64)]
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": tokens, "labels": tokens} for tokens in samples],
        callbacks=[StopAt(question["until"])],
    )
    folder = Path(arguments.output_dir)
    last = get_last_checkpoint(str(folder)) if folder.exists() else None
    trainer.train(resume_from_checkpoint=last)

    parameters = list(trainer.model_wrapped.parameters())
    return {
        "dtensors": all(isinstance(p, DTensor) for p in parameters),
        "from": last and Path(last).name,
        "steps": trainer.state.global_step,
        "weights": [float(p.full_tensor().double().abs().sum()) for p in parameters],
    }


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What becomes of one run."""
    if question["by_trainer"]:
        return answer_of_trainer(question)
    os.environ.update(question["environment"])
    parser = HfArgumentParser(TrainingArguments)
    arguments, *_ = parser.parse_args_into_dataclasses(
        [*question["arguments"], "--use_cpu", "true"], return_remaining_strings=True
    )
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    accelerator = accelerator_of(arguments)
    model = prepared(question, accelerator)
    plugin = accelerator.state.fsdp_plugin
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    folder, done = Path(question["folder"]), 0
    if (folder / "step").exists():
        done = int((folder / "step").read_text())
        fsdp_utils.load_fsdp_model(plugin, accelerator, model, str(folder))
        fsdp_utils.load_fsdp_optimizer(plugin, accelerator, optimizer, model, str(folder))

    counts: dict[str, list[int]] = {}
    kept = gradients = 0
    for number in range(done, question["until"]):
        with Collectives() as mode:
            kept = step(model, question, number)
        counts = mode.counts
        gradients = local(p.grad for p in model.parameters() if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()

    moments = [t for state in optimizer.state.values() for k, t in state.items() if k != "step"]
    kwargs = arguments.accelerator_config.gradient_accumulation_kwargs or {}
    found = {
        "dtensors": all(isinstance(p, DTensor) for p in model.parameters()),
        "units": len(groups(model)),
        "steps": question["until"] - done,
        "collectives": counts,
        "parameters_bytes": local(model.parameters()),
        "gradients_bytes": gradients,
        "whole_gradients_bytes": kept,
        "optimizer_bytes": local(moments),
        "weights": [float(p.full_tensor().double().abs().sum()) for p in model.parameters()],
        "sync_each_batch": bool(kwargs.get("sync_each_batch")),
    }
    fsdp_utils.save_fsdp_model(plugin, accelerator, model, str(folder))
    fsdp_utils.save_fsdp_optimizer(plugin, accelerator, optimizer, model, str(folder))
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "step").write_text(str(question["until"]))
    for name in question["environment"]:
        os.environ.pop(name)
    return found


def rank(number: int, group: dict[str, Any], port: int) -> list[dict[str, Any]]:
    """What becomes of a group's runs, in the process of one rank, which torchrun would start."""
    os.environ.update(
        RANK=str(number),
        LOCAL_RANK=str(number),
        WORLD_SIZE=str(group["gpus"]),
        LOCAL_WORLD_SIZE=str(group["gpus"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    return [answer(run) for run in group["runs"]]


def group_answers(group: dict[str, Any]) -> Any:
    """What the first rank says, or the first that failed."""
    port = free_port()
    ranks = [start(rank, number, group, port) for number in range(group["gpus"])]
    told = [answered() for answered in ranks]
    return next((one for one in told if "error" in one), told[0])


def main(groups_path: str, answers_path: str) -> None:
    """Start one group after another."""
    torch.set_num_threads(1)
    for module in LATE:
        import_module(module)
    asked = json.loads(Path(groups_path).read_text())
    Path(answers_path).write_text(json.dumps([group_answers(group) for group in asked]))


if __name__ == "__main__":
    main(*sys.argv[1:])
