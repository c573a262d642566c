"""Rules on overrides that Megatron-Bridge refuses, and on those that it takes without an effect.

Here are keys and their types, degrees of parallelism, recipes and modes; `value_rules` has single
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd
from typing import Final, NamedTuple

from ...catalog.names import closest, is_swapped
from ...findings import ERROR, NOTE, WARNING, Location, Severity, Violation, Violations
from ...patterns import lazy_pattern
from ...rules.violations import did_you_mean, divisors, listed, nearest
from ...submission.launches import Launch
from ...submission.subjects import Subject
from ...text.wording import dots
from ..megatron.options import LM, option_table
from ..megatron.run import chunks_of
from .keys import LENGTHS, UNSAID, key_of
from .overrides import (
    KNOWN,
    TASKS,
    Bounds,
    BridgeOverrides,
    BridgeRun,
    Override,
    key_bounds,
    known_keys,
    known_part_of,
    product_of,
    recipe_bounds,
    runs_in,
)

BRIDGE: Final = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/"
_READS: Final = ("launch script", "Megatron-Bridge overrides", "Megatron-Bridge config")
_runs: Final = Subject[BridgeRun](_READS, runs_in)
OVERRIDES: Final = Subject[BridgeOverrides](
    _READS, lambda submission: (run.overrides for run in runs_in(submission))
)
_TP = "model.tensor_model_parallel_size"
_PP = "model.pipeline_model_parallel_size"
_CP = "model.context_parallel_size"
_VP = "model.virtual_pipeline_model_parallel_size"
_EP, _ETP = "model.expert_model_parallel_size", "model.expert_tensor_parallel_size"
#: Numbers that are counts or sizes: at least 1.
_SIZES: Final = frozenset(
    {
        _TP,
        _PP,
        _CP,
        _VP,
        _EP,
        _ETP,
        "model.num_layers",
        "model.hidden_size",
        "model.num_attention_heads",
        "train.micro_batch_size",
        "train.global_batch_size",
        "train.train_iters",
        "dataset.seq_length",
        "logger.log_interval",
    }
)
#: Those that every run computes with, so that null is none of their values.
_NEEDED: Final = frozenset({_TP, _PP, _CP, "train.micro_batch_size", "train.global_batch_size"})
#: Those that a model without a recipe of its own is made of, which are needed as well.
_NEEDED_PLAIN: Final = frozenset(
    {"model.num_layers", "model.hidden_size", "model.num_attention_heads"}
)
#: What a value has to be, by its kind.
_KINDS: Final = {"int": "a whole number", "float": "a number", "bool": "true or false"}
#: Keys that say which kinds of layers a model has.
_KINDS_OF_LAYERS: Final = (
    "model.moe_layer_freq",
    "model.multi_latent_attention",
    "model.transformer_layer_spec",
    "model.qk_l2_norm",
    "model.experimental_attention_variant",
    "model.linear_attention_freq",
)
#: Degrees whose product divides the GPUs, each of them by itself too.
_GRIDS: Final = (
    ((_TP, _PP, _CP), "tensor × pipeline × context"),
    ((_EP, _ETP, _PP), "expert × expert tensor × pipeline"),
)
_LAYOUT: Final = "model.pipeline_model_parallel_layout"
#: Fields of the model with which stages have unlike numbers of layers.
_UNEVEN: Final = (
    _LAYOUT,
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
)
#: Fields of the model with which one of its ends counts as a layer more.
_COUNTED: Final = (
    "model.account_for_embedding_in_pipeline_split",
    "model.account_for_loss_in_pipeline_split",
)
_CHECKS_MODES: Final = (0, 6)  #: the first release
_DECAYS: Final = ("scheduler.start_weight_decay", "scheduler.end_weight_decay")
_RECIPES_DECAY: Final = 0.033  #: which the recipes give the scheduler, but for one model's
#: How alike names must be for one to be meant by the other.
_LIKE_A_FIELD: Final = 0.9
_LIKE_A_RECIPE: Final = 0.9
#: Recipes whose names begin so may have another weight decay, and that weight decay.
#:
#: **Source**: src/megatron/bridge/recipes/nemotronh/ @ v0.3.1 to v0.6.0
_OTHER_DECAY: Final = ("nemotron_3", 0.1)
_IGNORES_RAMPS: Final = (0, 5)  #: the first release
_CHANGES_FOLDER: Final = (0, 6)  #: the first release
#: The first and the last release with each mode. Between them, the program has no --mode.
_MODES: Final[dict[str, Bounds]] = {
    "pretrain": (None, None),
    "finetune": (None, (0, 3)),
    **dict.fromkeys(("sft", "lora", "dora"), ((0, 6), None)),
}
#: How a recipe's name ends behind its stem, by the mode: `llama3_8b_peft_config` for lora.
_OF_STEMS: Final = {"pretrain": "pretrain", "sft": "sft", "lora": "peft", "dora": "peft"}
_WITHOUT_MODES: Final = ((0, 4), (0, 5))
#: How files begin in which a release is named that may not be the one that runs.
_UNSURE: Final = ("package_info", "readme", "install")
_DIGITS: Final = lazy_pattern(r"[0-9]+")
_LONG: Final = 8  #: letters of a name that another one is only by a slip
#: Sections of which a recipe of somebody's own may have a class of its own.
_OF_RECIPES: Final = frozenset({"model", "dataset", "peft"})


def _at(override: Override, message: str, hint: str) -> Violation:
    return Violation(override.where, message, hint)


def certain_of(
    overrides: BridgeOverrides, override: Override, message: str, hint: str
) -> Violation:
    """A violation that is certain of Megatron-Bridge's own programs alone."""
    severity = WARNING if overrides.is_own else None
    return Violation(override.where, message, hint, severity=severity)


