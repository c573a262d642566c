"""TrainingArguments and a DeepSpeed config as transformers reads them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Violation, Violations, against
from ....rules.violations import accelerate, transformers, violation
from ....submission.subjects import subject, submissions
from ....submission.submission import Submission
from ....submission.world import world_of
from ....text.hjson.edits import replace_value
from ....text.slips import is_slip
from ....text.wording import show, whole_number
from ...deepspeed.config import FILLERS, ZERO, Config
from ...deepspeed.rules.subjects import ds_configs
from ...deepspeed.submission import configs_of, used_config
from ...launching.subjects import accelerate_calls
from ...python_around import release_for, tells
from ..accelerate import AccelerateConfig, number_of_text
from ..submission import ds_config_of, model_of, used_accelerate_config
from ..training_arguments import TrainingArguments
from .first_checks import CHECKS_ENGINE, checked_since, release_of

#: A key that switches a number format on, the flag that excludes it, and those that turn it on.
_DTYPES: Final = (
    ("/fp16/enabled", "bf16", "fp16", "fp16_full_eval"),
    ("/bf16/enabled", "fp16", "bf16", "bf16_full_eval"),
)
_FILL: Final = "src/transformers/integrations/deepspeed.py"
_PREPARED: Final = (
    f"{transformers(f'{_FILL}:109-184')}; {accelerate('accelerator.py (_prepare_deepspeed)')}"
)
#: Where DeepSpeed 0.18 has the classes that it takes for leaves by itself.
_LEAVES: Final = "deepspeedai/DeepSpeed deepspeed/runtime/zero/leaf_module_config.py @ 0.18.0"
#: The first release that compares a config with the arguments; before it they filled in "auto", and
#: no more. Source: src/transformers/integrations.py @ 4.6.1, deepspeed.py @ 4.7.0
_COMPARES: Final = (4, 7)
#: The first release that refuses to evaluate alone at other stages than 3. Source:
#: src/transformers/deepspeed.py @ 4.12.5 and 4.13.0
_REFUSES_EVALUATION: Final = (4, 13)
_MICRO: Final = "per_device_train_batch_size"
_MOST_STEPS: Final = 1e12  # no run has more


class Pair(NamedTuple):
    """TrainingArguments with the DeepSpeed config that transformers reads with them."""

    arguments: TrainingArguments
    config: Config
    gpus: int | None


_READS: Final = ("training arguments", "DeepSpeed config")
_FILE_OPTION: Final = "--deepspeed_config_file"
_FILE: Final = "deepspeed_config/deepspeed_config_file"


@subject(*_READS)
def pairs(submission: Submission) -> Iterator[Pair]:
    """TrainingArguments with their DeepSpeed config: their own, else accelerate's."""
    in_config = any(config.has(_FILE) for config in submission.of(AccelerateConfig))
    on_line = any(call.has(_FILE_OPTION) for call in accelerate_calls(submission))
    for arguments in submission.of(TrainingArguments):
        config = ds_config_of(submission, arguments)
        if config is None and (in_config or on_line) and not arguments.has("deepspeed"):
            config = used_config(submission)
        if config is not None and not tells("no Trainer", config.path):
            yield Pair(arguments, config, world_of(submission).gpus)


#: DeepSpeed's scheduler of each of transformers' that it has: docs/source/en/deepspeed.md @ 5.23.0,
#: runtime/lr_schedules.py (WarmupCosineLR)
_SCHEDULES: Final = (
    ("constant_with_warmup", "WarmupLR"),
    ("linear", "WarmupDecayLR"),
    ("cosine", "WarmupCosineLR"),
)


class _Expected(NamedTuple):
    """The value that a key of the DeepSpeed config must have, unless it is "auto"."""

    pointer: str
    value: object
    text: str  #: the arguments that require it
    is_written: bool  #: whether these are written, and no defaults
    argument: str = ""  #: the one to change in place of the key, if one will do


