"""ZeRO++'s quantized communication: which programs, types and machines it is for."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import ERROR, Violations
from ...job.records import Job
from ..planned import jobs, violation
from ..sources import deepspeed_now, derived

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
            mine = ".".join(map(str, job.deepspeed_version))
            message = f"training.{job.says(key, True)} with {job.says('precision', precision)}: DeepSpeed {mine}"
            message += " reads the bits as fp16"
            yield violation(job, f"/training/{key}", message, f"use {job.says('precision', 'fp16')}, or remove {key}")