def _kind(override: Override, is_plain: bool) -> str | None:
    """The kind of a key's value; None of an unknown key, empty where nothing is known of it."""
    section, _, rest = override.key.partition(".")
    sections, field = known_keys(), rest.partition(".")[0]
    if section not in sections[""]:
        return None
    if not field or section not in sections:
        return ""
    if section in _OF_RECIPES and not is_plain and field not in sections[section]:
        return ""
    fields = sections["plain model" if is_plain and section == "model" else section]
    if field in fields and rest != field:
        return ""  # a key within the field
    return fields.get(field)


def _is_filled_in(text: str) -> bool:
    """Return whether another value may stand for a text in the run: a variable, the `{name}` of a
    template, or an object that is made of a mapping.
    """
    if text.startswith("{"):
        return text != "{}" and (":" not in text or "$" in text or "_target_" in text)
    return text.startswith(("$", "'$"))


def _hint(overrides: BridgeOverrides, override: Override) -> str:
    """What to write for a field that isn't known; empty where a recipe may have it.

    It is a slip of a known field by one letter, or an option of Megatron-LM, which another key or
    none says. The recipe of a model that is known has the fields of the plain model.
    """
    section, _, rest = override.key.partition(".")
    has_plain = section == "model" and overrides.model is not None
    fields = known_keys().get("plain model" if has_plain else section, {})
    field = rest.partition(".")[0]
    if section not in _OF_RECIPES or field in fields or len(field) < _LONG:
        return ""
    near = closest(field, tuple(fields), _LIKE_A_FIELD)
    if near is not None and (is_swapped(field, near) or is_a_letter_away(field, near)):
        _, *within = rest.split(".")
        return did_you_mean(".".join((section, near, *within)), overrides.last)
    option = f"--{field.replace('_', '-')}"
    is_certain = section == "model" and _has_bridges_recipe(overrides)  # another may have it
    if not is_certain or option not in option_table(LM).rows:
        return ""
    key = key_of(option)
    if option in UNSAID or key == override.key:
        key = _in_another_section(section, field)
    return f"did you mean {key}?" if key else "remove it: it is an option of Megatron-LM alone"


def _in_another_section(section: str, field: str) -> str:
    """The key of a field of that name in another section; empty where there is none."""
    sections = known_keys()
    for name, fields in sections.items():
        if name in sections[""] and name != section and field in fields:
            return f"{name}.{field}"
    return ""


def _has_bridges_recipe(overrides: BridgeOverrides) -> bool:
    """Return whether the recipe is one of Megatron-Bridge's, started by its own program."""
    suffix = f"_{_OF_STEMS[overrides.mode]}_config" if overrides.mode in _OF_STEMS else ""
    name = overrides.recipe or f"{overrides.stem}{suffix}"
    return overrides.is_public and name in recipe_bounds()


def is_a_letter_away(name: str, other: str) -> bool:
    """Return whether two names differ in one letter: it is missing, or another."""
    short, long = sorted((name, other), key=len)
    pairs = enumerate(zip(short, long, strict=False))
    first_difference = next((index for index, (a, b) in pairs if a != b), len(short))
    rest_of_long = long[first_difference + 1 :]
    is_replaced = len(short) == len(long)
    rest_of_short = short[first_difference + 1 :] if is_replaced else short[first_difference:]
    return rest_of_short == rest_of_long


def is_newer(overrides: BridgeOverrides) -> bool:
    """Return whether the release is named, and newer than those whose keys are known."""
    return bool(overrides.release.where) and overrides.release.version[:2] > KNOWN


def _name_in_bounds(overrides: BridgeOverrides, override: Override) -> str:
    """The name under which the table of releases has an override's field, or its section."""
    section, _, rest = override.key.partition(".")
    if key_bounds().get(f".{section}"):
        return f".{section}"
    plain = "plain model" if overrides.is_plain and section == "model" else section
    return f"{plain}.{rest.partition('.')[0]}"


def is_sure_of_release(overrides: BridgeOverrides) -> bool:
    """Return whether the release that is named is surely the one that runs.

    A checkout may be between releases, or changed; prose is of what others run.
    """
    named_in = overrides.release.where.rpartition("/")[2].lower()
    return bool(named_in) and overrides.release.exact and not named_in.startswith(_UNSURE)


