"""Writes the program of Megatron-LM, and what Megatron-DeepSpeed's has in common with it.

The table of options is read forwards. Megatron-LM's distributed optimizer is ZeRO stage 1; stages 2
and 3 are Megatron FSDP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ...catalog.layers.delta import GatedDelta
from ...catalog.layers.experts import Experts
from ...catalog.layers.grouped import GroupedQuery
from ...catalog.layers.latent import Latent
from ...catalog.layers.mamba import Mamba2
from ...catalog.model import Model
from ...estimate.groups import experts_together, flexible_dispatcher
from ...estimate.layout import Layout, Offload
from ...estimate.muon import is_muon
from ...estimate.stages import chunk_sizes, layers_of, split
from ...estimate.states import is_precision_aware
from ...findings import Version
from ...job.arguments import gives
from ...job.records import Checkpoints, Framework, Job, Need
from ...rules.fit import pins_host_memory
from ...rules.job.model import missing_parts
from ...search.plan import Plan
from ..program import (
    DEFAULT_STEPS,
    ArgumentGroup,
    Program,
    Value,
    exit_minutes,
    group,
    make_program,
)
from .encode import HYBRID_MODEL, Planned, hybrid_pattern, is_scheduled
from .engine import MEGATRON_LM
from .options import Flavour, option_table
from .releases import needs_of
from .table import (
    DECIDED,
    EVALUATION,
    EXIT_OPTION,
    GROUPS,
    KINDS,
    LENGTHS,
    MIXERS,
    OF_FILES,
    STARTS_ANEW,
)
from .tokenizer import packages, tokenizer_type

NEEDS: Final = (
    Need(what="length", key="training.duration", options=(*LENGTHS, "--train-tokens")),
    Need(
        what="data",
        key="data.path",
        options=(
            "--data-path",
            "--train-data-path",
            "--data-args-path",
            "--per-split-data-args-path",
            "--mock-data",
        ),
    ),
    Need(what="tokenizer", key="data.tokenizer", options=("--tokenizer-type",)),
    Need(what="folder for checkpoints", key="output.checkpoints", options=("--save",)),
    Need(
        what="resume",
        key="output.resume",
        options=("--load",),
        hint="add --load, or set output.checkpoints in place of --save",
    ),
)


def planned(plan: Plan) -> Planned:
    """The plan, with what rows of the table are written from."""
    job, layout = plan.job, plan.layout
    cut = split(job, layout)
    has_own_ends = layout.first_stage_layers or layout.last_stage_layers
    sizes_last_stage = cut.sizes_ends and not has_own_ends
    # A launch that is adopted may have any number of stages.
    lists_chunks = cut.lists_chunks and layout.pipeline * layout.virtual_pipeline <= _MOST_CHUNKS
    groups_queries = job.model.kv_heads != job.model.heads
    offloads = layout.offload.label != "none"
    in_half_precision = job.training.precision == "bf16" or job.training.is_narrow
    return Planned(
        plan=plan,
        job=job,
        model=job.model,
        attention=job.model.softmax,
        mlp=job.model.feed_forward,
        # Rows of a part that the model lacks are left out.
        delta=job.model.part(GatedDelta),  # type: ignore[arg-type]
        latent=job.model.part(Latent),  # type: ignore[arg-type]
        routed=job.model.part(Experts),  # type: ignore[arg-type]
        training=job.training,
        layout=layout,
        cut=cut,
        chunks=tuple(chunk_sizes(job, layout)) if lists_chunks else (),
        pattern=job.model.pattern,
        state_space=job.model.part(Mamba2),  # type: ignore[arg-type]
        last_stage=int(layers_of(cut, layout, layout.pipeline - 1)) if sizes_last_stage else None,
        backend=flexible_dispatcher(job, layout),
        aware=is_precision_aware(job),
        tokenizer=tokenizer_type(job),
        exit_minutes=exit_minutes(plan),
        rotary=job.model.position_embedding == "rotary",
        grouped_queries=groups_queries and job.model.part(GroupedQuery) is not None,
        linear_bias=job.model.linear_bias,
        grouped_gemm=job.cluster.accelerator.generation.grouped_products,
        fsdp=layout.zero_stage >= 2,
        full=layout.recompute.label == "full",
        offloads=offloads,
        unpinned=offloads and not pins_host_memory(job, plan.memory),
        narrow_gradients=in_half_precision and job.training.gradient_dtype == "same",
        saves=job.output.checkpoints is not None,
    )


def _environment_of_hybridep(job: Job, layout: Layout) -> dict[str, str]:
    """What HybridEP reads of the machines; Megatron-LM reads none of it.

    **Source**: NVIDIA-NeMo/Megatron-Bridge, scripts/performance, the environment of every recipe
    with it: racks have MNNVL, domains of 72 and at most 64 ranks in one, chunks of 128 tokens.
    """
    cluster = job.cluster
    in_rack = cluster.link_domain > cluster.accelerators_per_node
    most_ranks = 64 if in_rack else cluster.accelerators_per_node
    ranks = min(int(experts_together(job, layout)), most_ranks)
    variables = {
        "USE_MNNVL": str(int(in_rack)),
        "NVLINK_DOMAIN_SIZE": str(cluster.link_domain),
        "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": str(ranks),
    }
    if in_rack:
        variables["NUM_OF_TOKENS_PER_CHUNK_COMBINE_API"] = "128"
    return variables


def sizes(p: Planned, context: str) -> str:
    """Say how the GPUs are cut, `context` ranks by the project's name of them."""
    layout = p.layout
    product = (
        f"{layout.world} GPUs = {layout.data} data × {layout.tensor} tensor × "
        f"{layout.pipeline} pipeline"
    )
    return f"{product} × {layout.context} {context}" if layout.context > 1 else product


