"""The facts that Megatron arguments state of a run, each with its place.

They make a `Job` of which parts may be unknown, so that the rules and estimates for jobs judge runs
of which there are only arguments.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...catalog.layers.dense import Dense
from ...catalog.layers.experts import Experts
from ...catalog.layers.grouped import GroupedQuery
from ...catalog.layers.latent import Latent
from ...catalog.layers.softmax import Span
from ...catalog.layers.stack import MOST_LAYERS, Layer, Norm, Stack
from ...catalog.model import Model
from ...dataclass import dataclass
from ...facts.facts import UNKNOWN, Facts, completed, partial
from ...findings import Location
from ...job.records import Job, Origin, Pins, Training
from ...numerals import whole
from ...submission.submission import Submission
from ...submission.world import cluster_of
from ..deepspeed.config import Config
from ..deepspeed.options import offload_of, second_partitions
from ..deepspeed.submission import release_of_deepspeed
from .options import Flavour, option_table
from .run import (
    CHUNKS,
    FIRST_STAGE,
    GLOBAL,
    HEADS,
    LAST_STAGE,
    LAYERS,
    LAYERS_PER_CHUNK,
    SCHEDULE,
    STAGE_LAYOUT,
    MegatronRun,
    megatron_runs,
    uneven_ends,
)
from .table import SHARDINGS, Mark, option_of, rows, size
from .vocabulary import OF_OPTIONS

#: Options that cut the model into chunks by a pattern of all its layers.
_OTHER_CHUNKS: Final = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
_GRANULARITY: Final = "--recompute-granularity"
_EXCHANGE: Final = "--cp-comm-type"
#: The modules of selective recomputation that a layout knows.
_MODULES: Final = frozenset(
    ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
)
_STRATEGY: Final = "--data-parallel-sharding-strategy"
_FSDP: Final = ("--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2")
_FLASH: Final = (
    "--use-flash-attn",
    "--use-flash-attn-v1",
    "--use-flash-attn-v2",
    "--use-flash-attn-triton",
)
#: The least that each unknown size of a model can be, and of its layers' parts.
_LEAST: Final[dict[str, Any]] = {
    **dict.fromkeys(("vocab", "max_positions"), 1),
    **dict.fromkeys(("hidden", "ffn"), 0),
    "tied_embeddings": True,
}
_LEAST_OF_PARTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("heads", "kv_heads", "head_dim", "per_token", "kv_lora_rank"), 1),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 0),
    **dict.fromkeys(("width", "experts", "expert_width"), 0),
    **dict.fromkeys(("gated", "bias", "qkv_bias", "output_bias", "sinks"), False),
    "span": Span(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsureAttention(GroupedQuery):
    """Attention of which files don't say whether it is latent."""

    @property
    def keeps_ring(self) -> bool:  # type: ignore[override]
        """Unknown."""
        raise AttributeError("keeps_ring")

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """Unknown."""
        raise AttributeError("exchanged_heads")


_FP8_RECIPES: Final = ("delayed", "tensorwise", "blockwise", "mxfp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronFacts(Facts):
    """The facts of one set of arguments."""

    run: MegatronRun
    #: what the arguments say of `model`, `training` and `layout`: `UNKNOWN` where they say
    #: something that can't be known; fields of which no option is read are missing
    said: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=4)
def megatron_facts(submission: Submission) -> tuple[MegatronFacts, ...]:
    """Read the facts of each set of Megatron arguments of a training run."""
    return tuple(_facts_of(run) for run in megatron_runs(submission) if run.trains)


def _facts_of(run: MegatronRun) -> MegatronFacts:
    read = _Reading(run=run)
    _learn_plain_keys(read)
    _learn_model(read)
    _learn_training(read)
    _learn_layout(read)
    return MegatronFacts(job=_job_of(read), run=run, said=read.values)


