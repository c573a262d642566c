"""Rules on the batch: train_batch_size = micro batch × accumulation steps × replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, derived, listed, neighbours, violation
from ....submission.claims import Claim
from ....submission.repository import sets_key
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....submission.world import gpus_planned_otherwise, world_of
from ..config import ACCUMULATION, BATCH_KEYS, Config, Number
from ..schema import as_hjson
from .subjects import Run, configs, runs, setting, shown

_TRAIN, _MICRO, _STEPS = BATCH_KEYS
#: The first release whose parser divides the world by `sequence_parallel_size`, and the first that
#: fails where it can't (deepspeed/runtime/config.py `DeepSpeedConfig.__init__`).
_DIVIDES_BY_SEQUENCE: Final = (0, 17)
FAILS_BY_SEQUENCE: Final = (0, 19, 3)
#: A larger batch usually counts tokens, not sequences; the rule on jobs has the same limit.
_TOKENS_FROM: Final = 100_000
#: bf16 has 8 bits of precision: beside the sum of 256 numbers alike, the next one is below half of
#: the last bit.
_LOST_FROM: Final = 256


def replicas_of(config: Config, submission: Submission) -> Number | None:
    """The replicas that DeepSpeed's parser counts; None where the number of GPUs isn't known.

    Tensor parallelism that the config asks for is not divided out: without an mpu the parser counts
    every GPU.
    """
    world, job = world_of(submission), submission.job
    if world.gpus is None or world.divided:
        return None
    gpus_per_replica: Number = world.pipeline
    has_parallel_layers = job is not None and job.engine.has_parallel_layers
    if submission.has("Megatron arguments") or has_parallel_layers:  # these pass an mpu
        gpus_per_replica *= world.tensor * world.context
    elif config.version >= _DIVIDES_BY_SEQUENCE:
        degree = config.value("/sequence_parallel_size", 1)
        if not isinstance(degree, int | float) or not degree:
            # The world can't be divided by it. Older parsers go on with a world of 1.
            return 1 if config.version < FAILS_BY_SEQUENCE else None
        gpus_per_replica *= degree
    whole, rest = divmod(world.gpus, gpus_per_replica)
    return world.gpus / gpus_per_replica if rest else whole


class _Batch(NamedTuple):
    """The numbers of a config's batch keys; None where a key is left out or null."""

    config: Config
    replicas: Number | None  #: None where the number of GPUs isn't known
    gpus_claim: Claim | None  #: what says the number of GPUs, where that is in another file
    other_nodes: Claim | None  #: a number of nodes that contradicts it
    #: the GPUs of the plan beside the files, where the files have another number
    gpus_planned_otherwise: int | None
    train: Number | None
    micro: Number | None
    steps: Number | None

    @property
    def numbers(self) -> dict[str, Number]:
        """The keys that have a number."""
        return self.config.batch

    @property
    def gpus_source(self) -> str:
        """The end of a message: what sets the number of GPUs, in another file."""
        if self.gpus_claim is None or self.replicas is None:
            return ""
        return f"; {self.gpus_claim.placed}"

    def divided_by(self, product: Number) -> str:
        """The factors by which the train batch is divided, and their product, in a message."""
        factors = [
            f"`{key}` {shown(value)}" for key, value in self.numbers.items() if key != _TRAIN
        ]
        if self.replicas is not None:
            factors.append(f"{shown(self.replicas)} replicas")
        result = f" = {shown(product)}" if len(factors) > 1 else ""
        return " × ".join(factors) + result

    @property
    def may_be_set_elsewhere(self) -> bool:
        """Return whether the batch may come from elsewhere: from the program that reads the config,
        from the autotuner, or from a script beside the config that sets its keys.
        """
        config = self.config
        if config.completed or config.tuned:
            return True
        # DeepSpeed reads JSON: a program hands YAML on, and may merge several files before.
        if config.guessed and PurePath(config.path).suffix in (".yaml", ".yml"):
            return True
        return not self.numbers and any(sets_key(key, config.path) for key in (_TRAIN, _MICRO))

    @property
    def hint_to_add(self) -> str:
        """A hint to write a batch: the programs that fill in "auto" add no key that is left out."""
        return f'add "{_MICRO}": ' + ('"auto"' if self.config.filled else "1")

    @property
    def severity(self) -> Severity | None:
        """A note where an unknown program reads the config, or one that may set the batch itself;
        else None, which stands for the rule's own severity.
        """
        config = self.config
        if config.unclaimed:
            return NOTE
        if not config.filled:
            return None
        # The Trainer fills in "auto" and leaves numbers alone. Other programs may set numbers too.
        is_trainers = config.consumer == "huggingface" and not config.guessed
        return None if is_trainers or self._is_wrong_anyway else NOTE

    @property
    def _is_wrong_anyway(self) -> bool:
        """Return whether no number of replicas makes the product right, and no script beside the
        config sets one of the numbers.
        """
        if self.train is None or self.micro is None or self.steps is None:
            return False
        is_uneven = self.train % (self.micro * self.steps) != 0
        return is_uneven and not any(sets_key(key, self.config.path) for key in BATCH_KEYS)

    def violation(
        self, key: str, message: str, hint: str | None, severity: Severity | None = None
    ) -> Violation:
        return Violation(self.config.locate(f"/{key}"), message, hint, severity=severity)


