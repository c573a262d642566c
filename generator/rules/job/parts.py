"""Parts of a model that a Megatron has no option for: another model than the one named would be trained."""

from __future__ import annotations

from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ...rule import InFiles
from ..planned import mds_jobs, megatron_jobs, violation
from ..sources import derived, megatron_deepspeed

_SILU = ("silu", "swish", "swiglu")
_PLAIN = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu2")
#: Rotary scalings that Megatron-LM has an option for; latent attention has YaRN of its own.
_MEGATRON_LM_SCALINGS = ("none", "llama3")


def missing_parts(job: Job) -> tuple[str, ...]:
    """What `job.model` has and the job's Megatron has no option for, as in messages; empty for the other frameworks."""
    if not job.framework.runs("Megatron layers"):
        return ()
    if job.framework.runs("Megatron-LM"):
        parts = _missing(job, _MEGATRON_LM_SCALINGS)
    else:
        parts = {**_missing(job, ("none",)), **_missing_here(job)}
    return tuple(part for part, needed in parts.items() if needed)


def _missing(job: Job, scalings: tuple[str, ...]) -> dict[str, bool]:
    """What neither Megatron has, but for these rotary scalings."""
    model = job.model
    chunk = model.sliding_window if model.chunked_attention else None
    return {
        f"MLPs gated by {model.activation}": model.gated_mlp and model.activation not in _SILU,
        f"MLPs with {model.activation}": not model.gated_mlp and model.activation not in _PLAIN,
        f"{model.rotary_scaling} scaling of rotary positions": model.rotary_scaling not in scalings,
        "normalisation of queries and keys over all heads at once": model.qk_norm == "full",
        "attention and MLP side by side": model.norms_per_layer == 1,
        "normalisation after attention and MLP": model.norms_per_layer > 2 or model.norm_after,
        "normalisation without parameters": model.norm == "none",
        "normalisation without biases": model.norm == "layernorm-no-bias",
        "attention in chunks": chunk is not None and chunk < job.training.sequence_length,
        **dict.fromkeys(model.extras, True),
        "an embedding of another width": model.embedding_width is not None,
    }


def _missing_here(job: Job) -> dict[str, bool]:
    """What Megatron-LM has and Megatron-DeepSpeed lacks, beyond what rules of its own refuse."""
    model = job.model
    others = model.output_bias or model.mlp_bias or model.expert_bias
    return {
        "normalisation of queries and keys": model.qk_norm in ("head", "l2"),
        "layers without positions": bool(model.layers_without_rotary),
        "clamped activations": model.activation_clamp is not None,
        "attention sinks": model.attention_sinks,
        "query, key and value biases without others": model.qkv_bias and not others,
        "sliding-window attention": model.sliding_window is not None
        and model.sliding_window < job.training.sequence_length,
    }


_FP8_LAYERS = megatron_deepspeed("megatron/model/transformer.py:1772")


@megatron_jobs.rule("MLM045", WARNING, "silent", derived("either Megatron's arguments.py, core_v0.16.1 and 4efb479d"))
def megatron_has_every_part(job: Job) -> Violations:
    """The framework's options can express every part of the model.

    Prevents: No error: another model would be trained, without the parts named.
    Fix: use framework: huggingface, or a script that has them"""
    missing = missing_parts(job)
    if missing:
        parts, framework = ", ".join(missing), job.says("framework", job.framework)
        message = f"{job.model.name} has {parts}, for which {framework} has no option: it would train without"
        other = "huggingface" if any(_missing(job, _MEGATRON_LM_SCALINGS).values()) else "megatron-lm"
        yield violation(job, "/model", message, f"use {job.says('framework', other)}, or change the script")


@mds_jobs.rule("MDS023", ERROR, "init", _FP8_LAYERS, InFiles(facts=("precision", "heads", "kv_heads")))
def fp8_layers_have_equal_heads(job: Job) -> Violations:
    """With FP8 in Megatron-DeepSpeed, there are as many key-value heads as attention heads.

    Prevents: Megatron-DeepSpeed stops on an assertion when it builds the FP8 layers.
    Fix: set training.precision to bf16, or use framework: megatron-lm"""
    model = job.model
    if job.training.precision == "fp8" and model.kv_heads != model.heads:
        message = f"{job.says('precision', 'fp8')} with {job.says('framework', job.framework)} requires equal heads:"
        message += f" {model.name} has {model.kv_heads} key-value heads and {model.heads} attention heads"
        hint = f"use {job.says('precision', 'bf16')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/precision", message, hint)