def _dealt(p: Planned) -> str:
    """Say how the layers are dealt, where not evenly."""
    layers, ends = p.model.layers, int(p.cut.counts_embedding) + int(p.cut.counts_loss)
    if ends:
        counted = ", embedding and loss" if ends == 2 else " and loss"
        return f"; {layers} layers{counted} make {layers + ends} equal shares"
    if p.last_stage is not None:
        return (
            f"; {layers} layers don't divide: the last stage, which has the head, "
            f"gets {p.last_stage}"
        )
    if p.chunks:
        sizes = " or ".join(map(str, sorted(set(p.chunks[:-1]))))
        last = p.chunks[-1] or "none"
        return (
            f"; {layers} layers don't divide: chunks of {sizes}, {last} in the last, "
            "which has the head"
        )
    return ""


def _experts(p: Planned) -> str:
    """Say how experts are computed, and how tokens reach them."""
    gemm = "one grouped GEMM per layer" if p.grouped_gemm else "a GEMM for each"
    exchange = {
        None: "tokens exchanged all-to-all",
        "deepep": "tokens cross nodes once each (DeepEP must be in the image)",
        "hybridep": "tokens cross racks once each (DeepEP's HybridEP must be in the image)",
    }[p.backend]
    return f"experts: {gemm}, {exchange}"


def _letters(p: Planned) -> str:
    """Say what the letters and signs of a pattern of layers mean."""
    kinds = ", ".join(f"{letter} {kind}" for letter, kind in _LETTERS if letter in p.pattern)
    pattern = hybrid_pattern(p)
    text = f"layers: {kinds}"
    if "|" in pattern:
        text += "; | ends a chunk of the pipeline"
    if "/" in pattern:
        text += "; / begins a depth of multi-token prediction"
    return text


def _sharding(p: Planned) -> str:
    """Say what shards the states."""
    if p.fsdp:
        return (
            f"ZeRO stage {p.layout.zero_stage} is Megatron FSDP, which has a "
            "checkpoint format of its own"
        )
    if p.layout.zero_stage:
        return "data parallelism: the distributed optimizer is ZeRO 1"
    return "data parallelism"


