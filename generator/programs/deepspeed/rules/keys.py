"""Names of keys: unknown to a release, removed from it, deprecated, or written twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from string import digits
from typing import Final, NamedTuple

from ....catalog.names import closest
from ....findings import Edit, Severity, Violation, printable
from ....numerals import is_whole
from ....submission.repository import reads_key
from ....text.hjson.edits import move_member, rename_key, replace_value
from ....text.hjson.text import JsonText
from ....text.slips import is_slip
from ....text.wording import dots, escape, show
from .. import schema as tables
from ..config import BATCH_KEYS, HANDED_ON, ZERO, Config
from ..schema import (
    Deprecation,
    Key,
    Section,
    Version,
    last_version_of,
    load_schema,
    versions,
)
from .subjects import Fix, Place, Problem, named

_COMPRESSION: Final = "/compression_training/"  #: other rules check its keys, except for slips
#: Mappings that are handed on whole, but only read for their own keys
#: (deepspeed/runtime/pipe/engine.py).
_TAKEN_BUT_CLOSED: Final = frozenset({"/pipeline", "/data_efficiency/data_sampling"})
_LTD: Final = "/data_efficiency/data_routing/random_ltd"
_CURRICULUM: Final = "/data_efficiency/data_sampling/curriculum_learning"
_STEPS: Final = "difficulty max_step total_curriculum_step difficulty_step root_degree"
_CURVE: Final = "min_difficulty max_difficulty schedule_type schedule_config"
#: Keys of blocks that the parser hands on whole, to what reads them later; `*` is a metric of any
#: name. **Source**: deepspeed/runtime/data_pipeline/constants.py, curriculum_scheduler.py and
#: data_routing/{basic_layer,scheduler}.py @ 0.19.8.
_READ_LATER: Final[Mapping[str, str]] = {
    _LTD: "enabled total_layer_num random_ltd_layer_num random_ltd_layer_id model_mask_name "
    "model_type hidden_state_order micro_batch_size global_batch_size random_ltd_schedule "
    "layer_token_lr_schedule",
    f"{_LTD}/random_ltd_schedule": "min_value max_value schedule_type schedule_config",
    f"{_LTD}/random_ltd_schedule/schedule_config": "require_steps seq_per_step",
    "/data_efficiency/data_sampling/dynamic_batching": "enabled metrics_path lr_scaling_method "
    "min_batch_size max_batch_size max_tokens sequence_picking_order verbose",
    _CURRICULUM: "enabled data_cluster_path curriculum_metrics",
    f"{_CURRICULUM}/curriculum_metrics/*": f"{_CURVE} index_to_sample_path index_to_metric_path "
    "difficulty_type clustering_type",
    f"{_CURRICULUM}/curriculum_metrics/*/schedule_config": _STEPS,
    "/progressive_layer_drop": "enabled theta gamma",
    "/curriculum_learning": f"enabled curriculum_type {_CURVE}",
    "/curriculum_learning/schedule_config": _STEPS,
}
#: Unknown keys that models refuse and that break a rule of their own.
_OWN_RULES: Final[Mapping[str, str]] = {
    f"{ZERO}/cpu_offload_params": "ZERO005",
    f"{ZERO}/aio": "ZERO014",
    "/fp16/opt_level": "PREC004",
    "/fp16/type": "PREC004",
}
#: Known misnamed keys: the name to write instead.
_NAMES_INSTEAD: Final[Mapping[str, str]] = {
    "micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "train_micro_batch_size": "train_micro_batch_size_per_gpu",
    "global_batch_size": "train_batch_size",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "max_grad_norm": "gradient_clipping",
    "gradient_clip_val": "gradient_clipping",
    "grad_clip": "gradient_clipping",
}
#: Known keys of which DeepSpeed has the setting within a block: the block, and where it then is,
#: from the key's own section or, with a slash before it, from the top.
_BLOCKS_INSTEAD: Final[Mapping[str, tuple[str, str]]] = {
    "zero_stage": ('`"zero_optimization": {"stage": ...}`', "zero_optimization/stage"),
    "offload_optimizer_device": (
        '`"offload_optimizer": {"device": ...}` in zero_optimization',
        f"{ZERO}/offload_optimizer/device",
    ),
    "offload_param_device": (
        '`"offload_param": {"device": ...}` in zero_optimization',
        f"{ZERO}/offload_param/device",
    ),
    "cpu_offload_params": ('`"offload_param": {"device": "cpu"}`', "offload_param/device"),
}
#: How alike two names are of which one may be the other with a slip or two, as in `check.kinds`.
_ALIKE: Final = 0.8
_SHORTEST_BEGINNING: Final = 4  #: letters of a name's beginning that may stand for the name
_MOST_LISTED: Final = 12  # keys in a hint
#: What to do about a removed key, where removing it is not all.
_AFTER_REMOVAL: Final[Mapping[str, str]] = {
    "elasticity": "remove it and write train_batch_size, or use DeepSpeed {last}",
    "amp": 'remove it; `"bf16": {{"enabled": true}}` trains in mixed precision',
    "curriculum_learning": "write it as `data_efficiency.data_sampling.curriculum_learning`",
    "mics_shard_size": "remove it; `zero_hpz_partition_size` keeps parameters within a node",
}
#: The first release whose sections surely are models that refuse unknown keys. Source:
#: deepspeed/runtime/zero/config.py
_REFUSES: Final = (0, 9)


class _Meant(NamedTuple):
    """What was probably meant by a key that its section doesn't know."""

    hint: str
    near: str | None  #: the key or section here that is nearly called so, and isn't written
    home: str | None  #: the one other section that has a key of this name
    is_there: bool = False  #: whether the key that was meant is written already
    holds: bool = False  #: whether that says the same, as far as can be told


