"""Kinds of mixers, held against transformers' own modules: parameters on the meta device, products
by torch's counter of operations, and what is kept by autograd's saved-tensor hooks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import pytest

from dsgen.catalog.layers.altup import AltUp
from dsgen.catalog.layers.compressed import Compressed, CompressedIndexer
from dsgen.catalog.layers.delta import CHUNK, GatedDelta
from dsgen.catalog.layers.dense import Dense
from dsgen.catalog.layers.experts import Experts
from dsgen.catalog.layers.grouped import GroupedQuery
from dsgen.catalog.layers.indexer import BlockIndexer, Indexer
from dsgen.catalog.layers.kimi_delta import KimiDelta
from dsgen.catalog.layers.latent import Latent
from dsgen.catalog.layers.lightning import Lightning
from dsgen.catalog.layers.mamba import Mamba1, Mamba2
from dsgen.catalog.layers.recurrent import Recurrent
from dsgen.catalog.layers.short_conv import ShortConv
from dsgen.catalog.layers.streams import Streams
from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_config import model_from_config
from tests.needs import needs_transformers

pytestmark = [pytest.mark.integration, needs_transformers]

#: Configs that change every size of a kind, and every switch that its class has.
VARIANTS: tuple[Mapping[str, object], ...] = (
    {"model_type": "qwen3_next", "num_hidden_layers": 5},
    {
        "model_type": "qwen3_next",
        "num_hidden_layers": 4,
        "linear_num_key_heads": 8,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 96,
        "linear_conv_kernel_dim": 3,
        "attention_bias": True,
        "mlp_only_layers": [1],
    },
    {"model_type": "qwen3_next", "num_hidden_layers": 6, "full_attention_interval": 3},
    {"model_type": "qwen3_next", "num_hidden_layers": 4, "decoder_sparse_step": 2},
    {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "linear_attention"],
        "tie_word_embeddings": True,
    },
    {"model_type": "qwen3_5_moe_text", "num_hidden_layers": 4, "num_experts": 16},
    {"model_type": "olmo_hybrid", "num_hidden_layers": 3},
    {
        "model_type": "olmo_hybrid",
        "num_hidden_layers": 4,
        "num_key_value_heads": 10,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "attention_bias": True,
    },
    {"model_type": "kimi_linear", "num_hidden_layers": 6, "num_local_experts": 8},
    {
        "model_type": "kimi_linear",
        "num_hidden_layers": 4,
        "num_local_experts": 8,
        "q_lora_rank": 256,
        "attention_bias": True,
        "n_shared_experts": 2,
        "linear_attn_config": {
            "full_attn_layers": [2],
            "kda_layers": [1, 3, 4],
            "head_dim": 64,
            "num_heads": 16,
            "short_conv_kernel_size": 3,
        },
    },
    {"model_type": "bailing_hybrid", "num_hidden_layers": 7, "num_local_experts": 16},
    {"model_type": "bailing_hybrid", "num_hidden_layers": 4, "num_experts": 16, "head_dim": 96},
    {"model_type": "lfm2", "num_hidden_layers": 3, "full_attn_idxs": [1]},
    {
        "model_type": "lfm2",
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "block_auto_adjust_ff_dim": False,
        "conv_bias": True,
        "conv_L_cache": 5,
        "tie_embedding": False,
    },
    {"model_type": "lfm2", "num_hidden_layers": 2, "block_ffn_dim_multiplier": 1.3},
    {
        "model_type": "lfm2_moe",
        "num_hidden_layers": 4,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "num_experts": 8,
    },
    {"model_type": "lfm3", "num_hidden_layers": 7},
    {
        "model_type": "lfm3",
        "num_hidden_layers": 3,
        "use_sandwich_norm": False,
        "use_attention_gate": False,
        "attention_bias": True,
        "conv_bias": True,
        "conv_L_cache": 4,
    },
    {"model_type": "deepseek_v32", "num_hidden_layers": 5, "n_routed_experts": 8},
    {
        "model_type": "deepseek_v32",
        "num_hidden_layers": 4,
        "n_routed_experts": 8,
        "first_k_dense_replace": 1,
        "index_n_heads": 16,
        "index_head_dim": 96,
        "attention_bias": True,
        "q_lora_rank": 512,
    },
    {"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "n_routed_experts": 8},
    {
        "model_type": "glm_moe_dsa",
        "num_hidden_layers": 8,
        "n_routed_experts": 8,
        "index_topk_freq": 3,
        "index_skip_topk_offset": 1,
    },
    {
        "model_type": "glm_moe_dsa",
        "num_hidden_layers": 4,
        "n_routed_experts": 8,
        "index_topk_pattern": "FSSF",
    },
    {"model_type": "deepseek_v4", "num_hidden_layers": 5, "n_routed_experts": 8},
    {
        "model_type": "deepseek_v4",
        "num_hidden_layers": 6,
        "n_routed_experts": 8,
        "compress_ratios": [0, 0, 4, 128, 4, 0, 0],
        "qk_rope_head_dim": 32,
    },
    {
        "model_type": "deepseek_v4",
        "num_hidden_layers": 3,
        "n_routed_experts": 8,
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ],
        "compress_rate_csa": 8,
        "compress_rate_hca": 64,
        "o_groups": 4,
        "o_lora_rank": 512,
        "hc_mult": 2,
        "index_n_heads": 16,
        "index_head_dim": 64,
        "mlp_bias": True,
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
    {"model_type": "hy_v4", "num_hidden_layers": 7, "n_routed_experts": 8},
    {
        "model_type": "hy_v4",
        "num_hidden_layers": 4,
        "n_routed_experts": 8,
        "hc_mult": 3,
        "indexer_types": ["full", "shared", "full", "full"],
        "attention_bias": True,
    },
    {"model_type": "minimax", "num_hidden_layers": 3},
    {
        "model_type": "minimax",
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 16,
        "head_dim": 96,
        "num_local_experts": 4,
        "tie_word_embeddings": True,
    },
    {"model_type": "recurrent_gemma", "num_hidden_layers": 4},
    {
        "model_type": "recurrent_gemma",
        "num_hidden_layers": 5,
        "lru_width": 1280,
        "conv1d_width": 3,
        "num_key_value_heads": 1,
        "attention_bias": True,
        "block_types": ["attention", "recurrent"],
        "tie_word_embeddings": False,
    },
    {"model_type": "gemma3n_text", "num_hidden_layers": 12, "num_kv_shared_layers": 4},
    {
        "model_type": "gemma3n_text",
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 0,
        "intermediate_size": [1024, 2048, 1024, 4096, 512],
        "altup_num_inputs": 3,
        "laurel_rank": 16,
        "hidden_size_per_layer_input": 64,
        "vocab_size_per_layer_input": 1000,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    {"model_type": "longcat_flash", "num_layers": 2},
    {
        "model_type": "longcat_flash",
        "num_hidden_layers": 5,
        "n_routed_experts": 8,
        "moe_topk": 4,
        "zero_expert_num": 3,
        "attention_bias": True,
        "router_bias": True,
    },
    {"model_type": "mamba", "num_hidden_layers": 2},
    {
        "model_type": "mamba",
        "num_hidden_layers": 2,
        "expand": 3,
        "state_size": 8,
        "time_step_rank": 40,
        "conv_kernel": 3,
        "use_bias": True,
        "use_conv_bias": False,
        "tie_word_embeddings": False,
    },
    {"model_type": "falcon_mamba", "num_hidden_layers": 2, "hidden_size": 1024},
    {"model_type": "mamba2", "num_hidden_layers": 2},
    {
        "model_type": "mamba2",
        "num_hidden_layers": 2,
        "hidden_size": 1024,
        "num_heads": 32,
        "n_groups": 2,
        "state_size": 64,
        "use_bias": True,
        "use_conv_bias": False,
        "tie_word_embeddings": True,
    },
    {"model_type": "nemotron_h"},
    {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-M"},
    {"model_type": "nemotron_h", "layers_block_type": ["mamba", "moe", "attention"]},
    {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "ME*-E",
        "moe_latent_size": 512,
        "mlp_bias": True,
        "use_bias": True,
        "mamba_conv_bias": False,
        "mamba_n_groups": 4,
        "mamba_head_dim": 32,
        "num_key_value_heads": 2,
    },
    {"model_type": "jamba", "num_hidden_layers": 9},
    {
        "model_type": "jamba",
        "num_hidden_layers": 6,
        "attn_layer_period": 3,
        "attn_layer_offset": 0,
        "expert_layer_period": 3,
        "expert_layer_offset": 2,
        "mamba_dt_rank": 100,
        "mamba_proj_bias": True,
        "mamba_conv_bias": False,
    },
    {"model_type": "jamba", "num_hidden_layers": 5, "num_experts": 1, "num_experts_per_tok": 1},
    {"model_type": "bamba", "num_hidden_layers": 3, "attn_layer_indices": [1]},
    {
        "model_type": "bamba",
        "num_hidden_layers": 2,
        "attn_layer_indices": [0],
        "mamba_n_heads": 64,
        "mamba_expand": 1,
        "mamba_proj_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    {
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"],
        "attention_bias": True,
    },
    {"model_type": "granitemoehybrid", "num_hidden_layers": 2, "num_local_experts": 0},
    {"model_type": "falcon_h1", "num_hidden_layers": 2},
    {
        "model_type": "falcon_h1",
        "num_hidden_layers": 2,
        "mamba_d_ssm": None,
        "mamba_rms_norm": True,
        "projectors_bias": True,
        "mamba_proj_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
)


def built(config: Mapping[str, object]) -> Any:
    """Transformers' model of a config, on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))


