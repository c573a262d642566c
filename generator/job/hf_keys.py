"""Keys of Hugging Face configs, whatever class they are of: their spellings, what a class takes for
one that is missing, and which keys no reader may ignore.

`model_types.json` is written by `scripts/model_types.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ..numerals import read_whole
from ..resources import read_text
from ..text.wording import show
from .hf_shape import LARGEST, ConfigReader

#: By a key's usual name, how configs spell it.
SPELLINGS: Final[Mapping[str, str]] = {
    "hidden_size": "hidden_size n_embd d_model dim",
    "num_hidden_layers": "num_hidden_layers n_layer n_layers num_layers",
    "num_attention_heads": "num_attention_heads n_head n_heads num_heads attention_heads",
    "num_key_value_heads": "num_key_value_heads num_kv_heads n_kv_heads num_attention_groups",
    "head_dim": "head_dim kv_channels attention_head_dim",
    "intermediate_size": "intermediate_size n_inner ffn_dim ffn_hidden_size dff d_ff",
    "max_position_embeddings": "max_position_embeddings n_positions max_sequence_length "
    "max_seq_len seq_length",
    "hidden_act": "hidden_act hidden_activation activation_function afn",
    "rms_norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps "
    "norm_epsilon",
    "hidden_dropout": "hidden_dropout hidden_dropout_prob resid_pdrop residual_dropout "
    "resid_dropout dropout",
    "attention_dropout": "attention_dropout attention_probs_dropout_prob attn_pdrop",
    "num_experts": "num_experts num_local_experts n_routed_experts moe_num_experts "
    "num_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok moe_topk moe_top_k moe_k top_k_experts "
    "num_experts_per_token moe_router_topk experts_top_k",
    "moe_intermediate_size": "moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size",
    "n_shared_experts": "n_shared_experts num_shared_experts moe_num_shared_experts "
    "num_shared_expert",
    "shared_expert_intermediate_size": "shared_expert_intermediate_size "
    "shared_experts_intermediate_size moe_shared_expert_intermediate_size shared_intermediate_size "
    "share_expert_dim share_expert_dims",
    "q_lora_rank": "q_lora_rank attention_q_lora_dim",
    "kv_lora_rank": "kv_lora_rank attention_kv_lora_dim",
    "qk_nope_head_dim": "qk_nope_head_dim attention_qk_dim",
    "qk_rope_head_dim": "qk_rope_head_dim attention_qk_rope_dim",
    "v_head_dim": "v_head_dim attention_v_dim",
    "sandwich_norm": "sandwich_norm use_sandwich_norm",
    "first_k_dense_replace": "first_k_dense_replace num_dense_layers n_dense_first_layers",
    "routed_scaling_factor": "routed_scaling_factor route_scale router_scaling_factor "
    "moe_routed_scaling_factor moe_router_scaling_factor",
    "router_aux_loss_coef": "router_aux_loss_coef aux_loss_alpha aux_loss_coef",
    "sliding_window": "sliding_window sliding_window_size window_size local_attention",
    "swiglu_limit": "swiglu_limit",
    "attention_sinks": "attention_sinks use_attention_sinks add_attention_sink_bias",
    "qk_norm": "use_qk_norm qk_norm qk_layernorm use_qk_layernorm",
    "scoring_func": "scoring_func score_function score_func moe_router_activation_func",
    "norm_topk_prob": "norm_topk_prob route_norm moe_renormalize",
}

#: Keys that no size depends on, of any class: tokens, generation, initial values, files, precision,
#: routing, kernels of other programs. A pattern, compiled when it is needed: few commands do.
_IDLE: Final = (
    r"_token_ids?$|_token$|_id$|_index$|_ids$|^(architectures|auto_map|torch_dtype|dtype|bos_|eos_"
    r"|pad_|model_type|transformers_version|_name_or_path|use_cache|initializer|init_|output_"
    r"|return_|rope_|partial_rotary_factor|rotary_|attention_dropout|hidden_dropout|embd_pdrop"
    r"|pretraining_tp|tokenizer|tie_word_embeddings|quantization_config|compression_config"
    r"|summary_|task_specific|problem_type|id2label|label2id|temperature|top_[kp]$|do_sample"
    r"|max_length|min_length|num_beams|num_return|num_labels|chunk_size_feed_forward"
    r"|is_encoder_decoder|is_decoder|image_|video_|audio_|vision_|router_aux_loss|aux_loss|seq_aux"
    r"|z_loss|router_z|ep_size|n_group$|topk_group|topk_method|scoring_func|norm_topk_prob"
    r"|max_window_layers|use_sliding_window|original_max_position|attn_implementation"
    r"|num_nextn_predict|num_mtp_|mtp_|moe_router_|unsloth|layerdrop|activation_dropout"
    r"|query_pre_attn_scalar|\w*softcapping$|attention_value_scale|scale_attn|scale_emb|logit_scale"
    r"|lambda_std|\w*_dropout$|\w*_pdrop$|norm_type$|rms_norm_eps|layer_norm_eps|\w*_eps$"
    r"|dim_model_base$|scale_depth$|num_experts_per_group$|(moe_)?router_(enable_|use_)?\w*bias$"
    r"|qk_head_dim$|no_rope_layer|layer_rope_theta|(?=\w*$)\w*_fp32|n_ctx$"
    r"|\w*initializer_range$"
    r"|(embedding|residual|attention|logits?|output|qk)_(multiplier|scaling|scale_factor)$)"
)
#: Words of keys that size, cost or parts of a layer may depend on.
_TELLING_WORDS: Final = (
    "dim dims size sizes rank ranks width widths head heads layer layers expert experts moe norm "
    "norms layernorm ln bias gate gates gated gating multiplier multiple ratio factor group groups "
    "share shared shares sharing cross conv kernel window sparse block blocks pattern period "
    "interval freq every loop loops cycle cycles recurrent residual latent lora index indexer hash "
    "ngram memory adapter adapters encoder decoder parallel num n stream streams expansion depth "
    "mtp engram hyper mhc hc ut recurrence recurrences iterations passes"
)
_TELLING: Final = frozenset(_TELLING_WORDS.split())


#: Keys that single layers have instead of the config's own, by their numbers. transformers writes
#: what the class made of other keys there, and those no more.
PER_LAYER: Final = "per_layer_config"

#: Keys that transformers' code reads of any config, whether its class names them or not.
_OTHERS: Final = (
    "head_dim",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    PER_LAYER,
)


class KnownClass(NamedTuple):
    """What transformers' config class of a `model_type` has."""

    keys: Mapping[str, Any]  #: with what a missing one is taken for
    names: Mapping[str, str]  #: other names of keys
    rotary_base: float
    ties: bool  #: whether its model can tie the head to the token table


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(read_text(__package__, "model_types.json"))
    return tables