def at_least(job: Job) -> Job:
    """Return a job with the least that each unknown part of its model can be.

    Estimates of it are lower bounds.
    """
    model, stack = job.model, job.model.stack
    layer = stack.kinds[0]
    hidden, mixer = getattr(model, "hidden", 0), layer.mixer
    part = getattr(layer, "feed_forward", partial(Dense))
    kind = GroupedQuery if isinstance(mixer, UnsureAttention) else type(mixer)
    least = completed(
        layer,
        hidden=hidden,
        mixer=_filled(mixer, kind, hidden),
        feed_forward=_filled(part, type(part), hidden),
    )
    runs = getattr(stack, "runs", ((0, 1),))
    unknown = {name: value for name, value in _LEAST.items() if not hasattr(model, name)}
    least_model = completed(model, stack=Stack(kinds=(least,), runs=runs), **unknown)
    return completed(job, model=least_model)


def _filled(part: Any, kind: type[Any], hidden: int) -> Any:
    """A part of this kind with the least that each unknown field can be."""
    names = [each.name for each in fields(kind)]
    known_values = {name: getattr(part, name) for name in names if hasattr(part, name)}
    least = {name: value for name, value in _LEAST_OF_PARTS.items() if name in names}
    return kind(**{**least, **known_values, "hidden": hidden})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Facts that are read so far, by pointers into a job."""

    run: MegatronRun
    #: of each record
    values: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    places: dict[str, Location] = field(default_factory=dict)

    def learn(self, pointer: str, value: Any, option: str | None = None) -> None:
        """Keep a value, which may be `UNKNOWN`, and the place of its option if that is given."""
        _, record, name = pointer.split("/")
        self.values[record][name] = value
        if option is not None and value is not UNKNOWN and self.run.has(option):
            self.places[pointer] = self.run.locate(option)

    def number(self, pointer: str, option: str, default: int | None = None) -> int | None:
        """A size of at least 1 that is given, or is surely `default`."""
        value = size(self.run.setting(option, default))
        self.learn(pointer, UNKNOWN if value is None else value, option)
        return value

    def flag(self, pointer: str, *options: str) -> bool:
        """Learn and return whether one of the flags is given, where that can be known."""
        option = next(filter(self.run.has, options), None)
        is_given = option is not None
        is_known = is_given or self.run.sure(*options)
        self.learn(pointer, is_given if is_known else UNKNOWN, option)
        return is_given


def _job_of(read: _Reading) -> Job:
    run, cluster = read.run, cluster_of(read.run.submission)
    pins = {
        name: None if value is UNKNOWN else value for name, value in read.values["layout"].items()
    }
    is_world_known = bool(run.gpus and run.model_parallel)
    return partial(
        Job,
        name=run.program or "run",
        framework=run.submission.programs.frameworks[run.flavour],
        deepspeed_version=release_of_deepspeed(run.submission, run.path).version,
        model=_model_of(read.values["model"]),
        cluster=UNKNOWN if cluster is None else cluster,
        gpus=run.gpus if is_world_known else UNKNOWN,
        training=partial(Training, **read.values["training"]),
        pins=Pins(**pins, data=run.replicas if is_world_known else None),
        headroom=0.0,
        origin=Origin(
            path=run.path,
            locations=read.places,
            start=run.locate(""),
            vocabulary=OF_OPTIONS[run.flavour],
        ),
    )


def _model_of(values: dict[str, Any]) -> Model:
    """Return a model of one kind of layer, as far as its sizes are known."""
    layer = partial(
        Layer,
        hidden=values.get("hidden", UNKNOWN),
        mixer=_mixer_of(values),
        feed_forward=_feed_forward_of(values),
        norm=Norm(kind=values["norm"]),
    )
    layers = values["layers"]
    runs = UNKNOWN if layers is UNKNOWN else ((0, layers),)
    stack = partial(Stack, kinds=(layer,), runs=runs)
    known_values = {name: value for name, value in values.items() if value is not UNKNOWN}
    return partial(Model, **{**known_values, "norm": layer.norm, "stack": stack})


def _mixer_of(values: dict[str, Any]) -> Any:
    """The attention of every layer."""
    kind: type[Any] = UnsureAttention
    if values["latent"] is not UNKNOWN:
        kind = Latent if values["latent"] else GroupedQuery
    window = values["sliding_window"]
    sizes = {each.name: values[each.name] for each in fields(kind) if each.name in values}
    return partial(
        kind,
        **sizes,
        sinks=values["attention_sinks"],
        span=UNKNOWN if window is UNKNOWN else Span(window=window),
        rotary=values["position_embedding"] == "rotary",
    )


def _feed_forward_of(values: dict[str, Any]) -> Any:
    """The MLP or the experts of every layer; `UNKNOWN` where it isn't known which."""
    experts = values["experts"]
    if experts is UNKNOWN:
        return UNKNOWN
    of_mlp = {
        "hidden": values.get("hidden", UNKNOWN),
        "gated": values["gated_mlp"],
        "activation": values["activation"],
        "bias": values["mlp_bias"],
    }
    if not experts:
        return partial(Dense, width=values["ffn"], **of_mlp)
    return partial(
        Experts,
        experts=experts,
        per_token=values.get("experts_per_token", UNKNOWN),
        expert_width=values.get("moe_ffn", UNKNOWN),
        **of_mlp,
    )


