"""Rules on single values of overrides that no release reads, and on words of a launch line that its
program or Hydra refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final

from ...catalog.names import closest, is_swapped, most_like
from ...findings import ERROR, WARNING, Location, Severity, Violation, Violations
from ...numerals import is_whole
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...submission.repository import files_started
from ...text.wording import listed, shortened
from ..launching.written_parser import WrittenParser, written_parser
from ..megatron.options import LM, option_table
from .keys import LENGTHS, UNSAID, key_of
from .overrides import GONE, SHORT, SWITCHES, Bounds, BridgeOverrides, Override, recipe_bounds
from .rules import (
    BRIDGE,
    OVERRIDES,
    certain_of,
    is_a_letter_away,
    is_newer,
    outside,
    severity_of_program,
)

_PROGRAM: Final = "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py @ v0.3.1, v0.6.0"
#: Options with a value that set no key; `--dataset` is another.
_OTHERS: Final = frozenset({"--model", "--recipe", "--mode", "--step-func", "--step_func"})
_OPTIONS: Final = frozenset({*SHORT, *SWITCHES, *GONE, *_OTHERS, "--dataset"})
_VALUED: Final = frozenset({*SHORT, *_OTHERS, "--dataset"})
_STRICT: Final = (0, 6)  #: the first release without the options of `GONE`
#: How alike an option or data must be to be meant, by `most_like`: one letter in five differs.
_ALIKE: Final = 0.8
_COPIES_LENGTH: Final = (0, 4)  #: the first release whose program sets the model's length
#: The releases with options that not every release has.
_RELEASES: Final[Mapping[str, Bounds]] = {
    **dict.fromkeys((*SHORT, *SWITCHES, "--model", "--step-func"), (_STRICT, None)),
    **dict.fromkeys(("--seq_length", "-h", "--help"), (None, None)),
    "--dataset": ((0, 4), None),
}
#: Patterns of layers: a number, or a list of one number a layer.
_PATTERNS: Final = (
    "moe_layer_freq",
    "linear_attention_freq",
    "window_attn_skip_freq",
    "no_rope_freq",
)
_LIST: Final = "write the list, as [0,1,1,1]"
#: What a block of comm_overlap sets in the model: the first is needed, others are else false.
_OVERLAPS: Final = ("tp_comm_overlap", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
#: Signs that Hydra's words may have, besides letters and digits.
_OF_WORDS: Final = frozenset(" \t_/-+.$%*@?|:\\")
#: Signs that a word may have behind a backslash.
_KEPT: Final = frozenset("()[]{}:=, \t\\")
#: A function of Hydra's grammar, by which a value may be made.
_FUNCTION: Final = lazy_pattern(
    r"(?:int|str|bool|float|choice|range|interval|tag|sort|shuffle|glob|json_str|extend_list)[ ]?\("
)
#: Keys of which any other value stops the run: when the config is completed, the optimizer made,
#: or the first layer built or computed.
#:
#: **Source**: megatron/core/transformer/transformer_config.py (__post_init__), moe/moe_layer.py,
#: moe/moe_utils.py, optimizer/__init__.py, optimizer_param_scheduler.py @ core_v0.19.0.
_STOP: Final = frozenset(
    {
        "model.recompute_granularity",
        "model.cuda_graph_impl",
        "model.moe_token_dispatcher_type",
        "model.moe_router_score_function",
        "optimizer.optimizer",
        "scheduler.lr_decay_style",
        "scheduler.weight_decay_incr_style",
        *(f"optimizer.{name}_dtype" for name in ("exp_avg", "exp_avg_sq", "main_grads")),
    }
)
#: Names of blocks of a precision, as the config has them; it takes hyphens in them as well.
_PRECISIONS: Final = frozenset(
    {
        "bf16_mixed",
        "bf16_with_fp8_current_scaling_mixed",
        "bf16_with_fp8_delayed_scaling_mixed",
        "bf16_with_fp8_subchannel_scaling_mixed",
        "bf16_with_mxfp8_mixed",
        "fp16_mixed",
        "fp16_with_fp8_current_scaling_mixed",
        "fp16_with_fp8_delayed_scaling_mixed",
        "fp16_with_fp8_subchannel_scaling_mixed",
        "fp16_with_mxfp8_mixed",
        "bf16_with_nvfp4_mixed",
        "nanov2_bf16_with_fp8_current_scaling_mixed",
        "nemotron_3_super_bf16_with_nvfp4_mixed",
        "nemotron_h_bf16_with_fp8_current_scaling_mixed",
    }
)
#: Kinds of data by what they are for.
_DATA: Final[Mapping[str, str]] = {
    **dict.fromkeys(("mock", "megatron-indexed"), "pretraining"),
    **dict.fromkeys(
        ("squad", "tulu3", "openmathinstruct2", "openmathinstruct2-thinking", "gsm8k"),
        "fine-tuning",
    ),
    "local-jsonl": "fine-tuning",
}
#: Other kinds of data that some release has: of 0.6 and later, and before.
_OTHER_DATA: Final = frozenset(
    {
        "energon",
        "local-vlm",
        "cord-v2",
        "llava-video-178k",
        "medpix",
        "raven",
        "rdr",
        "llm-pretrain",
        "llm-pretrain-mock",
        "llm-finetune",
        "llm-finetune-preloaded",
        "vlm-energon",
        "vlm-hf",
        "vlm-preloaded",
    }
)


#: Choices that aren't those of Megatron-LM's option: types, as torch and Megatron-Bridge name them,
#: and how the weight decay grows.
#:
#: **Source**: megatron/core/optimizer_param_scheduler.py:200-216 @ core_v0.19.0;
#: src/megatron/bridge/utils/activation_map.py:96-115 @ v0.6.0.
_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduler.weight_decay_incr_style": ("constant", "linear", "cosine"),
    **dict.fromkeys(
        [
            f"optimizer.{name}_dtype"
            for name in ("exp_avg", "exp_avg_sq", "main_grads", "main_params")
        ],
        (
            "fp32",
            "fp16",
            "bf16",
            "fp8",
            "float32",
            "float16",
            "bfloat16",
            "float",
            "half",
            "uint8",
            "float8_e4m3fn",
            "float8_e5m2",
        ),
    ),
}


@lru_cache(maxsize=1)
def _choices() -> Mapping[str, tuple[str, ...]]:
    """The values of each key that some release of Megatron-LM has a choice of.

    A text chooses no backend of attention, which BRG012 says, and any type but two leaves the
    router's as it is.
    """
    table = option_table(LM)
    left_out = {*UNSAID, "--attention-backend", "--moe-router-dtype"}
    options = (table.get(name) for name in table.rows if name not in left_out)
    choices_by_key = {
        key_of(option.name): tuple(map(str, option.choices))
        for option in options
        if option is not None and option.choices
    }
    return {**choices_by_key, **_MORE}


def _is_text(override: Override) -> bool:
    """Return whether a value is one word that Hydra takes as it is."""
    text = override.text
    is_plain = text.replace("_", "").replace("-", "").isalnum() and not is_whole(text[:1])
    return is_plain and text.isascii() and not override.is_null


@OVERRIDES.rule(
    "BRG028",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/training/arguments.py (choices), megatron/core @ core_v0.19.0; "
    f"{BRIDGE}training/mixed_precision.py:432-448 @ v0.6.0",
)
def choices_are_known(overrides: BridgeOverrides) -> Violations:
    """A value of which there is a choice is one that some release reads.
    Prevents: ValueError: Unknown mixed-precision recipe; Exception: decay style is not supported.
    A warning where a value that nobody knows has no effect, or is only met when it is used.
    Fix: write one of the values
    """
    for override in overrides.last.values():
        if override.sign == "~" or not (_is_text(override) or override.is_blank):
            continue
        choices, text = _choices().get(override.key, ()), override.text
        if override.key == "mixed_precision":
            choices, text = tuple(sorted(_PRECISIONS)), text.replace("-", "_")
        if not choices or text in choices:
            continue
        near = f"{text}_mixed" if f"{text}_mixed" in choices else closest(text, choices)
        hint = f"did you mean {near}?" if near else f"write {listed(choices)}"
        message = f"{override.shown} is no value that Megatron-Bridge reads"
        if override.is_blank:
            message, hint = f"{override.key} has no value", f"write {listed(choices)}"
        is_certain = not overrides.is_own and not is_newer(overrides)
        severity = _severity(override.key) if is_certain else WARNING
        yield Violation(override.where, message, hint, severity=severity)


def _severity(key: str) -> Severity:
    """An error where any other value of a key stops the run."""
    return ERROR if key in _STOP or key == "mixed_precision" else WARNING


@OVERRIDES.rule("BRG029", ERROR, "init", f"{_PROGRAM} (_collect_overrides)")
def words_are_read(overrides: BridgeOverrides) -> Violations:
    """Each word of run_recipe.py is one of its options, the value of one, or KEY=VALUE.
    Prevents: error: Unknown option; error: Expected override in KEY=VALUE form. A warning where a
    checkout may have options of its own; where it is here, its parser decides.
    Fix: correct the word, or remove it
    """
    launch = overrides.launch
    if overrides.is_own or not (launch is None or overrides.is_public):
        return
    # The first stops the program; the others may be its parts, as in `KEY = VALUE`.
    strays = [(text, where) for text, where in overrides.strays if text not in ("", "--")]
    if strays:
        text, where = strays[0]
        message = f"{shortened(text)} is neither an option of run_recipe.py nor KEY=VALUE"
        is_hyphened = text.startswith("-") and "." in text
        hint = "without hyphens" if is_hyphened else "without spaces"
        yield Violation(where, message, f"write KEY=VALUE {hint}")
    if launch is None:
        return
    for name, word in overrides.options.items():
        yield from _refused_option(overrides, name, launch.script.locate(word))


def _refused_option(overrides: BridgeOverrides, name: str, where: Location) -> Violations:
    """An option of a launch line that run_recipe.py lacks, in the release or at all, or that has no
    value.
    """
    parser = _checkouts_parser(overrides.launch)
    if parser is not None and name.startswith("--"):
        yield from _refused_by(parser, overrides, name, where)
        return
    release = overrides.release
    came_or_went = outside(overrides, _RELEASES.get(name))
    if name in GONE and release.where and release.version >= _STRICT:
        message = f"{name} is no option of {release}: it went with 0.6"
        yield Violation(where, message, "remove it; --mode says what is trained")
    elif came_or_went:
        message = f"{name} is no option of {release}: {came_or_went}"
        key = SHORT.get(name)
        hint = f"write {key}=VALUE" if key else "remove it"
        yield Violation(where, message, hint, severity=severity_of_program(overrides))
    elif name not in _OPTIONS:
        key = name.lstrip("-").partition("=")[0]
        near = closest(name, tuple(sorted(_OPTIONS)), _ALIKE)
        is_slip = near is not None and (is_swapped(name, near) or is_a_letter_away(name, near))
        is_key = "." in key
        hint = f"did you mean {near}?" if near else "remove it"
        if is_key:
            hint = f"write {key}=VALUE, without hyphens"
        severity = None if is_slip or is_key else WARNING
        message = f"{shortened(name)} is no option of run_recipe.py"
        yield Violation(where, message, hint, severity=severity)
    elif name in overrides.bare and name in _VALUED:
        yield Violation(where, f"{name} has no value", "write one behind it")


def _checkouts_parser(launch: Launch | None) -> WrittenParser | None:
    """The parser of the program that a launch line starts, where it is surely the repository's."""
    if launch is None or not launch.starts_program_here:
        return None
    programs = files_started(launch)
    return written_parser(programs[0]) if programs else None


