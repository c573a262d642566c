"""What the two Megatron trees spell alike: training length, schedule, optimizer, and what neither can express."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ...estimate.layout import Layout
from ...job.records import Job
from ...rules.job.parts import missing_parts
from ..arguments import BETA1, DEFAULT_STEPS, EPSILON, Value, beta2, gives, group, training_steps
from ..program import ArgumentGroup

WARMUP_FRACTION = 0.01
MIN_LR_FRACTION = 0.1
#: Steps between evaluations and global batches of one. Source: the defaults of Megatron-DeepSpeed, and of Megatron-LM
#: up to core_v0.15. Since core_v0.16 the interval has none, and training/training.py,
#: get_train_valid_test_num_samples, divides by it: without one the run dies on its first line of data.
EVALUATION = (1000, 100)

_WARMUP_OPTIONS = ("--lr-warmup-fraction", "--lr-warmup-iters", "--lr-warmup-samples", "--lr-warmup-tokens")
_OPTIMIZERS = {"adamw": "adam", "adam": "adam", "sgd": "sgd"}
_LENGTH_OPTIONS = ("--train-iters", "--train-samples")

Options = dict[str, Value]


def batch_group(job: Job, layout: Layout) -> ArgumentGroup:
    """Sequences, and the batch whose quotient is the accumulation."""
    identity = (
        f"batch: {layout.global_batch} = {layout.micro_batch} micro × {layout.gradient_accumulation} accumulated × "
        f"{layout.data} replicas"
    )
    return group(
        identity,
        {
            "--seq-length": job.training.sequence_length,
            "--max-position-embeddings": max(job.model.max_positions, job.training.sequence_length),
            "--micro-batch-size": layout.micro_batch,
            "--global-batch-size": layout.global_batch,
        },
    )


def ramp_group(job: Job, comment: str = "batch ramp-up: start, increment, sequences") -> ArgumentGroup:
    """How the batch grows to its size."""
    ramp = job.training.batch_ramp
    return group(comment, {} if ramp is None else {"--rampup-batch-size": (ramp.start, ramp.increment, ramp.samples)})


def length_group(job: Job) -> ArgumentGroup:
    """Steps and schedule. Options that the job's own arguments give, or that exclude them, are left to the job."""
    own = job.launch.arguments
    options: Options = {}
    if not gives(own, *_LENGTH_OPTIONS):
        options |= _length(job)
    if not gives(own, "--eval-interval"):
        options["--eval-interval"] = EVALUATION[0]
    options["--lr"] = job.training.learning_rate
    options["--min-lr"] = job.training.learning_rate * MIN_LR_FRACTION
    options["--lr-decay-style"] = "cosine"
    if not gives(own, *_WARMUP_OPTIONS):
        options["--lr-warmup-fraction"] = WARMUP_FRACTION
    return group("length, evaluation and schedule: cosine to a tenth after 1% of warm-up", options)


def _length(job: Job) -> Options:
    """Steps; or sequences, over which alone the batch ramps up (megatron/training/arguments.py:765 @ core_v0.16.1)."""
    training, ramp = job.training, job.training.batch_ramp
    if ramp is None:
        return {"--train-iters": training_steps(training) or DEFAULT_STEPS}
    tokens = training.duration_tokens or DEFAULT_STEPS * training.tokens_per_step
    return {"--train-samples": max(1, -int(-tokens // training.sequence_length))}


def optimizer_group(job: Job) -> ArgumentGroup:
    """Megatron's `adam` decouples the weight decay. It has no LAMB, and a rule of the job says so."""
    name = _OPTIMIZERS[job.training.optimizer]
    adam: Options = {"--adam-beta1": BETA1, "--adam-beta2": beta2(job), "--adam-eps": EPSILON}
    return group(
        "optimizer; its weight decay is decoupled, so adam means AdamW",
        {
            "--optimizer": name,
            **(adam if name == "adam" else {}),
            "--weight-decay": job.training.weight_decay,
            "--clip-grad": job.training.gradient_clipping,
        },
    )


def layer_pattern(layers: int, chosen: Iterable[int]) -> str:
    """1 for the layers `chosen` and 0 for the others, as Megatron reads it: `([0]*3+[1]*58)`, `([1]*5+[0]*1)*8`."""
    marks = [0] * layers
    for index in chosen:
        marks[index] = 1
    sizes = (size for size in range(1, layers + 1) if layers % size == 0)
    period = next(size for size in sizes if marks == marks[:size] * (layers // size))
    runs = "+".join(f"[{value}]*{len(list(run))}" for value, run in groupby(marks[:period]))
    return f"({runs})" if period == layers else f"({runs})*{layers // period}"


def has_linear_bias(job: Job) -> bool:
    """Whether the projections other than query, key and value carry biases."""
    return job.model.output_bias or job.model.mlp_bias or job.model.expert_bias


def shape_options(job: Job) -> Options:
    """The options of the model's shape that both trees share."""
    model = job.model
    return {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": model.ffn,
        "--num-attention-heads": model.heads,
    }


def block_options(job: Job) -> Options:
    """Activation (GELU where no option says otherwise), biases, tying, and dropout, whose own default is 0.1."""
    model = job.model
    return {
        "--swiglu": model.gated_mlp and model.activation_clamp is None,
        "--squared-relu": not model.gated_mlp and model.activation == "relu2",
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--disable-bias-linear": not has_linear_bias(job),
        "--hidden-dropout": model.dropout,
        "--attention-dropout": model.attention_dropout,
    }


def common_notes(job: Job, name: str) -> list[str]:
    """What the user has to supply, and what neither tree can do; `name` is the tree's."""
    texts = [f"The plan counts a vocabulary of {job.model.vocab}: the tokenizer's, before Megatron pads it."]
    own_length = gives(job.launch.arguments, *_LENGTH_OPTIONS)
    if job.training.duration_tokens is None and not own_length:
        texts.append(f"The job gives no training.duration and the script requires one: {DEFAULT_STEPS} steps.")
    if missing := missing_parts(job):
        texts.append(f"{name} has no option for {', '.join(missing)}; the estimates count them.")
    if job.model.position_embedding == "alibi":
        texts.append(f"{name} has no ALiBi: these arguments train without position embedding.")
    return texts
