"""Rules on the model and the batch: the sequence length against them, and what each framework can
express of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...catalog.layers.delta import GatedDelta
from ...catalog.layers.experts import Experts
from ...catalog.layers.grouped import GroupedQuery
from ...catalog.layers.indexer import Indexer
from ...catalog.layers.latent import Latent
from ...catalog.layers.mamba import Mamba2
from ...catalog.layers.mixer import Mixer
from ...catalog.layers.nothing import NoFeedForward, NoMixer
from ...catalog.layers.side_by_side import SideBySide
from ...catalog.layers.softmax import SoftmaxAttention
from ...catalog.model import Model
from ...findings import ERROR, NOTE, WARNING, Violations
from ...job.records import Job
from ...rule import InFiles
from ..planned import composed_jobs, fixed_jobs, jobs, parallel_jobs, replaced_jobs
from ..violations import (
    derived,
    divisors,
    megatron_deepspeed,
    megatron_lm,
    nearest,
    violation,
)

_MOST_SEQUENCES = 100_000  #: of a real batch; larger ones are meant in tokens


def _has_longer_sequences(job: Job, position_embedding: str) -> bool:
    return (
        job.training.sequence_length > job.model.max_positions
        and job.model.position_embedding == position_embedding
    )


@jobs.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def sequence_fits_position_table(job: Job) -> Violations:
    """A learned position table has a row for every token of the sequence.
    Prevents: Megatron stops at start on an assertion; elsewhere the position lookup fails on the
    device, without a place.
    Fix: set sequence_length to at most max_position_embeddings, or use rotary positions
    """
    if _has_longer_sequences(job, "learned"):
        rows = job.model.max_positions
        says = job.says("sequence_length", job.training.sequence_length)
        message = f"{says} is more than the {rows} positions that {job.model.name} learns"
        yield violation(
            job, "/training/sequence_length", message, f"use {job.says('sequence_length', rows)}"
        )


@jobs.rule(
    "SEQ003", WARNING, "silent", derived("positions past max_position_embeddings are extrapolated")
)
def sequence_within_trained_positions(job: Job) -> Violations:
    """The sequence is within the rotary positions that the model was trained on.
    Prevents: No error: the loss is worse beyond the length that the model was trained on.
    Fix: use a shorter sequence_length, or a config with rope scaling and its
    max_position_embeddings
    """
    if _has_longer_sequences(job, "rotary"):
        top = job.model.max_positions
        says = job.says("sequence_length", job.training.sequence_length)
        message = f"{says} is more than the {top} positions of {job.model.name}"
        hint = f"use {job.says('sequence_length', top)}, or a larger max_position_embeddings"
        yield violation(job, "/training/sequence_length", message, hint)


@fixed_jobs.rule(
    "MDS019",
    ERROR,
    "silent",
    derived("megatron/arguments.py of Megatron-DeepSpeed has no option for it"),
)
def megatron_deepspeed_has_attention(job: Job) -> Violations:
    """A model with latent attention (MLA) is not trained with Megatron-DeepSpeed.
    Prevents: No error: another model would be trained, whose attention has no compressed keys and
    values.
    Fix: use framework: megatron-lm
    """
    latent = job.model.part(Latent)
    if latent is not None:
        message = (
            f"{job.model.name} has {latent.called}, which "
            f"{job.says('framework', job.framework)} lacks"
        )
        yield violation(job, "/model", message, use_another(job))


@fixed_jobs.rule(
    "MDS020",
    ERROR,
    "silent",
    derived("arguments.py of Megatron-DeepSpeed has no option for either"),
)
def megatron_deepspeed_has_experts(job: Job) -> Violations:
    """A MoE model for Megatron-DeepSpeed has neither shared experts nor dense layers.
    Prevents: No error: another model would be trained, with routed experts only in every layer.
    Fix: use framework: megatron-lm"""
    model, routed = job.model, job.model.part(Experts)
    if routed is None:
        return
    extras = {"shared expert": routed.shared_experts, "dense layer": model.dense_layers}
    named = " and ".join(
        f"{count} {name if count == 1 else f'{name}s'}" for name, count in extras.items() if count
    )
    if named:
        message = (
            f"{model.name} has {named}, which {job.says('framework', job.framework)} cannot express"
        )
        yield violation(job, "/model", message, use_another(job))


@fixed_jobs.rule(
    "MDS022",
    WARNING,
    "silent",
    megatron_deepspeed("megatron/enums.py:34 (named there and used nowhere)"),
)
def megatron_deepspeed_has_positions(job: Job) -> Violations:
    """A model for Megatron-DeepSpeed has learned or rotary positions: ALiBi is in a fork alone.
    Prevents: No error: another model would be trained, without ALiBi positions. In the
    BigScience fork: `unrecognized arguments: --use-flash-attn-v2`
    Fix: use framework: deepspeed or huggingface, which take the model as transformers builds it
    """
    if job.model.position_embedding == "alibi":
        message = (
            f"{job.model.name} has ALiBi positions, which deepspeedai/Megatron-DeepSpeed lacks"
        )
        hint = (
            f"use {job.says('framework', 'deepspeed', 'huggingface')}: they take the model as "
            "transformers builds it; bigscience-workshop/Megatron-DeepSpeed has ALiBi, but lacks "
            "options that are written, such as --use-flash-attn-v2 and --sequence-parallel"
        )
        yield violation(job, "/model", message, hint)


@composed_jobs.rule(
    "MLM044", ERROR, "silent", megatron_lm("training/arguments.py (--position-embedding-type)")
)
def megatron_lm_has_positions(job: Job) -> Violations:
    """A model for Megatron-LM has learned, rotary or no positions, not ALiBi.
    Prevents: No error: another model would be trained, because the option doesn't accept ALiBi.
    Fix: use framework: deepspeed or huggingface, which take the model as transformers builds it"""
    if job.model.position_embedding == "alibi":
        message = (
            f"{job.model.name} has ALiBi positions, which "
            f"{job.says('framework', job.framework)} lacks"
        )
        hint = (
            f"use {job.says('framework', 'deepspeed', 'huggingface')}: they take the model as "
            "transformers builds it"
        )
        yield violation(job, "/framework", message, hint)


@parallel_jobs.rule(
    "OPT016", ERROR, "init", megatron_deepspeed("megatron/arguments.py (--optimizer: adam or sgd)")
)
def megatron_has_optimizer(job: Job) -> Violations:
    """The optimizer of a Megatron is Adam or SGD.
    Prevents: Megatron stops at start: the optimizer is not one of its choices.
    Fix: set training.optimizer to adamw or sgd, or use framework: deepspeed"""
    if job.training.optimizer in ("lamb", "adamw-8bit"):
        optimizer = job.says("optimizer", job.training.optimizer)
        framework = job.says("framework", job.framework)
        message = f"{optimizer} is not available with {framework}"
        other = "deepspeed" if job.training.optimizer == "lamb" else "huggingface"
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', other)}"
        yield violation(job, "/training/optimizer", message, hint)


@jobs.rule("BATCH010", WARNING, "parse", derived("real batches are below 100,000 sequences"))
def batch_counts_sequences(job: Job) -> Violations:
    """A global batch counts sequences, not tokens.
    Prevents: No error: a batch of millions of sequences that was meant in tokens trains thousands
    of times too slowly.
    Fix: write training.global_batch: {tokens: N} if tokens were meant
    """
    batch, tokens = job.training.global_batch, job.training.sequence_length
    if batch > _MOST_SEQUENCES and batch % tokens == 0:
        says = job.says("global_batch", batch)
        message = f"{says} sequences of {tokens} tokens are {batch * tokens:.3g} tokens a step"
        hint = f"use {job.says('global_batch', batch // tokens)}, or {{tokens: {batch}}}"
        yield violation(job, "/training/global_batch", message, hint)


#: The smallest divisors of a batch that are tried: all, of a batch up to 45,360. No batch has more
#: than 100 divisors up to 100, so what is left out are micro-batches of more than 100 sequences.
MOST_MICRO_BATCHES: Final = 100
_SOURCE: Final = derived(
    "activations grow with the micro-batch, and multiplications gain little beyond some sequences"
)


@lru_cache(maxsize=64)
def micro_batches(batch: int) -> NDArray[np.int64]:
    """The micro-batches that a global batch may be divided into: its smallest divisors."""
    return np.array(divisors(batch)[:MOST_MICRO_BATCHES], np.int64)


@jobs.rule("BATCH023", NOTE, "silent", _SOURCE)
def micro_batches_are_searched(job: Job) -> Violations:
    """The global batch has at most 100 divisors, so that every micro-batch is searched.
    Prevents: No error: micro-batches above the hundredth divisor are not tried unless one is
    pinned.
    Fix: pin layout.micro_batch, or use a batch with fewer divisors
    """
    sizes, batch = divisors(job.training.global_batch), job.training.global_batch
    if len(sizes) > MOST_MICRO_BATCHES and job.pins.micro_batch is None:
        message = (
            f"a global batch of {batch:,} has {len(sizes):,} divisors; the "
            f"{MOST_MICRO_BATCHES} smallest are"
        )
        message += f" searched as micro-batches, up to {sizes[MOST_MICRO_BATCHES - 1]}"
        yield violation(
            job, "/training/global_batch", message, "pin layout.micro_batch to try a larger one"
        )


_RAMP: Final = "/training/batch_ramp"


@jobs.rule(
    "BATCH024",
    ERROR,
    "init",
    megatron_lm("core/num_microbatches_calculator.py (RampupBatchsizeNum...)"),
)
def ramp_reaches_the_batch(job: Job) -> Violations:
    """A batch ramp-up starts below the global batch and reaches it in whole increments.
    Prevents: Megatron stops at start: expected global batch size interval to be divisible by the
    increment.
    Fix: use an increment that divides global_batch - start
    """
    ramp, batch = job.training.batch_ramp, job.training.global_batch
    if ramp is None:
        return
    if ramp.start >= batch:
        message = f"the ramp-up starts at {ramp.start}, which is not below global_batch: {batch}"
        yield violation(
            job,
            f"{_RAMP}/start",
            message,
            f"use start: {max(1, batch // 2)}, or leave batch_ramp out",
        )
    elif (batch - ramp.start) % ramp.increment:
        message = (
            f"increment: {ramp.increment} does not divide {batch} - {ramp.start} = "
            f"{batch - ramp.start}"
        )
        fitting = nearest(divisors(batch - ramp.start), ramp.increment, 2)
        yield violation(
            job, f"{_RAMP}/increment", message, f"use increment: {' or '.join(map(str, fitting))}"
        )


@replaced_jobs.rule("BATCH026", ERROR, "silent", derived("only Megatron has --rampup-batch-size"))
def ramps_need_megatron(job: Job) -> Violations:
    """A batch ramp-up needs Megatron.
    Prevents: No error: the global batch is the same from the first step on.
    Fix: remove training.batch_ramp, or use framework: megatron-lm"""
    if job.training.batch_ramp is not None:
        message = f"batch_ramp is not available with {job.says('framework', job.framework)}"
        yield violation(
            job, _RAMP, message, f"remove it, or use {job.says('framework', 'megatron-lm')}"
        )


_SILU = ("silu", "swish", "swiglu")
_PLAIN = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu2")


#: The first Megatron-Core with options for YaRN without latent attention.
FIRST_WITH_YARN: Final = (0, 19)


def _scalings(job: Job) -> tuple[str, ...]:
    """Rotary scalings that Megatron-LM has options for.

    YaRN has some with latent attention and, from 0.19 on, without depths of further predictions.
    **Source**: megatron/training/arguments.py:1862, :2318-2326 @ core_v0.19.0.
    """
    if job.model.part(Latent) is not None:
        has_yarn = job.model.yarn is not None and not job.model.yarn.unsaid_of_latents
    else:
        written = job.framework.writes_yarn and job.megatron_version >= FIRST_WITH_YARN
        is_plain = job.model.yarn is not None and job.model.yarn.is_plain
        has_yarn = written and is_plain and not job.training.mtp_depths
    return ("none", "llama3", *(("yarn",) if has_yarn else ()))


def missing_parts(job: Job) -> tuple[str, ...]:
    """Return the parts of `job.model` that the job's Megatron has no option for.

    They are named as in messages. Other frameworks miss none, nor do the recipes of models.
    """
    if not job.engine.has_parallel_layers or job.packs_sequences:
        return ()
    gates = {m.gate for m in job.model.attentions if isinstance(m, GroupedQuery)} - {"none"}
    gated = "a gate on attention's output"
    if job.engine.layers == "composed":
        parts = {**_missing(job, _scalings(job)), gated: bool(gates - {"elements"})}
    else:
        parts = {**_missing(job, ("none",)), gated: bool(gates), **_missing_of_fixed(job)}
    return tuple(part for part, needed in parts.items() if needed)


def _missing_of_fixed(job: Job) -> dict[str, bool]:
    """The further parts that an engine with layers of one kind misses.

    Those that rules of its own refuse aren't among them.
    """
    model, window = job.model, job.model.sliding_window
    routed, attentions = model.part(Experts), model.attentions
    rotates = model.position_embedding == "rotary"
    has_sigmoid = routed is not None and routed.router_scores == "sigmoid"
    has_window = window is not None and window < job.training.sequence_length
    return {
        "normalisation of queries and keys": any(m.qk_norm in ("head", "l2") for m in attentions),
        "layers without positions": rotates and not all(m.rotary for m in attentions),
        "a router with sigmoid scores": has_sigmoid,
        "clamped activations": model.feed_forward.clamp is not None,
        "attention sinks": model.attention_sinks,
        "query, key and value biases without others": not model.linear_bias
        and any(m.qkv_bias for m in attentions),
        "sliding-window attention": has_window,
    }


def _missing(job: Job, scalings: tuple[str, ...]) -> dict[str, bool]:
    """Return the parts that neither Megatron has, but for these rotary scalings."""
    model, part, kinds = job.model, job.model.feed_forward, job.model.stack.kinds
    attentions = model.attentions
    grouped = [mixer for mixer in attentions if isinstance(mixer, GroupedQuery)]
    chunks = [mixer.span.window for mixer in attentions if mixer.span.chunked]
    tokens = job.training.sequence_length
    return {
        f"MLPs gated by {part.activation}": part.gated and part.activation not in _SILU,
        f"MLPs with {part.activation}": not part.gated and part.activation not in _PLAIN,
        _scaling(model): model.rotary_scaling not in scalings,
        "normalisation of queries and keys over all heads at once": any(
            mixer.qk_norm == "full" for mixer in attentions
        ),
        "attention and MLP side by side": any(k.norms == 1 and k.blocks == 2 for k in kinds),
        "two softmax maps that are subtracted": any(m.maps > 1 for m in grouped),
        "values of another width than keys": any(m.value_dim != m.head_dim for m in grouped),
        "keys and values shared between layers, or with one another": any(
            m.takes_keys or m.values_are_keys for m in grouped
        ),
        "normalisation of attention's output": any(m.output_norm for m in grouped),
        "attention heads that differ by layer": _have_different_heads(attentions),
        "normalisation after attention and MLP": any(k.norms > 2 or k.norm_after for k in kinds),
        "normalisation without parameters": model.norm.kind == "none",
        "normalisation without biases": model.norm.kind == "layernorm-no-bias",
        "attention in chunks": any(chunk is not None and chunk < tokens for chunk in chunks),
        "sigmoid scores of experts that don't add up to 1": _has_raw_sigmoid_scores(model),
        **dict.fromkeys(model.extras, True),
        "Mamba-2 layers of another form": any(map(_is_mamba2_of_another_form, model.mixers)),
        "an embedding of another width": model.embedding_width is not None,
    }


def _have_different_heads(attentions: tuple[SoftmaxAttention, ...]) -> bool:
    return len({(mixer.heads, mixer.kv_heads, mixer.head_dim) for mixer in attentions}) > 1


def _has_raw_sigmoid_scores(model: Model) -> bool:
    """Ask whether sigmoid scores weigh several experts of a token as they are.

    **Source**: core_v0.16.1 megatron/core/transformer/moe/moe_utils.py,
    topk_routing_with_score_function, which makes them add up to 1.
    """
    routed = model.part(Experts)
    if routed is None or routed.router_scores != "sigmoid":
        return False
    return not routed.router_normalizes and routed.per_token > 1


def _is_mamba2_of_another_form(mixer: Mixer) -> bool:
    """Ask whether a mixer is a Mamba-2 that no option says.

    **Source**: core_v0.16.1 megatron/core/ssm/mamba_mixer.py.
    """
    if not isinstance(mixer, Mamba2):
        return False
    has_further_bias = mixer.bias or mixer.output_bias or not mixer.conv_bias
    return mixer.kernel != 4 or has_further_bias or not mixer.gated_norm


def _scaling(model: Model) -> str:
    """Name the scaling of rotary positions, with the numbers of YaRN that no option says."""
    name = f"{model.rotary_scaling} scaling of rotary positions"
    unsaid: Mapping[str, float] = {}
    if model.yarn is not None and model.part(Latent) is not None:
        unsaid = model.yarn.unsaid_of_latents
    numbers = " and ".join(f"{key} {json.dumps(number)}" for key, number in unsaid.items())
    return f"{name} with {numbers}" if numbers else name


#: Kinds of mixers beside softmax attention by the first release of Megatron-Core that builds them,
#: and its option. **Source**: Megatron-LM core_v0.16.1 to core_v0.19.0, megatron/core/ssm,
#: megatron/core/models/hybrid and megatron/training/arguments.py.
_BUILT_FROM: Final[Mapping[type[Mixer], tuple[str, str]]] = {
    GatedDelta: ("0.16.1", "--experimental-attention-variant gated_delta_net"),
    Indexer: ("0.16.1", "--experimental-attention-variant dsa"),
    Mamba2: ("0.16.1", "a hybrid pattern with M"),
}


#: Mixers that Megatron-Core has options for in any layer with a feed-forward, and dsgen writes.
_CORES: Final = (SoftmaxAttention, GatedDelta)


def _foreign_kinds(job: Job) -> Iterator[tuple[str, str]]:
    """Parts of layers that Megatron has no options for.

    Each comes with the releases of Megatron-Core that build it.
    """
    written: tuple[type[Mixer], ...] = (SoftmaxAttention, *job.framework.mixers)
    if job.framework.scripts is not None and job.model.pattern:
        return
    for mixer in job.model.mixers:
        if isinstance(mixer, written):
            continue
        release, option = _BUILT_FROM.get(type(mixer), ("", ""))
        since = f"Megatron-Core builds it from {release} on ({option})" if release else ""
        yield mixer.called, since or "no release of Megatron-Core up to 0.19 builds it"

    if job.model.streams is not None:
        yield job.model.streams.called, "no release of Megatron-Core up to 0.19 builds it"
    for layer in job.model.stack.kinds:
        if isinstance(layer.feed_forward, Experts) and layer.feed_forward.image_parameters:
            yield "experts of images", "no release of Megatron-Core up to 0.19 builds them"
        if isinstance(layer.feed_forward, Experts) and layer.feed_forward.adds_later:
            shortcut = "experts whose output is added a layer later"
            yield shortcut, "no release of Megatron-Core up to 0.19 builds them"
        if isinstance(layer.mixer, SideBySide) and job.model.part(Indexer) is None:
            yield layer.mixer.called, "no release of Megatron-Core up to 0.19 builds them"
        elif isinstance(layer.mixer, NoMixer) or isinstance(layer.feed_forward, NoFeedForward):
            alone = "layers of a mixer or a feed-forward alone"
            yield alone, "Megatron-Core builds these from 0.16.1 on (a hybrid pattern)"


def use_another(job: Job) -> str:
    """The hint to use a framework that has all kinds of the model's layers."""
    # Megatron-Core builds what Megatron-DeepSpeed lacks, where its options are written.
    is_behind = job.framework.scripts is None
    is_built = job.model.pattern or all(isinstance(m, _CORES) for m in job.model.mixers)
    if any(_foreign_kinds(job)) and not (is_behind and is_built and job.model.streams is None):
        return f"use {job.says('framework', 'huggingface')} or deepspeed"
    return f"use {job.says('framework', 'megatron-lm')}"


