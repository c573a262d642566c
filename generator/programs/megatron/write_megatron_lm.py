"""Megatron-LM with Megatron Core: arguments only.

**Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/training/arguments.py and megatron/core/transformer/
transformer_config.py. The distributed optimizer is ZeRO stage 1; stages 2 and 3 are Megatron FSDP.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from ...catalog import Model
from ...estimate.communication import sends_tokens_once_per_node
from ...estimate.layout import Layout, Modules, Offload, Recompute
from ...estimate.stages import Split, chunk_sizes, layers_of, split
from ...estimate.states import is_precision_aware
from ...job.framework import Checkpoints, Framework
from ...job.records import Job
from ...search.plan import Plan
from ..arguments import Value, group, make_program
from ..program import ArgumentGroup, Program
from . import write as megatron
from . import write_files as megatron_run

_POSITION = {"rotary": "rope", "learned": "learned_absolute"}  #: what is not here is `none`
_FSDP_STRATEGY = {2: "optim_grads", 3: "optim_grads_params"}
#: Routers whose scores are sigmoids, balanced by a bias; Llama 4's have no such bias.
_BALANCED_ROUTERS = frozenset({"deepseek_v3", "dots1", "glm4_moe", "glm4_moe_lite", "kimi_k2", "minimax_m2"})
_SIGMOID_ROUTERS = _BALANCED_ROUTERS | {"llama4_text"}
_PRE_SOFTMAX_ROUTERS = frozenset({"deepseek_v2", "olmoe", "qwen2_moe"})  #: top-k weights aren't normalised again


def uses_fsdp(layout: Layout) -> bool:
    """Whether gradients or parameters are sharded, which is Megatron FSDP's work."""
    return layout.zero_stage >= 2


def _model_group(job: Job) -> ArgumentGroup:
    """The model's shape in this tree's spelling."""
    model = job.model
    grouped = model.kv_heads != model.heads and not model.is_mla
    rotary = model.position_embedding == "rotary"  # its options are always given: the defaults are another model's
    scaled = rotary and model.rotary_scaling == "llama3"
    return group(
        f"model: {model.name}",
        {
            **megatron.shape_options(job),
            "--group-query-attention": grouped,
            "--num-query-groups": model.kv_heads if grouped else None,
            "--kv-channels": model.v_head_dim if model.is_mla else model.head_dim,
            "--position-embedding-type": _POSITION.get(model.position_embedding, "none"),
            "--rotary-base": round(model.rotary_base) if rotary else None,
            "--rotary-percent": model.rotary_fraction if rotary and model.rotary_fraction != 1 else None,
            "--use-rope-scaling": scaled,
            "--rope-scaling-factor": model.rotary_scaling_factor if scaled else None,
            "--normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
            "--norm-epsilon": model.norm_epsilon,
            "--qk-layernorm": model.qk_norm in ("head", "full") or model.is_mla,  # MLA: of the latents
            "--qk-l2-norm": model.qk_norm == "l2",
            "--add-qkv-bias": model.qkv_bias and not megatron.has_linear_bias(job),
            "--softmax-type": "learnable" if model.attention_sinks else None,
            **_layer_options(model),
            **megatron.block_options(job),
        },
    )


def _layer_options(model: Model) -> megatron.Options:
    """What differs by layer, and gpt-oss's activation.

    **Source**: megatron/core/transformer/transformer_config.py @ core_v0.16.1: window_attn_skip_freq (1: with the
    window), no_rope_freq (1: without rotary positions), glu_linear_offset, activation_func_clamp_value.
    """
    window = model.sliding_window if not model.chunked_attention else None
    local = set(range(model.layers)) - set(model.full_attention_layers)
    alike = len(local) == model.layers
    bare, clamp = model.layers_without_rotary, model.activation_clamp
    return {
        "--window-size": f"({window - 1},0)" if window else None,  # keys before and after the query's
        "--window-attn-skip-freq": megatron.layer_pattern(model.layers, local) if window and not alike else None,
        "--no-rope-freq": megatron.layer_pattern(model.layers, bare) if bare else None,
        "--quick-geglu": clamp is not None,
        "--glu-linear-offset": None if clamp is None else 1.0,
        "--activation-func-clamp-value": clamp,
    }


def _latent_group(job: Job) -> ArgumentGroup:
    """Multi-head latent attention."""
    model = job.model
    if not model.is_mla:
        return group("attention", {})
    return group(
        "multi-head latent attention",
        {
            "--multi-latent-attention": True,
            "--q-lora-rank": model.q_lora_rank or None,
            "--kv-lora-rank": model.kv_lora_rank,
            "--qk-head-dim": model.qk_nope_head_dim,
            "--qk-pos-emb-head-dim": model.qk_rope_head_dim,
            "--v-head-dim": model.v_head_dim,
        },
    )


