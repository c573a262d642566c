"""Counts every allocation of DeepSpeed's engine on CPU, for one run after another, in one process
of many ranks each.

`python deepspeed_memory_worker.py RUNS.json RESULTS.json`: each run has a config, a model's shape,
and how many parameter groups the optimizer has; the result has what is alive after a micro-batch
and the peak of each of a step's parts. torch's `fake` process group stands for the other ranks. Two
things differ from a GPU: the optimizer updates in place as FusedAdam's kernel does, but by torch's
operators; and collectives leave their outputs as they are.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import cpu_engine
import deepspeed
import torch
from allocations import Allocations
from deepspeed.ops.adam import FusedAdam
from deepspeed.pipe import LayerSpec, PipelineModule
from forked import start
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)


class InPlace(FusedAdam):
    """FusedAdam's states, updated without temporaries."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        torch.optim.Optimizer.__init__(self, groups, {"lr": 1e-3})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As FusedAdam does by default."""
        torch.optim.Optimizer.zero_grad(self, set_to_none=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update; what it computes doesn't matter here."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                for name in ("exp_avg", "exp_avg_sq"):
                    if name not in state:
                        state[name] = torch.zeros_like(parameter)
                    state[name].add_(parameter.grad, alpha=1e-3)


class Embed(torch.nn.Embedding):
    """A pipeline's first layer."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config.vocab_size, config.hidden_size)


class Block(LlamaDecoderLayer):
    """A pipeline's inner layer."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, 0)
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of hidden states to hidden states."""
        places = torch.arange(hidden.shape[1])[None]
        result = super().forward(
            hidden, position_ids=places, position_embeddings=self.rotary(hidden, places)
        )
        return result[0] if isinstance(result, tuple) else result


class Head(torch.nn.Module):
    """A pipeline's last layer."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.norm = LlamaRMSNorm(config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.norm(hidden))


def pipeline(config: LlamaConfig, stages: int) -> PipelineModule:
    """The model as DeepSpeed's pipeline."""
    blocks = [LayerSpec(Block, config) for _ in range(config.num_hidden_layers)]
    layers = [LayerSpec(Embed, config), *blocks, LayerSpec(Head, config)]
    return PipelineModule(
        layers,
        num_stages=stages,
        loss_fn=lambda out, _: out.float().mean(),
        partition_method=METHOD,
    )


METHOD = "type:Embed|Block|Head"


def count(run: dict[str, Any]) -> dict[str, int]:
    """Bytes of the second of two steps: alive after a micro-batch that isn't the last, and
    peaks.
    """
    join(run["world"], run["stages"])
    config = LlamaConfig(**run["model"], attn_implementation="sdpa", use_cache=False)
    tokens = torch.zeros(1, run["tokens"], dtype=torch.long)
    with Allocations() as counted:
        model = pipeline(config, run["stages"]) if run["stages"] > 1 else LlamaForCausalLM(config)
        parameters = list(model.parameters())
        groups = [
            {"params": part} for part in ((parameters[:-1], parameters[-1:])[: run["groups"]])
        ]
        if run["groups"] == 1:
            groups = [{"params": parameters}]
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=InPlace(groups), config=run["config"], dist_init_required=False
        )
        del model, parameters, groups
        result: dict[str, int] = {}
        for _ in range(2):
            gc.collect()
            counted.since()
            result = (
                piped(engine, counted, tokens)
                if run["stages"] > 1
                else stepped(engine, counted, tokens)
            )
    return result


def stepped(engine: Any, counted: Allocations, tokens: torch.Tensor) -> dict[str, int]:
    """One optimizer step."""
    result = {"kept": 0, "backward": 0}
    for micro in range(engine.gradient_accumulation_steps()):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        del loss
        if micro == 0:
            result["kept"] = counted.live
        result["backward"] = max(result["backward"], counted.since())
        engine.step()
        result["step"] = counted.since()
    return result


def piped(engine: Any, counted: Allocations, tokens: torch.Tensor) -> dict[str, int]:
    """One step of a pipeline, whose instructions are watched."""
    result = {"kept": 0, "backward": 0, "reduce": 0, "step": 0}
    names = {
        "_exec_backward_pass": "backward",
        "_exec_reduce_grads": "reduce",
        "_exec_optimizer_step": "step",
    }
    engine._INSTRUCTION_MAP = dict(type(engine)._INSTRUCTION_MAP)

    def watched(function: Any, name: str) -> Any:
        def run(self: Any, *args: Any, **keys: Any) -> None:
            counted.since()
            function(self, *args, **keys)
            if name == "backward" and not result["kept"]:
                result["kept"] = counted.live
            result[name] = max(result[name], counted.since())

        return run

    for instruction, function in type(engine)._INSTRUCTION_MAP.items():
        if function.__name__ in names:
            engine._INSTRUCTION_MAP[instruction] = watched(function, names[function.__name__])
    engine.train_batch(iter([(tokens, tokens)] * engine.gradient_accumulation_steps()))
    return result


def join(world: int, stages: int) -> None:
    """Be the last replica of the first of so many stages, which holds its share the longest; nobody
    else is there.
    """
    from deepspeed.runtime.zero import partitioned_param_coordinator

    # whom nobody answers for
    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda _: None
    rank = world // stages - 1
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)


def main(runs_path: str, results_path: str) -> None:
    """Count one run after another, each in a process of its own."""
    cpu_engine.prepare()
    torch.set_num_threads(1)
    runs = json.loads(Path(runs_path).read_text())
    Path(results_path).write_text(json.dumps([start(count, run)() for run in runs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
