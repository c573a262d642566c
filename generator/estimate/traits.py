"""What sets frameworks and accelerator generations apart: the few constants that are not in a formula."""

from __future__ import annotations

from ..catalog.records import Accelerator
from ..job.records import Job
from ..units import GIB

_UNFUSED_LOSS_BYTES = 54  #: counted from the operators of Megatron-LM's vocab_parallel_cross_entropy


def loss_traffic_bytes(job: Job) -> float:
    """Device memory traffic a logit of the loss: the framework's, or Megatron's without fusion."""
    traits = job.framework
    unfused = job.training.cross_entropy == "unfused" and traits.cross_entropy == "fused"
    return _UNFUSED_LOSS_BYTES if unfused else traits.loss_traffic_bytes


def uses_fused_kernels(job: Job) -> bool:
    """Whether normalisation and activation are one kernel each and keep their input only."""
    return job.framework.fused if job.training.kernels is None else job.training.kernels == "fused"


#: The driver's context: 1.1 GiB on V100, 1.6 GiB on A100 (BigScience's logs); A100's assumed on what is newer.
_CONTEXT_BYTES = {"volta": 1.1 * GIB}
_USUAL_CONTEXT_BYTES = 1.6 * GIB


def context_bytes(accelerator: Accelerator) -> float:
    """Device memory that the driver takes before the framework allocates anything."""
    return _CONTEXT_BYTES.get(accelerator.generation, _USUAL_CONTEXT_BYTES)