def _expected(arguments: TrainingArguments) -> Iterator[_Expected]:
    """The values that arguments require of the DeepSpeed config."""
    from ..table import ROWS  # saves start-up time: numpy

    for row in ROWS:
        stated = arguments.stated(row.name) if row.pointers else None
        is_searched = arguments.is_on("auto_find_batch_size") and "batch" in row.name
        if stated is None or is_searched:
            continue
        for pointer in row.pointers:
            yield _Expected(pointer, stated.value, stated.text, stated.written, row.name)
    first, second = arguments.stated("adam_beta1"), arguments.stated("adam_beta2")
    if first is not None and second is not None:
        text, is_written = f"{first.text} and {second.text}", first.written or second.written
        yield _Expected("/optimizer/params/betas", [first.value, second.value], text, is_written)
    for pointer, other, *names in _DTYPES:
        flags = [arguments.stated(name) for name in names]
        known = [flag for flag in flags if flag is not None]
        if len(known) < len(names):
            continue
        is_on = any(flag.value is True for flag in known)
        if any(flag.written for flag in known):
            text = f"{names[0]} {_shown(is_on)}"
            yield _Expected(pointer, is_on, text, is_written=True, argument=names[0])
        elif arguments.is_on(other):  # TrainingArguments refuses both
            yield _Expected(pointer, is_on, f"{other} true", is_written=True)
        elif not arguments.has(other) and arguments.by_class.get(other):
            yield _Expected(pointer, is_on, f"{other} true (TRL's default)", is_written=True)
        else:
            text = f"{names[0]} {_shown(is_on)} (the default)"
            yield _Expected(pointer, is_on, text, is_written=False, argument=names[0])


def _mismatches(pair: Pair, expected: _Expected, *, fixable: bool = False) -> Violations:
    """A violation where a DeepSpeed value differs from the argument's, compared in Python."""
    pointer, wanted, text, is_written, argument = expected
    config, value = pair.config, pair.config.value(pointer)
    if value is None or value == "auto" or value == wanted:
        return
    name = pointer[1:].replace("/", ".")
    message = f"{name}: {_shown(value)} here, {text} in TrainingArguments"
    other = f"or {argument} to {_shown(value)}" if argument else f"or to {_shown(wanted)}"
    hint = f'set "{name.rpartition(".")[2]}" to "auto", {other}'
    edits = replace_value(config.json, pointer, "auto") if fixable and not config.embedded else ()
    if is_written:
        mismatch = violation(config, pointer, message, hint, edits=edits)
        first_argument = argument or text.partition(" ")[0]
        yield against(pair.arguments.locate(first_argument), mismatch)
    else:
        yield violation(config, pointer, message, hint, severity=NOTE, edits=edits)