#: Chunks of the longest list that is written; a model has fewer layers.
_MOST_CHUNKS: Final = 10_000
_LETTERS: Final = (("M", "Mamba-2"), ("*", "attention"), ("-", "MLP"), ("E", "experts"))
Comment = Callable[[Planned], str]
#: Why the arguments of each group are what they are.
COMMENTS: Final[Mapping[str, Comment]] = {
    "model": lambda p: f"model: {p.model.name}",
    "latent attention": lambda _: "multi-head latent attention",
    "gated delta rule": lambda _: "layers with the gated delta rule, of flash-linear-attention",
    "state-space layers": _letters,
    "experts": _experts,
    "parallel": lambda p: sizes(p, "context") + _dealt(p),
    "sharding": _sharding,
    "batch": lambda p: (
        f"batch: {p.layout.global_batch} = {p.layout.micro_batch} micro × "
        f"{p.layout.gradient_accumulation} accumulated × {p.layout.data} replicas"
    ),
    "ramp": lambda p: (
        "batch ramp-up: batches by the tokens from which they hold"
        if is_scheduled(p)
        else "batch ramp-up, ignored by Megatron-LM 0.18 and later; dsgen: ignore[MLM029]"
    ),
    "compute": lambda _: "precision and kernels",
    "memory": lambda p: (
        f"memory: recompute {p.layout.recompute.label}, offload {p.layout.offload.label}"
    ),
    "states": lambda _: "types of gradients and optimizer states",
    "optimizer": lambda _: "optimizer; its weight decay is decoupled, so adam means AdamW",
    "length": lambda _: "length, evaluation and schedule: cosine to a tenth after 1% of warm-up",
    "data": lambda p: f"data and tokenizer, of {p.model.vocab} tokens as planned",
    "files": lambda p: (
        "output; a start resumes from the last checkpoint"
        if p.saves and p.job.output.resume
        else "output"
    ),
}


