"""Rules on choices of `training` that Megatron-LM has by release and by machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...estimate.groups import FLEXIBLE
from ...findings import ERROR, Violation, Violations
from ...job.arguments import options_of
from ...job.records import Job
from ...rules.planned import composed_jobs
from ...rules.violations import derived, megatron_lm, violation
from ...text.wording import dots
from .options import LM, flavour_of

# Releases of Megatron-Core; the rules below say where each is seen.
_FIRST_WITHOUT_TE_LOSS: Final = (0, 18)
_FIRST_WITH_STATIC_SIZES: Final = (0, 18)
_FIRST_WITH_DEPTHS_OF_PATTERNS: Final = (0, 17)
#: Options that change memory or time by what no key of the spec says, with what they do.
_UNCOUNTED: Final = {
    "--cpu-offloading-num-layers": "moves activations to the host",
    "--defer-embedding-wgrad-compute": "keeps the head's inputs for a later product",
    "--fine-grained-activation-offloading": "moves activations to the host",
    "--offload-modules": "moves activations to the host",
    "--fp4-format": "computes in fp4",
    "--microbatch-group-size-per-virtual-pipeline-stage": "changes the order of micro-batches",
    "--tensor-parallel-num-weight-shards": "gathers weights in every layer",
    "--expert-tensor-parallel-num-weight-shards": "gathers weights in every layer",
    "--use-torch-fsdp2": "shards weights by another engine",
}
#: Options that say what a key of the spec says, with that key.
_SAID_BY: Final = {
    "--moe-token-dispatcher-type": "training.dispatcher",
    "--moe-flex-dispatcher-backend": "training.dispatcher",
    "--moe-enable-deepep": "training.dispatcher",
    "--use-precision-aware-optimizer": "training.moment_dtype",
    "--cuda-graph-impl": "training.cuda_graphs",
    "--enable-cuda-graph": "training.cuda_graphs",
    "--external-cuda-graph": "training.cuda_graphs",
    "--moe-paged-stash": "training.paged_stash",
    "--moe-expert-rank-capacity-factor": "training.expert_capacity",
}


@composed_jobs.rule(
    "MLM140",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1642-1647"),
)
def loss_is_one_of_the_release(job: Job) -> Violations:
    """Transformer Engine's fused loss runs with Megatron-Core before 0.18.
    Prevents: AssertionError: Transformer Engine cross entropy loss fusion is disabled due to
    stability issues
    Fix: set training.cross_entropy to unfused"""
    release = job.megatron_version
    if job.training.cross_entropy == "te" and release >= _FIRST_WITHOUT_TE_LOSS:
        said = job.says("cross_entropy", "te")
        message = f"{said} is refused by Megatron-LM {dots(release)}, as unstable"
        hint = f"use {job.says('cross_entropy', 'unfused')}, which needs 6 bytes a logit for its 4"
        yield violation(job, "/training/cross_entropy", message, hint)


@composed_jobs.rule("MLM141", ERROR, "init", derived("deepseek-ai/DeepEP, README"))
def dispatcher_runs_on_the_accelerator(job: Job) -> Violations:
    """DeepEP and HybridEP run on Hopper and later.
    Prevents: DeepEP has no kernels for the device, and the first step stops
    Fix: set training.dispatcher to alltoall"""
    kind, accelerator = job.training.dispatcher, job.cluster.accelerator
    if flavour_of(job) == LM and kind in FLEXIBLE and not accelerator.generation.deepep:
        message = f"{job.says('dispatcher', kind)} has no kernels for {accelerator.name}"
        hint = f"use {job.says('dispatcher', 'alltoall')}"
        yield violation(job, "/training/dispatcher", message, hint)


@composed_jobs.rule(
    "MLM151",
    ERROR,
    "init",
    megatron_lm("training/arguments.py, core_v0.16.1 to core_v0.19.0"),
)
def depths_have_rotary_positions(job: Job) -> Violations:
    """Multi-token prediction has rotary positions or none.
    Prevents: AssertionError: Multi-Token Prediction (MTP) is not supported with learned_absolute
    position embedding type.
    Fix: set training.mtp_depths to 0"""
    kind, depths = job.model.position_embedding, job.training.mtp_depths
    if depths and flavour_of(job) == LM and kind == "learned":
        message = f"{job.says('mtp_depths', depths)} is refused with learned positions"
        hint = f"use {job.says('mtp_depths', 0)}, or a model with rotary positions"
        yield violation(job, "/training/mtp_depths", message, hint)


@composed_jobs.rule("MLM144", ERROR, "silent", derived("the plan counts without these options"))
def arguments_leave_the_plan_as_it_is(job: Job) -> Violations:
    """Options in launch.arguments change nothing that the plan counts with.
    Prevents: No error: the run needs other memory and time than the plan says.
    Fix: remove the option, or set the key that says the same"""
    for option in options_of(job.launch.arguments):
        uncounted = why_uncounted(option.key, option.values)
        if uncounted:
            where = job.locate(f"/launch/arguments/{option.at}")
            key = _SAID_BY.get(option.key)
            hint = f"remove it, and set {key}" if key else "remove it, and add it to the files"
            yield Violation(where, f"{option.written} {uncounted}", hint)


def why_uncounted(option: str, values: Sequence[str]) -> str | None:
    """Return what an option of Megatron-LM does that no plan counts; None where it does nothing."""
    if option in _SAID_BY:
        return f"says what {_SAID_BY[option]} says, with which the plan counts"
    effect = _UNCOUNTED.get(option)
    is_off = tuple(values[:1]) == ("0",)
    return f"{effect}, which no plan counts" if effect and not is_off else None


@composed_jobs.rule(
    "MLM156",
    ERROR,
    "silent",
    megatron_lm("mamba_builders.py, core_v0.16.1 (without an mtp_block_spec)"),
)
def depths_of_patterns_have_a_release(job: Job) -> Violations:
    """Multi-token prediction of a pattern of layers needs Megatron-Core 0.17.
    Prevents: No error: the depths aren't built, and the model learns to predict one token.
    Fix: set training.mtp_depths to 0, or use megatron_version 0.17.1 or later"""
    depths, release = job.training.mtp_depths, job.megatron_version
    if depths and job.model.pattern and release < _FIRST_WITH_DEPTHS_OF_PATTERNS:
        said = job.says("mtp_depths", depths)
        message = f"{said} has no effect on layers of a pattern in Megatron-LM {dots(release)}"
        hint = f"use {job.says('mtp_depths', 0)}, or megatron_version 0.17.1 or later"
        yield violation(job, "/training/mtp_depths", message, hint)


@composed_jobs.rule(
    "MLM162",
    ERROR,
    "init",
    megatron_lm("training/arguments.py, core_v0.17.1 (without a capacity of ranks)"),
)
def experts_are_in_graphs_of_later_releases(job: Job) -> Violations:
    """A CUDA graph of whole iterations with experts needs Megatron-Core 0.18.
    Prevents: error: unrecognized arguments: --moe-expert-rank-capacity-factor
    Fix: set training.cuda_graphs to partial, or use megatron_version 0.18.2 or later"""
    release = job.megatron_version
    if job.replays_experts and release < _FIRST_WITH_STATIC_SIZES:
        said = job.says("cuda_graphs", "full_iteration")
        message = f"{said} with experts is not available in Megatron-LM {dots(release)}"
        hint = f"use {job.says('cuda_graphs', 'partial')}, or megatron_version 0.18.2 or later"
        yield violation(job, "/training/cuda_graphs", message, hint)


@composed_jobs.rule(
    "MLM163",
    ERROR,
    "init",
    megatron_lm(
        "core/transformer/transformer_config.py:1692-1705, core/transformer/moe/experts.py, "
        "_is_fused_impl_supported (core_v0.19.0); Transformer Engine 2.16 "
        "pytorch/ops/basic/grouped_linear.py, _is_graph_safe_path_supported: else the sizes are "
        "read back"
    ),
)
def graphed_experts_have_static_sizes(job: Job) -> Violations:
    """Experts in a CUDA graph of whole iterations have HybridEP's fixed sizes, and fused kernels.
    Prevents: an operation not permitted when stream is capturing, or AssertionError: Fused
    GroupedMLP is not supported for this configuration.
    Fix: set training.dispatcher to hybridep, or training.cuda_graphs to partial"""
    if not job.replays_experts:
        return
    said, partial = (job.says("cuda_graphs", kind) for kind in ("full_iteration", "partial"))
    accelerator = job.cluster.accelerator
    if "mxfp8" not in accelerator.generation.fp8_recipes:
        message = f"{said} with experts needs kernels that {accelerator.name} doesn't have"
        yield violation(job, "/training/cuda_graphs", message, f"use {partial}")
    elif job.training.precision == "fp8" and job.training.fp8_recipe != "mxfp8":
        message = f"{said} with experts in fp8 needs {job.says('fp8_recipe', 'mxfp8')}"
        hint = f"use {job.says('fp8_recipe', 'mxfp8')}, or {partial}"
        yield violation(job, "/training/cuda_graphs", message, hint)
    if job.training.dispatcher != "hybridep":
        message = f"{said} with experts needs {job.says('dispatcher', 'hybridep')}"
        hint = f"use {job.says('dispatcher', 'hybridep')}, or {partial}"
        yield violation(job, "/training/cuda_graphs", message, hint)
    experts = job.model.feed_forward
    # Llama 4 weighs the experts' input and not their output.
    weighs_input = job.model.family == "llama4_text"
    if weighs_input or not (experts.gated or experts.activation == "relu2"):
        message = f"{said} has no fused kernel for the experts of {job.model.name}"
        yield violation(job, "/training/cuda_graphs", message, f"use {partial}")


@composed_jobs.rule(
    "MLM164",
    ERROR,
    "silent",
    megatron_lm("core/transformer/transformer_config.py:1906-1910 (core_v0.19.0)"),
)
def stash_serves_graphs_of_experts(job: Job) -> Violations:
    """A paged stash and a capacity of experts go with a CUDA graph of whole iterations.
    Prevents: No error: nothing is written for them, and memory is another than planned.
    Fix: set training.cuda_graphs to full_iteration, or remove the key"""
    stated = {
        "paged_stash": job.training.paged_stash,
        "expert_capacity": job.training.expert_capacity,
    }
    for key, value in stated.items():
        if value and not job.replays_experts:
            said = job.says("cuda_graphs", "full_iteration")
            message = f"{job.says(key, value)} has no effect without experts and {said}"
            yield violation(job, f"/training/{key}", message, f"use {said}, or remove {key}")