def known_class(family: str) -> KnownClass | None:
    """The config class of a `model_type`; `None` where transformers has none."""
    entry = _tables()["types"].get(family)
    if entry is None:
        return None
    base = entry.get("rotary_base", 10000.0)
    if isinstance(base, dict):  # local layers have a base of their own
        base = base["global"]
    return KnownClass(
        entry["keys"],
        entry.get("names", {}),
        base,
        entry.get("ties", True),
    )


def multimodal(family: str) -> Mapping[str, Any] | None:
    """Where a multimodal `model_type` has its language model (`place`), what that is (`text`), and
    whether it is `tied` where nothing says so; `None` for any other.
    """
    entry: Mapping[str, Any] | None = _tables()["multimodal"].get(family)
    return entry


class LayerClasses(NamedTuple):
    """The classes of transformers that the layers of a `model_type` are of."""

    names: tuple[str, ...]
    #: whether the model itself names them (`_no_split_modules`), for programs that wrap layers
    named: bool


def layer_classes(family: str) -> LayerClasses | None:
    """The classes of a type's layers; `None` where transformers has no such type."""
    entry = _tables()["types"].get(family, {})
    if "layers" not in entry:
        return None
    return LayerClasses(tuple(entry["layers"]), entry.get("names_layers", True))


@cache
def _types_by_model() -> Mapping[str, str]:
    names_by_class: dict[str, str] = {}
    for name, entry in sorted(_tables()["types"].items(), key=lambda item: len(item[0])):
        names_by_class.setdefault(entry.get("model", ""), name)
    return names_by_class


def type_of_model(architectures: object) -> str | None:
    """The `model_type` whose model in transformers is one of these classes; `None` for none."""
    named = architectures if isinstance(architectures, (list, tuple)) else ()
    types = (_types_by_model().get(each) for each in named if each and isinstance(each, str))
    return next((name for name in types if name is not None), None)


