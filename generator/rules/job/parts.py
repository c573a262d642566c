"""Parts of a model that a Megatron has no option for: the run would train another model than the one named."""

from __future__ import annotations

from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ...rule import Arguments
from ..planned import jobs, violation
from ..sources import derived, megatron_deepspeed

_SILU = ("silu", "swish", "swiglu")
#: Rotary scalings that an option of Megatron-LM makes; latent attention has YaRN of its own.
_MEGATRON_LM_SCALINGS = ("none", "llama3")


def missing_parts(job: Job) -> tuple[str, ...]:
    """What `job.model` has and no option of the job's Megatron makes, in words; empty for the other frameworks."""
    if not job.framework.runs("Megatron layers"):
        return ()
    if job.framework.runs("Megatron-LM"):
        parts = _missing(job, _MEGATRON_LM_SCALINGS)
    else:
        parts = {**_missing(job, ("none",)), **_missing_here(job)}
    return tuple(part for part, needed in parts.items() if needed)


def _missing(job: Job, scalings: tuple[str, ...]) -> dict[str, bool]:
    """What neither Megatron has, where options make these rotary scalings."""
    model = job.model
    return {
        f"MLPs gated by {model.activation}": model.gated_mlp and model.activation not in _SILU,
        f"{model.rotary_scaling} scaling of rotary positions": model.rotary_scaling not in scalings,
        "normalisation of queries and keys over all heads at once": model.qk_norm == "full",
        "attention and MLP side by side": model.norms_per_layer == 1,
        "normalisation after attention and MLP": model.norms_per_layer > 2,
        "an embedding of another width": model.embedding_width is not None,
    }


def _missing_here(job: Job) -> dict[str, bool]:
    """What Megatron-LM has and Megatron-DeepSpeed has not, beyond what rules of its own refuse."""
    model = job.model
    others = model.output_bias or model.mlp_bias or model.expert_bias
    return {
        "normalisation of queries and keys": model.qk_norm == "head",
        "attention sinks": model.attention_sinks,
        "query, key and value biases without others": model.qkv_bias and not others,
        "sliding-window attention": model.sliding_window is not None
        and model.sliding_window < job.training.sequence_length,
    }


@jobs.rule(
    "MLM045", WARNING, "silent", derived("the options of either Megatron's arguments.py, core_v0.16.1 and 4efb479d")
)
def megatron_makes_every_part(job: Job) -> Violations:
    """Every part of the model is one that the framework's options make.

    Prevents: No error: the model trained would be another one, without the parts named.
    Fix: framework: huggingface, or a script that has them
    """
    missing = missing_parts(job)
    if not missing:
        return
    message = f"{job.model.name} has {', '.join(missing)}, for which framework: {job.framework} has no option"
    other = "huggingface" if any(_missing(job, _MEGATRON_LM_SCALINGS).values()) else "megatron-lm"
    yield violation(
        job, "/model", f"{message}: it would train without", f"framework: {other}, or a change to the script"
    )


@jobs.rule(
    "MDS023",
    ERROR,
    "init",
    megatron_deepspeed("megatron/model/transformer.py:1772"),
    arguments=Arguments(facts=("precision", "heads", "kv_heads")),
)
def megatron_deepspeed_computes_fp8_with_equal_heads(job: Job) -> Violations:
    """Megatron-DeepSpeed's FP8 layers want as many key-value heads as attention heads.

    Prevents: Megatron-DeepSpeed stops on an assertion when it builds the FP8 layers.
    Fix: training.precision: bf16, or framework: megatron-lm
    """
    model = job.model
    if not job.framework.runs("Megatron-DeepSpeed") or job.training.precision != "fp8" or model.kv_heads == model.heads:
        return
    message = (
        f"precision: fp8 with the {model.kv_heads} key-value heads of {model.name}, which has {model.heads} attention"
        f" heads, is refused by framework: {job.framework}"
    )
    yield violation(job, "/training/precision", message, "precision: bf16, or framework: megatron-lm")