def _refused_by(
    parser: WrittenParser, overrides: BridgeOverrides, name: str, where: Location
) -> Violations:
    """An option that a checkout's run_recipe.py lacks, or of which it refuses the value."""
    meant = parser.meant_by(name)
    if not meant:
        key = name.lstrip("-")
        near = closest(name, tuple(chain.from_iterable(each.names for each in parser.options)))
        if "." in key:  # an override of the config, which has no hyphens
            hint = f"write {key}=VALUE, without hyphens"
        else:
            hint = f"did you mean {near}?" if near else "remove it"
        yield Violation(where, f"{shortened(name)} is no option of run_recipe.py", hint)
        return
    if confused := parser.confused(name):
        names = listed(option.names[0] for option in confused)
        yield Violation(where, f"{name} is short for {names}", "write the whole name")
    if len(meant) > 1:
        return
    (option,) = meant
    whole = option.names[-1]
    if name in overrides.bare and option.takes_value:
        yield Violation(where, f"{name} has no value", "write one behind it")
        return
    value = overrides.texts.get(name)
    if value is not None and option.choices is not None and value not in option.choices:
        # argparse takes the beginning of a name for the name.
        is_beginning = name not in option.names
        read_as = f", which argparse reads as {whole}" if is_beginning else ""
        message = f"{name} {shortened(value)}{read_as}: it accepts {listed(option.choices)}"
        near = most_like(value, option.choices, _ALIKE)
        if is_beginning:
            hint = f"write {whole} with one of them, or remove {name}"
        else:
            hint = f"write {near}" if near else "write one of them"
        yield Violation(where, message, hint)


