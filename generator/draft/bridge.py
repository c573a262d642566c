"""A run of Megatron-Bridge as keys of the spec: its recipe, its layout, and what is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..findings import Location
from ..job.arguments import overrides_of
from ..job.releases import NEWEST
from ..numerals import python_float, python_int
from ..programs.frameworks import FRAMEWORKS, program_for
from ..programs.megatron.table import SHARDINGS
from ..programs.megatron_bridge.keys import BACKENDS, LENGTHS
from ..programs.megatron_bridge.overrides import (
    BRIDGE,
    BridgeOverrides,
    Override,
    is_started,
    overrides_in,
)
from ..programs.megatron_bridge.recipes import RECIPE, Recipe, recipes
from ..search import Plan
from ..submission.launches import Launch
from ..text.wording import dots
from .draft import Draft, same_value
from .find import ExistingRun
from .megatron import GRAPHS
from .scripts import set_script

#: Keys of the spec that have an override's value as it is.
_KEYS: Final[Mapping[str, str]] = {
    "model.tensor_model_parallel_size": "layout.tensor",
    "model.pipeline_model_parallel_size": "layout.pipeline",
    "model.virtual_pipeline_model_parallel_size": "layout.virtual_pipeline",
    "model.num_layers_in_first_pipeline_stage": "layout.first_stage_layers",
    "model.num_layers_in_last_pipeline_stage": "layout.last_stage_layers",
    "model.context_parallel_size": "layout.context",
    "model.expert_model_parallel_size": "layout.expert",
    "model.sequence_parallel": "layout.sequence_parallel",
    "train.micro_batch_size": "layout.micro_batch",
    "train.global_batch_size": "training.global_batch",
    "train.train_iters": "training.duration.steps",
    **dict.fromkeys(reversed(LENGTHS), "training.sequence_length"),  # the first name counts
    "dataset.data_path": "data.path",
    "dataset.dataset_root": "data.path",
    "dataset.split": "data.split",
    "tokenizer.tokenizer_type": "data.tokenizer.type",
    "tokenizer.tokenizer_model": "data.tokenizer.path",
    "optimizer.lr": "training.learning_rate",
    "optimizer.clip_grad": "training.gradient_clipping",
    "checkpoint.pretrained_checkpoint": "training.weights",
    "checkpoint.save": "output.checkpoints",
    "checkpoint.save_interval": "output.save_interval",
    "logger.tensorboard_dir": "output.logs",
}
#: Overrides of a model's sizes, by Hugging Face's keys, for a recipe that has no model of its own.
_OF_MODEL: Final[Mapping[str, str]] = {
    "model.num_layers": "num_hidden_layers",
    "model.hidden_size": "hidden_size",
    "model.num_attention_heads": "num_attention_heads",
    "model.num_query_groups": "num_key_value_heads",
    "model.kv_channels": "head_dim",
    "model.ffn_hidden_size": "intermediate_size",
    "model.num_moe_experts": "num_experts",
    "model.moe_ffn_hidden_size": "moe_intermediate_size",
    "model.moe_router_topk": "num_experts_per_tok",
    "model.rotary_base": "rope_theta",
    "model.layernorm_epsilon": "rms_norm_eps",
}
#: Switches of the model, with what the recipe without a model has: models/gpt_provider.py @ v0.6.0.
_SWITCHES: Final[Mapping[str, tuple[str, bool]]] = {
    "model.gated_linear_unit": ("gated_mlp", False),
    "model.share_embeddings_and_output_weights": ("tie_word_embeddings", True),
}
_POSITIONS: Final = {"rope": "rotary", "yarn": "rotary", "none": "none"}
_DROPOUT: Final = 0.1  # of that recipe
#: What that recipe has where nothing is said: recipes/gpt/h100/vanilla_gpt.py @ v0.6.0.
_PLAIN: Final[Mapping[str, Any]] = {
    "layout.tensor": 1,
    "layout.pipeline": 1,
    "layout.context": 1,
    "layout.recompute": "none",
    "layout.zero_stage": 1,
}
#: How overrides begin that change what is trained: the user is told of those that dsgen adds.
_TOLD: Final = ("optimizer.", "scheduler.", "train.", "mixed_precision")


def bridge_run(run: ExistingRun) -> BridgeOverrides | None:
    """The overrides of a run of Megatron-Bridge; None of another program's."""
    launch = run.launch
    if launch is None or not is_started(launch):
        return None
    return next((each for each in overrides_in(run.submission) if each.launch is launch), None)


