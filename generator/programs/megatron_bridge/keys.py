"""Keys of Megatron-Bridge's config by the options of Megatron-LM that say the same.

An option that isn't here is a field of the model, of its own name: `--hidden-size` is
`model.hidden_size`.

**Source**: NVIDIA-NeMo/Megatron-Bridge v0.6.0 (51885cf13), src/megatron/bridge/training/config.py,
training/mixed_precision.py, models/gpt_provider.py; Megatron-Core 0.19, which it pins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...numerals import whole
from ...patterns import lazy_pattern

#: Values by keys of the config: numbers, truth values, text, lists, and mappings of them.
ValuesByKey = Mapping[str, Any]

#: Options by the key that has their value as it is.
KEYS: Final[Mapping[str, str]] = {
    # the model's, by another name
    "--norm-epsilon": "model.layernorm_epsilon",
    "--use-rope-scaling": "model.rope_scaling",
    "--rotary-scaling-factor": "model.yarn_rotary_scaling_factor",  # with YaRN alone
    "--num-experts": "model.num_moe_experts",
    "--num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "--decoder-first-pipeline-num-layers": "model.num_layers_in_first_pipeline_stage",
    "--decoder-last-pipeline-num-layers": "model.num_layers_in_last_pipeline_stage",
    # others'
    "--use-megatron-fsdp": "ddp.use_megatron_fsdp",
    "--data-parallel-sharding-strategy": "ddp.data_parallel_sharding_strategy",
    "--use-distributed-optimizer": "ddp.use_distributed_optimizer",
    "--num-distributed-optimizer-instances": "ddp.num_distributed_optimizer_instances",
    "--overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "--overlap-param-gather": "ddp.overlap_param_gather",
    "--seq-length": "dataset.seq_length",
    "--data-path": "dataset.data_path",
    "--data-cache-path": "dataset.path_to_cache",
    "--split": "dataset.split",
    "--micro-batch-size": "train.micro_batch_size",
    "--global-batch-size": "train.global_batch_size",
    "--train-iters": "train.train_iters",
    "--train-samples": "train.train_samples",
    "--exit-signal-handler": "train.exit_signal_handler",
    "--exit-duration-in-mins": "train.exit_duration_in_mins",
    "--eval-interval": "validation.eval_interval",
    "--optimizer": "optimizer.optimizer",
    "--lr": "optimizer.lr",
    "--min-lr": "optimizer.min_lr",
    "--adam-beta1": "optimizer.adam_beta1",
    "--adam-beta2": "optimizer.adam_beta2",
    "--adam-eps": "optimizer.adam_eps",
    "--clip-grad": "optimizer.clip_grad",
    "--optimizer-cpu-offload": "optimizer.optimizer_cpu_offload",
    "--optimizer-offload-fraction": "optimizer.optimizer_offload_fraction",
    "--overlap-cpu-optimizer-d2h-h2d": "optimizer.overlap_cpu_optimizer_d2h_h2d",
    "--use-precision-aware-optimizer": "optimizer.use_precision_aware_optimizer",
    "--lr-decay-style": "scheduler.lr_decay_style",
    "--lr-warmup-fraction": "scheduler.lr_warmup_fraction",
    "--tokenizer-type": "tokenizer.tokenizer_type",
    "--tokenizer-model": "tokenizer.tokenizer_model",
    "--vocab-file": "tokenizer.vocab_file",
    "--merge-file": "tokenizer.merge_file",
    "--vocab-size": "tokenizer.vocab_size",
    "--save": "checkpoint.save",
    "--load": "checkpoint.load",
    "--save-interval": "checkpoint.save_interval",
    "--ckpt-format": "checkpoint.ckpt_format",
    "--log-interval": "logger.log_interval",
    "--tensorboard-dir": "logger.tensorboard_dir",
}

#: Flags whose key has the opposite value.
INVERTED: Final[Mapping[str, str]] = {
    "--untie-embeddings-and-output-weights": "model.share_embeddings_and_output_weights",
    "--disable-bias-linear": "model.add_bias_linear",
    "--no-pin-cpu-grads": "optimizer.pin_cpu_grads",
    "--no-pin-cpu-params": "optimizer.pin_cpu_params",
    "--no-gradient-accumulation-fusion": "model.gradient_accumulation_fusion",
}

#: Flags that are written where they are off too: Bridge's default is on.
_ON_BY_DEFAULT: Final = frozenset({"--cross-entropy-loss-fusion"})

#: Options that no key says. Groups of queries follow from their number; learned positions are as
#: many as a sequence has tokens (models/gpt_provider.py:297); whether YaRN rounds its range is
#: written either way, for its provider knows no default; the block of the precision, and its
#: gradients, are written as a whole; and Bridge hands no schedule of batches on
#: (training/initialize.py:115). Muon is planned with Megatron-LM alone.
UNSAID: Final = frozenset(
    {
        "--group-query-attention",
        "--max-position-embeddings",
        "--no-yarn-correction-range-round-to-int",
        "--fp16",
        "--bf16",
        "--fp8-format",
        "--fp8-recipe",
        "--fp8-param-gather",
        "--reuse-grad-buf-for-mxfp8-param-ag",
        "--grad-reduce-in-bf16",
        "--rampup-batch-size",
        "--step-batch-size-schedule",
        "--muon-momentum",
        "--muon-nesterov",
        "--muon-use-nesterov",
        "--muon-extra-scale-factor",
    }
)

#: Numbers of the backends of attention, which a text doesn't choose: it is compared with an enum's
#: value, and never equal. **Source**: megatron/core/transformer/enums.py, AttnBackend, and
#: models/common/language_module/language_module.py:108-147 @ core_v0.19.0.
BACKENDS: Final = {"flash": 1, "fused": 2, "unfused": 3, "local": 4, "auto": 5}
_ENUM: Final = "megatron.core.transformer.enums.AttnBackend"
_DTYPES: Final = {
    "fp32": "torch.float32",
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "fp8": "torch.uint8",
}
_GATED: Final = "model.gated_linear_unit"
_ACTIVATION: Final = "model.activation_func"


def enum_of_attention(backend: str) -> dict[str, Any]:
    """What makes the enum's value of a backend of attention."""
    return {"_target_": _ENUM, "_args_": [BACKENDS[backend]], "_call_": True}