@pytest.mark.parametrize("config", VARIANTS, ids=lambda c: "-".join(map(str, c.values())))
def test_parameters_are_those_of_the_modules(config: Mapping[str, object]) -> None:
    """A hybrid model has exactly the parameters of transformers' model of its config."""
    counted = sum(p.numel() for p in built(config).parameters())
    assert parameter_count(model_from_config(config, name="x", source="y")) == counted


def batched_flops(run: Callable[[], object]) -> float:
    """FLOPs of batched products: those of activations with activations."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        run()
    operations = counter.get_flop_counts().get("Global", {})
    return float(sum(n for name, n in operations.items() if "bmm" in str(name)))


@pytest.mark.parametrize("tokens", [256, 512])
def test_the_delta_rule_costs_what_its_chunks_do(tokens: int) -> None:
    """Beside a triangular solve, which kernels do by two products, torch's code of the gated delta
    rule does the operations of the formula.
    """
    import torch
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    heads, key, value = 4, 128, 96
    keys = torch.zeros(1, tokens, heads, key)
    values, steps = torch.zeros(1, tokens, heads, value), torch.zeros(1, tokens, heads)
    counted = batched_flops(
        lambda: torch_chunk_gated_delta_rule(keys, keys, values, g=steps, beta=steps)
    )
    mixer = GatedDelta(
        hidden=1, key_heads=heads, key_dim=key, value_heads=heads, value_dim=value, kernel=0
    )
    solved = heads * 2 * CHUNK * (key + value)
    assert counted / tokens == pytest.approx(mixer.core_flops(tokens) - solved)


def kept_elements(module: Any, tokens: int, *widths: int) -> float:
    """Elements of two bytes that a mixer keeps for its backward pass with each further token,
    without its input.
    """
    import torch

    module = module.to(torch.bfloat16)
    more, some = (_kept_bytes(module, count, *widths) for count in (2 * tokens, tokens))
    return (more - some) / 2 / tokens


class _Saved:
    """A tensor that autograd keeps, for as long as it does."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()  # with its graph it would keep itself alive


