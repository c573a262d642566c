"""Values in the plain blocks of a config: choices that DeepSpeed's parser checks or fails on, and
"auto" that nothing fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

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
#: The first release that spells bf16 so; those before have bfp16. Source:
#: deepspeed/runtime/config.py:252 @ 0.12.6; bf16 @ 0.14.5
_SPELLS_BF16: Final = (0, 13)
_SAMPLING: Final = "/data_efficiency/data_sampling"
_ZENFLOW: Final = "/zero_optimization/zenflow"


def _one_of(
    config: Config,
    pointer: str,
    choices: tuple[str, ...],
    fold: Callable[[str], str] = str,
    most: int = 9,
) -> Violations:
    """A violation for text that is none of the choices; other values have rules of their own.

    `fold` is how DeepSpeed brings the text into the case of the choices; the message has the first
    `most` of them.
    """
    value = config.value(pointer)
    if config.schema.key(pointer) is None or not isinstance(value, str) or fold(value) in choices:
        return
    if is_placeholder(value):
        message = f"{named(pointer)} is the unfilled placeholder {shown(value)}"
    else:
        message = f"{named(pointer)} must be {listed(choices[:most])}, not {shown(value)}"
    yield violation(config, pointer, message, f'write a value such as "{choices[0]}"')


@configs.rule("PREC014", ERROR, "parse", deepspeed("runtime/config.py:223"))
def communication_type_is_known(config: Config) -> Violations:
    """Gradients are communicated in fp16, bf16 or fp32.
    Prevents: ValueError: Invalid communication_data_type
    Fix: write "fp32", "bf16" or "fp16", or leave it out"""
    types = ("fp32", "bfp16" if config.version < _SPELLS_BF16 else "bf16", "fp16")
    for pointer in ("/communication_data_type", "/seq_parallel_communication_data_type"):
        is_left_to_fill = config.filled and config.value(pointer) == "auto"  # PARSE021 reports it
        if not is_left_to_fill:
            yield from _one_of(config, pointer, types, str.lower)


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
    has_others = isinstance(value, list) and not all(isinstance(item, str) for item in value)
    if config.schema.key(pointer) is not None and has_others:
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
    unusable = (
        *_unusable_values(config),
        *_unusable_sizes(config),
        *_unusable_in_zenflow(config),
        *_unusable_params(config),
    )
    for pointer, accepted, hint in unusable:
        message = f"{named(pointer)} must be {accepted}, not {shown(config.value(pointer))}"
        yield violation(config, pointer, message, hint)


class _Unusable(NamedTuple):
    """A value that the parser fails on."""

    pointer: str
    accepted: str  #: what would pass, in words
    hint: str


def _unusable_values(config: Config) -> Iterator[_Unusable]:
    """Switches, folders, objects and lists of another kind."""
    stage = config.value("/checkpoint/parallel_write/pipeline_stage", False)
    if isinstance(stage, int | float) and stage not in (0, 1):
        pointer = "/checkpoint/parallel_write/pipeline_stage"
        yield _Unusable(pointer, "true or false", "write false")
    for name in ("results_dir", "exps_dir"):
        pointer = f"/autotuning/{name}"
        folder = config.value(pointer)
        if config.has(pointer) and not folder and folder is not None:
            hint = f'write "autotuning_{name.partition("_")[0]}"'
            yield _Unusable(pointer, "a folder", hint)
    experts = config.value("/expert_parallel")
    if config.schema.section("/expert_parallel") and experts and not isinstance(experts, dict):
        hint = 'write {"enabled": true, "autoep_size": 8}'
        yield _Unusable("/expert_parallel", "an object", hint)
    pointer = "/data_types/keep_in_fp32_modules"
    modules = config.value(pointer, "auto")
    are_names = isinstance(modules, list) and all(isinstance(name, str) for name in modules)
    is_other = isinstance(modules, str | list) and modules != "auto" and not are_names
    if config.schema.key(pointer) is not None and is_other:
        yield _Unusable(pointer, '"auto" or a list of strings', 'write "auto"')


def _unusable_sizes(config: Config) -> Iterator[_Unusable]:
    """Sizes that are no integers."""
    size = config.value("/vocabulary_size")
    if size and isinstance(size, str | list | dict):
        hint = "remove it; DeepSpeed only warns by it"
        yield _Unusable("/vocabulary_size", "an integer", hint)

    pointer, whole = f"{_SAMPLING}/dynamic_batching", Shape(type=Type(name="int"))
    batching = config.block(pointer)
    names = ["min_batch_size", "max_batch_size"]
    if batching.get("enabled"):
        names.append("max_tokens")
    for name in names if config.schema.section(pointer) else ():
        # its reader calls int(), which cuts fractions off as pydantic 1 does
        value = batching.get(name, 1)
        if isinstance(value, str | float) and mismatch(value, whole, pydantic=1):
            yield _Unusable(f"{pointer}/{name}", "an integer", "write 1")

    degree = config.value("/sequence_parallel_size", 1)
    is_positive = isinstance(degree, int | float) and degree > 0
    if config.version >= FAILS_BY_SEQUENCE and not is_positive:
        yield _Unusable("/sequence_parallel_size", "an integer of at least 1", "write 1")


def _unusable_in_zenflow(config: Config) -> Iterator[_Unusable]:
    """Choices of ZenFlow."""
    zenflow = config.block(_ZENFLOW) if config.schema.section(_ZENFLOW) is not None else {}
    strategy = zenflow.get("select_strategy", "auto")
    if isinstance(strategy, str) and strategy not in ("auto", "step", "epoch"):
        pointer = f"{_ZENFLOW}/select_strategy"
        yield _Unusable(pointer, '"auto", "step" or "epoch"', 'write "auto"')
    for name in ("select_interval", "update_interval"):
        value = zenflow.get(name, "auto")
        is_text = isinstance(value, str) and value != "auto"
        is_too_small = name == "update_interval" and isinstance(value, int | float) and value < 1
        if is_text or is_too_small:
            accepted = '"auto" or an integer of at least 1'
            yield _Unusable(f"{_ZENFLOW}/{name}", accepted, 'write "auto"')


def _unusable_params(config: Config) -> Iterator[_Unusable]:
    """The params of an optimizer that the config names."""
    if config.value(OPTIMIZER) is None or config.value(PARAMS) is None:
        return
    if not isinstance(config.value(PARAMS), dict):
        yield _Unusable(PARAMS, "an object", 'write {"lr": 1e-4}')
    if not isinstance(config.block(PARAMS).get("max_grad_norm", 0), int | float):
        hint = "remove it, and write gradient_clipping at the top level"
        yield _Unusable(f"{PARAMS}/max_grad_norm", "a number", hint)


_SCHEDULE_NUMBERS: Final = (
    "warmup_num_steps",
    "total_num_steps",
    "warmup_min_lr",
    "warmup_max_lr",
)
#: Numbers that DeepSpeed hands on to PyTorch or computes with: it fails on "auto" there.
_NUMBERS: Final = (
    "/gradient_clipping",
    "/steps_per_print",
    "/gradient_predivide_factor",
    *(f"{PARAMS}/{name}" for name in ("lr", "betas", "eps", "weight_decay")),
    *(f"/scheduler/params/{name}" for name in _SCHEDULE_NUMBERS),
)
_MOST: Final = 200  #: values that are "auto"; more tell nothing new
_FILLER_NAMES: Final = {"huggingface": "Transformers' Trainer", "accelerate": "accelerate"}
#: What accelerate fills in, in its plugin (utils/dataclasses.py:1280-1292, :1326 @ 1.15.0) and in
#: `prepare` (accelerator.py:2223-2356).
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
        *(f"scheduler.params.{name}" for name in _SCHEDULE_NUMBERS),
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
    if config.filled:
        return
    unfilled = [
        pointer
        for pointer in _NUMBERS
        if config.value(pointer) == "auto" and not sets_key(pointer[1:], config.path)
    ]
    if config.consumer == "megatron-deepspeed":  # it brings its own optimizer and scheduler
        blocks = ("/optimizer/", "/scheduler/")
        unfilled = [pointer for pointer in unfilled if not pointer.startswith(blocks)]
    if unfilled:
        verb = "is" if len(unfilled) == 1 else "are"
        message = (
            f'{", ".join(map(named, unfilled))} {verb} "auto", which only Transformers and '
            "accelerate fill in"
        )
        hint = "write a value, or pass --consumer huggingface if the Trainer reads this file"
        yield violation(config, unfilled[0], message, hint)


@configs.rule("PARSE021", ERROR, "init", accelerate("utils/dataclasses.py:1357-1374"))
def fillers_know_the_key(config: Config) -> Violations:
    """A key that is "auto" is one that Transformers or accelerate fill in.
    Prevents: ValueError: `zero_optimization.overlap_comm` not found in kwargs. Please specify it
    without `auto`
    Fix: write a value, or leave the key out
    """
    if config.consumer not in _FILLER_NAMES:
        return
    filled_keys = _BY_TRANSFORMERS if config.consumer == "huggingface" else _BY_ACCELERATE
    root = config.schema.section("")
    known_names = root.keys if root is not None else ()
    unknown_sections = set[str]()
    removed_sections = config.schema.removed.get("", ())  # of which VER001 says that they are gone
    is_certain = _surely_fails(config)
    for pointer in islice(_autos("", config.block("")), _MOST):
        key = pointer[1:].replace("/", ".")
        top = key.partition(".")[0]
        if key in filled_keys or top in unknown_sections or top in removed_sections:
            continue
        severity = None if is_certain else Severity.NOTE
        # Of a section that DeepSpeed lacks the name is what is wrong.
        section = f"/{escape(top)}"
        if top != key and config.schema.key(section) is None:
            unknown_sections.add(top)
            if any(is_slip(top, name) for name in known_names):
                continue  # PARSE004 reports it
            message = (
                f"DeepSpeed has no section {named(section)}, so nothing fills in "
                'what is "auto" in it'
            )
            hint = "correct its name, or remove it"
            yield violation(config, section, message, hint, severity=severity)
            continue
        filler = _FILLER_NAMES[config.consumer]
        message = f'{named(pointer)} is "auto", which {filler} does not fill in here'
        # `accelerate launch` may start a script with a Trainer, which has filled it in.
        if key in _BY_TRANSFORMERS:
            severity, message = Severity.NOTE, f"{message}, unless Transformers' Trainer runs"
        hint = "write a value, or remove the key"
        yield violation(config, pointer, message, hint, severity=severity)


def _surely_fails(config: Config) -> bool:
    """Whether accelerate surely gets the config, which refuses an "auto" that is left."""
    if config.guessed:
        return False
    if config.consumer != "huggingface":
        return True
    release = release_of("transformers", config.path)
    return release is None or release.certain(lambda version: version >= _CHECKED_BY_ACCELERATE)


def _autos(pointer: str, block: Mapping[str, Any]) -> Iterator[str]:
    """Pointers of the values that are "auto"; those in lists are left out."""
    for name, value in block.items():
        place = f"{pointer}/{escape(name)}"
        if isinstance(value, dict):
            yield from _autos(place, value)
        elif value == "auto":
            yield place