def _learn_plain_keys(read: _Reading) -> None:
    """Learn the keys of layout and training that one option says, or its default.

    The table of options is read backwards.
    """
    for row in _plain_rows(read.run.flavour):
        if row.is_flag:
            read.flag(row.pointer, *row.options)
        else:
            read.number(row.pointer, row.options[0], row.default)


class _PlainRow(NamedTuple):
    """A key that one option says, under whichever of its names."""

    pointer: str
    options: tuple[str, ...]
    is_flag: bool
    default: int | None = None


@lru_cache(maxsize=2)
def _plain_rows(flavour: Flavour) -> tuple[_PlainRow, ...]:
    """The keys of layout and training that one option of a project says."""
    table, plain_rows = option_table(flavour), list[_PlainRow]()
    for row in rows(flavour):
        section, *names = row.key.split(".")
        option = table.get(row.option)
        if section not in ("layout", "training") or len(names) != 1 or option is None:
            continue
        pointer = f"/{section}/{names[0]}"
        if option.kind == "flag" and row.value is True:
            also = (name for name in row.also if table.get(name) is not None)
            plain_rows.append(_PlainRow(pointer, (row.option, *also), is_flag=True))
        elif Mark.SIZE in row.marks:
            default = option.default if isinstance(option.default, int) else None
            plain_rows.append(_PlainRow(pointer, (row.option,), is_flag=False, default=default))
    return tuple(plain_rows)