def severity_of_program(overrides: BridgeOverrides) -> Severity | None:
    """The severity of what the program of a release refuses: it may be another checkout's than
    the image's.
    """
    in_script = overrides.release.where.rpartition(":")[0] == overrides.path
    return WARNING if in_script else None


def outside(overrides: BridgeOverrides, bounds: Bounds | None) -> str:
    """What keeps the release that is named from having something: when it came or went."""
    if bounds is None or not is_sure_of_release(overrides) or is_newer(overrides):
        return ""
    version, (first, last) = overrides.release.version[:2], bounds
    if first is not None and version < first:
        return f"it came with {dots(first)}"
    return f"it went after {dots(last)}" if last is not None and version > last else ""


def _place_of(launch: Launch, text: str) -> Location | None:
    """The word of a launch that is a text, or ends in it behind an equals sign."""
    for word in launch.arguments:
        if word.value is not None and text in (word.value, word.value.partition("=")[2]):
            return launch.script.locate(word)
    return None


def _near_recipe(name: str) -> str | None:
    """The recipe of which a name is a slip, in letters: a digit is another model's."""
    near = closest(name, tuple(recipe_bounds()), _LIKE_A_RECIPE)
    if near is None or _DIGITS.findall(near) != _DIGITS.findall(name):
        return None
    return near if is_swapped(name, near) or is_a_letter_away(name, near) else None


@OVERRIDES.rule("BRG010", ERROR, "init", f"{BRIDGE}training/utils/omegaconf_utils.py @ v0.6.0")
def keys_are_known(overrides: BridgeOverrides) -> Violations:
    """Every key is one of the config's.
    Prevents: OverridesError: Could not override 'model.max_position_embeddings'. With + it is
    taken, and skipped with a warning. A key of a recipe's model that is a letter away from one of
    Megatron-Bridge's; a warning where the recipe isn't one of those, and may have its own class.
    Fix: correct the key, or remove it
    """
    for override in overrides.given:
        if _kind(override, overrides.is_plain) is None:
            yield _unknown_key(overrides, override)
        else:
            yield from _key_of_another(overrides, override)


def _key_of_another(overrides: BridgeOverrides, override: Override) -> Violations:
    """A key that another release has, or that only a recipe of somebody's own may have."""
    came_or_went = outside(overrides, key_bounds().get(_name_in_bounds(overrides, override)))
    if came_or_went:
        section = override.key.partition(".")[0]
        has_own_class = section in _OF_RECIPES and not overrides.is_plain
        severity = WARNING if has_own_class or overrides.is_own else None
        message = f"{override.key} is no key of {overrides.release}: {came_or_went}"
        yield Violation(override.where, message, "remove it", severity=severity)
        return
    hint = _hint(overrides, override)
    if hint:
        message = f"{override.key} is no key of Megatron-Bridge's own config"
        is_bridges = _has_bridges_recipe(overrides) and not is_newer(overrides)
        severity = None if is_bridges else WARNING
        yield Violation(override.where, message, hint, severity=severity)


def _unknown_key(overrides: BridgeOverrides, override: Override) -> Violation:
    section, _, field = override.key.partition(".")
    if field:
        plain = "plain model" if overrides.is_plain and section == "model" else section
        near = closest(field, tuple(known_keys().get(plain, ())))
        meant = f"{section}.{near}" if near else None
    else:
        meant = closest(section, tuple(known_keys()[""]))
    hint = did_you_mean(meant, overrides.last) if meant else "remove it"
    message = f"{override.key} is no key of Megatron-Bridge's config"
    severity = WARNING if overrides.is_own or is_newer(overrides) else None
    return Violation(override.where, message, hint, severity=severity)


@OVERRIDES.rule("BRG011", ERROR, "training", f"{BRIDGE}training/utils/omegaconf_utils.py @ v0.6.0")
def values_have_their_types(overrides: BridgeOverrides) -> Violations:
    """A number is written where the config has one, and true or false where it has a switch.
    Prevents: the config takes any value, and the run dies where it first computes with it.
    Fix: write a value of the type
    """
    for override in overrides.given:
        kind = _kind(override, overrides.is_plain) or ""
        is_needed = override.key in _NEEDED
        is_needed |= overrides.is_plain and override.key in _NEEDED_PLAIN
        if is_needed and override.is_null:
            yield _at(override, f"{override.shown} is no number", "write a number, or remove it")
        if override.text == "None" and kind not in _KINDS:
            message = f"{override.shown} is the text None, and not nothing"
            yield certain_of(overrides, override, message, "write null")
        if kind in _KINDS and override.sign != "~":  # which removes the key
            yield from _mistyped(override, kind)