def _shown(value: object) -> str:
    """A value in a message; true and false as JSON has them."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


@pairs.rule("HF001", ERROR, "init", transformers(f"{_FILL}:109-184,258-263"))
def config_equals_the_arguments(pair: Pair) -> Violations:
    """Values that TrainingArguments and the DeepSpeed config both set are the same, or "auto" in
    the config.
    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values, after the model is loaded. A note with a default of TrainingArguments,
    which the program may not keep.
    Fix: set it to "auto" in the DeepSpeed config
    """
    for expected in _expected(pair.arguments):
        yield from checked_since(_COMPARES, pair.arguments, _mismatches(pair, expected))


@submissions.rule(
    "HF042",
    ERROR,
    "init",
    _PREPARED,
    reads=("training arguments", "accelerate config", "launch script"),
)
def accelerate_equals_the_arguments(submission: Submission) -> Violations:
    """Accumulation and clipping in accelerate's deepspeed_config are those of the training
    arguments.
    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values; in programs without the Trainer, no error: DeepSpeed's value is used.
    Fix: write the same value in both
    """
    config, steps = used_accelerate_config(submission), "gradient_accumulation_steps"
    if config is None or not config.uses_deepspeed or config.config_file:
        return
    for arguments in submission.of(TrainingArguments):
        call = arguments.launch.call("accelerate") if arguments.launch is not None else None
        if call is None or arguments.has("deepspeed"):
            continue
        for key, name in ((steps, steps), ("gradient_clipping", "max_grad_norm")):
            value, wanted = config.deepspeed.get(key), arguments.number(name)
            if wanted is None or call.has(f"--{key}"):
                continue
            if number_of_text(value) not in (None, wanted):
                message = f"deepspeed_config.{key}: {value} here, {name} {wanted} in the arguments"
                hint = f"write {wanted} in both"
                severity = None if call.has("--config_file") else WARNING
                mismatch = violation(
                    config, f"deepspeed_config/{key}", message, hint, severity=severity
                )
                yield against(arguments.locate(name), mismatch)


@pairs.rule("HF039", ERROR, "init", transformers(f"{_FILL}:155-160"))
def batch_is_the_arguments_product(pair: Pair) -> Violations:
    """train_batch_size is per_device_train_batch_size × gradient_accumulation_steps × the
    processes, or "auto".
    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values.
    Fix: set "train_batch_size" to "auto"
    """
    config, batch, pointer = pair.config, pair.arguments.batch, "/train_batch_size"
    value = whole_number(config.value(pointer))
    if batch is None or value is None or pair.gpus is None:
        return
    micro = config.whole("/train_micro_batch_size_per_gpu")
    steps = config.whole("/gradient_accumulation_steps")
    if micro is not None and steps is not None:
        return  # of a config with all three keys, BATCH001 reports the product
    product = batch.sequences * pair.gpus
    if value != product:
        message = (
            f"train_batch_size: {value} is not {batch.text} × {pair.gpus} processes = {product}"
        )
        severity = None if batch.written else WARNING
        hint = f'set "train_batch_size" to "auto", or to {product}'
        mismatch = violation(config, pointer, message, hint, severity=severity)
        refused = against(pair.arguments.locate("per_device_train_batch_size"), mismatch)
        yield from checked_since(_COMPARES, pair.arguments, [refused])


@pairs.rule("HF002", ERROR, "init", transformers(f"{_FILL}:244-263"))
def schedule_equals_the_arguments(pair: Pair) -> Violations:
    """The scheduler's total_num_steps and warmup_num_steps are max_steps and warmup_steps, or
    "auto".
    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values, after the model is loaded.
    Fix: set it to "auto" in the DeepSpeed config
    """
    steps, warmup = pair.arguments.integer("max_steps"), pair.arguments.stated("warmup_steps")
    total = steps if steps is not None and steps > 0 else None
    if total is not None:
        expected = _Expected(
            "/scheduler/params/total_num_steps", total, f"max_steps {total}", is_written=True
        )
        yield from checked_since(
            _COMPARES, pair.arguments, _mismatches(pair, expected, fixable=True)
        )
    number = _warmup_steps(warmup.value, total) if warmup is not None else None
    if warmup is not None and number is not None:
        text = warmup.text
        if not text.endswith(f" {number}"):
            text = f"{text}, which is {number} steps,"
        expected = _Expected("/scheduler/params/warmup_num_steps", number, text, warmup.written)
        yield from checked_since(
            _COMPARES, pair.arguments, _mismatches(pair, expected, fixable=True)
        )


def _warmup_steps(value: object, total: int | None) -> int | None:
    """The warm-up steps of transformers, at least 1; None where they depend on the run's length."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value < _MOST_STEPS:
        return None
    if 0 < value < 1:  # a share of the run
        return math.ceil(total * value) if total is not None else None
    return max(1, int(value))


#: Names of AdamW with states in full precision. Source: transformers/training_args.py
#: (OptimizerNames).
_ADAMW: Final = (
    "adamw_hf",
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adamw_apex_fused",
)


@pairs.rule("HF004", ERROR, "init", transformers(f"{_FILL}:648-651"))
def evaluation_alone_is_stage_3(pair: Pair) -> Violations:
    """Evaluation without training runs under ZeRO stage 3 only.
    Prevents: ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your
    config
    Fix: use stage 3
    """
    arguments, stage = pair.arguments, pair.config.stage
    evaluation = next((name for name in ("do_eval", "do_predict") if arguments.is_on(name)), None)
    if evaluation is None or stage not in (0, 1, 2):
        return
    # transformers' own run_clm.py and its kin train with `--do_train` only, others always.
    program = arguments.launch.program if arguments.launch is not None else None
    name = PurePath(program.value or "").name if program is not None else ""
    is_example = name.startswith("run_") and name.endswith(".py")
    trains_not = is_example and arguments.lacks("do_train")
    if trains_not or arguments.value("do_train") is False:
        message = f"{evaluation} without do_train, and the ZeRO stage is {stage}"
        hint = "use stage 3, or evaluate without DeepSpeed"
        refused = violation(arguments, evaluation, message, hint)
        yield from checked_since(_REFUSES_EVALUATION, arguments, [refused])


