"""The facts that Megatron arguments state of a run, each with its place."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from functools import lru_cache
from typing import Any, Final

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

_OTHER_CHUNKS: Final = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
_GRANULARITY: Final = "--recompute-granularity"
_EXCHANGE: Final = "--cp-comm-type"
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
    _plain(read)
    _model(read)
    _training(read)
    _layout(read)
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
    whole = completed(model, stack=Stack(kinds=(least,), runs=runs), **unknown)
    return completed(job, model=whole)


def _filled(part: Any, kind: type[Any], hidden: int) -> Any:
    """A part of this kind with the least that each unknown field can be."""
    names = [each.name for each in fields(kind)]
    known = {name: getattr(part, name) for name in names if hasattr(part, name)}
    least = {name: value for name, value in _LEAST_OF_PARTS.items() if name in names}
    return kind(**{**least, **known, "hidden": hidden})


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
        """Ask whether one of the flags is given, where that can be known."""
        option = next(filter(self.run.has, options), None)
        known = option is not None or self.run.sure(*options)
        self.learn(pointer, option is not None if known else UNKNOWN, option)
        return option is not None


def _job_of(read: _Reading) -> Job:
    run, cluster = read.run, cluster_of(read.run.submission)
    pins = {
        name: None if value is UNKNOWN else value for name, value in read.values["layout"].items()
    }
    known = bool(run.gpus and run.model_parallel)
    return partial(
        Job,
        name=run.program or "run",
        framework=run.submission.programs.frameworks[run.flavour],
        deepspeed_version=release_of_deepspeed(run.submission, run.path).version,
        model=_model_of(read.values["model"]),
        cluster=UNKNOWN if cluster is None else cluster,
        gpus=run.gpus if known else UNKNOWN,
        training=partial(Training, **read.values["training"]),
        pins=Pins(**pins, data=run.replicas if known else None),
        headroom=0.0,
        origin=Origin(
            path=run.path,
            locations=read.places,
            start=run.locate(""),
            vocabulary=OF_OPTIONS[run.flavour],
        ),
    )


def _model_of(values: dict[str, Any]) -> Model:
    """Return the model whose layers are alike, as far as its sizes are known.

    They are the sizes of attention, and of MLPs or experts.
    """
    known = {name: value for name, value in values.items() if value is not UNKNOWN}
    latent, experts = values["latent"], values["experts"]
    kind: type[Any] = UnsureAttention
    if latent is not UNKNOWN:
        kind = Latent if latent else GroupedQuery
    window = values["sliding_window"]
    sizes = {each.name: values[each.name] for each in fields(kind) if each.name in values}
    mixer = partial(
        kind,
        **sizes,
        sinks=values["attention_sinks"],
        span=UNKNOWN if window is UNKNOWN else Span(window=window),
        rotary=values["position_embedding"] == "rotary",
    )
    mlp = {
        "hidden": values.get("hidden", UNKNOWN),
        "gated": values["gated_mlp"],
        "activation": values["activation"],
        "bias": values["mlp_bias"],
    }
    part: Any = UNKNOWN
    if experts is not UNKNOWN:
        routed = {"per_token": "experts_per_token", "expert_width": "moe_ffn"}
        widths = {name: values.get(fact, UNKNOWN) for name, fact in routed.items()}
        part = (
            partial(Experts, experts=experts, **widths, **mlp)
            if experts
            else partial(Dense, width=values["ffn"], **mlp)
        )
    layer = partial(
        Layer,
        hidden=values.get("hidden", UNKNOWN),
        mixer=mixer,
        feed_forward=part,
        norm=Norm(kind=values["norm"]),
    )
    layers = values["layers"]
    runs = UNKNOWN if layers is UNKNOWN else ((0, layers),)
    return partial(
        Model, **{**known, "norm": layer.norm, "stack": partial(Stack, kinds=(layer,), runs=runs)}
    )


def _plain(read: _Reading) -> None:
    """Return keys of layout and training that one option says, or its default.

    The table of options is read backwards.
    """
    for pointer, options, of_flag, default in _plain_rows(read.run.flavour):
        if of_flag:
            read.flag(pointer, *options)
        else:
            read.number(pointer, options[0], default)


@lru_cache(maxsize=2)
def _plain_rows(flavour: Flavour) -> tuple[tuple[str, tuple[str, ...], bool, int | None], ...]:
    """Pointers of keys that one option says: its names, whether it is a flag, and its default."""
    table, found = option_table(flavour), list[tuple[str, tuple[str, ...], bool, int | None]]()
    for row in rows(flavour):
        section, *names = row.key.split(".")
        option = table.get(row.option)
        if section not in ("layout", "training") or len(names) != 1 or option is None:
            continue
        pointer = f"/{section}/{names[0]}"
        if option.kind == "flag" and row.value is True:
            also = (name for name in row.also if table.get(name) is not None)
            found.append((pointer, (row.option, *also), True, None))
        elif Mark.SIZE in row.marks:
            default = option.default if isinstance(option.default, int) else None
            found.append((pointer, (row.option,), False, default))
    return tuple(found)


def _model(read: _Reading) -> None:
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
    _kv_heads(read, heads)
    experts = run.integer("--num-experts")
    if (experts is not None and experts >= 0) or run.lacks("--num-experts"):
        read.learn(
            "/model/experts", 0 if not experts or (experts == 1 and not run.is_lm) else experts
        )
    else:
        read.learn("/model/experts", UNKNOWN)
    if read.values["model"]["experts"]:
        read.number(
            "/model/moe_ffn", "--moe-ffn-hidden-size" if run.is_lm else "--ffn-hidden-size", ffn
        )
    read.flag("/model/gated_mlp", "--swiglu", "--quick-geglu")
    options = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), "--disable-bias-linear")
    for name, option in {
        **options,
        "tied_embeddings": "--untie-embeddings-and-output-weights",
    }.items():
        read.learn(f"/model/{name}", not run.has(option) if run.sure(option) else UNKNOWN, option)
    _attention_parts(read)
    learned = run.value("--position-embedding-type", "learned_absolute") == "learned_absolute"
    learned = learned and not run.has_any(
        "--use-rotary-position-embeddings", "--no-position-embedding"
    )
    read.values["model"] |= {
        "name": "this model",
        "family": "megatron",
        "activation": "silu" if run.has("--swiglu") else "gelu",
        "position_embedding": "learned" if learned else "rotary",
        "position_rows": max(run.integer("--max-position-embeddings") or 0, 0) * learned,
        "norm": str(run.value("--normalization", "LayerNorm")).lower(),
        "dropout": run.number("--hidden-dropout", 0.1) or 0.0,
        "attention_dropout": run.number("--attention-dropout", 0.1) or 0.0,
        "source": run.path,
    }


def _attention_parts(read: _Reading) -> None:
    run = read.run
    written = re.fullmatch(r"\(?\s*([0-9]{1,9})\s*,\s*0\s*\)?", str(run.value("--window-size")))
    sure = run.sure("--window-size", "--softmax-type")
    window = whole(written[1]) + 1 if written else None  # a token itself, and those before
    read.learn("/model/sliding_window", window if sure else UNKNOWN)
    sinks = run.value("--softmax-type", "vanilla") in ("learnable", "off-by-one")
    read.learn("/model/attention_sinks", sinks if sure else UNKNOWN)
    latent = "--multi-latent-attention"
    alike = run.sure(latent) and not run.has("--experimental-attention-variant")
    read.learn("/model/latent", run.has(latent) if alike else UNKNOWN)


def _kv_heads(read: _Reading, heads: int | None) -> None:
    run, grouped = read.run, "--group-query-attention"
    if not run.is_lm:
        read.number("/model/kv_heads", "--num-key-value-heads", heads)
    elif run.has(grouped):
        read.number("/model/kv_heads", "--num-query-groups", 1)
    else:
        read.learn("/model/kv_heads", heads if heads and run.sure(grouped) else UNKNOWN)


def _training(read: _Reading) -> None:
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
    _attention(read)
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
    return formats[
        max(formats.index(str(dtype)) if dtype in formats else len(formats) - 1 for dtype in dtypes)
    ]


def _attention(read: _Reading) -> None:
    run, backend, pointer = read.run, read.run.value("--attention-backend"), "/training/attention"
    flash = read.flag(pointer, *_FLASH)
    if run.is_lm and not flash:  # Transformer Engine picks a fused kernel by itself
        fused = run.value("--transformer-impl", "transformer_engine") == "transformer_engine"
        flash = backend in ("flash", "fused", "auto") or (backend is None and fused)
    if read.values["training"]["attention"] is not UNKNOWN:
        option = None if pointer in read.places or backend is None else "--attention-backend"
        read.learn(pointer, "flash" if flash else "unfused", option)


def _layout(read: _Reading) -> None:
    """The layout: what is given, and the defaults that surely hold."""
    run = read.run
    # core_v0.16.1 megatron/training/arguments.py:410: as the rest of the layer
    if run.has("--num-experts"):
        read.number("/layout/expert_tensor", "--expert-tensor-parallel-size", run.tensor)
    else:
        read.learn("/layout/expert_tensor", 1)
    _stages(read)
    batch, micro, replicas = run.global_batch, run.micro_batch, run.replicas
    if micro and replicas:
        batch = micro * replicas if batch is None and run.lacks_all(GLOBAL, SCHEDULE) else batch
        if batch and batch % (micro * replicas) == 0:
            read.learn("/layout/gradient_accumulation", batch // (micro * replicas), GLOBAL)
    _recompute(read)
    if run.is_lm:
        _of_megatron_lm(read)
    elif run.config is not None:
        _of_config(read, run.config)


def _stages(read: _Reading) -> None:
    """Return the chunks of a stage, and the layers of the first and of the last stage.

    Layers are returned where they are not those of the other stages.
    """
    run, listed, stages = read.run, read.run.listed_chunks, read.run.pipeline
    chunks, option = None, CHUNKS
    if run.sure(CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT, *_OTHER_CHUNKS) and not run.has_any(
        *_OTHER_CHUNKS
    ):
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


def _recompute(read: _Reading) -> None:
    run, older = read.run, ("--recompute-activations", "--checkpoint-activations")
    if run.sure(_GRANULARITY, *older) and not (
        run.has(_GRANULARITY) and run.value(_GRANULARITY) is None
    ):
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


def _of_megatron_lm(read: _Reading) -> None:
    """Read what only Megatron-LM has options for; its distributed optimizer is stage 1."""
    run = read.run
    for pointer, option, values in (
        ("/layout/zero_stage", "--use-distributed-optimizer", (0, 1)),
        ("/layout/offload", "--optimizer-cpu-offload", ("none", "optimizer")),
    ):
        if option != "--use-distributed-optimizer" or not run.has_any(*_FSDP):
            read.learn(pointer, values[run.has(option)] if run.sure(option) else UNKNOWN, option)
    stages = {strategy: stage for stage, strategy in SHARDINGS.items()}
    if run.has("--use-megatron-fsdp") and run.sure("--use-megatron-fsdp", _STRATEGY):
        stage = stages.get(str(run.value(_STRATEGY)))
        read.learn("/layout/zero_stage", UNKNOWN if stage is None else stage, _STRATEGY)
    kinds = run.choice(_EXCHANGE, ("p2p",))
    sizes = run.value("--hierarchical-context-parallel-sizes")
    # that exchange heads, where all layers do it alike; None where they gather keys and values
    ranks: object = None
    if kinds == ("p2p",):
        ranks = 1
    elif kinds == ("a2a",):
        ranks = run.context
    elif kinds == ("a2a+p2p",) and isinstance(sizes, tuple) and len(sizes) == 2:
        ranks = sizes[0]
    if isinstance(ranks, int) and ranks >= 1:
        read.learn("/layout/context_heads", ranks, _EXCHANGE)


def _of_config(read: _Reading, config: Config) -> None:
    """Read what the DeepSpeed config of Megatron-DeepSpeed decides.

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