def unknown_key(place: Place, name: str) -> Problem | None:
    """The problem of a key that its section doesn't know; None where it does no harm."""
    section, schema = place.section, place.config.schema
    in_model = section.kind == "model"
    refused = in_model and section.extra == "forbidden"

    # DeepSpeed's models drop what is "auto", whatever its key, and keep `strict` for themselves.
    is_dropped = in_model and (place.value == "auto" or name == "strict")
    if is_dropped or section.pointer.startswith(HANDED_ON):
        return None
    if name in schema.removed.get(section.pointer, ()):
        return removed(place, name)

    siblings = place.siblings
    unwritten = tuple(key for key in section.names if key not in siblings)
    near = closest(name[:80], unwritten, _ALIKE)
    only_slips_count = section.pointer.startswith(_COMPRESSION)
    if _is_for_others(place, name, refused) or (only_slips_count and not near):
        return None
    of_another_release = _of_another_release(place, name, refused)
    if of_another_release is not None:
        return of_another_release
    of_fp16 = section.pointer in ("/bf16", "/bfloat16") and schema.key(f"/fp16/{name}") is not None
    if refused and _is_comment(name):
        return _comments(place, name)
    if of_fp16:
        return _fp16_keys(place, name, refused)

    return _of_no_release(place, name, refused, near, _is_slip_of_one(name, unwritten))


@lru_cache(maxsize=4096)
def _is_slip_of_one(name: str, keys: tuple[str, ...]) -> bool:
    """Return whether a key is one of others with a slip; many files have the same keys."""
    return any(is_slip(name, key) for key in keys)


def _of_no_release(
    place: Place, name: str, refused: bool, near: str | None, is_slip_of_one: bool
) -> Problem:
    """The problem of a key that no release has in this place."""
    may_be_ignored = refused and place.config.version < _REFUSES
    message = f"unknown key `{printable(name)[:80]}` in {named(place.section.pointer)}: "
    message += "DeepSpeed refuses it" if refused else _ignored(place)
    if may_be_ignored:
        message += f" since 0.9; {place.config.release} may ignore it"

    if refused:
        rule = _OWN_RULES.get(place.pointer, "PARSE005")
    else:
        rule = "PARSE006" if place.section.pointer else "PARSE004"
    if rule == "PREC004":
        return place.problem(rule, message, "remove it", at_key=True, fix=place.removal)

    meant = _meant(place, name, near)
    severity = _certainty(place, name, refused, meant, is_slip_of_one)
    fix = None if meant.is_there else _move(place, name, meant.home)
    return place.problem(rule, message, meant.hint, at_key=True, fix=fix, severity=severity)


def _ignored(place: Place) -> str:
    """That the release ignores an unknown key, and that the newest one doesn't."""
    newest = versions()[-1]
    section = load_schema(newest).section(place.section.pointer)
    if section is None or section.kind != "model" or section.extra != "forbidden":
        return "DeepSpeed silently ignores it"
    return f"{place.config.release} silently ignores it, and {dots(newest)} refuses it"


