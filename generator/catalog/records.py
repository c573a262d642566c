"""The records of the catalog: vendor and model facts in SI units, each with its source."""

from __future__ import annotations

from collections.abc import Mapping

from ..dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as the framework sees it. Rates are datasheet values, dense, one direction."""

    name: str  #: catalog name, lower case, e.g. `a100-80gb-sxm`
    vendor: str  #: nvidia | amd | intel
    generation: str  #: volta | ampere | ada | hopper | blackwell | blackwell-ultra | cdna2-4 | gaudi2 | gaudi3
    memory_bytes: float  #: usable device memory, as the framework sees it
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]  #: peak by precision: fp32, fp16, bf16, fp8; a missing key is unsupported
    achievable_fraction: float | None  #: best measured matrix-product rate over the bf16 (else fp16) peak
    link_bytes_per_s: float  #: intra-node fabric, one direction; 0 when there is none but PCIe
    pcie_bytes_per_s: float  #: host link, one direction
    tdp_watts: float | None = None  #: the vendor's power limit of the device; `None` where nobody says
    is_slice: bool = False  #: a MIG slice: one-device jobs only
    source: str
    unverified: tuple[str, ...] = ()

    def supports(self, precision: str) -> bool:
        """Tell whether the hardware computes in `precision` (fp32, fp16, bf16, fp8)."""
        return precision in self.flops_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """The price of a node on demand, without taxes and discounts."""

    usd_per_node_hour: float
    region: str
    date: str  #: when it was asked, as a year or a year and a month
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """One machine as rented or bought, or as a job describes it. Rates are one direction; `None`: no source says."""

    name: str  #: `provider/name`, lower case
    provider: str | None
    accelerator: Accelerator
    accelerators_per_node: int
    intra_node: str  #: nvswitch | mesh | pcie
    link_domain: int  #: accelerators joined by the fast fabric; more than a node's in rack-scale systems
    network: str  #: infiniband | roce | efa | slingshot | omni-path | ethernet | none
    network_bytes_per_s_per_node: float  #: all NICs of the node together; 0 when nodes aren't connected
    host_memory_bytes: float | None
    cpu_cores: int | None  #: what the scheduler can hand out: vCPUs of a cloud VM, cores otherwise
    local_nvme_bytes: float | None
    price_per_node_hour: float | None  #: in US dollars where it is a list price, else in the user's currency
    list_price: ListPrice | None = None  #: where the price above is from; None where the job says it
    source: str
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer's shape: everything that parameters, FLOPs and memory depend on, and nothing else."""

    name: str
    family: str  #: Hugging Face `model_type`
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  #: width of a dense layer's MLP (per gate or up projection)
    vocab: int
    max_positions: int
    gated_mlp: bool
    activation: str = "gelu"
    tied_embeddings: bool
    position_embedding: str  #: learned | rotary | alibi | none
    position_rows: int = 0  #: rows of the learned position table
    rotary_base: float = 10000.0  #: theta of rotary positions
    rotary_fraction: float = 1.0  #: share of a head's dimensions that rotates
    rotary_scaling: str = "none"  #: none | llama3 | yarn | longrope | linear | dynamic, as Hugging Face's `rope_type`
    rotary_scaling_factor: float = 1.0
    #: YaRN's mscale and mscale_all_dim, where they are one and the rest is as in DeepSeek-V3, as Megatron-LM has it
    yarn_scale: float | None = None
    causal: bool = True  #: False for encoders such as BERT
    #: layernorm (weight and bias) | layernorm-no-bias (weight) | rmsnorm (weight) | none (no parameters)
    norm: str = "rmsnorm"
    norm_epsilon: float = 1e-5
    norms_per_layer: int = 2  #: hidden-wide normalisations of a layer
    norm_after: bool = False  #: of what attention and MLP return, not of what they take (OLMo 2)
    final_norms: int = 1
    embedding_norms: int = 0
    #: none | l2 (no parameters) | head (one vector of head_dim each) | full (heads*head_dim and kv_heads*head_dim)
    qk_norm: str = "none"
    qkv_bias: bool = False
    output_bias: bool = False  #: of the attention's output projection
    mlp_bias: bool = False
    attention_sinks: bool = False  #: one learned scalar a head (gpt-oss)
    embedding_width: int | None = None  #: when not `hidden` (OPT-350m), projected in and out
    head_bias: bool = False
    type_rows: int = 0  #: token-type embedding rows (BERT)
    pooler: bool = False
    mlm_head: bool = False  #: BERT's dense + norm before the decoder
    dropout: float = 0.0  #: hidden dropout probability
    attention_dropout: float = 0.0
    experts: int = 0  #: routed experts of a MoE layer; 0 for a dense model
    experts_per_token: int = 0
    moe_ffn: int = 0  #: width of one routed expert
    shared_experts: int = 0  #: shared experts, each `shared_ffn / shared_experts` wide
    shared_ffn: int = 0  #: width of all shared experts together
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    router_groups: int = 0  #: groups of experts of which a token picks some first (DeepSeek); 0 when there are none
    router_top_groups: int = 0
    router_scale: float = 1.0  #: factor on the routed experts' output
    router_scores: str = "softmax"  #: softmax | sigmoid
    router_normalizes: bool = True  #: whether the weights of a token's experts add up to 1
    router_loss: float | None = None  #: coefficient of the loss that balances the experts, where its config says
    dense_layers: int = 0  #: how many layers have a dense MLP in a MoE model: the first ones, if the next says nothing
    dense_layer_indices: tuple[int, ...] = ()  #: which ones, where they aren't the first
    q_lora_rank: int = 0  #: MLA; 0 with kv_lora_rank > 0 means a full query projection
    kv_lora_rank: int = 0  #: MLA when > 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int | None = None  #: tokens of local attention
    full_attention_layers: tuple[int, ...] = ()  #: layers without the window, where it isn't that of every layer
    chunked_attention: bool = False  #: the window is a chunk of the sequence that doesn't slide (Llama 4)
    layers_without_rotary: tuple[int, ...] = ()  #: layers without positions, where the others have rotary ones
    activation_clamp: float | None = None  #: bound of gpt-oss's gated activation, which is also shifted and scaled
    extras: tuple[str, ...] = ()  #: parts that change neither size nor cost, as in messages: "scaled embeddings"
    notes: tuple[str, ...] = ()  #: what its config holds beyond what is planned
    source: str

    @property
    def is_moe(self) -> bool:
        """Tell whether any layer routes tokens to experts."""
        return self.experts > 0

    @property
    def is_mla(self) -> bool:
        """Tell whether attention is multi-head latent attention (DeepSeek)."""
        return self.kv_lora_rank > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A preset: a Hugging Face config as data (`job.hf_config` turns it into a `Model`)."""

    name: str
    config: Mapping[str, object]
    source: str
    gated: tuple[str, ...] = ()  #: owners of repositories on the Hub that only accounts that accepted terms can read


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything dsgen knows by name. Keys are canonical names; `aliases` maps other spellings to them."""

    accelerators: Mapping[str, Accelerator]
    node_types: Mapping[str, NodeType]
    models: Mapping[str, ModelEntry]
    aliases: Mapping[str, str]