def _weight_decay(value: Any) -> ValuesByKey:
    """The decay, which the scheduler sets anew in each step by its own two keys.

    **Source**: megatron/core/optimizer_param_scheduler.py:184-202 @ core_v0.19.0.
    """
    keys = ("optimizer.weight_decay", "scheduler.start_weight_decay", "scheduler.end_weight_decay")
    return dict.fromkeys(keys, value)


#: Options whose value has another form, or that several keys say.
_FORMS: Final[Mapping[str, Callable[[Any], ValuesByKey]]] = {
    "--data-path": lambda words: {"dataset.data_path": list(words) if words[1:] else words[0]},
    "--swiglu": lambda _: {_GATED: True, _ACTIVATION: "silu"},
    "--quick-geglu": lambda _: {_GATED: True, _ACTIVATION: "quick_gelu"},
    "--squared-relu": lambda _: {_ACTIVATION: "squared_relu"},
    "--window-size": lambda text: {
        "model.window_size": [whole(word) for word in text.strip("()").split(",")]
    },
    "--window-attn-skip-freq": lambda text: {"model.window_attn_skip_freq": layers_of(text)},
    "--no-rope-freq": lambda text: {"model.no_rope_freq": layers_of(text)},
    "--attention-backend": lambda name: {"model.attention_backend": enum_of_attention(name)},
    "--weight-decay": _weight_decay,
    "--te-rng-tracker": lambda _: {"model.use_te_rng_tracker": True, "rng.te_rng_tracker": True},
    "--no-check-for-nan-in-loss-and-grad": lambda _: {
        "ddp.check_for_nan_in_grad": False,
        "rerun_state_machine.check_for_nan_in_loss": False,
    },
    "--main-grads-dtype": lambda name: {"optimizer.main_grads_dtype": _DTYPES[name]},
    "--main-params-dtype": lambda name: {"optimizer.main_params_dtype": _DTYPES[name]},
    "--exp-avg-dtype": lambda name: {"optimizer.exp_avg_dtype": _DTYPES[name]},
    "--exp-avg-sq-dtype": lambda name: {"optimizer.exp_avg_sq_dtype": _DTYPES[name]},
}