def _certainty(
    place: Place, name: str, refused: bool, meant: _Meant, is_slip_of_one: bool
) -> Severity | None:
    """How surely a key that no release has does harm; None for the severity of its rule."""
    may_be_ignored = refused and place.config.version < _REFUSES
    is_like_one = meant.near is not None or _instead(place, name) is not None
    has_its_block = meant.home == ZERO or (meant.home is not None and place.config.has(meant.home))

    # Programs keep keys of their own at the top level, which DeepSpeed ignores.
    at_top = not refused and not place.section.pointer
    of_program = at_top and not (is_like_one or has_its_block)
    had_own_rule = may_be_ignored and place.pointer in _OWN_RULES  # the old release reads it
    can_be_default = may_be_ignored or not refused

    #: The first that holds decides.
    by_certainty = (
        (of_program, Severity.NOTE),
        (meant.holds and not refused, Severity.NOTE),
        (_is_unused(place), Severity.NOTE),
        (had_own_rule, Severity.NOTE),
        (can_be_default and _is_default(place, meant.near, may_be_ignored), Severity.NOTE),
        (_is_filled_in(place, name), Severity.WARNING),
        # Refused or ignored, a slip has no effect.
        (is_slip_of_one, Severity.ERROR),
        (is_like_one and not reads_key(name, place.config.path), Severity.ERROR),
        (may_be_ignored, Severity.NOTE),
    )
    return next((severity for holds, severity in by_certainty if holds), None)


def _is_filled_in(place: Place, name: str) -> bool:
    """Whether the batch key that was meant is one that the Trainer, whose config it is, fills in.

    The run then has the Trainer's batch, whatever this key says.
    """
    is_batch_key = not place.section.pointer and _NAMES_INSTEAD.get(name) in BATCH_KEYS
    return is_batch_key and any(place.config.value(f"/{key}") == "auto" for key in BATCH_KEYS)


def _move(place: Place, name: str, home: str | None) -> Fix | None:
    """The fix that moves a key into the section that has one of its name; None without one."""
    if home is None:
        return None

    # A section whose name has a slip may stand for the missing home: then a new one would be wrong.
    if not place.config.has(home) and closest(home[1:], place.siblings, _ALIKE):
        return None
    return partial(move_member, pointer=place.pointer, parent_pointer=home, name=name)


def slips_read_later(config: Config) -> Iterator[Problem]:
    """Slips among the keys of blocks that the parser hands on, and numbers in quotes there."""
    for pattern, names in _READ_LATER.items():
        first, star, rest = pattern.partition("/*")
        pointers = [first]
        if star:
            pointers = [f"{first}/{escape(metric)}{rest}" for metric in config.block(first)]
        for pointer in pointers:
            yield from _slips_in(config, pointer, names)


def _slips_in(config: Config, pointer: str, names: str) -> Iterator[Problem]:
    """The same in one block, whose reader knows the keys of these names."""
    block = config.block(pointer)
    if not block:
        return

    keys = names.split()
    for name in keys:
        text = block.get(name)
        if isinstance(text, str) and is_whole(text.strip()):
            where = config.locate(f"{pointer}/{name}")
            message = f"`{name}` is the text {show(text)}, not a number"
            yield "PARSE009", Violation(where, message, f"write {text.strip()}")

    missing = [name for name in keys if name not in block]
    for name in block:
        near = None if name in keys else closest(name[:80], missing, _ALIKE)
        if near is not None:
            where = config.locate_key(f"{pointer}/{escape(name)}")
            unknown = f"unknown key `{printable(name)[:80]}` in {named(pointer)}"
            message, hint = f"{unknown}: nothing reads it", f"did you mean `{near}`?"
            yield "PARSE006", Violation(where, message, hint, severity=Severity.ERROR)


def _is_default(place: Place, meant: str | None, old: bool) -> bool:
    """Whether what was meant has this value by default, so that the mistake does no harm.

    Of a section, all its keys have to; a single key counts only in an `old` release.
    """
    schema, pointer = place.config.schema, f"{place.section.pointer}/{meant}"
    section = schema.section(pointer)
    if isinstance(place.value, dict) and section is not None:
        keys = section.keys
        return all(
            name in keys and value == keys[name].default for name, value in place.value.items()
        )
    key = schema.key(pointer) if old else None
    return key is not None and place.value == key.default


def _is_unused(place: Place) -> bool:
    """Return whether nothing reads the section that the key is in."""
    return place.section.pointer == "/aio" and not place.config.may_swap()


