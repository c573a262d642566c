"""The record of Megatron-LM and Megatron-DeepSpeed, which share most of their options."""

from __future__ import annotations

from typing import Final

from ...submission.record import Beside, DocumentKind, ProgramRecord, Role, Rules, Says

MEGATRON: Final = ProgramRecord(
    name="megatron",
    kinds=(
        DocumentKind(
            name="Megatron arguments",
            reader="programs.megatron.arguments:read_file",
            beside=Beside(role=Role.MEGATRON_ARGUMENTS),
        ),
    ),
    rules=(
        Rules(
            folder="programs.megatron.rules",
            modules=(
                "options",
                "shape",
                "batch",
                "megatron_lm",
                "environment",
                "megatron_deepspeed",
                "front_ends",
            ),
            when=lambda submission: submission.has("Megatron arguments"),
        ),
    ),
    job_rules=("programs.megatron.tokenizer", "programs.megatron.choices"),
    degrees=(
        Says(
            function="programs.megatron.claims:degrees_of",
            when=lambda submission: submission.has("Megatron arguments"),
        ),
    ),
    consumer=Says(
        function="programs.megatron.claims:consumer_of",
        when=lambda submission: submission.job or submission.has("Megatron arguments"),
    ),
    frameworks={
        "megatron-deepspeed": "programs.megatron.write_deepspeed:FRAMEWORK",
        "megatron-lm": "programs.megatron.write:FRAMEWORK",
    },
    log="programs.megatron.log:read",
)