def written_options(p: Planned, flavour: Flavour) -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield each group of the table that the project's files have, with its options and values.

    Rows that the release lacks, or that the job's own arguments exclude, are left out.
    """
    left_out = {name for name, kind in KINDS.items() if p.model.part(kind) is None}
    table = option_table(flavour)
    release = table.index(p.job.megatron_version)
    for name, rows in GROUPS.items():
        if name in left_out:
            continue
        values = dict[str, Value]()
        for row in rows:
            encode = row.encode(flavour)
            option = table.get(row.option)
            is_in_release = option is not None and option.is_in(release)
            is_excluded = gives(p.job.launch.arguments, *row.unless)
            if encode is not None and is_in_release and not is_excluded:
                values[row.option] = encode(p)
        if values:
            yield name, values


def groups_of(p: Planned, flavour: Flavour, comments: Mapping[str, Comment]) -> list[ArgumentGroup]:
    """Return the groups of the table that the project's files have, each with its comment; the
    group of a kind of layer may have only that kind's name.
    """
    return [
        group(comments[name](p) if name in comments else KINDS[name].called, options)
        for name, options in written_options(p, flavour)
    ]


def common_notes(job: Job, name: str, *, in_image: bool = True) -> list[str]:
    """Return notes on data that the user has to supply, and on what neither project can do.

    `name` is the project's; `in_image` says whether NVIDIA's image of PyTorch runs it.
    """
    texts = [
        f"The plan counts a vocabulary of {job.model.vocab}: the tokenizer's, "
        "before Megatron pads it."
    ]
    if job.training.duration_tokens is None and not gives(job.launch.arguments, *LENGTHS):
        texts.append(
            "The job gives no training.duration and the script requires one: "
            f"{DEFAULT_STEPS} steps."
        )
    missing = missing_parts(job)
    if missing:
        texts.append(f"{name} has no option for {', '.join(missing)}; the estimates count them.")
    if job.model.position_embedding == "alibi":
        texts.append(f"{name} has no ALiBi: these arguments train without position embedding.")
    if in_image and "transformers" in packages(job) and job.cluster.accelerator.vendor == "nvidia":
        texts.append(
            "NVIDIA's image of PyTorch has no transformers, which reads the tokenizer: "
            "add the package to it."
        )
    return texts


def program(plan: Plan) -> Program:
    """The Megatron-LM script and its arguments."""
    job, layout, p = plan.job, plan.layout, planned(plan)
    notes = common_notes(job, "Megatron-LM")
    if layout.offload == Offload.OPTIMIZER_AND_PARAMETERS:
        notes.append("Megatron-LM offloads the optimizer only.")
    divides_layers = layout.tensor > 1 or layout.context > 1
    if p.fsdp and divides_layers:
        notes.append(
            "CUDA_DEVICE_MAX_CONNECTIONS is unset: FSDP refuses 1, which tensor and context "
            "parallelism prefer."
        )
    environment = dict[str, str]()
    # One hardware queue where that has communication start before the GEMM behind it; never with
    # FSDP. Micro-batches that overlap need many. Source: training/arguments.py:940-950 @
    # core_v0.16.1.
    if layout.expert_overlap:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    elif divides_layers and not p.fsdp and job.cluster.accelerator.generation.one_queue:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if p.backend == "hybridep":
        environment |= _environment_of_hybridep(job, layout)
    if job.training.cuda_graphs != "none":
        # NCCL's registered buffers move with the allocator's segments (training/arguments.py:1880)
        environment["NCCL_GRAPH_REGISTER"] = "0"
    if job.replays_experts:  # read by Transformer Engine; without it, its fused kernels are refused
        environment["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"
        notes.append(_note_on_capacity(job))
    groups = groups_of(p, "megatron-lm", COMMENTS)
    return make_program(job, groups, environment=environment, notes=tuple(notes))


def _note_on_capacity(job: Job) -> str:
    """What becomes of tokens that a rank of experts has no room for.

    **Source**: megatron/core/transformer/moe/paged_stash.py, PagedStashRunner @ core_v0.18.2.
    """
    return (
        f"A rank of experts has room for {job.training.rank_capacity:g} times an even load's "
        "tokens: a step in which one gets more is done again, without graph and limit."
    )


def _script_of(model: Model, release: Version) -> str | None:
    """The program of models whose layers are a pattern.

    **Source**: NVIDIA/Megatron-LM pretrain_mamba.py @ core_v0.16.1 and core_v0.17.1,
    pretrain_hybrid.py @ core_v0.18.2.
    """
    if not model.pattern:
        return None
    return "pretrain_mamba.py" if release < HYBRID_MODEL else "pretrain_hybrid.py"


def _packages(job: Job) -> dict[str, str]:
    """The packages that a job needs, with their versions."""
    needed = needs_of(job.megatron_version) | packages(job)
    if is_muon(job):
        needed["emerging-optimizers"] = "any"
    return needed


FRAMEWORK: Final = Framework(
    name="megatron-lm",
    engine=MEGATRON_LM,
    script="pretrain_gpt.py",
    scripts=_script_of,
    only={"kernels": "fused", "fp8_attention": False},  # no option says it
    exit_option=EXIT_OPTION,
    starts_anew=STARTS_ANEW,
    first_weights="--pretrained-checkpoint",
    options=OF_FILES,
    decides=DECIDED,
    needs=NEEDS,
    mixers=MIXERS,
    packages=_packages,
    data_paths="several",
    data_prefix=True,
    evaluation=EVALUATION,
    fused=True,
    attention_kernels="cudnn",
    packs_attention=True,
    sums_in_product=True,
    overlaps_tensor=True,
    kernels_per_layer=20,
    cross_entropy="fused",
    loss_traffic_bytes={"fused": 30, "unfused": 54},
    shards_vocabulary=True,
    vocabulary_multiple=128,
    rings_context=True,
    routes_cut_sequences=True,
    dispatches_by_node=True,
    computes_nvfp4=True,
    writes_yarn=True,
    checkpoints=Checkpoints(folder="iter_", tracker="latest_checkpointed_iteration.txt"),
    retain_option="--save-retain-interval",
    program=program,
)
