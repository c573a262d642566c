"""TrainingArguments and a DeepSpeed config as transformers reads them together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ....catalog import Model
from ....findings import ERROR, NOTE, WARNING, Violations
from ....job.pointer import whole_number
from ....rules.sources import accelerate, transformers
from ....rules.violations import violation
from ...deepspeed.config import FILLERS, Config
from ...links import used_config
from ...rule import subject
from ...submission import Submission
from ..training_arguments import TrainingArguments
from .accelerated import accelerate_launches
from .match import Pair, pairs
from .models import model_of

#: Names of AdamW with states in full precision. Source: transformers/training_args.py (OptimizerNames).
_ADAMW: Final = (
    *("adamw_hf", "adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused"),
    "adamw_apex_fused",
)


@pairs.rule("HF004", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:648-651"))
def evaluation_alone_is_stage_3(pair: Pair) -> Violations:
    """Evaluation without training runs under ZeRO stage 3 only.

    Prevents: ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config
    Fix: use stage 3"""
    arguments, stage = pair.arguments, pair.config.stage
    asked = next((name for name in ("do_eval", "do_predict") if arguments.is_on(name)), None)
    alone = arguments.value("do_train") is False or (_asks(arguments) and not arguments.has("do_train"))
    if asked is not None and alone and stage in (0, 1, 2):
        message = f"{asked} without do_train, and the ZeRO stage is {stage}"
        yield violation(arguments, asked, message, "use stage 3, or evaluate without DeepSpeed")


def _asks(arguments: TrainingArguments) -> bool:
    """Whether the program trains with `--do_train` only, as transformers' own run_clm.py; others train always."""
    program = arguments.launch.program if arguments.launch is not None else None
    name = PurePath(program.value or "").name if program is not None else ""
    return arguments.complete and name.startswith("run_") and name.endswith(".py")


@subject("training arguments", "DeepSpeed config")
def _trainers(submission: Submission) -> Iterator[tuple[TrainingArguments, int | None]]:
    """TrainingArguments, each with the ZeRO stage of the DeepSpeed config that transformers reads with them."""
    stages = {id(pair.arguments): pair.config.stage for pair in pairs(submission)}
    return ((arguments, stages.get(id(arguments))) for arguments in submission.training_arguments)


@_trainers.rule("HF006", ERROR, "init", transformers("src/transformers/trainer.py:889-906"))
def trainer_accepts_the_settings(trainer: tuple[TrainingArguments, int | None]) -> Violations:
    """save_only_model goes without load_best_model_at_end, auto_find_batch_size without ZeRO stage 3.

    Prevents: ValueError: DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`, or:
    `auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3.
    Fix: remove one of the two, or use stage 2 or a fixed batch size"""
    arguments, stage = trainer
    under = "DeepSpeed" if arguments.value("deepspeed") else "FSDP" if arguments.value("fsdp") else None
    if under and arguments.is_on("save_only_model") and arguments.is_on("load_best_model_at_end"):
        message = f"save_only_model with load_best_model_at_end under {under}"
        yield violation(arguments, "save_only_model", message, "remove one of the two")
    if arguments.is_on("auto_find_batch_size") and stage == 3:
        message = "auto_find_batch_size with ZeRO stage 3"
        yield violation(arguments, "auto_find_batch_size", message, "use stage 2, or set a batch size")


@subject("training arguments", "accelerate config", "DeepSpeed config")
def _plugin_configs(submission: Submission) -> Iterator[Config]:
    """The DeepSpeed configs that accelerate's DeepSpeedPlugin reads, for transformers too, each once."""
    configs = [pair.config for pair in pairs(submission)]
    linked, option = used_config(submission), "--deepspeed_config_file"
    if linked is not None and any(
        config.has(f"deepspeed_config/{option[2:]}") for config in submission.accelerate_configs
    ):
        configs.append(linked)
    if submission.context.consumer in FILLERS:
        configs += submission.configs
    named = {PurePath(line.call.options.text(option) or "").name for line in accelerate_launches(submission)}
    configs += [config for config in submission.configs if config.name in named]
    for config in {id(config): config for config in configs}.values():
        if config.json.broken is None and isinstance(config.json.data, dict):
            yield config


@_plugin_configs.rule("HF013", ERROR, "init", accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)"))
def zero_section_is_there(config: Config) -> Violations:
    """A DeepSpeed config that transformers or accelerate reads has a zero_optimization section.

    Prevents: ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.
    Fix: add "zero_optimization": {"stage": 0}"""
    if not config.has("/zero_optimization") and not config.tuned:
        message = "zero_optimization is missing, which accelerate's DeepSpeedPlugin requires"
        yield violation(config, "", message, 'add "zero_optimization": {"stage": 0}')


@pairs.rule(
    "HF022", WARNING, "silent", transformers("src/transformers/integrations/deepspeed.py (deepspeed_optim_sched)")
)
def optimizer_is_in_one_place(pair: Pair) -> Violations:
    """optim and lr_scheduler_type are not given with an optimizer and scheduler of the DeepSpeed config.

    Prevents: No error: the DeepSpeed config's optimizer and scheduler are used, and the arguments are ignored.
    Fix: set the optimizer and scheduler in one place"""
    for key, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        kind = pair.config.value(f"/{key}/type")
        if pair.arguments.has(name) and isinstance(kind, str):
            given = f"{name} {pair.arguments.value(name, '')}".strip()
            message = f"{given} has no effect: the DeepSpeed config has {key} {kind}"
            less = NOTE if key == "optimizer" and _are_adamw(pair) else None
            yield violation(pair.arguments, name, message, "remove one of them", severity=less)


def _are_adamw(pair: Pair) -> bool:
    """Whether the optimizer that is asked for and the config's are both AdamW, whichever program implements it."""
    config, built = pair.config, pair.config.optimizer
    decoupled = built == "adamw" or (built == "adam" and config.switch("/optimizer/params/adam_w_mode", True))
    return bool(decoupled) and pair.arguments.value("optim") in _ADAMW


@subject("training arguments", "DeepSpeed config")
def _models(submission: Submission) -> Iterator[tuple[Config, Model]]:
    """The DeepSpeed configs that transformers reads, with the model that it loads."""
    read: list[tuple[TrainingArguments | None, Config]]
    read = [(pair.arguments, pair.config) for pair in pairs(submission)]
    if submission.context.consumer == "huggingface" and not read:
        alone = submission.training_arguments
        read = [(alone[0] if len(alone) == 1 else None, config) for config in submission.configs]
    for arguments, config in read:
        model = model_of(submission, arguments)
        if model is not None:
            yield config, model


@_models.rule("HF019", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:341-358"))
def tensor_parallelism_needs_no_conversion(loaded: tuple[Config, Model]) -> Violations:
    """DeepSpeed's tensor parallelism is not used for a mixture of experts that transformers converts on loading.

    Prevents: NotImplementedError: Weight conversions with DeepSpeed Tensor Parallelism are not yet implemented.
    Fix: remove tensor_parallel"""
    config, model = loaded
    size = whole_number(config.value("/tensor_parallel/autotp_size")) or 1
    if size > 1 and model.is_moe:
        message = f"autotp_size {size} with {model.name}, whose experts transformers fuses on loading"
        yield violation(config, "/tensor_parallel/autotp_size", message, "use autotp_size 1, and shard by ZeRO")