def _learn_model(read: _Reading) -> None:
    run = read.run
    hidden = read.number("/model/hidden", "--hidden-size")
    heads = read.number("/model/heads", HEADS)
    ffn = None  # by default, under SwiGLU two thirds in whole 64s (both trees' arguments.py)
    if hidden and run.sure("--swiglu"):
        ffn = int((4 * hidden * 2 / 3) / 64) * 64 if run.has("--swiglu") else 4 * hidden
    ffn = read.number("/model/ffn", "--ffn-hidden-size", ffn)
    if (read.number("/model/layers", LAYERS) or 0) > MOST_LAYERS:
        read.learn("/model/layers", UNKNOWN)
    read.number("/model/head_dim", "--kv-channels", hidden // heads if hidden and heads else None)
    read.number("/model/vocab", "--vocab-size")
    read.number("/model/max_positions", "--max-position-embeddings")
    read.number("/model/experts_per_token", option_of("model.num_experts_per_tok", run.flavour), 2)
    _learn_kv_heads(read, heads)
    _learn_experts(read, ffn)
    read.flag("/model/gated_mlp", "--swiglu", "--quick-geglu")
    options_against = {
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), "--disable-bias-linear"),
        "tied_embeddings": "--untie-embeddings-and-output-weights",
    }
    for name, option in options_against.items():
        read.learn(f"/model/{name}", not run.has(option) if run.sure(option) else UNKNOWN, option)
    _learn_attention_parts(read)
    has_learned_positions = run.value(
        "--position-embedding-type", "learned_absolute"
    ) == "learned_absolute" and not run.has_any(
        "--use-rotary-position-embeddings", "--no-position-embedding"
    )
    rows_of_positions = max(run.integer("--max-position-embeddings") or 0, 0)
    read.values["model"] |= {
        "name": "this model",
        "family": "megatron",
        "activation": "silu" if run.has("--swiglu") else "gelu",
        "position_embedding": "learned" if has_learned_positions else "rotary",
        "position_rows": rows_of_positions if has_learned_positions else 0,
        "norm": str(run.value("--normalization", "LayerNorm")).lower(),
        "dropout": run.number("--hidden-dropout", 0.1) or 0.0,
        "attention_dropout": run.number("--attention-dropout", 0.1) or 0.0,
        "source": run.path,
    }


def _learn_experts(read: _Reading, ffn: int | None) -> None:
    """Learn the experts of a layer and their width, which is the MLP's by default."""
    run = read.run
    experts = run.integer("--num-experts")
    if (experts is None or experts < 0) and not run.lacks("--num-experts"):
        read.learn("/model/experts", UNKNOWN)
    elif not experts or (experts == 1 and not run.is_lm):  # 1 is Megatron-DeepSpeed's for none
        read.learn("/model/experts", 0)
    else:
        read.learn("/model/experts", experts)
    if read.values["model"]["experts"]:
        option = "--moe-ffn-hidden-size" if run.is_lm else "--ffn-hidden-size"
        read.number("/model/moe_ffn", option, ffn)


def _learn_attention_parts(read: _Reading) -> None:
    run = read.run
    written = re.fullmatch(r"\(?\s*([0-9]{1,9})\s*,\s*0\s*\)?", str(run.value("--window-size")))
    is_sure = run.sure("--window-size", "--softmax-type")
    window = whole(written[1]) + 1 if written else None  # a token itself, and those before
    read.learn("/model/sliding_window", window if is_sure else UNKNOWN)
    sinks = run.value("--softmax-type", "vanilla") in ("learnable", "off-by-one")
    read.learn("/model/attention_sinks", sinks if is_sure else UNKNOWN)
    latent = "--multi-latent-attention"
    is_one_kind = run.sure(latent) and not run.has("--experimental-attention-variant")
    read.learn("/model/latent", run.has(latent) if is_one_kind else UNKNOWN)


def _learn_kv_heads(read: _Reading, heads: int | None) -> None:
    run, grouped = read.run, "--group-query-attention"
    if not run.is_lm:
        read.number("/model/kv_heads", "--num-key-value-heads", heads)
    elif run.has(grouped):
        read.number("/model/kv_heads", "--num-query-groups", 1)
    else:
        read.learn("/model/kv_heads", heads if heads and run.sure(grouped) else UNKNOWN)


