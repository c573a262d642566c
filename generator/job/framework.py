"""`Framework`: what memory, time, search, rules and files ask of the program that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from ..dataclass import dataclass

#: Code that a run executes, and whose requirements it meets: Megatron-LM's or Megatron-DeepSpeed's own, the parallel
#: layers of either, DeepSpeed's engine, its AutoTP, the Trainer of Transformers, a script of the user's own.
Software = Literal[
    "Megatron-LM", "Megatron-DeepSpeed", "Megatron layers", "DeepSpeed engine", "AutoTP", "Trainer", "own script"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The signs by which a folder of checkpoints names the newest that is whole."""

    folder: str  #: what the name of a checkpoint begins with; its step follows
    tracker: str | None = None  #: the file that is written after each; None: trainer_state.json in its own folder
    names_folder: bool = False  #: the tracker has the name of the checkpoint, not its step alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that a submission needs."""

    what: str  #: data
    key: str  #: of the spec, which gives it
    options: tuple[str, ...] = ()  #: of the script, each of which gives it as well
    hint: str = ""  #: what to do; where it is left out, to set the key
    words: tuple[str, ...] = ()  #: in names of options that give it, where the script's options aren't known
    scripts: tuple[str, ...] = ()  #: names of the scripts that need it, with *; left out: all
    replaces: str = ""  #: the key of the need that it stands for with these scripts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Framework:
    """One framework: its traits, and the function that writes for it. A trait that is left out is plain PyTorch's."""

    name: str  #: as in a job spec
    software: frozenset[Software]
    script: str  #: the training script that a job starts by default
    only: Mapping[str, str]  #: keys of `training` that have one value here, with the value
    exit_option: str | None = None  #: the script's argument that makes workers save and exit on TERM
    saves_nothing: tuple[str, ...] = ()  #: the script's arguments without which it saves checkpoints anywhere
    #: The script's options that say keys of the spec's `data` and `output`, by key; a key without any can't be said.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_environment: frozenset[str] = frozenset()  #: such keys that variables say
    #: Keys of the DeepSpeed config that the plan decides, as pointers, and the key of the spec that says each.
    planned: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()  #: what a submission needs
    data_paths: Literal["one", "weighted", "several"] = "one"  #: in `data.path`: of several, each with a weight or any
    data_prefix: bool = False  #: `data.path` is the beginning of the names of several files, which lie in one folder
    #: Steps between evaluations, and global batches of one, where the job says nothing; None: it doesn't evaluate.
    evaluation: tuple[int, int] | None = None

    #: Source: deepspeed/runtime/engine.py, save_checkpoint @ 0.19.8; megatron/training/checkpointing.py @ core 0.16.1.
    checkpoints: Checkpoints = Checkpoints(folder="global_step", tracker="latest", names_folder=True)

    keeps: int | None = None  #: of the newest checkpoints, as the files ask for where the job doesn't; None: all
    #: The script's argument that loads a universal checkpoint of DeepSpeed; None: a key of ds_config.json does.
    universal_option: str | None = None

    fused: bool = False  #: fused normalisation, activation and softmax kernels; eager PyTorch otherwise
    #: Queries, keys and values come from one product and stay in its memory. Source: Megatron's linear_qkv.
    packs_attention: bool = False
    #: The product of a weight gradient adds to the fp32 sum itself. Source: gradient_accumulation_fusion, Megatron-LM's
    #: default.
    sums_in_product: bool = False
    #: Collectives of column-parallel products run beside the backward pass's arithmetic. Source: Megatron-LM since
    #: 2022, core/tensor_parallel/layers.py; DeepSpeed's AutoTP and the Megatron of 2021 wait for them.
    overlaps_tensor: bool = False
    #: Launches of one layer's forward pass, counted from the modules' operators.
    kernels_per_layer: int
    #: fused | unfused: what the launch files ask for (Megatron-LM: --cross-entropy-loss-fusion).
    cross_entropy: str
    #: Bytes of device memory traffic a logit, forward and backward, by kind of loss. Source: counted from the operators
    #: of Megatron-LM's vocab_parallel_cross_entropy (54, and 30 with its fusion) and of PyTorch's cross_entropy on an
    #: fp32 copy (32).
    loss_traffic_bytes: Mapping[str, float]

    shards_vocabulary: bool = False  #: embedding and head are cut by tensor parallelism
    #: Rows of the token table are padded to a multiple of this × tensor, so that every rank's share suits the matrix
    #: units. Source: --make-vocab-size-divisible-by (default 128), NVIDIA/Megatron-LM megatron/training/tokenizer.
    vocabulary_multiple: int | None = None
    rings_context: bool = False  #: context parallelism sends keys and values around a ring; else Ulysses' all-to-alls
    #: A tensor rank routes its part of the sequence only: with experts, sequence parallelism is required.
    routes_cut_sequences: bool = False
    #: Tokens for experts cross nodes once each, where DeepEP runs. Source: --moe-enable-deepep, Megatron-LM
    #: core/transformer/moe/token_dispatcher.py.
    dispatches_by_node: bool = False
    dispatches_inside: bool = False  #: and so within a node, as published recipes do where they take DeepEP or HybridEP
    passes_mpu: bool = False  #: DeepSpeed gets the script's mpu, and counts model replicas instead of ranks

    program: Callable[[Any], Any] = field(repr=False)  #: from a plan to the program that every process runs

    def runs(self, *software: Software) -> bool:
        """Return whether a run executes any of these."""
        return not self.software.isdisjoint(software)

    def __str__(self) -> str:
        return self.name


Frameworks = Mapping[str, Framework]  #: by name