@OVERRIDES.rule(
    "BRG030",
    ERROR,
    "init",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py:425-447 @ v0.6.0",
)
def data_fits_the_mode(overrides: BridgeOverrides) -> Violations:
    """A kind of data is known, and for the mode: pretraining reads no samples of a chat, and
    fine-tuning no stream of tokens.
    Prevents: error: argument --dataset: invalid choice; ValueError: the dataset does not fit the
    training mode
    Fix: use --dataset of the mode
    """
    launch, option = overrides.launch, overrides.options.get("--dataset")
    if launch is None or option is None or not overrides.is_public:
        return
    dataset, where = overrides.dataset, launch.script.locate(option)
    known_data = (*_DATA, *sorted(_OTHER_DATA))
    near = closest(dataset, known_data, _ALIKE) if dataset else None
    if near is not None and dataset not in known_data:
        is_slip = is_swapped(dataset, near) or is_a_letter_away(dataset, near)
        message = f"--dataset {dataset} is none of Megatron-Bridge's"
        severity = None if is_slip else WARNING
        yield Violation(where, message, f"did you mean {near}?", severity=severity)
    task_of_data = _DATA.get(dataset)
    task = "pretraining" if overrides.task == "pretraining" else "fine-tuning"
    if task_of_data is not None and overrides.task and task_of_data != task:
        message = f"--dataset {dataset} is data for {task_of_data}, and the run is {task}"
        fitting = listed(sorted(name for name, of_name in _DATA.items() if of_name == task))
        yield Violation(where, message, f"use {fitting}")