#: A run of equal marks in a pattern of layers: `[0]*3`.
_RUN: Final = lazy_pattern(r"\[([01])\]\*([0-9]{1,6})")
#: How often a pattern is repeated: `([1]*5+[0]*1)*8`.
_TIMES: Final = lazy_pattern(r"\)\*([0-9]{1,6})$")


def layers_of(pattern: str) -> list[int]:
    """The marks of `([0]*3+[1]*58)`, one a layer: Bridge reads a list, and no expression."""
    marks = [whole(mark) for mark, count in _RUN.findall(pattern) for _ in range(whole(count))]
    times = _TIMES.search(pattern)
    return marks * (whole(times[1]) if times else 1)


def key_of(option: str) -> str:
    """The key that an option's value is found at; of several the first."""
    key = KEYS.get(option) or INVERTED.get(option)
    return key or f"model.{option[2:].replace('-', '_')}"


def values_saying(option: str, value: Any) -> ValuesByKey:
    """The keys that say an option with a value, as the table of options has it.

    An option that is left out, as None and False leave it, is said by no key.
    """
    is_off = value is None or (value is False and option not in _ON_BY_DEFAULT)
    if is_off or option in UNSAID:
        return {}
    if option in INVERTED:
        return {INVERTED[option]: False}
    if option in _FORMS:
        return _FORMS[option](value)
    return {key_of(option): list(value) if isinstance(value, tuple) else value}


# Words of Hydra's overrides. **Source**: facebookresearch/hydra hydra/grammar/OverrideLexer.g4,
# OverrideParser.g4 @ 1.3.2.
_PLAIN: Final = lazy_pattern(r"[A-Za-z_./][A-Za-z0-9_./-]*", re.ASCII)
#: Words that Hydra reads as nothing, a truth value or a number.
_NOT_TEXT: Final = frozenset({"null", "true", "false", "inf", "nan"})
#: Quotes with the backslashes before them, which then have to be doubled; and so at the end.
_QUOTED: Final = lazy_pattern(r"(?<!\\)(\\*)('|\Z)")
#: What OmegaConf would fill in; not what a target does itself, as `${{inputs.data}}`.
_FILLED: Final = lazy_pattern(r"(?<!\\)(\\*)\$\{(?!\{)")


def override(key: str, value: Any) -> str:
    """An override of a key, as Hydra reads it from a word: `model.window_size=[127,0]`."""
    return f"{key}={_written(value)}"


def _written(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _is_plain(text: str) -> bool:
    """Return whether Hydra reads a text without quotes as that text."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NOT_TEXT


def _quoted(text: str) -> str:
    """A text in single quotes, with backslashes where Hydra or OmegaConf would read a sign."""
    text = _FILLED.sub(r"\1\1\\${", text)
    text = _QUOTED.sub(lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{text}'"


#: Names of one value, the length of the sequences, in the config of a dataset; where both are
#: given, the first is taken. Source: the configs that scripts/training/run_recipe.py --dry-run
#: writes: seq_length @ v0.6.0, sequence_length @ v0.5.0.
LENGTHS: Final = ("dataset.seq_length", "dataset.sequence_length")