def _kept_bytes(module: Any, tokens: int, *widths: int) -> int:
    """Bytes of tensors that a module keeps of its input and of what it returned, without that input
    and weights.
    """
    import torch

    state = torch.randn(1, tokens, *widths, dtype=torch.bfloat16, requires_grad=True)
    known = {tensor.untyped_storage().data_ptr() for tensor in (state, *module.parameters())}
    alive: WeakSet[_Saved] = WeakSet()

    def pack(tensor: Any) -> _Saved:
        saved = _Saved(tensor)
        alive.add(saved)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        returned = module(state)
    storages = {each.tensor.untyped_storage().data_ptr(): each.tensor for each in alive}
    del returned
    sizes = {place: tensor.untyped_storage().nbytes() for place, tensor in storages.items()}
    return sum(size for place, size in sizes.items() if place not in known)


def keeping(saves: Callable[..., tuple[Any, ...]], place: int = 0) -> Any:
    """An operation that keeps what a kernel for GPUs keeps, and returns a copy of the argument at
    `place`.
    """
    import torch

    class Keeping(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.save_for_backward(*saves(*tensors))
            return tensors[place].clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # pragma: no cover
            raise NotImplementedError

    return Keeping.apply


def _of_the_rule(q: Any, k: Any, v: Any, g: Any, beta: Any) -> tuple[Any, ...]:
    """ChunkGatedDeltaRuleFunction's: normalised queries and keys, their factors, the rest, and a
    chunk's inverse.
    """
    import torch

    factors = [torch.zeros(x.shape[:3], dtype=torch.float32) for x in (q, k)]
    inverse = torch.zeros(*v.shape[:3], CHUNK, dtype=q.dtype)
    copies = (q.clone(), k.clone(), v.contiguous(), g.clone(), beta.contiguous())
    return (*copies, *factors, inverse)


def test_the_delta_rule_keeps_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around its kernels, of which the source says what they keep, Qwen3.5's module keeps exactly
    the elements of the formula.
    """
    from transformers import AutoConfig
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    conv, rule = keeping(lambda x, w: (x, w)), keeping(_of_the_rule, place=2)
    monkeypatch.setattr(modeling, "causal_conv1d_fn", lambda x, w, b=None, **_: conv(x, w))
    monkeypatch.setattr(
        modeling,
        "torch_chunk_gated_delta_rule",
        lambda q, k, v, g, beta, **_: (rule(q, k, v, g, beta), None),
    )
    sizes = {
        "hidden_size": 256,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 96,
    }
    config = AutoConfig.for_model("qwen3_5_text", **sizes)
    mixer = GatedDelta(hidden=256, key_heads=2, key_dim=64, value_heads=4, value_dim=96)
    counted = kept_elements(modeling.Qwen3_5GatedDeltaNet(config, 0), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


def test_a_state_space_costs_what_its_chunks_do() -> None:
    """Torch's code of Mamba-2 does the operations of the formula, but that it repeats groups for
    their heads, and 1 % more between chunks.
    """
    import torch
    from transformers.models.nemotron_h.modeling_nemotron_h import mamba2_chunk_scan

    tokens, mixer = (
        1024,
        Mamba2(hidden=1, heads=16, head_dim=32, groups=16, state=64, chunk=128, kernel=0),
    )
    values = torch.zeros(1, tokens, 16, 32)
    steps, sides = torch.zeros(1, tokens, 16), torch.zeros(1, tokens, 16, 64)
    counted = batched_flops(
        lambda: mamba2_chunk_scan(
            values, steps, torch.zeros(16), sides, sides, chunk_size=128, dt_bias=torch.zeros(16)
        )
    )
    assert counted / tokens == pytest.approx(mixer.core_flops(tokens), rel=0.01)


def test_mamba_2_keeps_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around its kernel, of which the source says what it keeps, Nemotron-H's module keeps exactly
    the elements of the formula.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.nemotron_h import modeling_nemotron_h as modeling

    split = keeping(lambda projected, out: (projected, out), place=1)

    def combined(projected: Any, *_: Any, headdim: int, outproj_weight: Any, **__: Any) -> Any:
        out = torch.zeros(*projected.shape[:2], outproj_weight.shape[1], dtype=projected.dtype)
        return split(projected, out)

    monkeypatch.setattr(modeling, "mamba2_split_conv1d_scan_combined", combined)
    config = AutoConfig.for_model(
        "nemotron_h", hidden_size=256, mamba_num_heads=8, mamba_head_dim=32, n_groups=2
    )
    mixer = Mamba2(hidden=256, heads=8, head_dim=32, groups=2, state=128)
    counted = kept_elements(modeling.NemotronHMamba2Mixer(config, 0).train(), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


def keep_as_kernels(modeling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stand-ins that keep what Mamba-1's kernels keep in their place."""
    conv = keeping(lambda x, w: (x, w))
    scan = keeping(lambda u, step, b, c, z: (u, step, b, c, z, u.clone()))
    monkeypatch.setattr(modeling, "causal_conv1d_fn", lambda x, w, b=None, **_: conv(x, w))
    monkeypatch.setattr(
        modeling,
        "mamba_selective_scan",
        lambda u, step, a, b, c, z=None, **_: scan(u, step, b, c, z),
    )


def test_mamba_1_with_norms_keeps_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around its kernels, of which the source says what they keep, Jamba's module keeps exactly the
    elements of the formula.
    """
    from transformers import AutoConfig
    from transformers.models.jamba import modeling_jamba as modeling

    keep_as_kernels(modeling, monkeypatch)
    config = AutoConfig.for_model("jamba", hidden_size=256, mamba_d_state=16)
    mixer = Mamba1(hidden=256, width=512, state=16, step_rank=16, norms=True, fused=False)
    counted = kept_elements(modeling.JambaMambaMixer(config, 0), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


@pytest.mark.parametrize("heads", [1, 4])
def test_mamba_1_of_several_heads_keeps_what_is_counted(
    heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around its kernels, of which the source says what they keep, Zamba's module keeps exactly the
    elements of the formula.
    """
    from transformers import AutoConfig
    from transformers.models.zamba import modeling_zamba as modeling

    keep_as_kernels(modeling, monkeypatch)
    config = AutoConfig.for_model("zamba", hidden_size=256, n_mamba_heads=heads)
    mixer = Mamba1(hidden=256, width=512, state=16, step_rank=16, heads=heads, fused=False)
    counted = kept_elements(modeling.ZambaMambaMixer(config, 0), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


def _of_kda(q: Any, k: Any, v: Any, g: Any, beta: Any) -> tuple[Any, ...]:
    """Normalised queries and keys with factors, the rest, decays summed, and squares of a chunk."""
    import torch

    factors = [torch.zeros(x.shape[:3], dtype=torch.float32) for x in (q, k)]
    squares = [torch.zeros(*v.shape[:3], CHUNK, dtype=q.dtype) for _ in range(2)]
    return (
        q.clone(),
        k.clone(),
        v.contiguous(),
        g.clone(),
        g,
        beta.contiguous(),
        *factors,
        *squares,
    )


def test_kimi_delta_keeps_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around its kernels, of which the source says what they keep, Kimi-Linear's module keeps
    exactly the elements of the formula.
    """
    from transformers import AutoConfig
    from transformers.models.kimi_linear import modeling_kimi_linear as modeling

    conv, rule = keeping(lambda x, w: (x, w)), keeping(_of_kda, place=2)
    monkeypatch.setattr(modeling, "causal_conv1d_fn", lambda x, weight, **_: conv(x, weight))
    monkeypatch.setattr(
        modeling,
        "chunk_kimi_delta_attention",
        lambda q, k, v, g, beta, **_: (rule(q, k, v, g, beta), None),
    )
    sizes = {"hidden_size": 256, "linear_num_heads": 4, "linear_head_dim": 64}
    config = AutoConfig.for_model("kimi_linear", **sizes)
    mixer = KimiDelta(hidden=256, heads=4, head_dim=64, gate_rank=64)
    counted = kept_elements(modeling.KimiLinearDeltaAttention(config, 0), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


@pytest.mark.parametrize("head_dim", [32, 64])
def test_kimi_delta_costs_what_its_chunks_do(head_dim: int) -> None:
    """Beside a triangular solve, which kernels do by two products, torch's code of KDA does the
    operations of the formula; its convolutions are apart.
    """
    import torch
    from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention

    tokens, heads = 256, 4
    keys, steps = torch.zeros(1, tokens, heads, head_dim), torch.zeros(1, tokens, heads)
    counted = batched_flops(lambda: chunk_kimi_delta_attention(keys, keys, keys, keys, steps))
    mixer = KimiDelta(hidden=1, heads=heads, head_dim=head_dim, gate_rank=1, kernel=0)
    solved = heads * 4 * CHUNK * head_dim
    assert counted / tokens == mixer.core_flops(tokens) - solved


def test_a_short_convolution_costs_what_is_counted() -> None:
    """LFM2's convolution does the operations of the formula, for each token and those it is padded
    with.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig
    from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "full_attn_idxs": [1]}
    config = AutoConfig.for_model("lfm2", **sizes)
    tokens, mixer = 64, ShortConv(hidden=256, kernel=3)
    module = Lfm2ShortConv(config, 0)
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, tokens, 256))
    operations = counter.get_flop_counts()["Global"]
    counted = sum(n for name, n in operations.items() if "convolution" in str(name))
    assert counted == mixer.core_flops(tokens) * (tokens + mixer.kernel - 1)


