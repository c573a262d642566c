"""Writes the program of Megatron-Bridge: a recipe, and every value of the plan as an override.

The groups of options and their comments are Megatron-LM's; `keys.py` translates each option to the
keys of Bridge's config. What a recipe turns on and the plan has not is set back. A model that is
trained from scratch takes the recipe without a model. Weights that are fine-tuned take the recipe
of their own model, which has its layers already (`recipes.py`).

**Source**: NVIDIA-NeMo/Megatron-Bridge v0.6.0 (51885cf13), scripts/training/run_recipe.py,
src/megatron/bridge/recipes/gpt/h100/vanilla_gpt.py, training/config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...estimate.adapters import fused_modules
from ...job.arguments import overrides_of
from ...job.records import Adapters, Job, Need
from ...search.plan import Plan
from ...text.wording import dots
from ..megatron import write as megatron_lm
from ..megatron.encode import Planned, fp8_format
from ..megatron.engine import UNPINNED
from ..megatron.options import LM
from ..megatron.table import DECIDED, EVALUATION, LENGTHS, NULL_TOKENIZER, OF_FILES
from ..megatron.write import COMMENTS, Comment, common_notes, planned, written_options
from ..program import ArgumentGroup, Program, make_program
from .keys import INVERTED, key_of, override, values_saying
from .recipes import RECIPE, SET_BACK, fine_tuning, left_to_recipe, lora_of, recipe_of

#: In the checkout of Megatron-Bridge, or in NVIDIA's image of it.
SCRIPT: Final = "scripts/training/run_recipe.py"
_PRECISION: Final = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
_SPLIT: Final = "969,30,1"  # Megatron-LM's default; the recipe has another


def _needs() -> Iterator[Need]:
    """What Megatron-LM's submissions need, by the keys that give it."""
    for need in megatron_lm.NEEDS:
        options = tuple(key_of(option) for option in need.options)
        hint = need.hint and "add checkpoint.load=FOLDER, or set output.checkpoints"
        yield replace(need, options=options, hint=hint)


def precision(p: Planned) -> Any:
    """The block of the precision, which decides the gradients' type as well: what `ddp` says of
    that, it writes over.

    A recipe named after fp8 has more in fp8 than the plan does: the gathered parameters.

    **Source**: src/megatron/bridge/training/mixed_precision.py:110-160, :270-420 @ v0.6.0.
    """
    training = p.training
    if training.precision == "fp32":
        return None
    has_named_block = training.precision != "fp8" and not p.narrow_gradients
    if has_named_block:
        return f"{training.precision}_mixed"
    dtype = {"_target_": "torch.bfloat16", "_call_": False}
    block: dict[str, Any] = {
        "_target_": _PRECISION,
        "bf16": True,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "grad_reduce_in_fp32": not p.narrow_gradients,
    }
    if training.precision == "fp8":
        gathers = bool(training.fp8_parameters)
        block |= {
            "fp8": fp8_format(p),
            "fp8_recipe": training.fp8_recipe,
            "fp8_param_gather": gathers,
        }
        if training.fp8_attention:
            block["fp8_dot_product_attention"] = True
        if gathers and training.fp8_recipe == "mxfp8":
            block["reuse_grad_buf_for_mxfp8_param_ag"] = True
    return block


def _fuses_bias(p: Planned) -> bool:
    """Whether activation and bias are one kernel, as Megatron-LM's arguments have it by default.

    **Source**: megatron/core/transformer/transformer_config.py, bias_activation_fusion, and
    megatron/training/arguments.py, bias_gelu_fusion, bias_swiglu_fusion @ core_v0.19.0.
    """
    return p.mlp.gated or (p.mlp.activation != "relu2" and p.linear_bias)


def _model_keys(p: Planned) -> dict[str, Any]:
    """Kernels, as Megatron-LM's arguments choose them by default, and YaRN's rounding."""
    keys = {
        "model.bias_activation_fusion": _fuses_bias(p),
        "model.bias_dropout_fusion": True,
        "model.persist_layer_norm": True,
        "model.apply_rope_fusion": p.rotary,
    }
    if p.yarn:
        keys["model.yarn_correction_range_round_to_int"] = p.yarn.rounds
    return keys