@subject("DeepSpeed config")
def _batches(submission: Submission) -> Iterator[_Batch]:
    """The configs whose batch DeepSpeed computes from numbers; other values have their own rule."""
    source = world_of(submission).source
    is_in_file = source is not None and not source.where.flag
    for config in configs(submission):
        numbers = config.batch
        written = [key for key in BATCH_KEYS if config.value(f"/{key}") is not None]
        if config.value(ACCUMULATION) == "auto" and {_TRAIN, _MICRO} <= numbers.keys():
            # Whatever number of steps is filled in, the batch is a multiple of the micro batch.
            written.remove(_STEPS)
        if config.is_elastic or list(numbers) != written:
            continue
        yield _Batch(
            config=config,
            replicas=replicas_of(config, submission),
            gpus_claim=source if is_in_file else None,
            other_nodes=_other_nodes(submission),
            gpus_planned_otherwise=gpus_planned_otherwise(submission),
            train=numbers.get(_TRAIN),
            micro=numbers.get(_MICRO),
            steps=numbers.get(_STEPS),
        )


def _other_nodes(submission: Submission) -> Claim | None:
    """A number of nodes other than the `--nnodes` of a launch line, where launch lines tell the
    number of GPUs.
    """
    world = world_of(submission)
    if world.source is None or world.source.quantity != "processes":
        return None
    nodes = next(iter(world.claims_on("nodes")), None)
    if nodes is None:
        return None
    for launch in submission.launches:
        for call in launch.calls:
            option = call.integer("--nnodes")
            if option and option.value != nodes.value:
                return nodes
    return None


@_batches.rule("BATCH002", ERROR, "parse", deepspeed("runtime/config.py:931-935"))
def batch_sizes_are_positive(batch: _Batch) -> Violations:
    """The three batch keys are greater than 0.
    Prevents: AssertionError: Train batch size: 0 has to be greater than 0
    Fix: write numbers of at least 1"""
    for key, value in batch.numbers.items():
        if value > 0:
            continue
        least: Number = 1
        if key == _TRAIN:  # 0 where the replicas aren't known
            least = max(batch.micro or 1, 1) * max(batch.steps or 1, 1) * (batch.replicas or 0)
        message = f"`{key}` is {shown(value)}; it must be greater than 0"
        yield batch.violation(key, message, f"write {shown(least)}" if least else None)


@_batches.rule("BATCH004", ERROR, "parse", deepspeed("runtime/config.py:984"))
def batch_is_given(batch: _Batch) -> Violations:
    """A config has train_batch_size or train_micro_batch_size_per_gpu.
    Prevents: AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be
    provided
    Fix: write the micro batch; the others follow
    """
    # A script that writes the file line by line has no whole object to read.
    is_in_pieces = batch.config.embedded and not batch.config.json.data
    if not batch.numbers and not batch.may_be_set_elsewhere and not is_in_pieces:
        message = f"neither `{_TRAIN}` nor `{_MICRO}` is set, and DeepSpeed requires one of them"
        yield batch.violation("", message, batch.hint_to_add, batch.severity)