def _learn_training(read: _Reading) -> None:
    run, training = read.run, read.values["training"]
    optimizer = run.choice("--optimizer", "adam")
    kind = "sgd" if optimizer == "sgd" else "adamw"
    read.learn("/training/optimizer", UNKNOWN if optimizer is None else kind)
    names = ("--fp8-format", "--fp4-format") if run.is_lm else ("--fp8-hybrid", "--fp8-e4m3")
    types = {
        **dict.fromkeys(names, "fp8"),
        "--fp4-format": "nvfp4",
        "--bf16": "bf16",
        "--fp16": "fp16",
    }
    option = next(filter(run.has, types), None)
    if option is not None:
        precision: object = types[option]
    else:
        precision = "fp32" if run.sure(*types) else UNKNOWN
    read.learn("/training/precision", precision, option)
    _learn_attention(read)
    if not run.is_lm:
        if run.config is not None:
            training["gradient_dtype"] = "fp32" if run.config.accumulates_in == "fp32" else "same"
        return
    # Beside products in 4 bits it tells the optimizer who keeps the fp32 weights, and no more.
    recipe = "delayed" if precision == "nvfp4" else run.choice("--fp8-recipe", "delayed")
    read.learn("/training/fp8_recipe", recipe if recipe in _FP8_RECIPES else UNKNOWN)
    training["mtp_depths"] = run.integer("--mtp-num-layers") or 0
    if run.has("--grad-reduce-in-bf16"):
        training["gradient_dtype"] = "same"
    if run.has("--use-precision-aware-optimizer") and run.lacks("--optimizer-cpu-offload"):
        moments = (run.value("--exp-avg-dtype", "fp32"), run.value("--exp-avg-sq-dtype", "fp32"))
        training["moment_dtype"] = _widest(moments)
        training["master_dtype"] = _widest((run.value("--main-params-dtype", "fp32"),))


def _widest(dtypes: Iterable[object]) -> str:
    """The type of most bytes; fp32 where one isn't known."""
    formats = ("fp8", "bf16", "fp16", "fp32")
    known_formats = (dtype if dtype in formats else "fp32" for dtype in map(str, dtypes))
    return max(known_formats, key=formats.index)


def _learn_attention(read: _Reading) -> None:
    run, backend, pointer = read.run, read.run.value("--attention-backend"), "/training/attention"
    is_flash = read.flag(pointer, *_FLASH)
    if run.is_lm and not is_flash:  # Transformer Engine picks a fused kernel by itself
        by_te = run.value("--transformer-impl", "transformer_engine") == "transformer_engine"
        is_flash = backend in ("flash", "fused", "auto") or (backend is None and by_te)
    if read.values["training"]["attention"] is not UNKNOWN:
        option = None if pointer in read.places or backend is None else "--attention-backend"
        read.learn(pointer, "flash" if is_flash else "unfused", option)