def _data_keys(p: Planned) -> dict[str, Any]:
    """The split; and a vocabulary of the planned size where the job names no tokenizer, as the
    recipe has another.
    """
    keys: dict[str, Any] = {"dataset.split": p.job.data.split or _SPLIT}
    if p.tokenizer is None:
        keys["tokenizer.tokenizer_type"] = NULL_TOKENIZER
        keys["tokenizer.vocab_size"] = p.model.vocab - 1
    return keys


def _file_keys(p: Planned) -> dict[str, Any]:
    """Folders, since the recipe's are under the checkout."""
    output = p.job.output
    keys: dict[str, Any] = {
        "checkpoint.save": output.checkpoints,
        "checkpoint.load": output.checkpoints if output.resume else None,
        "logger.tensorboard_dir": output.logs,
    }
    if not p.saves:
        keys["checkpoint.save_interval"] = None
    return keys


#: What Megatron-LM's arguments have by default, and the recipe hasn't, by the group of options.
_BESIDE: Final[Mapping[str, Callable[[Planned], Mapping[str, Any]]]] = {
    "model": _model_keys,
    # the recipe's optimizer is the distributed one, and one of the two turns on the other
    "sharding": lambda p: {
        "ddp.use_distributed_optimizer": p.layout.zero_stage > 0,
        "optimizer.use_distributed_optimizer": p.layout.zero_stage > 0,
    },
    "compute": lambda p: {"mixed_precision": precision(p)},
    "memory": lambda p: (
        {"optimizer.optimizer_offload_fraction": p.layout.offload_fraction} if p.offloads else {}
    ),
    "batch": lambda p: {"train.global_batch_size": p.layout.global_batch},
    "length": lambda _: {
        "validation.eval_iters": EVALUATION[1],
        # with a fraction of the steps, the recipe's own number of them is refused
        "scheduler.lr_warmup_iters": 0,
    },
    "data": _data_keys,
    "files": _file_keys,
}


def _comment_on_data(p: Planned) -> str:
    comment = COMMENTS["data"](p)
    return comment if p.job.data.path else f"{comment}; without data.path the data is made up"


_COMMENTS: Final[Mapping[str, Comment]] = {
    **COMMENTS,
    "compute": lambda _: "precision, which decides the gradients' type too, and kernels",
    "optimizer": lambda _: (
        "optimizer; adam means AdamW, and the schedule sets the weight decay in each step"
    ),
    "data": _comment_on_data,
}


def overrides(p: Planned) -> Iterator[ArgumentGroup]:
    """The overrides of a plan, in groups with a reason each; those that the job gives are left to
    it.
    """
    of_spec = overrides_of(p.job.launch.arguments)
    left_out = set(of_spec)
    lengths = {key_of(option) for option in LENGTHS}
    if lengths & of_spec.keys():
        left_out |= lengths  # a run has one length
    is_tuned = p.job.packs_sequences

    for name, options in written_options(p, LM):
        values: dict[str, Any] = dict(SET_BACK.get(name, {}) if is_tuned else {})
        for option, value in options.items():
            values |= values_saying(option, value)
        beside = _BESIDE[name](p) if name in _BESIDE else {}
        for key, value in beside.items():
            if value is not None or key not in values:
                values[key] = value
        if is_tuned:
            kept = (key for key in values if not left_to_recipe(name, key))
            values = {key: values[key] for key in kept}
        yield _listed(_COMMENTS[name](p), values, left_out, clears=is_tuned)
    for comment, values_of_tuning in fine_tuning(p.job):
        yield _listed(comment, values_of_tuning, left_out)


def _listed(
    comment: str, values: Mapping[str, Any], left_out: Collection[str], *, clears: bool = False
) -> ArgumentGroup:
    """A group of overrides, without those that are left out.

    `clears`: a section of the config that is set as a whole is null first: Hydra would merge it
    into the recipe's own, and refuses keys that this lacks.
    """
    words = list[str]()
    for key, value in values.items():
        if key in left_out:
            continue
        if clears and isinstance(value, Mapping) and "." not in key:
            words.append(override(key, None))
        words.append(override(key, value))
    return ArgumentGroup(comment=comment, arguments=tuple(words), listed=True)