@cache
def every_layer_class() -> frozenset[str]:
    """The classes of layers that models of transformers name, of all types."""
    of_types = map(layer_classes, _tables()["types"])
    named = [classes for classes in of_types if classes is not None and classes.named]
    return frozenset(name for classes in named for name in classes.names)


@cache
def every_key() -> frozenset[str]:
    """The keys that config classes of transformers have, of all types."""
    entries = _tables()["types"].values()
    return frozenset(key for each in entries for key in (*each["keys"], *each.get("names", ())))


class KeyReader(ConfigReader):
    """Reads keys as a class of transformers would, or under any spelling where there is no class.

    A missing key has the class's value, whatever default a call names.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        known: KnownClass | None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(config)
        self.known = known
        self.names = names or {}
        #: keys that the class's code reads, though the class doesn't name them
        self.others = frozenset(_OTHERS)
        #: What `called` said since `names` and `others` changed: a reader asks once for each layer.
        self._said: dict[tuple[str, ...], list[str]] = {}
        self._said_with: tuple[Mapping[str, str], frozenset[str]] = self.names, self.others
        #: What the config says of single layers, where somebody asked for it.
        self.of_layers: dict[int, ConfigReader] | None = None

    def called(self, *keys: str) -> list[str]:
        """The names that the class reads for `keys`, best first: other names that it has, then its
        own.
        """
        if self._said_with != (self.names, self.others):
            self._said, self._said_with = {}, (self.names, self.others)
        if keys not in self._said:
            names = (name for key in keys for name in self._called(key))
            self._said[keys] = list(dict.fromkeys(names))
        return self._said[keys]

    def _called(self, key: str) -> list[str]:
        if key in self.names:
            return self.names[key].split()
        spelled = SPELLINGS.get(key, key).split()
        if self.known is None:
            return spelled
        keys, names = self.known.keys, self.known.names
        others = [name for name in spelled if name in names]
        own = (name for name in spelled if name in keys or name in self.others)
        return [*others, *(names[name] for name in others), *own]

    def usual(self, *keys: str, default: Any = None) -> Any:
        """What the class takes for the first of `keys` that it has a value for."""
        known = {} if self.known is None else self.known.keys
        values = (known.get(name) for name in self.called(*keys))
        return next((value for value in values if value is not None), default)

    def knows(self, key: str) -> bool:
        """Whether the class has a key of that name, or the config where there is no class."""
        if self.known is None:
            return any(name in self.config for name in self.called(key))
        return bool(self.called(key))

    def integer(
        self,
        *keys: str,
        default: int | None = None,
        low: int = 1,
        high: int = LARGEST,
    ) -> int:
        """As of any reader; a missing key has the class's value."""
        usual = self.usual(*keys, default=default)
        return super().integer(*keys, default=usual, low=low, high=high)

    def optional_integer(self, *keys: str, low: int = 1, high: int = LARGEST) -> int | None:
        """As of any reader; a missing key has the class's value."""
        names = self.called(*keys)
        self.read.update(names)
        if not any(name in self.config for name in names):
            value = self.usual(*keys)
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        present = self.given(*keys)
        if present is None:
            return None
        self.others |= {present}  # so that `integer` takes this name, whatever the class has
        return self.integer(present, low=low, high=high)

    def boolean(self, key: str, default: bool) -> bool:
        """As of any reader; a missing key has the class's value."""
        return super().boolean(key, bool(self.usual(key, default=default)))

    def positive(self, *keys: str, default: float) -> float:
        """As of any reader; a missing key has the class's value."""
        return super().positive(*keys, default=self._number_of_class(keys, default))

    def fraction(self, *keys: str, default: float = 0.0) -> float:
        """As of any reader; a missing key has the class's value."""
        return super().fraction(*keys, default=self._number_of_class(keys, default))

    def _number_of_class(self, keys: tuple[str, ...], default: float) -> float:
        usual = self.usual(*keys, default=default)
        is_number = isinstance(usual, (int, float)) and not isinstance(usual, bool)
        return float(usual) if is_number else default

    def text(self, *keys: str, default: str) -> str:
        """As of any reader; a missing key has the class's value."""
        usual = self.usual(*keys, default=default)
        return super().text(*keys, default=usual if isinstance(usual, str) else default)

    def of_layer(self, index: int) -> ConfigReader:
        """A reader of the keys that `per_layer_config` has for one layer alone."""
        if self.of_layers is None:
            self.of_layers = dict(self._read_layers())
        return self.of_layers.get(index) or ConfigReader({})

    def _read_layers(self) -> Iterator[tuple[int, ConfigReader]]:
        for number, keys in self.mapping(PER_LAYER).items():
            index = number if isinstance(number, int) else read_whole(str(number))
            if index is None or not isinstance(keys, Mapping):
                message = f"{PER_LAYER} has {show(number)}: not a layer's number with its keys"
                self.report(PER_LAYER, message, f"remove {PER_LAYER}")
            else:
                yield index, ConfigReader(keys)

    def value(self, key: str) -> Any:
        """What the config has, else what the class takes for it."""
        name = self.given(key)
        return self.usual(key) if name is None else self.config[name]


