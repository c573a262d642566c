"""Files of one submission against one another, and against the job that they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...documents.submission import Submission
from ...documents.world import FLAGS, Claim
from ...findings import Severity
from ..sources import derived
from .rule import Breach, DocumentRule


def gpus_agree(submission: Submission) -> Iterator[Breach]:
    """Every document of a submission counts the same GPUs, and starts one process on each."""
    world = submission.world
    for trusted in world.said("GPUs")[:1] or world.said("processes")[:1]:
        others = (*world.said("GPUs"), *world.said("processes"))
        for claim in _against(submission, trusted, others):
            what = "processes" if claim.quantity == "processes" else "GPUs"
            message = f"{claim.words} makes {claim.value} {what}; {_trusted(trusted)} makes {trusted.value} GPUs"
            yield Breach(where=claim.where, message=message, hint=_gpu_hint(submission, trusted))


def _gpu_hint(submission: Submission, trusted: Claim) -> str:
    each = submission.world.gpus_per_node
    if each and trusted.value % each == 0:
        return f"{trusted.value // each} nodes × {each} GPUs"
    return f"{trusted.value} in all, one process for each"


def nodes_agree(submission: Submission) -> Iterator[Breach]:
    """Every document of a submission counts the same nodes."""
    for trusted in submission.world.said("nodes")[:1]:
        for claim in _against(submission, trusted, submission.world.said("nodes")):
            message = f"{claim.words}: {claim.value} nodes; {_trusted(trusted)} says {trusted.value}"
            yield Breach(where=claim.where, message=message, hint=f"{trusted.value} in both")


def gpus_per_node_agree(submission: Submission) -> Iterator[Breach]:
    """Every document of a submission uses the same number of GPUs of a node, and all that the node has."""
    for trusted in submission.world.said("GPUs per node")[:1]:
        for claim in _against(submission, trusted, submission.world.said("GPUs per node")):
            more = claim.value > trusted.value
            effect = "more than there are" if more else f"{trusted.value - claim.value} of each node stay idle"
            message = f"{claim.words}: {claim.value} GPUs a node; {_trusted(trusted)} says {trusted.value}: {effect}"
            small = submission.world.gpus is not None and submission.world.gpus <= claim.value
            severity = Severity.ERROR if more else Severity.NOTE if small else Severity.WARNING
            yield Breach(where=claim.where, message=message, hint=f"{trusted.value} in both", severity=severity)


def _against(submission: Submission, trusted: Claim, others: tuple[Claim, ...]) -> Iterator[Claim]:
    """Claims that contradict the most trusted one. Two scripts that nothing binds together may be two jobs."""
    scripts = {script.path for script in submission.scripts}
    for claim in others:
        apart = claim.where.path != trusted.where.path and {claim.where.path, trusted.where.path} <= scripts
        if claim.value != trusted.value and claim.where.path != FLAGS and not apart:
            yield claim


def _trusted(claim: Claim) -> str:
    """The claim that others are measured by, with its place unless it was given beside the files."""
    where = claim.where
    return claim.words if where.path == FLAGS else f"{claim.words} ({where.path}:{where.line})"


def stage_is_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The DeepSpeed config has the ZeRO stage that the job spec pins."""
    job, config = submission.job, submission.ds_config
    if job is None or config is None or job.pins.zero_stage is None or config.stage is None:
        return
    if config.value("/zero_optimization/stage") != "auto" and config.stage != job.pins.zero_stage:
        yield Breach(
            where=config.locate("/zero_optimization/stage"),
            message=f"stage: {config.stage}, but the job pins zero_stage: {job.pins.zero_stage}",
            hint=f'"stage": {job.pins.zero_stage}',
        )


def precision_is_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The DeepSpeed config trains in the number format of the job."""
    job, config = submission.job, submission.ds_config
    if job is None or config is None or job.training.precision == "fp8":
        return
    states = {name: config.value(f"/{name}/enabled", False) for name in ("bf16", "fp16")}
    if "auto" in states.values():
        return
    written = next((name for name, state in states.items() if state is True), "fp32")
    if written != job.training.precision:
        yield Breach(
            where=config.locate(f"/{written}/enabled"),
            message=f"the config trains in {written}, the job in {job.training.precision}",
            hint=f'"{job.training.precision}": {{"enabled": true}}' if job.training.precision != "fp32" else None,
        )


def batch_is_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The DeepSpeed config and the Megatron arguments have the global batch of the job."""
    job, config = submission.job, submission.ds_config
    if job is None:
        return
    wanted = job.training.global_batch
    size = config.value("/train_batch_size") if config else None
    # Without Megatron's mpu DeepSpeed counts every rank of an AutoTP group as a replica.
    counted = {wanted} if submission.megatron else {wanted, wanted * submission.world.tensor}
    if config is not None and isinstance(size, int) and not isinstance(size, bool) and size not in counted:
        yield Breach(
            where=config.locate("/train_batch_size"),
            message=f"train_batch_size: {size}, but the job's global_batch is {wanted}",
            hint=f'"train_batch_size": {wanted}',
        )
    for arguments in submission.megatron:
        size = arguments.integer("--global-batch-size")
        if size is not None and size != wanted:
            yield Breach(
                where=arguments.locate("--global-batch-size"),
                message=f"--global-batch-size {size}, but the job's global_batch is {wanted}",
                hint=f"--global-batch-size {wanted}",
            )