@submissions.rule(
    "HF006", ERROR, "init", transformers("src/transformers/trainer.py:889-906"), reads=_READS
)
def trainer_accepts_the_settings(submission: Submission) -> Violations:
    """save_only_model goes without load_best_model_at_end, auto_find_batch_size without ZeRO stage
    3.
    Prevents: ValueError: DeepSpeed can't be used with `save_only_model` along with
    `load_best_model_at_end`, or: `auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3.
    A warning of the latter where no release is named.
    Fix: remove one of the two, or use stage 2 or a fixed batch size
    """
    stages = {id(pair.arguments): pair.config.stage for pair in pairs(submission)}
    for arguments in submission.of(TrainingArguments):
        under = "FSDP" if arguments.value("fsdp") else None
        if arguments.value("deepspeed"):
            under = "DeepSpeed"
        loads_model = arguments.is_on("load_best_model_at_end")
        if under and loads_model and arguments.is_on("save_only_model"):
            message = f"save_only_model with load_best_model_at_end under {under}"
            refused = violation(arguments, "save_only_model", message, "remove one of the two")
            yield from checked_since(CHECKS_ENGINE, arguments, [refused])
        if arguments.is_on("auto_find_batch_size") and stages.get(id(arguments)) == 3:
            yield from _finds_no_batch_size(arguments)


def _finds_no_batch_size(arguments: TrainingArguments) -> Violations:
    """A violation where the release of transformers refuses the search with ZeRO 3."""
    release = release_of(arguments)
    if release.is_known and release.version[:2] >= CHECKS_ENGINE:
        is_sure = release.planned or (release.where and release.exact)
        message = f"auto_find_batch_size with ZeRO stage 3: {release} refuses it, as any since 4.38"
        hint = "use stage 2, or set a batch size"
        severity = None if is_sure else WARNING
        yield violation(arguments, "auto_find_batch_size", message, hint, severity=severity)


_PLUGIN: Final = accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)")
_PLUGINS_FILES: Final = ("training arguments", "accelerate config", "DeepSpeed config")


@submissions.rule("HF013", ERROR, "init", _PLUGIN, reads=_PLUGINS_FILES)
def zero_section_is_there(submission: Submission) -> Violations:
    """A DeepSpeed config that transformers or accelerate reads has a zero_optimization section.
    Prevents: ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.
    Fix: add "zero_optimization": {"stage": 0}"""
    section = "zero_optimization"
    for config in _configs_of_plugin(submission):
        is_whole = config.json.broken is None and isinstance(config.json.data, dict)
        # PARSE004 reports a slip in its name
        has_section = any(key == section or is_slip(key, section) for key in config.block(""))
        if is_whole and not has_section and not config.tuned:
            message = "zero_optimization is missing, which accelerate's DeepSpeedPlugin requires"
            yield violation(config, "", message, 'add "zero_optimization": {"stage": 0}')


def _configs_of_plugin(submission: Submission) -> Iterable[Config]:
    """The DeepSpeed configs that accelerate's plugin reads, each once."""
    configs = [pair.config for pair in pairs(submission)]
    used = used_config(submission)
    if used is not None and any(config.has(_FILE) for config in submission.of(AccelerateConfig)):
        configs.append(used)
    files = [call.options.text(_FILE_OPTION) for call in accelerate_calls(submission)]
    names = {PurePath(file or "").name for file in files}
    is_filled = submission.context.consumer in FILLERS
    configs += [each for each in configs_of(submission) if is_filled or each.name in names]
    return {id(config): config for config in configs}.values()


@ds_configs.rule("HF043", ERROR, "silent", transformers(f"{_FILL} (is_zero3)"))
def stage_is_a_number(config: Config) -> Violations:
    """The ZeRO stage in a config that transformers or accelerate reads is a number.
    Prevents: The model isn't partitioned as it is loaded, and weights are saved as if they were
    whole: the stage, which DeepSpeed converts from text, is compared with 3. A note at other
    stages.
    Fix: write the stage without quotes
    """
    pointer = f"{ZERO}/stage"
    written = config.value(pointer)
    if config.consumer in FILLERS and isinstance(written, str) and config.stage is not None:
        message = f"stage is the text {show(written)}, and its reader compares it with the number 3"
        hint = f"write {config.stage}"
        severity = None if config.stage == 3 else NOTE
        edits = () if config.embedded else replace_value(config.json, pointer, config.stage)
        yield Violation(config.locate(pointer), message, hint, severity=severity, edits=edits)


