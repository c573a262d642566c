"""Messages of the rules on jobs in the words of someone who wrote Megatron options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ....documents.megatron_run import CONTEXT, EXPERT, GLOBAL, MICRO, PIPELINE, TENSOR, ULYSSES
from ....estimate.layout import Layout

LM = "megatron-lm"

_NUMBERS: Final = r"(\d+(?:(?:, | or )\d+)*)"
_SHARED: Final[Mapping[str, str]] = {
    r"\bmicro_batch: ": f"{MICRO} ",
    r"\bglobal_batch: ": f"{GLOBAL} ",
    r"\btensor: ": f"{TENSOR} ",
    r"\bpipeline: ": f"{PIPELINE} ",
    r"\bvirtual_pipeline: 1\b": "no interleaving",
    r"\bvirtual_pipeline: ": "--num-virtual-stages-per-pipeline-rank ",
    r"\bsequence_length: ": "--seq-length ",
    rf"\bgpus: {_NUMBERS}": r"\1 GPUs",
    rf"\bdata: {_NUMBERS}": r"\1 replicas",
    rf"\bgradient_accumulation: {_NUMBERS}( micro-batches)?": r"\1 micro-batches",
    r"\bsequence_parallel: true\b": "--sequence-parallel",
    r"\bsequence_parallel: false\b": "no --sequence-parallel",
    r"\bwith a MoE model and no --sequence-parallel\b": "with a MoE model and without --sequence-parallel",
    r"\bframework: megatron-lm\b": "Megatron-LM",
    r"\bframework: megatron-deepspeed\b": "Megatron-DeepSpeed",
    r"\brecompute: none or full\b": "no recomputation, or full",
    r"\brecompute: selective\b": "--recompute-granularity selective",
    r"\boffload: none\b": "no offload",
    r"\boffload: optimizer\+parameters\b": "offload of optimizer and parameters",
    r"\boffload: optimizer\b": "offload of the optimizer",
    r"\bprecision: (bf16|fp16)\b": r"--\1",
    r"\bprecision: (fp8|fp32)\b": r"\1",
    r"\battention: (\w+)": r"\1 attention",
    r"\bvocab_size: (\d+) makes.*": r"nothing to mend: checkpoints have \1 rows",
    r"(\d+ micro-batches) is less than": r"\1 are fewer than",
    r"\bthis model, a (dense )?model\b": r"a \1model",
}
_OF_LM: Final[Mapping[str, str]] = {
    r"\bcontext: ": f"{CONTEXT} ",
    r"\bexpert: ": f"{EXPERT} ",
    r"\bzero_stage: 1\b( \(the distributed optimizer\))?": "--use-distributed-optimizer",
    r"\bzero_stage: (\d)": r"ZeRO \1",
    r"\brecompute: full\b": "--recompute-granularity full",
    r"\boffload: optimizer\b": "--optimizer-cpu-offload",
}
_OF_MDS: Final[Mapping[str, str]] = {
    r"\bcontext: ": f"{ULYSSES} ",
    r"\bexpert: ": "--moe-expert-parallel-size ",
    r"\bzero_stage: (\d(?: or \d)?)": r"ZeRO stage \1",
    r"\brecompute: full\b": "--checkpoint-activations",
}


def in_options(flavour: str) -> Callable[[str], str]:
    """What turns the keys of a job spec in a text into the options of a Megatron."""
    words = {**(_OF_LM if flavour == LM else _OF_MDS), **_SHARED}
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in words.items()]

    def translate(text: str) -> str:
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)
        return text

    return translate


_ACCUMULATION: Final = re.compile(r"\bgradient_accumulation: ((?:\d+(?:, | or )?)+)")


def with_global_batch(hint: str, layout: Layout) -> str:
    """Numbers of micro-batches in a hint as the global batches that make them."""
    unit = layout.micro_batch * layout.data

    def batches(match: re.Match[str]) -> str:
        return "global_batch: " + re.sub(r"\d+", lambda number: str(int(number.group()) * unit), match.group(1))

    return _ACCUMULATION.sub(batches, hint)
