"""Build small planned models by Megatron-Core's own model code, on a CPU, and compare the counts:
`python -m benchmarks.megatron_models TREE`.

TREE is a checkout of NVIDIA/Megatron-LM (core_v0.16.1 and core_v0.19.0 were looked at). Its parser
takes what dsgen writes for its release, and its default layers are built of that: dense, experts,
latent attention, the gated delta rule, and a pattern with Mamba. Without a GPU, the modules of
Transformer Engine are stand-ins that hold weights of the same shapes and compute nothing. Each
model is built in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import dsgen
from benchmarks.agreement_megatron import refusal_of
from benchmarks.agreement_plans import TRANSFORMER_ENGINE, release_of, words_of
from dsgen.estimate.model_size import parameter_count

_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
}
_EXPERTS: Final[dict[str, Any]] = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "dense": {**_SIZES, "model_type": "llama"},
    "experts": {**_SIZES, **_EXPERTS, "model_type": "qwen3_moe", "num_experts": 8},
    "latent": {
        **{key: value for key, value in _SIZES.items() if key != "head_dim"},
        **_EXPERTS,
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
    },
    "delta": {
        **_SIZES,
        **_EXPERTS,
        "model_type": "qwen3_next",
        "num_experts": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "shared_expert_intermediate_size": 128,
    },
    "mamba": {
        **{key: value for key, value in _SIZES.items() if key != "num_hidden_layers"},
        **_EXPERTS,
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M*ME",
        "mamba_num_heads": 8,
        "mamba_head_dim": 64,
        "n_groups": 2,
        "ssm_state_size": 32,
        "n_routed_experts": 8,
        "moe_shared_expert_intermediate_size": 256,
    },
}


def planned(name: str, release: str) -> tuple[int, list[str]]:
    """Parameters of a model as dsgen counts them, and what its script is called with on one GPU."""
    spec = {
        "name": "small",
        "framework": "megatron-lm",
        "megatron_version": release,
        "model": MODELS[name],
        "cluster": {
            "accelerator": "h100-80gb-sxm",
            "accelerators_per_node": 1,
            "network_gbits_per_s_per_node": 100,
        },
        "gpus": 1,
        "training": {"sequence_length": 512, "global_batch": 8},
        "layout": {"micro_batch": 1, "recompute": "none", "zero_stage": 0},
        "data": {"tokenizer": {"type": "NullTokenizer"}},
    }
    job = dsgen.load_job(spec)
    return parameter_count(job.model), words_of(dsgen.estimate(job))


def built(tree: Path, words: list[str]) -> int:
    """Parameters of the tree's own model for these words."""
    from torch import cuda, distributed

    refusal_of(tree, engine=TRANSFORMER_ENGINE)  # the tree is found, its kernels are made up
    # What it imported holds on to Transformer Engine's own modules.
    for name in [name for name in sys.modules if name.split(".")[0] == "megatron"]:
        del sys.modules[name]

    any_cuda: Any = cuda
    any_cuda.current_device, any_cuda.Stream = lambda: "cpu", lambda *_, **__: None
    os.environ.update(RANK="0", WORLD_SIZE="1", CUDA_DEVICE_MAX_CONNECTIONS="1")
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    _stand_in()
    importlib.import_module("megatron.core.parallel_state").initialize_model_parallel()

    parser = importlib.import_module("megatron.training.arguments")
    asked = [word for word in words if word != "--cross-entropy-loss-fusion"]
    fusions = ("--no-gradient-accumulation-fusion", "--no-rope-fusion")
    sys.argv = ["pretrain.py", *asked, *fusions, "--use-cpu-initialization", "--no-initialization"]
    with contextlib.redirect_stdout(io.StringIO()):
        arguments = parser.parse_args()
        parser.validate_args(arguments, {})
        config = parser.core_transformer_config_from_args(arguments)
    config.perform_initialization = False
    return sum(weight.numel() for weight in _model(config, arguments).parameters())


