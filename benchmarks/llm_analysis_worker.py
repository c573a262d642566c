"""llm-analysis's estimates for the runs that standard input describes; `benchmarks.other_tools`
starts it.

It runs in an environment of its own, which has llm-analysis and not dsgen.
"""

import contextlib
import json
import logging
import sys

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

#: The memory and rates of the device don't change what is counted.
GPU = GPUConfig(
    name="any",
    mem_per_GPU_in_GB=1e6,
    hbm_bandwidth_in_GB_per_sec=2000,
    intra_node_bandwidth_in_GB_per_sec=300,
    intra_node_min_message_latency=1e-5,
    peak_fp16_TFLOPS=312,
)
COUNTED = ("weight", "gradient", "optimizer_state", "activation")


def main():
    """Answer with a number of bytes for each run, or null where the tool refuses it."""
    logging.disable()
    with contextlib.redirect_stdout(sys.stderr):
        answers = [estimate(run) for run in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


def estimate(run):
    """Bytes on a GPU."""
    analysis = LLMAnalysis(
        ModelConfig(**run["model"]),
        GPU,
        DtypeConfig(),
        ParallelismConfig(**run["parallelism"]),
        flops_efficiency=0.5,
    )
    try:
        found = analysis.training(
            **run["training"],
            activation_recomputation=ActivationRecomputation[run["recompute"]],
            ds_zero=DSZeRO(run["zero"]),
        )
    except AssertionError:
        return None
    return sum(found[f"{part}_memory_per_gpu"] for part in COUNTED)


if __name__ == "__main__":
    main()
