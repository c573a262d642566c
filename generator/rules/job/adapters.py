"""LoRA and the 8-bit Adam against the framework, the model and the precision."""

from __future__ import annotations

from ...estimate.adapters import ALL_LINEAR, ATTENTION, has_known_modules, projections
from ...estimate.model_size import dense_layers
from ...findings import ERROR, Violations
from ...job.records import Job
from ..planned import jobs, jobs_of, violation
from ..sources import derived, transformers

_trainer_jobs = jobs_of("Trainer")
_TENSORS = "models/mixtral/modeling_mixtral.py, MixtralExperts: parameters of three dimensions"


@jobs.rule("LORA001", ERROR, "silent", derived("adapters are peft's, which wraps models of transformers"))
def lora_needs_the_trainer(job: Job) -> Violations:
    """LoRA is trained with the Hugging Face Trainer.

    Prevents: No error: other launch files have no adapters, and the whole model would be trained.
    Fix: set framework to huggingface, or remove training.lora"""
    if job.training.lora is not None and not job.framework.runs("Trainer"):
        message = f"training.lora is not available with {job.says('framework', job.framework)}"
        hint = f"use {job.says('framework', 'huggingface')}, or remove training.lora"
        yield violation(job, "/training/lora", message, hint)


@_trainer_jobs.rule("LORA002", ERROR, "init", derived("peft's LoraConfig names modules by the model's own names"))
def lora_needs_known_modules(job: Job) -> Violations:
    """A model for LoRA has linear layers that are named as in Llama.

    Prevents: peft stops at start on names that the model lacks, or other layers than the estimated ones get adapters.
    Fix: use a model of a family with q_proj, k_proj, v_proj and o_proj, or remove training.lora"""
    if job.training.lora is not None and not has_known_modules(job.model):
        message = f"the linear layers of {job.model.name} ({job.model.family}) are not planned for LoRA"
        hint = (
            "use a model whose layers are named as in Llama, such as llama, qwen3 or mistral, or remove training.lora"
        )
        yield violation(job, "/training/lora", message, hint)


@_trainer_jobs.rule("LORA003", ERROR, "silent", transformers(_TENSORS))
def lora_modules_exist(job: Job) -> Violations:
    """Every module with adapters is a linear layer of the model; routed experts are none.

    Prevents: No error: names that the model lacks get no adapter, unless none is left.
    Fix: name modules that the model has in training.lora.modules"""
    lora = job.training.lora
    if lora is None or lora.modules in ((ALL_LINEAR,), (ATTENTION,)) or not has_known_modules(job.model):
        return
    kinds = ([False] if dense_layers(job.model) else []) + ([True] if job.model.is_moe else [])
    known = list(dict.fromkeys(p.name for moe in kinds for p in projections(job.model, moe=moe)))
    missing = [name for name in lora.modules if name not in known]
    if missing:
        experts = f", whose {job.model.experts} routed experts are no linear layers" if job.model.is_moe else ""
        message = f"{', '.join(missing)}: no linear layer of {job.model.name}{experts}"
        yield violation(job, "/training/lora/modules", message, f"use modules: [{', '.join(known)}], or some of these")


@_trainer_jobs.rule("LORA004", ERROR, "silent", transformers(_TENSORS))
def four_bits_need_linear_layers(job: Job) -> Violations:
    """A base in 4 bits is a dense model.

    Prevents: No error: bitsandbytes quantizes linear layers only, the experts stay in 16 bits and fill the memory.
    Fix: set training.lora.base to unquantized"""
    if job.training.lora is not None and job.training.lora.base == "4bit" and job.model.is_moe:
        message = f"base: 4bit leaves the {job.model.experts} experts a layer of {job.model.name} in 16 bits"
        yield violation(job, "/training/lora/base", message, "use base: unquantized")


@_trainer_jobs.rule("LORA005", ERROR, "silent", derived("peft computes adapters in the weights' type"))
def lora_has_no_fp8(job: Job) -> Violations:
    """LoRA is trained in bf16, fp16 or fp32, not in fp8.

    Prevents: No error: adapters and quantized layers replace the model's own layers, so that nothing computes in fp8.
    Fix: set training.precision to bf16"""
    if job.training.lora is not None and job.training.precision == "fp8":
        message = f"training.lora with {job.says('precision', 'fp8')} computes in 16 bits"
        yield violation(job, "/training/precision", message, f"use {job.says('precision', 'bf16')}")