def _section_meant(place: Place, name: str) -> str | None:
    """The missing section that the one called `name` was meant to be; None where none surely is.

    The missing section has all keys of the one that is there. Besides, one of three holds: its name
    is nearly `name`; it alone has one of the keys, of several words; or it alone begins with
    `name`. Programs keep sections of their own beside DeepSpeed's, with keys such as `enabled` and
    `seed`, so a name that a program reads is not meant for another, nor is one that differs in a
    number alone, such as `fp8`.
    """
    value, schema, pointer = place.value, place.config.schema, place.section.pointer
    if not isinstance(value, dict) or not value:
        return None

    parameters = {"/optimizer": schema.optimizers, "/scheduler": schema.schedulers}.get(pointer, {})
    if any(value.keys() <= (keys or {}).keys() for keys in parameters.values()):
        return "params" if "params" not in place.siblings else None

    sections = {
        known_name: section
        for known_name in place.section.names
        if (section := schema.section(f"{pointer}/{known_name}"))
    }

    def may_be_meant(known_name: str) -> bool:
        same_but_for_number = known_name.rstrip(digits) == name.rstrip(digits)
        if known_name in place.siblings or same_but_for_number:
            return False
        return value.keys() <= sections[known_name].keys.keys()

    fitting = [known_name for known_name in sections if may_be_meant(known_name)]
    meant = (
        closest(name[:80], fitting, _ALIKE)
        or _by_key(place, value, fitting)
        or _by_beginning(place, name, value, [*sections], fitting)
    )
    return None if meant is None or reads_key(name, place.config.path) else meant


def _by_key(place: Place, keys: Iterable[str], fitting: list[str]) -> str | None:
    """The first of the fitting sections that alone has one of the keys, of several words."""
    homes = _sections_by_key(place.config.schema.version)
    for known_name in fitting:
        alone = (f"{place.section.pointer}/{known_name}",)
        if any("_" in key and homes.get(key) == alone for key in keys):
            return known_name
    return None


def _by_beginning(
    place: Place, name: str, keys: Iterable[str], sections: list[str], fitting: list[str]
) -> str | None:
    """The one section whose name begins with `name`, where it fits and has keys that few have."""
    begun = [known_name for known_name in sections if known_name.startswith(name)]
    if len(name) < _SHORTEST_BEGINNING or len(begun) != 1 or begun[0] not in fitting:
        return None
    has_rare_key = not _sections_by_key(place.config.schema.version).keys().isdisjoint(keys)
    return begun[0] if has_rare_key else None


# Of several keys alike there is one problem, at the first of them. Each round of fixes removes the
# first that is left: edits of neighbours would overlap.


def _comments(place: Place, name: str) -> Problem | None:
    """The problem of all comments in a section that refuses them; None but at the first."""
    known = place.section.keys
    comments = [key for key in place.siblings if _is_comment(key) and key not in known]
    if name != comments[0]:
        return None
    others = len(comments) - 1
    more = f" and {others} more like it are keys" if others else " is a key"
    message = (
        f"`{printable(name)[:80]}`{more} of {named(place.section.pointer)} to DeepSpeed, which "
        "refuses them"
    )
    return place.problem("PARSE005", message, "remove them", at_key=True, fix=place.removal)


def _fp16_keys(place: Place, name: str, refused: bool) -> Problem | None:
    """The problem of all keys of fp16's block in bf16's; None but at the first."""
    schema, known = place.config.schema, place.section.keys
    keys = [key for key in place.siblings if schema.key(f"/fp16/{key}") and key not in known]
    if name != keys[0]:
        return None
    shown_keys = ", ".join(f"`{printable(key)}`" for key in keys)
    verb = "refuses" if refused else "ignores"
    message = (
        f"{named(place.section.pointer)} has fp16's {shown_keys}: {place.config.release} {verb} "
        "that"
    )
    severity = None if refused else Severity.NOTE
    return place.problem(
        "PREC003", message, "remove them", at_key=True, fix=place.removal, severity=severity
    )


def _is_comment(name: str) -> bool:
    return name.startswith(("_", "//", "#")) or name.lower() in ("comment", "comments", "$schema")


def _is_for_others(place: Place, name: str, refused: bool) -> bool:
    """Return whether the key is a comment, is handed on, or is for another rule to report."""
    section = place.section
    if _is_comment(name) and not refused:
        return True
    if section.extra == "taken" and section.pointer not in _TAKEN_BUT_CLOSED:
        return True
    if section.pointer == "/optimizer":  # parameters of optimizers belong into `params`
        parameters = place.config.schema.optimizers.values()
        return any(name in (keys or ()) for keys in parameters)
    return section.pointer == "/pipeline" or place.pointer == "/max_grad_norm"


