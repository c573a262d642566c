"""Entries of the catalog as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final

import click

from ..catalog import find_accelerator, find_model, find_node_type
from ..catalog.layers.experts import Experts
from ..catalog.layers.nothing import NoFeedForward
from ..catalog.layers.softmax import SoftmaxAttention
from ..catalog.layers.stack import Layer
from ..catalog.model import Model
from ..catalog.names import machines_of, nearest
from ..catalog.records import Accelerator, ModelEntry, NodeType
from ..estimate.model_size import parameter_count
from ..job.hf_config import model_from_config
from ..units import GBIT_PER_S, TFLOPS, count, gib
from .printing import unknown
from .tables import Lines, Table, asides, numbers, whole


def listing(records: Mapping[str, Any], aliases: Mapping[str, str]) -> Table:
    """One row per entry: its name, its main facts, and other names of it."""
    table = Table(whole(), numbers(), numbers(), numbers(drop=2), asides(least=12, drop=1))
    others: dict[str, list[str]] = {}
    for alias, name in aliases.items():
        if alias != name.partition("/")[2]:
            others.setdefault(name, []).append(alias)

    for name, record in records.items():
        also = ", ".join(others.get(name, ()))
        price = record.list_price if isinstance(record, NodeType) else None
        table.add_row(
            f"  {name}",
            *_facts(record),
            f"${price.usd_per_node_hour:,.2f}/h" if price else "",
            also,
        )
    return table


def _find_accelerator(name: str) -> Accelerator | None:
    """The accelerator of a name, or of machines that a name such as 4xgb300 describes."""
    machines = machines_of(name)
    return find_accelerator(machines.accelerator if machines else name)


#: Finds an entry by its name, for each kind of entry.
_FIND: Final[Mapping[str, Any]] = {
    "accelerators": _find_accelerator,
    "node-types": find_node_type,
    "models": find_model,
}
#: What the kinds are called elsewhere: by the keys of a job spec, by clouds and by users.
_ALSO_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerators": ("gpus", "cards"),
    "node-types": ("clusters", "machines", "instance-types"),
    "models": (),
}
#: The kinds as `nearest` calls them, the likeliest to be meant first.
_KINDS_OF_NAMES: Final = ("node_types", "accelerators", "models")
_LIKE_A_KIND: Final = 0.7  # of difflib's ratio: three letters in ten differ
_LONG_NUMBER: Final = 1e4  # from which a number has no decimals


def kind_of(name: str, known: Mapping[str, Iterable[str]], *, alone: bool) -> str:
    """The kind of entry that has this name.

    `alone` says that the name was given without a kind. Else it was given as a kind, and is none.
    """
    abbreviated = _kinds_called(name)
    if not alone:
        if abbreviated:
            raise click.UsageError(f"unknown kind {name!r}; did you mean {abbreviated[0]!r}?")
        return unknown("kind", name, _FIND)
    for kind, find in _FIND.items():
        if find(name) is not None:
            return kind

    containing_name = [each for names in known.values() for each in names if name.lower() in each]
    called = {each: kind for kind, others in _ALSO_CALLED.items() for each in (kind, *others)}
    misspelt = [called[each] for each in get_close_matches(name, called, cutoff=_LIKE_A_KIND)]
    alike = filter(None, (nearest(name, kind) for kind in _KINDS_OF_NAMES))
    # The likeliest first; several names that contain it are all told.
    meant = [*abbreviated, *containing_name[:2], *misspelt, *alike]
    if abbreviated or (len(containing_name) < 2 and meant):
        raise click.UsageError(f"unknown kind or name {name!r}; did you mean {meant[0]!r}?")
    if containing_name:
        unknown("kind or name", name, containing_name)
    raise click.UsageError(
        f"unknown kind or name {name!r}; one of {', '.join(_FIND)}, or a name that these list"
    )


def _kinds_called(name: str) -> list[str]:
    """The kinds with a name that begins with this one, in the singular or the plural."""
    singular = name.lower().removesuffix("s")
    return [
        kind
        for kind, others in _ALSO_CALLED.items()
        if len(name) > 2 and any(called.startswith(singular) for called in (kind, *others))
    ]


def containing(kind: str, part: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The entries whose names contain `part`.

    Empty where an entry has just this name, or where only one name contains it.
    """
    if _FIND[kind](part) is not None:
        return {}
    matching = {name: record for name, record in known.items() if part.lower() in name.lower()}
    return matching if len(matching) > 1 else {}


def entry(kind: str, name: str, known: Iterable[str]) -> dict[str, Any]:
    """One entry as data.

    A model is the shape that its configuration describes, with the number of its parameters.
    """
    record = _FIND[kind](name)
    if record is None:
        unknown(kind.removesuffix("s").replace("-", " "), name, known)
    if isinstance(record, ModelEntry):
        model = _model(record)
        return {"name": model.name, "parameters": parameter_count(model), **sizes(model)}
    if isinstance(record, NodeType):
        return {**asdict(record), "accelerator": record.accelerator.name}
    if isinstance(record, Accelerator):
        abilities = asdict(record.generation)
        return {**asdict(record), "generation": abilities.pop("name"), "abilities": abilities}
    return asdict(record)


