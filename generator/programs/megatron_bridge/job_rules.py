"""Rules on jobs for Megatron-Bridge: what no override tells a recipe, what a recipe ignores, and
which models have one.
"""

from __future__ import annotations

from typing import Any, Final

from ...catalog.layers.latent import Latent
from ...catalog.layers.softmax import SoftmaxAttention
from ...estimate.adapters import each_module
from ...findings import ERROR, Violations
from ...job.needs import bound_values
from ...job.records import Job
from ...numerals import python_float
from ...rules.job.model import use_another
from ...rules.planned import composed_jobs
from ...rules.violations import violation
from .recipes import recipe_of, recipes

_bridge_jobs: Final = composed_jobs.where(lambda job: job.framework.recipes)
_from_scratch: Final = _bridge_jobs.where(lambda job: not job.packs_sequences)
_tuned: Final = _bridge_jobs.where(lambda job: job.packs_sequences)
_SOURCE: Final = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/"


@_from_scratch.rule(
    "BRG001",
    ERROR,
    "silent",
    f"{_SOURCE}models/gpt_provider.py:49-65 (one specification for all layers, without latent "
    "attention and L2 norms), training/utils/omegaconf_utils.py:64, :100 (what is callable is put "
    "back after overrides) @ v0.6.0",
)
def layers_are_alike(job: Job) -> Violations:
    """A model that Megatron-Bridge trains from scratch has layers of one kind, with ordinary
    attention.
    Prevents: No error: the recipe builds every layer alike, with grouped-query attention, and no
    override changes what it builds.
    Fix: use framework: megatron-lm
    """
    model = job.model
    parts = {
        "latent attention": model.part(Latent) is not None,
        "layers without softmax attention": any(
            not isinstance(mixer, SoftmaxAttention) and not mixer.is_sparse
            for mixer in model.mixers
        ),
        "sparse attention": model.is_sparse,
        f"{model.dense_layers} dense layers beside those with experts": (
            model.experts > 0 and model.dense_layers > 0
        ),
        "L2 norms of queries and keys": any(mixer.qk_norm == "l2" for mixer in model.attentions),
    }
    named = " and ".join(name for name, has_it in parts.items() if has_it)
    if named:
        message = f"{model.name} has {named}, which the recipe of Megatron-Bridge doesn't build"
        yield violation(job, "/model", message, use_another(job))


@_bridge_jobs.rule(
    "BRG002",
    ERROR,
    "silent",
    f"{_SOURCE}training/initialize.py:115 @ v0.6.0 (no schedule is handed on); NVIDIA/Megatron-LM "
    "megatron/core/num_microbatches_calculator.py:80 @ core_v0.19.0 (a ramp-up is ignored)",
)
def batch_is_fixed(job: Job) -> Violations:
    """With Megatron-Bridge the global batch is the same from the first step on.
    Prevents: No error: rampup_batch_size is ignored, and step_batch_size_schedule never read.
    Fix: remove training.batch_ramp, or use framework: megatron-lm
    """
    if job.training.batch_ramp is not None:
        message = f"{job.says('framework', job.framework)} ignores a batch that grows"
        hint = f"remove it, or use {job.says('framework', 'megatron-lm')}"
        yield violation(job, "/training/batch_ramp", message, hint)


@_bridge_jobs.rule(
    "BRG003",
    ERROR,
    "silent",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py:459 @ v0.6.0",
)
def paths_are_absolute(job: Job) -> Violations:
    """Paths of data and output are absolute with Megatron-Bridge, which changes its folder first.
    Prevents: No error: checkpoints are saved in the checkout of Megatron-Bridge, and no start finds
    them; data isn't found.
    Fix: write the whole path
    """
    for key, pointer, path in bound_values(job):
        is_local = not path.startswith(("/", "$")) and "://" not in path
        is_named = key == "data.tokenizer.path" and not path.startswith(".")  # a name on the Hub
        if is_local and not is_named and not path.startswith("azureml:") and not _is_weight(path):
            message = f"{key} is {path}, which is looked for in the checkout of Megatron-Bridge"
            whole = f"/shared/{path.removeprefix('./')}"
            yield violation(job, pointer, message, f"write the whole path: {whole}")