@OVERRIDES.rule(
    "BRG031",
    ERROR,
    "init",
    f"{BRIDGE}training/config.py:1498-1505, scripts/training/recipe_runner.py:442-458 @ v0.6.0; "
    "training/config.py:1601, :1250, :1376 @ v0.3.1, v0.4.2, v0.5.1; "
    "scripts/training/run_recipe.py:345, :353 @ v0.4.2, v0.5.1",
)
def lengths_are_one(overrides: BridgeOverrides) -> Violations:
    """The model's sequences are as long as the data's, which decide.
    Prevents: AssertionError: sequence length in model config and dataset config match. A warning
    since 0.4, whose run_recipe.py sets the model's to the data's without a word, and with a program
    of somebody's own, which may do the same.
    Fix: set dataset.seq_length alone
    """
    model, hint = overrides.get("model.seq_length"), "set dataset.seq_length alone"
    if model is None or model.integer is None:
        return
    data = overrides.first(LENGTHS)
    if data is not None and data.integer not in (None, model.integer):
        if _takes_the_datas(overrides):
            message = f"{model.shown} changes nothing: {data.shown} decides"
            yield Violation(model.where, message, hint, severity=WARNING)
        else:
            message = f"{model.shown} is not {data.shown}"
            yield certain_of(overrides, model, message, hint)
    elif data is None and overrides.lacks(*LENGTHS) and _takes_the_datas(overrides):
        message = f"{model.shown} changes nothing: the data's length decides, and is the recipe's"
        yield Violation(model.where, message, hint, severity=WARNING)


def _takes_the_datas(overrides: BridgeOverrides) -> bool:
    """Return whether the program sets the length of the model to that of the data."""
    return overrides.is_public and overrides.release.version >= _COPIES_LENGTH


