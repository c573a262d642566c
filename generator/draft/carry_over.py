"""Compare the plan's files with the originals: what they lack is carried over, or named.

An option goes into `launch.arguments`, a key of a DeepSpeed config into `deepspeed_config`. What
neither can hold, or the plan decides itself, is named at the end of the spec.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..job.arguments import grouped, is_option, key_of
from ..job.releases import NEWEST, release_from
from ..programs.deepspeed.config import OFFLOADED, ZERO, Config
from ..programs.deepspeed.options import PLANNED, default_of_optimizer
from ..programs.deepspeed.write import FILE_NAME
from ..programs.frameworks import program_for
from ..programs.launching.settings import settings_of
from ..programs.megatron import table as megatron
from ..programs.megatron.choices import why_uncounted
from ..programs.megatron.options import LM, option_table
from ..programs.trainer.table import ROWS
from ..programs.trainer.training_arguments import gone_arguments, known_arguments
from ..search import Plan
from ..text.source import escape
from ..text.wording import dots
from . import scripts
from .around import added_around
from .bridge import carry_overrides
from .defaults import assume_length, name_open_fields, pin_defaults
from .draft import Draft, Given, Parser, same_value, same_values, values_of
from .front_ends import subcommand_of
from .refused import Outcome, planned_draft, prune, replanned_without_refused, take_out_secrets

#: Parameters of the optimizer, and the Trainer's arguments of the same values.
_OF_ARGUMENTS: Final = {"betas": ("--adam_beta1", "--adam_beta2"), "eps": ("--adam_epsilon",)}
#: Old keys for offloading: the layout says it, and the plan's config says it by other keys.
_OFFLOADS: Final = tuple(f"{ZERO}/{name}" for name in ("cpu_offload", "cpu_offload_param"))
#: Keys that the Trainer fills in from its arguments, and refuses other values of.
_OF_TRAINER: Final = {
    "/gradient_clipping",
    *(f"/optimizer/params/{n}" for n in ("lr", "betas", "eps", "weight_decay")),
}
_MISSING: Final = object()
_MOST_ROUNDS: Final = 3  # of planning


def carry_over(draft: Draft) -> Outcome:
    """Plan the draft's job, and carry over into the draft what the plan's files lack.

    Never raises for what is in the files.
    """
    outcome = Outcome()
    job = prune(draft)
    if job is not None:
        assume_length(draft, job)
        pin_defaults(draft, job)
    left_before = dict(draft.left)
    # What is carried over may change the plan, and so what its files have.
    for _ in range(_MOST_ROUNDS):
        before = copy.deepcopy(draft.spec)
        draft.left = dict(left_before)
        outcome = planned_draft(draft)
        plan = outcome.plan
        if plan is None:
            _carry_unplanned(draft)
            take_out_secrets(draft)
            return outcome
        added = (*_carry(draft, plan), *added_around(draft, plan))
        outcome = outcome._replace(added=added)
        name_open_fields(draft, plan)
        if draft.spec == before:
            break
    return replanned_without_refused(draft, outcome.added)


def _carry(draft: Draft, plan: Plan) -> Iterator[str]:
    """Put what the plan's files lack into the draft; yield the options that they have besides."""
    if draft.overrides is not None:
        yield from carry_overrides(draft, draft.overrides, plan)
        return

    found, parser = draft.found, draft.parser
    words = [word if isinstance(word, str) else word.name for word in program_for(plan).arguments]
    words = words[: len(words) - len(plan.job.launch.arguments)]  # these are last
    rendered = {parser.key(group[0]): group for group in grouped(words) if is_option(group[0])}
    carried = _carried(draft, rendered)
    # A front end has defaults of its own, and reads the model's shape from its checkpoint.
    by_front_end = found.launch is not None and found.launch.front_end
    if by_front_end:
        carried = _of_front_end(draft, carried)
    is_started = found.launch is not None or found.megatron is not None or draft.options
    if is_started and not by_front_end:
        # The DeepSpeed config of a Trainer's launch says these, whatever its arguments' defaults.
        decides = plan.job.framework.decides if found.trainer and found.config else {}
        decided = {key_of(option) for option, key in decides.items() if draft.get(key) is not None}
        carried += _restored(draft, rendered, carried, decided)
    if plan.job.framework.planned:
        carried += _carry_config(draft, plan, carried)
    draft.drop("launch.arguments")
    draft.set("launch.arguments", [word for words_of_option in carried for word in words_of_option])
    if by_front_end or not draft.options:
        return

    given = _given(draft, carried)
    # Options that a launch file may have beside the original's without a change of what is trained.
    if not given.isdisjoint(scripts.CONFIGS):
        given |= {"--do-train", "--deepspeed", "--deepspeed_config"}
    if draft.get("training.sharding"):
        given |= {"--fsdp", "--fsdp-config"}
    for key, option in rendered.items():
        if key not in given and not _is_default(parser, key, option):
            yield " ".join(option)