def program(plan: Plan) -> Program:
    """Bridge's script, the recipe that it starts from, and the overrides."""
    job, p = plan.job, planned(plan)
    started = megatron_lm.program(plan)
    return make_program(
        job,
        (_chosen(job), *overrides(p)),
        environment=started.environment,
        notes=(
            "run_recipe.py changes to the folder of its checkout first: paths are absolute.",
            *_notes_on_recipe(job),
            *common_notes(job, "Megatron-Bridge", in_image=False),
        ),
    )


def _chosen(job: Job) -> ArgumentGroup:
    """The recipe, the mode and the kind of data."""
    recipe = recipe_of(job.model) if job.packs_sequences else None
    if recipe is None:
        return ArgumentGroup(
            comment="the recipe without a model of its own, which reads nothing from the Hub",
            arguments=("--recipe", RECIPE, "--mode", "pretrain"),
        )
    comment, lora = f"the recipe of {job.model.name}, which has its layers", job.training.lora
    if lora is not None:
        layers = ", ".join(fused_modules(lora.modules))
        comment += f", and adapters of rank {lora.rank} and alpha {lora.alpha} on {layers}"
    data = ("--dataset", "local-jsonl") if job.data.path else ()
    return ArgumentGroup(
        comment=comment,
        arguments=("--model", recipe.stem, "--mode", job.training.mode, *data),
    )


def _config_repository(job: Job) -> str | None:
    """The repository of the Hub from which a model's recipe reads its config."""
    recipe = recipe_of(job.model) if job.packs_sequences else None
    return recipe.hub if recipe is not None else None


def _notes_on_recipe(job: Job) -> Iterator[str]:
    """What a recipe of a model reads, and what samples have to be."""
    recipe = recipe_of(job.model) if job.packs_sequences else None
    if recipe is None:
        return
    commit = f" --revision {recipe.revision}" if recipe.revision else ""
    yield (
        f"The recipe reads config.json of {recipe.hub} from the Hub on every rank, or with "
        f"HF_HUB_OFFLINE=1 from the cache in HF_HOME: hf download {recipe.hub} config.json"
        f"{commit}. The weights are those of training.weights."
    )
    if not job.data.path:
        yield "Without data.path, the recipe trains on SQuAD, which rank 0 reads from the Hub."
        return
    yield (
        "data.path is a folder with training.jsonl and validation.jsonl, of lines with input "
        "and output; samples are packed into sequences of full length on the first start."
    )


def _versions(job: Job) -> dict[str, str]:
    """Bridge, and what its release and Megatron-LM's need."""
    needs = dict(megatron_lm.FRAMEWORK.packages(job))
    core = needs.pop("Megatron-LM")
    del needs["image"]  # NVIDIA's images of Megatron-Bridge have releases before 0.6
    return {
        "Megatron-Bridge": dots(job.megatron_bridge_version),
        "Megatron-Core": core,
        **needs,
        "Python": ">=3.12,<3.13",
    }


FRAMEWORK: Final = replace(
    megatron_lm.FRAMEWORK,
    name="megatron-bridge",
    only={"kernels": "fused"},
    computes_nvfp4=False,  # nor the block of its precision
    engine=replace(
        megatron_lm.FRAMEWORK.engine,
        has_muon=False,  # its overrides weren't looked at
        unpins=tuple(f"{INVERTED[option]}=false" for option in UNPINNED),
    ),
    script=SCRIPT,
    exit_option="train.exit_signal_handler",
    starts_anew="checkpoint.finetune",
    first_weights=None,
    adapters=Adapters(of_fused=True, of_experts="shared", of_recipe=lora_of),
    recipes=True,
    changes_folder=True,
    options={
        **{key: tuple(map(key_of, options)) for key, options in OF_FILES.items()},
        "training.weights": ("checkpoint.pretrained_checkpoint",),
    },
    decides={key_of(option): key for option, key in DECIDED.items()},
    needs=tuple(_needs()),
    packages=_versions,
    reads_config=_config_repository,
    # Source: NVIDIA-NeMo/Megatron-Bridge 3rdparty/Megatron-LM @ v0.6.0
    brings={(0, 6, 0): (0, 19, 0)},
    retain_option="checkpoint.most_recent_k",
    program=program,
)