@parallel_jobs.rule(
    "MLM137", ERROR, "init", megatron_lm("training/arguments.py, core_v0.16.1 to core_v0.19.0")
)
def megatron_has_every_kind_of_layer(job: Job) -> Violations:
    """Layers have softmax attention or the gated delta rule, or are a pattern of Mamba-2 and more.
    Prevents: No such options are written: the run would train another model, or stop.
    Fix: use framework: huggingface or deepspeed"""
    foreign = dict.fromkeys(_foreign_kinds(job))
    if foreign:
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in foreign))
        framework = job.says("framework", job.framework)
        message = f"{job.model.name} has {kinds}, which dsgen doesn't write for {framework}"
        releases = "; ".join(dict.fromkeys(since for _, since in foreign))
        yield violation(job, "/model", f"{message}: {releases}", use_another(job))


@composed_jobs.rule(
    "MLM138",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/ssm/gated_delta_net.py, mamba_mixer.py @ core_v0.16.1",
)
def fp8_cuts_projections_whole(job: Job) -> Violations:
    """With FP8 the first product of the gated delta rule or Mamba-2 is a multiple of 16 or 32 wide.
    Prevents: Megatron stops as it builds the layer: the innermost dimension must be a multiple of
    16.
    Fix: set training.precision to bf16"""
    mixer = job.model.part(GatedDelta) or job.model.part(Mamba2)
    if mixer is None or not job.training.is_narrow:
        return
    said = job.says("precision", job.training.precision)
    wide, mamba = mixer.products[0].outputs, isinstance(mixer, Mamba2)
    align = 32 if job.training.scaling in ("mxfp8", "nvfp4") and not mamba else 16
    if wide % align:
        kind = "Mamba-2" if mamba else "the gated delta rule"
        message = f"{said}: the projection of {kind} is {wide} wide, not a multiple of {align}"
        yield violation(job, "/training/precision", message, f"use {job.says('precision', 'bf16')}")