@OVERRIDES.rule(
    "BRG032",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/optimizer_param_scheduler.py:149-152 @ core_v0.19.0",
)
def rates_are_in_order(overrides: BridgeOverrides) -> Violations:
    """The least learning rate is at least 0, and at most the highest.
    Prevents: AssertionError: assert self.max_lr >= self.min_lr
    Fix: make optimizer.min_lr at most optimizer.lr
    """
    least, most = overrides.get("optimizer.min_lr"), overrides.get("optimizer.lr")
    for rate in filter(None, (least, most)):
        if rate.number is not None and rate.number < 0:
            yield Violation(rate.where, f"{rate.shown} is below 0", "write a rate of at least 0")
            return
    if least is None or most is None or least.number is None or most.number is None:
        return
    if least.number > most.number:
        message = f"{least.shown} is above {most.shown}"
        yield Violation(least.where, message, f"make it at most {most.text}")


@OVERRIDES.rule(
    "BRG040",
    ERROR,
    "training",
    "NVIDIA/Megatron-LM megatron/core/optimizer_param_scheduler.py:168-169, :200-202 "
    "@ core_v0.19.0",
)
def decays_are_in_order(overrides: BridgeOverrides) -> Violations:
    """The weight decay of the schedule is at least 0, and where it is constant, one.
    Prevents: AssertionError: assert start_wd == end_wd, in the first step. A warning where the
    recipe says whether it is constant.
    Fix: set scheduler.start_weight_decay and scheduler.end_weight_decay to one value
    """
    start, end = (overrides.get(f"scheduler.{name}_weight_decay") for name in ("start", "end"))
    for decay in filter(None, (start, end)):
        if decay.number is not None and decay.number < 0:
            yield Violation(decay.where, f"{decay.shown} is below 0", "write at least 0")
            return
    style = overrides.get("scheduler.weight_decay_incr_style")
    is_constant = style is None or style.text == "constant"  # as every recipe has it
    if not is_constant or start is None or end is None:
        return
    severity = None if style is not None or overrides.is_plain else WARNING
    if start.number is not None and end.number is not None and start.number != end.number:
        message = f"{end.shown} is not {start.shown}, and the decay is constant"
        yield Violation(end.where, message, "set both to one value", severity=severity)


def _alternatives(text: str) -> Iterator[str]:
    """The parts of a value at commas outside brackets and quotes, and not behind a backslash."""
    depth, quote, part, is_kept = 0, "", "", False
    for letter in text:
        if is_kept:
            is_kept = False
        elif letter == "\\":
            is_kept = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth == 0:
            yield part
            part = ""
            continue
        part += letter
    yield part


def _is_open(text: str) -> bool:
    """Return whether a list or mapping has more brackets opened than closed, outside quotes."""
    depth, quote, is_kept = 0, "", False
    for letter in text:
        if is_kept or letter == "\\":
            is_kept = not is_kept
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
    return depth > 0


def _stray_letter(text: str) -> str:
    """The first letter of a value that no word of Hydra's has; empty where there is none, or the
    value is no word: it is quoted, a list, a mapping or a function.
    """
    if text.startswith(("'", '"', "[", "{")) or _FUNCTION.match(text):
        return ""
    is_kept = False
    for letter in text:
        is_part = letter in _OF_WORDS or (letter.isascii() and letter.isalnum())
        if not is_part and not (is_kept and letter in _KEPT):
            return letter
        is_kept = letter == "\\" and not is_kept
    return ""


