"""`Job`: the spec with names looked up and defaults in. Nothing here is decided by the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..catalog.records import Accelerator, ListPrice, Model
from ..dataclass import dataclass
from ..findings import Location
from .framework import Framework
from .wording import OF_SPECS, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines, node type and accelerator joined. Rates are one direction."""

    name: str
    provider: str | None
    accelerator: Accelerator
    accelerators_per_node: int
    intra_node: str  #: nvswitch | mesh | pcie
    link_domain: int  #: accelerators joined by the fast fabric
    network: str
    network_bytes_per_s_per_node: float  #: 0 when nodes aren't connected
    host_memory_bytes: float | None
    cpu_cores: int | None
    local_nvme_bytes: float | None
    price_per_node_hour: float | None  #: in US dollars where it is a list price, else in the user's currency
    list_price: ListPrice | None = None  #: None where the job says the price
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters on a frozen base, by the names of peft's LoraConfig."""

    rank: int
    alpha: int
    modules: tuple[str, ...]  #: names of linear layers; or one of all-linear, attention
    base: str  #: unquantized | 4bit (QLoRA's NF4, quantized twice)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRamp:
    """A global batch that grows by `increment` at a time from `start`, evenly over `samples` sequences."""

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

    path: tuple[str, ...] = ()  #: paths, with a weight as it was written before each or with none; () = not given
    split: str | None = None  #: shares of training, validation and test data
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Folders that the run writes to, as the program sees them, on storage that all nodes share; `None` = not given."""

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
    restart_s: float | None = None  #: from a failure to the first step after it, without steps done again
    preemptible: bool = False  #: whether the machines may be taken away: spot, low priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training: its sequences, tokens, numbers and kernels."""

    sequence_length: int
    global_batch: int  #: sequences per optimizer step
    precision: str  #: fp32 | fp16 | bf16 | fp8
    optimizer: str  #: adamw | adamw-8bit | adam | lamb | sgd
    attention: str  #: flash | unfused
    duration_tokens: float | None  #: with the spec's global batch, where the spec says steps
    learning_rate: float
    weight_decay: float
    gradient_clipping: float
    #: What follows is None where the framework's default holds.
    kernels: str | None = None  #: eager | fused (normalisation, activation; Liger's with Hugging Face)
    cross_entropy: str | None = None  #: unfused | fused | chunked (the logits are never whole)
    gradient_dtype: str | None = None  #: fp32 | same (as the weights): what gradients are summed in
    moment_dtype: str | None = None  #: fp32 | bf16 | fp16 | fp8 | same (as the weights): the optimizer's moments
    master_dtype: str | None = None  #: fp32 | fp16: the optimizer's own copy of the weights
    fp8_parameters: bool = False  #: weights of linear layers are kept in fp8 alone
    fp8_recipe: str = "delayed"  #: delayed | tensorwise | blockwise | mxfp8
    lora: Lora | None = None  #: low-rank adapters are trained; None: all weights are
    bucket_elements: int | None = None  #: of ZeRO's reduce and all-gather buckets
    quantized_weights: bool = False  #: ZeRO++: parameters are gathered in 8 bits (qwZ)
    quantized_gradients: bool = False  #: ZeRO++: gradients are reduced in 4 bits (qgZ)
    duration_steps: int | None = None  #: where the spec gives the duration so
    duration_epochs: float | None = None  #: passes over the data, where the spec gives the duration so
    batch_ramp: BatchRamp | None = None  #: the global batch grows to its size; None: it has it from the start

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step."""
        return self.global_batch * self.sequence_length


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The start of the job: its target, script, arguments and options."""

    target: str  #: slurm | azureml | shell
    script: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    time_limit_s: int | None
    options: Mapping[str, object]  #: the spec's `launch.<target>` mapping, checked against the schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of the job, so that rules can point at the line the user wrote."""

    path: str
    locations: Mapping[str, Location] = field(default_factory=dict)  #: by JSON pointer, of each value
    start: Location | None = None  #: of what has no place of its own; None: the file as a whole
    vocabulary: Vocabulary = OF_SPECS  #: what its reader calls the keys

    def locate(self, pointer: str) -> Location:
        """The place of `pointer`, else of the nearest mapping around it, else the file as a whole."""
        probe = pointer
        while probe and probe not in self.locations:
            probe = probe.rpartition("/")[0]
        whole = Location(path=self.path, pointer=pointer)
        return self.locations.get(probe, whole) if probe else self.start or whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Corrections by a cluster's own runs of the shipped constants; neutral when nothing was measured."""

    factors: tuple[tuple[str, float], ...] = ()  #: constant of the time model, and what it is multiplied with
    spread: float | None = None  #: standard deviation of log(measured / estimated) that is left, between runs
    runs: int = 0  #: how many runs it was fitted to
    source: str = ""  #: the file it was read from
    memory_factor: float = 1.0  #: of allocated memory that isn't model states


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run, resolved. Immutable; everything after this is a function of it."""

    name: str
    framework: Framework
    deepspeed_version: tuple[int, ...]
    model: Model
    cluster: Cluster
    gpus: int  #: the most, of an elastic job
    training: Training
    pins: Pins
    headroom: float  #: share of usable device memory kept free
    launch: Launch
    origin: Origin
    calibration: Calibration = Calibration()
    elastic: tuple[int, ...] = ()  #: the counts of GPUs that an elastic job may get, ascending
    data: Data = Data()
    output: Output = Output()
    reliability: Reliability = Reliability()
    deepspeed_config: Mapping[str, Any] = field(default_factory=dict)  #: a JSON merge patch on the config

    def says(self, key: str, *values: object) -> str:
        """A key with a value, or with a choice of values, as the reader writes it: `tensor: 3` in a spec."""
        return self.origin.vocabulary.says(key, *values)

    @property
    def nodes(self) -> int:
        """Nodes, rounded up when the GPUs don't fill the last one (a rule refuses that)."""
        return -(-self.gpus // self.cluster.accelerators_per_node)

    @property
    def fuses_kernels(self) -> bool:
        """Return whether normalisation and activation are one kernel each and keep their input only."""
        return self.framework.fused if self.training.kernels is None else self.training.kernels == "fused"