def _attention(kind: str, place: int, rotated: int, **sizes: Any) -> Any:
    """The attention of a type as torch's own kernel computes it, on a state alone."""
    from importlib import import_module

    import torch
    from transformers import AutoConfig

    config = AutoConfig.for_model(kind, hidden_size=256, **sizes, attn_implementation="sdpa")
    modeling = import_module(f"transformers.models.{kind}.modeling_{kind}")
    name = next(name for name in vars(modeling) if name.endswith("Attention"))
    attention = getattr(modeling, name)(config, place)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, state: Any) -> Any:
            angles = torch.ones(1, state.shape[1], rotated, dtype=state.dtype)
            return self.attention(state, (angles, angles), None, is_causal=True)[0]

    return Alone()


def test_a_gate_on_attention_keeps_what_is_counted() -> None:
    """Qwen3-Next's module keeps the elements of the formula, and beside them what its norms of
    queries and keys keep in fp32, angles, and on a CPU a copy of the result and sums of each row.
    """
    heads, keys, dim, rotated = 4, 2, 32, 8
    sizes = {"num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": dim}
    module = _attention("qwen3_next", 3, rotated, **sizes)
    mixer = GroupedQuery(
        hidden=256, heads=heads, kv_heads=keys, head_dim=dim, gate="elements", qk_norm="head"
    )
    norms = (heads + keys) * (4 * dim + 2)
    beside = norms + rotated + heads * dim + 2 * heads
    counted = kept_elements(module, 128, 256)
    assert counted - beside == mixer.kept_elements(repeats_keys=False, packs=False)


