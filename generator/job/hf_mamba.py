"""Models with state-space layers (Mamba), by `model_type`, as its config class reads them.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import Any, Final

from ..catalog.layers.grouped import GroupedQuery
from ..catalog.layers.mamba import Mamba1, Mamba2
from ..catalog.layers.nothing import NoFeedForward, NoMixer
from ..catalog.layers.side_by_side import SideBySide
from ..text.wording import show
from .hf_moe import read_experts
from .hf_shape import LONG, ConfigReader, Family, Shape, dense_layers, layer_list

FULL, LINEAR = "full_attention", "linear_attention"
#: Older names of kinds of layers. Source: transformers 5.23, configuration_utils.py,
#: remap_legacy_layer_types.
_OLDER: Final = {"mamba": LINEAR, "attention": FULL}
_PATTERN: Final = "hybrid_override_pattern"
#: Symbols of Nemotron-H's patterns.
_SYMBOLS: Final = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}

#: Initial values, types of caches, choices of code: they change neither size nor cost.
_UNSIZED: Final = (
    "mamba_hidden_act hidden_mamba_act mamba_ssm_cache_dtype use_mamba_kernels use_mambapy "
    "use_associative_scan time_step_min time_step_max time_step_limit time_step_floor "
    "time_step_scale time_step_init_scheme mamba_dt_min mamba_dt_max mamba_dt_limit "
    "mamba_dt_init_floor mamba_norm_before_gate ssm_in_multiplier ssm_out_multiplier "
    "ssm_multipliers mamba_act use_falcon_mambapy layers_block_type"
)


def _state_space(
    read: ConfigReader,
    shape: Shape,
    keys: Mapping[str, tuple[str, int]],
    **decided: Any,
) -> Mamba2:
    """Mamba-2 by the keys of a class: `keys` has those of each field, and the default.

    `decided` are the fields that the caller knows, and `width` or `expand`, which say the inner
    width. It is a problem if that isn't the heads times their size.
    """
    sizes: dict[str, Any] = {
        field: read.integer(*key.split(), default=usual) for field, (key, usual) in keys.items()
    }
    width, expand = decided.pop("width", None), decided.pop("expand", None)
    if width is None and expand is not None:
        width = int(expand * shape["hidden"])
    heads = sizes["heads"]
    if "head_dim" not in sizes:
        # "auto", as some configs have it, divides the width by the heads.
        head_dim = read.config.get("mamba_d_head")
        read.ignore("mamba_d_head")
        is_integer = isinstance(head_dim, int) and not isinstance(head_dim, bool)
        divided = max(1, (width or heads) // heads)
        sizes["head_dim"] = read.integer("mamba_d_head") if is_integer else divided
    if width is not None and sizes["head_dim"] * heads != width:
        keys_of_heads = keys["heads"][0].split()
        message = (
            f"{keys_of_heads[0]} is {heads}, but {heads} heads of {sizes['head_dim']} are not the "
            f"inner width of {width}"
        )
        read.report(read.given(*keys_of_heads) or keys_of_heads[0], message, None)
    read.ignore(*_UNSIZED.split())
    return Mamba2(hidden=shape["hidden"], **sizes, **decided)


def _kinds(read: ConfigReader, layers: int, key: str, known: tuple[str, ...]) -> list[str] | None:
    """The kind of each layer, as a list of the config says; older names become today's."""
    names = (*known, *(old for old, new in _OLDER.items() if new in known))
    listed = layer_list(read, key, layers, names)
    return None if listed is None else [_OLDER.get(str(kind), str(kind)) for kind in listed]


def _kinds_of_nemotron(read: ConfigReader) -> list[str]:
    """The kind of each layer, by a pattern of symbols or a list of names."""
    key = next(
        (key for key in ("layers_block_type", "layer_types") if read.config.get(key)),
        _PATTERN,
    )
    read.ignore("layers_block_type", "layer_types", _PATTERN)
    pattern = read.config.get(key)
    if pattern is None:
        kinds = [LINEAR, "moe", FULL, "mlp"]
    else:
        # A pattern may be a list of its symbols, as it is for the class.
        names = _SYMBOLS if isinstance(pattern, str) or key == _PATTERN else {}
        listed = pattern if isinstance(pattern, (str, list, tuple)) else ()
        kinds = [{**_OLDER, **names}.get(str(kind), str(kind)) for kind in listed]
    odd = next((kind for kind in kinds if kind not in _SYMBOLS.values()), None)
    if odd is not None or not kinds:
        message = f"{key} has {show(odd)}, which is no kind of layer of this model_type"
        if odd is None:
            message = f"{key} is {show(pattern)}, which names no layer"
        known = _SYMBOLS if key == _PATTERN else _SYMBOLS.values()
        read.report(key, message, f"name each layer by one of {', '.join(known)}")
        return [LINEAR]
    return kinds


