"""Builds Megatron-core's GPTModel and its gradient buffers for one rank after another, on CPU in
one process.

`python megatron_memory_worker.py CASES.json RESULTS.json`: the result of each case has the rank's
parameters, dense and of experts, and the bytes of the buffers that its DistributedDataParallel
allocates for gradients and, with the distributed optimizer, for weights. torch's `fake` process
group stands for the other ranks; without a GPU, tensors that Megatron puts on the current device
are put on the CPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.transformer import TransformerConfig
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment]
torch.cuda.Stream = lambda *_, **__: None  # type: ignore[assignment,misc]
torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]


def build(case: dict[str, Any]) -> GPTModel:
    """The model chunk of the first rank of a pipeline stage."""
    config = TransformerConfig(
        **case["config"],
        activation_func=torch.nn.functional.silu
        if case["config"]["gated_linear_unit"]
        else torch.nn.functional.gelu,
        use_cpu_initialization=True,
        perform_initialization=False,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        bf16=True,
    )
    if config.num_moe_experts:
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    else:
        spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    first, last = case["stage"] == 0, case["stage"] == case["pipeline"] - 1
    depths = None
    if config.mtp_num_layers:
        depths = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)
    return GPTModel(
        mtp_block_spec=depths,
        config=config,
        transformer_layer_spec=spec,
        vocab_size=case["rows"],
        max_sequence_length=128,
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=case["tied"],
        position_embedding_type="rope",
    ).bfloat16()


def count(case: dict[str, Any]) -> dict[str, int]:
    """Parameters and buffers of the rank."""
    # Ranks are laid out tensor first, pipeline last.
    rank = case["stage"] * (case["world"] // case["pipeline"])
    torch.distributed.init_process_group(
        "fake", store=FakeStore(), rank=rank, world_size=case["world"]
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case["tensor"],
        pipeline_model_parallel_size=case["pipeline"],
        expert_model_parallel_size=case["expert"],
        expert_tensor_parallel_size=case["tensor"],
        create_gloo_process_groups=False,
    )
    model = build(case)
    wrapped = DistributedDataParallel(
        model.config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=case["wide"],
            use_distributed_optimizer=case["sharded"],
            overlap_grad_reduce=True,
        ),
        model,
    )
    buffers = [*wrapped.buffers, *wrapped.expert_parallel_buffers]
    result = {
        "shared": sum(p.numel() for p in model.parameters() if getattr(p, "allreduce", True)),
        "experts": sum(p.numel() for p in model.parameters() if not getattr(p, "allreduce", True)),
        "gradients": sum(b.grad_data.numel() * b.grad_data.element_size() for b in buffers),
        "weights": sum(
            b.param_data.numel() * b.param_data.element_size()
            for b in buffers
            if b.param_data is not None
        ),
    }
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
    return result


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps([count(case) for case in cases]))