def test_latent_attention_keeps_what_is_counted() -> None:
    """DeepSeek-V3's module keeps the elements of the formula, and beside them what its norms keep,
    the keys whose memory its values share, angles, and on a CPU a copy of the result and sums.
    """
    heads, nope, rope, values, ranks = 4, 32, 16, 48, (96, 64)
    sizes = {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": ranks[0],
        "kv_lora_rank": ranks[1],
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": values,
    }
    module = _attention("deepseek_v3", 0, rope, **sizes)
    mixer = Latent(
        hidden=256,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        **{key: value for key, value in sizes.items() if "num" not in key},
    )
    norms = 3 * sum(ranks) + 2 * 2
    beside = norms + heads * nope + rope + heads * values + 2 * heads
    counted = kept_elements(module, 128, 256)
    assert counted - beside == mixer.kept_elements(repeats_keys=False, packs=False)


def test_a_short_convolution_keeps_what_is_counted() -> None:
    """LFM2's module, in torch's own code, keeps exactly the elements of the formula."""
    from transformers import AutoConfig
    from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "full_attn_idxs": [1]}
    mixer = ShortConv(hidden=256, kernel=3)
    counted = kept_elements(Lfm2ShortConv(AutoConfig.for_model("lfm2", **sizes), 0), 256, 256)
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)