@OVERRIDES.rule(
    "BRG033",
    ERROR,
    "init",
    "facebookresearch/hydra hydra/grammar/OverrideParser.g4 (simpleChoiceSweep), OverrideLexer.g4 "
    f"@ 1.3.2; {BRIDGE}training/utils/omegaconf_utils.py:163-185 @ v0.6.0",
)
def words_are_hydras(overrides: BridgeOverrides) -> Violations:
    """Commas, brackets, equals signs and letters beyond A to Z are in quotes of the value's own.
    Prevents: OverridesError: Failed to parse Hydra overrides. What stands between commas is a
    choice to Hydra, which is refused.
    Fix: write 'VALUE' with quotes within those of the shell, or [A,B] of a list
    """
    for override in overrides.given:
        text = override.text
        if not override.is_word or "$" in text:
            continue
        hint = f"write \"{override.key}='{text}'\"" if "'" not in text else "quote all of it"
        stray_letter = _stray_letter(text)
        if "," in text and len(list(_alternatives(text))) > 1:
            message = f"{override.shown} is a choice among values to Hydra, which is refused"
            hint = f"{hint}, or [{text}] where it is a list"
            yield certain_of(overrides, override, message, hint)
        elif text.startswith(("[", "{")) and _is_open(text):
            message = f"{override.shown} is refused by Hydra: a bracket is not closed"
            yield certain_of(overrides, override, message, "close it")
        elif stray_letter:
            message = f"{override.shown} is refused by Hydra: {stray_letter} is not quoted"
            is_pattern = override.key.partition(".")[2] in _PATTERNS
            yield certain_of(overrides, override, message, _LIST if is_pattern else hint)


@OVERRIDES.rule(
    "BRG034",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py (__post_init__) "
    "@ core_v0.19.0",
)
def full_recomputation_has_a_method(overrides: BridgeOverrides) -> Violations:
    """Full recomputation has a method and a number of layers.
    Prevents: ValueError: Using recompute_granularity: full so recompute_method must be "block" or
    "uniform"
    Fix: add model.recompute_method=uniform and model.recompute_num_layers=1
    """
    granularity = overrides.get("model.recompute_granularity")
    if granularity is None or granularity.text != "full":
        return
    for name, value in (("method", "uniform"), ("num_layers", "1")):
        key = f"model.recompute_{name}"
        override = overrides.get(key)
        is_lacking = override is None and overrides.is_plain and overrides.lacks(key)
        if is_lacking or (override is not None and override.is_null):
            message = f"{granularity.shown} has no {key}"
            where = granularity.where if override is None else override.where
            yield Violation(where, message, f"set {key}={value}")


def _is_recipe_known(overrides: BridgeOverrides) -> bool:
    """Return whether the recipe is one whose own values are known."""
    return overrides.is_plain or overrides.model is not None


def _has_checkpoints(overrides: BridgeOverrides) -> bool:
    """Return whether checkpoints are surely saved or loaded; recipes do both."""
    keys = ("checkpoint.save", "checkpoint.load")
    if _is_recipe_known(overrides) and any(map(overrides.lacks, keys)):
        return True
    folders = filter(None, map(overrides.get, keys))
    return any(folder.text and not folder.is_null for folder in folders)


@OVERRIDES.rule("BRG035", ERROR, "init", f"{BRIDGE}training/config.py:1097-1100, :1386 @ v0.6.0")
def formats_fit_the_sharding(overrides: BridgeOverrides) -> Violations:
    """Megatron-FSDP saves and loads checkpoints as fsdp_dtensor, and nothing else does.
    Prevents: AssertionError: Megatron-FSDP requires the fsdp_dtensor checkpointing format!
    Fix: set checkpoint.ckpt_format=fsdp_dtensor with ddp.use_megatron_fsdp=true
    """
    fsdp = overrides.get("ddp.use_megatron_fsdp")
    ckpt_format = overrides.get("checkpoint.ckpt_format")
    if fsdp is None or not _has_checkpoints(overrides):
        return
    is_on, is_off = fsdp.text.lower() == "true", fsdp.text.lower() == "false"
    if ckpt_format is None:
        has_recipes_format = _is_recipe_known(overrides) and overrides.lacks(
            "checkpoint.ckpt_format"
        )
        if is_on and has_recipes_format:
            message = f"{fsdp.shown} is refused with the recipe's checkpoint.ckpt_format"
            yield Violation(fsdp.where, message, "set checkpoint.ckpt_format=fsdp_dtensor")
        return
    message = f"{ckpt_format.shown} is refused with {fsdp.shown}"
    if is_on and ckpt_format.text in ("torch", "torch_dist"):
        yield Violation(ckpt_format.where, message, "set checkpoint.ckpt_format=fsdp_dtensor")
    elif is_off and ckpt_format.text == "fsdp_dtensor":
        yield Violation(ckpt_format.where, message, "set checkpoint.ckpt_format=torch_dist")


