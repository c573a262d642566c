"""The batch of a DeepSpeed config: train_batch_size = micro batch × accumulation steps × replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ....documents.deepspeed_config import Config
from ....documents.submission import FILLERS, Submission
from ....findings import ERROR, Violation, Violations
from ...numbers import listed, neighbours
from ...rule import subject, submissions
from ...sources import deepspeed
from .problem import as_hjson, shown
from .subjects import configs

_TRAIN: Final = "train_batch_size"
_MICRO: Final = "train_micro_batch_size_per_gpu"
_STEPS: Final = "gradient_accumulation_steps"

Number = int | float

#: The first release whose parser divides the world by `sequence_parallel_size`, and the first that fails where it
#: can't (deepspeed/runtime/config.py `DeepSpeedConfig.__init__`).
DIVIDES_BY_SEQUENCE: Final = (0, 17)
FAILS_BY_SEQUENCE: Final = (0, 19, 3)


def replicas_of(config: Config, submission: Submission) -> Number | None:
    """What DeepSpeed's parser takes for the number of replicas; None where no document says how many GPUs there are.

    Tensor parallelism that the config asks for is not divided out: without an mpu the parser counts every GPU.
    """
    world = submission.world
    if world.gpus is None:
        return None
    apart: Number = world.pipeline
    if submission.megatron or (submission.job is not None and submission.job.framework.runs("Megatron layers")):
        apart *= world.tensor * world.context
    elif config.version >= DIVIDES_BY_SEQUENCE:
        degree = config.value("/sequence_parallel_size", 1)
        if not isinstance(degree, int | float) or not degree:
            # What can't be divided by counts as a world of one, until the parser fails on it.
            return 1 if config.version < FAILS_BY_SEQUENCE else None
        apart *= degree
    return world.gpus / apart if world.gpus % apart else world.gpus // apart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The three keys as written, None where left out or null; `replicas`: None where nobody says."""

    config: Config
    train: Number | None
    micro: Number | None
    steps: Number | None
    replicas: Number | None

    @property
    def given(self) -> dict[str, Number]:
        """The keys that are written, with their values."""
        values = {_TRAIN: self.train, _MICRO: self.micro, _STEPS: self.steps}
        return {name: value for name, value in values.items() if value is not None}

    def violation(self, key: str, message: str, hint: str | None) -> Violation:
        """A violation at a key."""
        return Violation(where=self.config.locate(f"/{key}"), message=message, hint=hint)


@subject("DeepSpeed config")
def _batches(submission: Submission) -> Iterator[_Batch]:
    """The configs whose batch DeepSpeed computes from numbers; what is no number has a rule of its own."""
    for config in configs(submission):
        values: list[Any] = [as_hjson(config.value(f"/{key}")) for key in (_TRAIN, _MICRO, _STEPS)]
        elastic = config.is_elastic
        if elastic or not all(value is None or isinstance(value, int | float) for value in values):
            continue
        train, micro, steps = values
        replicas = replicas_of(config, submission)
        yield _Batch(config=config, train=train, micro=micro, steps=steps, replicas=replicas)


@_batches.rule("BATCH002", ERROR, "parse", deepspeed("runtime/config.py:931-935"))
def batch_sizes_are_positive(batch: _Batch) -> Violations:
    """The three batch keys are greater than 0.

    Prevents: AssertionError: Train batch size: 0 has to be greater than 0
    Fix: Write numbers of at least 1.
    """
    for key, value in batch.given.items():
        if value <= 0:
            message = f"`{key}` is {shown(value)}; it must be greater than 0"
            yield batch.violation(key, message, "1" if key != _TRAIN else _product_hint(batch))


def _product_hint(batch: _Batch) -> str | None:
    if batch.replicas is None:
        return None
    return f"{shown(max(batch.micro or 1, 1) * max(batch.steps or 1, 1) * batch.replicas)}"


@submissions.rule("BATCH004", ERROR, "parse", deepspeed("runtime/config.py:984"), reads=("DeepSpeed config",))
def batch_is_given(submission: Submission) -> Violations:
    """A config gives train_batch_size or train_micro_batch_size_per_gpu.

    Prevents: AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided
    Fix: Give the micro batch; the others follow.
    """
    for batch in _batches(submission):
        if batch.given or submission.consumer in FILLERS or _is_part(batch.config) or batch.config.is_empty:
            continue
        message = f"neither `{_TRAIN}` nor `{_MICRO}` is given, and DeepSpeed needs one of them"
        yield batch.violation("", message, f'"{_MICRO}": 1')


def _is_part(config: Config) -> bool:
    """Whether a script writes the file in pieces."""
    return config.embedded and not config.json.data