def _nemotron(read: ConfigReader, shape: Shape) -> Shape:
    """Layers of a mixer or a feed-forward alone, as many as a pattern or a list has."""
    kinds = _kinds_of_nemotron(read)
    hidden, bias = shape["hidden"], read.boolean("use_bias", False)
    mixer = _state_space(
        read,
        shape,
        {
            "heads": ("mamba_num_heads", 128),
            "head_dim": ("mamba_head_dim", 64),
            "groups": ("mamba_n_groups n_groups", 8),
            "state": ("ssm_state_size", 128),
            "kernel": ("mamba_d_conv conv_kernel", 4),
            "chunk": ("mamba_chunk_size chunk_size", 128),
        },
        conv_bias=read.boolean("mamba_conv_bias", read.boolean("use_conv_bias", True)),
        bias=bias,
        output_bias=bias,
    )
    read.ignore("mamba_expand", "mamba_proj_bias", "time_step_rank")
    alone, nothing = NoFeedForward(hidden=hidden), NoMixer(hidden=hidden)
    mixers = {LINEAR: mixer, FULL: None}
    layers: Shape = {
        "layers": len(kinds),
        "mixers": [mixers.get(kind, nothing) for kind in kinds],
        "feed_forwards": [alone if kind in mixers else None for kind in kinds],
    }
    read.ignore(*_ROUTING.split())
    if "moe" not in kinds:
        return layers
    groups = read.integer("n_group", default=1)
    several = groups if groups > 1 else 0
    return {
        **layers,
        **read_experts(read, shape, experts=8, top_k=2, width=7688),
        **dense_layers(len(kinds), (i for i, kind in enumerate(kinds) if kind == "mlp")),
        "shared_experts": 1,
        "shared_ffn": read.integer("moe_shared_expert_intermediate_size", default=7688),
        "latent": read.optional_integer("moe_latent_size") or 0,
        "router_scores": "sigmoid",
        "router_normalizes": read.boolean("norm_topk_prob", True),
        "router_groups": several,
        "router_top_groups": read.integer("topk_group", default=1) if several else 0,
        "router_scale": read.positive("routed_scaling_factor", default=1.0),
    }


_ROUTING: Final = (
    "n_routed_experts num_experts num_local_experts num_experts_per_tok moe_intermediate_size "
    "moe_shared_expert_intermediate_size n_shared_experts moe_latent_size moe_shared_expert_overlap"
)


def _step_rank(read: ConfigReader, key: str, hidden: int) -> int:
    if read.config.get(key) in (None, "auto"):
        read.ignore(key)
        return ceil(hidden / 16)
    return read.integer(key)


def _selective(read: ConfigReader, shape: Shape, *, norms: bool = False) -> Mamba1:
    """Mamba-1 by the keys of hybrid models."""
    hidden = shape["hidden"]
    read.ignore(*_UNSIZED.split())
    return Mamba1(
        hidden=hidden,
        width=hidden * read.integer("mamba_expand", default=2),
        state=read.integer("mamba_d_state", default=16),
        step_rank=_step_rank(read, "mamba_dt_rank", hidden),
        kernel=read.integer("mamba_d_conv", default=4),
        conv_bias=read.boolean("mamba_conv_bias", True),
        bias=read.boolean("mamba_proj_bias", False),
        norms=norms,
        fused=not norms,
    )


def _period_and_offset(read: ConfigReader, name: str, period: int, offset: int) -> tuple[int, int]:
    """A period of layers, and a place within it, with their defaults."""
    period = read.integer(f"{name}_layer_period", default=period)
    key = f"{name}_layer_offset"
    offset = read.integer(key, default=offset, low=0)
    if offset >= period:
        read.report(key, f"{key} is {offset}, beyond the period of {period}", f"set {key}: 0")
    return period, offset


