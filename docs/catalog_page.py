"""The catalogue as Markdown: every accelerator, node type and model with what is known of it, and
where from.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.catalog import load_catalog
from dsgen.catalog.records import Accelerator, ModelEntry, NodeType
from dsgen.estimate.model_size import parameter_count
from dsgen.job.hf_config import model_from_config
from dsgen.units import GB, GBIT_PER_S, GIB, TFLOPS

from .markdown import code, prose, table

ACCELERATORS = (
    "name",
    "memory, GiB",
    "memory, GB/s",
    "TFLOP/s, dense",
    "link, GB/s",
    "TDP, W",
    "source",
)
NODE_TYPES = (
    "name",
    "accelerators",
    "network",
    "Gbit/s",
    "host memory, GiB",
    "cores",
    "price an hour",
    "source",
)
MODELS = ("name", "parameters", "layers", "hidden", "heads", "vocabulary", "experts", "source")


def catalog_sections() -> Iterator[str]:
    """A table for each kind."""
    known = load_catalog()
    yield from ("## Accelerators", "", "Rates of links are for one direction.", "")
    yield from table(ACCELERATORS, map(_accelerator, known.accelerators.values()))
    yield from (
        "",
        "## Node types",
        "",
        "The network's rate is that of all cards of a node, in one direction.",
        "",
    )
    yield from table(NODE_TYPES, map(_node_type, known.node_types.values()))
    yield from (
        "",
        "## Models",
        "",
        "Sizes follow from the `config.json` of each model, and are exact.",
        "",
    )
    yield from table(MODELS, map(_model, known.models.values()))
    yield from ("", "## Other names", "", "These names mean the same.", "")
    yield from table(
        ("name", "means"),
        ((code(name), code(meant)) for name, meant in sorted(known.aliases.items())),
    )


def _accelerator(record: Accelerator) -> tuple[str, ...]:
    return (
        code(record.name),
        f"{record.memory_bytes / GIB:,.4g}",
        f"{record.memory_bytes_per_s / GB:,.0f}",
        ", ".join(f"{name} {rate / TFLOPS:,.4g}" for name, rate in record.flops_per_s.items()),
        f"{record.link_bytes_per_s / GB:,.4g}" if record.link_bytes_per_s else "",
        _known(record.tdp_watts),
        _source(record.source, record.unverified),
    )


def _node_type(record: NodeType) -> tuple[str, ...]:
    return (
        code(record.name),
        f"{record.accelerators_per_node} × {record.accelerator.name}",
        f"{record.network}; {record.intra_node} inside",
        f"{record.network_bytes_per_s_per_node / GBIT_PER_S:,.0f}",
        _known(record.host_memory_bytes and record.host_memory_bytes / GIB),
        _known(record.cpu_cores),
        _known(record.price_per_node_hour),
        _source(record.source, record.unverified),
    )


def _model(entry: ModelEntry) -> tuple[str, ...]:
    model = model_from_config(entry.config, name=entry.name, source=entry.source)
    experts = (
        f"{model.experts}, {model.feed_forward.per_token} a token" if model.experts > 0 else ""
    )
    # DeepSeek-V4's attention is over compressed keys alone, and no kind of softmax attention.
    heads = next((mixer.heads for mixer in model.mixers if hasattr(mixer, "heads")), 0)
    heads = model.heads if model.attentions else heads
    sizes = (parameter_count(model), model.layers, model.hidden, heads, model.vocab)
    return (code(entry.name), *(f"{size:,}" for size in sizes), experts, prose(entry.source))


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _source(source: str, unverified: tuple[str, ...]) -> str:
    return prose(
        source + (f" (not read in a source: {', '.join(unverified)})" if unverified else "")
    )
