"""Choices in the plain blocks of a config that DeepSpeed's parser checks, or fails on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ....findings import ERROR, Severity, Violations
from ....rules.violations import accelerate, deepspeed, listed, violation
from ....shape import Shape, Type
from ....submission.repository import sets_key
from ....text.slips import is_slip
from ....text.wording import escape
from ...releases import release_of
from ..config import DTYPES, OFFLOADED, OPTIMIZER, PARAMS, Config
from ..schema import mismatch
from .batch import FAILS_BY_SEQUENCE
from .subjects import configs, is_placeholder, named, shown

#: The first release of transformers whose Trainer hands the config to accelerate, which refuses an
#: "auto" that is left.
#: Source: src/transformers/trainer.py @ v4.30.0 (create_accelerator_and_postprocess).
_CHECKED_BY_ACCELERATE: Final = (4, 30)
#: Releases before it spell bf16 as bfp16. Source: deepspeed/runtime/config.py:252 @ 0.12.6; bf16 @
#: 0.14.5
_BF16: Final = (0, 13)
_SAMPLING: Final = "/data_efficiency/data_sampling"
_ZENFLOW: Final = "/zero_optimization/zenflow"


def _one_of(
    config: Config,
    pointer: str,
    choices: tuple[str, ...],
    fold: Callable[[str], str] = str,
    most: int = 9,
) -> Violations:
    """A violation for text that is none of the choices; other values have rules of their own."""
    value = config.value(pointer)
    if config.schema.key(pointer) is None or not isinstance(value, str) or fold(value) in choices:
        return
    message = f"{named(pointer)} must be {listed(choices[:most])}, not {shown(value)}"
    if is_placeholder(value):
        message = f"{named(pointer)} is the unfilled placeholder {shown(value)}"
    yield violation(config, pointer, message, f'write a value such as "{choices[0]}"')


@configs.rule("PREC014", ERROR, "parse", deepspeed("runtime/config.py:223"))
def communication_type_is_known(config: Config) -> Violations:
    """Gradients are communicated in fp16, bf16 or fp32.
    Prevents: ValueError: Invalid communication_data_type
    Fix: write "fp32", "bf16" or "fp16", or leave it out"""
    types = ("fp32", "bfp16" if config.version < _BF16 else "bf16", "fp16")
    for name in ("communication_data_type", "seq_parallel_communication_data_type"):
        if not config.filled or config.value(f"/{name}") != "auto":  # which PARSE021 reports
            yield from _one_of(config, f"/{name}", types, str.lower)


@configs.rule("PREC016", ERROR, "parse", deepspeed("runtime/config.py:181"))
def autocast_is_known(config: Config) -> Violations:
    """torch_autocast's dtype is one that DeepSpeed has, and its safe modules are a list of names.
    Prevents: ValueError: ... is not a valid DtypeEnum
    Fix: write "bfloat16" or "float16" """
    yield from _one_of(
        config, "/torch_autocast/dtype", ("bfloat16", "float16", "float32", *DTYPES), most=3
    )
    pointer = "/torch_autocast/lower_precision_safe_modules"
    value = config.value(pointer)
    odd = isinstance(value, list) and not all(isinstance(item, str) for item in value)
    if config.schema.key(pointer) is not None and odd:
        message = f"{named(pointer)} must be a list of strings"
        hint = 'write a list such as ["torch.nn.Linear"]'
        yield violation(config, pointer, message, hint)


@configs.rule(
    "CKPT001",
    ERROR,
    "parse",
    deepspeed("runtime/config.py:648, runtime/model_checkpointing/config.py:24"),
)
def checkpoint_choices_are_known(config: Config) -> Violations:
    """The tag validation, writer and unit of checkpoints are ones that DeepSpeed has.
    Prevents: DeepSpeedConfigError: Checkpoint config contains invalid tag_validation
    Fix: write "Warn", "Ignore" or "Fail" """
    yield from _one_of(config, "/checkpoint/tag_validation", ("WARN", "IGNORE", "FAIL"), str.upper)
    # deepspeed/runtime/model_checkpointing/constants.py
    yield from _one_of(config, "/checkpoint/writer/type", ("FAST", "PYTHON", "MOCK"), str.upper)
    yield from _one_of(
        config, "/checkpoint/writer/data_parallel", ("REPLICA", "SOCKET", "MACHINE"), str.upper
    )


@configs.rule("DATA002", ERROR, "parse", deepspeed("runtime/data_pipeline/config.py:89"))
def curriculum_has_metrics(config: Config) -> Violations:
    """Curriculum learning and dynamic batching that are enabled have the keys that they need.
    Prevents: AssertionError: Curriculum learning is enabled, curriculum_metrics must be specified
    Fix: add the metrics, or turn it off"""
    for section, key, example in (
        (f"{_SAMPLING}/curriculum_learning", "curriculum_metrics", '{"seqlen": {...}}'),
        (f"{_SAMPLING}/dynamic_batching", "max_tokens", "4096"),
    ):
        block = config.block(section) if config.schema.section(section) is not None else {}
        if block.get("enabled") and key not in block:
            message = f"{named(section)} is enabled, but has no `{key}`"
            yield violation(config, section, message, f'add "{key}": {example}')


@configs.rule("PARSE019", ERROR, "parse", deepspeed("runtime/config.py:796-923"))
def plain_values_can_be_used(config: Config) -> Violations:
    """Values of plain blocks are ones that the parser can compute with.
    Prevents: A TypeError or assertion in the parser that doesn't name the key.
    Fix: write a value of the type that the message names"""
    # deepspeed/runtime/config.py `get_sparse_attention` of the releases that have it.
    yield from _one_of(
        config, "/sparse_attention/mode", ("fixed", "dense", "variable", "bigbird", "bslongformer")
    )
    for pointer, accepted, hint in (*_unusable(config), *_unusable_elsewhere(config)):
        message = f"{named(pointer)} must be {accepted}, not {shown(config.value(pointer))}"
        yield violation(config, pointer, message, hint)


def _unusable(config: Config) -> Iterator[tuple[str, str, str]]:
    """Pointer, what would pass, and a hint, of values that the parser fails on."""
    stage = config.value("/checkpoint/parallel_write/pipeline_stage", False)
    if isinstance(stage, int | float) and stage not in (0, 1):
        yield "/checkpoint/parallel_write/pipeline_stage", "true or false", "write false"
    size = config.value("/vocabulary_size")
    if size and isinstance(size, str | list | dict):
        yield "/vocabulary_size", "an integer", "remove it; DeepSpeed only warns by it"
    for name in ("results_dir", "exps_dir"):
        pointer = f"/autotuning/{name}"
        if config.has(pointer) and not config.value(pointer) and config.value(pointer) is not None:
            yield pointer, "a folder", f'write "autotuning_{name.partition("_")[0]}"'
    experts = config.value("/expert_parallel")
    if config.schema.section("/expert_parallel") and experts and not isinstance(experts, dict):
        yield "/expert_parallel", "an object", 'write {"enabled": true, "autoep_size": 8}'
    batching, whole = config.block(f"{_SAMPLING}/dynamic_batching"), Shape(type=Type(name="int"))
    sizes = (
        "min_batch_size",
        "max_batch_size",
        *(("max_tokens",) if batching.get("enabled") else ()),
    )
    if config.schema.section(f"{_SAMPLING}/dynamic_batching"):
        for name in sizes:
            if isinstance(batching.get(name, 1), str | float) and mismatch(
                batching[name], whole, pydantic=1
            ):
                yield f"{_SAMPLING}/dynamic_batching/{name}", "an integer", "write 1"
    degree = config.value("/sequence_parallel_size", 1)
    if config.version >= FAILS_BY_SEQUENCE and (not isinstance(degree, int | float) or degree <= 0):
        yield "/sequence_parallel_size", "an integer of at least 1", "write 1"


def _unusable_elsewhere(config: Config) -> Iterator[tuple[str, str, str]]:
    """The same of lists of modules, ZenFlow's choices and the optimizer's params."""
    pointer = "/data_types/keep_in_fp32_modules"
    kept = config.value(pointer, "auto")
    names = isinstance(kept, list) and all(isinstance(name, str) for name in kept)
    if (
        config.schema.key(pointer) is not None
        and isinstance(kept, str | list)
        and kept != "auto"
        and not names
    ):
        yield pointer, '"auto" or a list of strings', 'write "auto"'
    zenflow = config.block(_ZENFLOW) if config.schema.section(_ZENFLOW) is not None else {}
    strategy = zenflow.get("select_strategy", "auto")
    if isinstance(strategy, str) and strategy not in ("auto", "step", "epoch"):
        yield f"{_ZENFLOW}/select_strategy", '"auto", "step" or "epoch"', 'write "auto"'
    for name in ("select_interval", "update_interval"):
        value = zenflow.get(name, "auto")
        below = name == "update_interval" and isinstance(value, int | float) and value < 1
        if (isinstance(value, str) and value != "auto") or below:
            yield f"{_ZENFLOW}/{name}", '"auto" or an integer of at least 1', 'write "auto"'
    if config.value(OPTIMIZER) is not None and config.value(PARAMS) is not None:
        if not isinstance(config.value(PARAMS), dict):
            yield PARAMS, "an object", 'write {"lr": 1e-4}'
        if not isinstance(config.block(PARAMS).get("max_grad_norm", 0), int | float):
            yield (
                f"{PARAMS}/max_grad_norm",
                "a number",
                "remove it, and write gradient_clipping at the top level",
            )


_RATES: Final = ("warmup_num_steps", "total_num_steps", "warmup_min_lr", "warmup_max_lr")
#: Values that DeepSpeed hands on to PyTorch or computes with, where text can't be right; "auto" is
#: for others to fill.
_HANDED_ON: Final = (
    "/gradient_clipping",
    "/steps_per_print",
    "/gradient_predivide_factor",
    *(f"{PARAMS}/{name}" for name in ("lr", "betas", "eps", "weight_decay")),
    *(f"/scheduler/params/{name}" for name in _RATES),
)
_MOST: Final = 200  #: values; more tell nothing new
_NAMES: Final = {"huggingface": "Transformers' Trainer", "accelerate": "accelerate"}
#: What accelerate fills in: as its plugin (utils/dataclasses.py:1280-1292, :1326 @ 1.15.0), and
#: when it prepares (accelerator.py:2223-2356).
_BY_ACCELERATE: Final = frozenset(
    [
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "fp16.enabled",
        "bf16.enabled",
        "optimizer.params.lr",
        "optimizer.params.weight_decay",
        *(f"scheduler.params.{name}" for name in _RATES),
        "zero_optimization.stage",
        "steps_per_print",
        *(
            f"zero_optimization.offload_{what}.{key}"
            for what in OFFLOADED
            for key in ("device", "nvme_path")
        ),
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    ]
)
#: What Transformers fills in besides (integrations/deepspeed.py:134-258 @ 5.23.0); its Trainer goes
#: through accelerate. The keys of amp: only releases before 5 (:160-164 @ 4.57.1).
_BY_TRANSFORMERS: Final = _BY_ACCELERATE | {
    "optimizer.params.betas",
    "optimizer.params.eps",
    "amp.enabled",
    "amp.opt_level",
}


@configs.rule("PARSE020", ERROR, "init", deepspeed("runtime/engine.py"))
def handed_on_is_not_auto(config: Config) -> Violations:
    """A value that DeepSpeed hands on as it is written is not "auto".
    Prevents: A TypeError in the optimizer or the first step: text where a number belongs.
    Fix: write the value, or let Transformers or accelerate read the file"""
    unfilled = [
        pointer for pointer in _HANDED_ON if not config.filled and config.value(pointer) == "auto"
    ]
    unfilled = [pointer for pointer in unfilled if not sets_key(pointer[1:], config.path)]
    if config.consumer == "megatron-deepspeed":  # it brings its own optimizer and scheduler
        unfilled = [one for one in unfilled if not one.startswith(("/optimizer/", "/scheduler/"))]
    if unfilled:
        what = f'{", ".join(map(named, unfilled))} {"is" if len(unfilled) == 1 else "are"} "auto"'
        message = f"{what}, which only Transformers and accelerate fill in"
        hint = "write a value, or pass --consumer huggingface if the Trainer reads this file"
        yield violation(config, unfilled[0], message, hint)


@configs.rule("PARSE021", ERROR, "init", accelerate("utils/dataclasses.py:1357-1374"))
def fillers_know_the_key(config: Config) -> Violations:
    """A key that is "auto" is one that Transformers or accelerate fill in.
    Prevents: ValueError: `zero_optimization.overlap_comm` not found in kwargs. Please specify it
    without `auto`
    Fix: write a value, or leave the key out
    """
    filled_keys = _BY_TRANSFORMERS if config.consumer == "huggingface" else _BY_ACCELERATE
    release = release_of("transformers", config.path) if config.consumer == "huggingface" else None
    sure = not config.guessed and (release is None or release.version >= _CHECKED_BY_ACCELERATE)
    seen, root = set[str](), config.schema.section("")
    names = root.keys if root is not None else ()
    if config.consumer not in _NAMES:
        return
    for pointer in islice(_automatic("", config.block("")), _MOST):
        key = pointer[1:].replace("/", ".")
        top = key.partition(".")[0]
        if key in filled_keys or top in seen:
            continue
        severity = None if sure else Severity.NOTE
        # Of a section that DeepSpeed lacks the name is what is wrong.
        if top != key and config.schema.key(section := f"/{escape(top)}") is None:
            seen.add(top)
            if any(is_slip(top, name) for name in names):
                continue  # PARSE004 reports it
            message = (
                f"DeepSpeed has no section {named(section)}, so nothing fills in "
                'what is "auto" in it'
            )
            yield violation(
                config, section, message, "correct its name, or remove it", severity=severity
            )
            continue
        message = (
            f'{named(pointer)} is "auto", which {_NAMES[config.consumer]} does not fill in here'
        )
        # `accelerate launch` may start a script with a Trainer, which has filled it in.
        if key in _BY_TRANSFORMERS:
            severity, message = Severity.NOTE, f"{message}, unless Transformers' Trainer runs"
        yield violation(
            config, pointer, message, "write a value, or remove the key", severity=severity
        )


def _automatic(pointer: str, block: Mapping[str, Any]) -> Iterator[str]:
    """Pointers of the values that are "auto", those in lists left out."""
    for name, value in block.items():
        place = f"{pointer}/{escape(name)}"
        if isinstance(value, dict):
            yield from _automatic(place, value)
        elif value == "auto":
            yield place