@submissions.rule("BATCH005", ERROR, "parse", deepspeed("runtime/config.py:1018-1022"), reads=("DeepSpeed config",))
def steps_are_not_alone(submission: Submission) -> Violations:
    """Accumulation steps come with a train or micro batch size.

    Prevents: AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided
    Fix: Give the micro batch too.
    """
    for batch in _batches(submission):
        if set(batch.given) == {_STEPS} and submission.consumer not in FILLERS:
            message = f"`{_STEPS}` alone doesn't make a batch; DeepSpeed needs `{_TRAIN}` or `{_MICRO}` too"
            yield batch.violation(_STEPS, message, f'"{_MICRO}": 1')


@subject("DeepSpeed config")
def _sound(submission: Submission) -> Iterator[_Batch]:
    """Batches whose numbers are all greater than 0, and finite."""
    for batch in _batches(submission):
        numbers = (*batch.given.values(), *(() if batch.replicas is None else (batch.replicas,)))
        if all(0 < number < 1e300 for number in numbers):
            yield batch


@_sound.rule("BATCH006", ERROR, "parse", deepspeed("runtime/config.py:935"))
def batch_reaches_every_replica(batch: _Batch) -> Violations:
    """The batch has at least one sample, or one micro batch, for every replica.

    Prevents: AssertionError: Gradient accumulation steps: 0 has to be greater than 0
    Fix: Raise the batch, or use fewer GPUs.
    """
    if batch.train is None or batch.replicas is None or len(batch.given) == 3:
        return
    least = (batch.micro or 1) * (batch.steps or 1) * batch.replicas
    if batch.train < least:
        parts = [f"`{key}` {shown(value)}" for key, value in batch.given.items() if key != _TRAIN]
        times = " × ".join([*parts, f"{shown(batch.replicas)} replicas"]) + (f" = {shown(least)}" if parts else "")
        message = f"`{_TRAIN}` {shown(batch.train)} is less than {times}"
        yield batch.violation(_TRAIN, message, f"{shown(least)}, or fewer GPUs")


@_sound.rule("BATCH003", ERROR, "parse", deepspeed("runtime/config.py:942-991"))
def batch_can_be_divided(batch: _Batch) -> Violations:
    """A train batch given with one of the other two, or alone, is a multiple of what it is divided by.

    Prevents: AssertionError: Check batch related parameters, with numbers that nobody wrote
    Fix: Write a multiple, or give the micro batch and the steps only.
    """
    if batch.train is None or len(batch.given) == 3:
        return
    part = batch.micro or batch.steps or 1
    step = part * (batch.replicas or 1)
    if batch.train < step or _derives(batch, part):
        return
    names = [f"`{key}` {shown(value)}" for key, value in batch.given.items() if key != _TRAIN]
    names += [f"{shown(batch.replicas)} replicas"] if batch.replicas is not None else []
    total = f" = {shown(step)}" if len(names) > 1 else ""
    message = f"`{_TRAIN}` {shown(batch.train)} is no multiple of {' × '.join(names)}{total}"
    yield batch.violation(_TRAIN, message, _multiples(step, batch.train))


def _derives(batch: _Batch, part: Number) -> bool:
    """Whether the key that is left out, divided off as DeepSpeed does, gives the batch again."""
    if batch.train is None:
        return True
    replicas = batch.replicas or 1
    first, second = (part, replicas) if batch.micro is not None else (replicas, part)
    rest = batch.train // first // second
    return batch.train == part * rest * replicas


@_sound.rule("BATCH001", ERROR, "parse", deepspeed("runtime/config.py:937-940"))
def batch_is_the_product(batch: _Batch) -> Violations:
    """train_batch_size is micro batch × accumulation steps × replicas.

    Prevents: AssertionError: Check batch related parameters. train_batch_size is not equal to ...
    Fix: Give two of the three keys; DeepSpeed derives the third.
    """
    if batch.train is None or batch.micro is None or batch.steps is None:
        return
    step = batch.micro * batch.steps
    if batch.replicas is None:
        if batch.train % step:
            message = f"`{_TRAIN}` {shown(batch.train)} is no multiple of {_MICRO} {shown(batch.micro)}"
            message += f" × {_STEPS} {shown(batch.steps)} = {shown(step)}"
            yield batch.violation(_TRAIN, message, _multiples(step, batch.train))
        return
    product = batch.micro * batch.steps * batch.replicas
    if batch.train != product:
        message = f"`{_TRAIN}` is {shown(batch.train)}, but {_MICRO} {shown(batch.micro)} × {_STEPS}"
        message += f" {shown(batch.steps)} × {shown(batch.replicas)} replicas = {shown(product)}"
        yield batch.violation(_TRAIN, message, _fitting(batch, product))


def _multiples(step: Number, target: Number) -> str | None:
    return listed(neighbours(step, target)) if isinstance(step, int) and isinstance(target, int) else None


def _fitting(batch: _Batch, product: Number) -> str:
    """The product, and other accumulation steps that make the batch as written."""
    hint = f'"{_TRAIN}": {shown(as_hjson(product))}'
    if batch.micro and batch.replicas and batch.train is not None:
        steps, rest = divmod(batch.train, batch.micro * batch.replicas)
        if steps and not rest:
            hint += f', or "{_STEPS}": {shown(as_hjson(steps))}'
    return hint
