"""A layout in the short words of the field, `DP32 TP4 PP8 SP Z1 mb1`, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .layout import Layout, Modules, Offload, Recompute


def short_layout(layout: Layout) -> str:
    """What differs from 1 or none, in one order; data parallelism and the micro-batch always.

    Layouts that differ have different short forms: gradient accumulation alone is left out, which follows from the
    batch.
    """
    return " ".join(word for word, _ in _words(layout))


def short_legend(layouts: Iterable[Layout]) -> str:
    """What the words in the short forms of `layouts` mean: `DP=data parallel, TP=tensor parallel, ...`."""
    used = {key for layout in layouts for _, key in _words(layout)}
    return ", ".join(f"{key}={meaning}" for key, meaning in _MEANINGS.items() if key in used)


_MEANINGS: Final[Mapping[str, str]] = {
    "DP": "data parallel",
    "TP": "tensor parallel",
    "PP": "pipeline stages",
    "VP": "model chunks a stage",
    "CP": "context parallel",
    "UL": "Ulysses ranks within CP",
    "EP": "expert parallel",
    "ETP": "tensor parallel in experts",
    "SP": "sequence parallel",
    "Z": "ZeRO stage",
    "copies": "of the ZeRO shards",
    "hpZ": "ZeRO++ group",
    "mb": "micro-batch",
    "rc": "recompute",
    "off": "offload",
    "TPov": "TP overlapped",
    "EPov": "EP overlapped",
    "first": "layers of the first stage",
    "last": "layers of the last stage",
}

_DEGREES: Final[Mapping[str, str]] = {
    "TP": "tensor",
    "PP": "pipeline",
    "VP": "virtual_pipeline",
    "CP": "context",
    "UL": "context_heads",
    "EP": "expert",
    "ETP": "expert_tensor",
}


_MODULES: Final[Mapping[Modules, str]] = {
    Modules.CORE_ATTN: "attn",
    Modules.MOE_ACT: "act",
    Modules.LAYERNORM: "norm",
    Modules.MLA_UP_PROJ: "up",
    Modules.MLP: "mlp",
    Modules.MOE: "moe",
    Modules.SHARED_EXPERTS: "shared",
}


def _words(layout: Layout) -> Iterator[tuple[str, str]]:
    """The words, each with the key of its meaning."""
    yield f"DP{layout.data}", "DP"
    for key, field in _DEGREES.items():
        if (size := getattr(layout, field)) > 1:
            yield f"{key}{size}", key
    if layout.sequence_parallel:
        yield "SP", "SP"
    if layout.zero_stage:
        yield f"Z{layout.zero_stage}", "Z"
    for key, size in (("copies", layout.zero_copies), ("hpZ", layout.zero_hpz)):
        if size > 1:
            yield f"{key}{size}", key
    yield f"mb{layout.micro_batch}", "mb"
    yield from _details(layout)


def _details(layout: Layout) -> Iterator[tuple[str, str]]:
    """What is recomputed, offloaded and overlapped, and uneven stages."""
    if layout.recompute is not Recompute.NONE:
        yield f"rc={_recomputed(layout)}", "rc"
    if layout.offload is not Offload.NONE:
        yield f"off={_offloaded(layout)}", "off"
    for key, chosen in (("TPov", layout.tensor_overlap), ("EPov", layout.expert_overlap)):
        if chosen:
            yield key, key
    for key, layers in (("first", layout.first_stage_layers), ("last", layout.last_stage_layers)):
        if layers:
            yield f"{key}{layers}", key


def _recomputed(layout: Layout) -> str:
    """`full`, `full:4` (layers of each chunk), `full/2` (two layers together), `attn`, `norm+mlp`."""
    if layout.recompute is Recompute.SELECTIVE:
        return "+".join(short for module, short in _MODULES.items() if module in layout.recompute_modules)
    layers = f":{layout.recompute_layers}" if layout.recompute_layers else ""
    return f"full{layers}{f'/{layout.recompute_group}' if layout.recompute_group > 1 else ''}"


def _offloaded(layout: Layout) -> str:
    """`opt`, `opt50%`, `opt+par`."""
    share = f"{layout.offload_fraction:.0%}" if layout.offload_fraction < 1 else ""
    return f"opt{share}{'+par' if layout.offload is Offload.OPTIMIZER_AND_PARAMETERS else ''}"