def _jamba(read: ConfigReader, shape: Shape) -> Shape:
    """Mamba-1 but for one layer of each period; experts in one layer of each other period."""
    layers = range(shape["layers"])
    attention_period, attention_offset = _period_and_offset(read, "attn", 8, 4)
    expert_period, expert_offset = _period_and_offset(read, "expert", 2, 1)
    mamba = _selective(read, shape, norms=True)
    experts = read_experts(read, shape, experts=16, top_k=2)
    has_no_mixture = experts["experts"] == 1
    dense = (i for i in layers if i % expert_period != expert_offset or has_no_mixture)
    return {
        **experts,
        **dense_layers(shape["layers"], dense),
        "mixers": [None if i % attention_period == attention_offset else mamba for i in layers],
    }


#: Keys of Mamba-2 in Bamba and its relatives.
_BAMBA: Final = {
    "heads": ("mamba_n_heads", 128),
    "groups": ("mamba_n_groups", 1),
    "state": ("mamba_d_state", 256),
    "kernel": ("mamba_d_conv", 4),
    "chunk": ("mamba_chunk_size", 256),
}


def _bamba_mixer(read: ConfigReader, shape: Shape, **decided: Any) -> Mamba2:
    bias = read.boolean("mamba_proj_bias", False)
    return _state_space(
        read,
        shape,
        _BAMBA,
        expand=read.integer("mamba_expand", default=2),
        conv_bias=read.boolean("mamba_conv_bias", True),
        **{"bias": bias, "output_bias": bias, **decided},
    )


def _bamba(read: ConfigReader, shape: Shape) -> Shape:
    named, mixer = read.layer_indices("attn_layer_indices"), _bamba_mixer(read, shape)
    return {"mixers": [None if i in named else mixer for i in range(shape["layers"])]}


def _granite(read: ConfigReader, shape: Shape) -> Shape:
    """Mamba-2 or attention, then experts beside a shared MLP, or that MLP alone."""
    layers, mixer = shape["layers"], _bamba_mixer(read, shape)
    kinds = _kinds(read, layers, "layer_types", (FULL, LINEAR)) or [LINEAR] * layers
    width = read.integer("shared_intermediate_size", default=1024)
    rotates = read.text("position_embedding_type", default="nope") == "rope"
    mixed: Shape = {
        "mixers": [mixer if kind == LINEAR else None for kind in kinds],
        "position_embedding": "rotary" if rotates else "none",
    }
    if not read.integer("num_local_experts", default=8, low=0):
        read.ignore("num_experts_per_tok")
        return {**mixed, "ffn": width}
    return {
        **mixed,
        **read_experts(read, shape, experts=8, top_k=2),
        "shared_experts": 1,
        "shared_ffn": width,
        "router_normalizes": True,
    }


def _falcon_h1(read: ConfigReader, shape: Shape) -> Shape:
    """Attention and Mamba-2 side by side in every layer."""
    width = read.integer("mamba_d_ssm", default=1024) if _has_width(read) else None
    read.ignore("mamba_use_mlp", "time_step_rank")  # of published configs; its class has neither
    mixer = _bamba_mixer(
        read,
        shape,
        width=width,
        gated_norm=read.boolean("mamba_rms_norm", False),
        output_bias=read.boolean("projectors_bias", False),
    )
    sizes = ("hidden", "heads", "kv_heads", "head_dim", "qkv_bias", "output_bias")
    attention = GroupedQuery(**{name: shape[name] for name in sizes})
    both = SideBySide(hidden=shape["hidden"], mixers=(attention, mixer))
    return {"mixers": [both] * shape["layers"]}


def _has_width(read: ConfigReader) -> bool:
    """Tell whether a key gives the inner width; null says `mamba_expand` times the hidden size."""
    read.ignore("mamba_d_ssm")
    return "mamba_d_ssm" not in read.config or read.config["mamba_d_ssm"] is not None


def _alone(read: ConfigReader, shape: Shape, mixer: Mamba1 | Mamba2) -> Shape:
    """A model of which every layer is this mixer alone."""
    layers, nothing = shape["layers"], NoFeedForward(hidden=shape["hidden"])
    return {"mixers": [mixer] * layers, "feed_forwards": [nothing] * layers, "ffn": shape["hidden"]}