@pytest.mark.parametrize(("heads", "head_dim", "block"), [(4, 32, 64), (4, 64, 64), (8, 32, 128)])
def test_lightning_attention_costs_and_keeps_what_is_counted(
    heads: int, head_dim: int, block: int
) -> None:
    """MiniMax's module does the products of the formula, and keeps its elements and a decay of each
    head and block.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    class Alone(torch.nn.Module):
        """The module without a mask and what is kept for tokens to come."""

        def __init__(self) -> None:
            super().__init__()
            sizes = {"num_attention_heads": heads, "head_dim": head_dim, "block_size": block}
            config = AutoConfig.for_model("minimax", hidden_size=256, **sizes)
            self.inner = MiniMaxLightningAttention(config, 1)

        def forward(self, state: torch.Tensor) -> object:
            return self.inner(state, None, None)

    mixer = Lightning(hidden=256, heads=heads, head_dim=head_dim, block=block)
    module, tokens = Alone(), 256
    counted = batched_flops(lambda: module(torch.zeros(1, tokens, 256)))
    assert counted / tokens == mixer.core_flops(tokens)
    kept = mixer.kept_elements(repeats_keys=False, packs=False)
    assert kept_elements(module, tokens, 256) == kept + heads / block


@pytest.mark.parametrize(("width", "blocks"), [(256, 4), (512, 8)])
def test_a_gated_recurrence_costs_and_keeps_what_is_counted(width: int, blocks: int) -> None:
    """RecurrentGemma's module does the products and the convolution of the formula, keeps its
    elements, and calls the kernels of a token that it says, but for views.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as modeling

    sizes = {"hidden_size": 256, "lru_width": width, "num_attention_heads": blocks}
    config = AutoConfig.for_model("recurrent_gemma", **sizes)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = modeling.RecurrentGemmaRecurrentBlock(config, 0)
            for weights in self.parameters():
                torch.nn.init.normal_(weights, std=0.02)

        def forward(self, state: torch.Tensor) -> Any:
            places = torch.arange(1, state.shape[1] + 1)[None]
            return self.inner(state, places, None, use_cache=False)[0]

    class Kernels(TorchDispatchMode):
        """Counts kernels: operators that aren't views."""

        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made_anew = "select_backward" in str(func)  # zeros, and a copy into them
            self.count += 2 if made_anew else not any(name in str(func) for name in _VIEWS)
            return func(*args, **(kwargs or {}))

    mixer, module, tokens = Recurrent(hidden=256, width=width, blocks=blocks), Alone(), 32
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, tokens, 256))
    operations = {str(name): n for name, n in counter.get_flop_counts()["Global"].items()}
    multiplied = sum(n for name, n in operations.items() if "convolution" not in name)
    assert multiplied / tokens == sum(2 * p.inputs * p.outputs for p in mixer.products)
    convolved = operations["aten.convolution"] / (tokens + mixer.kernel - 1)
    assert convolved == 2 * mixer.kernel * width
    assert kept_elements(module, tokens, 256) == mixer.kept_elements(
        repeats_keys=False, packs=False
    )

    counted = []
    for length in (tokens, 2 * tokens):
        state = torch.randn(1, length, 256, dtype=torch.bfloat16, requires_grad=True)
        with Kernels() as forward:
            returned = module(state).sum()
        module.zero_grad()
        with Kernels() as backward:
            returned.backward()
        counted.append((forward.count, backward.count))
    (few, few_back), (many, many_back) = counted
    assert ((many - few) / tokens, (many_back - few_back) / tokens) == mixer.stepwise


_VIEWS = ("select.int", "slice.Tensor", "detach", "view", "as_strided", "new_empty", "unsqueeze")


@pytest.mark.parametrize("picked", [2, 3])
def test_experts_that_compute_nothing_keep_what_is_counted(picked: int) -> None:
    """LongCat's module keeps for each such expert of a token its state and the product with its
    weight, beside two places and the weight.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashExperts

    sizes = {"n_routed_experts": 4, "zero_expert_num": 4, "expert_ffn_hidden_size": 64}
    config = AutoConfig.for_model("longcat_flash", hidden_size=256, **sizes)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = LongcatFlashExperts(config)

        def forward(self, state: torch.Tensor) -> Any:
            tokens = state.shape[1]
            chosen = torch.arange(4, 4 + picked)[None].expand(tokens, -1)
            weights = torch.ones(tokens, picked, dtype=state.dtype, requires_grad=True)
            return self.inner(state[0], chosen, weights)

    part = Experts(
        hidden=256,
        gated=True,
        experts=4,
        per_token=0,
        expert_width=64,
        idle=4,
        idle_per_token=picked,
    )
    places_and_weight = 4 + 4 + 1
    counted = kept_elements(Alone(), 64, 256) - picked * places_and_weight
    assert 2 * counted == part.kept_bytes(1, 2, 2, weighs_output=False)


@pytest.mark.parametrize("tokens", [128, 256])
def test_an_indexer_costs_all_keys_and_saves_none(tokens: int) -> None:
    """DeepSeek-V3.2's module does the indexer's operations of the formula, and attention over all
    keys beside: what it chose saves nothing.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as modeling

    sizes = {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "index_n_heads": 4,
        "index_head_dim": 64,
        "index_topk": 16,
    }
    config = AutoConfig.for_model("deepseek_v32", **sizes, attn_implementation="eager")
    module = modeling.DeepseekV32Attention(config, 0)
    angles = torch.zeros(1, tokens, 32)
    mask = torch.zeros(1, 1, tokens, tokens)
    counted = batched_flops(
        lambda: module(torch.zeros(1, tokens, 256), (angles, angles), mask, None)
    )
    mixer = Indexer(hidden=256, query_rank=64, heads=4, head_dim=64, top=16)
    dense = 2 * tokens * 4 * (32 + 32 + 32)
    assert counted / tokens == pytest.approx(mixer.core_flops(tokens) + dense)


