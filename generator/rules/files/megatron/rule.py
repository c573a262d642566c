"""What the rules on Megatron arguments share: how they are made, and the relations between options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ....documents.megatron_arguments import MegatronArguments
from ....documents.megatron_options import Flavour
from ....documents.submission import Submission
from ....findings import Violation, Violations
from ...rule import Subject

LM: Final = "megatron-lm"
MDS: Final = "megatron-deepspeed"

TENSOR: Final = "--tensor-model-parallel-size"
PIPELINE: Final = "--pipeline-model-parallel-size"
CONTEXT: Final = "--context-parallel-size"
ULYSSES: Final = "--ds-sequence-parallel-size"
EXPERT: Final = "--expert-model-parallel-size"
MICRO: Final = "--micro-batch-size"
GLOBAL: Final = "--global-batch-size"

#: No size is larger: what 32 bits hold.
LARGEST: Final = 2**31 - 1


class Run(NamedTuple):
    """The arguments of one program, and the submission that they stand in."""

    arguments: MegatronArguments
    submission: Submission


def _of(flavour: Flavour, *, trains: bool) -> Subject[Run]:
    """The arguments of one project's programs, of training runs alone or of all."""

    def runs(submission: Submission) -> Iterator[Run]:
        for arguments in submission.megatron:
            if arguments.flavour == flavour and arguments.given and (arguments.trains or not trains):
                yield Run(arguments, submission)

    return Subject(("launch script", "AzureML job", "Megatron arguments"), runs)


lm_runs: Final = _of(LM, trains=True)
lm_arguments: Final = _of(LM, trains=False)
mds_runs: Final = _of(MDS, trains=True)
mds_arguments: Final = _of(MDS, trains=False)


def needs(arguments: MegatronArguments, option: str, others: Iterable[str], why: str = "") -> Violations:
    """A violation where `option` is given and surely none of `others` is."""
    wanted = tuple(others)
    if arguments.has(option) and all(arguments.lacks(other) for other in wanted):
        message = f"{option} is given without {' or '.join(wanted)}{why}"
        yield Violation(where=arguments.locate(option), message=message, hint=f"{wanted[0]}, or no {option}")


def excludes(arguments: MegatronArguments, option: str, others: Iterable[str], why: str = "") -> Violations:
    """A violation for every one of `others` that is given beside `option`."""
    for other in others:
        if arguments.has(option) and arguments.has(other):
            message = f"{other} is given beside {option}{why}"
            yield Violation(where=arguments.locate(other), message=message, hint=f"no {other}, or no {option}")


def shown(arguments: MegatronArguments, name: str, default: object = None) -> str:
    """An option with its value, as in `--hidden-size 4096`; the default's where nothing is given."""
    if arguments.has(name):
        return f"{name} {arguments.value(name)}"
    return f"{name} {default} (the default)"


def one_of(arguments: MegatronArguments, *names: str) -> str:
    """The first of the options that is given, else the first."""
    return next((name for name in names if arguments.has(name)), names[0])


def sized(arguments: MegatronArguments, name: str) -> int | None:
    """A size that is given and can be one: from 1 to what 32 bits hold."""
    value = arguments.integer(name)
    return value if value is not None and 0 < value <= LARGEST else None


def degree(arguments: MegatronArguments, name: str) -> int | None:
    """A size of parallelism: 1 where nothing is given; None where it can't be known or is no size."""
    value = arguments.setting(name, 1)
    return value if value is not None and 0 < value <= LARGEST else None


def model_parallel(arguments: MegatronArguments) -> int | None:
    """GPUs that hold one replica."""
    if _has_other_sizes(arguments):
        return None
    product = 1
    for name in (TENSOR, PIPELINE, ULYSSES if arguments.flavour == MDS else CONTEXT):
        value = degree(arguments, name)
        if value is None:
            return None
        product *= value
    return product


def _has_other_sizes(arguments: MegatronArguments) -> bool:
    """Whether GPUs are divided in ways beyond tensor × pipeline × context: encoders' own ranks, weight shards."""
    return any(
        arguments.has(name)
        for name in (
            "--encoder-tensor-model-parallel-size",
            "--encoder-pipeline-model-parallel-size",
            "--tensor-parallel-num-weight-shards",
            "--yaml-cfg",
        )
    )


def gpus_of(submission: Submission, arguments: MegatronArguments) -> int | None:
    """The GPUs that these arguments run on; None where the submission has several jobs and none says it is theirs."""
    paths = {script.path for script in submission.commands}
    if len(paths) < 2:
        return submission.world.gpus
    own = tuple(document for document in submission.documents if getattr(document, "path", None) == arguments.path)
    return Submission(documents=own, frameworks=submission.frameworks, context=submission.context).world.gpus


def replicas_of(submission: Submission, arguments: MegatronArguments) -> int | None:
    """Model replicas; None where the GPUs are not known or are no whole number of replicas."""
    gpus, size = gpus_of(submission, arguments), model_parallel(arguments)
    return gpus // size if gpus and size and gpus % size == 0 else None