def _model(config: Any, arguments: Any) -> Any:
    """The tree's model of parsed arguments, of its default layers."""
    common = {
        "config": config,
        "vocab_size": arguments.padded_vocab_size or 1024,
        "max_sequence_length": arguments.seq_length,
        "position_embedding_type": arguments.position_embedding_type,
        "share_embeddings_and_output_weights": not arguments.untie_embeddings_and_output_weights,
    }
    core = "megatron.core.models"
    if pattern := getattr(arguments, "hybrid_override_pattern", None):
        mamba = importlib.import_module(f"{core}.mamba")
        layers = importlib.import_module(f"{core}.mamba.mamba_layer_specs").mamba_stack_spec
        return mamba.MambaModel(mamba_stack_spec=layers, hybrid_override_pattern=pattern, **common)
    if pattern := getattr(arguments, "hybrid_layer_pattern", None):
        hybrid = importlib.import_module(f"{core}.hybrid.hybrid_model")
        layers = importlib.import_module(f"{core}.hybrid.hybrid_layer_specs").hybrid_stack_spec
        return hybrid.HybridModel(hybrid_stack_spec=layers, hybrid_layer_pattern=pattern, **common)

    specs = importlib.import_module(f"{core}.gpt.gpt_layer_specs")
    if config.experimental_attention_variant:
        variants = f"{core}.gpt.experimental_attention_variant_module_specs"
        module = importlib.import_module(variants)
        layers = module.get_transformer_block_with_experimental_attention_variant_spec(config)
    elif arguments.num_experts:
        layers = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=True)
    else:
        layers = specs.get_gpt_layer_with_transformer_engine_spec(
            None, False, arguments.qk_layernorm, arguments.multi_latent_attention
        )
    gpt = importlib.import_module(f"{core}.gpt.gpt_model")
    return gpt.GPTModel(transformer_layer_spec=layers, **common)


def _stand_in() -> None:
    """Put modules with the same weights in the place of Transformer Engine's and of kernels'."""
    import torch
    from torch import nn

    from benchmarks.agreement_megatron import made_up

    def weight(*shape: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(*shape))

    class Linear(nn.Module):
        def __init__(self, inputs: int, outputs: int, *, bias: bool = False, **_: Any) -> None:
            super().__init__()
            self.weight, self.bias = weight(outputs, inputs), weight(outputs) if bias else None

    class NormLinear(Linear):
        def __init__(self, inputs: int, outputs: int, *, bias: bool = False, **_: Any) -> None:
            super().__init__(inputs, outputs, bias=bias)
            self.layer_norm_weight = weight(inputs)

    class Norm(nn.Module):
        def __init__(self, config: Any = None, hidden_size: int = 1, *_: Any, **__: Any) -> None:
            super().__init__()
            self.weight = weight(hidden_size)

    class GateNorm(nn.Module):
        def __init__(self, width: int, *_: Any, **__: Any) -> None:
            super().__init__()
            self.weight = weight(width)

    class Grouped(nn.Module):
        def __init__(self, count: int, inputs: int, outputs: int, **_: Any) -> None:
            super().__init__()
            self.weights = nn.ParameterList([weight(outputs, inputs) for _ in range(count)])

    class Core(nn.Module):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

    made_up("mamba_ssm", "causal_conv1d", "fla")
    kernels: Any = importlib.import_module("mamba_ssm.ops.triton.layernorm_gated")
    kernels.RMSNorm = GateNorm
    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    engine: Any = importlib.import_module("megatron.core.extensions.transformer_engine")
    engine.HAVE_TE = True
    engine.TELinear = engine.TEColumnParallelLinear = engine.TERowParallelLinear = Linear
    engine.TELayerNormColumnParallelLinear, engine.TENorm = NormLinear, Norm
    engine.TEColumnParallelGroupedLinear = engine.TERowParallelGroupedLinear = Grouped
    engine.TEDotProductAttention = Core
    engine.get_cpu_offload_context = lambda *_, **__: (contextlib.nullcontext(), None)


def main(tree: Path, name: str | None) -> int:
    """Print both counts of each model, or of one; 1 where they differ."""
    if name is not None:
        count, words = planned(name, release_of(tree))
        theirs = built(tree, words)
        print(f"{name}: dsgen {count:,}, Megatron-Core {theirs:,}")
        return int(count != theirs)
    ask = [sys.executable, "-m", "benchmarks.megatron_models", str(tree)]
    return max(subprocess.run([*ask, each], check=False).returncode for each in MODELS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
