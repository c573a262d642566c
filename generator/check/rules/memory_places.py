"""Where a job keeps what the GPUs don't hold: NVMe folders, and the model while it is loaded."""

from __future__ import annotations

import re
from typing import Final

from ...findings import WARNING, Violation, Violations
from ...programs.deepspeed.config import Config
from ...programs.rule import submissions
from ...programs.subjects import ds_configs
from ...programs.submission import Submission
from ...rules.sources import deepspeed_now, derived

#: Where clusters commonly mount file systems that all nodes share.
_SHARED: Final = re.compile(
    r"/(?:home|nfs|lustre|gpfs|beegfs|weka|fsx|efs|shared|blob|mnt/(?:nfs|lustre|shared|home|blob|azureml)|p?work|projects?)(?:/|$)"
)
_OFFLOADS: Final = ("/zero_optimization/offload_optimizer", "/zero_optimization/offload_param")
_WHOLE: Final = "every rank loads the whole model into the node's memory"


@ds_configs.rule("MEM003", WARNING, "training", derived("DeepNVMe reads and writes the states of every step"))
def nvme_folder_is_the_nodes_own(config: Config) -> Violations:
    """Offloading to NVMe goes to a disk of the node's own.

    Prevents: No error: steps take minutes, and the file system is slow for everybody. A guess by the path's name.
    Fix: use the node's own disk"""
    for place in _OFFLOADS:
        path = config.value(f"{place}/nvme_path")
        if config.text(f"{place}/device") == "nvme" and isinstance(path, str) and _SHARED.match(path):
            message = f"nvme_path: {path} looks like a file system that the nodes share: all of them swap over it"
            where = config.locate(f"{place}/nvme_path")
            yield Violation(where, message, "use the node's own disk, such as /local_nvme")


@submissions.rule(
    "MEM004",
    WARNING,
    "init",
    deepspeed_now("runtime/zero/stage3.py, estimate_zero3_model_states_mem_needs: GPUs per node × 4 bytes a parameter"),
    reads=("accelerate config", "launch script"),
)
def model_is_loaded_in_parts(submission: Submission) -> Violations:
    """With ZeRO-3 accelerate loads the model in parts: zero3_init_flag.

    Prevents: Killed: one node's memory holds eight copies of the model.
    Fix: set zero3_init_flag to true"""
    for config in submission.accelerate_configs:
        if config.zero_stage == 3 and config.deepspeed.get("zero3_init_flag") is False:
            message = f"zero_stage: 3 with zero3_init_flag: false: {_WHOLE}"
            yield Violation(config.locate("deepspeed_config/zero3_init_flag"), message, "set zero3_init_flag to true")
    for launch in submission.launches:
        call = launch.call("accelerate")
        option = call.options.get("--zero3_init_flag") if call else None
        if call is None or option is None or (call.options.text("--zero3_init_flag") or "").lower() != "false":
            continue
        if call.options.integer("--zero_stage") == 3:
            message = f"--zero_stage 3 with --zero3_init_flag false: {_WHOLE}"
            yield Violation(launch.script.locate(option.written), message, "use --zero3_init_flag true")