def _learn_layout(read: _Reading) -> None:
    """The layout: what is given, and the defaults that surely hold."""
    run = read.run
    # core_v0.16.1 megatron/training/arguments.py:410: as the rest of the layer
    if run.has("--num-experts"):
        read.number("/layout/expert_tensor", "--expert-tensor-parallel-size", run.tensor)
    else:
        read.learn("/layout/expert_tensor", 1)
    _learn_stages(read)
    batch, micro, replicas = run.global_batch, run.micro_batch, run.replicas
    if micro and replicas:
        batch = micro * replicas if batch is None and run.lacks_all(GLOBAL, SCHEDULE) else batch
        if batch and batch % (micro * replicas) == 0:
            read.learn("/layout/gradient_accumulation", batch // (micro * replicas), GLOBAL)
    _learn_recomputation(read)
    if run.is_lm:
        _learn_from_megatron_lm(read)
    elif run.config is not None:
        _learn_from_config(read, run.config)


def _learn_stages(read: _Reading) -> None:
    """Learn the chunks of a stage, and the layers of the first and of the last stage where they are
    not those of the other stages.
    """
    run, listed, stages = read.run, read.run.listed_chunks, read.run.pipeline
    chunks, option = None, CHUNKS
    is_sure = run.sure(CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT, *_OTHER_CHUNKS)
    if is_sure and not run.has_any(*_OTHER_CHUNKS):
        option = run.first_of(CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT)
        chunks = run.chunks if run.has(option) else 1
    read.learn("/layout/virtual_pipeline", UNKNOWN if chunks is None else chunks, option)
    ends = {"first_stage_layers": FIRST_STAGE, "last_stage_layers": LAST_STAGE}
    if listed and stages and len(listed) % stages == 0:
        read.values["layout"] |= dict(zip(ends, uneven_ends(listed, stages), strict=True))
        return
    for name, option in ends.items():
        if run.is_lm and run.has(option):
            read.number(f"/layout/{name}", option)


def _learn_recomputation(read: _Reading) -> None:
    run, other_options = read.run, ("--recompute-activations", "--checkpoint-activations")
    is_value_unknown = run.has(_GRANULARITY) and run.value(_GRANULARITY) is None
    if run.sure(_GRANULARITY, *other_options) and not is_value_unknown:
        kind = "selective" if run.recomputes else "none"
        if run.recomputes == "full" or run.has("--checkpoint-activations"):
            kind = "full"
        read.learn("/layout/recompute", kind, _GRANULARITY)
    method = run.value("--recompute-method") if run.recomputes == "full" else None
    if method == "block":
        read.number("/layout/recompute_layers", "--recompute-num-layers")
    elif method == "uniform":
        read.number("/layout/recompute_group", "--recompute-num-layers")
    elif run.has("--checkpoint-activations"):
        read.number("/layout/recompute_group", "--checkpoint-num-layers", 1)
    names = run.value("--recompute-modules")
    if run.recomputes == "selective" and isinstance(names, tuple) and _MODULES.issuperset(names):
        read.learn("/layout/recompute_modules", tuple(map(str, names)), "--recompute-modules")


def _learn_from_megatron_lm(read: _Reading) -> None:
    """Learn what only Megatron-LM has options for; its distributed optimizer is stage 1."""
    run = read.run
    distributed, offload = "--use-distributed-optimizer", "--optimizer-cpu-offload"
    if not run.has_any(*_FSDP):
        stage = int(run.has(distributed)) if run.sure(distributed) else UNKNOWN
        read.learn("/layout/zero_stage", stage, distributed)
    offloaded = "optimizer" if run.has(offload) else "none"
    read.learn("/layout/offload", offloaded if run.sure(offload) else UNKNOWN, offload)
    stage_by_strategy = {strategy: stage for stage, strategy in SHARDINGS.items()}
    if run.has("--use-megatron-fsdp") and run.sure("--use-megatron-fsdp", _STRATEGY):
        stage = stage_by_strategy.get(str(run.value(_STRATEGY)), UNKNOWN)
        read.learn("/layout/zero_stage", stage, _STRATEGY)
    _learn_exchange(read)


def _learn_exchange(read: _Reading) -> None:
    """Learn how many context ranks exchange heads, where all layers do it alike.

    Nothing is learnt where ranks gather keys and values.
    """
    run = read.run
    kinds = run.choice(_EXCHANGE, ("p2p",))
    sizes = run.value("--hierarchical-context-parallel-sizes")
    ranks: object = None
    if kinds == ("p2p",):
        ranks = 1
    elif kinds == ("a2a",):
        ranks = run.context
    elif kinds == ("a2a+p2p",) and isinstance(sizes, tuple) and len(sizes) == 2:
        ranks, _ = sizes
    if isinstance(ranks, int) and ranks >= 1:
        read.learn("/layout/context_heads", ranks, _EXCHANGE)


def _learn_from_config(read: _Reading, config: Config) -> None:
    """Learn what the DeepSpeed config of Megatron-DeepSpeed decides.

    Its ZeRO stage is the one that the engine runs.
    """
    read.learn("/layout/zero_hpz", second_partitions(config) or UNKNOWN)
    if config.stage is None:
        return
    if read.run.has("--deepspeed"):
        read.learn("/layout/zero_stage", config.stage)
        read.places["/layout/zero_stage"] = config.locate("/zero_optimization/stage")
    offload = offload_of(config)
    read.learn("/layout/offload", offload)
    if offload != "none":
        read.places["/layout/offload"] = config.locate(
            "/zero_optimization/offload_optimizer/device"
        )
