"""Who starts the processes of a Kubernetes job: its launchers against its pods and their GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, WARNING, Violations
from ....rules.sources import derived, training_operator
from ....rules.violations import violation
from ...cluster_jobs import Replicated, one_process, replicated, without_the_other_nodes
from ...rule import subject
from ...secret_rules import secrets_of
from ...submission import Submission
from ..job import KubernetesJob
from .jobs import jobs

_ENVIRONMENT: Final = training_operator("controller.v1/pytorch/envvar.go:99")
_PROCESSES: Final = {"PyTorchJob": "spec/nprocPerNode", "TrainJob": "spec/trainer/numProcPerNode"}
_OTHERS: Final = derived("a JobSet sets no variable that a launcher reads; torch/distributed/run.py: --nnodes is 1:1")


@jobs.rule("KUB020", ERROR, "init", _ENVIRONMENT)
def processes_are_the_gpus(job: KubernetesJob) -> Violations:
    """nprocPerNode is the number of a pod's GPUs, where torchrun is not told otherwise.

    Prevents: CUDA error: invalid device ordinal; or, a warning, GPUs that are paid for and not used.
    Fix: set it to the GPUs of a pod"""
    at = _PROCESSES.get(job.kind_of_job, "")
    text, gpus = str(job.value(at)) if at else "", job.gpus
    calls = [call for launch in job.launches for call in launch.calls if call.program == "torchrun"]
    if not text.isdecimal() or not gpus or not calls or int(text) == gpus:
        return
    if not any(call.options.opaque or call.options.has("--nproc-per-node") for call in calls):
        count, key = int(text), at.rpartition("/")[2]
        effect = f"{gpus - count} of them are not used" if count < gpus else "the rest find no device"
        message = f"{key} is {count}; a pod has {gpus} GPUs: {effect}"
        yield violation(job, at, message, f"set {key} to {gpus}", severity=ERROR if count > gpus else WARNING)


@subject("Kubernetes job")
def _replicated(submission: Submission) -> Iterator[Replicated]:
    return replicated(jobs(submission))


@_replicated.rule("KUB021", ERROR, "silent", _OTHERS)
def launchers_know_the_other_pods(started: Replicated) -> Violations:
    """A launcher in the pods of a job gets the number of nodes, from the controller or by an option.

    Prevents: No error: as many trainings as there are pods, each by itself. A warning for a launcher that may read a
    file of the image's.
    Fix: use torchrun, in a JobSet with PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR"""
    job_set = isinstance(started.job, KubernetesJob) and started.job.kind_of_job == "JobSet"
    hint = "set PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR, which torchrun reads"
    yield from without_the_other_nodes(
        started, hint if job_set else "start torchrun, which the controller's variables tell"
    )


@jobs.rule("KUB023", WARNING, "silent", derived("DeepSpeed and Megatron take one GPU for each process"))
def every_gpu_has_a_process(job: KubernetesJob) -> Violations:
    """A training with DeepSpeed or Megatron in a pod of several GPUs is started by torchrun.

    Prevents: No error: one busy GPU in each pod.
    Fix: start it by torchrun"""
    yield from one_process(job)


@subject("Kubernetes job")
def _submissions(submission: Submission) -> Iterator[Submission]:
    if submission.kubernetes_jobs:
        yield submission


@_submissions.rule("KUB022", WARNING, "silent", derived("whoever may read the resource reads its variables"))
def jobs_hold_no_secret(submission: Submission) -> Violations:
    """Tokens and passwords are not written into a job: everybody who may read it has them.

    Prevents: No error: a token that others can read and use.
    Fix: keep it in a Secret, and name that by valueFrom.secretKeyRef"""
    hint = "keep it in a Secret, and name that by valueFrom: {secretKeyRef: {name: ..., key: ...}}"
    paths = {job.path for job in submission.kubernetes_jobs}
    yield from secrets_of(submission, paths, "everybody who can read the job has it", hint)
