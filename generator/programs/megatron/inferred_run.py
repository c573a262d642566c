"""A run as its Megatron arguments give it: a job with every layout key pinned, and which of its facts are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from ...catalog.records import Accelerator, Model
from ...findings import Location
from ...job.records import Cluster, Job, Launch, Origin, Pins, Training
from ..deepspeed.config import Config
from ..submission import Submission
from .inferred_model import Facts, model_of
from .run import (
    CHUNKS,
    CONTEXT,
    EXPERT,
    FIRST_STAGE,
    GLOBAL,
    LAST_STAGE,
    LAYERS_PER_CHUNK,
    MICRO,
    MOE_EXPERT,
    PIPELINE,
    STAGE_LAYOUT,
    TENSOR,
    ULYSSES,
    MegatronRun,
    megatron_runs,
)
from .stage_layout import uneven_ends
from .vocabulary import OF_OPTIONS

_OTHER_CHUNKS: Final = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
_GRANULARITY: Final = "--recompute-granularity"
_EXCHANGE: Final = "--cp-comm-type"
_LEVELS: Final = "--hierarchical-context-parallel-sizes"
_METHOD: Final = "--recompute-method"
_MODULES: Final = frozenset(("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"))
_FSDP: Final = ("--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2")
_FLASH: Final = ("--use-flash-attn", "--use-flash-attn-v1", "--use-flash-attn-v2", "--use-flash-attn-triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredRun:
    """The job, the names of the facts in it that its files state, and their places by layout key."""

    job: Job
    facts: frozenset[str]
    places: Mapping[str, Location]
    start: Location  #: of what has no place of its own: the program's
    run: MegatronRun | None = None  #: None where a DeepSpeed config is all there is

    def locate(self, names: Iterable[str]) -> Location:
        """The place of the first of the keys that is written, else of the program."""
        return next((self.places[name] for name in names if name in self.places), self.start)


def inferred_runs(submission: Submission) -> Iterator[InferredRun]:
    """A job for each set of Megatron arguments of a training run."""
    for run in megatron_runs(submission):
        if run.trains:
            facts = Facts(run=run)
            job = _job_of(facts)
            yield InferredRun(job=job, facts=frozenset(facts.known), places=facts.places, start=run.locate(""), run=run)


def inferred_job(
    submission: Submission, framework: str, origin: Origin, *, training: Mapping[str, Any], **known: Any
) -> Job:
    """A job of which no more than model, machines, GPUs, training and layout are asked, and no schedule."""
    return Job(
        framework=submission.frameworks()[framework],
        deepspeed_version=submission.deepspeed_version,
        training=Training(duration_tokens=None, learning_rate=0.0, weight_decay=0.0, gradient_clipping=0.0, **training),
        headroom=0.0,
        launch=Launch(target="shell", script="", arguments=(), environment={}, time_limit_s=None, options={}),
        origin=origin,
        **known,
    )


def _job_of(facts: Facts) -> Job:
    """The job of the arguments; what isn't known gets a value that breaks no rule."""
    run = facts.run
    pins, model, cluster = _pins(facts), model_of(facts), run.submission.cluster
    if cluster is not None:
        facts.learn("cluster")
    if "layers" in facts.known and not run.counts_all_layers:
        facts.learn("stage_layers")
    training = {
        "sequence_length": facts.number("sequence", "--seq-length") or 1,
        "global_batch": facts.number("global_batch", GLOBAL) or 1,
        "precision": _precision(facts),
        "optimizer": "sgd" if run.value("--optimizer") == "sgd" else "adamw",
        "attention": _attention(facts),
        **_state_types(facts),
    }
    origin = Origin(path=run.path, vocabulary=OF_OPTIONS[run.flavour])
    gpus, name = _gpus(facts, pins, model), run.program or "run"
    known = {"name": name, "model": model, "cluster": cluster or _NOWHERE, "gpus": gpus, "pins": pins}
    return inferred_job(run.submission, run.flavour, origin, training=training, **known)


def _state_types(facts: Facts) -> dict[str, Any]:
    """Types of gradients, weights and optimizer states."""
    run = facts.run
    if not run.is_lm:
        sums = run.config.accumulates_in if run.config is not None else None
        return {} if run.config is None else {"gradient_dtype": "fp32" if sums == "fp32" else "same"}
    read: dict[str, Any] = {"fp8_parameters": facts.flag("fp8_parameters", "--fp8-param-gather")}
    if facts.flag("gradient_dtype", "--grad-reduce-in-bf16"):
        read["gradient_dtype"] = "same"
    if run.has("--use-precision-aware-optimizer") and run.lacks("--optimizer-cpu-offload"):
        moments = (run.value("--exp-avg-dtype", "fp32"), run.value("--exp-avg-sq-dtype", "fp32"))
        read |= {"moment_dtype": _widest(moments), "master_dtype": _widest((run.value("--main-params-dtype", "fp32"),))}
    return read