def _mistyped(override: Override, kind: str) -> Violations:
    """A value that isn't of its kind, or a size below 1; a blank is none."""
    hint = f"write {_KINDS[kind]}"
    if override.is_blank:
        severity = WARNING if kind == "bool" else None  # which takes nothing for false
        yield Violation(override.where, f"{override.key} has no value", hint, severity=severity)
    if override.is_null or not override.text or _is_filled_in(override.text):
        return
    is_of_kind = {
        "int": override.integer is not None,
        "float": override.number is not None,
        "bool": override.text.lower() in ("true", "false"),
    }
    is_size = override.key in _SIZES and override.integer is not None
    if not is_of_kind[kind]:
        message = f"{override.shown} is not {_KINDS[kind]}"
        # Python takes any number, list or mapping for true or false, and any text for true.
        is_taken = override.integer is not None or override.text.lower() in ("yes", "on")
        is_taken = is_taken or override.text.startswith(("[", "{"))
        severity = WARNING if kind == "bool" and is_taken else None
        yield Violation(override.where, message, hint, severity=severity)
    elif is_size and (override.integer or 0) < 1:
        yield _at(override, f"{override.shown} is below 1", "write a number of at least 1")


@OVERRIDES.rule(
    "BRG012",
    ERROR,
    "silent",
    "NVIDIA/Megatron-LM megatron/core/models/common/language_module/language_module.py:108-147 "
    "@ core_v0.19.0",
)
def attention_is_an_enum(overrides: BridgeOverrides) -> Violations:
    """model.attention_backend is the enum's value, not a text.
    Prevents: No error: a text is equal to no backend, and has no effect.
    Fix: write model.attention_backend={_target_:megatron.core.transformer.enums.AttnBackend,
    _args_:[1],_call_:true}, where 1 is flash, 2 fused, 3 unfused, 4 local, 5 auto
    """
    override = overrides.get("model.attention_backend")
    text = "" if override is None or override.is_null else override.text.lower()
    # With a text, Transformer Engine chooses, as it does with auto.
    if override is not None and text.replace("_", "").isalpha() and text != "auto":
        enum = "{_target_:megatron.core.transformer.enums.AttnBackend,_args_:[1],_call_:true}"
        message = f"{override.shown} has no effect: a text is compared with an enum"
        yield certain_of(overrides, override, message, f"write {enum}, where 1 is flash")


@OVERRIDES.rule(
    "BRG013",
    ERROR,
    "silent",
    f"{BRIDGE}recipes/utils/optimizer_utils.py:111; NVIDIA/Megatron-LM "
    "megatron/core/optimizer_param_scheduler.py:184-202, :300 @ core_v0.19.0",
)
def weight_decay_is_the_schedule(overrides: BridgeOverrides) -> Violations:
    """A weight decay is also set in the scheduler, whose two keys decide.
    Prevents: No error: the run trains with the recipe's 0.033.
    Fix: set scheduler.start_weight_decay and scheduler.end_weight_decay to it
    """
    override = overrides.get("optimizer.weight_decay")
    name, other = _OTHER_DECAY
    is_other = (overrides.recipe or overrides.stem).startswith(name)
    decays = (None, _RECIPES_DECAY, other) if is_other else (None, _RECIPES_DECAY)
    if override is None or override.number in decays:
        return
    if overrides.lacks(*_DECAYS):
        decay = "the recipe's own" if is_other else _RECIPES_DECAY
        message = f"{override.shown} has no effect: the scheduler sets {decay} in each step"
        hint = f"add {' and '.join(f'{key}={override.text}' for key in _DECAYS)}"
        yield certain_of(overrides, override, message, hint)


@OVERRIDES.rule("BRG014", ERROR, "silent", f"{BRIDGE}training/mixed_precision.py:110-160 @ v0.6.0")
def gradients_are_the_precisions(overrides: BridgeOverrides) -> Violations:
    """The type of gradients is said in the block of the precision.
    Prevents: No error: mixed_precision overwrites ddp.grad_reduce_in_fp32. A warning with recipes
    of models, whose own block may say the same.
    Fix: set mixed_precision to a block with grad_reduce_in_fp32
    """
    override = overrides.get("ddp.grad_reduce_in_fp32")
    precision = overrides.get("mixed_precision")
    is_overwritten = precision is None or not precision.is_null
    if override is not None and is_overwritten and override.text.lower() == "false":
        block = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"
        message = f"{override.shown} has no effect: mixed_precision overwrites it"
        hint = (
            f"set mixed_precision={{_target_:{block},bf16:true,grad_reduce_in_fp32:false}} "
            "with its dtypes"
        )
        severity = None if overrides.is_plain else WARNING
        yield Violation(override.where, message, hint, severity=severity)


@OVERRIDES.rule("BRG015", ERROR, "init", f"{BRIDGE}training/config.py:433 @ v0.6.0")
def warm_up_is_said_once(overrides: BridgeOverrides) -> Violations:
    """A warm-up is a fraction of the steps or a number of them; recipes have a number.
    Prevents: AssertionError: Cannot specify lr_warmup_fraction with lr_warmup_iters
    Fix: add scheduler.lr_warmup_iters=0
    """
    override = overrides.get("scheduler.lr_warmup_fraction")
    steps = overrides.get("scheduler.lr_warmup_iters")
    if override is None or override.is_null:
        return
    has_steps = steps is not None and bool(steps.integer)
    if has_steps or (overrides.is_plain and overrides.lacks("scheduler.lr_warmup_iters")):
        count = steps.text if steps is not None else "500, the recipe's"
        message = f"{override.shown} stands beside lr_warmup_iters: {count}"
        yield _at(override, message, "add scheduler.lr_warmup_iters=0")