def _is_weight(word: str) -> bool:
    """Whether a word of data.path is the weight of the path behind it."""
    return python_float(word) is not None


@_tuned.rule(
    "BRG005",
    ERROR,
    "init",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py:419-431, "
    "src/megatron/bridge/recipes @ v0.6.0",
)
def model_has_a_recipe(job: Job) -> Violations:
    """A model that Megatron-Bridge fine-tunes has a recipe for text, which takes packed sequences.
    Prevents: the program stops at start, on a recipe that it doesn't have; or the recipe of another
    model loads the weights into layers of other shapes.
    Fix: use a model with a recipe, or framework: huggingface
    """
    recipe = recipe_of(job.model)
    if recipe is None or job.training.mode not in recipe.modes:
        message = f"no recipe of Megatron-Bridge that dsgen knows fine-tunes {job.model.name}"
        hint = f"use {', '.join(sorted(recipes()))}, or {job.says('framework', 'huggingface')}"
        yield violation(job, "/model", message, hint)


@_tuned.rule(
    "BRG006",
    ERROR,
    "silent",
    f"{_SOURCE}training/utils/omegaconf_utils.py:188-253, peft/base.py @ v0.6.0",
)
def adapters_are_the_recipes(job: Job) -> Violations:
    """Adapters are those of the model's recipe: the overrides that dsgen writes leave them.
    Prevents: No error: the run has the recipe's adapters.
    Fix: remove the keys of training.lora, or use framework: huggingface
    """
    lora, recipe = job.training.lora, recipe_of(job.model)
    if lora is None or recipe is None:
        return
    for key in ("rank", "alpha", "modules", "base"):
        of_spec, of_recipe = getattr(lora, key), getattr(recipe.lora, key)
        if key == "modules" and set(each_module(of_spec)) == set(each_module(of_recipe)):
            continue
        if of_spec != of_recipe:
            right = _shown(of_recipe)
            message = f"{job.says(key, _shown(of_spec))} is not the recipe's {right}"
            hint = f"use {job.says(key, right)}, or {job.says('framework', 'huggingface')}"
            yield violation(job, f"/training/lora/{key}", message, hint)


def _shown(value: Any) -> Any:
    """A value as a spec has it."""
    if not isinstance(value, tuple):
        return value
    return value[0] if len(value) == 1 else f"[{', '.join(value)}]"


@_tuned.rule("BRG007", ERROR, "init", f"{_SOURCE}data/builders/gpt_sft.py:798, :889 @ v0.6.0")
def samples_are_one_folder(job: Job) -> Violations:
    """Data to fine-tune on is one folder with training.jsonl and validation.jsonl.
    Prevents: FileNotFoundError, or only the first of several is read.
    Fix: put the samples into one folder, and name it in data.path
    """
    path, split = job.data.path, job.data.split
    if len(path) > 1 or (path and path[0].endswith((".jsonl", ".json", ".bin", ".idx"))):
        message = f"data.path is {' '.join(path)}, not one folder"
        yield violation(job, "/data/path", message, "name the folder that holds training.jsonl")
    if split is not None:
        message = f"data.split: {split} has no effect: validation.jsonl is evaluated on"
        yield violation(job, "/data/split", message, "remove it")


@_tuned.rule(
    "BRG024",
    ERROR,
    "init",
    f"{_SOURCE}training/config.py:1170-1186 @ v0.6.0",
)
def packed_sequences_have_no_graphs(job: Job) -> Violations:
    """Sequences that samples are packed into run without CUDA graphs.
    Prevents: ValueError: Offline packing with CUDA graphs requires dataset pad_to_max_length=True.
    Fix: set training.cuda_graphs to none
    """
    graphs = job.training.cuda_graphs
    if graphs != "none":
        message = f"{job.says('cuda_graphs', graphs)} is refused with packed sequences"
        hint = f"use {job.says('cuda_graphs', 'none')}"
        yield violation(job, "/training/cuda_graphs", message, hint)