def _widest(dtypes: Iterable[object]) -> str:
    """The type of most bytes; fp32 where one isn't known."""
    known = ("fp8", "bf16", "fp16", "fp32")
    return known[max(known.index(str(dtype)) if dtype in known else len(known) - 1 for dtype in dtypes)]


def _pins(facts: Facts) -> Pins:
    is_lm = facts.run.is_lm
    micro = facts.number("micro_batch", MICRO)
    first, last = _stage_sizes(facts)
    return Pins(
        tensor=facts.number("tensor", TENSOR, 1),
        pipeline=facts.number("pipeline", PIPELINE, 1),
        virtual_pipeline=_chunks(facts),
        first_stage_layers=first,
        last_stage_layers=last,
        context=facts.number("context", CONTEXT if is_lm else ULYSSES, 1),
        expert=facts.number("expert", EXPERT if is_lm else MOE_EXPERT, 1),
        expert_tensor=_expert_tensor(facts),
        sequence_parallel=facts.flag("sequence_parallel", "--sequence-parallel"),
        zero_stage=_sharding(facts) if is_lm else _zero_stage(facts),
        micro_batch=micro,
        gradient_accumulation=_accumulation(facts, micro),
        recompute=_recompute(facts),
        recompute_layers=_repeated(facts, "block"),
        recompute_group=_repeated(facts, "uniform"),
        recompute_modules=_modules(facts),
        offload=_offload(facts),
        **(_of_megatron_lm(facts) if is_lm else {}),
        zero_hpz=None if is_lm else second_partitions(facts.run.config),
    )


def _of_megatron_lm(facts: Facts) -> dict[str, Any]:
    """What only Megatron-LM has options for."""
    return {
        "tensor_overlap": facts.flag("tensor_overlap", "--tp-comm-overlap"),
        "expert_overlap": facts.flag("expert_overlap", "--overlap-moe-expert-parallel-comm"),
        "zero_copies": facts.number("zero_copies", "--num-distributed-optimizer-instances", 1),
        "context_heads": _context_heads(facts),
    }


def _expert_tensor(facts: Facts) -> int | None:
    """As the rest of the layer where nothing else is given (megatron/training/arguments.py:410 @ core_v0.16.1)."""
    if not facts.run.has("--num-experts"):
        return 1
    return facts.number("expert_tensor", "--expert-tensor-parallel-size", facts.number("tensor", TENSOR, 1))


def _context_heads(facts: Facts) -> int | None:
    """The ranks that exchange heads, where all layers do it alike; None where they gather keys and values."""
    kinds, sizes = facts.run.choice(_EXCHANGE, ("p2p",)), facts.run.value(_LEVELS)
    ranks: object = None
    if kinds == ("p2p",):
        ranks = 1
    elif kinds == ("a2a",):
        ranks = facts.run.context
    elif kinds == ("a2a+p2p",) and isinstance(sizes, tuple) and len(sizes) == 2:
        ranks = sizes[0]
    if not isinstance(ranks, int) or ranks < 1:
        return None
    facts.learn("context_heads", _EXCHANGE)
    return ranks


def second_partitions(config: Config | None) -> int | None:
    """The ranks that share a second copy of stage 3's parameters (ZeRO++ hpZ)."""
    size = config.whole("/zero_optimization/zero_hpz_partition_size") if config and config.stage == 3 else None
    return size if size and 0 < size < 2**31 else None


def _chunks(facts: Facts) -> int | None:
    run = facts.run
    if not run.sure(CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT, *_OTHER_CHUNKS) or run.has_any(*_OTHER_CHUNKS):
        return None
    option = run.first_of(CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT)
    chunks = run.chunks if run.has(option) else 1
    if chunks is not None:
        facts.learn("virtual_pipeline", option)
    return chunks


def _stage_sizes(facts: Facts) -> tuple[int | None, int | None]:
    """Layers of the first and of the last stage, where they are not those of the others."""
    run, listed, stages = facts.run, facts.run.listed_chunks, facts.run.pipeline
    if listed and stages and len(listed) % stages == 0:
        return uneven_ends(listed, stages)
    if not run.is_lm:
        return None, None
    first = facts.number("first_stage_layers", FIRST_STAGE) if run.has(FIRST_STAGE) else None
    return first, facts.number("last_stage_layers", LAST_STAGE) if run.has(LAST_STAGE) else None


def _accumulation(facts: Facts, micro: int | None) -> int | None:
    batch, replicas = facts.number("global_batch", GLOBAL), facts.run.replicas
    if not micro or not replicas:
        return None
    if batch is None and facts.run.lacks(GLOBAL):
        batch = micro * replicas
    if not batch or batch % (micro * replicas):
        return None
    facts.learn("gradient_accumulation", GLOBAL)
    return batch // (micro * replicas)


def _sharding(facts: Facts) -> int | None:
    """Megatron-LM's distributed optimizer, which is stage 1."""
    return None if facts.run.has_any(*_FSDP) else int(facts.flag("zero_stage", "--use-distributed-optimizer"))