@OVERRIDES.rule("BRG016", ERROR, "init", f"{BRIDGE}training/config.py:477-482 @ v0.6.0")
def length_is_said_once(overrides: BridgeOverrides) -> Violations:
    """A length is steps or samples; recipes have steps.
    Prevents: AssertionError: Cannot specify more than one of train_iters, train_samples, or
    num_epochs; One of train_iters, train_samples, or num_epochs must be provided
    Fix: add train.train_iters=null, or write a length
    """
    override = overrides.get("train.train_samples")
    steps = overrides.get("train.train_iters")
    if override is None or override.is_null:
        epochs = overrides.get("train.num_epochs")
        has_epochs = epochs is not None and not epochs.is_null
        if steps is not None and steps.is_null and overrides.complete and not has_epochs:
            message = f"{steps.shown} leaves the run without a length"
            yield _at(steps, message, "write train.train_iters=N")
        return
    has_recipes_steps = steps is None and overrides.lacks("train.train_iters")
    has_own_steps = steps is not None and not steps.is_null
    if has_recipes_steps or has_own_steps:
        message = f"{override.shown} stands beside train.train_iters"
        yield _at(override, f"{message}, which every recipe has", "add train.train_iters=null")


@OVERRIDES.rule(
    "BRG017",
    ERROR,
    "silent",
    f"{BRIDGE}training/initialize.py:115 @ v0.6.0 and :117 @ v0.5.0; NVIDIA/Megatron-LM "
    "megatron/core/num_microbatches_calculator.py:80 @ core_v0.19.0",
)
def batch_does_not_grow(overrides: BridgeOverrides) -> Violations:
    """A batch that grows has no effect since Megatron-Bridge 0.5, which brings Megatron-Core 0.18.
    Prevents: No error: the batch is the same from the first step on.
    Fix: remove the override
    """
    release = overrides.release
    if not release.certain(lambda version: version >= _IGNORES_RAMPS):
        return

    if release.where:
        shown, hint, severity = str(release), "remove it", None
    else:
        shown, hint, severity = "Megatron-Bridge 0.5 and later", "in those remove it", WARNING
    for key in ("train.rampup_batch_size", "train.step_batch_size_schedule"):
        override = overrides.get(key)
        if override is not None and not override.is_null:
            message = f"{override.shown} has no effect with {shown}: no schedule is handed on"
            yield Violation(override.where, message, hint, severity=severity)


@OVERRIDES.rule(
    "BRG018",
    ERROR,
    "silent",
    f"{BRIDGE}models/gpt_provider.py:49-65, training/utils/omegaconf_utils.py:64, :100 @ v0.6.0",
)
def layers_are_the_recipes(overrides: BridgeOverrides) -> Violations:
    """Which layers a model has is the recipe's to say, and no override's.
    Prevents: No error: the plain recipe builds every layer alike, with grouped-query attention.
    Fix: use a recipe of such a model
    """
    if not overrides.is_plain:
        return
    for override in filter(None, map(overrides.get, _KINDS_OF_LAYERS)):
        # A list of ones says that every layer is alike.
        is_off = override.text.lower().strip("[1, ]") in ("", "null", "false")
        if not is_off:
            message = f"{override.shown} has no effect: the plain recipe builds every layer alike"
            yield _at(override, message, "use the recipe of such a model")


class _Undivided(NamedTuple):
    """A product of degrees that doesn't divide what it has to, and the override to change."""

    override: Override
    product: int
    total: int
    message: str


def _undivided(
    override: Override | None,
    product: int | None,
    total: int | None,
    name: str,
    unit: str,
    *,
    is_partial: bool = False,
) -> Iterator[_Undivided]:
    """A product that doesn't divide a total.

    `name` is what messages call the product, `unit` is the total's. Of a partial product there are
    further degrees that nobody knows.
    """
    if override is None or not override.integer or not product or not total or not total % product:
        return
    message = f"{name} {product} does not divide {total} {unit}"
    if is_partial and override.integer != product:
        message = f"{name} is a multiple of {product}, which does not divide {total} {unit}"
    elif is_partial:
        message = f"{override.shown} does not divide {total} {unit}, so {name} can't"
    yield _Undivided(override, product, total, message)