def _of_front_end(draft: Draft, carried: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The words of a front end's own launch line: its subcommand, and none of its YAML file."""
    program = draft.found.where.path
    of_file = {option.words for option in draft.options if option.where.path != program}
    subcommand = subcommand_of(draft)
    rest = [words for words in carried if words not in of_file]
    return [subcommand, *rest] if subcommand else rest


def _given(draft: Draft, carried: Iterable[tuple[str, ...]]) -> set[str]:
    """The options that the files or `launch.arguments` give, under any name, and a plan's own."""
    parser = draft.parser
    given = {option.key for option in draft.options}
    given |= {parser.key(words[0].partition("=")[0]) for words in carried}
    for option in draft.options:
        given.update(megatron.said_by().get(option.name, ()))
    if given.intersection(megatron.WARMUPS):
        given.add(megatron.WARMUPS[0])
    if parser.flavour:
        given |= megatron.FOLLOWS
    return given | _decided(parser)


def _carry_config(
    draft: Draft, plan: Plan, carried: list[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Put the merge patch from the plan's DeepSpeed config to that of the files into the draft.

    Returns the Trainer's arguments that repeat it.
    """
    config, is_trainers = draft.found.config, plan.job.framework.goes_on_from_weights
    unpatched = program_for(replace(plan, job=replace(plan.job, deepspeed_config={})))
    planned: dict[str, Any] = next(
        (json.loads(file.text) for file in unpatched.files if file.path == FILE_NAME), {}
    )
    data = config.json.data if config is not None and isinstance(config.json.data, dict) else {}
    patch: dict[str, Any] = {}
    if config is not None:
        patch = _config_patch(draft, config, data, planned, fills=is_trainers)
    repeated = _repeated_arguments(patch, planned, carried) if is_trainers else []
    draft.drop("deepspeed_config")
    draft.set("deepspeed_config", patch)
    return repeated


def _repeated_arguments(
    patch: dict[str, Any], planned: Mapping[str, Any], carried: list[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """The Trainer's arguments for the optimizer's parameters that the patch has.

    The Trainer compares these parameters with its arguments, so they replace those that are
    `carried`. Parameters that only the arguments have are "auto" in the patch.
    """
    optimizer = patch.get("optimizer", {})
    patched = optimizer.get("params", {}) if isinstance(optimizer, dict) else None
    of_plan: Mapping[str, Any] = {}
    if isinstance(patched, dict):
        of_plan = planned.get("optimizer", {}).get("params", {})
    else:  # the patch takes the block, or its parameters, out
        patched = {}

    names = {words[0].partition("=")[0].replace("_", "-") for words in carried}
    repeated: list[tuple[str, ...]] = []
    for key, options in _OF_ARGUMENTS.items():
        value = patched.get(key)
        if isinstance(value, list | float | int):
            values = value if isinstance(value, list) else [value]
            repeated += [(option, str(each)) for option, each in zip(options, values, strict=False)]
            carried[:] = [words for words in carried if words[0] not in options]
        elif key in of_plan and not names.isdisjoint(each.replace("_", "-") for each in options):
            patch.setdefault("optimizer", {}).setdefault("params", {})[key] = "auto"
    return repeated


def _carried(draft: Draft, rendered: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The options that the plan's files lack, word by word. What can't be taken over is named."""
    carried: list[tuple[str, ...]] = []
    last = {option.key: option for option in draft.options}
    decided = _decided(draft.parser)
    for option in draft.options:
        is_given_again = is_option(option.name) and last[option.key] is not option
        if is_given_again or option.name in scripts.CONFIGS:
            continue
        new = rendered.get(option.key)
        if not option.known:
            now = f"; the plan has {' '.join(new)}" if new else ""
            draft.leave(str(option), option.where, f"{_what_is_unknown(option)}{now}")
        elif _is_said(draft, option, rendered) or _is_in_spec(draft, option):
            continue
        elif option.key in decided or option.name in decided:
            if new is not None or not _changes_nothing(draft.parser, option):
                now = " ".join(new) if new else "left out"
                draft.leave(str(option), option.where, f"the plan decides it: {now}")
        else:
            reason = _why_not_carried(draft, option)
            if reason:
                draft.leave(str(option), option.where, reason)
            else:
                carried += _carried_words(draft, option)
    return carried


def _what_is_unknown(option: Given) -> str:
    is_alone = len(option.words) == 1 and is_option(option.name) and "=" not in option.words[0]
    if is_alone:
        return "whether it is given depends on the script"
    return "its value is not in the files"


def _changes_nothing(parser: Parser, option: Given) -> bool:
    """Return whether an option has the parser's default, or a degree of 1."""
    is_one = same_values(values_of(option.words), ("1",))
    return is_one or _is_default(parser, option.key, option.words)


def _why_not_carried(draft: Draft, option: Given) -> str | None:
    """Return why Megatron refuses an option of the original, or isn't planned with it."""
    if not draft.parser.flavour:
        return None
    if not is_option(option.words[0]) and not _is_key(draft, option):
        return "no option takes it"
    reason = _why_gone(draft, option)
    if reason:
        return reason
    if draft.parser.flavour != LM:
        return None
    uncounted = why_uncounted(option.key, values_of(option.words))
    return f"it {uncounted}" if uncounted else None


def _carried_words(draft: Draft, option: Given) -> list[tuple[str, ...]]:
    """An option as the plan's release has it, word by word; nothing where it has no such option."""
    instead = _instead_of_gone(draft, option) if draft.parser.trainer else None
    if instead is None:
        return [option.words]
    return [instead] if instead else []


def _instead_of_gone(draft: Draft, option: Given) -> tuple[str, ...] | None:
    """The words for an argument that the plan's transformers no longer has; None for any other.

    They are its new name with the value where it was renamed, else none. Either is told.
    """
    launch, trainer = draft.found.launch, draft.found.trainer
    name = option.key.lstrip("-").replace("-", "_")
    entry = gone_arguments().get(name)
    is_front_end = launch is not None and bool(launch.front_end)
    if entry is None or is_front_end or (trainer is not None and name in trainer.redefined):
        return None
    stated = draft.get("transformers_version")
    release = NEWEST["transformers"] if stated is None else release_from(str(stated))
    if release < release_from(entry["release"]):
        return None

    instead = entry["instead"]
    new_name, _, condition = instead.partition(" ")
    # "warmup_steps with a fraction" takes the value that the ratio had.
    keeps_value = not condition or condition.startswith("with ")
    is_renamed = new_name in known_arguments() and keeps_value
    is_free = all(other.key != f"--{new_name.replace('_', '-')}" for other in draft.options)
    since = f"transformers {entry['release']} has no such argument"
    if is_renamed and is_free:
        words = (f"--{new_name}", *values_of(option.words))
        draft.leave(str(option), option.where, f"{since}; written as {' '.join(words)}")
        return words
    hint = instead if instead.startswith("remove") else f"use {instead}"
    draft.leave(str(option), option.where, f"{since}; {hint}")
    return ()


def _is_key(draft: Draft, option: Given) -> bool:
    """Return whether a word sets a key of a front end: `trainer.nnodes=2`."""
    launch = draft.found.launch
    settings = None if launch is None else settings_of(launch)
    is_of_keys = settings is not None and settings.front_end.spelling == "keys"
    return is_of_keys and "=" in option.words[0]


def _is_in_spec(draft: Draft, option: Given) -> bool:
    """Return whether a key of the spec has what an option of the Trainer says.

    The plan's files may say it by another option: recomputation under FSDP2 is a setting of FSDP.
    """
    if not draft.parser.trainer or draft.found.trainer is None:
        return False
    name = option.key.lstrip("-").replace("-", "_")
    row = next((row for row in ROWS if row.key and row.name == name), None)
    if row is None or row.decode is None:
        return False
    return bool(draft.get(row.key) == row.decode(draft.found.trainer.value(row.name)))


def _is_said(draft: Draft, option: Given, rendered: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether the plan's files have an option, by this name or another."""
    names = set(megatron.said_by().get(option.name, ()))
    if not names.isdisjoint(rendered):
        return True
    is_off = draft.get("layout.recompute") == "none"  # which the plan says by leaving it out
    if is_off and "--recompute-granularity" in names:
        return True
    planned = rendered.get(option.key)
    return planned is not None and same_values(values_of(option.words), values_of(planned))


def _decided(parser: Parser) -> frozenset[str]:
    """The options that a plan decides."""
    if parser.flavour:
        return megatron.PLANNED
    if parser.trainer:
        return scripts.PLANNED
    return frozenset()


def _why_gone(draft: Draft, given: Given) -> str | None:
    """Return why the release that the arguments are written for has no such option."""
    table = option_table(draft.parser.flavour or "megatron-lm")
    option, stated = table.get(given.name), draft.get("megatron_version")
    release = NEWEST["megatron-core"] if stated is None else release_from(str(stated))
    index = table.index(release)
    # A repository of that release may have taken over what is newer.
    if option is None or any(version >= index for version in option.versions or (index,)):
        return None
    return f"Megatron-LM {dots(release)} has no such option"


def _restored(
    draft: Draft,
    rendered: Mapping[str, tuple[str, ...]],
    carried: Iterable[tuple[str, ...]],
    decided: Collection[str],
) -> list[tuple[str, ...]]:
    """The parser's defaults that the plan's own values would replace, though nobody asked for them.

    Options that are `decided` by keys of the draft stay, as clipping by a DeepSpeed config.
    """
    parser, given = draft.parser, _given(draft, carried) | {*decided}
    if draft.found.trainer is not None:  # the program's own class may have another default
        given |= {parser.key(f"--{name}") for name in draft.found.trainer.redefined}
    restored: list[tuple[str, ...]] = []
    for key, words in rendered.items():
        option = parser.option(key)
        is_flag = option is not None and option.kind == "flag"
        if key in given or is_flag or _is_default(parser, key, words):
            continue
        default = parser.default(key)
        is_plain = isinstance(default, int | float | str) and not isinstance(default, bool)
        if key == "--lr-warmup-fraction":
            restored.append(("--lr-warmup-iters", "0"))
        elif key == "--min-lr" and default is None:
            restored.append(("--min-lr", "0.0"))
        elif is_plain and default != "":
            restored.append((words[0], str(default)))
    return restored


def _is_default(parser: Parser, key: str, words: tuple[str, ...]) -> bool:
    default = parser.default(key)
    return default is not None and same_values(values_of(words), (str(default),))


def _carry_unplanned(draft: Draft) -> None:
    """Without a plan to compare with, carry over every option, but for those that plans decide."""
    decided = megatron.PLANNED if draft.parser.flavour else scripts.PLANNED
    words: list[str] = []
    for option in draft.options:
        if not option.known:
            draft.leave(str(option), option.where, "its value is not in the files")
        elif option.key not in decided and option.name not in scripts.CONFIGS:
            words += option.words
    draft.set("launch.arguments", [*subcommand_of(draft), *words])


def _config_patch(
    draft: Draft,
    config: Config,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    fills: bool,
    at: str = "",
) -> dict[str, Any]:
    """Return the patch that makes the plan's section, `theirs`, read as the files' own, `ours`.

    The sections are at `at`. Keys that the plan decides are named where they differ, and so are
    those with "auto" that no program `fills` in before DeepSpeed.
    """
    patch: dict[str, Any] = {}
    for key, value in ours.items():
        pointer = f"{at}/{escape(key)}"
        new_key = _key_now(config, at, key)
        their_value = theirs.get(new_key, _MISSING)
        is_missing = their_value is _MISSING
        if _is_planned(draft, config, pointer, value, their_value):
            continue
        if isinstance(value, Mapping) and (is_missing or isinstance(their_value, Mapping)):
            their_section = {} if is_missing else their_value
            inner = _config_patch(draft, config, value, their_section, fills=fills, at=pointer)
            if inner or (is_missing and not value):
                patch[new_key] = inner
        elif value == "auto" and not fills:
            if is_missing:
                name = pointer[1:].replace("/", ".")
                draft.leave(name, config.locate(pointer), "DeepSpeed leaves out auto values")
        elif is_missing:
            if value is not None and not _is_usual(config, pointer, value):
                patch[new_key] = value
        elif value != "auto" and not _same(value, their_value):
            patch[new_key] = value

    kept = _kept_keys(config, ours, at)
    for key, value in theirs.items():
        pointer = f"{at}/{escape(key)}"
        is_decided = pointer in PLANNED or (fills and pointer in _OF_TRAINER)
        if key not in kept and not is_decided and not _is_usual(config, pointer, value):
            patch[key] = None  # which leaves it out
    return patch


def _kept_keys(config: Config, ours: Mapping[str, Any], at: str) -> set[str]:
    """The keys that the plan's section keeps: the files have them too, or they change nothing."""
    keys = {_key_now(config, at, key) for key in ours}
    keys |= {"steps_per_print", "wall_clock_breakdown"}
    if at == ZERO:
        keys |= {f"offload_{name}" for name in OFFLOADED if config.offload(name) == "cpu"}
    return keys


def _same(value: Any, other: Any) -> bool:
    """Return whether two values of a config are read alike."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict | list) or isinstance(other, dict | list):
        return bool(value == other)
    return same_value(value, other)


def _key_now(config: Config, section: str, key: str) -> str:
    """The name that a key has now: DeepSpeed moves the values of some old keys to new ones."""
    home = config.schema.section(section)
    known_key = home.keys.get(key) if home is not None else None
    if home is None or known_key is None:
        return "bf16" if (section, key) == ("", "bfloat16") else key
    deprecated = known_key.deprecated
    if deprecated is None or not deprecated.moved or not deprecated.by:
        return known_key.written
    new_key = home.keys.get(deprecated.by)
    is_same_type = new_key is not None and new_key.type == known_key.type
    return new_key.written if new_key is not None and is_same_type else known_key.written


def _is_planned(draft: Draft, config: Config, pointer: str, value: Any, their_value: Any) -> bool:
    """Return whether the plan decides a key; where it has another value, that is named."""
    if pointer in _OFFLOADS or (pointer == ZERO and isinstance(value, bool)):
        return True
    if pointer not in PLANNED:
        return False
    is_missing = their_value is _MISSING
    is_off = is_missing and value in (False, 0, 1, None, "auto")
    if not is_off and value != "auto" and not _same(value, their_value):
        shown = "left out" if is_missing else f"{their_value}"
        name = pointer[1:].replace("/", ".")
        why = f"{PLANNED[pointer]} decides it: {shown}"
        draft.leave(f"{name}: {value}", config.locate(pointer), why)
    return True


def _is_usual(config: Config, pointer: str, value: Any) -> bool:
    """Return whether a value is what holds where the key is left out."""
    if isinstance(value, Mapping):
        has_defaults = config.schema.section(pointer) is not None
        if not has_defaults or pointer in ("/optimizer", "/scheduler"):
            return False
        inner = {f"{pointer}/{escape(key)}": item for key, item in value.items()}
        return all(
            place in PLANNED or _is_usual(config, place, item) for place, item in inner.items()
        )
    if pointer.startswith("/optimizer/params/"):
        default = default_of_optimizer(config, pointer.rpartition("/")[2])
        return default is not None and _same(default, value)
    key = config.schema.key(pointer)
    if pointer == f"{ZERO}/overlap_comm":
        return bool(value) == (config.stage == 3)
    return key is not None and same_value(key.default, value)