def _zero_stage(facts: Facts) -> int | None:
    """The stage of the config, which is what the engine runs."""
    run, config = facts.run, facts.run.config
    if config is None or config.stage is None or not run.has("--deepspeed"):
        return None
    facts.places["zero_stage"] = config.locate("/zero_optimization/stage")
    facts.learn("zero_stage", "--zero-stage")
    return config.stage


def _recompute(facts: Facts) -> str | None:
    run, older = facts.run, ("--recompute-activations", "--checkpoint-activations")
    if not run.sure(_GRANULARITY, *older) or (run.has(_GRANULARITY) and run.value(_GRANULARITY) is None):
        return None
    facts.learn("recompute", _GRANULARITY)
    full = run.recomputes == "full" or run.has("--checkpoint-activations")
    return "full" if full else "selective" if run.recomputes else "none"


def _repeated(facts: Facts, method: str) -> int | None:
    """The number of layers that a method of full recomputation has."""
    run, option = facts.run, "--recompute-num-layers"
    if run.recomputes == "full" and run.value(_METHOD) == method:
        return facts.number("recompute_layers" if method == "block" else "recompute_group", option)
    if method == "uniform" and run.has("--checkpoint-activations"):
        return facts.number("recompute_group", "--checkpoint-num-layers", 1)
    return None


def _modules(facts: Facts) -> tuple[str, ...] | None:
    """The modules of selective recomputation that a layout has, where all that are given are among them."""
    run, names = facts.run, facts.run.value("--recompute-modules")
    if run.recomputes != "selective" or not isinstance(names, tuple) or not _MODULES.issuperset(names):
        return None
    facts.learn("recompute_modules", "--recompute-modules")
    return tuple(str(name) for name in names)


def _offload(facts: Facts) -> str | None:
    if facts.run.is_lm:
        return "optimizer" if facts.flag("offload", "--optimizer-cpu-offload") else "none"
    config = facts.run.config
    if config is None or config.stage is None:
        return None
    facts.learn("offload")
    offload = offload_of(config)
    if offload != "none":
        facts.places["offload"] = config.locate("/zero_optimization/offload_optimizer/device")
    return offload


def offload_of(config: Config) -> str:
    """What a config offloads, as a layout calls it."""
    if not config.stage or not config.offloads("optimizer"):
        return "none"
    return "optimizer+parameters" if config.stage == 3 and config.offloads("param") else "optimizer"


def _precision(facts: Facts) -> str:
    names = ("--fp8-format",) if facts.run.is_lm else ("--fp8-hybrid", "--fp8-e4m3")
    options = {**dict.fromkeys(names, "fp8"), "--bf16": "bf16", "--fp16": "fp16"}
    return options[facts.run.first_of(*options)] if facts.flag("precision", *options) else "fp32"


def _attention(facts: Facts) -> str:
    run, backend = facts.run, facts.run.value("--attention-backend")
    if backend is not None:
        facts.place("attention", "--attention-backend")
    flash = facts.flag("attention", *_FLASH)
    if run.is_lm and not flash:  # Transformer Engine picks a fused kernel by itself
        fused = run.value("--transformer-impl", "transformer_engine") == "transformer_engine"
        flash = backend in ("flash", "fused", "auto") or (backend is None and fused)
    return "flash" if flash else "unfused"


def _gpus(facts: Facts, pins: Pins, model: Model) -> int:
    """The GPUs; unknown, a number that every size divides, so that hints leave none out for it."""
    if facts.run.gpus and facts.run.model_parallel:
        facts.known |= {"gpus", "data"}
        return facts.run.gpus
    sizes = (pins.tensor or 1) * (pins.pipeline or 1) * (pins.context or 1) * (pins.expert or 1)
    return sizes * model.heads * model.layers


_UNLIMITED: Final[dict[str, Any]] = dict.fromkeys(
    ("memory_bytes", "memory_bytes_per_s", "link_bytes_per_s", "pcie_bytes_per_s"), inf
)
_UNSTATED: Final[dict[str, Any]] = dict.fromkeys(
    ("provider", "host_memory_bytes", "cpu_cores", "local_nvme_bytes", "price_per_node_hour")
)
_UNKNOWN: Final[dict[str, Any]] = {"name": "unknown", "vendor": "nvidia", "generation": "unknown", "source": ""}
#: Machines of which nothing is known; the rules that ask for them don't judge such a run.
_NOWHERE: Final = Cluster(
    name="unknown machines",
    accelerator=Accelerator(flops_per_s={}, achievable_fraction=None, **_UNKNOWN, **_UNLIMITED),
    accelerators_per_node=720_720,  # divided by every number up to 16, so that hints leave none out for it
    intra_node="nvswitch",
    link_domain=1,
    network="unknown",
    network_bytes_per_s_per_node=inf,
    source="",
    **_UNSTATED,
)