def _mended(places: Iterable[_Undivided]) -> Iterator[Violation]:
    """One violation for each override that doesn't divide, with values that divide everything."""
    by_override: dict[Location, list[_Undivided]] = {}
    for place in places:
        by_override.setdefault(place.override.where, []).append(place)
    for of_override in by_override.values():
        first = of_override[0]
        override = first.override
        value = override.integer or 1
        # A value fits that divides what the other degrees leave of every total.
        totals_and_others = [(each.total, each.product // value) for each in of_override]
        hint = f"change the other degrees too: with this one alone none divides {first.total}"
        if all(total % others == 0 for total, others in totals_and_others):
            fitting = divisors(gcd(*(total // others for total, others in totals_and_others)))
            name = override.key.rpartition(".")[2]
            hint = f"make {name} {listed(nearest(fitting, value, 4))}"
        yield _at(override, "; ".join(each.message for each in of_override), hint)


def _to_blame(
    overrides: BridgeOverrides, keys: Iterable[str], total: int | None
) -> Override | None:
    """The degree to change: the last without which the others divide the total, else the first."""
    degrees = [override for override in map(overrides.get, keys) if override and override.integer]
    product = known_part_of(overrides, (override.key for override in degrees))
    for override in reversed(degrees):
        degree = override.integer or 0
        if total and degree > 1 and total % (product // degree) == 0:
            return override
    return degrees[0] if degrees else None


@_runs.rule(
    "BRG020",
    ERROR,
    "init",
    f"{BRIDGE}training/config.py (get_data_parallel_size, validate) @ v0.6.0; NVIDIA/Megatron-LM "
    "megatron/core/parallel_state.py @ core_v0.19.0",
)
def degrees_divide(run: BridgeRun) -> Violations:
    """Degrees of parallelism divide the GPUs, the batch, the sequence, the model's heads and
    experts, and the layers.
    Prevents: AssertionError: world size is not divisible by total_model_size; experts and chunks of
    layers are looked at only when the model is built.
    Fix: choose degrees that divide
    """
    yield from _mended((*_undivided_gpus(run), *_undivided_layers(run.overrides)))
    yield from _unshared_batch(run)
    yield from _unlisted_chunks(run.overrides)

    chunks = run.overrides.get(_VP)
    if chunks is not None and chunks.integer and product_of(run.overrides, (_PP,)) == 1:
        message = f"{chunks.shown} is refused with one pipeline stage"
        yield _at(chunks, message, "remove it, or set model.pipeline_model_parallel_size")

    ring, lengths = run.overrides.get(_CP), run.overrides.first(LENGTHS)
    length = None if lengths is None else lengths.integer
    halves = 2 * (ring.integer or 0) if ring is not None else 0
    if ring is not None and halves > 2 and length and length % halves:
        message = f"2 × context = {halves} does not divide the sequence of {length} tokens"
        yield _at(ring, message, f"make the sequence a multiple of {halves}")


def _undivided_gpus(run: BridgeRun) -> Iterator[_Undivided]:
    """Degrees that don't divide the GPUs, and micro-batches that don't divide the batch."""
    overrides, gpus = run.overrides, run.gpus
    model = product_of(overrides, (_TP, _PP, _CP))
    if model is not None:
        blamed = _to_blame(overrides, (_TP, _PP, _CP), gpus)
        yield from _undivided(blamed, model, gpus, "tensor × pipeline × context =", "GPUs")
    for keys, name in _GRIDS:
        # A recipe of a model or a variable has the other degrees.
        known_degrees = [key for key in keys if overrides.integer(key)]
        part = known_part_of(overrides, known_degrees)
        if known_degrees and (model is None or _EP in known_degrees):
            blamed = _to_blame(overrides, known_degrees, gpus)
            yield from _undivided(blamed, part, gpus, name, "GPUs", is_partial=True)
    replicas = gpus // model if gpus and model and gpus % model == 0 else None

    micro, batch = (
        overrides.get("train.micro_batch_size"),
        overrides.integer("train.global_batch_size"),
    )
    is_unshared = replicas and batch and batch % replicas  # which `_unshared_batch` reports
    if micro is not None and micro.integer and not is_unshared:
        # Where the number of replicas isn't known, each has whole micro-batches all the same.
        sequences = micro.integer * (replicas or 1)
        name = f"micro batch {micro.text} × {replicas} replicas =" if replicas else "micro batch"
        yield from _undivided(micro, sequences, batch, name, "sequences of the batch")


def _unshared_batch(run: BridgeRun) -> Iterator[Violation]:
    """A batch that the replicas don't divide, so that no micro-batch fits."""
    overrides, gpus = run.overrides, run.gpus
    batch, model = overrides.get("train.global_batch_size"), product_of(overrides, (_TP, _PP, _CP))
    size = None if batch is None else batch.integer
    if batch is None or not size or not gpus or not model or gpus % model:
        return
    replicas = gpus // model
    if size % replicas:
        unit = replicas * (overrides.integer("train.micro_batch_size") or 1)
        near = sorted({max(size // unit, 1) * unit, (size // unit + 1) * unit})
        message = f"{batch.shown} is no multiple of the {replicas} replicas"
        yield _at(batch, message, f"make it {listed(map(str, near))}")


def _undivided_layers(overrides: BridgeOverrides) -> Iterator[_Undivided]:
    """Degrees that don't divide the model's heads, experts or layers, which are overrides or its
    recipe's.
    """
    for key, total, name, unit in (
        (_TP, overrides.heads, "tensor parallelism", "heads"),
        (_EP, overrides.experts, "expert parallelism", "experts"),
    ):
        yield from _undivided(overrides.get(key), overrides.integer(key), total, name, unit)

    chunks, stages = overrides.get(_VP), product_of(overrides, (_PP,))
    number = chunks.integer if chunks is not None and not chunks.is_null else None
    layers = overrides.integer("model.num_layers")
    is_refused = number and stages == 1  # chunks of one stage, however many
    if stages and layers and not is_refused and not _has_uneven_stages(overrides):
        counted_ends = sum(_is_on(overrides.get(key)) for key in _COUNTED)
        unit = "layers, embedding and loss as they count" if counted_ends else "layers"
        blamed = chunks if number else overrides.get(_PP)
        product, total = stages * (number or 1), layers + counted_ends
        yield from _undivided(blamed, product, total, "stages × chunks =", unit)


def _has_uneven_stages(overrides: BridgeOverrides) -> bool:
    return any(_is_on(overrides.get(name)) for name in _UNEVEN)


def _is_on(override: Override | None) -> bool:
    """Return whether an override is there, and sets its key to something."""
    return override is not None and override.text.lower() not in ("null", "false")


def _unlisted_chunks(overrides: BridgeOverrides) -> Iterator[Violation]:
    """Stages, or chunks of them, that aren't as many as a layout of the pipeline lists."""
    layout, chunks, depth = overrides.get(_LAYOUT), overrides.get(_VP), overrides.get(_PP)
    stages = product_of(overrides, (_PP,))
    text = "" if layout is None else layout.text.strip("'\"")
    pieces = chunks_of(text) if "|" in text and "$" not in text else None
    if pieces is None or not stages:
        return
    number = chunks.integer if chunks is not None else None
    if depth is not None and len(pieces) % stages:
        fitting = listed(nearest(divisors(len(pieces)), stages, 4))
        message = f"{depth.shown} does not divide the {len(pieces)} chunks that the layout lists"
        yield _at(depth, message, f"make it {fitting}")
    elif chunks is not None and number and number > 0 and len(pieces) != stages * number:
        message = f"stages × chunks = {stages * number}, and the layout lists {len(pieces)}"
        yield _at(chunks, message, "remove it: the layout says how many")


@OVERRIDES.rule("BRG039", ERROR, "init", f"{BRIDGE}training/config.py:1460 @ v0.6.0")
def micro_batches_are_one_pack(overrides: BridgeOverrides) -> Violations:
    """Samples that are packed beforehand are micro-batches of one sequence.
    Prevents: ValueError: Micro batch size should be 1 when training with packed sequence
    Fix: set train.micro_batch_size=1; for longer packs, a longer dataset.seq_length
    """
    packing = overrides.get("dataset.enable_offline_packing")
    micro = overrides.get("train.micro_batch_size")
    if packing is None or packing.text.lower() != "true" or micro is None:
        return
    if (micro.integer or 1) > 1:
        message = f"{micro.shown} with {packing.shown}: a pack is a micro-batch of its own"
        yield _at(micro, message, "set train.micro_batch_size=1")


@OVERRIDES.rule(
    "BRG021",
    WARNING,
    "silent",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py:459 @ v0.6.0",
)
def folders_are_absolute(overrides: BridgeOverrides) -> Violations:
    """Folders of checkpoints are absolute: since 0.6 the program changes to its checkout first.
    Prevents: No error: checkpoints are written in the checkout, wherever the job was started.
    Fix: write the whole path
    """
    launch, release = overrides.launch, overrides.release
    changes = launch is None or overrides.is_public  # those of performance stay where they are
    if overrides.is_own or not changes or release.version < _CHANGES_FOLDER:
        return
    for key in ("checkpoint.save", "checkpoint.load", "checkpoint.pretrained_checkpoint"):
        override = overrides.get(key)
        text = "" if override is None else override.text.strip("'\"")
        if override is not None and text and not override.is_null and text[0] not in "/$~{":
            message = f"{override.shown} is a folder in the checkout of Megatron-Bridge"
            yield _at(override, message, "write the whole path")


@OVERRIDES.rule(
    "BRG022",
    ERROR,
    "init",
    f"{BRIDGE}training/utils/omegaconf_utils.py (_apply_overrides), peft/base.py @ v0.3.1, v0.6.0",
)
def adapters_stay_the_recipes(overrides: BridgeOverrides) -> Violations:
    """The adapters of a recipe are a callable, which the config that words change is without.
    Prevents: OverridesError: Could not override 'peft.dim'. With + the word adds the key, as a file
    does, and the recipe's object takes the value.
    Fix: write + before the key
    """
    if overrides.is_own and any("config" in name for name in overrides.options):
        return  # a file that isn't read may bring the key
    brought = {each.key for each in overrides.given if not each.is_word or "+" in each.sign}
    for override in overrides.given:
        if override.key.startswith("peft.") and override.key not in brought:
            message = f"{override.shown} is refused: the config that it changes has no adapters"
            may_have = overrides.task in ("adapters", "") and not override.sign
            hint = f"write +{override.shown}" if may_have else "remove it"
            yield certain_of(overrides, override, message, hint)


@OVERRIDES.rule(
    "BRG025",
    ERROR,
    "init",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py (load_recipe, _infer_mode), "
    "scripts/training/recipe_metadata.py:214 @ v0.6.0",
)
def recipe_is_known(overrides: BridgeOverrides) -> Violations:
    """A recipe is one of the release's, and its name doesn't contradict the mode.
    Prevents: AttributeError: Recipe not found in megatron.bridge.recipes; ValueError: Mode is
    incompatible with recipe. A warning where the name is another way to write one.
    Fix: correct the name or the mode
    """
    launch, stem = overrides.launch, "" if overrides.recipe else overrides.stem
    suffix = f"_{_OF_STEMS[overrides.mode]}_config" if overrides.mode in _OF_STEMS else ""
    name = overrides.recipe or (f"{stem}{suffix}" if stem and suffix else "")
    if launch is None or not name:
        return
    where = _place_of(launch, stem or name) or _place_of(launch, "--model" if stem else "--recipe")
    if where is None:
        return
    bounds = recipe_bounds().get(name)
    came_or_went = outside(overrides, bounds)
    near = _near_recipe(name) if bounds is None else None
    if came_or_went:
        message = f"{name} is no recipe of {overrides.release}: {came_or_went}"
        yield Violation(where, message, "use one that it has")
    elif near:
        message = f"{name} is no recipe of Megatron-Bridge's"
        meant = near.removesuffix(suffix) if stem else near
        is_slip = name.replace("_", "") != near.replace("_", "")  # and no other way to write it
        severity = None if is_slip and not is_newer(overrides) else WARNING
        yield Violation(where, message, f"did you mean {meant}?", severity=severity)
    if _contradicts_mode(overrides, name):
        message = f"--mode {overrides.mode} contradicts the recipe {name}"
        place = _place_of(launch, overrides.mode) or where
        yield Violation(place, message, "use the recipe of that mode, or the recipe's mode")


def _contradicts_mode(overrides: BridgeOverrides, name: str) -> bool:
    """Return whether a recipe's name says another task than the mode, in a release that checks."""
    release = overrides.release
    checks_modes = not release.where or release.version >= _CHECKS_MODES
    task = TASKS.get(overrides.mode)
    if not checks_modes or task is None or overrides.mode == "finetune":
        return False
    tasks_in_name = {of_word for word, of_word in TASKS.items() if f"_{word}_" in f"_{name}_"}
    return len(tasks_in_name) == 1 and task not in tasks_in_name


@OVERRIDES.rule(
    "BRG026",
    ERROR,
    "init",
    "NVIDIA-NeMo/Megatron-Bridge scripts/training/run_recipe.py (--mode) @ v0.3.1, v0.6.0",
)
def mode_is_known(overrides: BridgeOverrides) -> Violations:
    """A mode is one that the release has.
    Prevents: error: argument --mode: invalid choice; in 0.4 and 0.5, which have no such option,
    OverridesError: Failed to parse Hydra overrides. A warning where no release is named, and an
    older one has the mode.
    Fix: write pretrain, sft, lora or dora
    """
    launch, mode, release = overrides.launch, overrides.mode, overrides.release
    where = _place_of(launch, mode) if launch is not None and mode else None
    if where is None or overrides.is_own:
        return
    hint, bounds = "write pretrain, sft, lora or dora", _MODES.get(mode)
    if bounds is None:
        near = closest(mode, tuple(_MODES))
        hint = f"did you mean {near}?" if near else hint
        yield Violation(where, f"--mode {mode} is none of Megatron-Bridge's", hint)
        return
    if is_sure_of_release(overrides) and release.version[:2] in _WITHOUT_MODES:
        message = f"--mode is no option of {release}"
        hint = "remove it: the recipe's name says what is trained"
        yield Violation(where, message, hint, severity=severity_of_program(overrides))
        return
    _, last = bounds
    came_or_went = outside(overrides, bounds)
    if came_or_went:
        message = f"--mode {mode} is none of {release}: {came_or_went}"
        severity = severity_of_program(overrides)
        yield Violation(where, message, "write one that it has", severity=severity)
    elif not release.where and last is not None:
        message = f"--mode {mode} is none of {release}: it went after {dots(last)}"
        yield Violation(where, message, hint, severity=WARNING)


@OVERRIDES.rule(
    "BRG027", NOTE, "init", "derived: keys and recipes are known up to a release, and change"
)
def release_is_known(overrides: BridgeOverrides) -> Violations:
    """The release that files name is one whose keys are known.
    Prevents: No error: a key that a newer release has not, or has anew, isn't found.
    Fix: look at what the program says: run_recipe.py with --dry-run
    """
    if is_newer(overrides) and overrides.given:
        message = (
            f"{overrides.release} is newer than {dots(KNOWN)}, whose keys these are held to: what "
            "it changed is not checked"
        )
        yield Violation(overrides.given[0].where, message, "see run_recipe.py with --dry-run")
