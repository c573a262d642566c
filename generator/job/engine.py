"""`Engine`: what the engine of a framework keeps, sends and hides, and how it cuts a model."""

from __future__ import annotations

from typing import Literal

from ..dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The properties of an engine that formulas and rules take.

    None of them asks for the engine's name.

    A field that is left out says what plain PyTorch does: nothing is kept, copied or hidden beyond
    what a formula's own source says.
    """

    # The means by which a model is cut. Each has requirements of its own, which rules state.

    #: Of the layers. composed: layers written for tensor parallelism, of the parts that a model's
    #: config asks for; fixed: the same, of one kind; replaced: ordinary layers, whose linear ones
    #: the engine replaces by cut ones; whole: ordinary layers, which it doesn't cut.
    layers: Literal["composed", "fixed", "replaced", "whole"]
    #: Of the states, from ZeRO stage 1. partitions: one optimizer updates a rank's part of flat
    #: tensors, at every stage; distributed: an optimizer whose states are spread at stage 1, and
    #: units that are gathered from stage 2; units: each parameter is spread by its rows, and units
    #: of the model are gathered, which stage 3 frees after the forward pass and stage 2 keeps.
    sharding: Literal["partitions", "distributed", "units"]
    sharding_name: str = "ZeRO"  #: what messages and tables call that
    #: Of the sequence. ring: keys and values go around; exchange: all-to-alls swap sequence for
    #: heads, in the engine's own attention; script: the same, where the script asks for it; gather:
    #: every rank gathers keys and values, of batches without padding.
    context: Literal["ring", "exchange", "script", "gather"]
    #: Of the pipeline. stages: the layers of any model; module: a list of layers, which the model
    #: has to be written as; none: there is none.
    pipeline: Literal["stages", "module", "none"]
    #: Of the experts. parallel: experts of its own, spread and cut freely; module: MoE modules that
    #: a model has to be built with, spread alone; whole: every rank has all.
    experts: Literal["parallel", "module", "whole"]
    #: Details of a layout that it has, by their fields. Every engine recomputes and offloads, one
    #: way or another.
    details: frozenset[str]
    scripted: bool = False  #: the user's script builds model and groups: it has to know what is cut
    repeats_kv_heads: bool = True  #: tensor ranks beyond the key-value heads share them
    caps_sizes: bool = False  #: parallel sizes beyond the world's are reduced, not refused

    # The types that it keeps and sends numbers in.

    #: The types of optimizer states, fp8 weights and the recipe of fp8 are options.
    chooses_types: bool = False
    has_muon: bool = False  #: one of its optimizers is Muon, which takes whole matrices
    copies_fp32: bool = False  #: fp32 weights have a master copy too, once states are sharded
    #: The sharded weights that are trained are fp32 ones: the optimizer's own, beside which no
    #: 16-bit copy lasts.
    shards_masters: bool = False
    #: beside fp16 training's gradients the update has fp32 ones, which the next step begins without
    copies_fp16_gradients: bool = False
    #: The ZeRO stage from which gradients are summed in a type of their own; the weights' below it.
    sums_from: int = 0
    reduces_sums: bool = True  #: gradients are sent in the type of their sums; else in the weights'

    # What it keeps beside the states.

    #: bf16 with fp32 sums at stage 1, and a pipeline without ZeRO, keep all gradients of a rank in
    #: one flat tensor beside the weights' own.
    flat_gradients: bool = False
    #: Gradients are freed as they are reduced, and made anew by the next step's backward pass.
    frees_gradients: bool = False
    offloads_gradients: bool = False  #: a rank's gradients go to the host with the optimizer
    #: What its files say so that offloaded states lie in plain host memory and not in pinned
    #: buffers; empty: nothing they can say does that.
    unpins: tuple[str, ...] = ()
    #: Until a step's last micro-batch gradients are summed whole, and reduced at its end alone.
    defers_reduction: bool = False
    #: Gradients are reduced, and sent, in buffers of its own, which the job's configuration sizes.
    has_buckets: bool = False
    converts_gradients: bool = False  #: the update makes fp32 copies of 16-bit gradients
    #: Layers' parameters that are gathered at a time; None: parameters up to a number of elements.
    gathered_layers: int | None = None
    #: Batches aren't padded to one length, so that sizes of tensors change from step to step.
    sizes_vary: bool = False
    #: Options of the script with which NCCL or CUDA graphs register memory, whose segments then
    #: can't grow.
    registers_memory: frozenset[str] = frozenset()
    #: Its layers compute in 8 or 4 bits where a job says so; else in the 16 bits of what it keeps.
    computes_narrowly: bool = False
    multiplies_by_te: bool = False  #: products and attention are Transformer Engine's
    keeps_stage_ends: bool = False  #: what a stage receives and sends stays beside what it computes
    #: A token's weight multiplies its experts' outputs, which are kept for that; else their
    #: activations, before the second product.
    weighs_output: bool = True
    unfused_logit_bytes: int = 6  #: a logit, at the peak of a loss that fused kernels don't compute
    fused_logit_bytes: int = 4  #: the same of a fused loss: 16-bit logits and their gradient
    #: of adding experts' biases: bytes an element, and kernels an expert, forward and backward
    expert_bias_traffic_bytes: tuple[int, int] = (0, 0)
    expert_bias_kernels: tuple[int, int] = (0, 0)
    #: of clamping what a gated activation takes, an element of its result, forward and backward
    clamp_traffic_bytes: tuple[int, int] = (0, 0)

    # What it sends, and what hides that.

    #: Elements of one message of gradients: so many at least, and so many a replica; None: the
    #: buckets'.
    message_elements: tuple[float, float] | None = None
    #: Parameters are gathered after the update, and pipelines reduce after their last backward
    #: pass; else both overlap with compute.
    gathers_after_update: bool = False
    #: The host joins gathered parameters from every rank's part, one part after the other.
    joins_parts: bool = False
    cuts_sends: bool = False  #: tensor ranks send a part each of what goes to the next stage
    balances_stages: bool = False  #: layers are dealt by their parameters; else by their number
    sorts_local_experts: bool = False  #: tokens are sorted by expert also where one rank has all
    #: The ZeRO stage from which it refuses the one hardware queue that orders collectives before
    #: products.
    several_queues_from: int | None = None

    # What it saves.

    saves_partitions: bool = False  #: at stage 3 a checkpoint has no weights but the optimizer's
    saves_model: bool = False  #: a checkpoint has the whole model once more, in the weights' type

    #: The kind of runs that its estimates were measured on.
    measured_as: str
    #: The same with layers cut by tensor parallelism, where those are another kind.
    measured_cut: str | None = None

    @property
    def has_parallel_layers(self) -> bool:
        """Return whether its own layers are cut by tensor parallelism."""
        return self.layers in ("composed", "fixed")

    def has(self, *details: str) -> bool:
        """Return whether it has all these details of a layout."""
        return self.details.issuperset(details)