#: The sizes of a model, in the order in which they are printed.
_SIZES: Final = (
    "family",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "vocab",
    "max_positions",
    "gated_mlp",
    "activation",
    "tied_embeddings",
    "position_embedding",
    "position_rows",
    "rotary_base",
    "rotary_fraction",
    "rotary_scaling",
    "rotary_scaling_factor",
    "causal",
    "norm",
    "norm_epsilon",
    "norms_per_layer",
    "norm_after",
    "final_norms",
    "embedding_norms",
    "qk_norm",
    "qkv_bias",
    "output_bias",
    "mlp_bias",
    "attention_sinks",
    "embedding_width",
    "head_bias",
    "type_rows",
    "pooler",
    "mlm_head",
    "dropout",
    "attention_dropout",
    "experts",
    "experts_per_token",
    "moe_ffn",
    "shared_experts",
    "shared_ffn",
    "shared_gate",
    "router_bias",
    "expert_bias",
    "router_groups",
    "router_top_groups",
    "router_scale",
    "router_scores",
    "router_normalizes",
    "router_loss",
    "router_loss_by_sequence",
    "dense_layers",
    "dense_layer_indices",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "full_attention_layers",
    "chunked_attention",
    "layers_without_rotary",
    "activation_clamp",
    "extras",
    "notes",
    "source",
)
#: At most so many kinds of layers are shown as text.
_MOST_KINDS: Final = 12
#: The attributes of a model's parts that hold sizes, where they have another name.
_PART_NAMES: Final = {
    "gated_mlp": "gated",
    "activation_clamp": "clamp",
    "mlp_bias": "bias",
    "norms_per_layer": "norms",
    "shared_ffn": "width",
}
#: Sizes of the router that a model without experts doesn't have: the defaults of routers.
_WITHOUT_ROUTER: Final = {
    "router_scale": 1.0,
    "router_scores": "softmax",
    "router_normalizes": True,
    **dict.fromkeys(("shared_gate", "router_bias"), False),
}


def sizes(model: Model) -> dict[str, Any]:
    """A model's sizes by name, wherever its layers have them; 0 or nothing of what it lacks."""
    stack, routed = model.stack, model.part(Experts)
    dense = stack.where(_is_dense) if routed else ()
    local = [mixer.span for mixer in model.attentions if mixer.span.window is not None]
    without_rotary = stack.where(lambda layer: not layer.mixer.rotary)
    widths = [layer.feed_forward.width for layer in stack.kinds]
    computed = {
        "norm": model.norm.kind,
        "norm_epsilon": model.norm.epsilon,
        "shared_ffn": routed.width if routed else 0,
        "router_loss": routed.router_loss if routed else None,
        "router_loss_by_sequence": routed is not None and routed.router_loss_by_sequence,
        # A config may have a width that no layer has.
        "ffn": model.ffn if model.ffn in widths else 0,
        "dense_layers": len(dense),
        "dense_layer_indices": () if dense == tuple(range(len(dense))) else dense,
        "full_attention_layers": stack.where(_is_whole) if local else (),
        "chunked_attention": any(span.chunked for span in local),
        "layers_without_rotary": without_rotary if model.position_embedding == "rotary" else (),
    }
    # All others are read off the first of these that has a size of their name.
    parts = (model, stack.kinds[0], *model.attentions[:1], model.feed_forward)

    def size(name: str) -> Any:
        if name in computed:
            return computed[name]
        part_name = _PART_NAMES.get(name, name)
        part = next((each for each in parts if hasattr(each, part_name)), None)
        return _WITHOUT_ROUTER.get(name, 0) if part is None else getattr(part, part_name)

    return {**{name: size(name) for name in _SIZES}, "layers_by_kind": _layers_by_kind(model)}


def _layers_by_kind(model: Model) -> list[dict[str, Any]]:
    """Each kind of layer: how many there are and which, and the sizes of its parts."""
    stack = model.stack
    return [
        {
            "layers": count,
            "numbers": [i for i, place in enumerate(stack.order) if place == kind],
            "parts": [
                {"kind": part.called, **_sizes_of(part), **_borrowed(layer, part)}
                for part in layer.parts
                if not isinstance(part, NoFeedForward)
            ],
        }
        for kind, (layer, count) in enumerate(zip(stack.kinds, stack.counts, strict=True))
    ]


def _borrowed(layer: Layer, part: object) -> dict[str, bool]:
    """A mark, where an earlier layer holds the weights of a part; else nothing."""
    return {"weights_of_earlier_layer": True} if part in layer.borrowed else {}