@pairs.rule("HF022", WARNING, "silent", transformers(f"{_FILL} (deepspeed_optim_sched)"))
def optimizer_is_in_one_place(pair: Pair) -> Violations:
    """optim and lr_scheduler_type are not given with an optimizer and scheduler of the DeepSpeed
    config.
    Prevents: No error: the DeepSpeed config's optimizer and scheduler are used, and the arguments
    are ignored.
    Fix: set the optimizer and scheduler in one place
    """
    arguments, config, _ = pair
    for key, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        pointer = f"/{key}/type"
        kind, value = config.value(pointer), arguments.value(name)
        if not arguments.has(name) or not isinstance(kind, str):
            continue
        if key == "optimizer":
            is_same = value in _ADAMW and _is_adamw(config)
        else:
            is_same = (value, kind) in _SCHEDULES
        setting = f"{name} {arguments.value(name, '')}".strip()
        message = f"{setting} has no effect: the DeepSpeed config has {key} {kind}"
        severity = NOTE if is_same else None  # then it only matters which program implements it
        mismatch = violation(arguments, name, message, "remove one of them", severity=severity)
        yield against(config.locate(pointer), mismatch)


def _is_adamw(config: Config) -> bool:
    """Whether DeepSpeed builds an AdamW from the config."""
    if config.optimizer == "adam":
        return bool(config.switch("/optimizer/params/adam_w_mode", True))
    return config.optimizer == "adamw"


@submissions.rule("HF045", WARNING, "training", _LEAVES, reads=_READS)
def experts_are_leaves(submission: Submission) -> Violations:
    """Layers of experts are leaf modules of ZeRO 3, where each expert is a module of its own.
    Prevents: No error: ranks whose tokens reach different experts wait for one another.
    Fix: call deepspeed.utils.set_z3_leaf_modules, or use DeepSpeed 0.18
    """
    for arguments, config, _ in pairs(submission):
        if config.stage != 3 or arguments.is_on_front_end:
            continue
        engine = release_for("deepspeed", config.path, arguments.launches)
        library = release_of(arguments)
        # newer DeepSpeed knows the classes, and newer transformers has all experts in one module
        are_old = engine.certain(lambda version: version < (0, 18)) and library.certain(
            lambda version: version < (5,)
        )
        if not are_old:
            continue
        model = model_of(submission, arguments)
        is_told = any(tells("leaf modules", path) for path in (config.path, arguments.path))
        if model is not None and model.experts and not is_told:
            message = (
                f"ZeRO 3 with {engine} and {library} hangs with {model.name}: each of its "
                f"{model.experts} experts is gathered on the ranks alone that use it"
            )
            hint = "call set_z3_leaf_modules with the class of its layers of experts"
            yield violation(config, "/zero_optimization/stage", message, hint)


@submissions.rule("HF019", ERROR, "init", transformers(f"{_FILL}:341-358"), reads=_READS)
def tensor_parallelism_needs_no_conversion(submission: Submission) -> Violations:
    """DeepSpeed's tensor parallelism is not used for a mixture of experts that transformers
    converts on loading.
    Prevents: NotImplementedError: Weight conversions with DeepSpeed Tensor Parallelism are not yet
    implemented.
    Fix: remove tensor_parallel
    """
    pointer = "/tensor_parallel/autotp_size"
    configs: list[tuple[TrainingArguments | None, Config]]
    configs = [(pair.arguments, pair.config) for pair in pairs(submission)]
    if submission.context.consumer == "huggingface" and not configs:
        all_arguments = submission.of(TrainingArguments)
        only = all_arguments[0] if len(all_arguments) == 1 else None
        configs = [(only, config) for config in configs_of(submission)]
    for arguments, config in configs:
        model, size = model_of(submission, arguments), whole_number(config.value(pointer)) or 1
        if model is not None and size > 1 and model.experts > 0:
            message = (
                f"autotp_size {size} with {model.name}, whose experts transformers fuses on loading"
            )
            yield violation(config, pointer, message, "use autotp_size 1, and shard by ZeRO")