@_batches.rule("BATCH005", ERROR, "parse", deepspeed("runtime/config.py:1018-1022"))
def steps_are_not_alone(batch: _Batch) -> Violations:
    """Accumulation steps are written with a train or micro batch size.
    Prevents: AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be
    provided
    Fix: write the micro batch too
    """
    if set(batch.numbers) == {_STEPS} and not batch.may_be_set_elsewhere:
        message = f"`{_STEPS}` alone is no batch: DeepSpeed requires `{_TRAIN}` or `{_MICRO}` too"
        yield batch.violation(_STEPS, message, batch.hint_to_add, batch.severity)


#: Batches whose numbers are all greater than 0, with products that are neither 0 nor infinite.
_sound: Final = _batches.where(
    lambda batch: all(
        1e-60 < number < 1e60 for number in (*batch.numbers.values(), batch.replicas or 1)
    )
)


@_sound.rule("BATCH006", ERROR, "parse", deepspeed("runtime/config.py:935"))
def batch_reaches_every_replica(batch: _Batch) -> Violations:
    """The batch has at least one sample, or one micro batch, for every replica.
    Prevents: AssertionError: Gradient accumulation steps: 0 has to be greater than 0
    Fix: raise the batch, or use fewer GPUs"""
    if batch.train is None or batch.replicas is None or len(batch.numbers) == 3:
        return
    least = (batch.micro or 1) * (batch.steps or 1) * batch.replicas
    if batch.train < least:
        product = batch.divided_by(least)
        message = f"`{_TRAIN}` {shown(batch.train)} is less than {product}{batch.gpus_source}"
        hint = f"set it to {shown(least)}, or use fewer GPUs"
        yield batch.violation(_TRAIN, message, hint, batch.severity)


