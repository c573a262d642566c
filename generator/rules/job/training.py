"""Training against model and framework: types of its states, quantized communication, and adapters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...estimate.adapters import ALL_LINEAR, ATTENTION, has_known_modules, projections
from ...estimate.model_size import dense_layers
from ...findings import ERROR, Violations
from ...job.records import Job
from ...job.wording import dots
from ..planned import jobs, jobs_of, lm_jobs, violation
from ..violations import deepspeed_now, derived, megatron_lm, transformers

_KERNEL = "ops/csrc/quantization/pt_binding.cpp:154"
#: The first DeepSpeed that converts bf16 weights before its kernel, which reads fp16.
FIRST_WITH_BF16 = (0, 19, 6)


def _asked(job: Job) -> Iterator[str]:
    for key in ("quantized_weights", "quantized_gradients"):
        if getattr(job.training, key):
            yield key


@jobs.rule("ZERO087", ERROR, "silent", derived("zero_quantized_weights and _gradients are keys of DeepSpeed's config"))
def quantized_communication_is_deepspeeds(job: Job) -> Violations:
    """Quantized weights and gradients are DeepSpeed's.
    Prevents: No error: other frameworks have no such option, and nothing would be quantized.
    Fix: remove the key, or use a framework that runs on DeepSpeed"""
    for key in () if job.framework.runs("DeepSpeed engine") else _asked(job):
        message = f"training.{job.says(key, True)} is not available with {job.says('framework', job.framework)}"
        hint = f"remove it, or use {job.says('framework', 'deepspeed')}"
        yield violation(job, f"/training/{key}", message, hint)


@jobs.rule("ZERO088", ERROR, "silent", deepspeed_now(f"runtime/zero/partition_parameters.py:893; {_KERNEL}"))
def quantized_values_are_half(job: Job) -> Violations:
    """Gradients are quantized from fp16, and weights from fp16, or from bf16 since DeepSpeed 0.19.6.
    Prevents: Values that are silently wrong: the kernels read the bits of other types as fp16.
    Fix: set training.precision to fp16, or remove quantized_gradients"""
    precision, reads_bf16 = job.training.precision, job.deepspeed_version >= FIRST_WITH_BF16
    for key in _asked(job):
        converts = key == "quantized_weights" and reads_bf16 and precision in ("bf16", "fp8")
        if precision != "fp16" and not converts:
            both = f"training.{job.says(key, True)} with {job.says('precision', precision)}"
            message = f"{both}: DeepSpeed {dots(job.deepspeed_version)} reads the bits as fp16"
            yield violation(job, f"/training/{key}", message, f"use {job.says('precision', 'fp16')}, or remove {key}")


def _narrow_states(job: Job) -> list[tuple[str, str]]:
    """The state types that are set and not fp32."""
    types = [(key, getattr(job.training, key)) for key in ("moment_dtype", "master_dtype")]
    return [(key, kept) for key, kept in types if kept not in (None, "fp32")]


@jobs.rule("OPT042", ERROR, "silent", derived("only Megatron-LM's --use-precision-aware-optimizer sets them"))
def framework_has_state_types(job: Job) -> Violations:
    """Optimizer states other than fp32 need Megatron-LM, or 8-bit Adam of the Trainer.
    Prevents: No error: the optimizer's states would be fp32, and the job could run out of memory.
    Fix: remove moment_dtype and master_dtype, or use framework: megatron-lm"""
    if job.framework.runs("Megatron-LM"):
        return
    for key, kept in _narrow_states(job):
        message = f"{job.says(key, kept)} is not available with {job.says('framework', job.framework)}"
        hint = f"use {job.says(key, 'fp32')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, f"/training/{key}", message, hint)


@lm_jobs.rule(
    "OPT043", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py (use_precision_aware_optimizer)")
)
def precision_aware_optimizer_is_adam(job: Job) -> Violations:
    """Optimizer states other than fp32 need Adam.
    Prevents: Megatron-LM stops at start on an assertion: its precision-aware optimizer is Adam only.
    Fix: set training.optimizer to adamw, or remove moment_dtype and master_dtype"""
    for key, kept in _narrow_states(job):
        if job.training.optimizer == "sgd":
            message = f"{job.says(key, kept)} with {job.says('optimizer', 'sgd')}: the optimizer has to be Adam"
            hint = f"use {job.says('optimizer', 'adamw')}, or {job.says(key, 'fp32')}"
            yield violation(job, f"/training/{key}", message, hint)


@jobs.rule("PREC031", ERROR, "silent", megatron_lm("training/arguments.py (--fp8-param-gather)"))
def fp8_parameters_need_fp8(job: Job) -> Violations:
    """Weights in fp8, and a recipe of their scales, need Megatron-LM and products in fp8.
    Prevents: The option has no effect without fp8 products, or the framework has none: weights stay in 16 bits.
    Fix: set training.precision to fp8 with framework: megatron-lm, or remove fp8_parameters and fp8_recipe"""
    given = {"fp8_parameters": job.training.fp8_parameters, "fp8_recipe": job.training.fp8_recipe}
    missing = []
    if not job.framework.runs("Megatron-LM"):
        missing.append((job.says("framework", job.framework), job.says("framework", "megatron-lm")))
    if job.training.precision != "fp8":
        missing.append((job.says("precision", job.training.precision), job.says("precision", "fp8")))
    for key, (found, wanted) in product((key for key in given if given[key] not in (False, "delayed")), missing):
        message = f"{job.says(key, given[key])} with {found} has no effect"
        yield violation(job, f"/training/{key}", message, f"use {wanted}, or remove {key}")


@jobs.rule("OPT044", ERROR, "init", derived("bitsandbytes' AdamW is the Trainer's --optim adamw_bnb_8bit"))
def framework_has_8bit_adam(job: Job) -> Violations:
    """Adam in 8 bits needs the Hugging Face Trainer.
    Prevents: DeepSpeed stops at start: it has no optimizer of that name.
    Fix: set training.optimizer to adamw, or use framework: huggingface"""
    if job.training.optimizer == "adamw-8bit" and job.framework.runs("own script"):
        message = f"{job.says('optimizer', 'adamw-8bit')} is not available with {job.says('framework', job.framework)}"
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', 'huggingface')}"
        yield violation(job, "/training/optimizer", message, hint)


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