_FP8_LAYERS = megatron_deepspeed("megatron/model/transformer.py:1772")


@parallel_jobs.rule(
    "MLM045",
    WARNING,
    "silent",
    derived("either Megatron's arguments.py, core_v0.16.1 and 4efb479d"),
)
def megatron_has_every_part(job: Job) -> Violations:
    """The framework's options can express every part of the model.
    Prevents: No error: another model would be trained, without the parts named.
    Fix: use framework: huggingface, or a script that has them"""
    missing = missing_parts(job)
    if missing:
        parts, framework = ", ".join(missing), job.says("framework", job.framework)
        message = (
            f"{job.model.name} has {parts}, for which {framework} has no option: it "
            "would train without"
        )
        lacks = any(_foreign_kinds(job)) or any(_missing(job, _scalings(job)).values())
        other = "huggingface" if lacks else "megatron-lm"
        yield violation(
            job, "/model", message, f"use {job.says('framework', other)}, or change the script"
        )


@fixed_jobs.rule(
    "MDS023", ERROR, "init", _FP8_LAYERS, InFiles(facts=("precision", "heads", "kv_heads"))
)
def fp8_layers_have_equal_heads(job: Job) -> Violations:
    """With FP8 in Megatron-DeepSpeed, there are as many key-value heads as attention heads.
    Prevents: Megatron-DeepSpeed stops on an assertion when it builds the FP8 layers.
    Fix: set training.precision to bf16, or use framework: megatron-lm"""
    model = job.model
    heads, kv_heads = getattr(model, "heads", None), getattr(model, "kv_heads", None)
    if job.training.precision == "fp8" and kv_heads != heads:
        message = (
            f"{job.says('precision', 'fp8')} with {job.says('framework', job.framework)} "
            "requires equal heads:"
        )
        message += f" {model.name} has {kv_heads} key-value heads and {heads} attention heads"
        hint = f"use {job.says('precision', 'bf16')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/precision", message, hint)