def _expert_group(job: Job, layout: Layout) -> ArgumentGroup:
    """Routed and shared experts."""
    model = job.model
    if not model.is_moe:
        return group("experts", {})
    sigmoid = model.family in _SIGMOID_ROUTERS
    dense = set(model.dense_layer_indices or range(model.dense_layers))
    pattern = megatron.layer_pattern(model.layers, set(range(model.layers)) - dense) if dense else None
    once = bool(sends_tokens_once_per_node(job, layout))
    exchange = "tokens cross nodes once each (DeepEP must be in the image)" if once else "tokens exchanged all-to-all"
    # NVIDIA/Megatron-LM megatron/training/arguments.py refuses it below compute capability 8.
    grouped = job.cluster.accelerator.generation != "volta"
    gemm = "one grouped GEMM per layer" if grouped else "a GEMM for each"
    return group(
        f"experts: {gemm}, {exchange}",
        {
            "--num-experts": model.experts,
            "--moe-ffn-hidden-size": model.moe_ffn,
            "--moe-router-topk": model.experts_per_token,
            "--moe-router-score-function": "sigmoid" if sigmoid else "softmax",
            "--moe-router-enable-expert-bias": model.family in _BALANCED_ROUTERS,
            # With one expert a token, a softmax after the choice would have no gradient.
            "--moe-router-pre-softmax": model.family in _PRE_SOFTMAX_ROUTERS
            or (model.experts_per_token == 1 and not sigmoid),
            "--moe-router-dtype": "fp32",  # as the models' own code computes it
            "--moe-router-num-groups": model.router_groups or None,
            "--moe-router-group-topk": model.router_top_groups or None,
            "--moe-router-topk-scaling-factor": model.router_scale if model.router_scale != 1 else None,
            "--moe-router-load-balancing-type": "aux_loss",
            "--moe-aux-loss-coeff": 0.001,
            "--moe-layer-freq": pattern,
            "--moe-apply-probs-on-input": model.family == "llama4_text",
            "--moe-shared-expert-intermediate-size": model.shared_ffn or None,
            "--moe-shared-expert-gate": model.shared_gate,
            "--moe-grouped-gemm": grouped,
            "--moe-token-dispatcher-type": "flex" if once else "alltoall",
            "--moe-enable-deepep": once,
            **_expert_parallel_options(layout),
        },
    )


def _expert_parallel_options(layout: Layout) -> Mapping[str, Value]:
    """How experts are cut, and what their all-to-alls run beside."""
    return {
        "--expert-model-parallel-size": layout.expert,
        "--expert-tensor-parallel-size": layout.expert_tensor,
        "--overlap-moe-expert-parallel-comm": bool(layout.expert_overlap),
        "--delay-wgrad-compute": bool(layout.expert_overlap),
    }


def _parallel_group(job: Job, layout: Layout) -> ArgumentGroup:
    """How the model is cut up."""
    why = f"{layout.world} GPUs = {layout.data} data × {layout.tensor} tensor × {layout.pipeline} pipeline"
    if layout.context > 1:
        why += f" × {layout.context} context"
    cut = split(job, layout)
    return group(
        why + _split_note(job, layout, cut),
        {
            "--tensor-model-parallel-size": layout.tensor,
            "--pipeline-model-parallel-size": layout.pipeline,
            **_split_options(job, layout, cut),
            "--context-parallel-size": layout.context if layout.context > 1 else None,
            **_context_options(layout),
            "--sequence-parallel": bool(layout.sequence_parallel),
            "--tp-comm-overlap": bool(layout.tensor_overlap),
        },
    )


