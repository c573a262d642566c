"""Compares the planned files with the originals: what is missing is carried over or named."""

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
from .defaults import name_open_fields, pin_defaults
from .draft import Draft, Given, Parser, same_value, same_values, values_of
from .front_ends import subcommand_of
from .refused import Outcome, planned_draft, prune, replanned_without_refused, take_out_secrets

#: Parameters of the optimizer, and the Trainer's arguments of the same values.
_OF_ARGUMENTS: Final = {"betas": ("--adam_beta1", "--adam_beta2"), "eps": ("--adam_epsilon",)}
#: Keys whose value the layout has, in other words than the plan's config.
_OFFLOADS: Final = tuple(f"{ZERO}/{name}" for name in ("cpu_offload", "cpu_offload_param"))
#: Keys that the Trainer fills in from its arguments, and refuses other values of.
_OF_TRAINER: Final = {
    "/gradient_clipping",
    *(f"/optimizer/params/{n}" for n in ("lr", "betas", "eps", "weight_decay")),
}
_MISSING: Final = object()


def carry_over(draft: Draft) -> Outcome:
    """Plan the draft's job, and carry over into the draft what its files lack.

    Never raises for what is in them.
    """
    outcome = Outcome()
    job = prune(draft)
    if job is not None:
        pin_defaults(draft, job)
    base = dict(draft.left)
    for _ in range(3):
        before = copy.deepcopy(draft.spec)
        draft.left = dict(base)
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
    """Put what the plan's files lack into the draft; give the options that they have beyond it."""
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
    started = found.launch is not None or found.megatron is not None or draft.options
    if started and not by_front_end:
        # The DeepSpeed config of a Trainer's launch says these, whatever its arguments' defaults.
        decides = plan.job.framework.decides if found.trainer and found.config else {}
        said = {key_of(option) for option, key in decides.items() if draft.get(key) is not None}
        carried += _restored(draft, rendered, carried, said)
    if plan.job.framework.planned:
        carried += _carry_config(draft, plan, carried)
    draft.drop("launch.arguments")
    draft.set("launch.arguments", [word for one in carried for word in one])
    if by_front_end:
        return

    given = _given(draft, carried)
    # Options that a launch file may have beside the original's without a change of what is trained.
    asked = given & scripts.CONFIGS
    given |= {"--do-train", "--deepspeed", "--deepspeed_config"} if asked else set()
    given |= {"--fsdp", "--fsdp-config"} if draft.get("training.sharding") else set()
    if not draft.options:
        return
    for key, option in rendered.items():
        if key not in given and not _is_default(parser, key, option):
            yield " ".join(option)