def foreign_keys(read: ConfigReader, known: KnownClass) -> Iterator[str]:
    """Keys of a telling name that nobody read, and that a class doesn't have."""
    names = {*known.keys, *known.names}
    for key, value in read.config.items():
        if not isinstance(key, str) or key in read.read or key in names:
            continue
        if _is_telling(key) and _says_something(value):
            yield key


def is_off(config: Mapping[str, object], key: str) -> bool:
    """Whether a key is of a part that another key switches off.

    `use_cla: false` switches `cla_share_factor` off, and `mamba_enabled: false` `mamba_d_conv`.
    """
    words = key.split("_")
    parts = ("_".join(words[:count]) for count in range(1, len(words)))
    return any(
        config.get(switch) is False
        for part in parts
        for switch in (f"use_{part}", f"enable_{part}", f"{part}_enabled")
    )


def _is_telling(key: str) -> bool:
    """Whether a key's name has a word of what size, cost or parts of a layer may depend on."""
    return not re.search(_IDLE, key) and not _TELLING.isdisjoint(key.lower().split("_"))


def odd_keys(read: KeyReader) -> Iterator[str]:
    """Keys that nobody read and that may change a model.

    Of a known class these are keys whose value isn't the usual one, of another those with a telling
    name.
    """
    for key, value in read.config.items():
        if not isinstance(key, str) or key in read.read or re.search(_IDLE, key):
            continue
        if is_off(read.config, key):
            continue
        if read.known is None:
            if _says_something(value) and _is_telling(key):
                yield key
        elif key in read.known.keys and value not in (read.known.keys[key], None):
            yield key


def unread_sizes(read: ConfigReader) -> Iterator[str]:
    """Keys that may hold a size, and that neither the reader nor a class of transformers knows.

    A size is a whole number above 1, alone, in a list or in a mapping.
    """
    for key, value in read.config.items():
        if not isinstance(key, str) or key in read.read or key in every_key():
            continue
        if is_off(read.config, key):
            continue
        if _has_size(value) and not re.search(_OF_USE, key):
            yield key


def unread_parts(read: ConfigReader) -> Iterator[str]:
    """Unread sizes whose names tell of layers or widths, and that no key that was read has too."""
    said = [value for key, value in read.config.items() if key in read.read]
    for key in unread_sizes(read):
        if _is_telling(key) and read.config[key] not in said:
            yield key


#: Keys of tokens, generation, quantization and multi-token prediction, and of parts that aren't the
#: language model.
_OF_USE: Final = (
    r"_token_ids?$|_id$|_index$|_ids$|^(max_length|min_length|num_beams|num_return_sequences"
    r"|num_nextn_predict_layers|num_mtp_\w+|mtp_\w+|num_labels|top_k|pretraining_tp|ep_size"
    r"|id2label|label2id|task_specific_params"
    r"|quantization_config|compression_config|(image|video|audio|vision)_\w+)$"
)


def _has_size(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_size, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_size, value))
    return isinstance(value, int) and value > 1


def _says_something(value: object) -> bool:
    """Return whether a value is more than nothing, false, 0, 1, or a text."""
    if isinstance(value, (list, tuple)):
        return any(map(_says_something, value))
    if isinstance(value, Mapping):
        return bool(value)
    return value is True or (isinstance(value, (int, float)) and value not in (0, 1))


def conflicts(read: KeyReader) -> Iterator[tuple[str, str]]:
    """Pairs of keys of a config without a class that spell one key and differ."""
    for key in SPELLINGS:
        names = [name for name in read.called(key) if read.config.get(name) is not None]
        for other in names[1:]:
            if read.config[other] != read.config[names[0]]:
                yield names[0], f"{other} is {show(read.config[other])}"