def _context_options(layout: Layout) -> Mapping[str, Value]:
    """How context ranks exchange what they need: a ring of keys and values by default, heads (a2a), or both."""
    if layout.context_heads == 1:
        return {}
    if layout.context_heads == layout.context:
        return {"--cp-comm-type": "a2a"}
    sizes = (layout.context_heads, layout.context // layout.context_heads)  # from neighbours outwards
    return {"--cp-comm-type": "a2a+p2p", "--hierarchical-context-parallel-sizes": sizes}


def _split_note(job: Job, layout: Layout, cut: Split) -> str:
    """How the layers are dealt, where not evenly."""
    layers, ends = job.model.layers, int(cut.counts_embedding) + int(cut.counts_loss)
    if ends:
        counted = "embedding and loss" if ends == 2 else "and loss"
        return f"; {layers} layers{', ' if ends == 2 else ' '}{counted} make {layers + ends} equal shares"
    if cut.sizes_ends and not layout.first_stage_layers and not layout.last_stage_layers:
        last = int(layers_of(cut, layout, layout.pipeline - 1))
        return f"; {layers} layers don't divide: the last stage, which has the head, gets {last}"
    if cut.lists_chunks:
        sizes = sorted(set(chunk_sizes(job, layout)[:-1]))
        return f"; {layers} layers don't divide: chunks of {' or '.join(map(str, sizes))}, the last with the head"
    return ""


def _split_options(job: Job, layout: Layout, cut: Split) -> dict[str, Value]:
    """How the layers are dealt to stages and chunks."""
    if cut.lists_chunks:
        return {"--pipeline-model-parallel-layout": _listed(chunk_sizes(job, layout))}
    first, last = layout.first_stage_layers or None, layout.last_stage_layers or None
    if cut.sizes_ends and not first and not last:
        last = int(layers_of(cut, layout, layout.pipeline - 1))
    return {
        "--num-virtual-stages-per-pipeline-rank": layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        "--account-for-embedding-in-pipeline-split": bool(cut.counts_embedding),
        "--account-for-loss-in-pipeline-split": bool(cut.counts_loss),
        "--decoder-first-pipeline-num-layers": first,
        "--decoder-last-pipeline-num-layers": last,
    }


def _listed(sizes: list[int]) -> str:
    """Chunks in Megatron-LM's notation: E for the embedding, t for a layer, L for the loss, | between chunks."""
    text = "E" + "t" * sizes[0]
    for size, same in groupby(sizes[1:-1]):
        count, layers = len(list(same)), f"t*{size}" if size > 2 else "t" * size
        text += f"(|{layers})*{count}" if count > 1 else f"|{layers}"
    return f"{text}|{'t' * sizes[-1]}L"


def _sharding_group(layout: Layout) -> ArgumentGroup:
    """Data parallelism: what is sharded and what communication hides behind."""
    if uses_fsdp(layout):
        return group(
            f"ZeRO stage {layout.zero_stage} is Megatron FSDP, which has a checkpoint format of its own",
            {
                "--use-megatron-fsdp": True,
                "--data-parallel-sharding-strategy": _FSDP_STRATEGY[layout.zero_stage],
                "--use-distributed-optimizer": True,
                "--no-gradient-accumulation-fusion": True,
                "--ckpt-format": "fsdp_dtensor",
            },
        )
    sharded = layout.zero_stage == 1
    return group(
        "data parallelism: the distributed optimizer is ZeRO 1" if sharded else "data parallelism",
        {
            "--use-distributed-optimizer": sharded,
            "--num-distributed-optimizer-instances": layout.zero_copies if layout.zero_copies > 1 else None,
            "--overlap-grad-reduce": layout.data * layout.context > 1,
            "--overlap-param-gather": sharded and layout.data * layout.context > 1,
        },
    )


def _compute_group(job: Job) -> ArgumentGroup:
    """Precision and kernels."""
    precision = job.training.precision
    # Head sizes that differ and learned sinks are not FlashAttention 2's: Transformer Engine picks a fused kernel.
    flash = "auto" if job.model.is_mla or job.model.attention_sinks else "flash"
    return group(
        "precision and kernels",
        {
            "--fp16": precision == "fp16",
            "--bf16": precision in ("bf16", "fp8"),
            "--fp8-format": "hybrid" if precision == "fp8" else None,
            "--fp8-param-gather": job.training.fp8_parameters,
            "--attention-backend": flash if job.training.attention == "flash" else "unfused",
            "--cross-entropy-loss-fusion": job.training.cross_entropy != "unfused",
        },
    )


def _states_group(job: Job, layout: Layout) -> ArgumentGroup:
    """Types of gradients and optimizer states; fp32 is every option's default."""
    training = job.training
    narrow = training.precision in ("bf16", "fp8") and training.gradient_dtype == "same"
    aware = is_precision_aware(job)
    moments = training.moment_dtype if training.moment_dtype != "fp32" else None
    return group(
        "types of gradients and optimizer states",
        {
            "--grad-reduce-in-bf16": narrow,
            "--use-precision-aware-optimizer": aware or layout.offload != Offload.NONE,
            "--main-grads-dtype": "bf16" if narrow and aware else None,
            "--main-params-dtype": training.master_dtype if training.master_dtype != "fp32" else None,
            "--exp-avg-dtype": moments,
            "--exp-avg-sq-dtype": moments,
        },
    )


def _memory_group(layout: Layout) -> ArgumentGroup:
    """Recomputation and offload."""
    offload = layout.offload != Offload.NONE
    return group(
        f"memory: recompute {layout.recompute.label}, offload {layout.offload.label}",
        {
            **_recompute_options(layout),
            "--optimizer-cpu-offload": offload,
            "--optimizer-offload-fraction": layout.offload_fraction
            if offload and layout.offload_fraction < 1
            else None,
            "--overlap-cpu-optimizer-d2h-h2d": offload,
        },
    )


def _recompute_options(layout: Layout) -> dict[str, Value]:
    """Which activations are computed again: a block of each chunk's layers, groups of them, or modules."""
    if layout.recompute == Recompute.NONE:
        return {}
    options: dict[str, Value] = {"--recompute-granularity": layout.recompute.label}
    if layout.recompute == Recompute.SELECTIVE:
        named = layout.recompute_modules != Modules.CORE_ATTN  # which is the default
        return {**options, "--recompute-modules": tuple(layout.recompute_modules.labels) if named else None}
    method = "block" if layout.recompute_layers else "uniform"
    return {
        **options,
        "--recompute-method": method,
        "--recompute-num-layers": layout.recompute_layers or layout.recompute_group,
    }


def _environment(job: Job, layout: Layout) -> Mapping[str, str]:
    """One hardware queue before Blackwell, so that communication starts before the GEMM behind it; never with FSDP.

    Micro-batches that overlap need many: **Source** NVIDIA/Megatron-LM core_v0.16.1, training/arguments.py:940-950.
    """
    if layout.expert_overlap:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    needed = (layout.tensor > 1 or layout.context > 1) and not uses_fsdp(layout)
    blackwell = job.cluster.accelerator.generation.startswith("blackwell")
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if needed and not blackwell else {}


def notes(job: Job, layout: Layout) -> tuple[str, ...]:
    """What the reader of the launch script would question."""
    texts = megatron.common_notes(job, "Megatron-LM")
    if layout.offload == Offload.OPTIMIZER_AND_PARAMETERS:
        texts.append("Megatron-LM offloads the optimizer only.")
    if uses_fsdp(layout) and (layout.tensor > 1 or layout.context > 1):
        texts.append(
            "CUDA_DEVICE_MAX_CONNECTIONS is unset: FSDP refuses 1, which tensor and context parallelism prefer."
        )
    return tuple(texts)


#: Megatron-LM core_v0.19.0 and later ignore it, and core_v0.16.1, which the files are for, has no other.
_RAMP: Final = "batch ramp-up, ignored by core_v0.19.0 and later; dsgen: ignore[MLM029]"


def program(plan: Plan) -> Program:
    """The Megatron-LM script and its arguments."""
    job, layout = plan.job, plan.layout
    groups = (
        _model_group(job),
        _latent_group(job),
        _expert_group(job, layout),
        _parallel_group(job, layout),
        _sharding_group(layout),
        megatron.batch_group(job, layout),
        megatron.ramp_group(job, _RAMP),
        _compute_group(job),
        _memory_group(layout),
        _states_group(job, layout),
        megatron.optimizer_group(job),
        megatron.length_group(job),
        megatron_run.data_group(job),
        megatron_run.checkpoint_group(plan),
    )
    return make_program(job, groups, environment=_environment(job, layout), notes=notes(job, layout))


FRAMEWORK: Final = Framework(
    name="megatron-lm",
    software=frozenset({"Megatron-LM", "Megatron layers"}),
    script="pretrain_gpt.py",
    only={"kernels": "fused"},
    exit_option=megatron_run.EXIT_OPTION,
    options=megatron_run.OPTIONS,
    needs=megatron_run.NEEDS,
    data_paths="several",
    data_prefix=True,
    evaluation=megatron.EVALUATION,
    fused=True,
    packs_attention=True,
    sums_in_product=True,
    overlaps_tensor=True,
    kernels_per_layer=20,
    cross_entropy="fused",
    loss_traffic_bytes={"fused": 30, "unfused": 54},
    shards_vocabulary=True,
    vocabulary_multiple=128,
    rings_context=True,
    routes_cut_sequences=True,
    dispatches_by_node=True,
    checkpoints=Checkpoints(folder="iter_", tracker="latest_checkpointed_iteration.txt"),
    program=program,
)