def removed(place: Place, name: str) -> Problem | None:
    """The problem of a removed key, or None.

    It is a note where the release that is named still accepts the key.
    """
    section, release = place.section.pointer, place.config.release
    refused = name in place.config.schema.removed.get(section, ())
    last = last_version_of(section, name) if refused or release.where else None
    if refused:
        message = f"{release} refuses {_key_in(section, name)}, whatever its value: it was removed"
        message += f"; {_last_release(last)}" if last else ""
    elif last and last >= release.version and _is_removed_by_now(section, name):
        message = (
            f"{release} accepts {_key_in(section, name)}, which was removed: {_last_release(last)}"
        )
    else:
        return None
    rule = "VER002" if section else "VER001"  # of zero_optimization, of the top level
    hint = _AFTER_REMOVAL.get(name, "remove it").format(last=dots(last or ()))
    severity = None if refused and release.exact else Severity.NOTE
    fix = place.removal if refused else None
    return place.problem(rule, message, hint, at_key=True, fix=fix, severity=severity)


def _is_removed_by_now(section: str, name: str) -> bool:
    """Whether the newest release refuses a key that was removed."""
    return name in load_schema(versions()[-1]).removed.get(section, ())


def _key_in(section: str, name: str) -> str:
    """A key with its section, in a message."""
    return f"`{printable(name)}`" + (f" in {named(section)}" if section else "")


def _last_release(last: Version) -> str:
    """Say when a key went, as far as the tables tell: they skip releases."""
    after = next((version for version in versions() if version > last), None)
    if after is None or after == (*last[:-1], last[-1] + 1):
        return f"{dots(last)} is the last release that accepts it"
    return f"{dots(last)} accepts it, and {dots(after)} doesn't"


def _of_another_release(place: Place, name: str, refused: bool) -> Problem | None:
    """A key that another release has in this place."""
    section, release = place.section.pointer, place.config.release
    first = tables.first_version_of(section, name, tables.table_for(release.version))
    last = last_version_of(section, name)
    if last is None:
        return None
    if first is not None:
        since = _since(first)
        history, other = f"it was added in {since}", f"{since} or later"
    else:
        history, other = _last_release(last), dots(last)
    verb = "refuses" if refused else "ignores"
    message = f"{release} {verb} {_key_in(section, name)}: {history}"
    hint = f"remove it, or use DeepSpeed {other}"
    severity = Severity.ERROR if refused else Severity.WARNING
    if not release.exact or _is_unused(place):
        severity = Severity.NOTE
    return place.problem("VER004", message, hint, severity=severity, at_key=True)


def _since(first: Version) -> str:
    """The release that brought a key, of which `first` is the first table with it."""
    before = max((version for version in versions() if version < first), default=first)
    # Of most minor versions only the last release has a table: the key may have come with an
    # earlier one.
    return dots(first) if before[:2] == first[:2] else f"0.{first[1]}"


def _meant(place: Place, name: str, near: str | None) -> _Meant:
    """What was probably meant by a key; `near` is the key here that is nearly called so."""
    section_meant = _section_meant(place, name)
    if section_meant is not None:
        return _Meant(f"did you mean `{section_meant}`?", section_meant, None)
    instead = _instead(place, name)
    if instead is not None:
        shown, pointer = instead
        if place.config.has(pointer):
            return _there_already(shown)
        hint = f"write {shown}"
        if _is_filled_in(place, name):
            hint = f'remove it, or write {shown} with "auto": the Trainer fills the batch in'
        return _Meant(hint, near, None)
    homes = _sections_by_key(place.config.schema.version).get(name, ())
    if homes:
        return _at_home(place, name, near, homes)

    keys = place.section.names
    alike = near or closest(name[:80], keys)
    if alike and alike in place.siblings:
        return _there_already(f"`{alike}`")
    if alike:
        return _Meant(f"did you mean `{alike}`?", near, None)
    if len(keys) <= _MOST_LISTED:
        return _Meant(f"remove it; the keys here are {', '.join(keys)}", near, None)
    return _Meant("remove it", near, None)