def read_bridge(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set the keys that the overrides say; other overrides are carried over as they are."""
    draft.overrides = overrides
    draft.set("framework", BRIDGE)
    set_script(draft)
    _read_release(draft, overrides)
    _read_recipe(draft, overrides)
    for key, path in _KEYS.items():
        override = overrides.get(key)
        if override is not None and _is_known(draft, override):
            draft.set(path, value_of(override.text))

    if draft.get("output.checkpoints") is None and draft.get("output"):
        draft.drop("output.save_interval")  # nothing would be saved
    load = overrides.get("checkpoint.load")
    if draft.get("output.checkpoints") is not None and (load is None or load.is_null):
        draft.set("output.resume", False)
    _read_training(draft, overrides)
    _read_sharding(draft, overrides)
    if overrides.is_plain:
        for path, value in _PLAIN.items():
            draft.set(path, value if draft.get(path) is None else None)


def _read_release(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set the release that the files name, where it has a writer."""
    release, oldest = overrides.release, min(FRAMEWORKS[BRIDGE].brings)
    # An image names a month, which isn't exact.
    is_numbered = release.where and release.exact and not release.named
    if is_numbered and release.version != NEWEST[BRIDGE]:
        if release.version >= oldest:
            draft.set("megatron_bridge_version", dots(release.version))
        elif overrides.launch is not None:
            where = _place(overrides.launch)
            why = f"older than {dots(oldest)}, the oldest that has a writer; written for the newest"
            draft.leave(str(release), where, why)


def _place(launch: Launch) -> Location:
    """The place of a launch's first argument, else of its program, else of its first call."""
    word = launch.arguments[0] if launch.arguments else launch.program
    return launch.calls[0].where if word is None else launch.script.locate(word)


def _recipe_in(overrides: BridgeOverrides) -> Recipe | None:
    """The recipe of a model that the launch line names by its stem, or by its whole name."""
    name = overrides.stem or overrides.recipe
    matching = (recipe for recipe in recipes().values() if f"{name}_".startswith(f"{recipe.stem}_"))
    return max(matching, key=lambda recipe: len(recipe.stem), default=None)


def _read_recipe(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set the model, and what is done with it."""
    recipe = _recipe_in(overrides)
    if recipe is not None:
        draft.set("model", recipe.model)
        tunes = any(f"_{task}_" in f"{overrides.recipe}_" for task in ("sft", "peft"))
        mode = overrides.mode or ("sft" if tunes else "")
        draft.set("training.mode", mode if mode in recipe.modes else None)
    elif overrides.recipe == RECIPE:
        _read_model(draft, overrides)
    elif overrides.launch is not None:
        where = _place(overrides.launch)
        named = overrides.stem or overrides.recipe or "the recipe"
        draft.leave(named, where, "dsgen doesn't know which model this recipe has")


def _read_model(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set the model by Hugging Face's keys, where its layers, width and heads are written."""
    values = {key: override for key, override in overrides.last.items() if not override.is_null}
    needed = ("model.num_layers", "model.hidden_size", "model.num_attention_heads")
    if any(key not in values for key in needed):
        return

    model: dict[str, Any] = {
        path: value_of(values[key].text) for key, path in _OF_MODEL.items() if key in values
    }
    for key, (path, default) in _SWITCHES.items():
        model[path] = value_of(values[key].text) if key in values else default
    for name in ("hidden_dropout", "attention_dropout"):
        value = values.get(f"model.{name}")
        model[name] = _DROPOUT if value is None else value.number
    position = values.get("model.position_embedding_type")
    model["position_embedding"] = _POSITIONS.get(position.text if position else "", "learned")
    length = overrides.first(LENGTHS)
    model["max_position_embeddings"] = (length.integer if length is not None else None) or 2048
    bias = values.get("model.add_bias_linear")
    model["mlp_bias"] = model["attention_bias"] = bias is None or bias.text.lower() == "true"
    tokens = overrides.integer("tokenizer.vocab_size")
    model["vocab_size"] = 50257 if tokens is None else tokens + 1
    if tokens is None:
        draft.comments["model.vocab_size"] = (
            "assumed: the files don't say how many tokens the tokenizer has"
        )
    draft.set("model", model)


def _read_training(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set precision, kernels, optimizer and recomputation."""
    precision = overrides.get("mixed_precision")
    text = "" if precision is None else precision.text
    name = text.strip("'\"").partition("_")[0]
    if "fp8:" in text:
        draft.set("training.precision", "fp8")
    elif text == "null":
        draft.set("training.precision", "fp32")
    else:
        draft.set("training.precision", name if name in ("bf16", "fp16") else "bf16")
    draft.set("training.fp8_attention", "fp8_dot_product_attention:true" in text or None)
    if "fp8_recipe:mxfp8" in text:
        draft.set("training.fp8_recipe", "mxfp8")
    backend = overrides.get("model.moe_flex_dispatcher_backend")
    if backend is not None and backend.text == "hybridep":  # which is never a default
        draft.set("training.dispatcher", "hybridep")
    graphs = overrides.get("model.cuda_graph_impl")
    draft.set("training.cuda_graphs", None if graphs is None else GRAPHS.get(graphs.text))
    if "grad_reduce_in_fp32:false" in text:
        draft.set("training.gradient_dtype", "same")

    backend = overrides.get("model.attention_backend")
    if backend is not None and f"[{BACKENDS['unfused']}]" in backend.text:
        draft.set("training.attention", "unfused")
    fused = overrides.get("model.cross_entropy_loss_fusion")
    if fused is not None and fused.text.lower() == "false":
        draft.set("training.cross_entropy", "unfused")
    optimizer = overrides.get("optimizer.optimizer")
    draft.set("training.optimizer", "sgd" if optimizer and optimizer.text == "sgd" else None)
    decay = overrides.get("scheduler.end_weight_decay")
    draft.set("training.weight_decay", decay.number if decay is not None else None)

    recompute = overrides.get("model.recompute_granularity")
    if recompute is not None:
        draft.set("layout.recompute", "none" if recompute.is_null else recompute.text)


def _read_sharding(draft: Draft, overrides: BridgeOverrides) -> None:
    """Set the stage of ZeRO, as Megatron's optimizer or its FSDP has it, and what is offloaded."""
    distributed = overrides.get("ddp.use_distributed_optimizer")
    fsdp = overrides.get("ddp.use_megatron_fsdp")
    strategy = overrides.get("ddp.data_parallel_sharding_strategy")
    if fsdp is not None and fsdp.text.lower() == "true":
        stages = {name: stage for stage, name in SHARDINGS.items()}
        draft.set("layout.zero_stage", stages.get(strategy.text) if strategy is not None else None)
    elif distributed is not None:
        draft.set("layout.zero_stage", int(distributed.text.lower() == "true"))
    offload = overrides.get("optimizer.optimizer_cpu_offload")
    if offload is not None:
        draft.set("layout.offload", "optimizer" if offload.text.lower() == "true" else "none")


def _is_known(draft: Draft, override: Override) -> bool:
    """Tell whether an override has a value that a spec can have; name one that isn't known."""
    if not override.text:
        draft.leave(override.key, override.where, "its value is not in the files")
    return bool(override.text) and not override.is_null and override.sign != "~"


def value_of(text: str) -> Any:
    """The value of an override's text, as Hydra reads it: a number, truth, text or list of them."""
    if text.startswith("[") and text.endswith("]"):
        return [value_of(each) for each in text[1:-1].split(",") if each]
    if text[:1] in "'\"" and text[-1:] == text[:1] and text[1:]:
        return text[1:-1].replace("\\'", "'").replace("\\\\", "\\")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = python_int(text)
    return number if number is not None else python_float(text) or text


def carry_overrides(draft: Draft, overrides: BridgeOverrides, plan: Plan) -> Iterator[str]:
    """Put the user's overrides that the plan's files lack into `launch.arguments`.

    Yields those of the plan's files on what is trained that the user's lack.
    """
    all_arguments = program_for(plan).arguments
    own_arguments = all_arguments[: len(all_arguments) - len(plan.job.launch.arguments)]
    of_plan = dict(overrides_of(own_arguments))
    decided = {key for key, path in _KEYS.items() if path.startswith("layout.")}
    carried = list[str]()
    for key, override in overrides.last.items():
        same_keys = LENGTHS if key in LENGTHS else (key,)
        planned_text = next((of_plan[name] for name in same_keys if name in of_plan), None)
        text = override.text
        if not text:
            draft.leave(key, override.where, "its value is not in the files")
        elif planned_text is not None and (text == planned_text or same_value(text, planned_text)):
            continue
        elif key in decided:
            asks_for_nothing = override.is_null or text in ("1", "false")
            if planned_text is not None:
                why = f"the plan decides it: {key}={planned_text}"
                draft.leave(override.shown, override.where, why)
            elif not asks_for_nothing:
                draft.leave(override.shown, override.where, "the plan decides it: left out")
        elif planned_text is not None or not override.is_null:
            carried.append(f"{override.sign}{key}={text}")
    draft.drop("launch.arguments")
    draft.set("launch.arguments", carried)
    for key, text in of_plan.items():
        if key.startswith(_TOLD) and key not in overrides.last:
            yield f"{key}={text}"