def sequence_is_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The Megatron arguments train on sequences of the job's length."""
    job = submission.job
    for arguments in submission.megatron if job is not None else ():
        length = arguments.integer("--seq-length")
        if job is not None and length is not None and length != job.training.sequence_length:
            wanted = job.training.sequence_length
            yield Breach(
                where=arguments.locate("--seq-length"),
                message=f"--seq-length {length}, but the job's sequence_length is {wanted}",
                hint=f"--seq-length {wanted}",
            )


#: Megatron's option for a fact of a model, and the attribute of `Model`.
_SHAPE: Final = (
    ("--num-layers", "layers"),
    ("--hidden-size", "hidden"),
    ("--num-attention-heads", "heads"),
    ("--num-experts", "experts"),
    ("--moe-router-topk", "experts_per_token"),
)


def model_is_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The Megatron arguments describe the model of the job."""
    model = submission.model
    for arguments in submission.megatron if model is not None else ():
        for option, attribute in _SHAPE:
            written, wanted = arguments.integer(option), getattr(model, attribute)
            if model is not None and written is not None and wanted and written != wanted:
                yield Breach(
                    where=arguments.locate(option),
                    message=f"{option} {written}, but {model.name} has {wanted}",
                    hint=f"{option} {wanted}",
                )


_DEGREES: Final = (
    ("--tensor-model-parallel-size", "tensor"),
    ("--pipeline-model-parallel-size", "pipeline"),
    ("--context-parallel-size", "context"),
    ("--expert-model-parallel-size", "expert"),
    ("--micro-batch-size", "micro_batch"),
)


def degrees_are_the_jobs(submission: Submission) -> Iterator[Breach]:
    """The Megatron arguments divide the job as its spec pins it."""
    job = submission.job
    for arguments in submission.megatron if job is not None else ():
        for option, name in _DEGREES:
            written, pinned = arguments.integer(option), getattr(job.pins, name) if job else None
            if written is not None and pinned is not None and written != pinned:
                yield Breach(
                    where=arguments.locate(option),
                    message=f"{option} {written}, but the job pins {name}: {pinned}",
                    hint=f"{option} {pinned}",
                )


def one_config_is_named(submission: Submission) -> Iterator[Breach]:
    """Where a job has several DeepSpeed configs, a launch line says which is used."""
    programs = [launch for launch in submission.launches if launch.program is not None]
    if len(submission.ds_configs) > 1 and submission.ds_config is None and len(programs) == 1:
        names = ", ".join(sorted({config.name for config in submission.ds_configs}))
        yield Breach(
            where=programs[0].script.locate(programs[0].calls[0].word if programs[0].calls else 0),
            message=f"there are {len(submission.ds_configs)} DeepSpeed configs ({names}), and this names none of them",
            hint="check the script with the config that it uses, or keep one job in a folder",
        )


def named_files_are_there(submission: Submission) -> Iterator[Breach]:
    """A DeepSpeed config or hostfile that a launch line names is among the files of the submission."""
    kinds = {
        "DeepSpeed config": {config.name for config in submission.ds_configs},
        "hostfile": {hostfile.text.path.rpartition("/")[2] for hostfile in submission.hostfiles},
    }
    for link in submission.references:
        present = kinds.get(link.kind)
        if present and link.name not in present:
            yield Breach(
                where=link.where,
                message=f"the {link.kind} {link.path} is not among the files here ({', '.join(sorted(present))})",
                hint="name the file that the job is to read, or add it to the submission",
            )


def one_value_for_a_variable(submission: Submission) -> Iterator[Breach]:
    """A variable has one value in all files that set it for the job."""
    job = submission.job
    wanted = dict(job.launch.environment) if job is not None else {}
    for script in submission.commands:
        for assignment in script.shell.assignments:
            value = wanted.get(assignment.name)
            if assignment.exported and value is not None and assignment.value not in (None, value):
                yield Breach(
                    where=script.shell.locate(assignment),
                    message=f"{assignment.name}={assignment.value} here, {value} in the job's launch.environment",
                    hint=f"export {assignment.name}={value}",
                )


_ALL: Final = ("job spec", "DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile")
_PLANNED: Final = derived("what is launched is what was planned only if both say the same")

RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="SUB001",
        severity=Severity.ERROR,
        when="launcher",
        reads=_ALL,
        source=derived("world size is nodes × processes a node; launchers wait for ranks that never come"),
        prevents="The rendezvous waits for processes that never start, or ranks get no GPU; batch sizes are wrong.",
        fix="the same nodes × GPUs in the scheduler's options, the launcher's and the config",
        check=gpus_agree,
    ),
    DocumentRule(
        id="SUB002",
        severity=Severity.ERROR,
        when="launcher",
        reads=_ALL,
        source=derived("the launcher's rendezvous waits for as many nodes as it is told"),
        prevents="The rendezvous waits for nodes that never come, or allocated nodes idle.",
        fix="the same number of nodes in the scheduler's and the launcher's options; $SLURM_NNODES is always right",
        check=nodes_agree,
    ),
    DocumentRule(
        id="SUB003",
        severity=Severity.WARNING,
        when="silent",
        reads=_ALL,
        source=derived("GPUs that no process uses are paid for all the same"),
        prevents="No error where it is fewer: GPUs idle. Where it is more: CUDA error, invalid device ordinal.",
        fix="as many processes a node as it has GPUs",
        check=gpus_per_node_agree,
    ),
    DocumentRule(
        id="SUB004",
        severity=Severity.ERROR,
        when="silent",
        reads=("job spec", "DeepSpeed config"),
        source=_PLANNED,
        prevents="No error: memory and speed are those of another ZeRO stage than planned.",
        fix="the pinned stage in the config, or render it anew from the spec",
        check=stage_is_the_jobs,
    ),
    DocumentRule(
        id="SUB005",
        severity=Severity.ERROR,
        when="silent",
        reads=("job spec", "DeepSpeed config"),
        source=_PLANNED,
        prevents="No error: training runs in another number format than planned, at twice the memory for fp32.",
        fix="one of bf16 and fp16 enabled, the job's",
        check=precision_is_the_jobs,
    ),
    DocumentRule(
        id="SUB006",
        severity=Severity.ERROR,
        when="silent",
        reads=("job spec", "Megatron arguments"),
        source=_PLANNED,
        prevents="No error: another sequence length than planned, so another memory need, speed and number of tokens.",
        fix="the job's sequence_length in the arguments",
        check=sequence_is_the_jobs,
    ),
    DocumentRule(
        id="SUB007",
        severity=Severity.ERROR,
        when="silent",
        reads=("job spec", "DeepSpeed config", "Megatron arguments"),
        source=_PLANNED,
        prevents="No error: another batch than planned, so another learning curve.",
        fix="the job's global_batch in the config and the arguments",
        check=batch_is_the_jobs,
    ),
    DocumentRule(
        id="SUB008",
        severity=Severity.ERROR,
        when="silent",
        reads=("job spec", "Megatron arguments"),
        source=_PLANNED,
        prevents="No error: another model is trained than the one asked for.",
        fix="the model's shape in the arguments",
        check=model_is_the_jobs,
    ),
    DocumentRule(
        id="SUB009",
        severity=Severity.WARNING,
        when="silent",
        reads=("job spec", "Megatron arguments"),
        source=_PLANNED,
        prevents="No error: another layout than the one that was planned and estimated.",
        fix="the pinned degrees in the arguments",
        check=degrees_are_the_jobs,
    ),
    DocumentRule(
        id="SUB010",
        severity=Severity.NOTE,
        when="silent",
        reads=("DeepSpeed config", "launch script"),
        source=derived("a config that isn't used says nothing about the job"),
        prevents="No error: another config than the one checked may be the one that is used.",
        fix="--deepspeed_config with the path of the one that is meant",
        check=one_config_is_named,
    ),
    DocumentRule(
        id="SUB011",
        severity=Severity.WARNING,
        when="launcher",
        reads=("launch script", "accelerate config", "training arguments"),
        source=derived("a path that doesn't exist stops the program that reads it; the file may lie elsewhere"),
        prevents="The program stops at start because the file isn't there, or reads another one than was checked.",
        fix="the name of a file of the submission",
        check=named_files_are_there,
    ),
    DocumentRule(
        id="SUB012",
        severity=Severity.WARNING,
        when="silent",
        reads=("job spec", "launch script"),
        source=derived("the last export before the launch line wins"),
        prevents="No error: the job runs with another value than the spec says.",
        fix="one value in both",
        check=one_value_for_a_variable,
    ),
)
