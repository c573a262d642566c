"""What transformers makes of TrainingArguments and a DeepSpeed config together."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import FILLERS, Submission
from ....documents.training_arguments import TrainingArguments
from ....findings import ERROR, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import accelerate, transformers
from .arguments import best_model_is_saved_elsewhere
from .match import pairs
from .models import model_of
from .parallelism import accelerate_calls


@submissions.rule(
    "HF004",
    ERROR,
    "init",
    transformers("src/transformers/integrations/deepspeed.py:648-651"),
    reads=("training arguments", "DeepSpeed config"),
)
def evaluation_alone_is_stage_3(submission: Submission) -> Violations:
    """Evaluation without training runs under ZeRO stage 3 only.

    Prevents: ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config
    Fix: stage 3
    """
    for arguments, config in pairs(submission):
        trains, evaluates = arguments.value("do_train"), arguments.value("do_eval") is True
        predicts = arguments.value("do_predict") is True
        alone = trains is False or (_asks(arguments) and not arguments.given("do_train"))
        if (evaluates or predicts) and alone and config.stage in (0, 1, 2):
            message = f"do_{'eval' if evaluates else 'predict'} without do_train, and the ZeRO stage is {config.stage}"
            where = arguments.locate("do_eval" if evaluates else "do_predict")
            yield Violation(where=where, message=message, hint="stage 3, or evaluate without DeepSpeed")


def _asks(arguments: TrainingArguments) -> bool:
    """Whether the program trains with `--do_train` only, as transformers' own run_clm.py; others train always."""
    program = arguments.launch.program if arguments.launch is not None else None
    name = PurePath(program.value or "").name if program is not None else ""
    return arguments.complete and name.startswith("run_") and name.endswith(".py")


def batch_search_is_not_stage_3(submission: Submission) -> Violations:
    """auto_find_batch_size is not used with ZeRO stage 3."""
    for arguments, config in pairs(submission):
        if arguments.value("auto_find_batch_size") is True and config.stage == 3:
            message = "auto_find_batch_size with ZeRO stage 3"
            where = arguments.locate("auto_find_batch_size")
            yield Violation(where=where, message=message, hint="stage 2, or a batch size of your own")


@submissions.rule(
    "HF006",
    ERROR,
    "init",
    transformers("src/transformers/trainer.py:889-906"),
    reads=("training arguments", "DeepSpeed config"),
)
def trainer_takes_the_settings(submission: Submission) -> Violations:
    """save_only_model goes without load_best_model_at_end, auto_find_batch_size without ZeRO stage 3.

    Prevents: ValueError: DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`, or:
    `auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3.
    Fix: one of the two; stage 2, or a batch size
    """
    yield from best_model_is_saved_elsewhere(submission)
    yield from batch_search_is_not_stage_3(submission)


@submissions.rule(
    "HF013",
    ERROR,
    "init",
    accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)"),
    reads=("training arguments", "accelerate config", "DeepSpeed config"),
)
def zero_section_is_there(submission: Submission) -> Violations:
    """A DeepSpeed config that transformers or accelerate reads has a zero_optimization section.

    Prevents: ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.
    Fix: "zero_optimization": {"stage": 0}
    """
    configs = [config for _, config in pairs(submission)]
    linked = submission.config
    for accelerated in submission.accelerate_configs:
        if linked is not None and accelerated.source.has("/deepspeed_config/deepspeed_config_file"):
            configs.append(linked)
    if submission.context.consumer in FILLERS:
        configs += submission.configs
    for call in (call for _, call in accelerate_calls(submission) if call.options.has("--deepspeed_config_file")):
        name = PurePath(call.options.text("--deepspeed_config_file") or "").name
        configs += [config for config in submission.configs if config.name == name]
    for config in {id(config): config for config in configs}.values():
        if config.json.broken is None and isinstance(config.json.data, dict) and not config.has("/zero_optimization"):
            message = "there is no zero_optimization, which accelerate's DeepSpeedPlugin insists on"
            yield Violation(where=config.locate(""), message=message, hint='"zero_optimization": {"stage": 0}')


@submissions.rule(
    "HF022",
    WARNING,
    "silent",
    transformers("src/transformers/integrations/deepspeed.py (deepspeed_optim_sched)"),
    reads=("training arguments", "DeepSpeed config"),
)
def optimizer_is_in_one_place(submission: Submission) -> Violations:
    """optim and lr_scheduler_type are not given beside an optimizer and scheduler of the DeepSpeed config.

    Prevents: No error: the DeepSpeed config's optimizer and scheduler are used, and the arguments are ignored.
    Fix: the optimizer and scheduler in one place
    """
    for arguments, config in pairs(submission):
        for key, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
            kind = config.value(f"/{key}/type")
            if arguments.given(name) and isinstance(kind, str):
                message = f"{name} {arguments.value(name, '')} is not used: the DeepSpeed config has {key} {kind}"
                yield Violation(
                    where=arguments.locate(name), message=message.replace("  ", " "), hint="take one of them out"
                )


@submissions.rule(
    "HF019",
    ERROR,
    "init",
    transformers("src/transformers/integrations/deepspeed.py:341-358"),
    reads=("training arguments", "DeepSpeed config"),
)
def tensor_parallel_takes_no_conversion(submission: Submission) -> Violations:
    """DeepSpeed's tensor parallelism is not used for a mixture of experts that transformers converts on loading.

    Prevents: NotImplementedError: Weight conversions with DeepSpeed Tensor Parallelism are not yet implemented.
    Fix: no tensor_parallel
    """
    read: list[tuple[TrainingArguments | None, Config]] = [*pairs(submission)]
    if submission.context.consumer == "huggingface" and not read:
        alone = submission.training_arguments
        read = [(alone[0] if len(alone) == 1 else None, config) for config in submission.configs]
    for arguments, config in read:
        size, model = config.value("/tensor_parallel/autotp_size"), model_of(submission, arguments)
        if isinstance(size, int) and size > 1 and model is not None and model.is_moe:
            message = f"autotp_size {size} with {model.name}, whose experts transformers fuses on loading"
            where = config.locate("/tensor_parallel/autotp_size")
            yield Violation(where=where, message=message, hint="autotp_size 1; shard by ZeRO instead")


_BOTH: Final = ("training arguments", "DeepSpeed config")