@pytest.mark.parametrize("tokens", [128, 256])
def test_an_indexer_of_blocks_costs_all_keys(tokens: int) -> None:
    """MiniMax-M3's module does the products of the formula, and its mask has a score of each head
    and key.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as modeling

    sizes = {"index_n_heads": 2, "index_head_dim": 32, "index_block_size": 16, "rotary_dim": 32}
    heads = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
    config = AutoConfig.for_model("minimax_m3_vl_text", **heads, **sizes)
    module = modeling.MiniMaxM3VLIndexer(config, 0)
    places, angles = torch.arange(tokens)[None], torch.zeros(1, tokens, 32)
    state = torch.zeros(1, tokens, 256)
    mixer = BlockIndexer(hidden=256, heads=2, head_dim=32, block=16, top=256, attention_heads=8)

    counted = batched_flops(lambda: module(state, (angles, angles), None, places))
    assert counted / tokens == pytest.approx(mixer.core_flops(tokens))

    blocks = module(state, (angles, angles), None, places)
    mask = module.build_block_mask(blocks, None, tokens, torch.bfloat16, state.device, places)
    assert mask.numel() / tokens == mixer.kept_of_sequence(tokens)


#: A small DeepSeek-V4 with each kind of attention.
_V4: Mapping[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "head_dim": 64,
    "q_lora_rank": 96,
    "o_groups": 2,
    "o_lora_rank": 48,
    "sliding_window": 16,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 8,
    "layer_types": [
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 32},
}
_V4_SIZES: Mapping[str, Any] = {
    "hidden": 256,
    "heads": 8,
    "head_dim": 64,
    "query_rank": 96,
    "groups": 2,
    "group_rank": 48,
    "window": 16,
    "rotated": 8,
}


def _compressed(place: int) -> Any:
    """DeepSeek-V4's module of one kind of attention, on a state alone."""
    import torch
    from transformers import AutoConfig
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling

    config = AutoConfig.for_model("deepseek_v4", **_V4, attn_implementation="eager")
    attention = modeling.DeepseekV4Attention(config, place)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, state: Any) -> Any:
            tokens = state.shape[1]
            angles = torch.ones(1, tokens, 4, dtype=state.dtype)
            mask = torch.zeros(1, 1, tokens, tokens, dtype=state.dtype)
            both = dict.fromkeys(("main", "compress"), (angles, angles))
            return self.attention(state, both, torch.arange(tokens)[None], mask)[0]

    return Alone()


@pytest.mark.parametrize(
    ("place", "more"),
    [(0, {}), (1, {"rate": 32}), (2, {"rate": 4, "overlaps": True, "top": 8})],
)
def test_attention_to_compressed_keys_costs_and_keeps_what_is_counted(
    place: int, more: dict[str, Any]
) -> None:
    """DeepSeek-V4's module does the products of the formula over all keys, beside its grouped
    projection and its indexer's, and keeps its elements, of the indexer none.
    """
    import torch

    mixer, module, tokens = Compressed(**_V4_SIZES, **more), _compressed(place), 128
    indexer = CompressedIndexer(hidden=256, query_rank=96, heads=4, head_dim=32, top=8, rate=4)
    grouped, indexed = 2 * 512 * 48, indexer.core_flops(tokens) if place == 2 else 0
    counted = batched_flops(lambda: module(torch.zeros(1, tokens, 256)))
    assert counted / tokens == mixer.computed_flops(tokens) + grouped + indexed

    each = mixer.kept_elements(repeats_keys=False, packs=False)
    more_keys, keys = (mixer.kept_of_sequence(count) for count in (2 * tokens, tokens))
    # of each token less than one element, since a compressed key's are shared by several
    assert kept_elements(module, tokens, 256) == pytest.approx(each + 2 * more_keys - keys, abs=1)


@pytest.mark.parametrize(
    ("family", "steps"), [("deepseek_v4", 20), ("deepseek_v4", 3), ("hy_v4", 0)]
)
def test_hyper_connections_keep_what_is_counted(family: str, steps: int) -> None:
    """A part of DeepSeek-V4's layers, or of Hy4's, keeps of its streams the elements of the
    formula, and the mixture of which its norm takes an fp32 copy none.
    """
    from importlib import import_module

    import torch
    from transformers import AutoConfig

    keys = {"hc_sinkhorn_iters": steps} if steps else {}
    config = AutoConfig.for_model(family, hidden_size=64, hc_mult=4, **keys)
    modeling = import_module(f"transformers.models.{family}.modeling_{family}")
    name = next(name for name in vars(modeling) if name.endswith("HyperConnection"))
    connection = getattr(modeling, name)(config)

    class Part(torch.nn.Module):
        """As in the layers' forward, with a product in the place of attention."""

        def __init__(self) -> None:
            super().__init__()
            self.connection, self.inner = connection, torch.nn.Linear(64, 64, bias=False)

        def forward(self, streams: Any) -> Any:
            if steps:
                post, matrix, mixture = self.connection(streams)
                mixed = torch.matmul(matrix.to(streams.dtype).transpose(-1, -2), streams)
                added = post.to(streams.dtype).unsqueeze(-1) * self.inner(mixture).unsqueeze(-2)
                return added + mixed
            post, mixture = self.connection(streams)
            added = post.float().unsqueeze(-1) * self.inner(mixture).float().unsqueeze(-2)
            return (added + streams.float()).to(streams.dtype)

    streams = Streams(hidden=64, count=4, iterations=steps)
    mixture = 64  # the input of what stands for attention
    counted = kept_elements(Part(), 128, 4, 64) - mixture + streams.width
    assert counted == streams.kept_elements
    assert sum(p.numel() for p in connection.parameters()) == streams.parameters


