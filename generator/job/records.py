"""`Job`: the spec with names looked up and defaults in, and `Framework`, the program that trains
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from typing import Any, Final, Literal

from ..catalog.layers.mixer import Mixer
from ..catalog.model import Model
from ..catalog.records import NodeType
from ..dataclass import dataclass
from ..findings import Location, Version
from ..numerals import read_whole
from ..text.wording import OF_SPECS, Vocabulary
from .arguments import is_module_name
from .engine import Engine
from .releases import NEWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The signs by which a folder of checkpoints names the newest that is whole."""

    folder: str  #: what the name of a checkpoint begins with; its step follows
    #: the file that is written after each; None: trainer_state.json in its own folder
    tracker: str | None = None
    names_folder: bool = False  #: the tracker has the name of the checkpoint, not its step alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that a submission needs."""

    what: str  #: data
    key: str  #: of the spec, which gives it
    options: tuple[str, ...] = ()  #: of the script, each of which gives it as well
    hint: str = ""  #: what to do; where it is left out, to set the key
    #: in names of options that give it, where the script's options aren't known
    words: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()  #: names of the scripts that need it, with *; left out: all
    replaces: str = ""  #: the key of the need that it stands for with these scripts


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """How a framework makes low-rank adapters."""

    #: Of Megatron's linear layers: queries, keys and values are one, gate and up another, and
    #: tensor ranks cut an adapter as they cut its layer. Else of the model's own linear layers.
    of_fused: bool = False
    #: Of routed experts. shared: all that a rank holds have one adapter; each: one each; none.
    of_experts: Literal["none", "shared", "each"] = "none"
    #: The adapters of a model's recipe, which a job has where it says no others.
    of_recipe: Callable[[Model], Lora | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Framework:
    """One framework: its traits, and the function that writes for it.

    A trait that is left out is plain PyTorch's.
    """

    name: str  #: as in a job spec
    engine: Engine
    #: The value of `training.sharding` that stands for its engine, and the framework with each
    #: other one; "" and none where there is no choice.
    sharding: str = ""
    shardings: Mapping[str, Framework] = field(default_factory=dict, repr=False)
    script: str  #: the training script that a job starts by default
    #: Another script that a model is started with, by a release of Megatron-Core; None: `script`.
    scripts: Callable[[Model, Version], str | None] | None = None
    only: Mapping[str, str | int]  #: keys of `training` that have one value here, with the value
    #: the script's argument that makes workers save and exit on TERM
    exit_option: str | None = None
    #: The script's argument with which every start is at step 0, and the one for weights that only
    #: a first start loads.
    #: Source: load_checkpoint in megatron/training/checkpointing.py @ core 0.6 to 0.19; the latter
    #: is Megatron-LM's.
    starts_anew: str | None = None
    first_weights: str | None = None
    #: the script's arguments without which it saves checkpoints anywhere
    saves_nothing: tuple[str, ...] = ()
    #: The script's options that say keys of the spec's `data` and `output`, by key; a key without
    #: any can't be said.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_environment: frozenset[str] = frozenset()  #: such keys that variables say
    #: Keys of the spec's `training` and `layout` that the script's own options say, by option.
    decides: Mapping[str, str] = field(default_factory=dict)
    #: Keys of the DeepSpeed config that the plan decides, as pointers, and the key of the spec that
    #: says each.
    planned: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()  #: what a submission needs
    #: Versions of programs that its files are written for, or that one of them requires, and the
    #: image that has them.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Its own releases, ascending, each with the one of Megatron-Core that it brings; empty where
    #: it brings none.
    brings: Mapping[Version, Version] = field(default_factory=dict)
    #: Packages that only some jobs import, by name, with their versions; `any` where none is
    #: required.
    packages: Callable[[Job], Mapping[str, str]] = lambda _: {}
    #: Mixers beside softmax attention that its files have options for, in a layer with a
    #: feed-forward.
    mixers: tuple[type[Mixer], ...] = ()
    #: The first release of DeepSpeed with the Ulysses that the framework calls, where it leaves
    #: that to a script.
    first_with_ulysses: tuple[int, ...] = ()
    goes_on_from_weights: bool = False  #: of the Hub's repository that the job's model names
    adapters: Adapters | None = None  #: the low-rank adapters that it trains; None: it trains none
    recipes: bool = False  #: it has recipes that fine-tune a folder of weights, on packed sequences
    #: Its launcher changes to the folder of its own checkout, so that relative paths of a spec are
    #: looked for there.
    changes_folder: bool = False
    #: The repository of the Hub from which every process reads a model's config.json, if any.
    reads_config: Callable[[Job], str | None] = lambda _: None
    #: The script's argument that keeps fewer checkpoints, where the job's `output.keep` has no key.
    retain_option: str | None = None
    #: in `data.path`: of several, each with a weight or any
    data_paths: Literal["one", "weighted", "several"] = "one"
    #: `data.path` is the beginning of the names of several files, which lie in one folder
    data_prefix: bool = False
    #: Steps between evaluations, and global batches of one, where the job says nothing; None: it
    #: doesn't evaluate.
    evaluation: tuple[int, int] | None = None

    #: Source: deepspeed/runtime/engine.py, save_checkpoint @ 0.19.8;
    #: megatron/training/checkpointing.py @ core 0.16.1.
    checkpoints: Checkpoints = Checkpoints(
        folder="global_step", tracker="latest", names_folder=True
    )

    #: of the newest checkpoints, as the files ask for where the job doesn't; None: all
    keeps: int | None = None
    #: The script's argument that loads a universal checkpoint of DeepSpeed; None: a key of
    #: ds_config.json does.
    universal_option: str | None = None

    #: fused normalisation, activation and softmax kernels; eager PyTorch otherwise
    fused: bool = False
    #: cudnn | flash-attention-2: kernels of softmax attention. Source: Transformer Engine 2.14,
    #: pytorch/attention/dot_product_attention/utils.py (get_attention_backend); PyTorch 2.13's
    #: scaled_dot_product_attention.
    attention_kernels: str = "flash-attention-2"
    #: Queries, keys and values come from one product and stay in its memory. Source: Megatron's
    #: linear_qkv.
    packs_attention: bool = False
    #: The product of a weight gradient adds to the fp32 sum itself. Source:
    #: gradient_accumulation_fusion, Megatron-LM's default.
    sums_in_product: bool = False
    #: Collectives of column-parallel products run beside the backward pass's arithmetic. Source:
    #: Megatron-LM since 2022, core/tensor_parallel/layers.py; DeepSpeed's AutoTP and the Megatron
    #: of 2021 wait for them.
    overlaps_tensor: bool = False
    #: Launches of one layer's forward pass, counted from the modules' operators.
    kernels_per_layer: int
    #: fused | unfused: what the launch files ask for (Megatron-LM: --cross-entropy-loss-fusion).
    cross_entropy: str
    #: Bytes of device memory traffic a logit, forward and backward, by kind of loss. Source:
    #: counted from the operators of Megatron-LM's vocab_parallel_cross_entropy (54, and 30 with its
    #: fusion) and of PyTorch's cross_entropy on an fp32 copy (32).
    loss_traffic_bytes: Mapping[str, float]

    shards_vocabulary: bool = False  #: embedding and head are cut by tensor parallelism
    #: Rows of the token table are padded to a multiple of this × tensor, so that every rank's share
    #: suits the matrix units. Source: --make-vocab-size-divisible-by (default 128),
    #: NVIDIA/Megatron-LM megatron/training/tokenizer.
    vocabulary_multiple: int | None = None
    #: context parallelism sends keys and values around a ring; else Ulysses' all-to-alls
    rings_context: bool = False
    #: A tensor rank routes its part of the sequence only: with experts, sequence parallelism is
    #: required.
    routes_cut_sequences: bool = False
    #: Tokens for experts cross nodes once each, where DeepEP runs. Source: --moe-enable-deepep,
    #: Megatron-LM core/transformer/moe/token_dispatcher.py.
    dispatches_by_node: bool = False
    writes_yarn: bool = False  #: its files say YaRN's numbers, where the release has options
    computes_nvfp4: bool = False  #: its files have linear layers compute in 4 bits
    #: DeepSpeed gets the script's mpu, and counts model replicas instead of ranks
    passes_mpu: bool = False

    #: from a plan to the program that every process runs
    program: Callable[[Any], Any] = field(repr=False)

    def can_say(self, values: Mapping[str, object]) -> bool:
        """Return whether its files can say these values of keys of `training`."""
        return all(self.only.get(key, value) == value for key, value in values.items())

    def __str__(self) -> str:
        return self.name


Frameworks = Mapping[str, Framework]  #: by name


Cluster = NodeType  #: of the catalog, or with what the job says of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters on a frozen base, by the names of peft's LoraConfig."""

    rank: int
    alpha: int
    modules: tuple[str, ...]  #: names of linear layers; or one of all-linear, attention
    base: str  #: unquantized | 4bit (QLoRA's NF4, quantized twice)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRamp:
    """A global batch that grows by `increment` at a time from `start`, evenly over `samples`
    sequences.
    """

    start: int  #: sequences per optimizer step
    increment: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer, as the training program names it; `None` = not given."""

    type: str | None = None  #: the program's name for the kind
    path: str | None = None  #: of its file or folder, or its name on the hub
    vocab_file: str | None = None
    merges_file: str | None = None

    @property
    def given(self) -> bool:
        """Return whether the job says anything of it."""
        return any((self.type, self.path, self.vocab_file, self.merges_file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The data to train on. Paths are as the program sees them."""

    #: paths, with a weight as it was written before each or with none; () = not given
    path: tuple[str, ...] = ()
    split: str | None = None  #: shares of training, validation and test data
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Folders that the run writes to, as the program sees them, on storage that all nodes share;
    `None` = not given.
    """

    checkpoints: str | None = None
    logs: str | None = None
    save_interval: int | None = None  #: steps
    keep: int | None = None  #: the newest checkpoints that are kept; `None`: the framework's number
    space_tb: float | None = None  #: that checkpoints may take; `None`: not known
    resume: bool = True  #: whether a start goes on from the last checkpoint, if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Costs of saving and failures; `None` = the published figure of the estimate."""

    storage_bytes_per_s: float | None = None  #: at which all nodes together write a checkpoint
    node_s_between_failures: float | None = None  #: mean time of one node
    #: from a failure to the first step after it, without steps done again
    restart_s: float | None = None
    preemptible: bool = False  #: whether the machines may be taken away: spot, low priority


#: Precisions whose products have inputs of 8 or 4 bits, of weights that are kept in 16.
NARROW: Final = frozenset({"fp8", "nvfp4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training: its sequences, tokens, numbers and kernels."""

    sequence_length: int
    global_batch: int  #: sequences per optimizer step
    precision: str  #: fp32 | fp16 | bf16 | fp8 | nvfp4
    optimizer: str  #: adamw | adamw-8bit | adam | lamb | sgd
    attention: str  #: flash | unfused
    duration_tokens: float | None  #: with the spec's global batch, where the spec says steps
    learning_rate: float
    weight_decay: float
    gradient_clipping: float
    #: What follows is None where the framework's default holds.
    #: eager | fused (normalisation, activation; Liger's with Hugging Face)
    kernels: str | None = None
    #: unfused | fused | te (Transformer Engine's, in place) | chunked (the logits are never whole)
    cross_entropy: str | None = None
    #: alltoall | deepep | hybridep: how tokens reach their experts' ranks
    dispatcher: str | None = None
    #: none | partial (attention and routers) | full_iteration (forward and backward pass as one)
    cuda_graphs: str = "none"
    #: whether experts' activations share one buffer of pages; None: with whole iterations as graphs
    paged_stash: bool | None = None
    #: tokens that an expert rank has room for, over those of an even load, where sizes are static
    expert_capacity: float | None = None
    fp8_attention: bool = False  #: attention's products are in fp8, too
    gradient_dtype: str | None = None  #: fp32 | same (as the weights): what gradients are summed in
    #: fp32 | bf16 | fp16 | fp8 | same (as the weights): the optimizer's moments
    moment_dtype: str | None = None
    #: fp32 | fp16 | same (none beside the weights): the optimizer's own copy of the weights
    master_dtype: str | None = None
    fp8_parameters: bool = False  #: weights of linear layers are kept in 8 or 4 bits alone
    fp8_recipe: str = "delayed"  #: delayed | tensorwise | blockwise | mxfp8
    #: depths of multi-token prediction, each of which predicts one token further
    mtp_depths: int = 0
    lora: Lora | None = None  #: low-rank adapters are trained; None: all weights are
    mode: str = "pretrain"  #: pretrain | sft | lora: what is trained, with a framework of recipes
    weights: str | None = None  #: folder of Hugging Face weights that are fine-tuned
    bucket_elements: int | None = None  #: of ZeRO's reduce and all-gather buckets
    quantized_weights: bool = False  #: ZeRO++: parameters are gathered in 8 bits (qwZ)
    quantized_gradients: bool = False  #: ZeRO++: gradients are reduced in 4 bits (qgZ)
    duration_steps: int | None = None  #: where the spec gives the duration so
    #: passes over the data, where the spec gives the duration so
    duration_epochs: float | None = None
    #: the global batch grows to its size; None: it has it from the start
    batch_ramp: BatchRamp | None = None

    @property
    def start(self) -> object:
        """What the run goes on from: adapters, or a folder of weights; None from scratch."""
        return self.weights if self.lora is None else self.lora

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step."""
        return self.global_batch * self.sequence_length

    @property
    def is_narrow(self) -> bool:
        """Return whether 8 or 4 bits are asked for; `Job.is_narrow`: whether layers have them."""
        return self.precision in NARROW

    @property
    def replays_iteration(self) -> bool:
        """Return whether forward and backward pass are one CUDA graph, which no host launches."""
        return self.cuda_graphs == "full_iteration"

    @property
    def scaling(self) -> str:
        """Return the recipe by which values are scaled to 8 or 4 bits."""
        return "nvfp4" if self.precision == "nvfp4" else self.fp8_recipe

    @property
    def gathers_wide(self) -> bool:
        """Return whether weights that are kept in 8 bits are gathered in 16, as MXFP8's are.

        **Source**: Megatron-LM core_v0.16.1, megatron/core/distributed/param_and_grad_buffer.py:775
        (the buffer of gradients, as bf16, holds what is gathered).
        """
        return self.fp8_parameters and self.scaling == "mxfp8"

    @property
    def rank_capacity(self) -> float:
        """Room of an expert rank in a graph of whole iterations, over an even load's tokens.

        **Source** of the default: NVIDIA-NeMo/Megatron-Bridge v0.6.0, every recipe with such graphs
        (src/megatron/bridge/perf_recipes/deepseek/common.py, moe_expert_rank_capacity_factor).
        """
        return 1.5 if self.expert_capacity is None else self.expert_capacity

    @property
    def steps(self) -> int | None:
        """Optimizer steps that see `duration_tokens` tokens, rounded up; None when the job gives no
        duration.
        """
        tokens = self.duration_tokens
        return None if tokens is None else max(1, -int(-tokens // self.tokens_per_step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The layout keys that the user fixed; `None` = "you choose"."""

    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    virtual_pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    sequence_parallel: bool | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    gradient_accumulation: int | None = None
    recompute: str | None = None  #: none | selective | full
    offload: str | None = None  #: none | optimizer | optimizer+parameters
    recompute_layers: int | None = None
    recompute_group: int | None = None
    recompute_modules: tuple[str, ...] | None = None
    offload_fraction: float | None = None
    expert_tensor: int | None = None
    tensor_overlap: bool | None = None
    expert_overlap: bool | None = None
    zero_copies: int | None = None
    zero_hpz: int | None = None
    context_heads: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    sync_each_batch: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """The start of the job: its target, script, arguments and options."""

    target: str  #: slurm | azureml | shell
    script: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    time_limit_s: int | None
    options: Mapping[str, Any]  #: the spec's `launch.<target>` mapping, checked against the schema

    @property
    def is_module(self) -> bool:
        """Whether `script` names a module that Python finds, and no file."""
        return is_module_name(self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of the job, so that rules can point at the line the user wrote."""

    path: str
    #: by JSON pointer, of each value
    locations: Mapping[str, Location] = field(default_factory=dict)
    start: Location | None = None  #: of what has no place of its own; None: the file as a whole
    vocabulary: Vocabulary = OF_SPECS  #: what its reader calls the keys

    @property
    def is_spec(self) -> bool:
        """Return whether it is a job spec, whose keys have defaults, and no launch's files."""
        return self.vocabulary is OF_SPECS

    def locate(self, pointer: str) -> Location:
        """The place of `pointer`, else of the nearest mapping around it, else the file as a
        whole.
        """
        probe = pointer
        while probe and probe not in self.locations:
            probe = probe.rpartition("/")[0]
        whole = Location(path=self.path, pointer=pointer)
        return self.locations.get(probe, whole) if probe else self.start or whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Corrections by a cluster's own runs of the shipped constants; neutral when nothing was
    measured.
    """

    #: constant of the time model, and what it is multiplied with
    factors: tuple[tuple[str, float], ...] = ()
    #: standard deviation of log(measured / estimated) that is left, between runs
    spread: float | None = None
    runs: int = 0  #: how many runs it was fitted to
    source: str = ""  #: the file it was read from
    memory_factor: float = 1.0  #: of allocated memory that isn't model states


@cache
def _segments(nodes: int, most: int, asked: str) -> tuple[int, ...]:
    """Return the sizes of `Job.segments`: of at most `most` nodes; `asked`, if it is one."""
    sizes = [size for size in range(min(nodes, max(most, 1)), 0, -1) if nodes % size == 0]
    if (size := read_whole(asked)) in sizes:
        return (size,)
    return tuple(size for i, size in enumerate(sizes) if all(larger % size for larger in sizes[:i]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run, resolved. Immutable; everything after this is a function of it."""

    name: str
    framework: Framework
    deepspeed_version: Version
    model: Model
    cluster: Cluster
    gpus: int  #: the most, of an elastic job
    training: Training
    pins: Pins
    headroom: float  #: share of usable device memory kept free
    launch: JobLaunch
    origin: Origin
    megatron_version: Version = NEWEST["megatron-core"]  #: of Megatron-Core
    transformers_version: Version = NEWEST["transformers"]
    megatron_bridge_version: Version = NEWEST["megatron-bridge"]
    calibration: Calibration = Calibration()
    elastic: tuple[int, ...] = ()  #: the counts of GPUs that an elastic job may get, ascending
    data: Data = Data()
    output: Output = Output()
    reliability: Reliability = Reliability()
    #: a JSON merge patch on the config
    deepspeed_config: Mapping[str, Any] = field(default_factory=dict)
    #: the keys of the model's config, where it isn't one of the catalog
    model_config: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        machines = f"{self.gpus:,} × {self.cluster.accelerator.name}"
        return f"Job({self.name}: {self.model.name} with {self.framework.name} on {machines})"

    def says(self, key: str, *values: object) -> str:
        """A key with a value, or with a choice of values, as the reader writes it: `tensor: 3` in a
        spec. Of the framework it is said where nobody chose it.
        """
        said = self.origin.vocabulary.says(key, *values)
        is_own = key == "framework" and [*map(str, values)] == [str(self.framework)]
        is_default = self.origin.is_spec and "/framework" not in self.origin.locations
        return f"{said} (the default)" if is_own and is_default else said

    def locate(self, pointer: str) -> Location:
        """The place of a value in what describes the job, else of the nearest mapping around it."""
        return self.origin.locate(pointer)

    @property
    def replays_experts(self) -> bool:
        """Return whether experts are part of a CUDA graph: their sizes are static then, and each of
        their products is one fused kernel.
        """
        return self.training.replays_iteration and self.model.experts > 0

    @property
    def stashes_experts(self) -> bool:
        """Return whether experts' activations are copied into one buffer of pages, and back."""
        return self.replays_experts and self.training.paged_stash is not False

    @property
    def packs_sequences(self) -> bool:
        """Return whether samples are packed into sequences of full length, one a micro-batch."""
        return self.framework.recipes and self.training.mode != "pretrain"

    @property
    def engine(self) -> Engine:
        """What trains, by its properties."""
        return self.framework.engine

    @property
    def nodes(self) -> int:
        """Nodes, rounded up when the GPUs don't fill the last one (a rule refuses that)."""
        return -(-self.gpus // self.cluster.accelerators_per_node)

    @property
    def segments(self) -> tuple[int, ...]:
        """Sizes in nodes of the parts of a rack of which the job may be made, descending: one node,
        but in racks those that divide the job's nodes, without divisors of other ones.

        A group of ranks that is whole in a size is whole in its multiples too. The job's options
        for Slurm may say one. **Source**: NVIDIA, Slurm block scheduling on GB200 NVL72: segments
        of 16 nodes; `--segment` of sbatch with topology/block, which each rack holds a whole number
        of.
        """
        most = self.cluster.link_domain // self.cluster.accelerators_per_node
        # Of a run that is known from files the launch may be unknown.
        options: Mapping[str, Any] = getattr(getattr(self, "launch", None), "options", {})
        asked = (options.get("directives") or {}).get("segment")
        return _segments(self.nodes, most, str(asked))

    @property
    def computes_in(self) -> str:
        """Return the precision that layers compute in.

        Those of most engines have 16 bits where the job asks for fewer.
        """
        training = self.training
        is_widened = training.is_narrow and not self.engine.computes_narrowly
        return "bf16" if is_widened else training.precision

    @property
    def is_narrow(self) -> bool:
        """Return whether linear layers compute in 8 or 4 bits."""
        return self.computes_in in NARROW

    @property
    def fuses_kernels(self) -> bool:
        """Return whether normalisation and activation are one kernel each and keep their input
        only.
        """
        if self.training.kernels is None:
            return self.framework.fused
        return self.training.kernels == "fused"