def _mamba(read: ConfigReader, shape: Shape) -> Shape:
    hidden, bias = shape["hidden"], read.boolean("use_bias", False)
    read.ignore(*_UNSIZED.split(), "intermediate_size")
    width = hidden * read.integer("expand", default=2)
    if read.config.get("intermediate_size") not in (None, width):
        message = f"intermediate_size is {show(read.config['intermediate_size'])}: widths other "
        message += f"than expand times hidden_size, {width}, are not modelled"
        read.report("intermediate_size", message, f"set intermediate_size: {width}")
    mixer = Mamba1(
        hidden=hidden,
        width=width,
        state=read.integer("state_size", default=16),
        step_rank=_step_rank(read, "time_step_rank", hidden),
        kernel=read.integer("conv_kernel", default=4),
        conv_bias=read.boolean("use_conv_bias", True),
        bias=bias,
    )
    return _alone(read, shape, mixer)


def _mamba2(read: ConfigReader, shape: Shape) -> Shape:
    bias = read.boolean("use_bias", False)
    read.ignore("time_step_rank")
    mixer = _state_space(
        read,
        shape,
        {
            "heads": ("num_heads", 128),
            "head_dim": ("head_dim", 64),
            "groups": ("n_groups", 8),
            "state": ("state_size", 128),
            "kernel": ("conv_kernel", 4),
            "chunk": ("chunk_size", 256),
        },
        expand=read.integer("expand", default=2),
        conv_bias=read.boolean("use_conv_bias", True),
        bias=bias,
        output_bias=bias,
    )
    return _alone(read, shape, mixer)


_NO_ATTENTION: Final = dict.fromkeys(
    (
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "max_position_embeddings",
        "attention_dropout",
    ),
    "",
)
_MAMBA = partial(
    Family,
    hidden=768,
    heads=1,
    positions=LONG,
    tied=True,
    position_embedding="none",
    epsilon=1e-5,
    mixed=True,
)

STATE_SPACE: Final[Mapping[str, Family]] = {
    "mamba": _MAMBA(
        vocab=50280,
        names={**_NO_ATTENTION, "head_dim": "", "rms_norm_eps": "layer_norm_epsilon"},
        more=_mamba,
    ),
    "falcon_mamba": _MAMBA(
        vocab=50280,
        names={**_NO_ATTENTION, "head_dim": "", "rms_norm_eps": "layer_norm_epsilon"},
        more=_mamba,
    ),
    "mamba2": _MAMBA(
        vocab=32768,
        hidden=4096,
        layers=64,
        tied=False,
        names={**_NO_ATTENTION, "rms_norm_eps": "layer_norm_epsilon"},
        more=_mamba2,
    ),
    "nemotron_h": Family(
        vocab=131072,
        hidden=4096,
        ffn=21504,
        layers=4,
        heads=32,
        kv_heads=8,
        positions=4096,
        head_dim=128,
        activation="relu2",
        position_embedding="none",
        epsilon=1e-5,
        mlp_bias=False,
        mixed=True,
        names={
            "hidden_act": "mlp_hidden_act",
            "rms_norm_eps": "layer_norm_epsilon",
            "num_experts": "n_routed_experts num_local_experts",
        },
        fields={"gated_mlp": False, "tied_embeddings": False},  # whatever its config says
        more=_nemotron,
    ),
    "jamba": Family(
        vocab=65536,
        ffn=14336,
        kv_heads=8,
        positions=262144,
        position_embedding="none",
        mixed=True,
        names={"num_experts": "num_experts num_local_experts"},
        fields={"router_normalizes": False},
        more=_jamba,
    ),
    "bamba": Family(
        vocab=128000,
        ffn=14336,
        kv_heads=8,
        positions=262144,
        rotary_fraction=0.5,
        epsilon=1e-5,
        attention_bias=False,
        mlp_bias=False,
        mixed=True,
        more=_bamba,
    ),
    "granitemoehybrid": Family(
        attention_bias=False,
        mixed=True,
        names={"num_experts": "num_local_experts"},
        more=_granite,
    ),
    "falcon_h1": Family(
        vocab=128000,
        ffn=14336,
        kv_heads=8,
        positions=8192,
        epsilon=1e-5,
        attention_bias=False,
        mlp_bias=False,
        mixed=True,
        more=_falcon_h1,
    ),
}