@OVERRIDES.rule(
    "BRG036",
    ERROR,
    "init",
    f"{BRIDGE}training/config.py:1483, training/finetune.py:50, recipes/common.py:220, :319 "
    "@ v0.6.0; recipes/common.py:210, :305 @ v0.3.1",
)
def tuned_weights_are_named(overrides: BridgeOverrides) -> Violations:
    """Fine-tuning names the weights that it starts from: no recipe does.
    Prevents: AssertionError: PEFT requires a pretrained checkpoint path. A warning where all
    weights are trained: without a checkpoint to go on from, they would be random.
    Fix: set checkpoint.pretrained_checkpoint
    """
    launch, task, key = overrides.launch, overrides.task, "checkpoint.pretrained_checkpoint"
    is_known = bool(overrides.stem) or overrides.recipe in recipe_bounds()
    contradicts_mode = "_pretrain_" in overrides.recipe  # which another rule reports
    if launch is None or launch.program is None or not overrides.is_public:
        return
    weights = overrides.get(key)
    are_named = not overrides.lacks(key) if weights is None else not weights.is_null
    if not is_known or contradicts_mode or are_named:
        return
    where = launch.script.locate(launch.program) if weights is None else weights.where
    hint = f"set {key} to the model's weights"
    if task == "adapters":
        yield Violation(where, "adapters have no weights to start from", hint)
        return
    load, save = overrides.get("checkpoint.load"), overrides.get("checkpoint.save")
    loads = load is not None and not load.is_null
    # Where the run saves, there is nothing before its first start.
    loads_its_own = load is not None and save is not None and save.text == load.text
    if task == "fine-tuning" and (not loads or loads_its_own):
        reason = "checkpoint.load is where it saves" if loads else "no checkpoint is given either"
        message = f"fine-tuning first starts from random weights: none are named, and {reason}"
        yield Violation(where, message, hint, severity=WARNING)


@OVERRIDES.rule(
    "BRG037",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/models/gpt/gpt_layer_specs.py:647-660, "
    "transformer/utils.py:503-511, transformer/transformer_config.py:2813-2830 @ core_v0.19.0",
)
def patterns_are_lists(overrides: BridgeOverrides) -> Violations:
    """A pattern of layers is a number, or a list of one number a layer, and no text.
    Prevents: ValueError: Invalid moe_layer_freq. Megatron-LM computes such a text of its own
    arguments; Megatron-Core and Megatron-Bridge don't.
    Fix: write the list, as [0,1,1,1]
    """
    for name in _PATTERNS:
        override = overrides.get(f"model.{name}")
        if override is None or "$" in override.text:
            continue
        text = override.text.strip("'\"")
        is_text = text != override.text or not override.is_word
        if is_text and "[" in text and not set(text).isdisjoint("*+("):
            message = f"{override.shown} is a text, which nothing computes"
            yield certain_of(overrides, override, message, _LIST)


@OVERRIDES.rule("BRG038", ERROR, "silent", f"{BRIDGE}training/comm_overlap.py:425-560 @ v0.6.0")
def overlaps_are_the_blocks(overrides: BridgeOverrides) -> Violations:
    """A block of comm_overlap says tp_comm_overlap, and each overlap that the model is to have.
    Prevents: AttributeError: 'dict' object has no attribute 'data_parallel_size', without
    tp_comm_overlap; no error: any other overlap is set to false in the model. A warning with
    recipes of models, whose own block may say it.
    Fix: say it in the block
    """
    block = overrides.get("comm_overlap")
    if block is None or not block.text.startswith("{"):
        return
    severity = None if overrides.is_plain and not overrides.is_own else WARNING
    needed, *others = _OVERLAPS
    if block.is_word and f"{needed}:" not in block.text:
        # a recipe's own block takes no mapping with a target in its place
        message = f"comm_overlap has no {needed}, without which it is no config"
        yield certain_of(overrides, block, message, f"write {needed}:false in the block")
        return
    for name in others:
        override = overrides.get(f"model.{name}")
        is_said = name in block.text or overrides.get(f"comm_overlap.{name}") is not None
        if override is not None and override.text.lower() == "true" and not is_said:
            message = f"{override.shown} has no effect: comm_overlap sets it to false"
            hint = f"write {name}:true in the block"
            yield Violation(override.where, message, hint, severity=severity)
