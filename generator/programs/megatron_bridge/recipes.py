"""Recipes of Megatron-Bridge that fine-tune a model, and what they are told beside the plan.

**Source**: `recipes.json`, by scripts/bridge_recipes.py; NVIDIA-NeMo/Megatron-Bridge v0.6.0
(51885cf13), src/megatron/bridge/recipes/common.py:136-345 (what recipes have in common),
recipes/utils/dataset_utils.py (kinds of data), peft/lora.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final

from ...catalog import find_model
from ...catalog.model import Model
from ...dataclass import dataclass
from ...job.records import Job, Lora
from ...resources import read_text

RECIPE: Final = "vanilla_gpt_pretrain_config"  #: without a model of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe that fine-tunes one model."""

    stem: str  #: as `--model` takes it
    model: str  #: of the catalog
    hub: str  #: the repository on the Hub that it reads the model's config from
    revision: str | None  #: the commit of it; None: the newest
    modes: tuple[str, ...]  #: of sft and lora, those that it is there for
    lora: Lora  #: its adapters, which no override changes


@lru_cache(maxsize=1)
def recipes() -> Mapping[str, Recipe]:
    """All recipes, by the model of the catalog that each is for."""
    from ...estimate.adapters import named_modules  # saves start-up time: it needs numpy

    table = json.loads(read_text(__package__, "recipes.json"))
    entries: Mapping[str, Mapping[str, Any]] = table["recipes"]
    return {
        entry["model"]: Recipe(
            stem=stem,
            model=entry["model"],
            hub=entry["hub"],
            revision=entry["revision"],
            modes=tuple(entry["modes"]),
            lora=Lora(
                rank=entry["lora"]["rank"],
                alpha=entry["lora"]["alpha"],
                modules=named_modules(entry["lora"]["modules"]),
                base="unquantized",
            ),
        )
        for stem, entry in entries.items()
    }


def recipe_of(model: Model) -> Recipe | None:
    """The recipe of a model: by its name, or of a config by its shape."""
    entry = find_model(model.name)
    if entry is not None:
        return recipes().get(entry.name)

    for name, recipe in recipes().items():
        # What a source says of itself is no part of the shape.
        with_same_source = replace(
            _known_model(name),
            name=model.name,
            source=model.source,
            notes=model.notes,
            max_positions=model.max_positions,
        )
        if with_same_source == model:
            return recipe
    return None


@cache
def _known_model(name: str) -> Model:
    """A model of the catalog."""
    from ...job.hf_config import model_from_config  # saves start-up time: few models are files

    entry = find_model(name)
    if entry is None:
        raise LookupError(name)
    return model_from_config(entry.config, name=name, source="catalog")


def model_of(stem: str) -> Model | None:
    """The model of a recipe, by its name as `--model` takes it."""
    names = (recipe.model for recipe in recipes().values() if recipe.stem == stem)
    return next(map(_known_model, names), None)


def lora_of(model: Model) -> Lora | None:
    """The adapters that a model's recipe trains."""
    recipe = recipe_of(model)
    return None if recipe is None else recipe.lora


#: Groups of options whose keys are the layers': a recipe of a model has them from its config.
_LAYERS: Final = frozenset({"model", "latent attention", "gated delta rule", "state-space layers"})
#: Of these, what the plan decides: kernels, and depths that predict further tokens.
_PLANNED: Final = frozenset(
    {
        "model.bias_activation_fusion",
        "model.bias_dropout_fusion",
        "model.persist_layer_norm",
        "model.apply_rope_fusion",
        "model.mtp_num_layers",
    }
)
#: Keys of experts that are the model's.
_OF_EXPERTS: Final = (
    "model.num_moe_experts",
    "model.moe_ffn_hidden_size",
    "model.moe_router_",
    "model.moe_aux_loss",
    "model.moe_layer_freq",
    "model.moe_shared_expert_",
    "model.moe_latent",
    "model.moe_apply_probs",
)


def left_to_recipe(group: str, key: str) -> bool:
    """Return whether the recipe of a model has a key already, from the model's config or its kind
    of data.
    """
    if group in _LAYERS:
        return key not in _PLANNED
    if group == "experts":
        return key.startswith(_OF_EXPERTS)
    return group == "data"


#: What the plan leaves out where it is off, and recipes of models have on.
SET_BACK: Final[Mapping[str, Mapping[str, Any]]] = {
    "experts": {"model.moe_flex_dispatcher_backend": None},
    "parallel": {
        "model.pipeline_model_parallel_layout": None,
        "model.virtual_pipeline_model_parallel_size": None,
        "model.num_layers_in_first_pipeline_stage": None,
        "model.num_layers_in_last_pipeline_stage": None,
        "model.account_for_embedding_in_pipeline_split": False,
        "model.account_for_loss_in_pipeline_split": False,
        "model.context_parallel_size": 1,
        "model.sequence_parallel": False,
        "comm_overlap": None,
    },
    "sharding": {"ddp.overlap_grad_reduce": False, "ddp.overlap_param_gather": False},
    "compute": {"model.cross_entropy_fusion_impl": "native"},
    "memory": {
        "model.recompute_granularity": None,
        "model.recompute_modules": None,
        "model.recompute_method": None,
        "model.recompute_num_layers": None,
        "optimizer.optimizer_cpu_offload": False,
    },
    "states": {
        "optimizer.use_precision_aware_optimizer": False,
        "optimizer.main_grads_dtype": "torch.float32",
        "optimizer.main_params_dtype": "torch.float32",
        "optimizer.exp_avg_dtype": "torch.float32",
        "optimizer.exp_avg_sq_dtype": "torch.float32",
    },
    "length": {"scheduler.lr_decay_iters": None},
}


def fine_tuning(job: Job) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What fine-tuning has beside the plan of its model: weights and data, each with its reason."""
    if not job.packs_sequences:
        return

    tokenizer = job.data.tokenizer
    yield (
        "weights as the Hub has them, and their tokenizer",
        {
            "checkpoint.pretrained_checkpoint": job.training.weights,
            "tokenizer.tokenizer_type": tokenizer.type or "HuggingFaceTokenizer",
            "tokenizer.tokenizer_model": tokenizer.path or job.training.weights,
        },
    )
    if job.data.path:
        yield (
            "samples, packed into sequences of full length",
            {
                "dataset.dataset_root": job.data.path[0],
                "dataset.do_test": False,
                "dataset.enable_offline_packing": True,
                "dataset.dataset_kwargs": {"pad_to_max_length": True},
            },
        )