def _at_home(place: Place, name: str, near: str | None, homes: tuple[str, ...]) -> _Meant:
    """What was meant by a key that another section has, or two."""
    places = " or ".join(f"in {named(home)}" if home else "at the top level" for home in homes)
    hint = f"write it {places}"
    if len(homes) > 1:
        return _Meant(hint, near, None)
    (home,) = homes
    pointer = f"{home}/{name}"
    if not place.config.has(pointer):
        return _Meant(hint, near, home)
    says_the_same = place.config.value(pointer) == place.value
    return _there_already(named(pointer), home, holds=says_the_same)


def _there_already(meant: str, home: str | None = None, *, holds: bool = True) -> _Meant:
    """What to do about a key whose right form is written as well."""
    return _Meant(f"remove it: {meant} is there already", None, home, is_there=True, holds=holds)


def _instead(place: Place, name: str) -> tuple[str, str] | None:
    """What to write instead of a key, and the pointer to it; None where that isn't known."""
    known_name = _NAMES_INSTEAD.get(name)
    if known_name is not None:
        return f"`{known_name}`", f"{place.section.pointer}/{known_name}"
    known_block = _BLOCKS_INSTEAD.get(name)
    if known_block is None:
        return None
    shown, pointer = known_block
    return shown, pointer if pointer.startswith("/") else f"{place.section.pointer}/{pointer}"


@cache
def _sections_by_key(version: Version) -> Mapping[str, tuple[str, ...]]:
    """By a key's name, the one or two sections that have it; names of more, such as `enabled`, are
    left out.
    """
    schema = load_schema(version)
    homes: dict[str, tuple[str, ...]] = {}
    for pointer in schema.pointers:
        section = schema.section(pointer)
        if section is not None and pointer != "/bfloat16":
            for name in section.keys:
                homes[name] = (*homes.get(name, ()), pointer)
    return {name: places for name, places in homes.items() if len(places) <= 2}


def written_twice(places: Mapping[str, Place], section: Section) -> Iterator[Problem]:
    """Keys written by name and alias, and deprecated keys, alone or with their successors."""
    written = {name: place for name, place in places.items() if place.value != "auto"}
    known = (section.keys[name] for name in places if name in section.keys)
    for key in {key.name: key for key in known}.values():  # each once, by whatever name
        place = written.get(key.name)
        if place is None:
            continue
        if key.alias is not None and key.alias in written:
            message = (
                f"`{key.name}` and `{key.alias}` are the same key: DeepSpeed refuses both together"
            )
            fix = place.removal if place.value == written[key.alias].value else None
            yield place.problem("PARSE012", message, f"keep `{key.alias}`", at_key=True, fix=fix)
        if key.deprecated is not None:
            yield _deprecated(place, key, key.deprecated, section, written)


def _deprecated(
    place: Place, key: Key, replaced: Deprecation, section: Section, written: Mapping[str, Place]
) -> Problem:
    """The problem of a deprecated key, which the message says to replace."""
    new = section.keys.get(replaced.by)
    instead = replaced.by if new is None else new.written
    names_of_new = {instead} if new is None else {new.written, new.name}
    if replaced.moved and names_of_new & written.keys():
        message = (
            f"the deprecated `{key.name}` is written together with `{instead}`, which replaces it"
        )
        hint = f"remove `{key.name}`"
        return place.problem("PARSE013", message, hint, at_key=True, fix=place.removal)

    message = f"`{key.name}` is deprecated: DeepSpeed reads it as `{instead}` and logs a warning"
    if not replaced.moved:
        message = f"`{key.name}` is deprecated and has no effect"
    rule, fix = "ZERO003", place.removal
    if key.name == "cpu_offload_use_pin_memory":
        hint = 'write "pin_memory" in "offload_optimizer" and "offload_param"'
    elif key.name.startswith("cpu_offload") and not place.value:
        hint = f'write "{instead}": {{"device": "none"}}'
    elif key.name.startswith("cpu_offload"):
        hint = f'write "{instead}": {{"device": "cpu"}}'
        fix = partial(_offload_to_cpu, pointer=place.pointer, name=instead)
    else:
        rule = "ZERO004"
        hint = f'write "{instead}": {place.shown}'
        fix = partial(rename_key, pointer=place.pointer, name=instead)
    return place.problem(rule, message, hint, at_key=True, fix=fix)


def _offload_to_cpu(doc: JsonText, pointer: str, name: str) -> tuple[Edit, ...]:
    """The edits that turn the old switch into the block that replaces it."""
    key_edits = rename_key(doc, pointer, name)
    value_edits = replace_value(doc, pointer, {"device": "cpu"})
    return (*key_edits, *value_edits) if key_edits and value_edits else ()
