"""What is known to stop a job, or to make it slow without a word, before anybody starts it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...estimate.groups import flexible_dispatcher
from ...job.needs import written_for
from ...search.plan import Plan
from . import fabric

#: A part of the names of NVIDIA's images of PyTorch.
_NVIDIAS: Final = "nvidia/pytorch"
#: Packages that these images lack. Source: their release notes
#: (docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes), 26.06.
_LACKING: Final = ("deepspeed", "transformers", "accelerate", "peft")
#: What sends the experts' tokens, by dispatcher. Source: deepseek-ai/DeepEP, README.
_LIBRARIES: Final = {"deepep": "DeepEP", "hybridep": "DeepEP of its branch hybrid-ep"}


def blockers(plan: Plan) -> Iterator[str]:
    """A sentence for each, which says what to do."""
    job, options = plan.job, plan.job.launch.options
    needed = written_for(job)  # packages, and the image of pods
    in_pods = job.launch.target == "kubernetes"
    default_image = needed.get("image", "") if in_pods else ""
    image = str(options.get("container_image") or options.get("image") or default_image)

    packages = {package.lower() for package in needed}
    lacking = [name for name in _LACKING if name in packages]
    if _NVIDIAS in image.replace("#", "/") and lacking:
        them = "it" if len(lacking) == 1 else "them"
        names = " and ".join(lacking)
        yield f"Add {names} to the image: NVIDIA's image of PyTorch lacks {them}."

    dispatcher = flexible_dispatcher(job, plan.layout)
    if dispatcher is not None:
        where = "image" if image else "environment of the run"
        yield (
            f"{_LIBRARIES[dispatcher]} has to be in the {where}: it sends the experts' tokens "
            "(without it: training.dispatcher: alltoall)."
        )

    on_host = [f"launch.slurm.{key}" for key in ("modules", "setup") if options.get(key)]
    if job.launch.target == "slurm" and image and on_host:
        runs = "run" if len(on_host) > 1 else "runs"
        yield (
            f"{' and '.join(on_host)} {runs} outside of the container: what these install has to "
            "be in the image."
        )

    for network in fabric.needed(job):
        needs = [f"the image needs {network.image}"] if image and network.image else []
        needs += [f"each pod {network.pods}"] if in_pods and network.pods else []
        if needs:
            yield f"For {network.network}, {' and '.join(needs)}, or NCCL goes through TCP."