@_sound.rule("BATCH003", ERROR, "parse", deepspeed("runtime/config.py:942-991"))
def batch_can_be_divided(batch: _Batch) -> Violations:
    """A train batch written with one of the other two keys, or alone, is a multiple of its
    divisors.
    Prevents: AssertionError: Check batch related parameters, with derived values
    Fix: write a multiple, or only the micro batch and the steps
    """
    if batch.train is None or len(batch.numbers) == 3:
        return
    replicas = batch.replicas or 1
    # of the other two keys at most one is written
    other = batch.micro if batch.micro is not None else (batch.steps or 1)
    divisor = other * replicas
    # DeepSpeed computes the key that is missing by two divisions, rounded down, and compares the
    # product of all three with the batch. With fractions their order counts.
    first, second = (other, replicas) if batch.micro is not None else (replicas, other)
    computed = other * (batch.train // first // second) * replicas
    if batch.train >= divisor and batch.train != computed:
        product = batch.divided_by(divisor)
        message = (
            f"`{_TRAIN}` {shown(batch.train)} is not a multiple of {product}{batch.gpus_source}"
        )
        severity = None if batch.replicas is None else batch.severity
        yield batch.violation(_TRAIN, message, _multiples(divisor, batch.train), severity)


@_sound.rule("BATCH001", ERROR, "parse", deepspeed("runtime/config.py:937-940"))
def batch_is_the_product(batch: _Batch) -> Violations:
    """train_batch_size is micro batch × accumulation steps × replicas.
    Prevents: AssertionError: Check batch related parameters. train_batch_size is not equal to ...
    Fix: write two of the three keys; DeepSpeed derives the third"""
    if batch.train is None or batch.micro is None or batch.steps is None:
        return
    of_replica = batch.micro * batch.steps
    factors = f"{_MICRO} {shown(batch.micro)} × {_STEPS} {shown(batch.steps)}"
    if batch.replicas is None:
        if batch.train % of_replica:
            product = f"{factors} = {shown(of_replica)}"
            message = f"`{_TRAIN}` {shown(batch.train)} is not a multiple of {product}"
            yield batch.violation(_TRAIN, message, _multiples(of_replica, batch.train))
    elif batch.train != of_replica * batch.replicas:
        right = round(of_replica * batch.replicas, 6)
        product = f"{factors} × {shown(batch.replicas)} replicas = {shown(right)}"
        message = f"`{_TRAIN}` is {shown(batch.train)}, but {product}{batch.gpus_source}"
        steps, rest = divmod(batch.train, batch.micro * batch.replicas)
        hint = f'set "{_TRAIN}" to {shown(as_hjson(right))}'
        if steps and not rest:
            hint += f', or "{_STEPS}" to {shown(as_hjson(steps))}'
        if batch.other_nodes:
            hint = f"write the same nodes in both first: {batch.other_nodes.placed}"
        elif batch.gpus_planned_otherwise:
            hint = f"write the plan's {batch.gpus_planned_otherwise:,} GPUs first, or {hint}"
        elif batch.replicas != int(batch.replicas):
            hint = "first make the GPUs a whole number of replicas"
        yield batch.violation(_TRAIN, message, hint, batch.severity)


def _multiples(step: Number, target: Number) -> str | None:
    """A hint with the multiples of a number around another; None among fractions."""
    if isinstance(step, int) and isinstance(target, int):
        return f"set it to {listed(neighbours(step, target))}"
    return None


@configs.rule("BATCH010", WARNING, "parse", deepspeed("runtime/config.py:937"))
def batches_are_sequences(config: Config) -> Violations:
    """train_batch_size counts sequences, not tokens.
    Prevents: A batch that no GPUs can hold, or thousands of accumulation steps.
    Fix: divide the tokens by the sequence length"""
    pointer = f"/{_TRAIN}"
    if (config.whole(pointer) or 0) > _TOKENS_FROM:
        message = f"{setting(config, pointer)} counts sequences, but looks like tokens"
        yield violation(config, pointer, message, "divide the tokens by the sequence length")


@runs.rule(
    "BATCH020",
    WARNING,
    "silent",
    derived("bf16 has 8 bits, and ZeRO accumulates in the model's type"),
)
def long_sums_are_fp32(run: Run) -> Violations:
    """Gradients of hundreds of micro-batches accumulate in fp32.
    Prevents: Late micro-batches are silently lost to bf16 rounding.
    Fix: set grad_accum_dtype to fp32"""
    config = run.config
    steps = config.whole(ACCUMULATION) if config.has(ACCUMULATION) else _computed_steps(run)
    sums_in_bf16 = config.precision == "bf16" and config.stage and not config.accumulates_in
    if sums_in_bf16 and steps and steps > _LOST_FROM:
        message = (
            f"gradient_accumulation_steps: {steps} in bf16: late micro-batches are "
            "lost to bf16 rounding"
        )
        hint = 'add "data_types": {"grad_accum_dtype": "fp32"}'
        yield violation(config, ACCUMULATION, message, hint)


def _computed_steps(run: Run) -> int | None:
    """The accumulation steps that DeepSpeed computes where none are written; else its default."""
    batch, micro = run.config.whole(f"/{_TRAIN}"), run.config.whole(f"/{_MICRO}")
    samples_of_pass = (micro or 0) * (run.world.replicas or 0)
    if batch and samples_of_pass and batch % samples_of_pass == 0:
        return batch // samples_of_pass
    return run.config.whole(ACCUMULATION)


@runs.rule(
    "BATCH021", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:475"), since=(0, 19, 6)
)
def sums_are_meant(run: Run) -> Violations:
    """gradient_allreduce_op is mean: sum multiplies gradients by the number of replicas.
    Prevents: Steps that are larger by the number of replicas.
    Fix: use mean"""
    pointer = "/gradient_allreduce_op"
    if (run.config.text(pointer) or "").lower() == "sum":
        replicas = f"{run.world.replicas or 'all'} replicas"
        message = f"{setting(run.config, pointer)} adds up the gradients of {replicas}"
        hint = 'use "mean", unless the loss is divided by the replicas'
        yield violation(run.config, pointer, message, hint)


@configs.rule(
    "BATCH022", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:3457"), since=(0, 19, 4)
)
def callers_scale_the_loss(config: Config) -> Violations:
    """managed_gradient_accumulation is true where there are accumulation steps: else the script
    counts them.
    Prevents: Another batch than the one written.
    Fix: set managed_gradient_accumulation to true
    """
    steps = config.whole(ACCUMULATION)
    if config.switch("/managed_gradient_accumulation", True) is False and steps and steps > 1:
        message = f"gradient_accumulation_steps: {steps} has no effect on when a step is taken:"
        message += " managed_gradient_accumulation is false, so every call of step() is one"
        hint = "set managed_gradient_accumulation to true, unless the script counts micro-batches"
        yield violation(config, ACCUMULATION, message, hint)