def _of_front_end(draft: Draft, carried: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The words of a front end's own launch line: its subcommand, and none of its YAML file."""
    program = draft.found.where.path
    of_file = {one.words for one in draft.options if one.where.path != program}
    subcommand = subcommand_of(draft)
    rest = [words for words in carried if words not in of_file]
    return [subcommand, *rest] if subcommand else rest


def _given(draft: Draft, carried: Iterable[tuple[str, ...]]) -> set[str]:
    """The options that the files or `launch.arguments` give, under any name, and a plan's own."""
    parser, names = draft.parser, {option.name for option in draft.options}
    given = {option.key for option in draft.options} | {
        parser.key(words[0].partition("=")[0]) for words in carried
    }
    given |= {other for name in names for other in megatron.said_by().get(name, ())}
    given |= {megatron.WARMUPS[0]} if given.intersection(megatron.WARMUPS) else set()
    return given | (megatron.FOLLOWS if parser.flavour else set()) | _decided(parser)


def _carry_config(
    draft: Draft, plan: Plan, carried: list[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Put the merge patch from the plan's DeepSpeed config to the files' one into the draft; give
    the Trainer's arguments that repeat it.
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
    """The Trainer's arguments for the optimizer's parameters that the patch has, in the place of
    those that are `carried`.

    The Trainer compares these parameters with its arguments. Those that only the arguments have
    are "auto" in the patch.
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
        elif reason := _why_not_carried(draft, option):
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
    """Return why a Megatron doesn't take an option of the original, or doesn't run as planned."""
    if not draft.parser.flavour:
        return None
    if not is_option(option.words[0]) and not _is_key(draft, option):
        return "no option takes it"
    if gone := _gone(draft, option):
        return gone
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
    """What is written for an argument that the plan's transformers no longer has; None of others.

    Its new name with the same value where that is all; else nothing. Either is said.
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
    new, _, condition = instead.partition(" ")
    # "warmup_steps with a fraction": the value that a ratio had
    is_renamed = new in known_arguments() and (not condition or condition.startswith("with "))
    is_free = all(other.key != f"--{new.replace('_', '-')}" for other in draft.options)
    hint = instead if instead.startswith("remove") else f"use {instead}"
    since = f"transformers {entry['release']} has no such argument"
    if is_renamed and is_free:
        words = (f"--{new}", *values_of(option.words))
        draft.leave(str(option), option.where, f"{since}; written as {' '.join(words)}")
        return words
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
    new, off = rendered.get(option.key), draft.get("layout.recompute") == "none"
    others = megatron.said_by().get(option.name, ())
    if any(name in rendered or (off and name == "--recompute-granularity") for name in others):
        return True
    return new is not None and same_values(values_of(option.words), values_of(new))


def _decided(parser: Parser) -> frozenset[str]:
    if parser.flavour:
        return megatron.PLANNED
    if parser.trainer:
        return scripts.PLANNED
    return frozenset()


def _gone(draft: Draft, one: Given) -> str | None:
    """Return why the release that the arguments are written for refuses an option."""
    table = option_table(draft.parser.flavour or "megatron-lm")
    option, stated = table.get(one.name), draft.get("megatron_version")
    release = NEWEST["megatron-core"] if stated is None else release_from(str(stated))
    index = table.index(release)
    # what is newer, a repository of that release may have for itself
    if option is None or any(version >= index for version in option.versions or (index,)):
        return None
    return f"Megatron-LM {dots(release)} has no such option"


def _restored(
    draft: Draft,
    rendered: Mapping[str, tuple[str, ...]],
    carried: Iterable[tuple[str, ...]],
    said: Collection[str],
) -> list[tuple[str, ...]]:
    """Defaults of the parser that the plan's own values would replace: nobody asked for these.

    `said`: the options that keys of the draft decide, as a DeepSpeed config does clipping.
    """
    parser, given = draft.parser, _given(draft, carried) | {*said}
    if draft.found.trainer is not None:  # the program's own class may have another default
        given |= {parser.key(f"--{name}") for name in draft.found.trainer.redefined}
    found: list[tuple[str, ...]] = []
    for key, words in rendered.items():
        option = parser.option(key)
        if (
            key in given
            or _is_default(parser, key, words)
            or (option is not None and option.kind == "flag")
        ):
            continue
        default = parser.default(key)
        if key == "--lr-warmup-fraction":
            found.append(("--lr-warmup-iters", "0"))
        elif key == "--min-lr" and default is None:
            found.append(("--min-lr", "0.0"))
        elif (
            isinstance(default, int | float | str)
            and not isinstance(default, bool)
            and default != ""
        ):
            found.append((words[0], str(default)))
    return found


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
    """Return the patch of the plan's section, `theirs`, that makes it read as the config's own.

    `at`: where it is.

    Keys that the plan decides, and "auto" that nothing fills in before, are named where they
    differ.
    """
    patch: dict[str, Any] = {}
    # change nothing
    named = {_now(config, at, key) for key in ours} | {"steps_per_print", "wall_clock_breakdown"}
    named |= {
        f"offload_{name}" for name in OFFLOADED if at == ZERO and config.offload(name) == "cpu"
    }
    for key, value in ours.items():
        pointer = f"{at}/{escape(key)}"
        new = _now(config, at, key)
        their_value = theirs.get(new, _MISSING)
        if _is_planned(draft, config, pointer, value, their_value):
            continue
        if isinstance(value, Mapping) and (
            isinstance(their_value, Mapping) or their_value is _MISSING
        ):
            new_section = their_value if isinstance(their_value, Mapping) else {}
            inner = _config_patch(draft, config, value, new_section, fills=fills, at=pointer)
            if inner or (their_value is _MISSING and not value):
                patch[new] = inner
        elif value == "auto" and not fills:
            if their_value is _MISSING:
                draft.leave(
                    pointer[1:].replace("/", "."),
                    config.locate(pointer),
                    "DeepSpeed leaves out auto values",
                )
        elif their_value is _MISSING:
            if value is not None and not _is_usual(config, pointer, value):
                patch[new] = value
        elif value != "auto" and not _same(value, their_value):
            patch[new] = value
    for key, value in theirs.items():
        pointer = f"{at}/{escape(key)}"
        planned = key in named or pointer in PLANNED or (fills and pointer in _OF_TRAINER)
        if not (planned or _is_usual(config, pointer, value)):
            patch[key] = None  # which leaves it out
    return patch


def _same(ours: Any, other: Any) -> bool:
    if isinstance(ours, list) and isinstance(other, list):
        return len(ours) == len(other) and all(map(_same, ours, other))
    if isinstance(ours, dict | list) or isinstance(other, dict | list):
        return bool(ours == other)
    return same_value(ours, other)


def _now(config: Config, section: str, key: str) -> str:
    """The name that a key has now, of those whose value DeepSpeed moves to another."""
    home = config.schema.section(section)
    known = home.keys.get(key) if home is not None else None
    if home is None or known is None:
        return "bf16" if (section, key) == ("", "bfloat16") else key
    replaced = (
        known.deprecated.by if known.deprecated is not None and known.deprecated.moved else ""
    )
    by = home.keys.get(replaced) if replaced else known
    return by.written if by is not None and by.type == known.type else known.written


def _is_planned(draft: Draft, config: Config, pointer: str, value: Any, their_value: Any) -> bool:
    """Return whether the plan decides a key; where it has another value, that is named."""
    if pointer in _OFFLOADS or (pointer == ZERO and isinstance(value, bool)):
        return True
    if pointer not in PLANNED:
        return False
    off = (value in (False, 0, 1, None, "auto")) and their_value is _MISSING
    if not off and value != "auto" and not _same(value, their_value):
        shown = "left out" if their_value is _MISSING else f"{their_value}"
        name = pointer[1:].replace("/", ".")
        draft.leave(
            f"{name}: {value}", config.locate(pointer), f"{PLANNED[pointer]} decides it: {shown}"
        )
    return True


def _is_usual(config: Config, pointer: str, value: Any) -> bool:
    """Return whether a value is what holds where the key is left out."""
    if isinstance(value, Mapping):
        own = config.schema.section(pointer) is not None and pointer not in (
            "/optimizer",
            "/scheduler",
        )
        return own and all(
            f"{pointer}/{escape(key)}" in PLANNED
            or _is_usual(config, f"{pointer}/{escape(key)}", inner)
            for key, inner in value.items()
        )
    if pointer.startswith("/optimizer/params/"):
        default = default_of_optimizer(config, pointer.rpartition("/")[2])
        return default is not None and _same(default, value)
    key = config.schema.key(pointer)
    if pointer == f"{ZERO}/overlap_comm":
        return bool(value) == (config.stage == 3)
    return key is not None and same_value(key.default, value)