def _of_gemma3n(count: int, hidden: int, share: float) -> tuple[Any, Any]:
    """A layer of Gemma 3n with so many streams, and its attention, each on a state alone."""
    import torch
    from transformers import AutoConfig
    from transformers.models.gemma3n import modeling_gemma3n as modeling

    sizes = {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(
        "gemma3n_text",
        **sizes,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=128,
        hidden_size_per_layer_input=16,
        laurel_rank=8,
        altup_num_inputs=count,
        num_kv_shared_layers=0,
        activation_sparsity_pattern=[share] * 2,
        attn_implementation="sdpa",
    )
    layer, attention = (
        kind(config, 0)
        for kind in (modeling.Gemma3nTextDecoderLayer, modeling.Gemma3nTextAttention)
    )

    class Alone(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, state: Any) -> Any:
            angles = torch.ones(1, state.shape[1], 32, dtype=state.dtype)
            if self.inner is attention:
                return attention(state, (angles, angles), None, is_causal=True)[0]
            own = torch.ones(1, state.shape[1], 16, dtype=state.dtype, requires_grad=True)
            streams = state[0].permute(1, 0, 2)[:, None]
            return layer(streams, (angles, angles), own, {}, None, is_causal=True)

    return Alone(layer).train(), Alone(attention)


@pytest.mark.parametrize(("count", "hidden", "share"), [(4, 64, 0.0), (3, 128, 0.0), (4, 64, 0.5)])
def test_alternating_updates_cost_and_keep_what_is_counted(
    count: int, hidden: int, share: float
) -> None:
    """Gemma 3n's layer does the product of streams of the formula, and keeps of them the elements
    of the formula, beside what attention, its MLP and seven norms as Llama's keep.
    """
    import torch
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextAltUp

    layer, attention = _of_gemma3n(count, hidden, share)
    streams = AltUp(hidden=hidden, count=count, rank=8, inputs=16)
    part = Dense(
        hidden=hidden, width=128, gated=True, activation="gelu_tanh", keeps_largest=share > 0
    )
    norms, states, tokens = 7 * 3 * hidden, 2 * hidden, 64
    beside = norms + states + kept_elements(attention, tokens, hidden)
    mlp = part.kept_bytes(4, 2, 2, weighs_output=False) / 2
    own = streams.width  # its input, which isn't counted of a module alone
    assert kept_elements(layer, tokens, count, hidden) + own == streams.kept_elements + beside + mlp

    updates: Any = next(m for m in layer.modules() if isinstance(m, Gemma3nTextAltUp))
    updates = updates.to(torch.float32)
    state = torch.zeros(count, 1, tokens, hidden)
    assert batched_flops(lambda: updates.predict(state)) / tokens == streams.mixing_flops


@pytest.mark.parametrize("pool", [8, 16])
def test_an_indexer_of_pooled_keys_costs_its_pools(pool: int) -> None:
    """GLM-5-Next's module does the products of the formula, over pools of keys."""
    import torch
    from transformers import AutoConfig
    from transformers.models.glm5_next import modeling_glm5_next as modeling

    sizes = {"hidden_size": 256, "q_lora_rank": 64, "index_n_heads": 4, "index_head_dim": 32}
    config = AutoConfig.for_model("glm5_next_text", **sizes, index_kpool=pool, index_topk=64)
    module, tokens = modeling.Glm5NextTextIndexer(config, 3), 128
    state, latent = torch.zeros(1, tokens, 256), torch.zeros(1, tokens, 64)
    mask = torch.ones(1, tokens, dtype=torch.bool)
    mixer = Indexer(hidden=256, query_rank=64, heads=4, head_dim=32, top=64, pool=pool)
    counted = batched_flops(lambda: module(state, latent, mask, None))
    assert counted / tokens == mixer.core_flops(tokens)
    assert sum(p.numel() for p in module.parameters()) == mixer.parameters + mixer.norm_parameters(
        1
    )


def test_subtracted_softmax_maps_keep_what_is_counted() -> None:
    """DiffLlama's module keeps the elements of the formula, but for what kernels need of each row,
    and with the difference in fp32, as it is on CPU.
    """
    import torch
    from transformers import AutoConfig
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    sizes = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = AutoConfig.for_model("diffllama", **sizes, attn_implementation="sdpa")
    attention = DiffLlamaAttention(config, 0)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, state: Any) -> Any:
            angles = torch.ones(1, state.shape[1], 8, dtype=state.dtype)
            return self.attention(state, (angles, angles), None, is_causal=True)[0]

    mixer = GroupedQuery(hidden=64, heads=8, kv_heads=4, head_dim=8, maps=2, vectors=32)
    angles, sums, factors, fp32 = 8, 2 * 8 * 2, 4 * 2, 64
    counted = kept_elements(Alone(), 256, 64) - angles - sums - factors - fp32
    assert counted == mixer.kept_elements(repeats_keys=False, packs=False)