def _sizes_of(part: object) -> dict[str, Any]:
    """The sizes of a part of a layer, by the names of its kind; what it lacks is left out."""
    sizes: dict[str, Any] = {}
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if is_dataclass(value):
            sizes |= _sizes_of(value)
            continue
        is_size = isinstance(value, bool | int | float | str) and field.name != "hidden"
        if is_size and value not in (0, "", "none"):
            sizes[field.name] = value
    return sizes


def _is_dense(layer: Layer) -> bool:
    return bool(layer.feed_forward.width) and not layer.feed_forward.experts


def _is_whole(layer: Layer) -> bool:
    return isinstance(layer.mixer, SoftmaxAttention) and layer.mixer.span.window is None


def entry_lines(entry: Mapping[str, Any], *, sparse: bool) -> Lines:
    """One entry, a line for each fact. If it is `sparse`, all that are none or 0 share a line."""
    # A router's defaults say nothing of a model without experts.
    has_router = entry.get("experts", True)
    empty, lines = [], []
    for key, value in entry.items():
        if key == "layers_by_kind" or (key in _WITHOUT_ROUTER and not has_router):
            continue
        if value or not sparse:
            lines.append((key, _text(value)))
        elif key != "extras":
            empty.append(key)
    lines += _kinds_in_words(entry.get("layers_by_kind", ()))
    return Lines([*lines, ("none or 0", ", ".join(empty))] if empty else lines)


#: Sizes of parts as text has them, where their names say too little.
_IN_WORDS: Final = {"gate": "output gate over", "maps": "softmax maps"}


def _kinds_in_words(kinds: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """A line for each kind of layer: `18 × Mamba-2 layers (heads 72, ...) at 0, 2, 4-6`."""
    lines = []
    for kind in kinds[:_MOST_KINDS]:
        texts = []
        for part in kind["parts"]:
            sizes = ", ".join(
                name if value is True else f"{_IN_WORDS.get(name, name)} {_text(value)}"
                for name, value in part.items()
                if name != "kind" and (name, value) != ("maps", 1)
            )
            texts.append(f"{part['kind']} ({sizes})" if sizes else part["kind"])
        where = f" at {_ranges(kind['numbers'])}" if len(kinds) > 1 else ""
        lines.append(("", f"{kind['layers']} × {' + '.join(texts)}{where}"))
    if len(kinds) > _MOST_KINDS:
        lines.append(("", f"and {len(kinds) - _MOST_KINDS} more kinds: --format json"))
    return [("layers by kind", lines[0][1]), *lines[1:]] if lines else []


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as text, with runs of consecutive ones as ranges: `0, 2, 4-6`."""
    starts = [i for i, number in enumerate(numbers) if not i or number != numbers[i - 1] + 1]
    ends = [*(start - 1 for start in starts[1:]), len(numbers) - 1]
    pairs = ((numbers[start], numbers[end]) for start, end in zip(starts, ends, strict=True))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)


def _facts(record: Accelerator | NodeType | ModelEntry) -> tuple[str, str]:
    """The two main facts of an entry, for its row in the table."""
    if isinstance(record, Accelerator):
        precision = next(filter(record.supports, ("bf16", "fp16", "fp32")), None)
        rate = ""
        if precision is not None:
            rate = f"{record.flops_per_s[precision] / TFLOPS:,.0f} TFLOP/s {precision}"
        return f"{gib(record.memory_bytes)} GiB", rate
    if isinstance(record, NodeType):
        gbits = record.network_bytes_per_s_per_node / GBIT_PER_S
        network = f"{gbits:,.0f} Gbit/s" if gbits else "no network"
        return f"{record.accelerators_per_node} × {record.accelerator.name}", network
    model = _model(record)
    return (
        f"{count(parameter_count(model))} parameters",
        f"{model.layers} layers of {model.hidden:,}",
    )


def facts_of(records: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the table of a kind shows of each entry, in SI units, by name."""
    return {name: _facts_in_si(record) for name, record in records.items()}


def _facts_in_si(record: Accelerator | NodeType | ModelEntry) -> dict[str, Any]:
    if isinstance(record, Accelerator):
        return {"memory_bytes": record.memory_bytes, "flops_per_s": dict(record.flops_per_s)}
    if isinstance(record, NodeType):
        return {
            "accelerator": record.accelerator.name,
            "accelerators_per_node": record.accelerators_per_node,
            "network_bytes_per_s_per_node": record.network_bytes_per_s_per_node,
            "price_per_node_hour": record.price_per_node_hour,
        }
    model = _model(record)
    size = {"layers": model.layers, "hidden": model.hidden}
    return {"parameters": parameter_count(model), **size}


def _model(entry: ModelEntry) -> Model:
    return model_from_config(entry.config, name=entry.name, source=entry.source)


def _text(value: Any) -> str:
    """A fact as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "nothing"
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value < _LONG_NUMBER:
        return f"{value:,g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
