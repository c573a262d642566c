"""The engines of Megatron-LM and Megatron-DeepSpeed: what they keep, send and hide."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...job.engine import Engine
from ..deepspeed.engine import ENGINE as DEEPSPEED

#: Options that share memory with NCCL, or capture it in CUDA graphs. Source: NVIDIA/Megatron-LM @
#: core_v0.16.1 megatron/core/distributed/distributed_data_parallel_config.py:157,
#: megatron/training/arguments.py:1249.
_REGISTERS_MEMORY: Final = frozenset(
    (
        "--use-nccl-ub",
        "--use-sharp",
        "--enable-cuda-graph",
        "--external-cuda-graph",
        "--cuda-graph-impl",
        "--fsdp-manual-registration",
    )
)
#: Options that keep offloaded states out of pinned memory. Source: core/optimizer/cpu_offloading/
#: hybrid_optimizer.py @ core_v0.16.1 to core_v0.19.0: the first is what counts; nothing reads the
#: second yet, for masters are copied to fp32, and thereby out of pinned memory, either way.
UNPINNED: Final = ("--no-pin-cpu-grads", "--no-pin-cpu-params")
#: Source: Megatron-LM core_v0.16.1.
MEGATRON_LM: Final = Engine(
    layers="composed",  # core/models/gpt/gpt_layer_specs.py
    sharding="distributed",  # core/optimizer/distrib_optimizer.py; core/distributed/fsdp
    context="ring",  # core/extensions/transformer_engine.py, cp_comm_type
    pipeline="stages",  # core/pipeline_parallel/schedules.py
    experts="parallel",  # core/transformer/moe
    details=frozenset(
        {
            "virtual_pipeline",
            "first_stage_layers",
            "last_stage_layers",
            "recompute_layers",
            "recompute_group",
            "recompute_modules",
            "offload_fraction",
            "expert_tensor",
            "tensor_overlap",
            "expert_overlap",
            "context_heads",
            "zero_copies",
        }
    ),
    has_muon=True,  # core/optimizer/emerging_optimizers.py; core/optimizer/muon.py before 0.18
    chooses_types=True,  # core/optimizer/optimizer_config.py, use_precision_aware_optimizer
    # core/optimizer/distrib_optimizer.py, _copy_model_grads_to_main_grads, and zero_grad
    copies_fp16_gradients=True,
    weighs_output=False,  # core/transformer/moe/experts.py, bias_act_func
    # core/fusions/fused_cross_entropy.py: the 16-bit logits, their fp32 softmax, and beside it the
    # gradient, which the fused function makes anew and not in place; 6 where nothing is fused
    fused_logit_bytes=10,
    gathered_layers=2,  # FSDP: the layer in use and the one prefetched
    # Adding an expert's bias times the token's weight after its second product: in fp32, by expert,
    # and joined again. The operators of core/transformer/moe/experts.py, TEGroupedMLP._apply_bias,
    # counted as torch runs them; only fused experts are without.
    expert_bias_traffic_bytes=(28, 40),
    expert_bias_kernels=(2, 6),
    # Clamping both halves before the fused activation: each read, written and joined again, with
    # masks backward. Counted from the operators of core/fusions/fused_bias_geglu.py,
    # weighted_bias_quick_geglu_impl, to core_v0.19.0.
    clamp_traffic_bytes=(16, 30),
    registers_memory=_REGISTERS_MEMORY,
    computes_narrowly=True,  # core/fp8_utils.py
    multiplies_by_te=True,  # core/extensions/transformer_engine.py, --transformer-impl's default
    message_elements=(40e6, 1e6),  # core/distributed/distributed_data_parallel.py
    sorts_local_experts=True,  # core/transformer/moe/token_dispatcher.py, sort_chunks_by_idxs
    several_queues_from=2,  # training/arguments.py:1049
    unpins=UNPINNED,
    measured_as="Megatron-LM",
)
#: Source: deepspeedai/Megatron-DeepSpeed @ 4efb479d; what isn't said here is DeepSpeed's.
MEGATRON_DEEPSPEED: Final = replace(
    DEEPSPEED,
    layers="fixed",  # megatron/model/transformer.py
    computes_narrowly=True,  # megatron/arguments.py, --fp8-hybrid
    context="exchange",  # megatron/model/transformer.py, DistributedAttention
    registers_memory=_REGISTERS_MEMORY,
    details=DEEPSPEED.details | {"recompute_group"},  # --checkpoint-num-layers
    scripted=False,
    repeats_kv_heads=False,  # megatron/model/transformer.py, num_key_value_heads_per_partition
    caps_sizes=True,  # megatron/arguments.py:92-99
    # megatron/core/tensor_parallel/cross_entropy.py subtracts the maximum in a copy
    unfused_logit_bytes=10,
    measured_as="Megatron-DeepSpeed",
    measured_cut=None,
)
